"""Loading where two things cross: agents that share, rights that went, workers that lost their turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.contract.context import ToolContext
from capabilities.models import Agent, LoadingMode, Tool, Toolkit
from sessions.doors.builtin.dynamic import place_of
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.conversation.prefix import Prefix, remembered
from sessions.models import ChatSession, LoadSource, Step, StepStatus
from sessions.selection.loading import loadable
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By, share_loads
from sessions.turns import accepting, ledger
from sessions.worker.process import work_on
from tests.cast import allow_toolkit, give_tool, make_agent, make_member, make_role, make_session
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    answers_in,
    ask,
    carried,
    carried_next,
    kit_tool,
    load,
    load_by_hand,
    loads_of,
    make_fast_and_slow,
    make_loading_session,
    payloads,
    reread,
    set_mode,
    unload,
)
from tests.sessions.run_turns import accept, run, tool_steps_of, work
from tests.sessions.steps import claimed, end_call, expire_lease, record_model, start_call
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent has `calculator` and may load `clock` and `ids`."""
    make_role(bob.organisation, bob)
    return make_loading_session(bob, provider.url)


def make_colleague(session: ChatSession, *toolkits: str) -> Agent:
    agent = make_agent(session.organisation, slug="colleague", starts_with_core=False)
    with organisation_scope(session.organisation_id):
        for name in toolkits:
            allow_toolkit(agent, Toolkit.objects.get(name=name))
    return agent


def share(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        share_loads(session, True, actor=session.membership)


# -- Agents that share ------------------------------------------------------------------------------------------------


def test_mr_25_what_clashes_for_one_agent_stays_loaded_for_the_agent_that_loaded_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    make_fast_and_slow(session)
    colleague = make_colleague(session, "fast")
    give_tool(colleague, kit_tool(session.organisation, "current_time"))
    share(session)
    load_by_hand(session, "fast")
    with organisation_scope(session.organisation_id):
        accepted = accepting.accept(reread(session), "Hello.", member=session.membership, agent=colleague)

    turn = work(accepted.turn)

    assert carried(provider.requests[-1])[0] == "current_time"
    assert payloads(turn, "loads_dropped") == []
    assert loads_of(session) == [("fast", "person", "")]


def test_mr_23_a_load_sees_that_loads_were_shared_a_moment_ago(session: ChatSession) -> None:
    """The caller's session was read before: what counts is how it stands when the load is made."""
    make_fast_and_slow(session)
    colleague = make_colleague(session, "fast", "slow")
    load_by_hand(session, "fast")
    read_before = reread(session)
    share(session)

    with organisation_scope(session.organisation_id):
        result = loading.load(LoadTarget(read_before, colleague), "slow", by=By(session.membership))

    assert result.status == "conflict"
    assert loads_of(session) == [("fast", "person", "")]


# -- Rights that went -------------------------------------------------------------------------------------------------


def load_kit(session: ChatSession, member: Membership) -> loadable.LoadResult:
    """The whole category that `calculator` and the others live in."""
    with organisation_scope(session.organisation_id):
        return loading.load_category(LoadTarget(reread(session), session.agent), "kit", by=By(member))


def test_zk_23_a_category_is_loaded_anew_when_whoever_loaded_it_first_has_lost_the_right(
    session: ChatSession, alice: Membership, acme: Organisation
) -> None:
    olga = make_member(acme, "olga", Access.OPERATOR)
    assert load_kit(session, olga).status == "loaded"
    with organisation_scope(acme):
        Membership.objects.filter(pk=olga.pk).update(access=Access.MEMBER)

    assert load_kit(session, alice).status == "loaded"

    assert loads_of(session) == [("kit", "person", "right_gone"), ("kit", "person", "")]


def test_zk_23_a_category_falls_when_whoever_loaded_it_may_not_sign_in_any_more(
    session: ChatSession, provider: ScriptedOpenAI, acme: Organisation
) -> None:
    olga = make_member(acme, "olga", Access.OPERATOR)
    load_kit(session, olga)
    olga.user.is_active = False
    olga.user.save()

    work(accept(session))

    assert "uuid" not in carried(provider.requests[-1])
    assert loads_of(session) == [("kit", "person", "right_gone")]


# -- Workers that lost their turn -------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone."""


def test_a_call_through_call_tool_is_not_repeated_under_a_version_that_may_be(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    tool = kit_tool(session.organisation, "uuid")
    publish(tool, on_crash="never")
    provider.enqueue(Say(calls=[call("call_tool", {"name": "uuid", "arguments": {}})]), Say("Done."))
    turn = accept(session)

    def crash(*args: Any, **kwargs: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "finish_step", crash)
        with pytest.raises(Crash):
            work_on(turn.pk)
    expire_lease(turn.pk)
    publish(tool, on_crash="retry")

    work(turn)

    (step,) = tool_steps_of(turn)
    assert (step.status, step.result_sent) == (StepStatus.UNKNOWN, OUTCOME_UNKNOWN)


def publish(tool: Any, *, on_crash: str) -> None:
    with organisation_scope(tool.organisation_id):
        tool.refresh_from_db()
        wire = json.loads(tool.current_version.wire)["function"]
        content = Definition(
            name=tool.name,
            description=wire["description"],
            parameters=wire["parameters"],
            effect="write",
            on_crash=on_crash,
        )
        update_tool(tool, content, actor=None)


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_call_that_was_answered_meanwhile_loads_and_unloads_nothing(session: ChatSession, what: str) -> None:
    """A worker that lost its lease, or a call that outlived its time: another has answered for it."""
    load_by_hand(session, "clock")
    claim = claimed(accept(session))
    step = start_call(claim)
    end_call(claim, step)
    before = loads_of(session)

    result = change_loads(session, what, step)

    assert result.status == "error"
    assert loads_of(session) == before


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_call_that_is_open_loads_and_unloads(session: ChatSession, what: str) -> None:
    load_by_hand(session, "clock")

    result = change_loads(session, what, start_call(claimed(accept(session))))

    assert result.status == f"{what}ed"


def test_a_load_that_is_tried_again_after_a_crash_is_answered_as_the_first_time(session: ChatSession) -> None:
    step = start_call(claimed(accept(session)))
    first = change_loads(session, "load", step)

    again = change_loads(session, "load", step)

    assert (again, again.status) == (first, "loaded")
    assert [name for name, *_ in loads_of(session)].count("ids") == 1


def change_loads(session: ChatSession, what: str, step: Step) -> loadable.LoadResult:
    place = LoadTarget(reread(session), session.agent)
    by = By(session.membership, LoadSource.MODEL, step_id=step.pk)
    with organisation_scope(session.organisation_id):
        return loading.load(place, "ids", by=by) if what == "load" else loading.unload(place, "clock", by=by)


def test_a_worker_that_lost_its_turn_leaves_the_order_of_tools_alone(session: ChatSession) -> None:
    turn = accept(session)
    lost = claimed(turn)
    expire_lease(turn.pk)
    now = claimed(turn, "worker-2")

    with organisation_scope(session.organisation_id):
        turn = type(turn).objects.select_related("session").get(pk=turn.pk)
        record_model(now, prompt=remembered(turn, Prefix(1, 0, {"by": "now"}), [2, 1]))
        with pytest.raises(ledger.LeaseLost):
            record_model(lost, prompt=remembered(turn, Prefix(1, 0, {"by": "lost"}), [1, 2]))

    assert reread(session).tool_order == {str(session.agent_id): [2, 1]}
    assert reread(session).last_prompt == {str(session.agent_id): {"by": "now"}}


# -- Within one run ---------------------------------------------------------------------------------------------------


def test_mr_15_mr_23_what_takes_the_place_of_what_was_unloaded_in_the_same_run_stays_loaded(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.SAME_RUN)
    make_fast_and_slow(session)
    load_by_hand(session, "fast")
    provider.enqueue(Say(calls=[unload("fast")]), Say(calls=[load("slow")]), Say("Done."))

    turn = run(session)

    assert [told["status"] for told in answers_in(turn)] == ["unloaded", "loaded"]
    assert loads_of(session) == [("fast", "person", "unloaded"), ("slow", "model", "")]
    assert payloads(turn, "loads_dropped") == []
    assert "current_time" in carried_next(session, provider)


# -- What the model is told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", [True, False], ids=["delegated", "nothing to load with"])
def test_zk_29_nobody_is_told_to_load_a_category_that_would_not_bring_the_tool(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, core: bool
) -> None:
    make_role(alice.organisation, alice, slug="every")
    agent = make_agent(session.organisation, provider.url, slug="other", starts_with_core=core)
    fields: dict[str, Any] = {"delegated_tools": []} if core else {}
    if not core:  # an agent without tools is not asked about calls at all
        with organisation_scope(session.organisation):
            give_tool(agent, Tool.objects.get(name="calculator"))

    (told,) = ask(make_session(alice, agent, **fields), provider, call("unit_convert"))

    assert told["error"] == "Unknown or inactive tool: unit_convert"


def test_a_load_is_the_turns_agents_though_another_has_its_short_name_by_now(
    session: ChatSession, acme: Organisation
) -> None:
    turn = accept(session)
    with organisation_scope(acme):
        Agent.objects.filter(pk=session.agent_id).update(slug="renamed")
        make_agent(acme, slug="starter")
        context = ToolContext(
            acme.pk, session.membership_id, "starter", Path(), timezone.now, 5.0, session.pk, turn_id=turn.pk
        )

        assert place_of(context).agent == session.agent
