"""The same turn at servers that refuse as vendors do: nobody had to know what each of them wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from capabilities.language_models.providers.lessons import lessons_of
from capabilities.models import Agent, Dialect, LanguageModel, Provider
from sessions.loop.clients.attempts import MAX_LESSONS_A_CALL
from sessions.models import ChatSession, StepKind, TurnEvent, TurnStatus
from tests import vendors
from tests.rest import Rest
from tests.scripted_openai import Json, Raw, Reply, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.run_turns import events_of, run, steps_of, tool_steps_of
from toolhub.tenants.models import AuditEntry
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

SUM, PRODUCT = {"expression": "20+1"}, {"expression": "6*7"}
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}


def parallel(round: int) -> list[Json]:
    return [call("calculator", SUM, id=f"c{round}a"), call("calculator", PRODUCT, id=f"c{round}b")]


def thinking(*calls: Json) -> Raw:
    """DeepSeek's reply: thoughts beside the calls, in pieces."""
    pieces = [chunk({"reasoning_content": piece}) for piece in ("I have to ", "reckon.")]
    return Raw(sse(*pieces, *Say(calls=calls).chunks()))


def signed(*calls: Json) -> Say:
    """Gemini's reply: the first of parallel calls carries the signature."""
    first, *rest = calls
    return Say(calls=[{**first, "extra_content": SIGNED}, *rest])


def all_at_zero(*calls: Json) -> Raw:
    """A server that gives each call the index 0."""
    whole = [chunk({"tool_calls": [{"index": 0, **each}]}) for each in calls]
    return Raw(sse(*whole, chunk({}, "tool_calls")))


@dataclass(frozen=True)
class Case:
    """A vendor, what it answers in three rounds, and what is known of it afterwards."""

    check: vendors.Check
    replies: Sequence[Reply]
    learned: Sequence[str] = ()


ROUNDS: list[Reply] = [Say(calls=parallel(1)), Say(calls=parallel(2)), Say("42")]
CASES = {
    "OpenAI gpt-5.6": Case(
        vendors.openai_with_reasoning,
        [Say(calls=parallel(1), reasoning="sealed-1"), Say(calls=parallel(2), reasoning="sealed-2"), Say("42")],
        ["rename:max_tokens", "dialect:dialect"],
    ),
    "Gemini 3": Case(vendors.gemini, [signed(*parallel(1)), signed(*parallel(2)), Say("42")]),
    "DeepSeek": Case(vendors.deepseek, [thinking(*parallel(1)), thinking(*parallel(2)), Say("42")]),
    "no max_tokens": Case(vendors.without_max_tokens, ROUNDS, ["rename:max_tokens"]),
    "no stream_options": Case(vendors.without_stream_options, ROUNDS, ["omit:stream_options"]),
    "short replies": Case(vendors.with_a_small_limit, ROUNDS, ["at_most:max_tokens"]),
    "every index 0": Case(vendors.takes_all, [all_at_zero(*parallel(1)), all_at_zero(*parallel(2)), Say("42")]),
}


def speak_as(provider: ScriptedOpenAI, check: vendors.Check, *replies: Reply) -> None:
    script = vendors.answering(check, lambda: provider.paths[-1], *replies)
    provider.script = [script] * 40


def learned_of(session: ChatSession) -> list[str]:
    with organisation_scope(session.organisation_id):
        return [lesson.key for lesson in lessons_of(LanguageModel.objects.get().learned)]


@pytest.mark.parametrize("name", CASES)
def test_three_rounds_with_parallel_calls_end_well_at_each_vendor(
    session: ChatSession, provider: ScriptedOpenAI, name: str
) -> None:
    case = CASES[name]
    speak_as(provider, case.check, *case.replies)

    turn = run(session)

    assert (turn.status, turn.error_code, turn.answer, turn.rounds) == (TurnStatus.DONE, "", "42", 3)
    assert [step.status for step in tool_steps_of(turn)] == ["done"] * 4
    assert learned_of(session) == list(case.learned)
    assert events_of(turn).count("model_learned") == len(case.learned)


@pytest.mark.parametrize("name", CASES)
def test_what_was_learned_is_not_asked_for_again(session: ChatSession, provider: ScriptedOpenAI, name: str) -> None:
    case = CASES[name]
    speak_as(provider, case.check, *case.replies, Say("Again."))
    run(session)
    before = len(provider.requests)

    turn = run(session, "And now?")

    assert turn.answer == "Again."
    assert len(provider.requests) == before + 1


def test_a_lesson_is_on_record_with_the_providers_words(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak_as(provider, vendors.without_max_tokens)

    run(session)

    with organisation_scope(session.organisation_id):
        entry = AuditEntry.objects.get(action="model.learn")
        (lesson,) = lessons_of(LanguageModel.objects.get().learned)
    assert entry.actor is None
    assert entry.after["learned"].endswith("sent as max_completion_tokens.")
    assert lesson.because.startswith("Unsupported parameter: 'max_tokens'")
    assert lesson.at


def test_a_refusal_is_never_answered_for_ever(session: ChatSession, provider: ScriptedOpenAI) -> None:
    def contrary(path: str, request: Json) -> Raw:
        if path == "/responses":
            return vendors.refusal("Use /v1/chat/completions.")
        return vendors.refusal("Use /v1/responses.")

    speak_as(provider, contrary)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    assert provider.paths == ["/chat/completions", "/responses", "/chat/completions"][: len(provider.paths)]
    assert len(provider.paths) <= 3


def test_a_provider_that_always_finds_something_else_is_given_up(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    words = (
        "stream_options: no.",
        "max_tokens: use max_completion_tokens instead.",
        "max_completion_tokens: at most 4096.",
        "Use /v1/responses.",
        "store: no.",
        "include: no.",
    )
    provider.enqueue(*(vendors.refusal(each) for each in words))

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    assert len(provider.requests) == MAX_LESSONS_A_CALL + 1


def test_what_is_not_there_is_not_asked_again_without_what_was_sealed(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(thinking(*parallel(1)), vendors.refusal("Nothing here.", status=404))

    turn = run(session)

    assert turn.status == TurnStatus.FAILED
    assert len(provider.requests) == 2


def test_what_did_not_help_is_not_kept(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak_as(provider, lambda path, request: vendors.refusal("max_tokens, stream_options: no."))

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    assert len(provider.requests) == 3
    assert learned_of(session) == []


def sealed_for_another(path: str, request: Json) -> Raw | None:
    """A key that was changed: what was sealed for the old one is refused, in words that name no parameter."""
    sealed = any(word in json.dumps(request) for word in ("sealed", "reckon", "c2lnbmVk"))
    return vendors.refusal("The encrypted content could not be verified.") if sealed else None


@pytest.mark.parametrize("dialect", Dialect)
def test_a_session_goes_on_where_what_was_sealed_is_void(
    session: ChatSession, provider: ScriptedOpenAI, dialect: str
) -> None:
    set_on(session, Provider, dialect=dialect)
    reply: Reply = thinking(*parallel(1)) if dialect == "chat" else Say(calls=parallel(1), reasoning="sealed")
    speak_as(provider, sealed_for_another, reply, Say("42"), Say("43"))

    turns = [run(session), run(session, "And now?")]

    assert [turn.answer for turn in turns] == ["42", "43"]
    assert learned_of(session) == []
    assert "learned" not in " ".join(events_of(turns[0]))


@pytest.mark.parametrize(
    ("lesson", "column", "value", "sent"),
    [
        (
            {"teaches": "at_most", "name": "max_tokens", "value": "512"},
            "max_output_tokens",
            5_000,
            {"max_tokens": 5_000},
        ),
        ({"teaches": "omit", "name": "max_tokens"}, "max_output_tokens", 5_000, {"max_tokens": 5_000}),
        (
            {"teaches": "rename", "name": "max_tokens", "value": "max_completion_tokens"},
            "max_output_tokens",
            5_000,
            {"max_completion_tokens": 5_000},
        ),
        (
            {"teaches": "omit", "name": "parallel_tool_calls"},
            "parallel_tool_calls",
            False,
            {"parallel_tool_calls": False},
        ),
    ],
)
def test_what_a_person_sets_later_counts_more_than_what_was_learned(
    session: ChatSession, provider: ScriptedOpenAI, lesson: Json, column: str, value: Any, sent: Json
) -> None:
    set_on(session, LanguageModel, learned=[lesson], **{column: value})

    run(session)

    names = ("max_tokens", "max_completion_tokens", "parallel_tool_calls")
    assert {name: each for name, each in provider.requests[0].items() if name in names} == {
        **({"max_tokens": 12_000} if column != "max_output_tokens" else {}),
        **sent,
    }


# -- What a person set ------------------------------------------------------------------------------------------------


def set_on(session: ChatSession, rows: type[Any], /, **fields: Any) -> None:
    with organisation_scope(session.organisation_id):
        rows.objects.update(**fields)


@pytest.mark.parametrize(
    ("of_model", "of_agent", "sent"),
    [
        ({}, {}, {}),
        ({"reasoning_effort": "low"}, {}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"temperature": 0.5}, {"temperature": 0.0}, {"temperature": 0.0}),
        ({"parallel_tool_calls": True}, {"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"max_output_tokens": 900}, {}, {"max_tokens": 900}),
    ],
)
def test_what_is_set_goes_out_the_agents_first(
    session: ChatSession, provider: ScriptedOpenAI, of_model: Json, of_agent: Json, sent: Json
) -> None:
    set_on(session, LanguageModel, **of_model)
    set_on(session, Agent, **of_agent)

    run(session)

    names = ("reasoning_effort", "temperature", "parallel_tool_calls")
    told = {name: value for name, value in provider.requests[0].items() if name in names}
    assert told | {"max_tokens": provider.requests[0]["max_tokens"]} == {"max_tokens": 12_000, **sent}


def test_in_responses_they_go_out_under_its_names(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_on(session, Provider, dialect="responses")
    set_on(session, LanguageModel, reasoning_effort="low", temperature=1.0, max_output_tokens=500)

    turn = run(session)

    (request,) = provider.requests
    assert turn.answer == "OK."
    assert provider.paths == ["/responses"]
    assert (request["reasoning"], request["temperature"], request["max_output_tokens"]) == ({"effort": "low"}, 1.0, 500)
    assert (request["store"], request["include"]) == (False, ["reasoning.encrypted_content"])
    assert "messages" not in request


@pytest.mark.parametrize(
    ("setting", "value", "parameter", "label"),
    [
        ("reasoning_effort", "none", "reasoning_effort", "reasoning effort"),
        ("temperature", 0.7, "temperature", "temperature"),
        ("max_output_tokens", 9_000, "max_tokens", "most output tokens"),
        ("parallel_tool_calls", False, "parallel_tool_calls", "parallel tool calls"),
    ],
)
def test_a_refused_setting_of_a_person_is_named_and_kept(
    session: ChatSession, provider: ScriptedOpenAI, setting: str, value: Any, parameter: str, label: str
) -> None:
    set_on(session, LanguageModel, **{setting: value})
    speak_as(provider, lambda path, request: vendors.refusal("Unsupported value.", param=parameter))

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "setting_refused")
    assert f"The {label} is set to {value}" in turn.error_message
    assert learned_of(session) == []
    assert len(provider.requests) == 1


def test_a_dialect_that_a_person_set_is_kept(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_on(session, Provider, dialect="chat")
    speak_as(provider, vendors.openai_with_reasoning)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    assert "/responses" not in provider.paths


# -- What goes back unread --------------------------------------------------------------------------------------------


def test_sealed_reasoning_goes_back_byte_for_byte(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_on(session, Provider, dialect="responses")
    provider.enqueue(Say("Hm.", calls=parallel(1), reasoning="gAAA+/=\u00fc\u2028", key="k"), Say("42"))

    turn = run(session)

    items = provider.requests[1]["input"]
    reasoning = next(item for item in items if item.get("type") == "reasoning")
    assert reasoning == {"type": "reasoning", "id": "rs_k", "summary": [], "encrypted_content": "gAAA+/=\u00fc\u2028"}
    assert [item.get("type", "message") for item in items[2:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert "gAAA" not in "".join(step.text for step in steps_of(turn))


def test_a_session_goes_from_responses_to_chat_and_back(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_on(session, Provider, dialect="responses")
    with organisation_scope(session.organisation_id):
        first = LanguageModel.objects.get()
        other = LanguageModel.objects.create(
            organisation_id=first.organisation_id, provider=first.provider, name="other", dialect="chat"
        )
    tool_turn = [Say(calls=parallel(1), reasoning="sealed"), Say("42", reasoning="sealed-too")]
    provider.enqueue(*tool_turn)
    run(session)

    set_on(session, Agent, model=other)
    speak_as(provider, vendors.deepseek, thinking(*parallel(2)), Say("43"))
    in_chat = run(session, "In chat?")
    as_chat = provider.bodies[-1]
    set_on(session, Agent, model=first)
    provider.script = [Say("44")]
    back = run(session, "And back?")

    assert [turn.answer for turn in (in_chat, back)] == ["43", "44"]
    assert b"sealed" not in as_chat
    assert learned_of_model(other) == ["fill:reasoning_content"]
    items = provider.requests[-1]["input"]
    assert [item["encrypted_content"] for item in items if item.get("type") == "reasoning"] == ["sealed", "sealed-too"]
    assert "reckon" not in json.dumps(items)
    assert_each_call_is_answered(items)


def learned_of_model(model: LanguageModel) -> list[str]:
    with organisation_scope(model.organisation_id):
        model.refresh_from_db()
    return [lesson.key for lesson in lessons_of(model.learned)]


def assert_each_call_is_answered(items: Sequence[Json]) -> None:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert calls
    assert calls == [item["call_id"] for item in items if item.get("type") == "function_call_output"]


@pytest.mark.parametrize(("part", "other"), [("127.0.0.1", "localhost"), ("/v1", "/v1/another-account")])
def test_nothing_goes_to_the_same_model_at_another_address(
    session: ChatSession, provider: ScriptedOpenAI, part: str, other: str
) -> None:
    """At a gateway, the path says whose model it is."""
    set_on(session, Provider, dialect="responses")
    provider.enqueue(Say("42", reasoning="sealed"))
    run(session)
    set_on(session, Provider, base_url=provider.url.replace(part, other))

    turn = run(session, "And now?")

    assert turn.status == TurnStatus.DONE
    assert b"sealed" not in provider.bodies[-1]


def test_nothing_goes_to_another_agents_model_in_the_same_session(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_on(session, Provider, dialect="responses")
    provider.enqueue(Say("42", reasoning="sealed"))
    run(session)
    with organisation_scope(session.organisation_id):
        own = session.agent.model
        other = Provider.objects.create(
            organisation_id=own.organisation_id, slug="b", name="B", base_url=own.provider.base_url, dialect="responses"
        )
        model = LanguageModel.objects.create(organisation_id=own.organisation_id, provider=other, name=own.name)
        session.agent = Agent.objects.create(
            organisation_id=own.organisation_id, slug="b", name="B", model=model, starts_with_core=False
        )
        session.save()

    turn = run(session, "And now?")

    assert (turn.status, turn.agent_id) == (TurnStatus.DONE, session.agent_id)
    assert b"42" in provider.bodies[-1]
    assert b"sealed" not in provider.bodies[-1]


@pytest.mark.parametrize("dialect", Dialect)
def test_what_goes_back_unread_is_shown_to_nobody(
    session: ChatSession, provider: ScriptedOpenAI, client: Client, dialect: str
) -> None:
    set_on(session, Provider, dialect=dialect)
    hidden = "zz-hidden-zz"
    thought = Raw(sse(chunk({"reasoning_content": hidden}), *Say(calls=parallel(1)).chunks()))
    provider.enqueue(thought if dialect == "chat" else Say(calls=parallel(1), reasoning=hidden), Say("42"))
    turn = run(session)
    client.force_login(session.membership.user)
    rest = Rest(session.membership)

    told = [rest.get(path).json for path in (f"turns/{turn.pk}", f"turns/{turn.pk}/steps", f"sessions/{session.pk}")]
    steps = steps_of(turn, StepKind.MODEL)
    org = session.organisation.slug
    pages = [reverse("session_detail", args=[org, session.pk]), reverse("turn_detail", args=[org, turn.pk])]
    pages += [reverse("step_detail", args=[org, turn.pk, step.index]) for step in steps_of(turn)]
    shown = [client.get(page).content.decode() for page in pages]
    with organisation_scope(session.organisation_id):
        events = list(TurnEvent.objects.filter(turn=turn).values_list("payload", flat=True))

    assert hidden in steps[0].extras
    assert "20+1" in json.dumps(told)
    assert "42" in shown[0]
    assert hidden not in json.dumps([told, shown, events])


def test_what_a_step_used_is_kept_in_parts_and_shown(session: ChatSession, provider: ScriptedOpenAI) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    provider.enqueue(Say("Well.", usage=usage))

    turn = run(session)

    (step,) = steps_of(turn, StepKind.MODEL)
    assert (step.input_tokens, step.cached_tokens, step.cache_write_tokens) == (100, 60, 20)
    assert (step.output_tokens, step.reasoning_tokens, step.usage_estimated) == (30, 12, False)
    assert step.raw_usage == usage
    assert step.model_name == "scripted"
    (row,) = Rest(session.membership).get(f"turns/{turn.pk}/steps").json["results"]
    told = {"model": "scripted", "cached_tokens": 60, "cache_write_tokens": 20, "reasoning_tokens": 12}
    assert row | told == row
    assert "extras" not in row
