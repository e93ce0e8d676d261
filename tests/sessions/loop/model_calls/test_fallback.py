"""A second model that takes over in the middle of a turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from capabilities.models import Agent, LanguageModel, Policy, Provider
from sessions.models import ChatSession, StepKind, TurnEvent, TurnStatus
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.run_turns import check_request, events_of, run, steps_of, tool_steps_of
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

SUM = {"expression": "6*7"}


def failing(status: int, message: str = "no", code: str | None = None, **headers: str) -> Raw:
    body = json.dumps({"error": {"message": message, "code": code, "type": code}}).encode()
    return Raw(body, status, {"Content-Type": "application/json", **headers})


OVERLOADED = [failing(529, "overloaded", **{"Retry-After": "0"})] * 9
NO_CREDIT = failing(429, "You exceeded your current quota.", "insufficient_quota")
GONE = failing(404, "The model `scripted` does not exist or you do not have access to it.", "model_not_found")


@pytest.fixture
def second() -> Iterator[ScriptedOpenAI]:
    """Another provider."""
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


@pytest.fixture
def fallback(session: ChatSession, second: ScriptedOpenAI) -> LanguageModel:
    """The agent's second model, at another provider."""
    with organisation_scope(session.organisation_id):
        own = {"organisation_id": session.organisation_id}
        provider = Provider.objects.create(slug="second", name="Second", base_url=second.url, **own)
        model: LanguageModel = LanguageModel.objects.create(provider=provider, name="spare", **own)
        Agent.objects.update(fallback_model=model)
    return model


def fallbacks_of(turn: Any) -> list[Json]:
    with organisation_scope(turn.organisation_id):
        events = TurnEvent.objects.filter(turn=turn, type="model_fallback").order_by("number")
        return list(events.values_list("payload", flat=True))


@pytest.mark.parametrize(
    ("replies", "code", "requests"),
    [
        (OVERLOADED, "provider_error", 4),
        ([failing(429, "slow down", **{"Retry-After": "300"})], "provider_rate_limit", 1),
        ([NO_CREDIT], "provider_credit", 1),
        ([failing(402, "Insufficient Balance")], "provider_credit", 1),
        ([failing(400, "Your credit balance is too low to access the API.")], "provider_credit", 1),
        ([GONE], "model_gone", 1),
        ([failing(400, "The model `x` has been decommissioned.", "model_decommissioned")], "model_gone", 1),
    ],
    ids=["overloaded", "at its limit", "no quota", "no balance", "no credit", "not found", "decommissioned"],
)
@pytest.mark.usefixtures("fallback")
def test_the_second_model_goes_on_where_the_first_cannot(
    session: ChatSession,
    provider: ScriptedOpenAI,
    second: ScriptedOpenAI,
    replies: list[Raw],
    code: str,
    requests: int,
) -> None:
    provider.enqueue(*replies)
    second.enqueue(Say("Here I am."))

    turn = run(session)

    assert (turn.status, turn.error_code, turn.answer) == (TurnStatus.DONE, "", "Here I am.")
    assert fallbacks_of(turn) == [{"from": "scripted", "to": "spare", "error_code": code}]
    assert len(provider.requests) <= requests
    assert second.requests[0]["model"] == "spare"
    (note,) = steps_of(turn, StepKind.NOTE)
    assert note.text.startswith("spare of Second goes on in place of ")
    (reply,) = steps_of(turn, StepKind.MODEL)
    assert reply.origin.endswith(" spare")


def refuse_connections(provider: ScriptedOpenAI, settings: Settings) -> None:
    provider.stop()


def be_silent(provider: ScriptedOpenAI, settings: Settings) -> None:
    settings.TOOLHUB_MODEL_SECONDS = 3  # which the second model has too
    provider.enqueue(Raw(delay=10))


def be_switched_off(provider: ScriptedOpenAI, settings: Settings) -> None:
    with system_scope():
        Provider.objects.exclude(slug="second").update(is_enabled=False)


@pytest.mark.parametrize(
    ("break_down", "code", "because"),
    [
        (refuse_connections, "provider_unreachable", "cannot be reached"),
        (be_silent, "provider_timeout", "did not answer in time"),
        (be_switched_off, "provider_disabled", "is switched off"),
    ],
)
@pytest.mark.usefixtures("fallback")
def test_the_second_model_goes_on_where_the_first_is_not_there(
    session: ChatSession,
    provider: ScriptedOpenAI,
    second: ScriptedOpenAI,
    settings: Settings,
    break_down: Callable[[ScriptedOpenAI, Settings], None],
    code: str,
    because: str,
) -> None:
    settings.TOOLHUB_MODEL_TRIES = 1
    second.enqueue(Say("Here I am."))
    break_down(provider, settings)

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Here I am.")
    assert [each["error_code"] for each in fallbacks_of(turn)] == [code]
    (note,) = steps_of(turn, StepKind.NOTE)
    assert note.text.endswith(f"Scripted {because}.")


def failed_event(code: str) -> Json:
    return {"type": "response.failed", "response": {"error": {"code": code, "message": "no"}}}


@pytest.mark.parametrize(
    ("said", "code", "is_again"),
    [
        ("rate_limit_exceeded", "provider_rate_limit", True),
        ("server_error", "provider_error", True),
        ("insufficient_quota", "provider_credit", False),
        ("model_not_found", "model_gone", False),
    ],
)
@pytest.mark.parametrize("shape", ["response.failed", "error event", "error object", "whole"])
@pytest.mark.usefixtures("fallback")
def test_an_error_in_the_answer_says_why_the_second_model_takes_over(
    session: ChatSession,
    provider: ScriptedOpenAI,
    second: ScriptedOpenAI,
    said: str,
    code: str,
    shape: str,
    is_again: bool,
) -> None:
    """As the same error with a status of its own would."""
    error = {"code": said, "message": "no"}
    raw = {
        "response.failed": Raw(sse(failed_event(said), done=False)),
        "error event": Raw(sse({"type": "error", **error}, done=False)),
        "error object": Raw(sse({"error": {"message": "no", "type": said, "code": None}}, done=False)),
        "whole": Raw(json.dumps({"error": error}).encode(), 200, {"Content-Type": "application/json"}),
    }[shape]
    provider.enqueue(*[raw] * 9)
    second.enqueue(Say("Here I am."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Here I am.")
    assert [each["error_code"] for each in fallbacks_of(turn)] == [code]
    assert (len(provider.requests) > 1) is is_again


@pytest.mark.usefixtures("fallback")
def test_it_takes_over_after_tools_ran_with_the_history_made_anew(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    """No tool runs twice, and what the first model sealed stays with it."""
    with organisation_scope(session.organisation_id):
        Provider.objects.filter(slug="second").update(dialect="chat")
        Provider.objects.exclude(slug="second").update(dialect="responses")
    calls = [call("calculator", SUM, id="a"), call("task_create", {"title": "Milk"}, id="b")]
    provider.enqueue(Say("One moment.", calls=calls, reasoning="sealed"), GONE)
    second.enqueue(Say(calls=[call("calculator", SUM, id="a")]), Say("Done."))

    turn = run(session)

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Done.", 3)
    assert [step.tool_name for step in tool_steps_of(turn)] == ["calculator", "task_create", "calculator"]
    assert b"sealed" not in second.bodies[0] + second.bodies[1]
    for body in second.bodies:
        check_request(body)
    messages = second.requests[0]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert len(fallbacks_of(turn)) == 1


@pytest.mark.usefixtures("fallback")
def test_earlier_turns_are_made_anew_too(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect="responses")
    provider.enqueue(Say("Forty-two", reasoning="sealed"), GONE)
    run(session)

    turn = run(session, "And now?")

    assert (turn.status, len(second.bodies)) == (TurnStatus.DONE, 1)
    assert b"sealed" in provider.bodies[-1]
    assert b"Forty-two" in second.bodies[0]
    assert b"sealed" not in second.bodies[0]


@pytest.mark.usefixtures("fallback")
def test_the_next_turn_begins_with_the_first_model_again(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    provider.enqueue(GONE, Say("Back again."))
    run(session)

    turn = run(session, "And now?")

    assert (turn.answer, fallbacks_of(turn)) == ("Back again.", [])
    assert len(second.requests) == 1


def test_a_smaller_model_gets_no_more_tools_than_it_takes(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI, fallback: LanguageModel
) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.filter(pk=fallback.pk).update(tool_limit=1)
    provider.enqueue(Say(calls=[call("calculator", SUM)]), GONE)

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert len(provider.requests[0]["tools"]) == 3
    assert len(second.requests[0]["tools"]) == 1


@pytest.mark.usefixtures("fallback")
def test_text_of_the_first_model_is_void(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    cut_off = Raw(sse(chunk({"content": "I was about to say"}), done=False))
    provider.enqueue(*[cut_off] * 9)
    second.enqueue(Say("Something else."))

    turn = run(session)

    assert (turn.answer, turn.draft) == ("Something else.", "")
    assert fallbacks_of(turn)[0]["error_code"] == "provider_reset"


@pytest.mark.usefixtures("fallback")
def test_both_may_fail(session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI) -> None:
    provider.enqueue(GONE)
    second.enqueue(NO_CREDIT)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_credit")
    assert events_of(turn).count("model_fallback") == 1


@pytest.mark.parametrize(
    "reply", [failing(401, "wrong key"), failing(400, "maximum context length"), failing(400, "I will not")]
)
@pytest.mark.usefixtures("fallback")
def test_what_any_model_would_refuse_is_not_asked_of_another(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI, reply: Raw
) -> None:
    provider.enqueue(reply)

    turn = run(session)

    assert turn.status == TurnStatus.FAILED
    assert second.requests == []


def test_without_a_second_model_the_turn_fails_as_before(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(GONE)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "model_gone")


def test_the_second_model_gets_what_the_policy_of_its_provider_lets_through(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI, fallback: LanguageModel
) -> None:
    with organisation_scope(session.organisation_id):
        Policy.objects.create(organisation_id=session.organisation_id, provider=fallback.provider, deny=["calc*"])
    provider.enqueue(Say(calls=[call("calculator", SUM)]), *OVERLOADED)
    second.enqueue(Say("Here I am."))

    turn = run(session)

    assert turn.answer == "Here I am."
    first, then = ([tool["function"]["name"] for tool in each.requests[0]["tools"]] for each in (provider, second))
    assert set(first) - set(then) == {"calculator"}
