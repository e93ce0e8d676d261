"""What a token may be used for is asked in one place; here every route of the API is walked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from capabilities.assistant.records.kinds import kinds
from sessions.models import Step, StepKind, StepStatus, TurnStatus
from tests.cast import make_agent, make_approval, make_session, make_token, make_turn
from toolhub.tenants.models import ApiToken, Membership, Scope
from toolhub.tenants.rest.wire import TokenScope, scope_wanted
from toolhub.tenants.rows.scope import organisation_scope, system_scope

WRITES = ("POST", "PUT", "PATCH", "DELETE")
#: The views that `chat` opens for writing. Every other write needs `manage`.
CHAT = {
    "api-sessions",
    "api-session",
    "api-session-turns",
    "api-session-toolkits",
    "api-session-toolkit",
    "api-turn-cancel",
    "v1-chat",
    "v1-responses",
    "api-schedules",
    "api-schedule",
    *(f"api-data-{kind.name}" for kind in kinds()),
    *(f"api-data-{kind.name}-row" for kind in kinds()),
}
#: Those that `chat` opens for reading, too.
CHAT_READS = {"v1-models", "v1-model", "v1-chat", "v1-responses"}
#: Those that `approve` opens.
APPROVE = {
    "api-approval-answer",
    "api-approval-approve",
    "api-approval-deny",
    "api-approval-respond",
    "api-consent",
    "api-tool-version-decide",
    "api-python-module-decide",
}


def views(resolver: URLResolver | None = None, before: str = "") -> Iterator[tuple[str, Any]]:
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from views(entry, pattern)
        elif isinstance(entry, URLPattern) and pattern.startswith(("api/v1/", "v1/")):
            yield entry.name or pattern, entry.callback.cls  # type: ignore[attr-defined]


VIEWS = dict(views())


@pytest.mark.parametrize("name", VIEWS)
def test_reading_asks_for_read_and_every_write_for_one_other_scope(name: str) -> None:
    view = VIEWS[name]

    assert TokenScope in view.permission_classes
    reads = Scope.CHAT if name in CHAT_READS else Scope.READ
    assert {scope_wanted(method, view) for method in ("GET", "HEAD", "OPTIONS")} == {reads}
    written = {scope_wanted(method, view) for method in WRITES if hasattr(view, method.lower())}
    opened_by = Scope.CHAT if name in CHAT else Scope.APPROVE if name in APPROVE else Scope.MANAGE
    assert written <= {opened_by}


def test_the_views_that_chat_and_approve_open_are_there() -> None:
    assert set(VIEWS) >= CHAT | APPROVE


def token_with(member: Membership, *scopes: Scope) -> Client:
    return Client(headers={"Authorization": f"Bearer {make_token(member, scopes=scopes)}"})


@pytest.mark.django_db
def test_each_scope_opens_its_own_and_nothing_else(alice: Membership) -> None:
    waiting: dict[str, Any] = {"status": TurnStatus.WAITING_APPROVAL, "waiting_since": timezone.now()}
    turn = make_turn(make_session(alice, make_agent(alice.organisation)), **waiting)
    with organisation_scope(alice.organisation):
        step = Step.objects.create(
            organisation=alice.organisation, turn=turn, index=1, kind=StepKind.TOOL, status=StepStatus.PENDING
        )
    asks = {
        Scope.READ: ("GET", "/api/v1/sessions", {}),
        Scope.CHAT: ("POST", "/api/v1/sessions", {"agent": "starter"}),
        Scope.MANAGE: ("POST", "/api/v1/invitations", {"email": "x@example.com"}),
        Scope.APPROVE: ("POST", f"/api/v1/approvals/{make_approval(step).public_id}/deny", {}),
    }

    for held in Scope:
        client = token_with(alice, held)
        for asked, (method, url, body) in asks.items():
            answer = client.generic(method, url, json.dumps(body), "application/json")
            if asked == held:
                assert answer.status_code in (200, 201), (held, asked)
            else:
                assert (answer.status_code, answer.json()["error"]) == (
                    403,
                    {"code": "forbidden", "message": f"This token lacks the scope {asked}.", "field": None},
                )


@pytest.mark.django_db
def test_tokens_from_before_the_scopes_hold_all(alice: Membership) -> None:
    make_token(alice)

    with system_scope():
        assert ApiToken.objects.get().scopes == ["read", "chat", "manage", "approve"]
        assert ApiToken().scopes == ["read", "chat", "manage", "approve"]
