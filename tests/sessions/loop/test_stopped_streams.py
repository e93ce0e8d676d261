"""A reply that is stopped in the middle, in either dialect: what came is kept and counted, and the session goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from pytest_django import Settings

from capabilities.common.tokens import count_tokens
from capabilities.models import Dialect, Provider
from sessions.models import ChatSession, Step, StepKind, Turn, TurnStatus
from sessions.turns import ledger
from sessions.worker.process import watch_held, work_on
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.run_turns import accept, check_request, run, steps_of
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

THOUGHTS = "I have to reckon with the weather of the whole week. " * 20
WORDS = "Well, "
ARGUMENTS = '{"expression": "1+'


def begun(dialect: Dialect, usage: Json | None) -> Raw:
    """Thoughts, words, the beginning of a call, maybe what all of that took; and then nothing more comes."""
    if dialect is Dialect.CHAT:
        function = {"name": "calculator", "arguments": ARGUMENTS}
        deltas: list[Json] = [
            {"reasoning_content": THOUGHTS},
            {"content": WORDS},
            {"tool_calls": [{"index": 0, "function": function}]},
        ]
        events = [chunk(delta) for delta in deltas]
        if usage:
            events[0] = {**events[0], "usage": usage}
        return Raw(sse(*events, done=False), linger=20)
    whole = Say(WORDS, calls=[call("calculator", ARGUMENTS)], reasoning="sealed").events()
    thought = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": THOUGHTS}
    whole.insert(2, thought)
    if usage:
        told = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
        whole[0]["response"]["usage"] = told
    cut = next(place for place, event in enumerate(whole) if event["type"].endswith("arguments.done"))
    return Raw(sse(*whole[:cut], done=False), linger=20)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def draft_of(turn: Turn) -> str:
    with organisation_scope(turn.organisation_id):
        return Turn.objects.get(pk=turn.pk).draft


def stopped(session: ChatSession, provider: ScriptedOpenAI, reply: Raw) -> tuple[Turn, Step]:
    """The turn that was cancelled when its first words had come, and its model step."""
    provider.script = [reply]
    turn = accept(session)
    worker = threading.Thread(target=work_on, args=(turn.pk,))
    worker.start()
    wait_until(lambda: draft_of(turn) == WORDS)
    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    watch_held()
    worker.join(20)
    with organisation_scope(turn.organisation_id):
        turn.refresh_from_db()
    (step,) = steps_of(turn, StepKind.MODEL)
    return turn, step


def speak(session: ChatSession, dialect: Dialect) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect=dialect)


@pytest.mark.parametrize("dialect", Dialect)
def test_what_came_before_a_cancel_is_counted_by_us(
    session: ChatSession, provider: ScriptedOpenAI, dialect: Dialect
) -> None:
    speak(session, dialect)

    turn, step = stopped(session, provider, begun(dialect, None))

    assert (turn.status, turn.answer) == (TurnStatus.CANCELLED, WORDS)
    assert (step.text, step.tool_calls, step.finish_reason, step.extras) == (WORDS, [], "stopped", "")
    assert step.usage_estimated
    assert step.input_tokens > 10
    assert abs(step.output_tokens - count_tokens(THOUGHTS + WORDS + "calculator" + ARGUMENTS)) <= 5


@pytest.mark.parametrize("dialect", Dialect)
def test_what_the_provider_counted_before_a_cancel_is_its_count(
    session: ChatSession, provider: ScriptedOpenAI, dialect: Dialect
) -> None:
    speak(session, dialect)
    usage = {"prompt_tokens": 70, "completion_tokens": 7}

    _, step = stopped(session, provider, begun(dialect, usage))

    assert (step.input_tokens, step.output_tokens, step.usage_estimated) == (70, 7, False)


@pytest.mark.parametrize("dialect", Dialect)
def test_what_came_before_the_deadline_is_counted_by_us(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings, dialect: Dialect
) -> None:
    speak(session, dialect)
    settings.TOOLHUB_TURN_SECONDS = 2
    provider.script = [begun(dialect, None)]

    turn = run(session)

    (step,) = steps_of(turn, StepKind.MODEL)
    assert (turn.status, turn.answer, turn.error_code) == (TurnStatus.EXPIRED, WORDS, "deadline")
    assert step.usage_estimated
    assert step.output_tokens >= count_tokens(THOUGHTS)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_session_goes_on_behind_a_reply_that_was_stopped(
    session: ChatSession, provider: ScriptedOpenAI, dialect: Dialect
) -> None:
    speak(session, dialect)
    stopped(session, provider, begun(dialect, None))
    provider.script = [Say("Fine.")]

    turn = run(session, "And now?")

    assert turn.answer == "Fine."
    assert [message["role"] for message in check_request(provider.bodies[-1])] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
