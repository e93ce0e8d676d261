"""How many tools are sent, and of how many tokens: every page and every address of the API says what the next turn's
request carries."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from capabilities.agents.agents.queries import agent_or_404
from capabilities.agents.agents.writes import AgentContent, allowed_toolkits, deferred_tools, own_tools, update_agent
from capabilities.common.refused import ChangeRefused
from capabilities.models import (
    Agent,
    AgentScope,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Role,
    RoleMembership,
    RoleMode,
    RoleRule,
    Tool,
)
from sessions.insight.previews.offers import impact_of_agent
from sessions.models import ChatSession, Step, StepKind
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_organisation,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Rest
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.run_turns import run
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.lasting, pytest.mark.django_db(transaction=True)]

#: Each example has an organisation of its own.
number = itertools.count(1)

TOOLS = ("calculator", "uuid", "current_time", "unit_convert", "date_arithmetic", "web_push")
#: `web_push` acts with a credential of the organisation's, and needs set-up.
CORE, MORE = TOOLS[:2], TOOLS[2:]

PLAIN: dict[str, Any] = {
    **{name: [] for name in ("own", "deferred", "allowed", "initial", "off", "loads", "categories")},
    **{"agent": {}, "limit": None, "access": Access.MEMBER, "mode": RoleMode.ALL, "rules": {}, "grants": {}},
}
OVER_THE_LIMIT = {"own": ["web_push", "unit_convert"], "limit": 3, "allowed": ["time", "both"], "loads": ["both"]}
OF_THE_MEMBER = {"agent": {"scope": "member"}, "own": ["web_push"], "access": Access.OPERATOR, "categories": ["more"]}
some_tools = st.lists(st.sampled_from(TOOLS), unique=True, max_size=4)
some_kits = st.lists(st.sampled_from(["time", "both"]), unique=True)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "agent": {
            "starts_with_core": draw(st.booleans()),
            "loading_mode": draw(st.sampled_from(LoadingMode.values)),
            "scope": draw(st.sampled_from(AgentScope.values)),
        },
        "own": draw(some_tools),
        "deferred": draw(some_tools),
        "allowed": draw(some_kits),
        "initial": draw(some_kits),
        "limit": draw(st.sampled_from([None, 0, 1, 3, 6, 8])),
        "off": draw(st.lists(st.sampled_from(TOOLS), max_size=1)),
        "access": draw(st.sampled_from([Access.MEMBER, Access.OPERATOR])),
        "mode": draw(st.sampled_from([None, *RoleMode.values])),
        "rules": draw(st.dictionaries(st.sampled_from(TOOLS), st.sampled_from(Effect.values), max_size=3)),
        "grants": draw(st.dictionaries(st.sampled_from(TOOLS), st.sampled_from(Effect.values), max_size=2)),
        "loads": draw(st.lists(st.sampled_from(["time", "both", *TOOLS]), max_size=3)),
        "categories": draw(st.lists(st.just("more"), max_size=1)),
    }


def build(bob: Membership, provider: ScriptedOpenAI, case: dict[str, Any]) -> Agent:
    """Bob and an agent as the case says."""
    organisation = bob.organisation
    home, more = make_category(organisation, "utility"), make_category(organisation, "more", is_core=False)
    tools = {name: make_tool(organisation, name, category=home) for name in CORE}
    tools |= {name: make_tool(organisation, name, category=more) for name in MORE}
    make_meta_tools(organisation)
    agent = make_agent(organisation, provider.url, **case["agent"])
    for name in case["own"]:
        give_tool(agent, tools[name], is_deferred=name in case["deferred"])
    overrides: dict[str, dict[str, Any]] = {"unit_convert": {"timeout": 5.0}}
    kits = {
        "time": make_toolkit(organisation, "time", tools["current_time"], tools["unit_convert"]),
        "both": make_toolkit(organisation, "both", tools["uuid"], tools["unit_convert"], overrides=overrides),
    }
    for name in case["allowed"]:
        allow_toolkit(agent, kits[name], initial=name in case["initial"])
    bob.access = case["access"]
    bob.save()
    LanguageModel.objects.update(tool_limit=case["limit"])
    Tool.objects.filter(name__in=case["off"]).update(is_enabled=False)
    if case["mode"] is not None:
        role = Role.objects.create(organisation=organisation, slug="r", name="R", mode=case["mode"])
        RoleMembership.objects.create(organisation=organisation, role=role, membership=bob)
        for name, effect in case["rules"].items():
            RoleRule.objects.create(organisation=organisation, role=role, tool=tools[name], effect=effect)
    for name, effect in case["grants"].items():
        Grant.objects.create(organisation=organisation, membership=bob, tool=tools[name], effect=effect)
    return agent_or_404(agent.slug, bob)


def sent_by_a_turn(session: ChatSession, provider: ScriptedOpenAI) -> tuple[int, int]:
    """Tools and tokens of the stored set of a turn's first request; the request itself carried as many."""
    seen = len(provider.requests)
    turn = run(session)
    step = Step.objects.select_related("tool_set").get(turn=turn, kind=StepKind.MODEL)
    assert step.tool_set is not None
    count = len(step.tool_set.version_ids)
    assert len(provider.requests[seen].get("tools", [])) == count
    return count, step.tool_set.tokens


def of_api(rest: Rest, path: str, **query: Any) -> tuple[int, int]:
    answer = rest.get(path, **query).json
    return len(answer["tools"]), answer["tokens"]


def of_explain(rest: Rest, **query: Any) -> tuple[int, int]:
    answer = rest.get("explain", **query).json
    return answer["sent"], answer["tokens"]


def of_page(client: Client, org: str, path: str, name: str) -> tuple[int, int]:
    """What the page's template is given under this name."""
    context = client.get(f"/o/{org}/{path}").context
    found = context[name]
    if name == "found":
        return found.sent, found.tokens
    return len(found.sent if name == "start" else found.tools), found.tokens


@pytest.mark.exhaustive
@hypothesis_settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases())
@example(case=PLAIN | OVER_THE_LIMIT)
@example(case=PLAIN | OF_THE_MEMBER)
def test_every_page_and_address_says_what_the_next_turn_carries(case: dict[str, Any], provider: ScriptedOpenAI) -> None:
    organisation = make_organisation(f"acme-{next(number)}")
    bob = make_member(organisation, f"bob{organisation.pk}")
    with organisation_scope(organisation):
        check(case, bob, provider)


def check(case: dict[str, Any], bob: Membership, provider: ScriptedOpenAI) -> None:
    agent = build(bob, provider, case)
    client, rest = Client(), Rest(bob)
    client.force_login(bob.user)
    org = bob.organisation.slug

    said = {
        "agent page": of_page(client, org, f"agents/{agent.slug}/", "start"),
        "explain page": of_page(client, org, f"explain/?agent={agent.slug}", "found"),
        "agent tools": of_api(rest, f"agents/{agent.slug}/tools"),
        "explain": of_explain(rest, agent=agent.slug),
    }
    fresh = make_session(bob, agent)
    said["fresh session"] = of_api(rest, f"sessions/{fresh.pk}/tools")
    sent = sent_by_a_turn(fresh, provider)
    assert said == dict.fromkeys(said, sent)

    session = make_session(bob, agent)
    place = LoadTarget(session, agent)
    for name in case["loads"]:
        loading.load(place, name, by=By(bob))
    for name in case["categories"] if bob.access == Access.OPERATOR else ():
        loading.load_category(place, name, by=By(bob))
    said = {
        "session page": of_page(client, org, f"sessions/{session.pk}/", "selection"),
        "panel": of_page(client, org, f"sessions/{session.pk}/toolkits/", "selection"),
        "session tools": of_api(rest, f"sessions/{session.pk}/tools"),
        "session tools of the agent": of_api(rest, f"sessions/{session.pk}/tools", agent=agent.slug),
        "explain page": of_page(client, org, f"explain/?session={session.pk}", "found"),
        "explain": of_explain(rest, session=session.pk),
    }
    assert said == dict.fromkeys(said, sent_by_a_turn(session, provider))

    check_preview(agent, bob, sent[1], rest)


def check_preview(agent: Agent, bob: Membership, tokens: int, rest: Rest) -> None:
    """The numbers of a change are those of before, and those of after it is saved."""
    bob.access = Access.OPERATOR
    bob.save()
    before = of_api(rest, f"agents/{agent.slug}/tools")[1]
    kits = allowed_toolkits(agent)
    content = AgentContent(
        agent.slug,
        agent.name,
        agent.model,
        starts_with_core=not agent.starts_with_core,
        tools=tuple(own_tools(agent)),
        deferred_tools=tuple(deferred_tools(agent)),
        allowed_toolkits=tuple(kits),
        initial_toolkits=tuple(name for name, is_initial in kits.items() if is_initial),
        loading_mode=agent.loading_mode,
        scope=agent.scope,
    )
    try:
        changes = impact_of_agent(agent, content, actor=bob).agents
    except ChangeRefused:
        return  # two of its toolkits clash, or what it must not hold in its scope
    update_agent(agent, content, actor=bob)
    after = of_api(rest, f"agents/{agent.slug}/tools")[1]
    assert [(each.tokens_before, each.tokens_after) for each in changes] in ([(before, after)], [])
    assert changes or before == after
