from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.choosing.pipeline import stages
from capabilities.choosing.pipeline.candidates import Candidate
from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.choosing.pipeline.stages import STAGES, Situation, Verdict
from capabilities.contract.envelope import Envelope
from capabilities.contract.permission import Rights, RoleRules
from capabilities.contract.spec import ToolSpec
from capabilities.contract.wire import sha256_hex, tool_wire
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    Effect,
    Grant,
    LanguageModel,
    Provider,
    RoleMode,
    RoleRule,
    Tool,
    Toolkit,
    ToolkitTool,
    ToolVersion,
)
from sessions.models import ChatSession, LoadedToolkit, LoadSource, ToolSet
from sessions.selection.queries import Selection, selection_preview
from sessions.selection.tool_sets import keep_tool_set
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
    make_turn,
)
from tests.sessions.run_turns import as_claimed, selected_for
from toolhub.tenants.models import NOWHERE, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    return make_agent(acme)


@pytest.fixture
def bobs(bob: Membership, agent: Agent) -> ChatSession:
    return make_session(bob, agent)


def preview(session: ChatSession) -> Selection:
    with organisation_scope(session.organisation_id):
        return selection_preview(ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk))


def names(selection: Selection) -> list[str]:
    return [tool.name for tool in selection.tools]


def verdicts_on(selection: Selection, tool: str) -> list[tuple[str, bool, str]]:
    return [(each.stage, each.kept, each.reason) for each in selection.verdicts if each.tool == tool]


def grant(bob: Membership, effect: Effect, **fields: Any) -> None:
    with organisation_scope(bob.organisation):
        Grant.objects.create(organisation=bob.organisation, membership=bob, effect=effect, **fields)


def test_a_permitted_core_tool_is_sent_with_its_reasons(bob: Membership, bobs: ChatSession) -> None:
    make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)

    selection = preview(bobs)

    assert names(selection) == ["calculator"]
    assert verdicts_on(selection, "calculator") == [
        ("gather", True, "core category utility"),
        ("role", True, "role all allows it"),
    ]


def test_a_tool_of_the_agents_own_comes_from_any_category_and_first(bob: Membership, bobs: ChatSession) -> None:
    make_tool(bob.organisation, "calculator")
    special = make_tool(bob.organisation, "zebra", category=make_category(bob.organisation, "special", is_core=False))
    make_tool(bob.organisation, "other", category=make_category(bob.organisation, "special"))
    with organisation_scope(bob.organisation):
        AgentTool.objects.create(organisation=bob.organisation, agent=bobs.agent, tool=special)
    make_role(bob.organisation, bob)

    selection = preview(bobs)

    assert names(selection) == ["zebra", "calculator"]
    assert verdicts_on(selection, "zebra")[0] == ("gather", True, "agent")
    assert verdicts_on(selection, "other") == []


def test_an_agent_without_the_core_has_its_own_tools_only(bob: Membership, acme: Organisation) -> None:
    make_tool(acme, "calculator")
    make_role(acme, bob)

    assert preview(make_session(bob, make_agent(acme, slug="bare", starts_with_core=False))) == Selection((), ())


def test_a_tool_that_is_switched_off_is_not_sent(bob: Membership, bobs: ChatSession) -> None:
    tool = make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)
    with organisation_scope(bob.organisation):
        Tool.objects.filter(pk=tool.pk).update(is_enabled=False)

    selection = preview(bobs)

    assert names(selection) == []
    assert verdicts_on(selection, "calculator")[1:] == [("enabled", False, "switched off in the catalogue")]


@pytest.mark.parametrize(
    ("mode", "kept", "reason"),
    [
        (None, False, "this member has no role"),
        (RoleMode.NONE, False, "no role of this member allows it"),
        (RoleMode.LISTED, False, "no role of this member allows it"),
        (RoleMode.ALL, True, "role some allows it"),
    ],
)
def test_zk32_what_no_role_opens_is_not_sent(
    bob: Membership, bobs: ChatSession, mode: RoleMode | None, kept: bool, reason: str
) -> None:
    make_tool(bob.organisation, "calculator")
    if mode is not None:
        make_role(bob.organisation, bob, mode, "some")

    selection = preview(bobs)

    assert (names(selection), verdicts_on(selection, "calculator")[1:]) == (
        ["calculator"] if kept else [],
        [("role", kept, reason)],
    )


def test_a_listed_role_opens_what_it_lists_and_the_tool_beats_its_category(bob: Membership, bobs: ChatSession) -> None:
    organisation = bob.organisation
    for name in ("a", "b"):
        make_tool(organisation, name)
    make_tool(organisation, "c", category=make_category(organisation, "tasks"))
    role = make_role(organisation, bob, RoleMode.LISTED, "some")
    with organisation_scope(organisation):
        b = Tool.objects.get(name="b")
        RoleRule.objects.create(organisation=organisation, role=role, category=b.category)
        RoleRule.objects.create(organisation=organisation, role=role, tool=b, effect=Effect.DENY)

    assert names(preview(bobs)) == ["a"]


def test_roles_add_up(bob: Membership, bobs: ChatSession) -> None:
    make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob, RoleMode.NONE, "none")
    make_role(bob.organisation, bob, RoleMode.ALL, "all")

    assert names(preview(bobs)) == ["calculator"]


@pytest.mark.parametrize(
    ("effect", "expires", "kept"),
    [
        (Effect.DENY, None, False),
        (Effect.DENY, 60, False),
        (Effect.DENY, -60, True),
        (Effect.ALLOW, None, True),
    ],
)
def test_a_grant_beats_the_role_while_it_lasts(
    bob: Membership, bobs: ChatSession, effect: Effect, expires: int | None, kept: bool
) -> None:
    tool = make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)
    until = None if expires is None else timezone.now() + timedelta(seconds=expires)
    grant(bob, effect, tool=tool, expires_at=until)

    assert (names(preview(bobs)) == ["calculator"]) is kept


def test_a_grant_opens_what_no_role_does_and_a_deny_beats_it(bob: Membership, bobs: ChatSession) -> None:
    for name in ("a", "b"):
        make_tool(bob.organisation, name)
    with organisation_scope(bob.organisation):
        b = Tool.objects.select_related("category").get(name="b")
    grant(bob, Effect.ALLOW, category=b.category)
    grant(bob, Effect.DENY, tool=b)
    grant(bob, Effect.ALLOW, tool=b)

    selection = preview(bobs)

    assert names(selection) == ["a"]
    assert verdicts_on(selection, "b")[1:] == [("grants", False, "denied by a grant of this member")]


def test_another_members_role_and_grants_do_not_count(alice: Membership, bob: Membership, bobs: ChatSession) -> None:
    tool = make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, alice)
    with organisation_scope(bob.organisation):
        Grant.objects.create(organisation=bob.organisation, membership=alice, tool=tool, effect=Effect.ALLOW)

    assert names(preview(bobs)) == []


@pytest.mark.parametrize(("own", "providers", "sent"), [(None, 2, 2), (1, 2, 1), (3, 2, 3), (0, 2, 0)])
def test_zk05_the_models_own_tool_limit_beats_its_providers(
    bob: Membership, bobs: ChatSession, own: int | None, providers: int, sent: int
) -> None:
    for name in ("a", "b", "c"):
        make_tool(bob.organisation, name)
    make_role(bob.organisation, bob)
    with organisation_scope(bob.organisation):
        Provider.objects.update(tool_limit=providers)
        LanguageModel.objects.update(tool_limit=own)

    selection = preview(bobs)

    assert names(selection) == ["a", "b", "c"][:sent]
    limit = own if own is not None else providers
    assert [each.tool for each in selection.verdicts if each.stage == "limit"] == ["a", "b", "c"][sent:]
    if sent < 3:
        assert verdicts_on(selection, "c")[-1] == ("limit", False, f"over the limit of {limit} tools")


def test_the_order_stays_when_a_tool_is_switched_or_re_worded(bob: Membership, bobs: ChatSession) -> None:
    for name in ("c", "a", "b"):
        make_tool(bob.organisation, name)
    make_role(bob.organisation, bob)
    before = names(preview(bobs))
    with organisation_scope(bob.organisation):
        a = Tool.objects.select_related("current_version").get(name="a")
        update_tool(a, Definition("a", "Other words.", {"type": "object"}), actor=None)
        Tool.objects.filter(name="b").update(is_enabled=False)
        without_b = names(preview(bobs))
        Tool.objects.filter(name="b").update(is_enabled=True)

    assert (before, without_b, names(preview(bobs))) == (["a", "b", "c"], ["a", "c"], ["a", "b", "c"])


def test_equal_selections_are_equal_bytes_and_one_row(bob: Membership, bobs: ChatSession) -> None:
    for name in ("a", "b"):
        make_tool(bob.organisation, name)
    make_role(bob.organisation, bob)
    first, second = preview(bobs), preview(bobs)
    with organisation_scope(bob.organisation):
        rows = {keep_tool_set(each, bob.organisation_id).pk for each in (first, second)}
        kept = ToolSet.objects.get()

    assert first == second
    assert rows == {kept.pk}
    assert (kept.wire, kept.sha256, kept.tokens) == (first.wire, sha256_hex(first.wire), first.tokens)
    assert first.wire == "[" + ",".join(tool.wire for tool in first.tools) + "]"


@pytest.mark.long
@pytest.mark.parametrize("count", [3, 100, 10_000])
def test_the_active_tools_take_three_queries_however_many_they_are(
    bob: Membership, bobs: ChatSession, count: int, django_assert_num_queries: Any
) -> None:
    make_role(bob.organisation, bob)
    make_many(bob.organisation, count)
    row = make_turn(bobs)
    with organisation_scope(bob.organisation):
        turn = as_claimed(row)

        with django_assert_num_queries(3):
            selection = selected_for(turn)

    assert len(selection.tools) == min(count, 128)


@pytest.mark.long
def test_the_active_tools_take_three_queries_with_200_toolkits_and_20_loaded(
    bob: Membership, bobs: ChatSession, django_assert_num_queries: Any
) -> None:
    make_role(bob.organisation, bob)
    make_many(bob.organisation, 10_000, is_core=False)
    with organisation_scope(bob.organisation):
        make_toolkits(bobs, 200, of=50)
        Agent.objects.update(starts_with_core=False)
        LanguageModel.objects.update(tool_limit=2_000)
        load_first(bobs, 20)
        turn = as_claimed(make_turn(bobs))

        with django_assert_num_queries(3):
            selection = selected_for(turn)

    assert len(selection.tools) == 20 * 50
    assert (selection.stale, selection.new_initial) == ((), ())


def make_toolkits(session: ChatSession, count: int, *, of: int) -> None:
    """Toolkits of so many tools each, all of them allowed to the session's agent."""
    organisation = session.organisation
    tools = list(Tool.objects.filter(category__name="many").order_by("name").values_list("pk", flat=True))
    Toolkit.objects.bulk_create(Toolkit(organisation=organisation, name=f"kit_{i:03}") for i in range(count))
    kits = list(Toolkit.objects.order_by("name"))
    ToolkitTool.objects.bulk_create(
        ToolkitTool(organisation=organisation, toolkit=kit, tool_id=tools[number * of + place], position=place)
        for number, kit in enumerate(kits)
        for place in range(of)
    )
    AgentToolkit.objects.bulk_create(
        AgentToolkit(organisation=organisation, agent=session.agent, toolkit=kit, position=number)
        for number, kit in enumerate(kits)
    )


def load_first(session: ChatSession, count: int) -> None:
    LoadedToolkit.objects.bulk_create(
        LoadedToolkit(
            organisation=session.organisation,
            session=session,
            agent=session.agent,
            toolkit=kit,
            name=kit.name,
            source=LoadSource.PERSON,
            loaded_by=session.membership,
        )
        for kit in Toolkit.objects.order_by("name")[:count]
    )


def make_many(organisation: Organisation, count: int, *, is_core: bool = True) -> None:
    category = make_category(organisation, "many", is_core=is_core)
    with organisation_scope(organisation):
        new = [Tool(organisation=organisation, name=f"tool_{i:05}", category=category) for i in range(count)]
        Tool.objects.bulk_create(new)
        tools = list(Tool.objects.filter(category=category))
        for tool in tools:
            wire = tool_wire(tool.name, "Does something.", {"type": "object"})
            tool.current_version = ToolVersion(
                organisation=organisation,
                tool=tool,
                number=1,
                description="Does something.",
                parameters={"type": "object"},
                wire=wire,
                sha256=sha256_hex(wire),
                tokens=20,
                effect="read",
            )
        versions = [tool.current_version for tool in tools if tool.current_version is not None]
        ToolVersion.objects.bulk_create(versions)
        saved = {version.tool_id: version for version in ToolVersion.objects.filter(tool__category=category)}
        for tool in tools:
            tool.current_version = saved[tool.pk]
        Tool.objects.bulk_update(tools, ["current_version"], batch_size=400)


def spec(number: int, is_enabled: bool) -> ToolSpec:
    envelope = Envelope("retry", 1.0, 1)
    return ToolSpec(number, number, f"t{number}", "builtin", "c", number % 3, is_enabled, "{}", "", 1, "read", envelope)


DECISIONS = st.dictionaries(st.integers(0, 9), st.sampled_from(["allow", "deny"]))
RIGHTS = st.builds(
    Rights,
    st.lists(
        st.builds(RoleRules, st.just("r"), st.sampled_from(["all", "listed", "none", "odd"]), DECISIONS, DECISIONS),
        max_size=3,
    ).map(tuple),
    DECISIONS,
    DECISIONS,
)


@given(st.lists(st.booleans(), max_size=10), RIGHTS, st.integers(0, 12))
def test_every_stage_only_removes(switches: list[bool], rights: Rights, limit: int) -> None:
    candidates = [Candidate(spec(number, is_on), "agent") for number, is_on in enumerate(switches)]
    before = [each.spec.name for each in candidates]
    model = LanguageModel(provider=Provider(), tool_limit=limit)

    for stage in STAGES:
        situation = Situation(MemberPermissions(rights, NOWHERE), Agent(), resolve_model(model))
        verdicts = stage(situation, candidates)
        assert {verdict.tool for verdict in verdicts} <= {each.spec.name for each in candidates}
        assert all(verdict.reason for verdict in verdicts)
        gone = {verdict.tool for verdict in verdicts if not verdict.kept}
        candidates = [each for each in candidates if each.spec.name not in gone]

    after = [each.spec.name for each in candidates]
    assert after == [name for name in before if name in after]
    assert len(after) <= limit
    for each in candidates:
        assert each.spec.is_enabled
        assert rights.decide(each.spec.tool_id, each.spec.category_id).allowed


def test_zk_02_zk_04_over_the_limit_the_core_makes_way_for_what_was_loaded(bob: Membership, bobs: ChatSession) -> None:
    make_role(bob.organisation, bob)
    make_meta_tools(bob.organisation)
    make_many(bob.organisation, 10)
    zebra = make_tool(bob.organisation, "zebra", category=make_category(bob.organisation, "wild", is_core=False))
    allow_toolkit(bobs.agent, make_toolkit(bob.organisation, "wild", zebra))
    with organisation_scope(bob.organisation):
        LanguageModel.objects.update(tool_limit=6)
        load_first(bobs, 1)

    selection = preview(bobs)

    assert names(selection) == ["tool_00000", "list_toolkits", "load_tools", "unload_tools", "search_tools", "zebra"]
    assert selection.over_limit == [f"tool_{number:05}" for number in range(1, 10)]


def test_stages_know_the_message_the_agent_and_the_model(
    bob: Membership, bobs: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)
    seen: list[Situation] = []

    def look(situation: Situation, candidates: Any) -> list[Verdict]:
        seen.append(situation)
        return []

    monkeypatch.setattr(stages, "STAGES", (*STAGES, look))
    with organisation_scope(bob.organisation):
        turn = make_turn(bobs, message="Add 1 and 2.")

        selected_for(as_claimed(turn))
        preview(bobs)

    model = resolve_model(bobs.agent.model, bobs.agent)
    assert [(each.message, each.agent, each.model) for each in seen] == [
        ("Add 1 and 2.", bobs.agent, model),
        ("", bobs.agent, model),
    ]
