"""One large organisation, written in bulk: no write function of the service runs, and nothing of it is on record.

Django must be set up. Rows of every table are made, so that no page is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from django.db import models, transaction
from django.utils import timezone

from benchmarks.runtime_rows import add_runtime_rows
from benchmarks.usage_rows import add_usage_rows
from capabilities.assistant.records.kinds import kinds
from capabilities.common.tokens import count_each
from capabilities.contract.loading import META_CATEGORY, META_TOOLS
from capabilities.contract.wire import sha256_hex, tool_wire
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    ApprovalRule,
    Category,
    Grant,
    GrantRequest,
    HelperModule,
    HelperUse,
    HelperVersion,
    Hook,
    ImportedTool,
    LanguageModel,
    McpServer,
    ModelPrice,
    PolicyProfile,
    Provider,
    Publication,
    Role,
    RoleMembership,
    RoleRule,
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
)
from capabilities.running.registry import registry
from sessions.models import (
    Approval,
    Budget,
    BudgetPeriod,
    ChatSession,
    ClientRequest,
    Consent,
    Door,
    LoadedToolkit,
    Notice,
    Schedule,
    SessionClient,
    Step,
    ToolSet,
    TrialRun,
    Turn,
    TurnEvent,
    VerdictSet,
)
from toolhub.tenants.access import issue_token
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, ApiToken, Invitation, Membership, Organisation, User
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope, system_scope

M = TypeVar("M", bound=TenantModel)

PARAMETERS = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "What it is called."},
        "limit": {"type": "integer", "description": "Rows at most.", "minimum": 1, "maximum": 100},
    },
    "required": ["title"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Size:
    """How many rows there are of each."""

    tools: int = 10_000
    categories: int = 300
    toolkits: int = 200
    roles: int = 50
    members: int = 1_000
    agents: int = 50
    sessions: int = 200
    #: Of the first session; each other one has ten.
    turns: int = 2_000
    #: Of each kind that members keep, of one member.
    records: int = 500
    #: Of usage.
    hours: int = 365 * 24


@dataclass(frozen=True)
class Filled:
    """The organisation, its admin, and what the arguments of addresses are filled with, by their names."""

    member: Membership
    session: ChatSession
    token: str
    arguments: Mapping[str, Any]
    #: The public id of one row of each kind that members keep.
    records: Mapping[str, Any]


def fill(size: Size, slug: str = "large") -> None:
    """About ten seconds for the default size."""
    with transaction.atomic():
        organisation = Organisation.objects.create(slug=slug, name=slug.title())
        with system_scope():
            members = members_of(organisation, size)
        with organisation_scope(organisation):
            _fill(organisation, members, size)


def filled(slug: str = "large") -> Filled:
    """What `fill` wrote, with a new token of its admin's."""
    organisation = Organisation.objects.get(slug=slug)
    with organisation_scope(organisation), transaction.atomic():
        member = Membership.objects.select_related("user", "organisation").order_by("pk")[0]
        session = ChatSession.objects.select_related("agent__model__provider", "membership").get(title="Talk 0")
        _, token = issue_token(member, "Benchmark", actor=None)
        return Filled(member, session, token, _arguments(session), _records())


def members_of(organisation: Organisation, size: Size) -> list[Membership]:
    slug = organisation.slug
    users = [
        User(email=f"member{n}@{slug}.example.com", first_name=f"Member {n}", last_name="Of the team", password="!")
        for n in range(size.members)
    ]
    User.objects.bulk_create(users)
    rows = [Membership(organisation=organisation, user=user) for user in users]
    rows[0].access = Access.ADMIN
    return Membership.objects.bulk_create(rows)


def _fill(organisation: Organisation, members: Sequence[Membership], size: Size) -> None:
    own, member = {"organisation": organisation}, members[0]
    categories = Category.objects.bulk_create(
        Category(
            **own,
            name=f"category_{n:03}",
            title=f"Category {n}",
            description=f"What the tools of department {n} are for, in one line.",
            keywords=[f"word{n}", f"other{n}"],
            is_core=n < 3,
        )
        for n in range(size.categories)
    )
    tools = _tools(organisation, categories, size)
    kits = _toolkits(organisation, categories, tools, size)
    agents = _agents(organisation, tools, kits, size)
    _roles(organisation, categories, tools, members, size)
    _grants(organisation, members, categories, tools)
    _chats(organisation, member, agents, kits, tools, size)
    _kept(member, size)
    _people(organisation, member, tools)
    _far_sides(members)
    _refusals(organisation, tools)
    _imports(members[0])
    _modules(members[0])
    add_runtime_rows(member)
    add_usage_rows(members, agents, tools, size.hours)


# -- The catalogue -----------------------------------------------------------------------------------------------------


def _tools(organisation: Organisation, categories: Sequence[Category], size: Size) -> list[Tool]:
    own = {"organisation": organisation}
    tools = Tool.objects.bulk_create(
        [
            Tool(**own, name=f"tool_{n:05}", category=categories[n % len(categories)], is_enabled=n % 20 != 19)
            for n in range(size.tools)
        ]
    )
    meta = Category.objects.create(**own, name=META_CATEGORY, title="Loading")
    tools += Tool.objects.bulk_create([Tool(**own, name=name, category=meta) for name in sorted(META_TOOLS)])
    texts = [f"Finds what department {n} wrote down, and gives it back with its date." for n in range(len(tools))]
    wires = [tool_wire(tool.name, text, PARAMETERS) for tool, text in zip(tools, texts, strict=True)]
    versions = ToolVersion.objects.bulk_create(
        ToolVersion(
            **own,
            tool=tool,
            number=1,
            description=text,
            parameters=PARAMETERS,
            wire=wire,
            sha256=sha256_hex(wire),
            tokens=tokens,
            effect="read",
        )
        for tool, text, wire, tokens in zip(tools, texts, wires, count_each(wires), strict=True)
    )
    for tool, version in zip(tools, versions, strict=True):
        tool.current_version = version
    tools[1].kind = ToolKind.HTTP
    tools[2].kind = ToolKind.PYTHON
    Tool.objects.bulk_update(tools, ["current_version", "kind"], batch_size=500)
    return tools[: size.tools]


def _toolkits(
    organisation: Organisation, categories: Sequence[Category], tools: Sequence[Tool], size: Size
) -> list[Toolkit]:
    own = {"organisation": organisation}
    kits = Toolkit.objects.bulk_create(
        Toolkit(**own, name=f"toolkit_{n:03}", description=f"What team {n} needs.") for n in range(size.toolkits)
    )
    each = max(2, size.tools // size.toolkits)
    ToolkitTool.objects.bulk_create(
        ToolkitTool(**own, toolkit=kit, tool=tools[(n * each + place) % len(tools)], position=place + 1)
        for n, kit in enumerate(kits)
        for place in range(each)
    )
    ToolkitCategory.objects.bulk_create(
        ToolkitCategory(**own, toolkit=kit, category=categories[n % len(categories)]) for n, kit in enumerate(kits)
    )
    return kits


def _agents(organisation: Organisation, tools: Sequence[Tool], kits: Sequence[Toolkit], size: Size) -> list[Agent]:
    """The first may load every toolkit."""
    own = {"organisation": organisation}
    providers = Provider.objects.bulk_create(
        Provider(**own, slug=f"provider-{n}", name=f"Provider {n}") for n in range(20)
    )
    language_models = LanguageModel.objects.bulk_create(
        LanguageModel(**own, provider=providers[n % 20], name=f"model-{n}") for n in range(100)
    )
    ModelPrice.objects.bulk_create(
        ModelPrice(**own, model=each, valid_from=timezone.now() + timedelta(days=n - 20), input=n, output=2 * n)
        for each in language_models
        for n in range(25)
    )
    agents = Agent.objects.bulk_create(
        Agent(
            **own,
            slug=f"agent-{n}",
            name=f"Agent {n}",
            description="Answers questions of the team.",
            prompt="You answer questions.\n" * 20,
            model=language_models[n % 100],
            starts_with_core=n == 0,
        )
        for n in range(size.agents)
    )
    AgentTool.objects.bulk_create(
        AgentTool(**own, agent=agent, tool=tool, position=place)
        for n, agent in enumerate(agents)
        for place, tool in enumerate(tools[n * 20 % len(tools) :][:20])
    )
    AgentToolkit.objects.bulk_create(
        AgentToolkit(**own, agent=agent, toolkit=kit, position=place, is_initial=place < 2)
        for n, agent in enumerate(agents)
        for place, kit in enumerate(kits if n == 0 else kits[:10])
    )
    return agents


# -- People ------------------------------------------------------------------------------------------------------------


def _roles(
    organisation: Organisation,
    categories: Sequence[Category],
    tools: Sequence[Tool],
    members: Sequence[Membership],
    size: Size,
) -> None:
    """The first has a rule on every third tool; of each four, one opens all."""
    own = {"organisation": organisation}
    roles = Role.objects.bulk_create(
        Role(**own, slug=f"role-{n}", name=f"Role {n}", mode="all" if n % 4 == 1 else "listed")
        for n in range(size.roles)
    )
    rules = [RoleRule(**own, role=roles[0], tool=tool) for tool in tools[::3]]
    for n, role in enumerate(roles):
        rules += [RoleRule(**own, role=role, category=each) for each in categories[n % 7 :: 7]]
        if n:
            rules += [RoleRule(**own, role=role, tool=each, effect="deny") for each in tools[n::199]]
    RoleRule.objects.bulk_create(rules)
    pairs = {(0, 1), *((n, n % size.roles) for n in range(size.members)), *((n, 1) for n in range(size.members))}
    RoleMembership.objects.bulk_create(
        RoleMembership(**own, membership=members[n], role=roles[role]) for n, role in sorted(pairs) if role < len(roles)
    )


def _grants(
    organisation: Organisation, members: Sequence[Membership], categories: Sequence[Category], tools: Sequence[Tool]
) -> None:
    own = {"organisation": organisation}
    later = timezone.now() + timedelta(days=30)
    grants = [
        Grant(**own, membership=member, tool=tools[n % len(tools)], effect="allow", reason="Asked for.")
        for n, member in enumerate(members)
    ]
    grants += [
        Grant(**own, membership=member, category=categories[-1], effect="deny", expires_at=later, reason="Not now.")
        for member in members
    ]
    # One member with many of their own.
    grants += [Grant(**own, membership=members[1], tool=tool, effect="allow") for tool in tools[:300]]
    Grant.objects.bulk_create(grants)
    GrantRequest.objects.bulk_create(
        GrantRequest(**own, membership=member, tool=tools[n % len(tools)], reason="For the release.", hours=8)
        for n, member in enumerate(members)
    )


# -- Chats -------------------------------------------------------------------------------------------------------------


def _chats(
    organisation: Organisation,
    member: Membership,
    agents: Sequence[Agent],
    kits: Sequence[Toolkit],
    tools: Sequence[Tool],
    size: Size,
) -> None:
    own = {"organisation": organisation}
    now = timezone.now()
    sessions = ChatSession.objects.bulk_create(
        ChatSession(**own, membership=member, agent=agents[n % len(agents)], title=f"Talk {n}")
        for n in range(size.sessions)
    )
    turns = Turn.objects.bulk_create(
        Turn(
            **own,
            session=session,
            membership=member,
            agent=session.agent,
            seq=seq + 1,
            message=f"What did department {seq} write?",
            answer="It wrote down what was agreed.\n\n- one\n- two\n" * 3,
            status="done",
            deadline_at=now,
            ended_at=now,
            is_rolled_up=True,
            rounds=2,
            last_step=3,
            last_event=4,
        )
        for n, session in enumerate(sessions)
        for seq in range(10 if n else size.turns)
    )
    Turn.objects.filter(pk=turns[0].pk).update(door=Door.CHAT)
    earlier = [{"role": "user", "content": "What did it write? " * 100}] * 200
    ClientRequest.objects.create(**own, turn=turns[0], digest="d", earlier=earlier)
    ChatSession.objects.bulk_create(
        ChatSession(**own, membership=member, agent=agents[0], title=f"Asked {n}", client=client, is_throwaway=True)
        for n in range(size.sessions)
        for client in SessionClient
    )
    wires = [tool_wire(tool.name, "Finds what a department wrote.", PARAMETERS) for tool in tools[:128]]
    verdicts = [{"tool": tool.name, "stage": "enabled", "kept": True, "reason": ""} for tool in tools[:128]]
    verdict_set = VerdictSet.objects.create(**own, key="v", verdicts=verdicts)
    tool_set = ToolSet.objects.create(
        **own, key="k", sha256="s", wire=f"[{','.join(wires)}]", tokens=9000, version_ids=[]
    )
    call = {"id": "call_1", "name": tools[0].name, "arguments": '{"title": "x"}'}
    model_call = {"kind": "model", "status": "done", "tool_set": tool_set, "ended_at": now}
    steps = []
    for turn in turns:
        steps += [
            Step(**own, **model_call, turn=turn, index=1, round=1, tool_calls=[call], verdict_set=verdict_set),
            Step(
                **own,
                turn=turn,
                index=2,
                round=1,
                kind="tool",
                status="done",
                tool_name=tools[0].name,
                tool_call_id="call_1",
                arguments=call["arguments"],
                result="What was agreed. " * 100,
                result_sent="What was agreed. " * 100,
                display="Looked it up",
                ended_at=now,
            ),
            Step(**own, **model_call, turn=turn, index=3, round=2, text=turn.answer),
        ]
    Step.objects.bulk_create(steps, batch_size=500)
    TurnEvent.objects.bulk_create(
        TurnEvent(**own, turn=turn, number=number, type="step", payload={"index": number})
        for turn in turns
        for number in range(1, 5)
    )
    session = sessions[0]
    LoadedToolkit.objects.bulk_create(
        LoadedToolkit(
            **own,
            session=session,
            agent=session.agent,
            toolkit=kits[n % len(kits)],
            name=kits[n % len(kits)].name,
            source="model",
            # Three are there still.
            unloaded_at=None if n < 3 else now,
            unload_reason="" if n < 3 else "unloaded",
        )
        for n in range(500)
    )
    Notice.objects.bulk_create(Notice(**own, session=session, text=f"Reminder {n}") for n in range(100))
    Schedule.objects.bulk_create(
        Schedule(
            **own, membership=member, agent=agents[0], number=n, name=f"Schedule {n}", message="hello",
            cron="0 9 * * *", next_at=now + timedelta(days=1),
        )
        for n in range(200)
    )  # fmt: skip


# -- Everything else ---------------------------------------------------------------------------------------------------


def _kept(member: Membership, size: Size) -> None:
    """What the member keeps, of each kind."""
    for kind in kinds():
        count = 1 if kind.name in ("scratchpad", "agent-notes") else size.records
        kind.model.objects.bulk_create(plausible(kind.model, member, number) for number in range(1, count + 1))


def _people(organisation: Organisation, member: Membership, tools: Sequence[Tool]) -> None:
    """Invitations, tools run by hand, and what is on record."""
    own, now = {"organisation": organisation}, timezone.now()
    Invitation.objects.bulk_create(
        Invitation(**own, email=f"guest{n}@example.com", digest=uuid4().hex, created_by=member,
                   expires_at=now + timedelta(days=3))
        for n in range(300)
    )  # fmt: skip
    version = tools[0].current_version
    assert version is not None
    TrialRun.objects.bulk_create(
        TrialRun(**own, membership=member, tool_version=version, arguments="{}", status="done", result="x" * 2000,
                 deadline_at=now, ended_at=now)
        for _ in range(300)
    )  # fmt: skip
    for number in range(200):
        record("tool.update", tools[number % len(tools)], actor=member, before={"a": number}, after={"a": 1})


def _far_sides(members: Sequence[Membership]) -> None:
    """Credentials, half of them for members' own accounts, with 500 connected to the first such; servers."""
    own = {"organisation_id": members[0].organisation_id}
    credentials = StoredCredential.objects.bulk_create(
        StoredCredential(
            **own, name=f"own-{n}" if n % 2 else f"shared-{n}", title=f"Service {n}", kind="bearer",
            scope="member" if n % 2 else "organisation", origins=[f"https://api{n}.example.org"],
        )
        for n in range(200)
    )  # fmt: skip
    StoredSecret.objects.bulk_create(
        StoredSecret(**own, credential=credentials[1], membership=member, values_json="{}") for member in members[:500]
    )
    McpServer.objects.bulk_create(
        McpServer(
            **own, name=f"signed-{n}", title=f"Signed server {n}", url=f"https://mcp{n}.example.org",
            credential=credentials[2 * n],
        )
        for n in range(100)
    )  # fmt: skip


def _refusals(organisation: Organisation, tools: Sequence[Tool]) -> None:
    """The first tool was refused by each of the first 50 models."""
    version = tools[0].current_version
    assert version is not None
    ToolRefusal.objects.bulk_create(
        ToolRefusal(
            organisation=organisation, tool=tools[0], model=model, version=version, sha256="0" * 64, origin="o",
            words="Invalid schema for this function: a list says nothing of what is in it.", refused_at=timezone.now(),
        )
        for model in LanguageModel.objects.order_by("pk")[:50]
    )  # fmt: skip


def _modules(member: Membership) -> None:
    """Python modules, half of them with a version that waits; the first with many versions, and 200 tools import it."""
    own = {"organisation_id": member.organisation_id}
    modules = HelperModule.objects.bulk_create(
        HelperModule(**own, name=f"module_{n:05}", description=f"Functions of kind {n}") for n in range(2_000)
    )
    versions = HelperVersion.objects.bulk_create(
        HelperVersion(
            **own, module=modules[0 if n < 100 else n - 99], number=n + 1 if n < 100 else 1, code="A = 1\n" * 20,
            sha256="", runtimes=["monty"], created_by=member, status="retired" if n % 2 else "pending",
        )
        for n in range(2_099)
    )  # fmt: skip
    HelperVersion.objects.filter(pk=versions[1].pk).update(status="approved")
    HelperModule.objects.filter(pk=modules[0].pk).update(current_version=versions[1])
    tools = ToolVersion.objects.filter(status="approved").order_by("pk").values_list("pk", flat=True)[:200]
    HelperUse.objects.bulk_create(
        HelperUse(**own, tool_version_id=key, helper_version=versions[n % 100]) for n, key in enumerate(tools)
    )
    ToolTestCase.objects.create(**own, tool=Tool.objects.get(kind=ToolKind.PYTHON), name="test")


def _imports(member: Membership) -> None:
    """Imports to review, the first of a thousand definitions."""
    own = {"organisation_id": member.organisation_id}
    imports = ToolImport.objects.bulk_create(
        ToolImport(
            **own, source="openapi", title=f"API {n}", status="review", base_url=f"https://api{n}.example.org",
            membership=member, deadline_at=timezone.now(), summary={"format": "OpenAPI 3.1.0"},
        )
        for n in range(200)
    )  # fmt: skip
    ImportedTool.objects.bulk_create(
        ImportedTool(
            **own, tool_import=imports[0 if n < 1_000 else n - 999], position=n, original_name=f"GET /things/{n}",
            name=f"get_things_{n}", group=f"Group {n % 20}", description=f"Returns thing {n} by its number.",
            parameters={"type": "object", "properties": {"id": {"type": "string"}}}, effect="read", tokens=60,
            implementation={"method": "GET", "url": f"/things/{n}", "arguments": {}},
        )
        for n in range(1_190)
    )  # fmt: skip


def _records() -> dict[str, Any]:
    return {kind.name: _first(kind.model).public_id for kind in kinds()}


def _publication() -> Publication:
    """Of the organisation in scope."""
    organisation = _first(ToolImport).organisation
    text: dict[str, Any] = {"publisher_name": organisation.name, "toolkit_name": "kit", "document": "{}"}
    found, _ = Publication.objects.get_or_create(
        publisher=organisation, number=1, audience="installation", sha256="0" * 64, **text
    )
    return found


def _arguments(session: ChatSession) -> dict[str, Any]:
    model = LanguageModel.objects.select_related("provider").order_by("pk")[0]
    return {
        "org": session.membership.organisation.slug,
        "session_id": session.pk,
        "turn_id": Turn.objects.get(session=session, seq=1).pk,
        "index": 1,
        "tool": _first(Tool).name,
        "category": _first(Category).name,
        "agent": session.agent.slug,
        "role": _first(Role).slug,
        "toolkit": _first(Toolkit).name,
        "member_id": Membership.objects.order_by("pk")[1].public_id,
        "service": min(registry.services),
        "trial_id": _first(TrialRun).public_id,
        "slug": model.provider.slug,
        "model_id": model.public_id,
        "key": "max_tokens",
        "grant_id": _first(Grant).public_id,
        "request_id": GrantRequest.objects.order_by("pk")[1].public_id,
        "own_request": _first(GrantRequest).public_id,
        "schedule_id": _first(Schedule).public_id,
        "invitation_id": _first(Invitation).public_id,
        "token_id": _first(ApiToken).public_id,
        "own_filter": uuid4(),
        "own_token": _first(ApiToken).public_id,
        "own_browser": uuid4(),
        "test_id": _first(ToolTestCase).public_id,
        "approval_id": _first(Approval).public_id,
        "consent_id": _first(Consent).public_id,
        "rule_id": _first(ApprovalRule).public_id,
        "budget_id": _first(Budget).public_id,
        "period_id": _first(BudgetPeriod).public_id,
        "hook_id": _first(Hook).public_id,
        "profile": _first(PolicyProfile).name,
        "price_id": _first(ModelPrice).public_id,
        "server": _first(McpServer).name,
        "credential": _first(StoredCredential).name,
        "own_credential": "own-1",
        "account_id": _first(StoredSecret).public_id,
        "http_tool": Tool.objects.filter(kind=ToolKind.HTTP).order_by("pk")[0].name,
        "python_tool": Tool.objects.filter(kind=ToolKind.PYTHON).order_by("pk")[0].name,
        **dict.fromkeys(("number", "first", "second", "other"), 1),
        "module": _first(HelperModule).name,
        "import_id": _first(ToolImport).public_id,
        "refusal_id": _first(ToolRefusal).public_id,
        "publication_id": _publication().public_id,
        "imported_id": _first(ImportedTool).public_id,
    }


def _first(model: type[M]) -> Any:
    return model._base_manager.order_by("pk")[0]


def plausible(model: type[M], member: Membership, number: int) -> M:
    """One row of what a member keeps, unsaved: its number in each text."""
    values: dict[str, Any] = {}
    for each in model._meta.concrete_fields:
        if isinstance(each, models.ForeignKey):
            values |= _linked(each, member)
        elif isinstance(each, models.CharField | models.TextField):
            values[each.name] = each.choices[0][0] if each.choices else f"row {number}"[: each.max_length]
        elif each.name == "number":
            values["number"] = number
        elif not each.primary_key and not each.null and not each.has_default():
            values[each.name] = _value_of(each)
    return model(**values)


def _linked(field: Any, member: Membership) -> dict[str, Any]:
    if field.related_model is Organisation:
        return {field.name: member.organisation}
    if field.related_model is Membership:
        return {field.name: member}
    return {} if field.null else {field.name: field.related_model._base_manager.first()}


def _value_of(field: Any) -> Any:
    now = timezone.now()
    if isinstance(field, models.DateTimeField):
        return now
    return now.date() if isinstance(field, models.DateField) else 1
