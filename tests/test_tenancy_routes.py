"""Generated from the URL resolver: nobody reaches another organisation's rows, nor another member's chats.

Each route has an entry in ROUTES that says how it is asked for. A route without one fails, and so does an entry without
a route. An entry is written for Alice, whose rows it names; the tests then ask the same as others: nobody, Charlie
(admin of Globex), Bob (plain member of Acme), each with rows that exist and rows that do not, and compare the answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
import time_machine
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.db import connection, models, transaction
from django.db.models import Model
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from capabilities.assistant.models import Memory, Scratchpad, Task
from capabilities.assistant.records.kinds import kinds
from capabilities.catalogue.tools.writes import Definition, Origin, create_tool, update_tool
from capabilities.contract.budget_windows import span_of
from capabilities.language_models.providers.lessons import Lesson, Teaches
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    ApprovalRule,
    Category,
    ConnectionTest,
    Grant,
    GrantRequest,
    HelperModule,
    HelperVersion,
    Hook,
    ImportedTool,
    LanguageModel,
    McpServer,
    ModelPrice,
    Policy,
    PolicyProfile,
    Provider,
    Publication,
    PushSubscription,
    Role,
    RoleMembership,
    RoleRule,
    RuntimeConfig,
    ServiceSetting,
    StoredCredential,
    StoredSecret,
    Tool,
    ToolImport,
    ToolKind,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
    ToolRefusal,
    ToolTestCase,
    ToolVersion,
    VersionStatus,
    kept_back,
)
from sessions.models import (
    Approval,
    Budget,
    BudgetPeriod,
    ClientRequest,
    Consent,
    Door,
    Schedule,
    Step,
    StepFile,
    ToolSet,
    TrialRun,
    TrialStatus,
    Turn,
    TurnEvent,
    TurnStatus,
    VerdictSet,
)
from tests.cast import (
    make_agent,
    make_approval,
    make_category,
    make_member,
    make_organisation,
    make_role,
    make_session,
    make_token,
    make_tool,
    make_turn,
)
from tests.starter_rows import fill_starter_tables
from toolhub.tenants.access import issue_token
from toolhub.tenants.audit.denials import DENIED
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import ADMIN_ONLY_RIGHTS, Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.people.invitations import invite
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope, system_scope
from toolhub.tenants.saved_filters.writes import save_filter

pytestmark = [pytest.mark.exhaustive, pytest.mark.django_db]

#: Stands in every text of Acme's, and must stand in nothing that Charlie reads.
CANARY = "zebracanary"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HTMX = {"HX-Request": "true"}
NO_SCHEDULE = uuid4()


# -- What is asked for ------------------------------------------------------------------------------------------------


NO_RECORD = uuid4()


@dataclass(frozen=True)
class OrganisationRows:
    """Names of rows, as paths, queries and bodies give them: those of one organisation, or of rows that are missing.

    The fields bear the names of the path arguments of the routes.
    """

    org: str
    session_id: UUID
    turn_id: UUID
    open_turn: UUID
    index: int
    name: str
    category: str
    agent: str
    slug: str
    role: str
    service: str
    idle_agent: str
    empty_category: str
    member_id: UUID
    grant_id: UUID
    model_id: UUID
    #: Another plain member of the organisation, and a token of theirs.
    colleague: UUID
    token_id: UUID
    #: Of the asking member alone; nobody has a passkey.
    own_token: UUID
    pk: int
    invitation_id: UUID
    #: Requests for a grant: the asking member's own, and another's.
    own_request: UUID
    request_id: UUID
    #: One that an agent may load, and one that none does.
    toolkit: str = "no_such_toolkit"
    idle_toolkit: str = "no_idle_toolkit"
    own_browser: UUID = field(default_factory=uuid4)
    own_filter: UUID = field(default_factory=uuid4)
    #: A role of the mode `listed`.
    listed: str = "no-listed"
    schedule_id: UUID = NO_SCHEDULE
    #: A kind of what members keep, and the asking member's own rows, one of each.
    kind: str = "no-such-kind"
    own_tasks: UUID = NO_RECORD
    own_lists: UUID = NO_RECORD
    own_list_items: UUID = NO_RECORD
    own_groceries: UUID = NO_RECORD
    own_scratchpad: UUID = NO_RECORD
    own_agent_notes: UUID = NO_RECORD
    own_journals: UUID = NO_RECORD
    own_journal_entries: UUID = NO_RECORD
    own_events: UUID = NO_RECORD
    own_people: UUID = NO_RECORD
    own_memories: UUID = NO_RECORD
    own_messages: UUID = NO_RECORD
    own_food: UUID = NO_RECORD
    own_recipes: UUID = NO_RECORD
    own_places: UUID = NO_RECORD
    own_reminders: UUID = NO_RECORD
    secret: str = "no-such-secret"
    #: A run of the tool by hand, of the asking member alone.
    trial_id: UUID = field(default_factory=uuid4)
    email: str = "nobody@example.com"
    colleague_email: str = "nobody-else@example.com"
    #: A category without tools, and without grants of an admin.
    idle_category: str = "no_idle_category"
    hook_id: UUID = field(default_factory=uuid4)
    rule_id: UUID = field(default_factory=uuid4)
    #: A call of the asking member's that waits, and what was remembered of one.
    approval_id: UUID = field(default_factory=uuid4)
    consent_id: UUID = field(default_factory=uuid4)
    #: A form that a call of the asking member's waits for, and a file of a result.
    form_id: UUID = field(default_factory=uuid4)
    file_id: UUID = field(default_factory=uuid4)
    #: A budget that each agent has its own part of, and the running window of one.
    budget_id: UUID = field(default_factory=uuid4)
    period_id: UUID = field(default_factory=uuid4)
    #: Of the model that `model_id` names, and it has not begun.
    price_id: UUID = field(default_factory=uuid4)
    #: A profile of tools that no policy begins with.
    profile: str = "no_profile"
    #: What was learned of the model.
    lesson: str = "omit:nothing"
    #: An MCP server, and a credential that may be sent to https://mcp.example.org.
    server: str = "no-such-server"
    #: A tool of kind HTTP.
    http_tool: str = "no-such-tool"
    credential: str = "no_such_credential"
    #: A credential that nothing uses; one that members connect own accounts to, with the asking member's and another's.
    idle_credential: str = "no_idle_credential"
    own_credential: str = "no_own_credential"
    account_id: UUID = field(default_factory=uuid4)
    #: A Python tool that the colleague wrote: version 1 was in force, 2 is, 3 waits.
    python_tool: str = "no_python_tool"
    test_id: UUID = field(default_factory=uuid4)
    #: That a model's provider refuses the Python tool.
    refusal_id: UUID = field(default_factory=uuid4)
    #: A tool of the server that is kept back, and offered as it was accepted.
    kept_back_tool: str = "no_kept_back_tool"
    #: A module that the Python tool imports, with versions of the same states; and one that nothing imports.
    module: str = "no_module"
    idle_module: str = "no_idle_module"
    number: int = 3
    first: int = 1
    second: int = 2
    retired: int = 1
    other: int = 2
    #: An import that waits for decisions, and one definition of it.
    import_id: UUID = field(default_factory=uuid4)
    imported_id: UUID = field(default_factory=uuid4)
    #: A copy of a toolkit that was withdrawn: nobody else reads it.
    publication_id: UUID = field(default_factory=uuid4)


MISSING = OrganisationRows(
    "nowhere",
    uuid4(),
    uuid4(),
    uuid4(),
    9,
    "no_such_tool",
    "no_such_category",
    "no-agent",
    "no-provider",
    "no-role",
    "no_service",
    "no-idle-agent",
    "no_empty_category",
    uuid4(),
    uuid4(),
    uuid4(),
    uuid4(),
    uuid4(),
    uuid4(),
    987654,
    uuid4(),
    uuid4(),
    uuid4(),
)

Named = Callable[[OrganisationRows], Mapping[str, Any]]


@dataclass(frozen=True)
class Ask:
    """One way to ask a route: `status` is Alice's answer, `refused` the one to a body or query that names no row."""

    method: str = "GET"
    status: int = 200
    body: Named | None = None
    query: Named | None = None
    refused: int = 400
    #: What a plain member lacks for it (403), where not the whole route asks for it.
    right: Right | None = None
    #: What a plain member lacks besides, with the right.
    also: Right | None = None
    #: The answer to a member whose roles allow no tool, where that is another one.
    without_tools: int | None = None
    #: The answer to a member with the right, where it is another one: an admin has the role, so they may not change it.
    below_admin: int | None = None


@dataclass(frozen=True)
class Route:
    """How a route is asked for."""

    asks: tuple[Ask, ...] = (Ask(),)
    #: Path arguments that are not called as the OrganisationRows's field is: {"turn_id": "open_turn"}.
    args: Mapping[str, str] = field(default_factory=dict)
    #: What a plain member lacks for it (403).
    right: Right | None = None
    #: Open to anybody.
    is_public: bool = False


KNOBS_FORM = {"pattern": "shell", "knob_timeout_sec": "9"}
KNOBS_ASKS = (
    Ask(),
    Ask("PUT", body=lambda side: {"tools": {"shell": {"timeout_sec": 9}}}),
    Ask("PATCH", body=lambda side: {"profile": "zeus"}),
    Ask("DELETE", 204),
)
#: A secret, as somebody types it.
TYPED = {"token": "typed-secret"}
TOKYO = {"time_zone": "Asia/Tokyo"}
INVITED = {"email": "new@example.com", "access": "member"}


def published_body(side: OrganisationRows) -> dict[str, Any]:
    return {"toolkit": side.idle_toolkit, "audience": "address"}


def provider_form(side: OrganisationRows) -> dict[str, Any]:
    return {
        "name": "Fresh",
        "slug": "fresh",
        "base_url": "",
        "model_name": "m",
        "context_window": 8000,
        "tool_limit": 128,
        "is_enabled": "on",
        "agents": [side.agent],
    }


def agent_body(side: OrganisationRows) -> dict[str, Any]:
    return {
        "slug": "fresh",
        "name": "Fresh",
        "provider": side.slug,
        "model": side.slug.replace("provider", "model"),
        "tools": [side.name],
        "allowed_toolkits": [side.toolkit],
    }


def policy_body(side: OrganisationRows) -> dict[str, Any]:
    return {"profile": side.profile}


def hook_body(side: OrganisationRows) -> dict[str, Any]:
    """It names an agent, a provider and a member, each by what people outside know of it."""
    when = {"agents": [side.agent], "providers": [side.slug], "members": [str(side.member_id)]}
    return {"name": "fresh", "action": "ask", "settings": {"message": "Sure?"}, "when": when}


def hook_form(side: OrganisationRows) -> dict[str, Any]:
    conditions = {"members": side.email, "share": "50", "priority": "100", "disable_after": "5"}
    return {"name": "fresh", "settings.message": "Sure?", "on_error": "deny", **conditions}


def rule_body(side: OrganisationRows) -> dict[str, Any]:
    """It names an agent, a role and a toolkit."""
    named = {"agent": side.agent, "role": side.role, "toolkit": side.toolkit}
    return {"tool_pattern": side.name, "expires_after": 24, "priority": 5} | named


def several(side: OrganisationRows) -> dict[str, Any]:
    return {"do": "deny", "approval": side.approval_id}


def rule_form(side: OrganisationRows) -> dict[str, Any]:
    return rule_body(side) | {"when": "always"}


def server_body(side: OrganisationRows) -> dict[str, Any]:
    """It names a credential."""
    return {"name": "fresh", "url": "https://mcp.example.org/mcp", "credential": side.credential}


def accept_body(side: OrganisationRows) -> dict[str, Any]:
    """It names a definition, a category and a credential."""
    return {"tools": [str(side.imported_id)], "category": side.category, "credential": side.credential}


def credential_body(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "title": "Fresh", "origins": ["https://api.example.org"], "secret": TYPED}


def credential_form(side: OrganisationRows) -> dict[str, Any]:
    """With the fields of the kind that is asked for."""
    origins = {"origins": "https://api.example.org"}
    return {"kind": "bearer", "name": "fresh", "title": "Fresh", "scope": "organisation", **origins, **TYPED}


def http_tool_body(side: OrganisationRows) -> dict[str, Any]:
    """It names a category and a credential."""
    return {"name": "fresh", "category": side.category} | http_tool_content(side)


def http_tool_content(side: OrganisationRows) -> dict[str, Any]:
    """It names a credential."""
    request = {"method": "GET", "url": "https://mcp.example.org/"}
    return {"description": "Fresh.", "implementation": request, "credential": side.credential}


def python_tool_form(side: OrganisationRows) -> dict[str, Any]:
    return {
        "name": "fresh",
        "category": side.category,
        "description": "Fresh.",
        "parameters": '{"type": "object", "properties": {}}',
        "code": "def run():\n    return 1",
        "runtime": "monty",
        "effect": "read",
        "timeout": "5",
        "max_result_chars": "1000",
        "do": "draft",
    }


def python_tool_content(side: OrganisationRows) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    return {"description": "Fresh.", "parameters": schema, "code": "def run():\n    return 1", "submit": False}


def python_tool_body(side: OrganisationRows) -> dict[str, Any]:
    return python_tool_content(side) | {"name": "fresh", "category": side.category}


def python_check_body(side: OrganisationRows) -> dict[str, Any]:
    content = {name: value for name, value in python_tool_content(side).items() if name != "submit"}
    return content | {"name": "fresh", "example": {}}


def module_form(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "description": "Fresh.", "code": "FRESH = 1", "do": "submit"}


def module_body(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "description": "Fresh.", "code": "FRESH = 1"}


def module_check_body(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "code": "FRESH = 1"}


def http_tool_form(side: OrganisationRows) -> dict[str, Any]:
    fields = {"name": "fresh", "description": "Fresh.", "method": "GET", "url": "https://mcp.example.org/"}
    fields |= {"effect": "read", "on_crash": "never", "in_untrusted": "allow", "timeout": "20"}
    fields |= {"max_result_chars": "40000", "arguments-TOTAL_FORMS": "0", "arguments-INITIAL_FORMS": "0"}
    return fields | {"category": side.category, "credential": side.credential}


def budget_form(side: OrganisationRows) -> dict[str, Any]:
    """It names a role."""
    return {
        "name": "Fresh",
        "measure": "tokens",
        "limit": "1000",
        "window": "day",
        "scope": "role",
        "role": side.role,
        "stops": "hard",
    }


def budget_body(scope: str, **named: str) -> Named:
    """A budget for what these fields of the side name."""
    return lambda side: (
        {"name": "Fresh", "limit": "1000", "scope": scope}
        | {name: str(getattr(side, row)) for name, row in named.items()}
    )


def forcing_body(side: OrganisationRows) -> dict[str, Any]:
    settings = {"provider": side.slug, "model": side.slug.replace("provider", "model")}
    return {"name": "forcing", "action": "set_provider_and_model", "settings": settings}


def toolkit_body(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "tools": [{"tool": side.name, "timeout": 60}], "categories": [side.category]}


def role_body(side: OrganisationRows) -> dict[str, Any]:
    return {"slug": "fresh", "name": "Fresh", "mode": "listed", "rules": [{"tool": side.name, "effect": "allow"}]}


def agent_form(side: OrganisationRows) -> dict[str, Any]:
    modes = {"loading_mode": "next_request", "scope": "organisation"}
    names = {"tools": [side.name], "allowed_toolkits": [side.toolkit]}
    return {"slug": "fresh", "name": "Fresh", "model": side.model_id} | modes | names


def toolkit_form(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "tools": [side.name], "categories": [side.category]}


def model_form(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "fresh", "context_window": 8000, "agents": [side.agent]}


def role_form(side: OrganisationRows) -> dict[str, Any]:
    return {"slug": "fresh", "name": "Fresh", "mode": "listed", f"tool-{side.name}": "allow"}


def matrix_form(side: OrganisationRows) -> dict[str, Any]:
    return {f"{side.listed}:t:{side.name}:": "allow"}


def stale(form: Named) -> Named:
    """What was previewed for a role that has changed since."""
    return lambda side: {**form(side), "stamp": "0.0"}


def grant_form(side: OrganisationRows) -> dict[str, Any]:
    return {
        "member": side.colleague_email,
        "effect": "deny",
        "category": side.category,
        "reason": "None.",
        "until": "8h",
    }


def schedule_body(side: OrganisationRows) -> dict[str, Any]:
    return {"name": "Fresh", "message": "hello", "cron": "0 9 * * *", "timezone": "UTC", "agent": side.agent}


#: What is written into a row of each kind that members keep.
RECORDS: dict[str, dict[str, Any]] = {
    "tasks": {"title": "Fresh"},
    "lists": {"name": "Fresh"},
    "list-items": {"list": "Fresh", "text": "Fresh"},
    "groceries": {"name": "Fresh"},
    "scratchpad": {"text": "Fresh"},
    "agent-notes": {"text": "Fresh"},
    "journals": {"name": "Fresh"},
    "journal-entries": {"journal": "Fresh", "text": "Fresh"},
    "events": {
        "title": "Fresh",
        "starts_at": "2026-11-22T12:00:00Z",
        "ends_at": "2026-11-22T13:00:00Z",
        "time_zone": "UTC",
    },
    "people": {"name": "Fresh"},
    "memories": {"text": "Fresh"},
    "messages": {},
    "food": {"food": "Fresh"},
    "recipes": {"name": "Fresh", "ingredients": "Fresh"},
    "places": {"name": "Fresh", "latitude": 1, "longitude": 1},
    "reminders": {"text": "Fresh"},
}


def record_body(name: str) -> Named:
    return lambda side: RECORDS[name]


def record_routes() -> dict[str, Route]:
    """The routes of what members keep, over REST."""
    routes = {}
    for kind in kinds():
        body = record_body(kind.name)
        create = (Ask("POST", 201, body=body),) if kind.create else ()
        change = (Ask("PATCH", body=body),) if kind.change else ()
        routes[f"api-data-{kind.name}"] = Route((Ask(), *create))
        row = {"own_record": f"own_{kind.name.replace('-', '_')}"}
        routes[f"api-data-{kind.name}-row"] = Route((Ask(), *change, Ask("DELETE", 204)), args=row)
    return routes


#: What a browser gives that is to show notifications: an address, a point of P-256, 16 bytes.
BROWSER = {
    "endpoint": "https://push.example/fresh",
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}
OWN_TASK = {"own_record": "own_tasks"}
MESSAGE = {"message": "hello"}
CHAT = [{"role": "user", "content": "hello"}]
OPEN = {"turn_id": "open_turn"}
IDLE_CREDENTIAL = {"credential": "idle_credential"}
OWN_CREDENTIAL = {"credential": "own_credential"}
COLLEAGUE = {"member_id": "colleague"}
#: Sent to confirm who it is, before anything else.
ASKS_PASSWORD = (Ask(status=302), Ask("POST", 302))

ROUTES: dict[str, Route] = {
    # The service
    "healthz": Route(is_public=True),
    "readyz": Route((Ask(status=503),), is_public=True),  # no worker runs beside the tests
    "metrics": Route((Ask(status=404),), is_public=True),  # no operator set a token
    "account_login": Route((Ask(status=302),), is_public=True),
    "account_logout": Route((Ask(), Ask("POST", 302)), is_public=True),
    "account_inactive": Route(is_public=True),
    "api-schema": Route(is_public=True),  # 401 for strangers, and the same for everybody else
    "api-docs": Route(is_public=True),
    "push_worker": Route(is_public=True),
    "tool_file_list": Route((Ask(), Ask(query=lambda side: {"state": "broken"})), right=Right.CATALOGUE),
    "api-tool-files": Route((Ask(), Ask(query=lambda side: {"state": "broken"})), right=Right.CATALOGUE),
    "oauth_callback": Route((Ask(status=422),)),
    "oauth_client": Route(is_public=True),
    "calendar_feed": Route((Ask(status=404),), args={"secret": "name"}, is_public=True),
    "home": Route((Ask(status=302),)),
    # REST: chats
    "api-sessions": Route(
        (Ask(), Ask(query=lambda side: {"client": "openai"}), Ask("POST", 201, body=lambda side: {"agent": side.agent}))
    ),
    "api-session": Route((Ask(), Ask("PATCH", body=lambda side: {"title": "Renamed"}), Ask("DELETE", 204))),
    "api-session-turns": Route((Ask(), Ask("POST", 202, body=lambda side: MESSAGE))),
    "api-session-tools": Route((Ask(), Ask(query=lambda side: {"agent": side.agent}))),
    "api-session-toolkits": Route(
        (
            Ask(),
            Ask(query=lambda side: {"agent": side.agent}),
            # The agent begins with this one.
            Ask("POST", body=lambda side: {"toolkit": side.toolkit}),
            Ask("POST", 201, body=lambda side: {"category": side.category, "agent": side.agent}),
        )
    ),
    "api-session-toolkit": Route(
        (Ask("DELETE"), Ask("DELETE", query=lambda side: {"agent": side.agent})), args={"name": "category"}
    ),
    "api-session-loads": Route(),
    "api-turn": Route(),
    "api-turn-request": Route(),
    "api-turn-steps": Route(),
    "api-turn-events": Route(),
    "v1-models": Route(),
    "v1-model": Route(args={"name": "agent"}),
    "v1-chat": Route((Ask("POST", body=lambda side: {"model": side.agent, "messages": CHAT}, refused=404),)),
    "v1-responses": Route((Ask("POST", body=lambda side: {"model": side.agent, "input": "hello"}, refused=404),)),
    "api-turn-cancel": Route((Ask("POST"),), args=OPEN),
    "api-approvals": Route(
        (
            Ask(),
            Ask(query=lambda side: {"status": "pending", "answerable": "true"}),
        )
    ),
    "api-approval": Route(),
    "api-approval-approve": Route(
        (
            Ask("POST"),
            Ask("POST", body=lambda side: {"remember": "session"}),
            Ask("POST", body=lambda side: {"remember": "hours", "hours": 8, "note": "Fine."}),
        )
    ),
    "api-approval-deny": Route((Ask("POST", body=lambda side: {"proposal": "Ask again on Monday."}),)),
    "api-approval-respond": Route((Ask("POST", body=lambda side: {"response": "It is 4."}),)),
    "api-turn-files": Route(),
    "api-file": Route(),
    "api-approval-answer": Route(
        (Ask("POST", body=lambda side: {"action": "accept", "content": {"seat": "4a"}}),),
        args={"approval_id": "form_id"},
    ),
    "api-consents": Route(),
    "api-consent": Route((Ask(), Ask("DELETE"))),
    "api-schedules": Route((Ask(), Ask("POST", 201, body=schedule_body))),
    "api-schedule": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"agent": side.agent, "is_enabled": False}), Ask("DELETE", 204))
    ),
    "api-explain": Route(
        (
            Ask(),
            Ask(query=lambda side: {"member": side.colleague}, right=Right.ROLES),
            Ask(query=lambda side: {"agent": side.agent}),
            Ask(query=lambda side: {"category": side.category}),
        )
    ),
    "api-usage": Route(
        (
            Ask(query=lambda side: {"group_by": "agent"}),
            Ask(query=lambda side: {"group_by": "tool"}, right=Right.BUDGETS),
        )
    ),
    # REST: the catalogue
    "api-categories": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"name": "fresh", "title": "Fresh"}, right=Right.CATALOGUE))
    ),
    "api-category": Route(
        (
            Ask(),
            Ask("PATCH", body=lambda side: {"title": "Fresh"}, right=Right.CATALOGUE),
            Ask("DELETE", 204, right=Right.CATALOGUE),
        ),
        args={"name": "idle_category"},
    ),
    "api-tools": Route((Ask(), Ask(query=lambda side: {"category": side.category}))),
    "api-tools-bulk": Route(
        (
            Ask("POST", body=lambda side: {"names": [side.name], "is_enabled": False}),
            Ask("POST", body=lambda side: {"names": [side.name], "category": side.empty_category}),
        ),
        right=Right.CATALOGUE,
    ),
    "api-tool": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"category": side.category, "is_enabled": False}, right=Right.CATALOGUE))
    ),
    "api-tool-versions": Route(),
    "api-credentials": Route((Ask(), Ask("POST", 201, body=credential_body)), right=Right.CATALOGUE),
    "api-credential": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"title": "Fresh"}), Ask("DELETE", 204)),
        args=IDLE_CREDENTIAL,
        right=Right.CATALOGUE,
    ),
    "api-credential-secret": Route(
        (Ask("PUT", body=lambda side: {"values": TYPED}), Ask("DELETE", 204)),
        args=IDLE_CREDENTIAL,
        right=Right.CATALOGUE,
    ),
    "api-credential-accounts": Route(args=OWN_CREDENTIAL, right=Right.CATALOGUE),
    "api-credential-account": Route((Ask("DELETE", 204),), args=OWN_CREDENTIAL, right=Right.CATALOGUE),
    "api-accounts": Route(),
    "api-account": Route(
        (Ask(), Ask("PUT", body=lambda side: {"values": TYPED}), Ask("DELETE", 204)), args=OWN_CREDENTIAL
    ),
    "api-tool-quarantine": Route(
        (Ask("PUT", 204, body=lambda side: {"reason": "Fresh."}), Ask("DELETE", 204)),
        {"name": "kept_back_tool"},
        Right.APPROVE_CODE,
    ),
    "api-tool-version": Route(args={"name": "python_tool"}),
    "api-tool-version-difference": Route(args={"name": "python_tool"}),
    "api-tool-version-decide": Route(
        (Ask("POST", body=lambda side: {"decision": "approve"}),), {"name": "python_tool"}, Right.APPROVE_CODE
    ),
    "api-tool-version-rollback": Route(
        (Ask("POST", body=lambda side: {}),), {"name": "python_tool", "number": "retired"}, Right.APPROVE_CODE
    ),
    "api-python-tools": Route((Ask("POST", 201, body=python_tool_body),), right=Right.CATALOGUE),
    "api-python-tool-checks": Route((Ask("POST", body=python_check_body),), right=Right.CATALOGUE),
    "api-python-tool": Route((Ask(), Ask("PUT", body=python_tool_content)), {"name": "python_tool"}, Right.CATALOGUE),
    "api-python-tool-tests": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"name": "fresh"})), {"name": "python_tool"}, Right.CATALOGUE
    ),
    "api-tool-refusals": Route(args={"name": "python_tool"}),
    "api-tool-refusal": Route((Ask("DELETE", 204),), {"name": "python_tool"}, Right.CATALOGUE),
    "api-python-tool-tests-run": Route(
        (Ask("POST", body=lambda side: {"version": 2}),), {"name": "python_tool"}, Right.CATALOGUE
    ),
    "api-python-tool-test": Route(
        (Ask(), Ask("PUT", body=lambda side: {"name": "fresh"}), Ask("DELETE", 204)),
        {"name": "python_tool"},
        Right.CATALOGUE,
    ),
    "api-agents-make-tools": Route(
        (Ask(), Ask("PUT", body=lambda side: {"agents_make_tools": True})), right=Right.APPROVE_CODE
    ),
    "api-python-modules": Route((Ask(), Ask("POST", 201, body=module_body)), right=Right.CATALOGUE),
    "api-python-module-checks": Route((Ask("POST", body=module_check_body),), right=Right.CATALOGUE),
    "api-python-module": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"description": "Fresh"}), Ask("DELETE", 204)),
        {"name": "idle_module"},
        Right.CATALOGUE,
    ),
    "api-python-module-retire": Route((Ask("POST", body=lambda side: {}),), {"name": "module"}, Right.CATALOGUE),
    "api-python-module-uses": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "api-python-module-versions": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"code": "FRESH = 1"})), {"name": "module"}, Right.CATALOGUE
    ),
    "api-python-module-version": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "api-python-module-difference": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "api-python-module-decide": Route(
        (Ask("POST", body=lambda side: {"decision": "approve"}),), {"name": "module"}, Right.APPROVE_CODE
    ),
    "api-python-module-rollback": Route(
        (Ask("POST", body=lambda side: {}),), {"name": "module", "number": "retired"}, Right.APPROVE_CODE
    ),
    "api-services": Route(right=Right.CATALOGUE),
    "api-service": Route(
        # Nothing can be said of a service that this version does not know.
        (Ask(), Ask("PUT", 400, body=lambda side: {"values": {}}), Ask("DELETE", 204)),
        right=Right.CATALOGUE,
    ),
    "api-service-test": Route((Ask(), Ask("POST", 409)), right=Right.CATALOGUE),
    "api-http-tools": Route((Ask("POST", 201, body=http_tool_body),), right=Right.CATALOGUE),
    "api-http-tool-preview": Route((Ask("POST", body=http_tool_body),), right=Right.CATALOGUE),
    "api-http-tool": Route(
        (Ask(), Ask("PUT", body=http_tool_content)), args={"name": "http_tool"}, right=Right.CATALOGUE
    ),
    "api-imports": Route(
        (Ask(), Ask("POST", 202, body=lambda side: {"source": "openapi", "document": "{}"})), right=Right.CATALOGUE
    ),
    "api-import": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"base_url": "https://other.example.org"})), right=Right.CATALOGUE
    ),
    "api-import-tools": Route(
        (
            Ask(),
            Ask(query=lambda side: {"status": "new"}),
            Ask("PATCH", body=lambda side: {"tools": [side.imported_id], "effect": "read"}),
        ),
        right=Right.CATALOGUE,
    ),
    "api-import-tool": Route((Ask(), Ask("PATCH", body=lambda side: {"effect": "external"})), right=Right.CATALOGUE),
    "api-import-accept": Route((Ask("POST", body=accept_body),), right=Right.CATALOGUE),
    "api-import-toolkit": Route((Ask("POST", 409),), right=Right.TOOLKITS),  # it is of no toolkit file
    "api-publications": Route(
        (
            Ask(query=lambda side: {"whose": "own"}, right=Right.CATALOGUE),
            Ask("POST", 201, body=published_body, right=Right.APPROVE_CODE, also=Right.CATALOGUE),
        )
    ),
    "api-publication": Route(
        (Ask(right=Right.CATALOGUE), Ask("DELETE", 204, right=Right.APPROVE_CODE, also=Right.CATALOGUE))
    ),
    "api-publication-import": Route((Ask("POST", 409),), right=Right.CATALOGUE),  # it is withdrawn
    "api-import-dismiss": Route(
        (Ask("POST", body=lambda side: {"tools": [str(side.imported_id)]}),), right=Right.CATALOGUE
    ),
    "api-mcp-servers": Route((Ask(), Ask("POST", 201, body=server_body)), right=Right.CATALOGUE),
    "api-mcp-server": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"title": "Fresh"}), Ask("DELETE", 204)),
        args={"name": "server"},
        right=Right.CATALOGUE,
    ),
    "api-mcp-server-test": Route((Ask(), Ask("POST", 202)), args={"name": "server"}, right=Right.CATALOGUE),
    "api-mcp-server-read": Route((Ask("POST", 202),), args={"name": "server"}, right=Right.CATALOGUE),
    "api-mcp-server-accept": Route((Ask("POST"),), args={"name": "server"}, right=Right.APPROVE_CODE),
    "api-toolkits": Route((Ask(), Ask("POST", 201, body=toolkit_body, right=Right.TOOLKITS))),
    "api-toolkit": Route(
        (
            Ask(),
            Ask("PATCH", body=lambda side: {"tools": [{"tool": side.name}]}, right=Right.TOOLKITS),
            Ask("DELETE", 204, right=Right.TOOLKITS),
        ),
        args={"name": "idle_toolkit"},
    ),
    "api-toolkit-export": Route((Ask("POST"),), args={"name": "idle_toolkit"}, right=Right.CATALOGUE),
    "api-policies": Route(right=Right.POLICIES),
    "api-organisation-policy": Route((Ask(), Ask("PATCH", body=policy_body)), right=Right.POLICIES),
    "api-provider-policy": Route((Ask(), Ask("PATCH", body=policy_body)), right=Right.POLICIES),
    "api-policy-profiles": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"name": "fresh", "patterns": ["*"]})), right=Right.POLICIES
    ),
    "api-policy-profile": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"reads_only": True}), Ask("DELETE", 204)),
        args={"name": "profile"},
        right=Right.POLICIES,
    ),
    "api-agents": Route((Ask(), Ask("POST", 201, body=lambda side: agent_body(side), right=Right.AGENTS))),
    "api-agent": Route(
        (
            Ask(),
            Ask("PATCH", body=lambda side: {"tools": [side.name]}, right=Right.AGENTS),
            Ask("DELETE", 204, right=Right.AGENTS),
        ),
        args={"slug": "idle_agent"},
    ),
    "api-agent-tools": Route(args={"slug": "agent"}),
    "api-providers": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"slug": "fresh", "name": "Fresh"})), right=Right.PROVIDERS
    ),
    "api-provider": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"name": "Fresh"}), Ask("DELETE", 204)), right=Right.PROVIDERS
    ),
    "api-models": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"provider": side.slug, "name": "fresh"})), right=Right.PROVIDERS
    ),
    "api-model": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"max_rounds": 3}), Ask("DELETE", 204)), right=Right.PROVIDERS
    ),
    "api-prices": Route(right=Right.BUDGETS),
    "api-model-prices": Route(
        (Ask(), Ask("POST", 201, body=lambda side: {"input": "1", "output": "2", "note": "fresh"})),
        right=Right.BUDGETS,
    ),
    "api-model-price": Route((Ask("DELETE", 204),), right=Right.BUDGETS),
    "api-provider-test": Route((Ask(), Ask("POST", 202)), right=Right.PROVIDERS),
    "api-model-lesson": Route((Ask("DELETE", 204),), args={"key": "lesson"}, right=Right.PROVIDERS),
    "api-model-test": Route((Ask(), Ask("POST", 202)), right=Right.PROVIDERS),
    "api-roles": Route((Ask(), Ask("POST", 201, body=lambda side: role_body(side))), right=Right.ROLES),
    "api-role": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"rules": [{"category": side.category}]}), Ask("DELETE", 204)),
        args={"slug": "listed"},
        right=Right.ROLES,
    ),
    "api-member-roles": Route(
        (Ask(), Ask("PUT", body=lambda side: {"roles": [side.role]})), args=COLLEAGUE, right=Right.ROLES
    ),
    "api-approval-rules": Route((Ask(), Ask("POST", 201, body=lambda side: rule_body(side))), right=Right.POLICIES),
    "api-approval-rule": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"agent": side.agent, "toolkit": side.toolkit}), Ask("DELETE", 204)),
        right=Right.POLICIES,
    ),
    "api-budgets": Route(
        (
            Ask(),
            Ask("POST", 201, body=budget_body("role", role="role")),
            Ask("POST", 201, body=budget_body("member", member="colleague")),
            Ask("POST", 201, body=budget_body("agent", agent="agent")),
        ),
        right=Right.BUDGETS,
    ),
    "api-budgets-mine": Route(),
    "api-organisation": Route((Ask(), Ask("PATCH", body=lambda side: {"name": "Fresh"}, right=Right.MEMBERS))),
    "api-budget-rules": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"time_zone": "Asia/Tokyo"}, right=Right.BUDGETS))
    ),
    "api-budget": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"limit": "5"}), Ask("DELETE", 204)), right=Right.BUDGETS
    ),
    "api-budget-periods": Route(right=Right.BUDGETS),
    "api-period-reset": Route((Ask("POST"),), right=Right.BUDGETS),
    "api-period-top-up": Route((Ask("POST", body=lambda side: {"amount": "5"}),), right=Right.BUDGETS),
    "api-runtime-config": Route(right=Right.POLICIES),
    "api-runtime-config-organisation": Route(KNOBS_ASKS, right=Right.POLICIES),
    "api-runtime-config-provider": Route(KNOBS_ASKS, right=Right.POLICIES),
    "api-runtime-config-agent": Route(KNOBS_ASKS, args={"slug": "agent"}, right=Right.POLICIES),
    "api-runtime-config-tool": Route(
        (Ask(), Ask(query=lambda side: {"agent": side.agent, "provider": side.slug})), right=Right.POLICIES
    ),
    "api-hooks": Route(
        (
            Ask(),
            Ask("POST", 201, body=lambda side: hook_body(side)),
            Ask("POST", 201, body=lambda side: forcing_body(side)),
        ),
        right=Right.HOOKS,
    ),
    "api-hook": Route(
        (
            Ask(),
            Ask("PATCH", body=lambda side: {"when": {"agents": [side.agent]}}),
            Ask("DELETE", 204),
        ),
        right=Right.HOOKS,
    ),
    "api-grants": Route(
        (
            Ask(),
            Ask(query=lambda side: {"member": side.member_id}),
            Ask("POST", 201, body=lambda side: {"member": side.colleague, "category": side.category, "effect": "deny"}),
        ),
        right=Right.ROLES,
    ),
    "api-grant": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"reason": "None."}), Ask("DELETE", 204)), right=Right.ROLES
    ),
    "api-grant-requests": Route(
        (
            Ask(),
            Ask(query=lambda side: {"status": "waiting"}),
            Ask("POST", 201, body=lambda side: {"category": side.empty_category, "reason": "None.", "hours": 8}),
        )
    ),
    "api-grant-request": Route(),
    "api-grant-request-withdraw": Route((Ask("POST"),)),
    "api-grant-request-grant": Route((Ask("POST", body=lambda side: {"hours": 8}),), right=Right.ROLES),
    "api-grant-request-refuse": Route((Ask("POST", body=lambda side: {"answer": "No."}),), right=Right.ROLES),
    "api-registry": Route(),
    # REST and pages: what members keep
    **record_routes(),
    "data_overview": Route(),
    "data_list": Route((Ask(), Ask(query=lambda side: {"state": "done"}))),
    "data_create": Route((Ask(), Ask("POST", 302, body=lambda side: {"title": "Fresh", "priority": "normal"}))),
    "data_record": Route(
        (
            Ask(),
            Ask("POST", 302, body=lambda side: {"title": "Fresh", "priority": "normal", "status": "open"}),
        ),
        args=OWN_TASK,
    ),
    "data_delete": Route((Ask("POST", 302),), args=OWN_TASK),
    "data_switch": Route((Ask("POST", 302, body=lambda side: {"on": "1"}),), args=OWN_TASK),
    # REST: who is here
    "api-members": Route(right=Right.MEMBERS),
    "api-member": Route(
        (Ask(), Ask("PATCH", body=lambda side: {"access": "viewer"}), Ask("DELETE", 204)),
        args={"member_id": "colleague"},
        right=Right.MEMBERS,
    ),
    "api-invitations": Route(
        (
            Ask(),
            Ask("POST", 201, body=lambda side: {"email": "new@example.com"}),
            Ask("POST", 201, body=lambda side: INVITED | {"roles": [side.listed]}, also=Right.ROLES),
        ),
        right=Right.MEMBERS,
    ),
    "api-invitation": Route((Ask("DELETE", 204),), right=Right.MEMBERS),
    "api-tokens": Route((Ask(), Ask("POST", 201, body=lambda side: {"name": "New", "scopes": ["read"]}))),
    "api-token": Route((Ask("DELETE", 204),)),
    "api-audit": Route(right=Right.AUDIT),
    # Pages: people
    "member_list": Route((Ask(), Ask(query=lambda side: {"q": "example"})), right=Right.MEMBERS),
    "member_invite": Route(
        (
            Ask(),
            Ask("POST", body=lambda side: INVITED),
            Ask("POST", body=lambda side: INVITED | {"roles": [side.listed]}, refused=422, also=Right.ROLES),
        ),
        right=Right.MEMBERS,
    ),
    "member_invitation_revoke": Route((Ask("POST", 302),), right=Right.MEMBERS),
    "member_detail": Route(args=COLLEAGUE, right=Right.MEMBERS),
    "member_access": Route(
        (Ask("POST", 302, body=lambda side: {"access": "viewer"}),), args=COLLEAGUE, right=Right.MEMBERS
    ),
    "member_right_give": Route(
        (Ask("POST", 302, body=lambda side: {"right": "members"}),), args=COLLEAGUE, right=Right.MEMBERS
    ),
    "member_right_take": Route(
        (Ask("POST", 302, body=lambda side: {"right": "members"}),), args=COLLEAGUE, right=Right.MEMBERS
    ),
    "member_reset": Route((Ask("POST"),), args=COLLEAGUE, right=Right.MEMBERS),
    "member_remove": Route((Ask("POST", 302),), args=COLLEAGUE, right=Right.MEMBERS),
    "member_token_revoke": Route((Ask("POST", 302),), args=COLLEAGUE, right=Right.MEMBERS),
    "token_list": Route((Ask(), Ask("POST", body=lambda side: {"name": "New", "scopes": "read", "days": "7"}))),
    "token_revoke": Route((Ask("POST", 302),)),
    "saved_filter_create": Route(
        (Ask("POST", 302, body=lambda side: {"page": "tool_list", "name": "Fresh", "query": "q=word"}),)
    ),
    "saved_filter_delete": Route((Ask("POST", 302),)),
    "browser_list": Route((Ask(), Ask("POST", 302, body=lambda side: BROWSER))),
    "browser_remove": Route((Ask("POST", 302),)),
    "audit_list": Route((Ask(), Ask(query=lambda side: {"q": "tool"})), right=Right.AUDIT),
    "audit_csv": Route(right=Right.AUDIT),
    "audit_check": Route(right=Right.AUDIT),
    # Pages: one's own account
    "account": Route((Ask(), Ask("POST", 302, body=lambda side: {"first_name": "Fresh"}))),
    "account_change_password": Route((Ask(), Ask("POST"))),
    "account_reauthenticate": Route((Ask(), Ask("POST"))),
    "mfa_index": Route(),
    "mfa_reauthenticate": Route(ASKS_PASSWORD),
    "mfa_activate_totp": Route(ASKS_PASSWORD),
    "mfa_deactivate_totp": Route((Ask(status=404), Ask("POST", 404))),
    "mfa_view_recovery_codes": Route((Ask(status=404),)),
    "mfa_generate_recovery_codes": Route(ASKS_PASSWORD),
    "mfa_download_recovery_codes": Route((Ask(status=404), Ask("POST", 404))),
    "mfa_list_webauthn": Route(),
    "mfa_add_webauthn": Route(ASKS_PASSWORD),
    "mfa_reauthenticate_webauthn": Route(ASKS_PASSWORD),
    "mfa_remove_webauthn": Route((Ask(status=404), Ask("POST", 404))),
    "mfa_edit_webauthn": Route((Ask(status=404), Ask("POST", 404))),
    # Doors
    "join": Route((Ask(status=404),), is_public=True),
    "join_link": Route((Ask(status=404),), is_public=True),
    "reset": Route((Ask(status=404),), is_public=True),
    "reset_link": Route((Ask(status=404),), is_public=True),
    "mfa_authenticate": Route((Ask(status=302),), is_public=True),
    "mfa_login_webauthn": Route((Ask(status=302),), is_public=True),
    # Pages: chats
    "organisation_home": Route(),
    "session_list": Route(
        (
            Ask(),
            Ask(query=lambda side: {"whose": "all", "q": side.name}, refused=200),
            Ask(query=lambda side: {"whose": "all", "client": "openai"}, refused=200),
            Ask(query=lambda side: {"client": "mcp"}),
            Ask("POST", 302, body=lambda side: {"agent": side.agent}, refused=422),
        )
    ),
    "session_detail": Route((Ask(), Ask(query=lambda side: {"before": "1"}))),
    "first_steps": Route(),
    "session_update": Route((Ask(), Ask("POST", 302, body=lambda side: {"title": "Renamed"}, refused=422))),
    "session_delete": Route((Ask("POST", 302),)),
    "session_notices": Route(),
    "session_export": Route((Ask(), Ask(query=lambda side: {"as": "json"}))),
    "session_tools_switch": Route((Ask("POST", 302, body=lambda side: {"tools_off": "1"}),)),
    "session_toolkits": Route((Ask(), Ask(query=lambda side: {"agent": side.agent}, refused=404))),
    "session_load": Route(
        (
            Ask("POST", 302, body=lambda side: {"toolkit": side.toolkit}, refused=422),
            Ask("POST", 302, body=lambda side: {"category": side.category, "agent": side.agent}, refused=422),
        )
    ),
    "session_unload": Route((Ask("POST", 302, body=lambda side: {"name": side.category}, refused=422),)),
    "session_share": Route((Ask("POST", 302, body=lambda side: {"shares": "1"}),)),
    "session_loads": Route((Ask(), Ask(query=lambda side: {"before": "1"}))),
    "turn_create": Route((Ask("POST", 302, body=lambda side: MESSAGE),)),
    "turn_detail": Route((Ask(status=302),)),
    "turn_cancel": Route((Ask("POST", 302),), args=OPEN),
    "approval_list": Route((Ask(), Ask(query=lambda side: {"status": "denied"}))),
    "approval_detail": Route(),
    "approval_approve": Route(
        (
            Ask("POST", 302),
            Ask("POST", 302, body=lambda side: {"remember": "session"}),
            Ask("POST", 302, body=lambda side: {"remember": "hours", "hours": 8}),
        )
    ),
    "approval_deny": Route((Ask("POST", 302, body=lambda side: {"proposal": "Ask again on Monday."}),)),
    "approval_bulk": Route(  # a member may not see this one, and an operator not answer it
        (
            Ask("POST", 200, body=several, refused=404, without_tools=404, below_admin=302),
            Ask(
                "POST",
                302,
                body=lambda side: several(side) | {"confirmed": "1"},
                refused=404,
                without_tools=404,
                below_admin=302,
            ),
        )
    ),
    "approval_respond": Route((Ask("POST", 302, body=lambda side: {"response": "It is 4."}),)),
    "file_download": Route(),
    "approval_answer": Route(
        (Ask("POST", 302, body=lambda side: {"action": "accept", "field-0": "4a"}),), args={"approval_id": "form_id"}
    ),
    "approval_consents": Route(),
    "approval_rules": Route(right=Right.POLICIES),
    "approval_rule_create": Route(
        (
            Ask(),
            Ask("POST", 302, body=rule_form, refused=422),
            Ask("POST", 200, body=lambda side: rule_form(side) | {"preview": "1"}, refused=422),
        ),
        right=Right.POLICIES,
    ),
    "approval_rule_edit": Route((Ask(), Ask("POST", 302, body=rule_form, refused=422)), right=Right.POLICIES),
    "approval_rule_delete": Route((Ask("POST", 302),), right=Right.POLICIES),
    "approval_consent_revoke": Route((Ask("POST", 302),)),
    "budget_list": Route((Ask(), Ask(query=lambda side: {"live": "3"}))),
    "budget_mine": Route(),
    "budget_create": Route((Ask(), Ask("POST", 302, body=budget_form, refused=422)), right=Right.BUDGETS),
    "organisation_settings": Route(
        (
            Ask(),
            Ask(
                "POST",
                302,
                body=lambda side: {"name": "Fresh", "time_zone": "UTC", "date_language": "iso", "has_assistant": "on"},
            ),
        ),
        right=Right.MEMBERS,
    ),
    "budget_rules": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"time_zone": "Asia/Tokyo"})), right=Right.BUDGETS
    ),
    "budget_detail": Route(right=Right.BUDGETS),
    "budget_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"name": "Fresh", "limit": "5", "stops": "warn"})),
        right=Right.BUDGETS,
    ),
    "budget_switch": Route((Ask("POST", 302, body=lambda side: {"enabled": "0"}),), right=Right.BUDGETS),
    "budget_delete": Route((Ask("POST", 302),), right=Right.BUDGETS),
    "budget_reset": Route((Ask("POST", 302),), right=Right.BUDGETS),
    "budget_top_up": Route((Ask("POST", 302, body=lambda side: {"amount": "5"}),), right=Right.BUDGETS),
    "turn_stream": Route(),
    "step_detail": Route(),
    "turn_request": Route(),
    "turn_timeline": Route(),
    "schedule_list": Route(
        (Ask(), Ask(query=lambda side: {"whose": "all"}), Ask("POST", 302, body=schedule_body, refused=422))
    ),
    "schedule_update": Route((Ask(), Ask("POST", 302, body=schedule_body, refused=422))),
    "schedule_switch": Route((Ask("POST", 302, body=lambda side: {"enabled": "0"}),)),
    "schedule_delete": Route((Ask("POST", 302),)),
    "connect": Route(
        (
            Ask(),
            Ask(query=lambda side: {"client": "codex", "to": side.agent}, refused=404),
            Ask(query=lambda side: {"client": "cursor", "to": f"toolkit/{side.toolkit}"}, refused=404),
            Ask("POST", body=lambda side: {"name": "New", "days": "7"}),
        )
    ),
    "find": Route((Ask(query=lambda side: {"q": side.name}, refused=200),)),
    "explain": Route(
        (
            Ask(),
            Ask(query=lambda side: {"member": side.email, "agent": side.agent}, refused=422, right=Right.ROLES),
            Ask(query=lambda side: {"agent": side.agent}, refused=422),
            Ask(query=lambda side: {"q": side.name, "category": side.category}, refused=200),
        )
    ),
    "explain_fix": Route((Ask("POST", 302, body=lambda side: {"agent": side.agent, "tool": side.name}, refused=404),)),
    # Pages: the catalogue
    "tool_list": Route(
        (
            Ask(),
            Ask(query=lambda side: {"category": side.category, "q": side.name}, refused=200),
            Ask(query=lambda side: {"agent": side.agent}, refused=404),
        )
    ),
    "tool_detail": Route(),
    "tool_members": Route(right=Right.ROLES),
    "tool_instruct": Route((Ask("POST", 302, body=lambda side: {"instructions": "None."}),), right=Right.CATALOGUE),
    "tool_calls": Route(),
    "tool_version_calls": Route(),
    "tool_versions": Route(args={"name": "python_tool"}),
    "tool_version": Route(args={"name": "python_tool"}),
    "tool_version_difference": Route(args={"name": "python_tool"}),
    "tool_version_decide": Route(
        (Ask("POST", 302, body=lambda side: {"decision": "approve"}),), {"name": "python_tool"}, Right.APPROVE_CODE
    ),
    "tool_version_withdraw": Route((Ask("POST", 302),), {"name": "python_tool"}, Right.CATALOGUE),
    "tool_version_rollback": Route(
        (Ask("POST", 302),), {"name": "python_tool", "number": "retired"}, Right.APPROVE_CODE
    ),
    "tool_python_create": Route((Ask(), Ask("POST", 302, body=python_tool_form, refused=422)), right=Right.CATALOGUE),
    "tool_python_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: python_tool_form(MISSING))), {"name": "python_tool"}, Right.CATALOGUE
    ),
    "tool_test_save": Route(
        (Ask("POST", 302, body=lambda side: {"name": "t", "arguments": "{}"}),),
        {"name": "python_tool"},
        Right.CATALOGUE,
    ),
    "tool_test_delete": Route((Ask("POST", 302),), {"name": "python_tool"}, Right.CATALOGUE),
    "tool_try_again": Route((Ask("POST", 302),), {"name": "python_tool"}, Right.CATALOGUE),
    "tool_agents_switch": Route((Ask("POST", 302, body=lambda side: {"allowed": "1"}),), right=Right.APPROVE_CODE),
    "tool_retire": Route((Ask("POST", 302),), {"name": "python_tool"}, Right.CATALOGUE),
    "tool_keep_back": Route(
        (Ask("POST", 302, body=lambda side: {"reason": "Fresh."}),), {"name": "python_tool"}, Right.CATALOGUE
    ),
    "tool_release": Route((Ask("POST", 302),), {"name": "kept_back_tool"}, Right.APPROVE_CODE),
    "approval_versions": Route(right=Right.APPROVE_CODE),
    "module_list": Route((Ask(), Ask(query=lambda side: {"state": "waiting"})), right=Right.CATALOGUE),
    "module_create": Route((Ask(), Ask("POST", 302, body=module_form, refused=422)), right=Right.CATALOGUE),
    "module_detail": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "module_update": Route((Ask(), Ask("POST", 302, body=module_form)), {"name": "module"}, Right.CATALOGUE),
    "module_versions": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "module_uses": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "module_version": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "module_version_difference": Route(args={"name": "module"}, right=Right.CATALOGUE),
    "module_version_decide": Route(
        (Ask("POST", 302, body=lambda side: {"decision": "approve"}),), {"name": "module"}, Right.APPROVE_CODE
    ),
    "module_version_rollback": Route((Ask("POST", 302),), {"name": "module", "number": "retired"}, Right.APPROVE_CODE),
    "module_retire": Route((Ask("POST", 302),), {"name": "module"}, Right.CATALOGUE),
    "module_delete": Route((Ask("POST", 302),), {"name": "idle_module"}, Right.CATALOGUE),
    "tool_try": Route((Ask(), Ask("POST", 302, without_tools=200))),
    "tool_trial": Route(),
    "tool_give": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"agents": side.agent}, refused=422)), right=Right.AGENTS
    ),
    "tool_move": Route(
        (Ask("POST", 302, body=lambda side: {"category": side.empty_category}, refused=302),), right=Right.CATALOGUE
    ),
    "tools_change": Route(
        (Ask("POST", 302, body=lambda side: {"names": side.name, "category": side.empty_category}, refused=302),),
        right=Right.CATALOGUE,
    ),
    "tools_undo": Route((Ask("POST", 302, query=lambda side: {"entries": "1,2"}),), right=Right.CATALOGUE),
    "tools_switch": Route(
        (Ask("POST", 302, body=lambda side: {"names": side.name, "enabled": "1"}, refused=302),), right=Right.CATALOGUE
    ),
    "http_tool_create": Route((Ask(), Ask("POST", 302, body=http_tool_form, refused=422)), right=Right.CATALOGUE),
    "http_tool_update": Route(
        (Ask(), Ask("POST", 302, body=http_tool_form, refused=422)), args={"name": "http_tool"}, right=Right.CATALOGUE
    ),
    "category_list": Route(),
    "category_create": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"title": "Fresh", "name": "fresh"})), right=Right.CATALOGUE
    ),
    "category_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"title": "Fresh"})),
        args={"name": "empty_category"},
        right=Right.CATALOGUE,
    ),
    "category_delete": Route((Ask("POST", 302),), args={"name": "empty_category"}, right=Right.CATALOGUE),
    "keyword_list": Route(
        (
            Ask(),
            Ask(query=lambda side: {"message": side.name, "agent": side.agent}, refused=422),
        ),
        right=Right.CATALOGUE,
    ),
    "keyword_findings": Route(right=Right.CATALOGUE),
    "keyword_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"keywords": "fresh"})),
        args={"name": "category"},
        right=Right.CATALOGUE,
    ),
    "policy_list": Route(right=Right.POLICIES),
    # What it would do is shown first.
    "policy_update": Route((Ask(), Ask("POST", body=policy_body, refused=422)), right=Right.POLICIES),
    "policy_provider_update": Route((Ask(), Ask("POST", body=policy_body, refused=422)), right=Right.POLICIES),
    "policy_profile_list": Route(right=Right.POLICIES),
    "policy_profile_create": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"name": "fresh", "patterns": "*"})), right=Right.POLICIES
    ),
    "policy_profile_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"name": "fresh", "patterns": "*"})),
        args={"name": "profile"},
        right=Right.POLICIES,
    ),
    "policy_profile_delete": Route((Ask("POST", 302),), args={"name": "profile"}, right=Right.POLICIES),
    "toolkit_list": Route(),
    "toolkit_create": Route((Ask(), Ask("POST", 302, body=toolkit_form, refused=422)), right=Right.TOOLKITS),
    "toolkit_detail": Route(args={"name": "toolkit"}),
    "toolkit_update": Route(
        (Ask(), Ask("POST", 302, body=toolkit_form, refused=422)), args={"name": "toolkit"}, right=Right.TOOLKITS
    ),
    "toolkit_delete": Route((Ask("POST", 302),), args={"name": "idle_toolkit"}, right=Right.TOOLKITS),
    "runtime_list": Route(right=Right.POLICIES),
    "runtime_find": Route(
        (Ask(status=302), Ask(status=302, query=lambda side: {"tool": side.name}, refused=302)), right=Right.POLICIES
    ),
    "runtime_tool": Route((Ask(), Ask(query=lambda side: {"agent": side.agent}, refused=404)), right=Right.POLICIES),
    "runtime_organisation": Route((Ask(), Ask("POST", 302, body=lambda side: KNOBS_FORM)), right=Right.POLICIES),
    "runtime_provider": Route((Ask(), Ask("POST", 302, body=lambda side: KNOBS_FORM)), right=Right.POLICIES),
    "runtime_agent": Route(
        (Ask(), Ask("POST", 302, body=lambda side: KNOBS_FORM)), args={"slug": "agent"}, right=Right.POLICIES
    ),
    "runtime_organisation_remove": Route((Ask("POST", 302),), right=Right.POLICIES),
    "runtime_provider_remove": Route((Ask("POST", 302),), right=Right.POLICIES),
    "runtime_agent_remove": Route((Ask("POST", 302),), args={"slug": "agent"}, right=Right.POLICIES),
    "credential_list": Route(right=Right.CATALOGUE),
    "credential_create": Route(
        (Ask(), Ask(query=lambda side: {"kind": "bearer"}), Ask("POST", 302, body=credential_form)),
        right=Right.CATALOGUE,
    ),
    "credential_detail": Route(args=OWN_CREDENTIAL, right=Right.CATALOGUE),
    "credential_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"title": "Fresh", "origins": "https://a.example.org", **TYPED})),
        args=IDLE_CREDENTIAL,
        right=Right.CATALOGUE,
    ),
    "credential_clear": Route((Ask("POST", 302),), args=IDLE_CREDENTIAL, right=Right.CATALOGUE),
    "credential_delete": Route((Ask("POST", 302),), args=IDLE_CREDENTIAL, right=Right.CATALOGUE),
    "credential_forget": Route((Ask("POST", 302),), right=Right.CATALOGUE),
    # It is not connected by signing in.
    "credential_sign_in": Route((Ask("POST", 422),), right=Right.CATALOGUE),
    "credential_disconnect": Route((Ask("POST", 302),), args=OWN_CREDENTIAL, right=Right.CATALOGUE),
    "accounts": Route(),
    "accounts_connect": Route((Ask(), Ask("POST", 302, body=lambda side: TYPED)), args=OWN_CREDENTIAL),
    "accounts_sign_in": Route((Ask("POST", 422),), args=OWN_CREDENTIAL),
    "accounts_disconnect": Route((Ask("POST", 302),), args=OWN_CREDENTIAL),
    "service_list": Route(right=Right.CATALOGUE),
    # Nothing can be said of a service that this version does not know.
    "service_update": Route((Ask(), Ask("POST", 422)), right=Right.CATALOGUE),
    "service_test": Route((Ask(status=302), Ask("POST", 302)), right=Right.CATALOGUE),
    "service_clear": Route((Ask("POST", 302),), right=Right.CATALOGUE),
    "import_list": Route(right=Right.CATALOGUE),
    "import_review_list": Route(right=Right.CATALOGUE),
    "import_create": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"source": "openapi", "url": "https://api.example.org/spec"})),
        right=Right.CATALOGUE,
    ),
    "import_detail": Route(right=Right.CATALOGUE),
    "import_decide": Route(
        (Ask("POST", 302, body=lambda side: accept_body(side) | {"act": "accept"}, refused=422),),
        right=Right.CATALOGUE,
    ),
    "import_address": Route(
        (Ask("POST", 302, body=lambda side: {"base_url": "https://other.example.org"}),), right=Right.CATALOGUE
    ),
    "import_toolkit": Route((Ask("POST", 302),), right=Right.TOOLKITS),
    "toolkit_agents": Route(
        (Ask("POST", 302, body=lambda side: {"agent": side.agent}, refused=404),),
        args={"name": "idle_toolkit"},
        right=Right.AGENTS,
    ),
    "toolkit_export": Route((Ask("POST"),), args={"name": "idle_toolkit"}, right=Right.CATALOGUE),
    "toolkit_publish": Route(
        (Ask("POST", 302, body=lambda side: {"audience": "address"}, right=Right.APPROVE_CODE, also=Right.CATALOGUE),),
        args={"name": "idle_toolkit"},
    ),
    "publication_list": Route((Ask(), Ask(query=lambda side: {"whose": "own"})), right=Right.CATALOGUE),
    "publication_detail": Route(right=Right.CATALOGUE),
    "publication_withdraw": Route((Ask("POST", 302, right=Right.APPROVE_CODE, also=Right.CATALOGUE),)),
    "publication_import": Route((Ask("POST", 302),), right=Right.CATALOGUE),
    "import_give": Route(
        (Ask(status=302, also=Right.AGENTS), Ask("POST", 302, also=Right.AGENTS)), right=Right.CATALOGUE
    ),
    "import_close": Route((Ask("POST", 302),), right=Right.CATALOGUE),
    "import_tool": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"name": "fresh", "effect": "external"})), right=Right.CATALOGUE
    ),
    "server_list": Route(right=Right.CATALOGUE),
    "server_create": Route((Ask(), Ask("POST", 302, body=server_body, refused=422)), right=Right.CATALOGUE),
    "server_detail": Route(args={"name": "server"}, right=Right.CATALOGUE),
    "server_update": Route(
        (Ask(), Ask("POST", 302, body=server_body, refused=422)), args={"name": "server"}, right=Right.CATALOGUE
    ),
    "server_delete": Route((Ask("POST", 302),), args={"name": "server"}, right=Right.CATALOGUE),
    "server_test": Route((Ask(status=302), Ask("POST", 302)), args={"name": "server"}, right=Right.CATALOGUE),
    "server_read": Route((Ask("POST", 302),), args={"name": "server"}, right=Right.CATALOGUE),
    "server_accept": Route((Ask("POST", 302),), args={"name": "server"}, right=Right.APPROVE_CODE),
    "agent_list": Route(),
    "agent_create": Route((Ask(), Ask("POST", 302, body=agent_form, refused=422)), right=Right.AGENTS),
    "agent_detail": Route(args={"slug": "idle_agent"}),
    "agent_update": Route(
        (Ask(), Ask("POST", body=agent_form, refused=422)), args={"slug": "idle_agent"}, right=Right.AGENTS
    ),
    "agent_delete": Route((Ask("POST", 302),), args={"slug": "idle_agent"}, right=Right.AGENTS),
    # Switching off is shown first where others lose the tool: tests/capabilities/catalogue/test_switch.py.
    "tool_switch": Route((Ask("POST", 302, body=lambda side: {"enabled": "1"}),), right=Right.CATALOGUE),
    "price_list": Route(right=Right.BUDGETS),
    "price_model": Route(
        (Ask(), Ask("POST", 302, body=lambda side: {"input": "1", "output": "2"}, refused=422)), right=Right.BUDGETS
    ),
    "price_public": Route((Ask("POST", 302),), right=Right.BUDGETS),
    "price_remove": Route((Ask("POST", 302),), right=Right.BUDGETS),
    "provider_list": Route(right=Right.PROVIDERS),
    "provider_create": Route((Ask(), Ask("POST", 302, body=provider_form, refused=422)), right=Right.PROVIDERS),
    "provider_update": Route(
        (Ask(), Ask("POST", 302, body=lambda side: provider_form(MISSING))), right=Right.PROVIDERS
    ),
    "provider_offline": Route((Ask("POST", 302),), right=Right.PROVIDERS),
    "provider_delete": Route((Ask("POST", 302),), right=Right.PROVIDERS),
    "model_create": Route((Ask(), Ask("POST", 302, body=model_form, refused=422)), right=Right.PROVIDERS),
    "model_update": Route((Ask(), Ask("POST", 302, body=model_form, refused=422)), right=Right.PROVIDERS),
    "provider_test": Route((Ask(status=302), Ask("POST", 302)), right=Right.PROVIDERS),
    "provider_models_add": Route(
        (Ask("POST", 302, body=lambda side: {"names": [f"{side.slug}-listed"]}, refused=302),), right=Right.PROVIDERS
    ),
    "model_forget": Route((Ask("POST", 302, body=lambda side: {"key": side.lesson}),), right=Right.PROVIDERS),
    "model_test": Route((Ask(status=302), Ask("POST", 302)), right=Right.PROVIDERS),
    "model_delete": Route((Ask("POST", 302),), right=Right.PROVIDERS),
    # Pages: permissions
    "role_list": Route(right=Right.ROLES),
    "role_create": Route((Ask(), Ask("POST", 302, body=role_form, refused=422)), right=Right.ROLES),
    "role_detail": Route(
        (
            Ask(),
            Ask("POST", body=role_form, refused=422, below_admin=422),
            Ask("POST", 409, body=stale(role_form), refused=422, below_admin=422),
        ),
        args={"slug": "role"},
        right=Right.ROLES,
    ),
    "role_matrix": Route(
        (
            Ask(),
            Ask(query=lambda side: {"roles": side.role, "open": side.category}, refused=200),
            Ask("POST", body=matrix_form, refused=422),
            Ask("POST", 409, body=stale(matrix_form), refused=422),
        ),
        right=Right.ROLES,
    ),
    "role_tools": Route((Ask(status=302),), args={"slug": "role", "name": "category"}, right=Right.ROLES),
    "hook_list": Route((Ask(), Ask(query=lambda side: {"phase": "before_tool_call"}, refused=200)), right=Right.HOOKS),
    "hook_create": Route(
        (
            Ask(),
            Ask(query=lambda side: {"action": "ask"}),
            Ask("POST", 302, body=lambda side: {"action": "ask"} | hook_form(side), refused=422),
        ),
        right=Right.HOOKS,
    ),
    "hook_update": Route((Ask(), Ask("POST", 302, body=lambda side: hook_form(side), refused=422)), right=Right.HOOKS),
    "hook_delete": Route((Ask("POST", 302),), right=Right.HOOKS),
    "usage": Route((Ask(), Ask(query=lambda side: {"by": "model", "range": "12m"}))),
    "usage_advice": Route((Ask(),), right=Right.BUDGETS),
    "usage_csv": Route((Ask(),)),
    "usage_unused": Route((Ask(),), right=Right.BUDGETS),
    "hook_trials": Route((Ask(), Ask(query=lambda side: {"hook": side.hook_id}, refused=404)), right=Right.HOOKS),
    "hook_trial": Route(  # of a turn of one's own, or with the right `sessions` of anybody's
        (
            Ask(also=Right.SESSIONS),
            Ask("POST", also=Right.SESSIONS),
            Ask(query=lambda side: {"hook": side.hook_id}, refused=404, also=Right.SESSIONS),
        ),
        right=Right.HOOKS,
    ),
    "role_delete": Route((Ask("POST", 302),), args={"slug": "role"}, right=Right.ROLES),
    "member_tools": Route(
        (Ask(), Ask(query=lambda side: {"q": side.name, "category": side.category, "show": "all"}, refused=200)),
        args=COLLEAGUE,
        right=Right.ROLES,
    ),
    "member_roles": Route(
        (Ask("POST", body=lambda side: {"roles": side.role}, refused=422),), args=COLLEAGUE, right=Right.ROLES
    ),
    "member_grant": Route(
        (Ask("POST", 302, body=lambda side: {"tool": side.name, "effect": "deny", "until": "8h"}, refused=302),),
        args=COLLEAGUE,
        right=Right.ROLES,
    ),
    "grant_list": Route((Ask(), Ask(query=lambda side: {"q": side.name}, refused=200)), right=Right.ROLES),
    "grant_create": Route((Ask(), Ask("POST", 302, body=grant_form, refused=422)), right=Right.ROLES),
    "grant_revoke": Route((Ask("POST", 302),), right=Right.ROLES),
    "request_list": Route(
        (
            Ask(),
            Ask(
                "POST",
                302,
                body=lambda side: {"category": side.empty_category, "reason": "x", "until": "8h"},
                refused=422,
            ),
        )
    ),
    "request_withdraw": Route((Ask("POST", 302),)),
    "request_grant": Route((Ask("POST", 302, body=lambda side: {"until": "8h"}),), right=Right.ROLES),
    "request_refuse": Route(
        (Ask("POST", 302, body=lambda side: {"until": "asked", "answer": "No."}),), right=Right.ROLES
    ),
}


@dataclass(frozen=True)
class Address:
    """A pattern of the resolver: its name and the names of its path arguments."""

    name: str
    pattern: str
    arguments: tuple[str, ...]

    @property
    def is_api(self) -> bool:
        return self.pattern.startswith(("api/v1/", "v1/"))

    @property
    def is_page(self) -> bool:
        return self.pattern.startswith("o/")

    @property
    def has_organisation(self) -> bool:
        """Whether it is asked inside an organisation; what is not is a person's own."""
        return self.is_api or self.is_page

    @property
    def names_rows(self) -> bool:
        """Whether its path names a row, beside the organisation."""
        return bool(set(self.arguments) - {"org", "kind"})

    @property
    def names_chat(self) -> bool:
        """Or something else of one member alone: a token, a passkey, a request."""
        one_s_own = {
            "session_id",
            "turn_id",
            "own_token",
            "own_filter",
            "own_request",
            "pk",
            "schedule_id",
            "trial_id",
            "own_record",
        }
        one_s_own |= {"approval_id", "consent_id", "own_browser", "file_id"}
        return bool(set(self.arguments) & one_s_own)

    def url(self, side: OrganisationRows, route: Route) -> str:
        kwargs = {name: getattr(side, route.args.get(name, name)) for name in self.arguments}
        return reverse(self.name, kwargs=kwargs)


def addresses(resolver: URLResolver | None = None, before: str = "") -> Iterator[Address]:
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from addresses(entry, pattern)
        else:
            assert isinstance(entry, URLPattern)
            arguments = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
            yield Address(entry.name or pattern, pattern, tuple(arguments))


ADDRESSES = {address.name: address for address in addresses()}
KNOWN = sorted(set(ADDRESSES) & set(ROUTES))
GUARDED = [name for name in KNOWN if not ROUTES[name].is_public]
ALL_ASKS = [(name, number) for name in GUARDED for number in range(len(ROUTES[name].asks))]


# -- The world --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoOrganisations:
    acme: OrganisationRows
    globex: OrganisationRows
    alice: Membership
    bob: Membership
    charlie: Membership
    #: A secret and a login of each of the three: making one anew costs as much as asking a route.
    tokens: Mapping[int, str]
    logins: Mapping[int, str]
    #: Every row, as `snapshot` returns it before a test.
    rows: Rows

    def by_token(self, member: Membership) -> Client:
        headers = {"Authorization": f"Bearer {self.tokens[member.pk]}"}
        return Client(raise_request_exception=False, headers=headers)

    def by_login(self, member: Membership) -> Client:
        client = anybody()
        client.cookies[settings.SESSION_COOKIE_NAME] = self.logins[member.user_id]
        return client

    def client_of(self, member: Membership, address: Address) -> Client:
        return self.by_token(member) if address.is_api else self.by_login(member)


Rows = dict[str, list[dict[str, Any]]]

#: Keys of this module's rows begin here, so that one can be found wherever it stands.
FIRST_KEY = 7_000_000_000_000
KEY = re.compile(r"70{6,}\d{1,6}")


def begin_keys_far_out() -> None:
    tables = [model._meta.db_table for model in apps.get_models() if isinstance(model._meta.pk, models.BigAutoField)]
    with connection.cursor() as cursor:
        for table in tables:
            if connection.vendor == "sqlite":
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
                cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, FIRST_KEY])
            else:
                cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [table, FIRST_KEY])


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[TwoOrganisations]:
    """Both organisations, filled once for all tests of this module; each test runs in a savepoint behind them."""
    with django_db_blocker.unblock(), transaction.atomic():
        begin_keys_far_out()
        acme, globex = make_organisation("acme"), make_organisation("globex")
        alice, bob = make_member(acme, "alice", Access.ADMIN), make_member(acme, "bob")
        charlie = make_member(globex, "charlie", Access.ADMIN)
        for member in (alice, bob):
            member.user.last_name = CANARY
            member.user.save()
        Organisation.objects.filter(pk=alice.organisation_id).update(name=f"{CANARY} Incorporated")
        alice.organisation.refresh_from_db()
        sides = fill(alice, CANARY), fill(charlie, "plainword")
        members = (alice, bob, charlie)
        tokens = {each.pk: make_token(each) for each in members}
        logins = {each.user_id: by_login(each).cookies[settings.SESSION_COOKIE_NAME].value for each in members}
        yield TwoOrganisations(*sides, *members, tokens, logins, read_rows())
        transaction.set_rollback(True)


@pytest.fixture
def world(filled: TwoOrganisations, db: None) -> TwoOrganisations:
    """Rows of one's own to change: what a test does to them, no other test sees."""
    alice, bob, charlie = deepcopy((filled.alice, filled.bob, filled.charlie))
    READ.rows, READ.writes = filled.rows, rows_written()
    return replace(filled, alice=alice, bob=bob, charlie=charlie)


def ask_somebody(member: Membership, agent: Agent, tool: Tool, word: str, **fields: Any) -> Approval:
    """A call that waits for approval, in a session of its own; with the word in each text."""
    waiting = {"status": TurnStatus.WAITING_APPROVAL, "waiting_since": timezone.now()}
    turn = make_turn(make_session(member, agent, title=f"{word} asks"), word, **waiting)
    step = Step.objects.create(
        organisation=member.organisation, turn=turn, index=1, kind="tool", status="pending", tool_name=tool.name,
        arguments=f'{{"a": "{word}"}}', display=word,
    )  # fmt: skip
    texts = dict.fromkeys(("source", "for_model", "for_people", "for_log", "note", "proposal", "response"), word)
    return make_approval(step, **{"allows_consent": True, **texts, **fields})


def make_module(author: Membership, name: str, word: str) -> HelperModule:
    """Version 1 was in force, version 2 is, version 3 waits; with the word in each text."""
    own = {"organisation": author.organisation}
    module = HelperModule.objects.create(**own, name=name, description=word)
    versions = [
        HelperVersion.objects.create(
            **own,
            module=module,
            number=number,
            code=f"WORD = '{word} {number}'",
            sha256=word,
            runtimes=["monty"],
            status=status,
            status_reason=word,
            created_by=author,
        )
        for number, status in enumerate(("retired", "approved", "pending"), start=1)
    ]
    HelperModule.objects.filter(pk=module.pk).update(current_version=versions[1])
    return module


def make_python_tool(
    category: Category, author: Membership, word: str, helpers: Mapping[str, int] | None = None
) -> Tool:
    """Version 1 was in force, version 2 is, version 3 waits; with the word in each text."""
    content = Definition(
        f"{word}_python",
        word,
        {"type": "object", "properties": {}},
        instructions=word,
        human_format=word,
        implementation={"runtime": "monty", "code": f"def run(): return '{word}'", "helpers": helpers or {}},
    )
    tool = create_tool(category, content, actor=author, origin=Origin(ToolKind.PYTHON, source=word))
    update_tool(tool, replace(content, timeout=2.0, description=f"{word} 2"), actor=author)
    update_tool(tool, replace(content, timeout=3.0), actor=author, status=VersionStatus.PENDING)
    ToolVersion.objects.filter(tool=tool).update(status_reason=word)
    return tool


def make_kept_back_tool(category: Category, author: Membership, server: McpServer, word: str) -> Tool:
    """Of the server, with a version of the author's in force."""
    content = Definition(
        f"{word}_kept_back",
        word,
        {"type": "object", "properties": {}},
        implementation={"name": word, "headers": {}, "output_schema": None, "annotations": {}, "task": "forbidden"},
    )
    tool = create_tool(category, content, actor=author, origin=Origin(ToolKind.MCP, server=server, source=word))
    Tool.objects.filter(pk=tool.pk).update(**kept_back(word, author.pk))
    return tool


def fill(member: Membership, word: str) -> OrganisationRows:
    """A row of every table for this member's organisation, with the word in each text of it."""
    organisation = member.organisation
    named = {"title": f"{word} title", "description": word, "keywords": [word]}
    category = make_category(organisation, f"{word}_category", is_core=False, **named)
    tool = make_tool(organisation, f"{word}_tool", category=category, description=f"Does {word}.")
    agent = make_agent(organisation, slug=f"{word}-agent", name=f"{word} agent", description=word, prompt=word)
    role = make_role(organisation, member, slug=f"{word}-role")
    empty = make_category(organisation, f"{word}_empty", title=f"{word} title")
    idle = make_category(organisation, f"{word}_idle", title=f"{word} title")
    idle_agent = make_agent(organisation, slug=f"{word}-idle", name=f"{word} idle")
    session = make_session(member, agent, title=f"{word} talk")
    make_session(member, agent, title=f"{word} request", client="openai", is_throwaway=True)
    ended = {"status": TurnStatus.DONE, "door": Door.CHAT, "last_event": 2}
    done = make_turn(session, f"{word} question", answer=f"{word} answer", **ended)
    open_turn = make_turn(session, f"{word} another", last_event=1)
    colleague = make_member(organisation, f"{word}-colleague")
    with organisation_scope(organisation):
        own_token, _ = issue_token(member, word, actor=member)
        own_filter = save_filter(member, "tool_list", word, f"q={word}")
        own_browser = PushSubscription.objects.create(
            organisation=organisation, membership=member, endpoint_sha256=word, host=word, label=word
        )
        token, _ = issue_token(colleague, word, actor=colleague)
        invitation, _ = invite(f"{word}-invited@example.com", Access.MEMBER, actor=member)
        own = {"organisation": organisation}
        provider = Provider.objects.create(
            **own, slug=f"{word}-provider", name=word, base_url=f"http://{word}.test", api_key=f"sk-{word}-{word}"
        )
        lesson = Lesson(Teaches.OMIT, "stream_options", because=word)
        model_row = LanguageModel.objects.create(
            **own, provider=provider, name=f"{word}-model", learned=[lesson.as_json()]
        )
        _, price = (
            ModelPrice.objects.create(
                **own, model=model_row, valid_from=timezone.now() + timedelta(days=days), input=1, output=2, note=word
            )
            for days in (-30, 30)
        )
        AgentTool.objects.create(**own, agent=agent, tool=tool)
        trial = TrialRun.objects.create(
            **own,
            membership=member,
            tool_version_id=tool.current_version_id or 0,
            arguments=json.dumps({"word": word}),
            status=TrialStatus.DONE,
            result=word,
            deadline_at=timezone.now(),
        )
        toolkits = [
            Toolkit.objects.create(**own, name=f"{word}_{kind}", description=word) for kind in ("kit", "idle_kit")
        ]
        for toolkit in toolkits:
            ToolkitTool.objects.create(**own, toolkit=toolkit, tool=tool)
            ToolkitCategory.objects.create(**own, toolkit=toolkit, category=category)
        AgentToolkit.objects.create(**own, agent=agent, toolkit=toolkits[0], is_initial=True)
        RoleRule.objects.create(**own, role=role, category=category)
        listed = Role.objects.create(**own, slug=f"{word}-listed", name=f"{word} listed", mode="listed")
        RoleMembership.objects.create(**own, role=listed, membership=colleague)
        Grant.objects.create(**own, membership=member, tool=tool, effect="allow", reason=word)
        # A colleague's: of an admin's grants an operator changes none. It opens and closes nothing.
        grant = Grant.objects.create(**own, membership=colleague, category=idle, effect="deny", reason=word)
        # What a member with every role may still ask for.
        Grant.objects.create(**own, membership=member, category=empty, effect="deny", reason=word)
        own_request, request = (
            GrantRequest.objects.create(**own, membership=each, tool=tool, reason=word, hours=8, answer=word)
            for each in (member, colleague)
        )
        schedule = Schedule.objects.create(
            **own, membership=member, agent=agent, number=1, name=word, message=word, cron="0 9 * * *",
            last_error=word, next_at=timezone.now() + timedelta(days=1),
        )  # fmt: skip
        idle_profile, profile = (
            PolicyProfile.objects.create(**own, name=f"{word}_{name}", description=word, patterns=["*", word])
            for name in ("idle", "used")
        )
        Policy.objects.create(**own, profile=profile, also_allow=[word])
        Policy.objects.create(**own, provider=provider, also_allow=[word])
        rule = ApprovalRule.objects.create(
            **own, name=f"{word}-rule", tool_pattern=tool.name, agent=agent, toolkit=toolkits[0],
            argument=word, argument_pattern=word, message=word,
        )  # fmt: skip
        day = span_of("day", organisation.time_zone, timezone.now())
        budget = Budget.objects.create(**own, name=f"{word} budget", scope="agent", limit=10**12)
        period = BudgetPeriod.objects.create(
            **own, budget=budget, key=f"agent:{agent.pk}", starts_at=day.starts_at, ends_at=day.ends_at,
            measure="tokens", is_hard=True, limit=10**12, spent=5,
        )  # fmt: skip
        said = {"tools": {word: {"timeout_sec": 9}}}
        RuntimeConfig.objects.create(**own, layer="organisation", values=said)
        RuntimeConfig.objects.create(**own, layer="provider", provider=provider, values=said)
        hook = Hook.objects.create(
            **own,
            name=word,
            description=word,
            phase="before_tool_call",
            action="ask",
            settings={"message": word},
            when={"agents": [str(agent.public_id)], "members": [str(member.public_id)]},
            on_error="deny",
            last_error=word,
        )
        ServiceSetting.objects.create(**own, service=word)
        credential = StoredCredential.objects.create(
            **own, name=f"{word}_credential", title=f"{word} credential", kind="bearer", client_secret=word,
            origins=["https://mcp.example.org"],
        )  # fmt: skip
        idle_credential, own_credential = (
            StoredCredential.objects.create(
                **own, name=f"{word}_{name}", title=f"{word} {name}", kind="bearer", scope=scope,
                origins=[f"https://{word}.example.org"],
            )
            for name, scope in (("idle_credential", "organisation"), ("own_credential", "member"))
        )  # fmt: skip
        secret_of = {"values_json": json.dumps({"token": word}), "account": word, "reason": word}
        StoredSecret.objects.create(**own, credential=idle_credential, **secret_of)
        _, account = (
            StoredSecret.objects.create(**own, credential=own_credential, membership=each, **secret_of)
            for each in (member, colleague)
        )
        server = McpServer.objects.create(
            **own, name=f"{word}-server", title=f"{word} server", url=f"https://mcp.example.org/{word}",
            credential=credential, server_info={"name": word}, instructions=word, error=word,
        )  # fmt: skip
        http_tool = make_tool(
            organisation,
            f"{word}_http",
            category=category,
            origin=Origin(ToolKind.HTTP, credential=credential),
            implementation={"method": "GET", "url": "https://mcp.example.org/"},
        )
        tool_import = ToolImport.objects.create(
            **own, source="openapi", title=f"{word} import", status="review", base_url="https://mcp.example.org",
            url=f"https://{word}.example.org", document=word, summary={"format": word}, membership=member,
            deadline_at=timezone.now(),
        )  # fmt: skip
        imported = ImportedTool.objects.create(
            **own, tool_import=tool_import, position=0, original_name=f"GET /{word}", name=f"{word}_found", group=word,
            description=word, parameters={"type": "object", "properties": {}}, effect="read",
            implementation={"method": "GET", "url": f"/{word}", "arguments": {}},
        )  # fmt: skip
        publication = Publication.objects.create(
            publisher=organisation, number=1, audience="installation", publisher_name=word, toolkit_name=f"{word}_kit",
            description=word, document=word, sha256="0" * 64, withdrawn_at=timezone.now(),
        )  # fmt: skip
        findings = {"models": [{"name": f"{provider.slug}-listed", "context_window": 8000}]}
        tests: list[dict[str, Any]] = [{"language_model": model_row}, {"service": word}, {"server": server}]
        for tested in (*tests, {"provider": provider, "findings": findings}):
            ConnectionTest.objects.create(
                **own, **tested, membership=member, status="failed", reason=word, deadline_at=timezone.now()
            )
        AdminRight.objects.create(**own, membership=member, right=Right.AUDIT)
        Task.objects.create(**own, membership=member, number=1, title=word, notes=word)
        Scratchpad.objects.create(**own, membership=member, text=word)
        Memory.objects.create(**own, membership=member, number=1, text=word)
        fill_starter_tables(member, word)
        tool_set = ToolSet.objects.create(**own, key=word, sha256=word, wire=f'["{word}"]', tokens=1, version_ids=[1])
        verdict_set = VerdictSet.objects.create(**own, key=word, verdicts=[{"tool": word}])
        Step.objects.create(
            **own, turn=done, index=1, kind="tool", status="done", text=word, tool_name=f"{word}_tool",
            tool_set=tool_set, arguments=f'{{"a": "{word}"}}', result=word, result_sent=word, display=word,
            verdict_set=verdict_set,
        )  # fmt: skip
        ClientRequest.objects.create(
            **own,
            turn=done,
            token=own_token,
            digest=word,
            instructions=word,
            earlier=[{"role": "user", "content": word}],
            tools=[{"type": "function", "function": {"name": word, "description": word, "parameters": {}}}],
            parameters={"stop": word},
        )
        TurnEvent.objects.create(**own, turn=done, number=1, type="accepted", payload={"word": word})
        TurnEvent.objects.create(**own, turn=done, number=2, type="done", payload={"word": word})
        asked = ask_somebody(member, agent, tool, word)
        consent = Consent.objects.create(
            **own, membership=member, tool=tool, tool_version=asked.tool_version, session=asked.session,
            approval=asked, granted_by=member,
        )  # fmt: skip
        kept_back_tool = make_kept_back_tool(category, colleague, server, word)
        module, idle_module = (make_module(colleague, f"{word}_{each}", word) for each in ("module", "idle"))
        python_tool = make_python_tool(category, colleague, word, {module.name: 1})
        test_case = ToolTestCase.objects.create(**own, tool=python_tool, name=word, arguments={"a": word}, outcome=word)
        assert python_tool.current_version is not None
        refusal = ToolRefusal.objects.create(
            **own, tool=python_tool, model=model_row, version=python_tool.current_version, sha256="0" * 64,
            origin=word, words=word, refused_at=timezone.now(),
        )  # fmt: skip
        file = StepFile.objects.create(
            **own,
            step=Step.objects.get(turn=done),
            turn=done,
            name=word,
            media_type="image/png",
            size=1,
            content=word.encode(),
        )
        schema = {"type": "object", "properties": {"seat": {"type": "string", "title": word}}}
        form = ask_somebody(member, agent, tool, word, kind="input", form=schema, allows_consent=False)
        record("tool.update", tool, actor=member, before={"word": word}, after={"word": word})
        for model in tenant_models():
            if not model.objects.exists():
                model.objects.create(**plausible(model, member, word))
    with organisation_scope(organisation):
        own_records: dict[str, Any] = {
            f"own_{kind.name.replace('-', '_')}": kind.model.objects.get(membership=member).public_id
            for kind in kinds()
        }
    return OrganisationRows(
        org=organisation.slug,
        session_id=session.pk,
        turn_id=done.pk,
        open_turn=open_turn.pk,
        index=1,
        name=tool.name,
        category=category.name,
        agent=agent.slug,
        slug=provider.slug,
        role=role.slug,
        listed=f"{word}-listed",
        service=word,
        idle_agent=idle_agent.slug,
        toolkit=toolkits[0].name,
        idle_toolkit=toolkits[1].name,
        empty_category=f"{word}_empty",
        member_id=member.public_id,
        grant_id=grant.public_id,
        model_id=model_row.public_id,
        lesson=lesson.key,
        python_tool=python_tool.name,
        kept_back_tool=kept_back_tool.name,
        module=module.name,
        idle_module=idle_module.name,
        test_id=test_case.public_id,
        refusal_id=refusal.public_id,
        hook_id=hook.public_id,
        rule_id=rule.public_id,
        approval_id=asked.public_id,
        consent_id=consent.public_id,
        form_id=form.public_id,
        file_id=file.public_id,
        budget_id=budget.public_id,
        period_id=period.public_id,
        price_id=price.public_id,
        server=server.name,
        idle_credential=idle_credential.name,
        own_credential=own_credential.name,
        account_id=account.public_id,
        http_tool=http_tool.name,
        import_id=tool_import.public_id,
        imported_id=imported.public_id,
        publication_id=publication.public_id,
        credential=credential.name,
        profile=idle_profile.name,
        email=member.user.email,
        colleague_email=colleague.user.email,
        idle_category=f"{word}_idle",
        colleague=colleague.public_id,
        token_id=token.public_id,
        own_token=own_token.public_id,
        own_filter=own_filter.public_id,
        own_browser=own_browser.public_id,
        trial_id=trial.public_id,
        pk=1,
        invitation_id=invitation.public_id,
        own_request=own_request.public_id,
        request_id=request.public_id,
        schedule_id=schedule.public_id,
        kind="tasks",
        **own_records,
    )


def plausible(model: type[TenantModel], member: Membership, word: str) -> dict[str, Any]:
    """Values for a row of a table that `fill` does not know: the word in each text, rows of the same organisation."""
    by_type: list[tuple[type[models.Field[Any, Any]], Any]] = [
        (models.DateTimeField, timezone.now()),
        (models.DateField, timezone.now().date()),
        (models.IntegerField, 1),
        (models.FloatField, 1.0),
        (models.DecimalField, 1),
        (models.BooleanField, True),
        (models.JSONField, {"word": word}),
    ]
    values: dict[str, Any] = {}
    for each in model._meta.concrete_fields:
        if isinstance(each, models.ForeignKey):
            if each.related_model is Organisation:
                values[each.name] = member.organisation
            elif each.related_model is Membership:
                values[each.name] = member
            elif not each.null:
                values[each.name] = oldest(each.related_model)
        elif isinstance(each, models.CharField | models.TextField):
            values[each.name] = each.choices[0][0] if each.choices else word[: each.max_length]
        elif not each.primary_key and not each.null and not each.has_default():
            values[each.name] = next((value for kind, value in by_type if isinstance(each, kind)), None)
    return values


def oldest(model: Any) -> Any:
    """The row that `fill` made first: keys of some tables are random."""
    is_dated = any(each.name == "created_at" for each in model._meta.concrete_fields)
    return model._base_manager.order_by("created_at" if is_dated else "pk").first()


def tenant_models() -> list[type[TenantModel]]:
    return [model for model in apps.get_models() if issubclass(model, TenantModel)]


@dataclass
class Read:
    """The rows that were read last, and how many had been written until then."""

    rows: Rows = field(default_factory=dict)
    writes: int | None = None


#: Of the running test, which `world` begins with every row as it stands.
READ = Read()


def snapshot() -> Rows:
    """Every row of every organisation, as the database holds it; but not when a token was last used.

    Read anew only where the connection wrote a row since: that count also holds writes that were taken back.
    """
    writes = rows_written()
    if writes is None or writes != READ.writes:
        READ.rows, READ.writes = read_rows(), writes
    return READ.rows


def rows_written() -> int | None:
    """How many rows the tests' connection inserted, changed or deleted, whoever asked it to; None on PostgreSQL."""
    connection.ensure_connection()
    return connection.connection.total_changes if connection.vendor == "sqlite" else None


def read_rows() -> Rows:
    tables: list[type[Model]] = [*tenant_models(), Organisation]
    with system_scope():
        rows = {model.__name__: rows_of(model) for model in tables}
    for token in rows["ApiToken"]:
        for name in ("last_used_at", "last_client", "last_agent", "last_address", "last_use_changes"):
            del token[name]
    # A refusal leaves an entry, and with it the end of the chain; nothing else of the audit may change.
    rows["AuditEntry"] = [entry for entry in rows["AuditEntry"] if entry["action"] != DENIED]
    for organisation in rows["Organisation"]:
        del organisation["audit_count"], organisation["audit_head"]
    return rows


def rows_of(model: type[Model]) -> list[dict[str, Any]]:
    """Read past the ORM: a thousand tests look at every table."""
    meta = model._meta
    assert meta.pk is not None
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{meta.db_table}" ORDER BY "{meta.pk.column}"')
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


# -- Asking -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What can be told apart by the one who asked."""

    status: int
    body: str
    location: str = ""


def anybody() -> Client:
    return Client(raise_request_exception=False)


def by_login(member: Membership) -> Client:
    client = anybody()
    client.force_login(member.user)
    return client


def right_for(name: str, number: int) -> Right | None:
    return ROUTES[name].asks[number].right or ROUTES[name].right


def client_of(member: Membership, address: Address) -> Client:
    if not address.is_api:
        return by_login(member)
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {make_token(member)}"})


def ask(
    client: Client,
    name: str,
    way: Ask,
    at: OrganisationRows,
    naming: OrganisationRows | None = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Answer:
    """Ask the route at the rows of one side, with a body or query that names those of another (the same, if none)."""
    address = ADDRESSES[name]
    url = address.url(at, ROUTES[name])
    body = way.body(naming or at) if way.body else {}
    query = way.query(naming or at) if way.query else {}
    method = method or way.method
    if address.is_api:
        data: Any = json.dumps(body, default=str) if body else ""
        content = "application/json"
        response = client.generic(method, url, data, content, headers=dict(headers or {}), query_params=dict(query))
    elif method == "POST":
        response = client.post(url, dict(body), headers=dict(headers or {}))
    else:
        response = client.generic(method, url, headers=dict(headers or {}), query_params=dict(query))
    return Answer(response.status_code, text_of(response), response.headers.get("Location", ""))


def text_of(response: HttpResponseBase) -> str:
    if not isinstance(response, StreamingHttpResponse):
        text: str = response.content.decode()  # type: ignore[attr-defined]
    elif response.is_async:
        text = async_to_sync(streamed)(response).decode()
    else:
        text = b"".join(response).decode()
    # Made anew for every page.
    return re.sub(r'(name="csrfmiddlewaretoken" value|"X-CSRFToken":|name="key" value)[^>]*', "", text)


async def streamed(response: StreamingHttpResponse) -> bytes:
    return b"".join([part async for part in response])


def assert_nothing_of_acme(answer: Answer, world: TwoOrganisations) -> None:
    told = answer.body + answer.location
    secrets = [CANARY, "alice@example.com", "bob@example.com"]
    secrets += [str(each) for each in (world.acme.session_id, world.acme.turn_id, world.acme.open_turn)]
    assert [secret for secret in secrets if secret in told] == []


# -- The table is whole -----------------------------------------------------------------------------------------------


def test_every_route_has_an_entry_and_every_entry_a_route() -> None:
    assert set(ADDRESSES) - set(ROUTES) == set(), "routes without an entry in ROUTES"
    assert set(ROUTES) - set(ADDRESSES) == set(), "entries in ROUTES without a route"
    assert len(ADDRESSES) == len(list(addresses())), "two routes have one name"


def test_every_path_argument_can_be_filled_for_own_foreign_and_missing_rows() -> None:
    known = {each.name for each in fields(OrganisationRows)}
    wanted = {ROUTES[name].args.get(each, each) for name in KNOWN for each in ADDRESSES[name].arguments}

    assert wanted <= known


def test_acme_has_a_row_in_every_table(world: TwoOrganisations) -> None:
    with organisation_scope(world.alice.organisation):
        empty = [model.__name__ for model in tenant_models() if not model.objects.exists()]

    assert empty == []


@pytest.mark.parametrize("name", GUARDED)
def test_an_entry_declares_every_method_that_its_route_takes(world: TwoOrganisations, name: str) -> None:
    client = world.client_of(world.alice, ADDRESSES[name])
    declared = {way.method for way in ROUTES[name].asks}
    methods = [method for method in METHODS if method not in ("HEAD", "OPTIONS")]

    taken = {method for method in methods if ask(client, name, Ask(), world.acme, method=method).status != 405}

    assert taken == declared


# -- Keys stay inside -------------------------------------------------------------------------------------------------

#: Numbers in addresses that count no rows of other organisations: {route: {argument: what it counts}}.
_OF_TOOL = {"number": "the versions of one tool"}
_OF_MODULE = {"number": "the versions of one module"}
NUMBERS = {
    "step_detail": {"index": "the steps of one turn"},
    "api-tool-version": _OF_TOOL,
    "api-tool-version-decide": _OF_TOOL,
    "api-tool-version-rollback": _OF_TOOL,
    "api-tool-version-difference": {**_OF_TOOL, "other": "the versions of one tool"},
    "api-python-module-version": _OF_MODULE,
    "api-python-module-decide": _OF_MODULE,
    "api-python-module-rollback": _OF_MODULE,
    "api-python-module-difference": {**_OF_MODULE, "other": "the versions of one module"},
}


def test_no_address_takes_a_number_but_those_that_are_known() -> None:
    found = {
        name: set(re.findall(r"<int:(\w+)>", address.pattern))
        for name, address in ADDRESSES.items()
        if "<int:" in address.pattern
    }

    assert found == {name: set(numbers) for name, numbers in NUMBERS.items()}


# -- Alice: the routes work -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), ALL_ASKS)
def test_alice_gets_an_answer_on_every_route(world: TwoOrganisations, name: str, number: int) -> None:
    """And keys stay inside: pages, their addresses and form values, REST answers and redirects hold none.

    What she reads holds the canary that Charlie must not read; else he would be searched for what is nowhere.
    """
    way = ROUTES[name].asks[number]

    answer = ask(world.client_of(world.alice, ADDRESSES[name]), name, way, world.acme)

    assert answer.status == way.status, answer.body
    assert KEY.findall((answer.body + answer.location).replace(",", "")) == []
    if way.method == "GET" and way.status == 200:
        assert CANARY in answer.body


def test_the_keys_that_no_answer_may_hold_begin_far_out(world: TwoOrganisations) -> None:
    keys = [row["id"] for rows in world.rows.values() for row in rows if isinstance(row.get("id"), int)]

    assert min(keys) > FIRST_KEY
    assert all(KEY.search(str(key)) for key in keys)


# -- Nobody -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), ALL_ASKS)
def test_without_a_login_there_is_nothing(world: TwoOrganisations, name: str, number: int) -> None:
    way = ROUTES[name].asks[number]
    before = snapshot()

    real, missing = (ask(anybody(), name, way, side) for side in (world.acme, MISSING))

    if ADDRESSES[name].is_api:
        assert real.status == 401
        code = "invalid_api_key" if ADDRESSES[name].pattern.startswith("v1/") else "not_authenticated"
        assert json.loads(real.body)["error"]["code"] == code
        assert real == missing
    else:
        assert (real.status, missing.status) == (302, 302)
        assert real.location.startswith("/accounts/login/?next=/")
        assert (real.body, missing.body) == ("", "")
    assert snapshot() == before


@pytest.mark.parametrize("name", [name for name in KNOWN if ROUTES[name].is_public])
def test_public_routes_tell_nothing_of_anybody(world: TwoOrganisations, name: str) -> None:
    for way in ROUTES[name].asks:
        for client in (anybody(), world.by_login(world.charlie)):
            answer = ask(client, name, way, world.acme)
            assert answer.status < 500 or name == "readyz"
            assert_nothing_of_acme(answer, world)


# -- Charlie, admin of Globex -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in GUARDED if ADDRESSES[name].arguments])
def test_a_row_of_another_organisation_is_answered_like_a_missing_one(world: TwoOrganisations, name: str) -> None:
    """In its own organisation's pages, in the other's pages, with every method, and those it takes with htmx too."""
    address = ADDRESSES[name]
    client = world.client_of(world.charlie, address)
    before = snapshot()
    places = [(world.acme, MISSING)]
    if address.is_page and address.names_rows:
        places.append((replace(world.acme, org="globex"), replace(MISSING, org="globex")))

    for (foreign, missing), method in product(places, METHODS):
        declared = [way for way in ROUTES[name].asks if way.method == method]
        for way, headers in product(declared, ({}, HTMX)) if declared else [(Ask(), {})]:
            theirs = ask(client, name, way, foreign, headers=headers, method=method)
            nobodys = ask(client, name, way, missing, headers=headers, method=method)
            assert theirs == nobodys, method
            assert theirs.status == 404 if declared else theirs.status in (404, 405) or method == "OPTIONS"
            assert_nothing_of_acme(theirs, world)

    assert snapshot() == before


def names_rows(way: Ask) -> bool:
    """Whether its body or query names a row that may be another organisation's."""
    named = way.body or way.query
    return named is not None and named(MISSING) != named(
        replace(
            MISSING,
            agent="a",
            toolkit="a",
            category="a",
            name="a",
            slug="a",
            role="a",
            member_id=UUID(int=1),
            empty_category="a",
            model_id=UUID(int=1),
            email="a@b.example",
            colleague=UUID(int=1),
            colleague_email="a@b.example",
        )
    )


@pytest.mark.parametrize(("name", "number"), [each for each in ALL_ASKS if names_rows(ROUTES[each[0]].asks[each[1]])])
def test_a_body_or_query_that_names_a_foreign_row_is_answered_like_one_that_names_a_missing_row(
    world: TwoOrganisations, name: str, number: int
) -> None:
    way = ROUTES[name].asks[number]
    client = world.client_of(world.charlie, ADDRESSES[name])
    before = snapshot()

    for headers in ({}, HTMX):
        with time_machine.travel(timezone.now(), tick=False):  # pages say how long ago
            theirs = without_echo(ask(client, name, way, world.globex, world.acme, headers), world.acme)
            nobodys = without_echo(ask(client, name, way, world.globex, MISSING, headers), MISSING)
        assert theirs == nobodys
        assert theirs.status == way.refused
        assert_nothing_of_acme(theirs, world)
        if ADDRESSES[name].is_api:
            assert json.loads(theirs.body)["error"]["code"] in ("unknown", "model_not_found")

    assert snapshot() == before


def without_echo(answer: Answer, side: OrganisationRows) -> Answer:
    """A page may say again what was looked for."""
    body = answer.body
    named = (getattr(side, name.name) for name in fields(side) if name.name != "org")
    texts = {str(value) for value in named if isinstance(value, str | UUID)}
    for text in sorted(texts, key=len, reverse=True):  # one may be in another
        body = body.replace(text, "[asked]")
    return replace(answer, body=body)


@pytest.mark.parametrize(("name", "number"), ALL_ASKS)
def test_charlies_own_pages_and_lists_hold_nothing_of_acme(world: TwoOrganisations, name: str, number: int) -> None:
    way = ROUTES[name].asks[number]
    client = world.client_of(world.charlie, ADDRESSES[name])
    before = acme_rows(world)

    answer = ask(client, name, way, world.globex)

    assert answer.status == way.status, answer.body
    assert_nothing_of_acme(answer, world)
    assert acme_rows(world) == before


def acme_rows(world: TwoOrganisations) -> dict[str, Any]:
    key = world.alice.organisation_id
    return {
        table: [row for row in rows if row.get("organisation_id", row["id"]) == key]
        for table, rows in snapshot().items()
    }


# -- Bob, plain member of Acme ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"), [each for each in ALL_ASKS if ADDRESSES[each[0]].names_chat and not right_for(*each)]
)
def test_another_members_chat_is_answered_like_a_missing_one(world: TwoOrganisations, name: str, number: int) -> None:
    way = ROUTES[name].asks[number]
    client = world.client_of(world.bob, ADDRESSES[name])
    before = snapshot()

    for headers in ({}, HTMX):
        hers = ask(client, name, way, world.acme, headers=headers)
        nobodys = ask(client, name, way, replace(MISSING, org="acme"), headers=headers)
        assert hers == nobodys
        assert hers.status == 404

    assert snapshot() == before


@pytest.mark.parametrize(("name", "number"), [each for each in ALL_ASKS if right_for(*each)])
def test_routes_with_a_right_are_refused_without_it_and_open_with_it(
    world: TwoOrganisations, name: str, number: int
) -> None:
    way = ROUTES[name].asks[number]
    client = world.client_of(world.bob, ADDRESSES[name])
    before = snapshot()

    real, missing = (ask(client, name, way, side) for side in (world.acme, replace(MISSING, org="acme")))

    assert (real.status, real) == (403, missing)
    assert snapshot() == before
    rights = [right for right in (right_for(name, number), way.also) if right is not None]
    with organisation_scope(world.bob.organisation):
        for right in rights:
            AdminRight.objects.create(organisation=world.bob.organisation, membership=world.bob, right=right)
    assert ask(client, name, way, world.acme).status == (way.below_admin or way.status)


@pytest.mark.parametrize(
    ("name", "number"),
    [each for each in ALL_ASKS if not ADDRESSES[each[0]].names_chat and not right_for(*each)],
)
def test_what_asks_for_no_right_is_open_to_a_member(world: TwoOrganisations, name: str, number: int) -> None:
    way = ROUTES[name].asks[number]

    answer = ask(world.client_of(world.bob, ADDRESSES[name]), name, way, world.acme)

    assert answer.status == (way.without_tools or way.status)


# -- Other doors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [each for each in ALL_ASKS if not ADDRESSES[each[0]].is_api and ROUTES[each[0]].asks[each[1]].method != "GET"],
)
def test_pages_that_change_something_ask_for_the_csrf_token(world: TwoOrganisations, name: str, number: int) -> None:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(world.alice.user)
    before = snapshot()

    answer = ask(client, name, ROUTES[name].asks[number], world.acme)

    assert answer.status == 403
    assert snapshot() == before


@pytest.mark.parametrize("name", [name for name in GUARDED if ADDRESSES[name].is_page])
def test_a_user_in_both_organisations_sees_each_only_at_its_own_address(world: TwoOrganisations, name: str) -> None:
    """Alice is an admin of Globex too: Acme's rows are still not to be found under /o/globex/."""
    client = by_login(make_member(world.charlie.organisation, "alice", Access.ADMIN))

    for way in ROUTES[name].asks:
        if ADDRESSES[name].names_rows:
            answer = ask(client, name, way, replace(world.acme, org="globex"))
            assert answer.status == 404
        elif way.method == "GET":
            answer = ask(client, name, way, world.globex)
            assert answer.status == way.status


def test_a_stream_of_another_organisation_ends_before_its_first_byte(world: TwoOrganisations) -> None:
    for address in ("api-turn-events", "turn_stream"):
        client = world.client_of(world.charlie, ADDRESSES[address])
        answer = ask(client, address, Ask(), world.acme, headers={"Last-Event-ID": "1"})
        assert answer.status == 404
        assert "event:" not in answer.body


def test_turns_that_charlie_was_refused_are_not_on_record(world: TwoOrganisations) -> None:
    with system_scope():
        before = Turn.objects.count()
    ask(world.by_token(world.charlie), "api-session-turns", Ask("POST", body=lambda side: MESSAGE), world.acme)

    with system_scope():
        assert Turn.objects.count() == before


# -- The other levels of access ---------------------------------------------------------------------------------------

#: What a viewer may do beyond reading: these are the viewer's own, not the organisation's.
VIEWERS_OWN = frozenset(
    {"api-tokens", "api-token", "token_list", "token_revoke", "browser_list", "browser_remove"}
    | {"saved_filter_create", "saved_filter_delete"}
)

#: What runs something, and is shown to those who may: not to a viewer.
FOR_MEMBERS = frozenset({"tool_try", "tool_trial", "data_create", "v1-models", "v1-model"})


def with_access(world: TwoOrganisations, access: Access) -> Membership:
    """Bob at another level, with no right of his own."""
    with organisation_scope(world.bob.organisation):
        Membership.objects.filter(pk=world.bob.pk).update(access=access)
        world.bob.refresh_from_db()
    return world.bob


@pytest.mark.parametrize(
    ("name", "number"), [each for each in ALL_ASKS if not ADDRESSES[each[0]].names_chat or right_for(*each)]
)
def test_an_operator_may_do_all_but_what_is_for_admins(world: TwoOrganisations, name: str, number: int) -> None:
    way, right = ROUTES[name].asks[number], right_for(name, number)
    operator = with_access(world, Access.OPERATOR)

    answer = ask(world.client_of(operator, ADDRESSES[name]), name, way, world.acme)

    status = way.below_admin or way.without_tools or way.status
    assert answer.status == (403 if right in ADMIN_ONLY_RIGHTS else status)


@pytest.mark.parametrize(
    ("name", "number"), [each for each in ALL_ASKS if not ADDRESSES[each[0]].names_chat or right_for(*each)]
)
def test_a_viewer_reads_and_changes_nothing(world: TwoOrganisations, name: str, number: int) -> None:
    way, right = ROUTES[name].asks[number], right_for(name, number)
    client = world.client_of(with_access(world, Access.VIEWER), ADDRESSES[name])
    before = snapshot()

    answer = ask(client, name, way, world.acme)

    is_own = name in VIEWERS_OWN or not ADDRESSES[name].has_organisation
    if right is None and name not in FOR_MEMBERS and (way.method == "GET" or is_own):
        assert answer.status == way.status
    else:
        assert answer.status == 403
        assert snapshot() == before
