"""Whole turns that give a part of their work to other agents, run in this process against scripted providers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Agent,
    AgentScope,
    AgentTool,
    Category,
    LanguageModel,
    Policy,
    Provider,
    RoleMembership,
    Tool,
)
from sessions.loop.calls import delegation
from sessions.loop.run import parking as waits
from sessions.models import OPEN_STATUSES, ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns import ledger, reaping
from sessions.turns import waiting as parking
from sessions.turns.endings import NOT_RUN
from sessions.turns.held import HeldTurns
from sessions.worker import process as worker
from tests.cast import hold_credential, make_agent, make_category, make_meta_tools, make_role, make_session, make_tool
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import accept, check_request, events_of, steps_of, tool_steps_of, work, work_all
from tests.sessions.steps import change, expire_lease, reread
from tests.threads import at_once
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

SUM = {"expression": "1+1"}


@pytest.fixture
def coder_says() -> Iterator[ScriptedOpenAI]:
    """The provider behind the agent `coder`."""
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


@pytest.fixture
def boss(bob: Membership, provider: ScriptedOpenAI) -> Agent:
    """An agent with `spawn_agent`, `calculator` and `uuid`, all of which Bob may use."""
    tools = make_catalogue(bob.organisation)
    make_role(bob.organisation, bob)
    return make_own(bob.organisation, "boss", provider.url, tools["spawn_agent"], tools["calculator"], tools["uuid"])


@pytest.fixture
def coder(boss: Agent, coder_says: ScriptedOpenAI) -> Agent:
    """An agent with `spawn_agent`, `calculator` and, beyond the boss's, `task_create`."""
    tools = make_catalogue(boss.organisation)
    return make_own(
        boss.organisation, "coder", coder_says.url, tools["spawn_agent"], tools["calculator"], tools["task_create"]
    )


@pytest.fixture
def session(bob: Membership, boss: Agent) -> ChatSession:
    return make_session(bob, boss)


def make_catalogue(organisation: Organisation) -> dict[str, Tool]:
    with organisation_scope(organisation):
        there = {tool.name: tool for tool in Tool.objects.all()}
    names = {"spawn_agent": "agents", "calculator": "utility", "uuid": "utility", "task_create": "tasks"}
    for name, category in names.items():
        if name not in there:
            home = make_category(organisation, category, is_core=False)
            there[name] = make_tool(organisation, name, category=home, on_crash="never")
    return there


def make_own(organisation: Organisation, slug: str, url: str, *tools: Tool, **fields: Any) -> Agent:
    """An agent with a provider of its own and exactly these tools."""
    with organisation_scope(organisation):
        provider = Provider.objects.create(organisation=organisation, slug=slug, name=slug, base_url=url)
        model = LanguageModel.objects.create(organisation=organisation, provider=provider, name=slug)
        agent = make_agent(organisation, slug=slug, model=model, starts_with_core=False, **fields)
        for position, tool in enumerate(tools):
            AgentTool.objects.create(organisation=organisation, agent=agent, tool=tool, position=position)
    return agent


def ask(agent: str = "coder", message: str = "Write it.", id: str | None = None) -> Json:
    return call("spawn_agent", {"agent": agent, "message": message}, id)


def children_of(turn: Turn) -> list[Turn]:
    with system_scope():
        children = Turn.objects.filter(parent_step__turn=turn).select_related("session__agent", "agent")
        return list(children.order_by("parent_step__call_index"))


def cancel(turn: Turn) -> None:
    with organisation_scope(turn.organisation_id):
        ledger.cancel(reread(turn), actor=turn.membership)


def results_of(turn: Turn) -> list[Any]:
    return [json.loads(step.result_sent) for step in tool_steps_of(turn)]


def open_turns() -> int:
    with system_scope():
        return Turn.objects.filter(status__in=OPEN_STATUSES).count()


# -- A child and its answer -------------------------------------------------------------------------------------------


def test_an_agent_gives_a_part_to_another_and_goes_on_with_its_answer(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("It is written."))
    coder_says.enqueue(Say("Here is the code."))

    turn = work(accept(session, "Have it written"))
    (child,) = children_of(turn)

    assert (turn.status, turn.owner, turn.lease_until) == (TurnStatus.WAITING_CHILD, "", None)
    assert turn.waiting_since is not None
    assert (child.status, child.agent, child.message) == (TurnStatus.QUEUED, coder, "Write it.")
    assert (child.session.membership_id, child.session.agent) == (session.membership_id, coder)
    assert (child.session.parent_turn_id, child.session.depth, child.session.title) == (turn.pk, 1, "Write it.")

    work_all()

    turn, child = reread(turn), reread(child)
    assert (child.status, child.answer) == (TurnStatus.DONE, "Here is the code.")
    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "It is written.", 2)
    assert turn.waiting_since is None
    place = {"agent": "coder", "session": str(child.session_id), "turn": str(child.pk)}
    assert results_of(turn) == [{"success": True, **place, "answer": "Here is the code."}]
    assert json.loads(check_request(provider.bodies[-1])[-1]["content"])["answer"] == "Here is the code."
    (step,) = tool_steps_of(turn)
    assert (step.status, step.display) == (StepStatus.DONE, "Asking the agent coder")
    assert events_of(turn) == [
        *("accepted", "started", "model", "tool_started", "waiting_child", "resumed"),
        *("attempt_restarted", "tool_done", "model", "done"),
    ]
    assert events_of(child) == ["accepted", "started", "model", "done"]


def test_an_agent_whose_message_leaves_tools_out_still_hands_on_all_that_it_reaches(
    session: ChatSession, boss: Agent, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    """The child is routed by its own task, among what its parent reaches, not among what the parent's message needs."""
    with organisation_scope(session.organisation):
        Agent.objects.update(routing_mode="keywords")
        Category.objects.filter(name="utility").update(keywords=["add up"])
        AgentTool.objects.filter(agent=boss, tool__name="spawn_agent").update(is_pinned=True)
        make_meta_tools(session.organisation)
        touch_registry(session.organisation_id)
    provider.enqueue(Say(calls=[ask(message="Add up one and one.")]), Say("Two."))
    coder_says.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))

    turn = work(accept(session, "Have it done"))
    work_all()

    (child,) = children_of(turn)
    assert (reread(turn).status, child.status) == (TurnStatus.DONE, TurnStatus.DONE)
    assert [tool["function"]["name"] for tool in provider.requests[0]["tools"]] == ["spawn_agent"]
    assert provider.requests[0]["tools"] == provider.requests[1]["tools"]
    assert [tool["function"]["name"] for tool in coder_says.requests[0]["tools"]] == ["calculator", "search_tools"]
    assert [step.status for step in tool_steps_of(child)] == [StepStatus.DONE]


def test_what_came_unread_stays_with_the_model_that_it_came_from(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    """Each model gets its own back, also where both have the same name."""
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect="responses")
        LanguageModel.objects.update(name="thinker")
    provider.enqueue(Say(calls=[ask()], reasoning="of the parent"), Say("It is written."))
    coder_says.enqueue(Say(calls=[call("calculator", SUM)], reasoning="of the child"), Say("Here is the code."))

    turn = accept(session, "Have it written")
    work_all()

    assert (reread(turn).status, reread(turn).answer) == (TurnStatus.DONE, "It is written.")
    parents, childs = b"".join(provider.bodies), b"".join(coder_says.bodies)
    assert (len(provider.bodies), len(coder_says.bodies)) == (2, 2)
    assert (parents.count(b"of the parent"), parents.count(b"of the child")) == (1, 0)
    assert (childs.count(b"of the parent"), childs.count(b"of the child")) == (0, 1)


def test_the_other_calls_of_the_reply_run_before_the_turn_waits(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("calculator", SUM, "a"), ask(id="b"), call("uuid", {}, "c")]), Say("Well."))

    turn = work(accept(session))

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE, StepStatus.STARTED, StepStatus.DONE]
    work_all()
    assert reread(turn).answer == "Well."
    assert [step.tool_call_id for step in tool_steps_of(turn)] == ["a", "b", "c"]
    check_request(provider.bodies[-1])


def test_several_children_run_at_once_and_the_last_one_to_end_wakes_the_parent(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask(message=f"Part {each}", id=f"c{each}") for each in range(3)]), Say("All there."))
    coder_says.script = [lambda request: Say(f"Done: {request['messages'][-1]['content']}", delay=0.1)] * 3

    turn = work(accept(session))
    children = children_of(turn)
    work(children[2])
    work(children[0])
    assert reread(turn).status == TurnStatus.WAITING_CHILD
    at_once([lambda: worker.work_on(children[1].pk)])

    assert reread(turn).status == TurnStatus.QUEUED
    work_all()
    assert [result["answer"] for result in results_of(turn)] == [f"Done: Part {each}" for each in range(3)]
    assert reread(turn).answer == "All there."
    assert events_of(turn).count("resumed") == 1


def test_children_that_end_at_the_same_moment_wake_their_parent_once(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask(message=f"Part {each}", id=f"c{each}") for each in range(4)]), Say("All there."))
    turn = work(accept(session))
    claims = [ledger.claim(child.pk, "worker-9") for child in children_of(turn)]

    at_once([partial(finish_or_lose, claim) for claim in claims if claim is not None])

    assert reread(turn).status == TurnStatus.QUEUED
    assert events_of(turn).count("resumed") == 1


def test_a_long_answer_is_kept_whole_and_sent_within_the_cap(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=10_000)
    provider.enqueue(Say(calls=[ask()]), Say("Much."))
    coder_says.enqueue(Say("x" * 50_000))

    turn = work(accept(session))
    work_all()

    (step,) = tool_steps_of(turn)
    assert len(json.loads(step.result)["answer"]) == 50_000
    assert 8_700 < len(step.result_sent) <= 8_800
    assert json.loads(step.result_sent)["agent"] == "coder"


def test_an_agent_may_ask_a_third_one_and_the_fourth_below_the_member_asks_nobody(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask(message="Level 1")]), Say("Done 0"))
    coder_says.enqueue(
        *(Say(calls=[ask(message=f"Level {each}")]) for each in (2, 3, 4)), Say("Done 3"), Say("Done 2"), Say("Done 1")
    )

    turn = work(accept(session))
    work_all()

    with system_scope():
        depths = list(ChatSession.objects.order_by("depth").values_list("depth", flat=True))
        (deepest,) = Turn.objects.filter(session__depth=3)
    assert depths == [0, 1, 2, 3]
    (refused,) = results_of(deepest)
    assert refused["success"] is False
    assert "asked each other 3 times" in refused["error"]
    assert (deepest.answer, reread(turn).answer) == ("Done 3", "Done 0")
    assert open_turns() == 0


@pytest.mark.parametrize(("of_member", "of_organisation"), [(1, 50), (50, 1), (1, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_where_one_turn_may_run_at_once_a_parent_that_waits_leaves_its_place_to_its_children(
    session: ChatSession,
    coder: Agent,
    provider: ScriptedOpenAI,
    coder_says: ScriptedOpenAI,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    of_member: int,
    of_organisation: int,
    threads: int,
) -> None:
    """A chain of agents beside a turn of the same member that came earlier than its children."""
    settings.TOOLHUB_RUNNING_PER_MEMBER, settings.TOOLHUB_RUNNING_PER_ORGANISATION = of_member, of_organisation
    monkeypatch.setattr(worker, "held_turns", HeldTurns())
    running: list[int] = []

    def answer(request: Json) -> Say:
        with system_scope():
            running.append(Turn.objects.filter(status=TurnStatus.RUNNING).count())
        connection.close()
        last = request["messages"][-1]
        if last["role"] == "tool" or last["content"] == "Level 2":
            return Say("Done.")
        return Say(calls=[ask(message="Level 2")])

    parts = [ask(message="Level 1", id="one"), ask(message="Level 1", id="two")]
    provider.script = [Say(calls=parts), *[answer] * 2]
    coder_says.script = [answer] * 6
    turn, later = accept(session), accept(make_session(session.membership, session.agent), "Level 2")

    for _ in range(10):  # what a thread leaves for the next bell
        at_once([worker.take_turns] * threads)

    assert [reread(each).status for each in (turn, later)] == [TurnStatus.DONE] * 2
    assert len(children_of(turn)) == 2
    assert open_turns() == 0
    assert set(running) == {1}


def test_a_turn_asks_other_agents_so_many_times_and_no_more(
    session: ChatSession,
    coder: Agent,
    provider: ScriptedOpenAI,
    coder_says: ScriptedOpenAI,
    settings: Settings,
) -> None:
    settings.TOOLHUB_CHILDREN_PER_TURN = 1
    provider.enqueue(Say(calls=[ask()]), Say(calls=[ask(message="And again.")]), Say("Enough."))
    coder_says.enqueue(Say("Written."))

    turn = work(accept(session))
    work_all()

    refused = results_of(turn)[1]
    assert refused["success"] is False
    assert "used up its 1 calls of other agents" in refused["error"]
    assert (len(children_of(turn)), reread(turn).answer) == (1, "Enough.")


def two_more(request: Json) -> Say:
    """What an agent says that asks two others whenever it is asked, and answers once it has their answers."""
    last = request["messages"][-1]
    return Say("Done.") if last["role"] == "tool" else Say(calls=[ask(id="one"), ask(id="two")])


def test_one_message_has_one_budget_of_calls_of_other_agents_however_deep(
    session: ChatSession,
    coder: Agent,
    provider: ScriptedOpenAI,
    coder_says: ScriptedOpenAI,
    settings: Settings,
) -> None:
    settings.TOOLHUB_CHILDREN_PER_TURN = 5
    provider.enqueue(two_more, two_more)
    coder_says.enqueue(*[two_more] * 30)

    turn = work(accept(session))
    work_all()

    with system_scope():
        assert Turn.objects.exclude(parent_step=None).count() == 5
    assert (open_turns(), reread(turn).answer) == (0, "Done.")


def test_calls_side_by_side_do_not_pass_the_budget_together(
    session: ChatSession,
    coder: Agent,
    provider: ScriptedOpenAI,
    coder_says: ScriptedOpenAI,
    settings: Settings,
) -> None:
    settings.TOOLHUB_CHILDREN_PER_TURN = 3
    provider.enqueue(Say(calls=[ask(id=f"c{each}") for each in range(8)]), Say("Enough."))
    coder_says.enqueue(*[Say("Written.")] * 8)

    turn = work(accept(session))
    work_all()

    assert len(children_of(turn)) == 3
    assert sum("used up its 3 calls" in json.dumps(each) for each in results_of(turn)) == 5
    assert reread(turn).answer == "Enough."


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"agent": "nobody", "message": "x"}, "There is no such agent. There are: boss, coder."),
        ({"agent": "off", "message": "x"}, "There is no such agent. There are: boss, coder."),
        ({"agent": "globex-agent", "message": "x"}, "There is no such agent. There are: boss, coder."),
        ({"agent": "coder", "message": " \n"}, "Say what the agent shall do."),
        ({"agent": "coder"}, "message"),
    ],
)
def test_what_cannot_be_handed_over_is_told_to_the_model_and_leaves_no_rows(
    session: ChatSession,
    coder: Agent,
    globex: Organisation,
    provider: ScriptedOpenAI,
    arguments: Any,
    error: str,
) -> None:
    make_agent(session.organisation, slug="off", is_enabled=False)
    make_agent(globex, slug="globex-agent")
    provider.enqueue(Say(calls=[call("spawn_agent", arguments)]), Say("Then I do it."))

    turn = work(accept(session))

    (result,) = results_of(turn)
    assert (turn.status, turn.answer, result["success"]) == (TurnStatus.DONE, "Then I do it.", False)
    assert error in result["error"]
    with system_scope():
        assert ChatSession.objects.count() == 1


# -- Rights -----------------------------------------------------------------------------------------------------------


def sent_to(provider: ScriptedOpenAI) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in request.get("tools", ())] for request in provider.requests]


def test_a_child_is_never_sent_nor_can_call_what_its_parents_agent_does_not_reach(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    coder_says.enqueue(Say(calls=[call("task_create", {"title": "x"}), call("calculator", SUM)]), Say("I could not."))

    turn = work(accept(session))
    work_all()

    (child,) = children_of(turn)
    assert sent_to(coder_says) == [["spawn_agent", "calculator"]] * 2
    assert [(step.tool_name, step.status) for step in tool_steps_of(child)] == [
        ("task_create", StepStatus.REFUSED),
        ("calculator", StepStatus.DONE),
    ]
    assert reread(turn).status == TurnStatus.DONE


def test_the_same_agent_of_the_members_own_session_has_all_its_tools(
    session: ChatSession, coder: Agent, coder_says: ScriptedOpenAI
) -> None:
    work(accept(make_session(session.membership, coder)))

    assert sent_to(coder_says) == [["spawn_agent", "calculator", "task_create"]]


def test_a_grandchild_reaches_what_all_above_it_reach(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    tools = make_catalogue(session.organisation)
    third = ScriptedOpenAI().start()
    make_own(session.organisation, "third", third.url, tools["calculator"], tools["uuid"], tools["task_create"])
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    coder_says.enqueue(Say(calls=[ask("third")]), Say("Well."))

    work(accept(session))
    work_all()
    third.stop()

    assert sent_to(third) == [["calculator"]]  # the boss has no task_create, the coder no uuid


def test_an_agent_of_the_members_own_passes_on_no_credential_of_the_organisation(
    session: ChatSession, coder: Agent
) -> None:
    with organisation_scope(session.organisation):
        Agent.objects.filter(pk=session.agent_id).update(scope=AgentScope.MEMBER)
        Tool.objects.filter(name="uuid").update(service="github")
        hold_credential(session.organisation, "github")
        turn = accept(session)
        names = dict(Tool.objects.values_list("pk", "name"))
        turn = Turn.objects.select_related("session", "agent").get(pk=turn.pk)

        passed_on = {names[tool_id] for tool_id in delegation.tools_to_pass_on(turn)}

    assert passed_on == {"spawn_agent", "calculator"}


def test_a_role_that_is_revoked_meanwhile_counts_for_the_child_at_once(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    coder_says.enqueue(Say(calls=[call("calculator", SUM)]), Say("I may not."))
    turn = work(accept(session))
    with organisation_scope(session.organisation):
        RoleMembership.objects.all().delete()

    work_all()

    (child,) = children_of(turn)
    assert sent_to(coder_says)[0] == []
    assert [step.status for step in tool_steps_of(child)] == [StepStatus.REFUSED]


def test_zs_24_a_child_is_under_the_organisations_policy_and_that_of_its_own_provider(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    """What the policy of the asking agent's provider says is not handed down."""
    own: dict[str, Any] = {"organisation": session.organisation}
    with organisation_scope(session.organisation):
        Policy.objects.create(**own, deny=["uuid"])
        Policy.objects.create(**own, provider=session.agent.model.provider, allow=["spawn_agent"])
        Policy.objects.create(**own, provider=coder.model.provider, deny=["spawn_agent"])
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    coder_says.enqueue(Say("Done."))

    work(accept(session))
    work_all()

    assert sent_to(provider)[0] == ["spawn_agent"]
    assert sent_to(coder_says)[0] == ["calculator"]


def test_a_member_without_the_tool_hands_nothing_over(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    def revoke(request: Json) -> Say:
        with system_scope():
            RoleMembership.objects.all().delete()
        return Say(calls=[ask()])

    provider.script = [revoke, Say("I may not.")]

    turn = work(accept(session))

    (result,) = results_of(turn)
    assert result["denied_tool"] == "spawn_agent"
    assert children_of(turn) == []


# -- Ends that are no answer ------------------------------------------------------------------------------------------


def end_as(child: Turn, status: TurnStatus) -> None:
    """End the child in this way, as it comes about."""
    if status == TurnStatus.CANCELLED:
        cancel(child)
    elif status == TurnStatus.EXPIRED:
        change(child.pk, deadline_at=ledger.from_now(-1))
        reaping.reap()
    else:
        claim = ledger.claim(child.pk, "worker-9")
        assert claim is not None
        with organisation_scope(claim.organisation_id):
            ledger.finish(claim, status, error_code="x", error_message="The model is gone.")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (TurnStatus.FAILED, "coder did not answer: The model is gone."),
        (TurnStatus.CANCELLED, "coder did not answer: Stopped by Bob"),
        (TurnStatus.EXPIRED, "coder did not answer: The turn ran out of time."),
    ],
)
def test_the_parent_goes_on_with_the_failure_of_its_child(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, status: TurnStatus, why: str
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Then I do it."))
    turn = work(accept(session))
    (child,) = children_of(turn)

    end_as(child, status)
    work_all()

    (result,) = results_of(turn)
    (step,) = tool_steps_of(turn)
    assert reread(child).status == status
    assert (result["success"], result["error"].startswith(why)) == (False, True)
    assert (step.status, reread(turn).answer) == (StepStatus.FAILED, "Then I do it.")


def test_a_child_that_crashes_its_workers_again_and_again_wakes_its_parent(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Then I do it."))
    turn = work(accept(session))
    (child,) = children_of(turn)
    for _ in range(5):
        assert ledger.claim(child.pk, "worker-9") is not None
        expire_lease(child.pk)

    reaping.reap()
    work_all()

    assert reread(child).error_code == "crash_loop"
    assert reread(turn).answer == "Then I do it."


# -- Cancel -----------------------------------------------------------------------------------------------------------


def test_cancelling_a_waiting_turn_ends_it_and_all_below_it_at_once(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask(), ask(message="Two", id="c2")]))
    coder_says.enqueue(Say(calls=[ask(message="Three")]))
    turn = work(accept(session))
    first, second = children_of(turn)
    work(first)
    (grandchild,) = children_of(first)

    cancel(turn)

    found = [reread(each) for each in (turn, first, second, grandchild)]
    assert [each.status for each in found] == [TurnStatus.CANCELLED] * 4
    assert all(each.error_message == f"Stopped by {session.membership}." for each in found)
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.UNKNOWN] * 2
    assert events_of(turn)[-1] == "cancelled"


def test_a_child_that_runs_when_its_parent_is_cancelled_stops_before_its_next_effect(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]))
    turn = work(accept(session))
    (child,) = children_of(turn)

    def stop(request: Json) -> Say:
        cancel(turn)
        return Say(calls=[call("calculator", SUM)])

    coder_says.script = [stop]

    child = work(child)

    assert (reread(turn).status, child.status) == (TurnStatus.CANCELLED, TurnStatus.CANCELLED)
    assert [(step.status, step.result_sent) for step in tool_steps_of(child)] == [(StepStatus.REFUSED, NOT_RUN)]


def test_cancelling_a_running_parent_stops_its_children_and_it_waits_for_none(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[ask()]))
    turn = accept(session)
    before_parking(monkeypatch, lambda: cancel(turn))

    turn = work(turn)

    assert [each.status for each in (turn, *children_of(turn))] == [TurnStatus.CANCELLED] * 2


def test_a_cancel_and_the_ends_of_the_children_at_once_leave_nothing_open_and_nobody_blocked(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    for _ in range(5):
        provider.enqueue(Say(calls=[ask(message=f"Part {each}", id=f"c{each}") for each in range(3)]))
        turn = work(accept(make_session(session.membership, session.agent)))
        children = children_of(turn)
        claims = [ledger.claim(child.pk, "worker-9") for child in children]

        at_once([partial(cancel, turn), *(partial(finish_or_lose, claim) for claim in claims if claim), reaping.reap])

        assert reread(turn).status in (TurnStatus.CANCELLED, TurnStatus.QUEUED)
        cancel(turn)
        assert reread(turn).status == TurnStatus.CANCELLED
        assert all(reread(child).status == TurnStatus.DONE for child in children)


def finish_or_lose(claim: ledger.Claim) -> None:
    with organisation_scope(claim.organisation_id), suppress(ledger.LeaseLost):
        ledger.finish(claim, TurnStatus.DONE, answer="x")


def test_a_parent_that_was_resumed_and_is_cancelled_ends_at_once(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]))
    turn = work(accept(session))
    work(children_of(turn)[0])
    assert reread(turn).status == TurnStatus.QUEUED

    cancel(turn)

    assert reread(turn).status == TurnStatus.CANCELLED


@pytest.mark.parametrize("status", [TurnStatus.FAILED, TurnStatus.EXPIRED, TurnStatus.DONE])
def test_a_parent_that_ends_in_whatever_way_leaves_no_child_open(
    session: ChatSession,
    coder: Agent,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    status: TurnStatus,
) -> None:
    provider.enqueue(Say(calls=[ask()]))
    turn = accept(session)

    def end() -> None:
        row = reread(turn)
        with organisation_scope(row.organisation_id):
            ledger.finish(ledger.Claim(row.pk, row.organisation_id, row.epoch), status)

    before_parking(monkeypatch, end)

    turn = work(turn)

    assert turn.status == status
    assert [child.status for child in children_of(turn)] == [TurnStatus.CANCELLED]


# -- Crashes and races ------------------------------------------------------------------------------------------------


def before_parking(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let this happen, once, between the start of the children and the parking of their parent."""
    acts = [act]

    def parked(claim: ledger.Claim) -> bool:
        if acts:
            acts.pop()()
        return parking.park(claim)

    monkeypatch.setattr(waits, "park", parked)


def test_a_child_that_ends_before_its_parent_waits_is_not_waited_for(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = accept(session)
    before_parking(monkeypatch, lambda: worker.work_on(children_of(turn)[0].pk))

    turn = work(turn)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Well.")
    assert "waiting_child" not in events_of(turn)
    assert results_of(turn)[0]["success"] is True


class Crash(BaseException):
    """The process is gone."""


def crash_at(monkeypatch: pytest.MonkeyPatch, room: Any, name: str, turn: Turn) -> None:
    """Let a worker run the turn and die when it comes to this function."""

    def crash(*args: Any, **kwargs: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(room, name, crash)
        with pytest.raises(Crash):
            worker.work_on(turn.pk)
    expire_lease(turn.pk)


def test_a_crash_behind_the_intent_makes_no_second_child(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = accept(session)
    crash_at(monkeypatch, waits, "park", turn)

    turn = work(turn)

    assert turn.status == TurnStatus.WAITING_CHILD
    assert len(children_of(turn)) == 1
    work_all()
    assert reread(turn).answer == "Well."


def test_a_crash_between_the_intent_and_the_child_leaves_neither(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = accept(session)
    crash_at(monkeypatch, delegation, "_insert_child", turn)
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.PENDING]

    work_all()

    assert (reread(turn).answer, len(children_of(turn))) == ("Well.", 1)


def test_an_intent_without_a_child_is_gone_on_with(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that could not be handed over, cut off before its answer: nothing happened, so it is tried again."""
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    with system_scope():
        Agent.objects.filter(pk=coder.pk).update(is_enabled=False)
    turn = accept(session)
    crash_at(monkeypatch, ledger, "finish_step", turn)
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.STARTED]
    with system_scope():
        Agent.objects.filter(pk=coder.pk).update(is_enabled=True)

    work_all()

    assert results_of(turn)[0]["success"] is True
    assert len(tool_steps_of(turn)) == 1


def test_a_turn_that_crashes_while_its_child_works_waits_for_it_again(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = work(accept(session))
    change(turn.pk, status=TurnStatus.RUNNING, lease_until=ledger.from_now(-1), waiting_since=None)

    turn = work(turn)

    assert turn.status == TurnStatus.WAITING_CHILD
    work_all()
    assert reread(turn).answer == "Well."


def test_a_parent_that_was_missed_is_found_by_a_sweep(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = work(accept(session))
    (child,) = children_of(turn)
    change(child.pk, status=TurnStatus.DONE, answer="Behind the ledger's back.", ended_at=timezone.now())

    at_once([reaping.reap] * 3)

    assert reread(turn).status == TurnStatus.QUEUED
    assert events_of(turn).count("resumed") == 1
    work_all()
    assert results_of(turn)[0]["answer"] == "Behind the ledger's back."


def test_the_deadline_does_not_run_while_the_turn_waits(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."))
    turn = work(accept(session))
    past = timezone.now() - timedelta(hours=1)
    change(turn.pk, waiting_since=past, deadline_at=past + timedelta(minutes=5))

    reaping.reap()
    assert reread(turn).status == TurnStatus.WAITING_CHILD
    work(children_of(turn)[0])

    row = reread(turn)
    assert row.status == TurnStatus.QUEUED
    assert_close(row.deadline_at, timezone.now() + timedelta(minutes=5))
    work_all()
    assert reread(turn).answer == "Well."


def assert_close(moment: datetime, other: datetime) -> None:
    assert abs((moment - other).total_seconds()) < 10


def test_the_sessions_next_turn_waits_until_the_parent_has_ended(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]), Say("Well."), Say("Next."))
    turn, following = work(accept(session)), accept(session, "and then?")

    assert ledger.claim(following.pk, "worker-2") is None
    assert turn.pk not in worker.unrung()
    work_all()

    assert [reread(each).answer for each in (turn, following)] == ["Well.", "Next."]
    assert check_request(provider.bodies[-1])[-2:] == [
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "and then?"},
    ]


def test_nobody_writes_into_a_session_that_an_agent_opened(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask()]))
    (child,) = children_of(work(accept(session)))

    with pytest.raises(ledger.Conflict) as refused:
        accept(child.session)

    assert refused.value.code == "child_session"


def test_the_parent_is_rung_for_when_its_last_child_ends(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[UUID] = []
    monkeypatch.setattr("sessions.turns.bell.ring", rung.append)
    provider.enqueue(Say(calls=[ask()]))
    turn = work(accept(session))
    (child,) = children_of(turn)
    assert rung == [turn.pk, child.pk]

    work(child)

    assert rung == [turn.pk, child.pk, turn.pk]


def test_a_turn_of_several_rounds_asks_in_each(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ask(message="One")]), Say(calls=[ask(message="Two")]), Say("Both."))
    coder_says.enqueue(Say("1"), Say("2"))

    turn = work(accept(session))
    work_all()

    assert reread(turn).answer == "Both."
    assert [result["answer"] for result in results_of(turn)] == ["1", "2"]
    assert [step.round for step in steps_of(turn, StepKind.TOOL)] == [1, 2]
    with system_scope():
        assert not Step.objects.filter(status=StepStatus.STARTED).exists()
