"""Whole turns, run in this process by the code that a worker runs, against a scripted provider."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from capabilities.assistant.models import Task
from capabilities.catalogue.tools.writes import Definition, set_tool_enabled, update_tool
from capabilities.contract.context import ToolContext
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Agent, LanguageModel, Provider, Tool
from capabilities.running.registry import registry
from capabilities.running.registry import tool as register
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus, VerdictSet
from sessions.turns import ledger
from sessions.turns.endings import NOT_RUN
from sessions.worker.process import work_on
from tests.cast import make_member, make_tool
from tests.scripted_openai import Reply, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import accept, check_request, events_of, run, steps_of, tool_steps_of, verdicts_of, work
from tests.sessions.steps import expire_lease
from toolhub.tenants.models import Access
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

SUM = {"expression": "1+1"}


def test_a_turn_calls_a_tool_that_changes_the_database_and_answers(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."))

    turn = run(session, "Add a task: buy milk")

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Added.", 2)
    assert tasks_of(session) == ["buy milk"]
    assert [(step.kind, step.status, step.tool_name) for step in steps_of(turn)] == [
        ("model", StepStatus.DONE, ""),
        ("tool", StepStatus.DONE, "task_create"),
        ("model", StepStatus.DONE, ""),
    ]
    assert events_of(turn) == ["accepted", "started", "model", "tool_started", "tool_done", "model", "done"]
    first, second = provider.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["task_create", "calculator", "uuid"]
    assert first["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add a task: buy milk"},
    ]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert json.loads(second["messages"][3]["content"])["task"]["title"] == "buy milk"


def test_tokens_are_added_up_and_the_selection_is_stored_with_the_round(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("uuid")]), Say("Well."))

    turn = run(session)

    assert turn.usage == {
        "rounds": 2,
        "input_tokens": 200,
        "cached_tokens": 120,
        "cache_write_tokens": 0,
        "output_tokens": 20,
        "reasoning_tokens": 0,
        "estimated": False,
        "cost": "0.00",
        "unpriced": turn.has_unpriced_rounds,
    }
    with organisation_scope(session.organisation_id):
        first, second = (
            Step.objects.filter(turn=turn, kind=StepKind.MODEL)
            .select_related("tool_set", "verdict_set")
            .order_by("index")
        )
    assert first.tool_set is not None
    assert first.tool_set == second.tool_set
    assert first.tool_set.wire.encode() in provider.bodies[0]
    assert provider.requests[0]["tools"] == provider.requests[1]["tools"]
    assert [verdict["tool"] for verdict in verdicts_of(first) if verdict["stage"] == "gather"] == [
        "task_create",
        "calculator",
        "uuid",
    ]
    assert verdicts_of(second) == []


def test_verdicts_that_are_stored_already_are_not_stored_again(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(*(Say("Well.") for _ in range(4)))
    turns = [run(session), run(session)]
    with organisation_scope(session.organisation_id):
        tool = Tool.objects.get(name="uuid")
        update_tool(tool, Definition("uuid", "Another text.", {"type": "object", "properties": {}}), actor=None)
    turns += [run(session)]
    with organisation_scope(session.organisation_id):
        set_tool_enabled(tool, False, actor=make_member(session.organisation, "dora", Access.ADMIN))
    turns += [run(session)]

    with organisation_scope(session.organisation_id):
        steps = Step.objects.filter(turn__in=turns).select_related("verdict_set").order_by("pk")
        said = [[each["tool"] for each in verdicts_of(step) if not each["kept"]] for step in steps]
        assert said == [[], [], [], ["uuid"]]
        assert len({step.verdict_set_id for step in steps}) == VerdictSet.objects.count() == 2


def test_the_next_turn_knows_the_last_one(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("uuid")]), Say("Here."), Say("Yes."))
    run(session, "An id, please")

    run(session, "Thank you")

    messages = check_request(provider.bodies[-1])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert messages[-2:] == [{"role": "assistant", "content": "Here."}, {"role": "user", "content": "Thank you"}]


def test_a_large_result_is_kept_whole_and_sent_within_the_cap(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=10_000)
    with built_in(session, "rg", lambda context: "x" * 200_000):
        provider.enqueue(Say(calls=[call("rg")]), Say("Much."))
        (step,) = tool_steps_of(run(session))

    assert len(step.result) == 200_000
    assert len(step.result_sent) == 8_800
    assert step.result_sent.endswith(" in all, the first 8,744 shown]")
    assert provider.requests[1]["messages"][-1]["content"] == step.result_sent


def test_a_turn_goes_by_the_model_that_was_resolved_and_by_nothing_else(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows say something else in every field: who reads them again would be seen here."""

    def resolved(model: LanguageModel, agent: Agent) -> ResolvedModel:
        own = resolve_model(model, agent)
        here = replace(own.provider, base_url=provider.url)
        return replace(
            own, provider=here, name="another", tool_limit=3, max_rounds=2, context_window=2_000, max_output_tokens=50
        )

    monkeypatch.setattr("sessions.loop.run.turn.resolve_model", resolved)
    with organisation_scope(session.organisation_id):
        Provider.objects.update(base_url="http://127.0.0.1:9/v1")

    with built_in(session, "rg", lambda context: "x" * 200_000):
        provider.enqueue(*[Say(calls=[call("rg")])] * 3)

        turn = run(session)

    assert turn.error_code == "max_rounds"
    assert [request["model"] for request in provider.requests] == ["another"] * 2
    assert [len(request["tools"]) for request in provider.requests] == [3, 3]
    assert [request["max_tokens"] for request in provider.requests] == [50, 50]
    assert len(tool_steps_of(turn)[0].result_sent) == 1_760  # 0.22 of 2,000 tokens


# -- Limits -----------------------------------------------------------------------------------------------------------


def different_calls(number: int) -> list[Reply]:
    return [Say(calls=[call("calculator", {"expression": f"{each}+1"})]) for each in range(number)]


def test_cx_31_cx_34_after_five_rounds_a_turn_ends_with_a_message(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(*different_calls(9))

    turn = run(session)

    assert (turn.status, turn.error_code, turn.rounds) == (TurnStatus.DONE, "max_rounds", 5)
    assert "stopped after 5 rounds" in turn.answer
    assert "write again to go on" in turn.answer
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE] * 4 + [StepStatus.REFUSED]
    provider.script = [Say("Here you are.")]
    assert run(session, "go on").answer == "Here you are."
    assert check_request(provider.bodies[-1])[-2] == {"role": "assistant", "content": turn.answer}


def test_a_turn_of_an_agent_that_was_switched_off_meanwhile_asks_no_model(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = accept(session)
    with organisation_scope(session.organisation_id):
        Agent.objects.update(is_enabled=False)

    turn = work(turn)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "agent_disabled")
    assert provider.requests == []


def test_zk_44_an_agent_may_have_ten_rounds(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.update(max_rounds=10)
    provider.enqueue(*(Say(calls=[call("uuid", {"count": number}, id=f"c{number}")]) for number in range(1, 11)))

    turn = run(session)

    assert (turn.status, turn.error_code, turn.rounds) == (TurnStatus.DONE, "max_rounds", 10)


@pytest.mark.parametrize(
    ("model", "agent", "setting", "rounds"), [(2, 3, 4, 2), (None, 3, 4, 3), (None, None, 4, 4), (3, 2, 4, 3)]
)
def test_cx_32_cx_33_the_models_own_number_of_rounds_beats_the_agents_and_the_setting(
    session: ChatSession,
    provider: ScriptedOpenAI,
    settings: Settings,
    model: int | None,
    agent: int | None,
    setting: int,
    rounds: int,
) -> None:
    settings.TOOLHUB_MAX_ROUNDS = setting
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(max_rounds=model)
        Agent.objects.update(max_rounds=agent)
    provider.enqueue(*different_calls(9))

    assert run(session).rounds == rounds


def test_a_model_that_repeats_itself_is_stopped(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(*[Say(calls=[call("calculator", SUM)])] * 9)

    turn = run(session)

    assert (turn.status, turn.error_code, turn.rounds) == (TurnStatus.FAILED, "repeated_calls", 3)
    assert "the same calls 3 times" in turn.error_message


def test_a_model_that_cannot_write_a_call_has_two_chances_to_mend_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("a"), call("b"), call("c")]), Say(calls=[call("uuid", "{")]), Say("Well."))
    mended = run(session)
    provider.enqueue(*[Say(calls=[call("uuid", "{" * number)]) for number in range(1, 9)])
    lost = run(session)

    assert (mended.status, mended.answer) == (TurnStatus.DONE, "Well.")
    assert (lost.status, lost.error_code, lost.rounds) == (TurnStatus.FAILED, "malformed_calls", 3)


# -- Side by side -----------------------------------------------------------------------------------------------------


class built_in:
    """A tool of this name and work, in the code and in the session's catalogue, while the block runs."""

    def __init__(self, session: ChatSession, name: str, work: Callable[[ToolContext], Any], **fields: Any) -> None:
        def function(context: ToolContext) -> Any:
            """Does what the test wants."""
            return work(context)

        function.__qualname__ = name
        self.name = name
        options: dict[str, Any] = {"category": "utility", "effect": "read", "human_format": name} | fields
        register(name=name, **options)(function)
        make_tool(session.organisation, name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *args: object) -> None:
        del registry.tools[self.name]


def test_calls_of_one_reply_run_side_by_side_and_are_answered_in_order(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    together = threading.Barrier(3)
    with built_in(session, "meet", lambda context: together.wait(10) >= 0):
        provider.enqueue(Say(calls=[call("meet", id=each) for each in "abc"]), Say("Met."))
        turn = run(session)

    assert [(step.tool_call_id, step.status, step.result) for step in tool_steps_of(turn)] == [
        (each, StepStatus.DONE, "true") for each in "abc"
    ]
    assert [message.get("tool_call_id") for message in provider.requests[1]["messages"][3:]] == ["a", "b", "c"]


def test_no_more_calls_run_at_once_than_the_setting_says(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings
) -> None:
    settings.TOOLHUB_PARALLEL_CALLS = 2
    lock, running, most = threading.Lock(), [0], [0]

    def count(context: ToolContext) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.05)
        with lock:
            running[0] -= 1

    with built_in(session, "count", count):
        provider.enqueue(Say(calls=[call("count", id=f"c{each}") for each in range(6)]), Say("Counted."))
        run(session)

    assert most == [2]


# -- After a crash ----------------------------------------------------------------------------------------------------


def crashed(turn: Turn, *, after: int, started: Sequence[int] = (), pending: Sequence[int] = ()) -> Turn:
    """The turn as a dead worker leaves it behind its first `after` steps; those in `started` have no outcome yet, those
    in `pending` have not begun."""
    with organisation_scope(turn.organisation_id):
        Step.objects.filter(turn=turn, index__gt=after).delete()
        for status, indexes in ((StepStatus.STARTED, started), (StepStatus.PENDING, pending)):
            Step.objects.filter(turn=turn, index__in=indexes).update(
                status=status, result="", result_sent="", ended_at=None
            )
        Turn.objects.filter(pk=turn.pk).update(
            status=TurnStatus.RUNNING,
            answer="",
            error_code="",
            ended_at=None,
            owner="dead",
            lease_until=timezone.now() - timedelta(seconds=1),
            last_step=after,
            rounds=Step.objects.filter(turn=turn, kind=StepKind.MODEL).count(),
            epoch=F("epoch") + 1,
        )
    return turn


def tasks_of(session: ChatSession) -> list[str]:
    with organisation_scope(session.organisation_id):
        return list(Task.objects.filter(membership=session.membership).order_by("pk").values_list("title", flat=True))


@pytest.fixture
def added(session: ChatSession, provider: ScriptedOpenAI) -> Turn:
    """A turn that made a task and did a sum, of four steps; the provider is forgotten and says "Well." next."""
    calls = [call("task_create", {"title": "milk"}, id="a"), call("calculator", SUM, id="b")]
    provider.enqueue(Say(calls=calls), Say("Done."))
    turn = run(session)
    provider.requests.clear()
    provider.enqueue(Say("Well."))
    return turn


class Killed(BaseException):
    """The worker is gone at once: nothing of ours catches it."""


@pytest.mark.parametrize(
    ("has_begun", "left", "then", "tasks"),
    [(False, StepStatus.PENDING, StepStatus.DONE, ["milk"]), (True, StepStatus.STARTED, StepStatus.UNKNOWN, [])],
)
def test_a_call_that_had_not_begun_is_no_crash_and_is_simply_run(
    session: ChatSession,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    has_begun: bool,
    left: StepStatus,
    then: StepStatus,
    tasks: list[str],
) -> None:
    """Killed on either side of the one write between the two states; the tool may never be repeated."""
    provider.enqueue(Say(calls=[call("task_create", {"title": "milk"})]), Say("Done."))
    turn, real = accept(session), ledger.start_step

    def start_step(*args: Any, **fields: Any) -> None:
        if has_begun:
            real(*args, **fields)
        raise Killed

    monkeypatch.setattr(ledger, "start_step", start_step)
    with pytest.raises(Killed):
        work_on(turn.pk)
    monkeypatch.undo()
    assert [(step.status, step.tool_name) for step in tool_steps_of(turn)] == [(left, "task_create")]
    expire_lease(turn.pk)

    turn = work(turn)

    assert (turn.status, turn.answer, [step.status for step in tool_steps_of(turn)]) == ("done", "Done.", [then])
    assert tasks_of(session) == tasks
    assert len(provider.requests) == 2


def test_a_reply_is_stored_with_its_calls_as_pending_and_none_stays_so(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[call("calculator", SUM, id=f"c{each}") for each in range(40)]), Say("Done."))
    seen: list[Step] = []
    real = ledger.record_model_step

    def record(*args: Any, **fields: Any) -> Any:
        recorded = real(*args, **fields)
        seen.extend(Step.objects.filter(kind=StepKind.TOOL).order_by("index"))
        return recorded

    monkeypatch.setattr(ledger, "record_model_step", record)

    turn = run(session)

    assert [(step.index, step.status, step.tool_call_id, step.arguments) for step in seen] == [
        (number + 2, StepStatus.PENDING, f"c{number}", json.dumps(SUM)) for number in range(40)
    ]
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE] * 32 + [StepStatus.REFUSED] * 8
    assert turn.last_step == 42


def test_a_call_that_may_not_be_repeated_has_an_unknown_outcome_after_a_crash(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = work(crashed(added, after=3, started=[2], pending=[3]))

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Well.")
    assert [(step.status, step.result_sent == OUTCOME_UNKNOWN) for step in tool_steps_of(turn)] == [
        (StepStatus.UNKNOWN, True),
        (StepStatus.DONE, False),
    ]
    assert provider.requests[0]["messages"][3]["content"] == OUTCOME_UNKNOWN
    assert tasks_of(session) == ["milk"]


def test_a_call_that_only_reads_is_run_again_after_a_crash(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = work(crashed(added, after=3, started=[3]))

    assert (turn.status, turn.answer, len(provider.requests)) == (TurnStatus.DONE, "Well.", 1)
    assert [(step.index, step.status) for step in steps_of(turn)] == [
        (index, StepStatus.DONE) for index in (1, 2, 3, 4)
    ]
    assert json.loads(tool_steps_of(turn)[1].result)["result"] == 2
    assert tasks_of(session) == ["milk"]


def test_a_stored_reply_is_acted_on_without_asking_the_model_again(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = work(crashed(added, after=3, pending=[2, 3]))

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Well.", 2)
    assert [message["role"] for message in provider.requests[0]["messages"]][-2:] == ["tool", "tool"]
    assert len(provider.requests) == 1
    assert tasks_of(session) == ["milk", "milk"]  # the first one is the test's, from before the rows were taken back


def test_a_reply_that_an_earlier_release_stored_without_its_calls_is_acted_on(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = work(crashed(added, after=1))

    assert (turn.status, turn.answer, len(provider.requests)) == (TurnStatus.DONE, "Well.", 1)
    assert [(step.index, step.status) for step in tool_steps_of(turn)] == [(2, StepStatus.DONE), (3, StepStatus.DONE)]


def test_a_stored_answer_is_the_answer_without_asking_the_model_again(added: Turn, provider: ScriptedOpenAI) -> None:
    turn = work(crashed(added, after=4))

    assert (turn.status, turn.answer, provider.requests) == (TurnStatus.DONE, "Done.", [])
    assert "attempt_restarted" in events_of(turn)


def test_a_turn_that_crashed_before_anything_begins_anew(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = work(crashed(added, after=0))

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Well.", 1)


def test_past_the_deadline_no_call_begins(added: Turn, session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        Turn.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))

    turn = work(crashed(added, after=3, pending=[2, 3]))

    assert (turn.status, turn.error_code, provider.requests) == (TurnStatus.EXPIRED, "deadline", [])
    assert [(step.status, step.result_sent) for step in tool_steps_of(turn)] == [(StepStatus.REFUSED, NOT_RUN)] * 2
    assert tasks_of(session) == ["milk"]


def test_a_turn_goes_on_with_the_tools_that_it_began_with(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    make_tool(session.organisation, "late")

    work(crashed(added, after=3))

    assert [tool["function"]["name"] for tool in provider.requests[0]["tools"]] == ["task_create", "calculator", "uuid"]


def test_a_tool_that_changed_since_its_call_is_not_repeated(
    added: Turn, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        tool = Tool.objects.select_related("current_version").get(name="calculator")
        update_tool(tool, Definition("calculator", "Another one.", {"type": "object"}), actor=None)

    turn = work(crashed(added, after=3, started=[3]))

    assert tool_steps_of(turn)[1].status == StepStatus.UNKNOWN


def test_a_repeated_call_carries_the_key_of_the_first_try(session: ChatSession, provider: ScriptedOpenAI) -> None:
    keys: list[str] = []

    with built_in(
        session,
        "pay",
        lambda context: keys.append(context.idempotency_key),
        effect="external",
        on_crash="retry_with_key",
    ):
        provider.enqueue(Say(calls=[call("pay")]), Say("Paid."))
        turn = run(session)
        work(crashed(turn, after=2, started=[2]))

    assert len(keys) == 2
    assert keys[0] == keys[1] != ""
