"""A provider that finds the conversation too long, over real HTTP: it is sent once more, half as long."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from capabilities.models import Agent, Dialect, LanguageModel, Provider
from sessions.models import ChatSession, StepKind, Turn, TurnEvent, TurnStatus
from tests import vendors
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import check_request, events_of, run, steps_of
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

OPENAI = vendors.refusal("Your input exceeds the context window of this model.", code="context_length_exceeded")
ANTHROPIC = vendors.refusal("prompt is too long: 215000 tokens > 200000 maximum")
GEMINI = vendors.refusal("The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).")
XAI = vendors.refusal("This model's maximum prompt length is 131072 but the request contains 140000 tokens.")
VLLM = vendors.refusal("This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.")
LARGE = vendors.refusal("Request exceeds the maximum size", status=413)
#: Characters of a request that the providers here take.
MOST = 7_000
LONG = "word " * 800


def refusing(refusal: Raw, *, most: int = MOST) -> vendors.Check:
    """A provider whose window is smaller than what is set for the model."""

    def check(path: str, request: Json) -> Raw | None:
        talk = json.dumps(request.get("messages") or request.get("input"))
        return refusal if len(talk) > most else None

    return check


def speak_as(provider: ScriptedOpenAI, check: vendors.Check, *replies: Any) -> None:
    provider.script = [vendors.answering(check, lambda: provider.paths[-1], *replies)] * 40


def use_dialect(session: ChatSession, dialect: str) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect=dialect)


def compactions_of(turn: Turn) -> list[Json]:
    with organisation_scope(turn.organisation_id):
        events = TurnEvent.objects.filter(turn=turn, type="context_compacted").order_by("number")
        return list(events.values_list("payload", flat=True))


def size(body: bytes) -> int:
    request = json.loads(body)
    return len(json.dumps(request.get("messages") or request.get("input")))


@pytest.fixture
def second_model(session: ChatSession) -> Any:
    servers = []

    def made() -> ScriptedOpenAI:
        server = ScriptedOpenAI().start()
        servers.append(server)
        with organisation_scope(session.organisation_id):
            own = {"organisation_id": session.organisation_id}
            other = Provider.objects.create(slug="second", name="Second", base_url=server.url, **own)
            Agent.objects.update(fallback_model=LanguageModel.objects.create(provider=other, name="spare", **own))
        return server

    yield made
    for server in servers:
        server.stop()


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "refusal",
    [OPENAI, ANTHROPIC, GEMINI, XAI, VLLM, LARGE],
    ids=["OpenAI", "Anthropic", "Gemini", "xAI", "vLLM", "too large"],
)
def test_older_turns_are_left_out_and_the_turn_goes_on(
    refusal: Raw, dialect: str, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    use_dialect(session, dialect)
    run(session, LONG)
    run(session, LONG)
    speak_as(provider, refusing(refusal))
    asked = len(provider.bodies)

    turn = run(session, "and now?")

    assert (turn.status, turn.answer, turn.error_code) == (TurnStatus.DONE, "OK.", "")
    first, second = provider.bodies[asked:]
    assert size(second) < size(first) / 2
    assert "and now?" in second.decode()
    (told,) = compactions_of(turn)
    assert told["most"] == told["tokens"] // 2 > 500
    assert events_of(turn) == ["accepted", "started", "context_compacted", "note", "history_cut", "model", "done"]
    (note,) = steps_of(turn, StepKind.NOTE)
    assert note.text.startswith(f"The conversation of about {told['tokens']:,} tokens was too long for scripted.")


@pytest.mark.parametrize("dialect", Dialect)
def test_in_the_middle_of_a_turn_its_results_are_cut(
    dialect: str, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    use_dialect(session, dialect)
    texts = [f"{number} " + LONG for number in range(4)]
    calls = [Say(text, calls=[call("uuid", id=f"c{number}")]) for number, text in enumerate(texts)]
    speak_as(provider, refusing(OPENAI), *calls, Say("There."))

    turn = run(session, "an id please")

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "There.", 5)
    assert len(compactions_of(turn)) == 1
    assert len(provider.bodies) == 6
    if dialect == "chat":
        check_request(provider.bodies[-1])


def test_the_next_turn_begins_where_the_cut_one_did(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak_as(provider, refusing(OPENAI))
    run(session, LONG)
    run(session, LONG)
    run(session, "cut here")

    turn = run(session, "and now?")

    assert (turn.status, compactions_of(turn)) == (TurnStatus.DONE, [])


@pytest.mark.parametrize("dialect", Dialect)
def test_a_second_refusal_ends_the_turn_with_the_providers_words(
    dialect: str, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    use_dialect(session, dialect)
    run(session, LONG)
    speak_as(provider, refusing(OPENAI, most=10))
    asked = len(provider.bodies)

    turn = run(session, "and now?")

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "context_length")
    assert "exceeds the context window" in turn.error_message
    assert len(provider.bodies) == asked + 2
    assert len(compactions_of(turn)) == 1


def test_what_cannot_be_made_shorter_is_not_sent_again(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak_as(provider, refusing(OPENAI, most=10))

    turn = run(session, LONG)

    assert (turn.status, turn.error_code, len(provider.bodies)) == (TurnStatus.FAILED, "context_length", 1)
    assert "exceeds the context window" in turn.error_message


def test_another_refusal_is_not_answered_so(session: ChatSession, provider: ScriptedOpenAI) -> None:
    run(session, LONG)
    speak_as(provider, refusing(vendors.refusal("I will not."), most=10))

    turn = run(session, "and now?")

    assert (turn.status, turn.error_code, compactions_of(turn)) == (TurnStatus.FAILED, "provider_rejected", [])


def test_a_turn_that_compacts_may_still_fall_back(
    session: ChatSession, provider: ScriptedOpenAI, second_model: Callable[[], ScriptedOpenAI]
) -> None:
    run(session, LONG)
    overloaded = vendors.refusal("no credit", status=402)
    replies = iter([OPENAI, overloaded])
    provider.script = [lambda request: next(replies)] * 2
    second = second_model()

    turn = run(session, "and now?")

    assert (turn.status, len(second.requests), len(compactions_of(turn))) == (TurnStatus.DONE, 1, 1)


def test_whoever_reads_the_chat_sees_it(session: ChatSession, provider: ScriptedOpenAI, client: Client) -> None:
    run(session, LONG)
    run(session, LONG)
    speak_as(provider, refusing(OPENAI))
    run(session, "and now?")
    client.force_login(session.membership.user)

    page = client.get(reverse("session_detail", args=[session.organisation.slug, session.pk])).content.decode()

    assert "was too long for scripted. It is sent" in page
