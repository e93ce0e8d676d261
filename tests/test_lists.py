"""What every list of the REST API keeps: pages by keyset, refused parameters, and queries that do not grow.

A list that is not in MAKERS fails.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.agents.runtime_config.writes import LayerOf, set_runtime_config
from capabilities.assistant.models import AgentNote, GroceryItem
from capabilities.assistant.records.kinds import kind_named, kinds
from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.models import (
    AgentTool,
    AgentToolkit,
    ApprovalRule,
    Grant,
    GrantRequest,
    HelperModule,
    HelperUse,
    HelperVersion,
    ImportedTool,
    LanguageModel,
    McpServer,
    ModelPrice,
    Policy,
    PolicyProfile,
    Provider,
    Publication,
    Role,
    RoleRule,
    StoredCredential,
    StoredSecret,
    SyncedFile,
    Tool,
    ToolImport,
    ToolKind,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
    ToolRefusal,
    ToolTestCase,
)
from capabilities.running.records.kind import Kind
from sessions.models import (
    Approval,
    Budget,
    BudgetPeriod,
    ChatSession,
    Consent,
    LoadedToolkit,
    Schedule,
    Step,
    StepFile,
    Turn,
)
from tests.cast import (
    make_agent,
    make_approval,
    make_category,
    make_member,
    make_session,
    make_token,
    make_tool,
    make_turn,
)
from tests.rest import Rest
from tests.test_tenancy_routes import ADDRESSES, MISSING, ROUTES, plausible
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation
from toolhub.tenants.people.invitations import invite
from toolhub.tenants.rows.cursors import opened_place, sealed_place
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = [pytest.mark.exhaustive, pytest.mark.django_db]

#: Makes one row more of a list, the n-th.
Maker = Callable[[Membership, int], Any]


def make_agent_with_tool(member: Membership, number: int) -> None:
    agent = make_agent(member.organisation, slug=f"agent-{number}")
    toolkit = Toolkit.objects.create(organisation=member.organisation, name=f"toolkit_{number}")
    AgentToolkit.objects.create(organisation=member.organisation, agent=agent, toolkit=toolkit)
    tool = make_tool(member.organisation, f"tool_{number}")
    AgentTool.objects.create(organisation=member.organisation, agent=agent, tool=tool)


def make_toolkit(member: Membership, number: int) -> Toolkit:
    """With a tool and a category in it, and an agent that may load it."""
    own = {"organisation": member.organisation}
    toolkit = Toolkit.objects.create(**own, name=f"toolkit_{number}")
    category = make_category(member.organisation, f"category_{number}")
    ToolkitTool.objects.create(**own, toolkit=toolkit, tool=make_tool(member.organisation, f"in_kit_{number}"))
    ToolkitCategory.objects.create(**own, toolkit=toolkit, category=category)
    agent = make_agent(member.organisation, slug=f"loader-{number}")
    AgentToolkit.objects.create(**own, agent=agent, toolkit=toolkit)
    return toolkit


def make_provider(member: Membership, number: int) -> Provider:
    return Provider.objects.create(
        organisation=member.organisation, slug=f"p-{number}", name="P", api_key="sk-12345678"
    )


def make_model(member: Membership, number: int) -> None:
    provider = make_provider(member, number)
    LanguageModel.objects.create(organisation=member.organisation, provider=provider, name=f"m-{number}")


def make_priced_model(member: Membership, number: int) -> None:
    make_model(member, number)
    make_price(member, number, LanguageModel.objects.get(name=f"m-{number}"))


def make_price(member: Membership, number: int, model: LanguageModel | None = None) -> None:
    """Of the agent's model, where none is named."""
    ModelPrice.objects.create(
        organisation=member.organisation,
        model=model or the_session(member).agent.model,
        valid_from=timezone.now() + timedelta(hours=number),
        created_by=make_member(member.organisation, f"buyer{number}"),
        input=1,
        output=2,
    )


def make_role_with_rules(member: Membership, number: int) -> None:
    own = {"organisation": member.organisation}
    role = Role.objects.create(**own, slug=f"role-{number}", name="Role", mode="listed")
    RoleRule.objects.create(**own, role=role, category=make_category(member.organisation, f"category_{number}"))
    RoleRule.objects.create(**own, role=role, tool=make_tool(member.organisation, f"tool_{number}"))


def make_grant(member: Membership, number: int) -> None:
    tool = make_tool(member.organisation, f"tool_{number}")
    Grant.objects.create(organisation=member.organisation, membership=member, tool=tool, effect="allow")


def make_grant_request(member: Membership, number: int) -> None:
    """Granted, so that its page has a grant to tell of."""
    own = {"organisation": member.organisation, "membership": member}
    tool = make_tool(member.organisation, f"tool_{number}")
    grant = Grant.objects.create(**own, tool=tool, effect="allow")
    GrantRequest.objects.create(
        **own, tool=tool, reason="Deploys.", hours=8, status="granted", grant=grant, decided_by=member
    )


def make_version(member: Membership, number: int) -> None:
    tool = the_tool(member)
    update_tool(
        tool,
        Definition(name="versioned", description=f"Version {number}.", parameters={"type": "object"}),
        actor=member,
    )


def the_tool(member: Membership) -> Tool:
    return Tool.objects.filter(name="versioned").first() or make_tool(member.organisation, "versioned")


def the_session(member: Membership) -> ChatSession:
    return ChatSession.objects.first() or make_session(member)


def the_turn(member: Membership) -> Turn:
    return Turn.objects.first() or make_turn(the_session(member))


def make_step(member: Membership, number: int) -> None:
    Step.objects.create(
        organisation=member.organisation, turn=the_turn(member), index=number, kind="model", status="done", text="x"
    )


def make_file(member: Membership, number: int) -> None:
    make_step(member, number)
    turn = the_turn(member)
    step = Step.objects.get(turn=turn, index=number)
    own = {"organisation": member.organisation, "turn": turn, "step": step}
    StepFile.objects.create(**own, name="a.png", media_type="image/png", size=1, content=b"x")


def make_load(member: Membership, number: int) -> None:
    """One that a call brought about, and that has ended."""
    session = the_session(member)
    make_step(member, number)
    step = Step.objects.get(turn=the_turn(member), index=number)
    call = {"loaded_by": member, "loaded_in": step, "unloaded_by": member, "unloaded_in": step}
    own = {"organisation": member.organisation, "session": session, "agent": session.agent}
    ended = {"unloaded_at": timezone.now(), "unload_reason": "unloaded"}
    LoadedToolkit.objects.create(**own, **call, **ended, name=f"kit_{number}", source="model")


def make_schedule(member: Membership, number: int) -> None:
    """Each of another member, with another agent."""
    owner = make_member(member.organisation, f"owner{number}")
    Schedule.objects.create(
        organisation=member.organisation,
        membership=owner,
        agent=make_agent(member.organisation, slug=f"agent-{number}"),
        number=1,
        name=f"Schedule {number}",
        message="hello",
        cron="0 9 * * *",
        next_at=timezone.now(),
    )


def make_policy(member: Membership, number: int) -> None:
    own = {"organisation": member.organisation}
    provider = Provider.objects.create(**own, slug=f"under-{number}", name="Under a policy")
    profile = PolicyProfile.objects.create(**own, name=f"of_policy_{number}", patterns=["*"])
    Policy.objects.create(**own, provider=provider, profile=profile)


def make_runtime_config(member: Membership, number: int) -> None:
    """Of an agent."""
    agent = make_agent(member.organisation, slug=f"timed-{number}")
    set_runtime_config(LayerOf(agent=agent), {"tools": {"*": {"timeout_sec": 9}}}, actor=member)


def make_hook(member: Membership, number: int) -> None:
    """Each names an agent, a provider and a member of its own."""
    provider = Provider.objects.create(organisation=member.organisation, slug=f"hooked-{number}", name="Hooked")
    agent = make_agent(member.organisation, slug=f"hooked-{number}")
    colleague = make_member(member.organisation, f"hooked{number}")
    when = {"agents": [agent.slug], "providers": [provider.slug], "members": [str(colleague.public_id)]}
    entry = {"name": f"hook {number}", "action": "ask", "settings": {"message": "Sure?"}, "when": when}
    create_hook(HookContent(entry), actor=member)


def make_asked(member: Membership, number: int) -> Approval:
    """A call that waits for approval, in a session of its own."""
    return make_approval(Step.objects.create(
        organisation=member.organisation, turn=make_turn(make_session(member)), index=1, kind="tool", status="pending",
        tool_name="calculator", arguments="{}",
    ))  # fmt: skip


def make_consent(member: Membership, number: int) -> None:
    asked = make_asked(member, number)
    Consent.objects.create(
        organisation=member.organisation, membership=member, tool=asked.tool, tool_version=asked.tool_version,
        session=asked.session, approval=asked, granted_by=member,
    )  # fmt: skip


def make_record(kind: Kind, member: Membership, number: int) -> None:
    """A row of what members keep, in the first list or journal where it stands in one."""
    if (parent := kind_named(kind.parent_kind)) and not parent.model.objects.exists():
        make_record(parent, member, 1)
    row = plausible(kind.model, member, f"row {number}") | {"organisation": member.organisation, "membership": member}
    names = {each.name for each in kind.model._meta.get_fields()}
    row |= {"number": number} if "number" in names else {}
    row |= {"quantity": 1} if kind.model is GroceryItem else {}
    if kind.model is AgentNote:
        row |= {"agent": make_agent(member.organisation, slug=f"noting-{number}-of-{member.pk}")}
    kind.model.objects.create(**row)


def make_server(member: Membership, number: int) -> McpServer:
    """Signed with a credential of its own, with a tool."""
    own = {"organisation": member.organisation}
    credential = StoredCredential.objects.create(
        **own, name=f"for_{number}", title="C", kind="bearer", client_secret="x"
    )
    server = McpServer.objects.create(**own, name=f"server-{number}", title="S", credential=credential)
    tool = make_tool(member.organisation, f"mcp__server-{number}__tool")
    Tool.objects.filter(pk=tool.pk).update(kind="mcp", server=server)
    return server


def make_credential(member: Membership, number: int) -> StoredCredential:
    """Members connect own accounts to it: this one did."""
    own = {"organisation": member.organisation}
    fields = {"title": "C", "kind": "bearer", "scope": "member", "origins": ["https://api.example.org"]}
    credential = StoredCredential.objects.create(**own, name=f"credential-{number}", **fields)
    StoredSecret.objects.create(**own, credential=credential, membership=member, values_json="{}")
    return credential


def the_credential(member: Membership) -> StoredCredential:
    own = {"organisation": member.organisation}
    fields = {"title": "C", "kind": "bearer", "scope": "member", "origins": ["https://api.example.org"]}
    return StoredCredential.objects.get_or_create(**own, name="the-credential", defaults=fields)[0]


def make_import(member: Membership, number: int) -> ToolImport:
    """Of a server of its own, with a definition."""
    own = {"organisation": member.organisation}
    found = ToolImport.objects.create(
        **own, source="mcp", title="I", status="review", server=make_server(member, number), deadline_at=timezone.now()
    )
    ImportedTool.objects.create(**own, tool_import=found, position=0, original_name="a", name="a")
    return found


def make_publication(member: Membership, number: int) -> Publication:
    return Publication.objects.create(
        publisher=member.organisation,
        number=number,
        audience="installation",
        publisher_name="P",
        toolkit_name="kit",
        document="{}",
        sha256="0" * 64,
    )


def the_import(member: Membership) -> ToolImport:
    own = {"organisation": member.organisation, "deadline_at": timezone.now()}
    return ToolImport.objects.get_or_create(source="openapi", title="the import", status="review", defaults=own)[0]


def make_imported(member: Membership, number: int) -> None:
    ImportedTool.objects.create(
        organisation=member.organisation,
        tool_import=the_import(member),
        position=number,
        original_name=f"a{number}",
        name=f"a{number}",
        tool=make_tool(member.organisation, f"imported_{number}"),
    )


def make_account(member: Membership, number: int) -> None:
    """Of another member."""
    owner = make_member(member.organisation, f"owner{number}")
    own = {"organisation": member.organisation, "values_json": "{}"}
    StoredSecret.objects.create(**own, credential=the_credential(member), membership=owner)


def make_budget(member: Membership, number: int) -> Budget:
    own = {"organisation": member.organisation}
    agent = make_agent(member.organisation, slug=f"spender-{number}")
    return Budget.objects.create(**own, name=f"budget-{number}", scope="agent", agent=agent, limit=1_000)


def the_budget(member: Membership) -> Budget:
    own = {"organisation": member.organisation}
    return Budget.objects.get_or_create(**own, name="the budget", defaults={"scope": "member", "limit": 1_000})[0]


def make_period(member: Membership, number: int) -> None:
    owner = make_member(member.organisation, f"spender{number}")
    BudgetPeriod.objects.create(
        organisation=member.organisation,
        budget=the_budget(member),
        key=f"member:{owner.pk}",
        starts_at=timezone.now(),
        measure="tokens",
        is_hard=True,
        limit=1_000,
    )


def the_python_tool(member: Membership) -> Tool:
    tool = the_tool(member)
    Tool.objects.filter(pk=tool.pk).update(kind=ToolKind.PYTHON)
    return tool


def the_module(member: Membership) -> HelperModule:
    return HelperModule.objects.get_or_create(organisation=member.organisation, name="the_module")[0]


def make_refusal(member: Membership, number: int) -> None:
    make_model(member, number)
    tool = the_tool(member)
    assert tool.current_version is not None
    ToolRefusal.objects.create(
        organisation=member.organisation,
        tool=tool,
        model=LanguageModel.objects.get(name=f"m-{number}"),
        version=tool.current_version,
        sha256="0" * 64,
        origin="origin",
        words="No.",
        refused_at=timezone.now(),
    )


def make_module_version(member: Membership, number: int) -> HelperVersion:
    own = {"organisation": member.organisation, "created_by": member, "decided_by": member}
    return HelperVersion.objects.create(**own, module=the_module(member), number=number, code="A = 1", sha256="")


def make_module(member: Membership, number: int) -> None:
    module = HelperModule.objects.create(organisation=member.organisation, name=f"module_{number}")
    version = HelperVersion.objects.create(organisation=member.organisation, module=module, number=1, code="A = 1")
    HelperModule.objects.filter(pk=module.pk).update(current_version=version)


def make_use(member: Membership, number: int) -> None:
    version = make_module_version(member, number)
    tool = make_tool(member.organisation, f"user_{number}")
    assert tool.current_version is not None
    HelperUse.objects.create(
        organisation=member.organisation, tool_version=tool.current_version, helper_version=version
    )


MAKERS: dict[str, Maker] = {
    "api-schedules": make_schedule,
    "api-sessions": lambda member, number: make_session(member),
    "api-session-turns": lambda member, number: make_turn(the_session(member)),
    "api-session-loads": make_load,
    "api-turn-steps": make_step,
    "api-categories": lambda member, number: make_category(member.organisation, f"category_{number}"),
    "api-tools": lambda member, number: make_tool(member.organisation, f"tool_{number}"),
    "api-tool-versions": make_version,
    "api-tool-refusals": make_refusal,
    "api-toolkits": make_toolkit,
    "api-agents": make_agent_with_tool,
    "api-providers": make_provider,
    "api-models": make_model,
    "api-prices": make_priced_model,
    "api-model-prices": make_price,
    "api-roles": make_role_with_rules,
    "api-policies": make_policy,
    "api-policy-profiles": lambda member, number: PolicyProfile.objects.create(
        organisation=member.organisation, name=f"profile_{number}", patterns=["*"]
    ),
    "api-runtime-config": make_runtime_config,
    "api-hooks": make_hook,
    "api-turn-files": make_file,
    "api-tool-files": lambda member, number: SyncedFile.objects.create(
        organisation=member.organisation,
        folder="/srv/tools",
        path=f"tool_{number}.py",
        tool=make_tool(member.organisation, f"synced_{number}"),
    ),
    "api-python-tool-tests": lambda member, number: ToolTestCase.objects.create(
        organisation=member.organisation,
        tool=the_python_tool(member),
        name=f"test {number}",
        version=the_tool(member).current_version,
    ),
    "api-python-modules": make_module,
    "api-python-module-versions": make_module_version,
    "api-python-module-uses": make_use,
    "api-imports": make_import,
    "api-publications": make_publication,
    "api-import-tools": make_imported,
    "api-mcp-servers": make_server,
    "api-credentials": make_credential,
    "api-credential-accounts": make_account,
    "api-accounts": make_credential,
    "api-approval-rules": lambda member, number: ApprovalRule.objects.create(
        organisation=member.organisation,
        name=f"rule-{number}",
        tool_pattern="*",
        agent=make_agent(member.organisation, slug=f"ruled-{number}"),
    ),
    "api-budgets": make_budget,
    "api-budget-periods": make_period,
    "api-approvals": make_asked,
    "api-consents": make_consent,
    "api-grants": make_grant,
    "api-grant-requests": make_grant_request,
    "api-members": lambda member, number: make_member(member.organisation, f"member{number}"),
    "api-tokens": lambda member, number: make_token(member),
    "api-invitations": lambda member, number: invite(f"guest{number}@example.com", Access.MEMBER, actor=member),
    "api-audit": lambda member, number: record("x", member, actor=member),
} | {f"api-data-{kind.name}": partial(make_record, kind) for kind in kinds() if kind.name != "scratchpad"}
#: As many rows as the code has services, the budgets of one member, and their one scratchpad: in one page.
WHOLE = {"api-services", "api-budgets-mine", "api-data-scratchpad"}
#: Lists whose cursor is of another make.
OWN_CURSOR = {"api-sessions", "api-schedules", "api-turn-steps"}
PAGED = [name for name in MAKERS if name not in OWN_CURSOR]


@pytest.fixture
def rest(alice: Membership) -> Rest:
    rest = Rest(alice)
    rest.get("registry")  # the token's use of this minute is noted
    return rest


def url_of(name: str, member: Membership) -> str:
    rows: dict[str, Callable[[], Any]] = {
        "session_id": lambda: the_session(member).pk,
        "turn_id": lambda: the_turn(member).pk,
        "name": lambda: the_tool(member).name,
        "budget_id": lambda: the_budget(member).public_id,
        "credential": lambda: the_credential(member).name,
        "import_id": lambda: the_import(member).public_id,
        "model_id": lambda: the_session(member).agent.model.public_id,
    }

    if name.startswith("api-python-module"):
        rows["name"] = lambda: the_module(member).name
    if name == "api-python-tool-tests":
        rows["name"] = lambda: the_python_tool(member).name

    def row(argument: str) -> Any:
        return rows[argument]() if argument in rows else getattr(MISSING, ROUTES[name].args.get(argument, argument))

    with organisation_scope(member.organisation):
        return reverse(name, kwargs={each: row(each) for each in ADDRESSES[name].arguments})


def make(name: str, member: Membership, *numbers: int) -> None:
    with organisation_scope(member.organisation):
        for number in numbers:
            MAKERS[name](member, number)


def walk(rest: Rest, url: str, limit: int) -> list[Any]:
    """All rows, page by page."""
    parameter = "after" if url.endswith("/steps") else "cursor"
    rows: list[Any] = []
    query: dict[str, Any] = {"limit": limit}
    for _ in range(50):
        reply = rest.get(url, **query)
        assert reply.status == 200, reply.text
        assert len(reply.json["results"]) <= limit
        rows += reply.json["results"]
        if reply.json["next"] is None:
            return rows
        query[parameter] = reply.json["next"]
    raise AssertionError("the pages do not end")


def forged(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


# -- The table is whole -----------------------------------------------------------------------------------------------


def test_every_list_has_a_maker(rest: Rest, alice: Membership) -> None:
    streams = {"api-turn-events"}
    answers = {
        name: rest.get(url_of(name, alice)).json
        for name, address in ADDRESSES.items()
        if address.is_api and name not in streams
    }

    lists = {name for name, answer in answers.items() if answer and set(answer) == {"results", "next"}}
    assert lists == set(MAKERS) | WHOLE


# -- Pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_a_list_takes_the_same_queries_for_1_and_3_rows(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)
    make(name, alice, 1)
    with CaptureQueriesContext(connection) as one:
        first = rest.get(url)
    make(name, alice, 2, 3)
    with CaptureQueriesContext(connection) as three:
        second = rest.get(url)

    assert (first.status, second.status) == (200, 200)
    assert len(second.json["results"]) == len(first.json["results"]) + 2
    assert len(one) == len(three)
    # Of toolkits one more: whether their tools are signed with members' own accounts.
    assert len(three) <= (7 if name == "api-toolkits" else 6)


@pytest.mark.parametrize("name", MAKERS)
def test_a_list_counts_no_rows_and_skips_none(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)
    make(name, alice, 1, 2, 3)

    with CaptureQueriesContext(connection) as captured:
        walk(rest, url, 2)

    statements = [query["sql"] for query in captured]
    assert [sql for sql in statements if sql.startswith("SELECT COUNT(") or "OFFSET" in sql] == []
    assert all("LIMIT" in sql or " IN (" in sql for sql in statements)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("limit", [1, 2, 3, 200])
def test_the_pages_of_a_list_are_the_whole_list(rest: Rest, alice: Membership, name: str, limit: int) -> None:
    url = url_of(name, alice)
    make(name, alice, 1, 2, 3, 4, 5)

    assert walk(rest, url, limit) == rest.get(url).json["results"]
    assert len(rest.get(url).json["results"]) >= 5


@pytest.mark.parametrize("name", MAKERS)
def test_rows_that_come_and_go_neither_repeat_nor_skip_others(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)
    make(name, alice, 1, 2, 3, 4)
    before = rest.get(url).json["results"]
    parameter = "after" if url.endswith("/steps") else "cursor"
    first = rest.get(url, limit=2).json

    make(name, alice, 5)
    rest_of_it = rest.get(url, **{parameter: first["next"]}).json["results"]

    assert first["results"] == before[:2]
    assert [row for row in rest_of_it if row in before] == before[2:]


# -- Parameters -------------------------------------------------------------------------------------------------------


STRANGE = [
    "page",
    "offset",
    "ordering",
    "organisation",
    "organisation__slug",
    "membership__user__password",
    "tool__organisation__name",
    "Limit",
    "limit ",
    "",
    "x" * 8000,
]
LIMITS = ["0", "-1", "201", "1000000000", "9" * 50, "1.5", "1e2", "x", "", " 1", "٣", "--1", "-", "0x10", "1\x00"]


@pytest.mark.parametrize("name", MAKERS)
def test_a_list_refuses_parameters_that_it_does_not_know(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)

    for parameter in STRANGE:
        assert rest.get(url, **{parameter: "1"}).error == (400, "invalid", parameter[:100] or None)


@pytest.mark.parametrize("name", MAKERS)
def test_a_limit_is_a_number_from_1_to_200(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)

    for limit in LIMITS:
        assert rest.get(url, limit=limit).error == (400, "invalid", "limit"), limit


FORGED = [
    "",
    "x",
    "=",
    "====",
    "é",
    "\x00",
    "a" * 501,
    "A" * 100_000,
    forged(None),
    forged(True),
    forged(1.5),
    forged([]),
    forged({"pk": 1}),
    forged([[[[1]]]]),
    forged("a\x00b"),
    forged("\ud800"),
    forged(2**63),
    forged(-(2**63)),
    forged(10**300),
    forged(1),
    forged([1]),
    sealed_place(["1"])[:-1],
    sealed_place(["1"]).swapcase(),
    base64.urlsafe_b64encode(b"NaN").decode(),
    base64.urlsafe_b64encode(b"1e999").decode(),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    base64.urlsafe_b64encode(b"[" * 300).decode(),
]


@pytest.mark.parametrize("name", PAGED)
def test_a_forged_cursor_is_refused(rest: Rest, alice: Membership, name: str) -> None:
    url = url_of(name, alice)

    for cursor in FORGED:
        assert rest.get(url, cursor=cursor).error == (400, "invalid", "cursor"), cursor[:100]


@pytest.mark.parametrize("name", PAGED)
def test_a_cursor_of_the_other_kind_is_refused(rest: Rest, alice: Membership, name: str) -> None:
    make(name, alice, 1, 2, 3)
    url = url_of(name, alice)
    wrong = ["text"] if is_of_numbers(rest, url) else ["more", "than", "it has"]

    for place in (wrong, [], "text", 7):
        assert rest.get(url, cursor=sealed_place(place)).error == (400, "invalid", "cursor")


def is_of_numbers(rest: Rest, url: str) -> bool:
    """Whether the list goes by numbers; else it goes by names."""
    places = opened_place(rest.get(url, limit=1).json["next"], list)
    assert places is not None
    return all(text.isdecimal() for text in places)


@pytest.mark.parametrize("name", PAGED)
def test_places_beyond_the_ends_are_empty_or_whole_pages(rest: Rest, alice: Membership, name: str) -> None:
    make(name, alice, 1, 2, 3)
    url = url_of(name, alice)
    numbers, names = [-(2**62), 0, 2**31, 2**62], ["", "\U0010ffff", "' OR 1=1 --", "%"]
    places = opened_place(rest.get(url, limit=1).json["next"], list)
    assert places is not None

    for end in numbers if is_of_numbers(rest, url) else names:
        assert rest.get(url, cursor=sealed_place([*places[:-1], str(end)])).status == 200


@pytest.mark.parametrize("name", MAKERS)
def test_a_cursor_of_another_organisation_shows_nothing_of_it(
    rest: Rest, alice: Membership, charlie: Membership, name: str
) -> None:
    make(name, alice, 1, 2, 3)
    make(name, charlie, 1, 2, 3)
    url = url_of(name, alice)
    parameter = "after" if url.endswith("/steps") else "cursor"
    cursor = rest.get(url, limit=1).json["next"]
    other = Rest(charlie)
    own = other.get(url_of(name, charlie)).json["results"]

    reply = other.get(url_of(name, charlie), **{parameter: cursor})

    assert reply.status == 200
    assert [row for row in reply.json["results"] if row not in own] == []


def test_the_audit_is_told_newest_first_with_all_that_it_keeps(rest: Rest, alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        entry = record("x", alice, actor=alice, before={"a": 1}, after={"a": [2]})

    first = rest.get("audit").json["results"][0]

    with system_scope():
        assert AuditEntry.objects.order_by("-pk").first() == entry
    expected = {
        "number": entry.number,
        "actor": "alice@example.com",
        "action": "x",
        "target_type": "membership",
        "target_id": str(alice.public_id),
        "target": "Alice",
        "before": {"a": 1},
        "after": {"a": [2]},
        "request_id": entry.request_id,
    }
    assert {name: first[name] for name in expected} == expected


def test_lists_of_an_empty_organisation_are_empty(acme: Organisation) -> None:
    rest = Rest(make_member(acme, "alice"))

    for path in ("sessions", "categories", "tools", "agents"):
        assert rest.get(path).json == {"results": [], "next": None}
