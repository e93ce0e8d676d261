"""Policies in whole turns: what is sent, what a call answers, what can be loaded, what a child gets."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.access.policies.writes import PolicyContent, install_profiles, save_policy
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.registry_version import touch_registry
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, LanguageModel, LoadingMode, Provider, Tool
from sessions.loop.tools import execution
from sessions.models import ChatSession, StepStatus
from sessions.selection.queries import selection_preview
from tests.cast import give_tool, make_category, make_member, make_role, make_tool
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    ask,
    carried_next,
    load,
    load_by_hand,
    loads_of,
    make_loading_session,
    set_mode,
)
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, AdminRight, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

SUM = {"expression": "1+1"}


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Its agent has `calculator`, and may load `clock` and `ids`; Bob may use everything."""
    make_role(bob.organisation, bob)
    return make_loading_session(bob, provider.url)


@pytest.fixture
def alice(bob: Membership) -> Membership:
    return make_member(bob.organisation, "alice", Access.ADMIN)


def set_policy(alice: Membership, of: Provider | None = None, **content: Any) -> None:
    with organisation_scope(alice.organisation):
        save_policy(of, PolicyContent(**content), actor=alice)


def provider_of(session: ChatSession) -> Provider:
    with organisation_scope(session.organisation):
        return Provider.objects.get(models__agents=session.agent)


def verdicts(session: ChatSession, stage: str) -> dict[str, tuple[bool, str]]:
    with organisation_scope(session.organisation):
        session = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
        found = selection_preview(session).verdicts
    return {each.tool: (each.kept, each.reason) for each in found if each.stage == stage}


# -- What is sent -----------------------------------------------------------------------------------------------------


def test_zs_24_a_provider_gets_less_than_the_organisation_lets_through(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    set_policy(alice, deny=("unload_tools",))
    set_policy(alice, provider_of(session), allow=("calculator", "group:dynamic"), deny=("search_*",))

    assert carried_next(session, provider) == ["calculator", "list_toolkits", "load_tools"]


def test_zs_34_each_verdict_names_the_layer_and_the_rule(session: ChatSession, alice: Membership) -> None:
    set_policy(alice, deny=("unload_tools",))
    set_policy(alice, provider_of(session), allow=("calc*",))

    of_organisation = verdicts(session, "policy")
    dropped, why = of_organisation.pop("unload_tools")
    assert (dropped, why.endswith("’s policy denies unload_tools")) == (False, True)
    assert sorted(of_organisation) == ["calculator", "list_toolkits", "load_tools", "search_tools"]
    assert all(kept and why.endswith("does not deny it") for kept, why in of_organisation.values())
    of_provider = verdicts(session, "provider_policy")
    assert of_provider["calculator"][1].endswith("allows calc*")
    assert of_provider["load_tools"][1].startswith("the policy of provider ")
    assert "unload_tools" not in of_provider


def test_the_policy_of_another_provider_says_nothing(session: ChatSession, alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        other = Provider.objects.create(organisation=alice.organisation, slug="other", name="Other")
    set_policy(alice, other, deny=("*",))

    assert verdicts(session, "provider_policy") == {}


def test_zs_25_a_policy_gives_nobody_what_roles_do_not(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    """Rule 12 of the house: whoever writes a policy widens nothing that they may use."""
    with organisation_scope(alice.organisation):
        session.membership.role_memberships.all().delete()
    set_policy(alice, allow=("*",), also_allow=("calculator",))

    assert carried_next(session, provider) == []


def test_zs_30_zs_31_under_minimal_nothing_changes_anything(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    acme = alice.organisation
    for name in ("memory_store", "memory_search", "file_read", "file_write", "web_read", "shell_exec"):
        give_tool(session.agent, make_tool(acme, name))
    with organisation_scope(acme):
        install_profiles(acme)
    set_policy(alice, profile="minimal")

    sent = carried_next(session, provider)

    assert sorted(sent) == ["file_read", "memory_search", "web_read"]


def test_zs_58_the_same_prompt_runs_under_three_profiles_from_configuration_alone(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    for name in ("file_read", "file_write"):
        give_tool(session.agent, make_tool(alice.organisation, name))
    with organisation_scope(alice.organisation):
        install_profiles(alice.organisation)
    carried = {}
    for profile in ("minimal", "read-only", ""):
        set_policy(alice, profile=profile)
        names = carried_next(session, provider)
        carried[profile] = [name for name in ("calculator", "file_read", "file_write") if name in names]

    assert carried == {
        "minimal": ["file_read"],
        "read-only": ["calculator", "file_read"],
        "": ["calculator", "file_read", "file_write"],
    }


def test_zs_59_two_providers_get_different_tools_of_the_same_agent_and_schemas(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(alice.organisation):
        other = Provider.objects.create(
            organisation=alice.organisation, slug="grok", name="Grok", base_url=provider.url
        )
        model = LanguageModel.objects.create(organisation=alice.organisation, provider=other, name="scripted")
    set_policy(alice, other, allow=("calculator",))
    of_first = carried_next(session, provider)
    with organisation_scope(alice.organisation):
        Agent.objects.filter(pk=session.agent_id).update(model=model)
        touch_registry(alice.organisation_id)

    assert carried_next(session, provider) == ["calculator"]
    assert of_first[0] == "calculator"
    assert len(of_first) > 1
    definitions = [request["tools"][0] for request in (provider.requests[0], provider.requests[-1])]
    assert definitions[0] == definitions[1]


# -- At the call ------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_tightened_in_the_middle_of_a_turn_is_felt_at_the_next_call(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    def tighten(request: Json) -> Say:
        set_policy(alice, deny=("group:kit",))
        return Say(calls=[call("calculator", SUM)])

    provider.script = [Say(calls=[call("calculator", SUM)]), tighten, Say("Done.")]

    first, second = tool_steps_of(run(session))

    assert (first.status, second.status) == (StepStatus.DONE, StepStatus.REFUSED)
    assert "’s policy denies group:kit." in second.result_sent


def test_a_call_of_call_tool_is_asked_of_both_layers(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    names = ("uuid", "current_time")
    through = [call("call_tool", {"name": name, "arguments": {}}, id=name) for name in names]
    set_policy(alice, deny=("uuid",))
    set_policy(alice, provider_of(session), deny=("current_time",))

    told = ask(session, provider, *through)

    of_organisation, of_provider = (each["error"] for each in told)
    assert of_organisation.endswith("the organisation’s policy denies uuid.")
    assert of_provider.endswith(f"{provider_of(session).name} denies current_time.")


def test_a_tool_that_the_round_does_not_carry_says_which_policy_keeps_it(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    set_policy(alice, deny=("calculator",))

    (told,) = ask(session, provider, call("calculator", SUM))

    assert told["error"].endswith("’s policy denies calculator.")


def test_without_a_provider_only_the_organisations_policy_is_asked(session: ChatSession, alice: Membership) -> None:
    set_policy(alice, provider_of(session), deny=("calculator",))
    spec = spec_of(session, "calculator")

    with organisation_scope(session.organisation):
        by_hand = execution.refusal_to(session.membership_id, spec)
        in_turn = execution.refusal_to(session.membership_id, spec, provider_of(session).public_id)

    assert by_hand is None
    assert in_turn is not None
    assert in_turn.status == StepStatus.REFUSED


# -- Loads and children -----------------------------------------------------------------------------------------------


def test_what_a_policy_drops_is_not_offered_to_be_loaded(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    set_policy(alice, deny=("uuid",))

    listed, refused = ask(session, provider, call("list_toolkits", {}, id="list"), load("ids"))

    assert [each["name"] for each in listed["toolkits"]] == ["clock"]
    assert refused["status"] == "not_allowed"
    assert refused["message"].endswith("’s policy denies uuid.")
    assert loads_of(session) == []


def test_a_load_stays_while_a_policy_keeps_its_tools_back_and_comes_again(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    assert load_by_hand(session, "ids").is_there
    set_policy(alice, deny=("uuid",))
    without = carried_next(session, provider)
    set_policy(alice)

    assert "uuid" not in without
    assert "uuid" in carried_next(session, provider)


def test_a_category_is_not_found_where_a_policy_drops_what_would_load_it(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    acme = alice.organisation
    make_tool(acme, "unit_split", category=make_category(acme, "sums", is_core=False))
    with organisation_scope(acme):
        own = {"organisation": acme, "membership": session.membership}
        AdminRight.objects.create(**own, right=Right.LOAD_CATEGORIES)
    search = call("search_tools", {"query": "unit_split"}, id="search")
    (found,) = ask(session, provider, search)
    set_policy(alice, deny=("load_tool_category",))

    (without,) = ask(session, provider, search)

    assert found["tools"][0]["name"] == "unit_split"
    assert without["tools"] == []


# -- Queries ----------------------------------------------------------------------------------------------------------


def test_a_warm_selection_reads_no_policy(session: ChatSession, alice: Membership) -> None:
    set_policy(alice, deny=("uuid",))
    with organisation_scope(session.organisation):
        session = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
        counts = []
        for _ in range(2):
            with CaptureQueriesContext(connection) as queries:
                selection_preview(session)
            counts.append(len(queries))

    assert counts == [6, 2]


def test_a_call_reads_no_policy_where_there_is_none_or_it_was_read(session: ChatSession, alice: Membership) -> None:
    spec = spec_of(session, "calculator")

    def queries_twice() -> list[int]:
        counts = []
        for _ in range(2):
            with CaptureQueriesContext(connection) as queries, organisation_scope(session.organisation):
                execution.refusal_to(session.membership_id, spec)
            counts.append(len(queries))
        return counts

    without = queries_twice()
    set_policy(alice, deny=("uuid",))

    assert (without, queries_twice()) == ([2, 1], [3, 1])


def test_a_warm_turn_under_policies_sends_as_many_statements_as_one_without(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    def statements() -> int:
        """Of the second of two turns."""
        for _ in range(2):
            provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Done."))
            with CaptureQueriesContext(connection) as queries:
                run(session)
        return len(queries)

    without = statements()
    set_policy(alice, deny=("uuid",))
    set_policy(alice, provider_of(session), also_allow=("uuid",))

    assert statements() == without > 10


def spec_of(session: ChatSession, name: str) -> ToolSpec:
    with organisation_scope(session.organisation):
        return specs(Tool.objects.filter(name=name))[0]
