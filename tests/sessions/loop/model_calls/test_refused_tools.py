"""A provider that refuses the definition of one tool ends no turn: it goes on without that tool, on record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from capabilities.catalogue.servers.queries import refused_tools_notice
from capabilities.common.registry_version import touch_registry
from capabilities.common.tokens import O200K, count_tokens
from capabilities.contract.wire import canonical_json
from capabilities.language_models.providers.refused_tools import try_again
from capabilities.models import LanguageModel, Provider, Tool, ToolRefusal
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.loop.clients.probing import MOST_PROBES
from sessions.models import ChatSession, Step, StepKind, TurnStatus
from tests.cast import give_tool, make_agent, make_role, make_session, make_tool
from tests.scripted_openai import Json, Raw, Reply, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import events_of, run
from tests.vendors import refusal
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("calculator", "by_ids", "current_time")
BAD = "by_ids"


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob's agent has three tools; the provider takes no definition of the second one."""
    acme = bob.organisation
    agent = make_agent(acme, provider.url)
    for place, name in enumerate(NAMES):
        give_tool(agent, make_tool(acme, name), position=place)
    make_role(acme, bob)
    return make_session(bob, agent)


def names_in(request: Json) -> list[str]:
    return [each["function"]["name"] for each in request.get("tools", ())]


def refusing(answer: Callable[[int, str], Raw], *bad: str) -> Callable[[Json], Reply]:
    """A provider that refuses these tools wherever they stand, and says so as `answer` does."""

    def check(request: Json) -> Reply:
        found = [(place, name) for place, name in enumerate(names_in(request)) if name in (bad or (BAD,))]
        return answer(*found[0]) if found else Say("Done.")

    return check


def words(text: str, **more: Any) -> Callable[[int, str], Raw]:
    return lambda place, name: refusal(text.format(place=place, name=name), **more)


def fastapi(place: int, name: str) -> Raw:
    found = {"type": "value_error", "loc": ["body", "tools", place, "function", "parameters"], "msg": "Bad schema"}
    return Raw(json.dumps({"detail": [found]}).encode(), 422, {"Content-Type": "application/json"})


def of_param(place: int, name: str) -> Raw:
    return refusal(f"Invalid schema for function '{name}': array schema missing items.", param=f"tools[{place}].x")


def plain(text: str, status: int = 400) -> Callable[[int, str], Raw]:
    """A body that is no JSON."""
    return lambda place, name: Raw(text.format(place=place, name=name).encode(), status, {"Content-Type": "text/plain"})


def routed(place: int, name: str) -> Raw:
    """OpenRouter, whose provider's own words are JSON in a text."""
    raw = json.dumps({"error": {"message": f"Invalid schema for function '{name}': array schema missing items."}})
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "Azure"}}
    return Raw(json.dumps({"error": error}).encode(), 400, {"Content-Type": "application/json"})


FORMS: dict[str, Callable[[int, str], Raw]] = {
    "openai": words("Invalid schema for function '{name}': In context=('properties', 'calculator'), no items."),
    "openai's param": of_param,
    "gemini": words(
        "* GenerateContentRequest.tools[0].function_declarations[{place}].parameters.items: missing field."
    ),
    "anthropic": words("tools.{place}.custom.input_schema: JSON schema is invalid."),
    "anthropic's names": words("tools.{place}.input_schema.properties: Property keys should match pattern"),
    "xai": words("Failed to deserialize the JSON body: tools[{place}].function.parameters: invalid type"),
    "mistral": words("body.tools.{place}.function.parameters: Input should be a valid dictionary"),
    "deepseek": words("Invalid schema for function `{name}`: none is not of a type", status=422),
    "vllm": fastapi,
    "ollama": words("tool {name}: json: cannot unmarshal array into Go struct field of type string"),
    "a pointer": words("/tools/{place}/function/parameters must be object"),
    "llama.cpp": words("Failed to parse grammar of tool {name}", status=500),
    "llama.cpp by place": words("JSON schema conversion failed: tools[{place}].function.parameters", status=500),
    "a text": plain("Invalid schema for function '{name}'"),
    "a text with 500": plain("Unable to build the grammar for tool '{name}'", 500),
    "a page": plain("<html><body><h1>Bad Request</h1><p>Invalid schema for function '{name}'</p></body></html>"),
    "openrouter": routed,
    "by name alone": words("{name} has a schema that cannot be used"),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_the_turn_is_answered_without_the_tool_that_the_refusal_names(
    session: ChatSession, provider: ScriptedOpenAI, form: str
) -> None:
    provider.enqueue(*[refusing(FORMS[form])] * 10)

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Done.")
    assert [names_in(each) for each in provider.requests] == [list(NAMES), [NAMES[0], NAMES[2]]]
    assert "tools_refused" in events_of(turn)
    with organisation_scope(session.organisation_id):
        mark = ToolRefusal.objects.get()
        assert (mark.tool.name, mark.count) == (BAD, 1)
        assert mark.words
        (step,) = Step.objects.filter(turn=turn, kind=StepKind.MODEL).select_related("tool_set")
    assert step.tool_set is not None
    assert step.tool_tokens == step.tool_set.tokens
    assert [name for name in NAMES if f'"{name}"' in step.tool_set.wire] == [NAMES[0], NAMES[2]]


def test_the_next_turn_asks_without_it_at_once(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(*[refusing(FORMS["openai"])] * 10)
    run(session)

    turn = run(session, "again")

    assert turn.status == TurnStatus.DONE
    assert [names_in(each) for each in provider.requests[2:]] == [[NAMES[0], NAMES[2]]]


def test_a_later_round_of_the_turn_goes_without_it_too(session: ChatSession, provider: ScriptedOpenAI) -> None:
    taken = Say(calls=[call("calculator", {"expression": "1+1"})])
    late = refusing(FORMS["openai"])
    provider.enqueue(taken, late, late)

    turn = run(session)

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Done.", 2)
    assert [names_in(each) for each in provider.requests][1:] == [list(NAMES), [NAMES[0], NAMES[2]]]


def test_several_are_left_out_one_after_the_other(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(*[refusing(FORMS["anthropic"], BAD, "calculator")] * 10)

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert names_in(provider.requests[-1]) == ["current_time"]
    assert len(provider.requests) == 3


def new_address(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(base_url=Provider.objects.get().base_url + "/")
        touch_registry(session.organisation_id)


def new_model(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(name="another")
        touch_registry(session.organisation_id)


@pytest.mark.parametrize("change", [new_address, new_model])
def test_it_is_tried_again_when_the_model_is_another_one(
    session: ChatSession, provider: ScriptedOpenAI, change: Callable[[ChatSession], None]
) -> None:
    provider.enqueue(refusing(FORMS["openai"]), Say("Done."))
    run(session)
    change(session)

    run(session, "again")

    assert sorted(names_in(provider.requests[-1])) == sorted(NAMES)


def test_a_person_takes_the_mark_back(session: ChatSession, provider: ScriptedOpenAI, alice: Membership) -> None:
    provider.enqueue(refusing(FORMS["openai"]), Say("Done."))
    run(session)
    with organisation_scope(session.organisation_id):
        assert refused_tools_notice(alice)[0] == 1
        try_again(ToolRefusal.objects.select_related("tool__category", "model__provider").get(), actor=alice)
        assert refused_tools_notice(alice) == (0, "")

    run(session, "again")

    assert sorted(names_in(provider.requests[-1])) == sorted(NAMES)


def test_explain_says_which_provider_refuses_it_and_why(
    session: ChatSession, provider: ScriptedOpenAI, bob: Membership
) -> None:
    provider.enqueue(refusing(FORMS["openai"]), Say("Done."))
    run(session)

    with organisation_scope(session.organisation_id):
        fresh = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
        found = explain(Subject(bob, fresh.agent, fresh), Asked(tool=BAD))

    (tool,) = found.tools
    assert [cell.stage for cell in tool.reasons.stops] == ["refused"]
    assert "no items" in tool.sentence


# -- By no name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Invalid tool schema.", 400),
        ("Bad Request", 400),
        ("Request contains an invalid argument.", 400),
        ("failed to parse grammar", 500),
        ('JSON schema conversion failed: Unrecognized schema: {{"type": "array"}}', 500),
    ],
)
def test_where_none_is_named_the_one_to_blame_is_found(
    session: ChatSession, provider: ScriptedOpenAI, said: str, status: int
) -> None:
    provider.enqueue(*[refusing(words(said, status=status))] * 30)

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Done.")
    assert names_in(provider.requests[-1]) == [NAMES[0], NAMES[2]]
    assert len(provider.requests) <= MOST_PROBES + 2
    assert all(each["messages"] == [{"role": "user", "content": "Hello"}] for each in provider.requests[1:-1])
    with organisation_scope(session.organisation_id):
        assert ToolRefusal.objects.get().tool.name == BAD


def test_what_refuses_tools_as_such_is_told_as_it_is(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(*[lambda request: refusal("This model does not support tools.")] * 10)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    assert len(provider.requests) == 1


def test_a_refusal_of_the_conversation_blames_no_tool(session: ChatSession, provider: ScriptedOpenAI) -> None:
    def check(request: Json) -> Reply:
        return Say("Hi.") if request["messages"][-1]["content"] == "Hello" else refusal("Bad Request")

    provider.enqueue(*[check] * 10)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "provider_rejected")
    with organisation_scope(session.organisation_id):
        assert not ToolRefusal.objects.exists()


# -- Before anything is refused ---------------------------------------------------------------------------------------

ODD: Json = {
    "type": "object",
    "properties": {"$filter": {"type": "string"}, "ids": {"type": "array"}},
    "anyOf": [{"required": ["ids"]}, {"required": ["$filter"]}],
}


def strict_vendor(request: Json) -> Raw | None:
    """A provider that takes no list without entries, no combination at the top, and no name of other characters."""
    for place, each in enumerate(request.get("tools", ())):
        parameters = each["function"]["parameters"]
        where = f"tools[{place}].function.parameters"
        if not parameters.keys().isdisjoint({"anyOf", "oneOf", "allOf"}):
            return refusal("input_schema does not support anyOf at the top level", param=where)
        for name, schema in parameters["properties"].items():
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
                return refusal("Property keys should match pattern", param=where)
            if schema.get("type") == "array" and "items" not in schema:
                return refusal(f"In context=('properties', '{name}'), array schema missing items.", param=where)
    return None


def test_a_schema_that_vendors_refuse_is_sent_as_they_take_it_and_its_arguments_come_back(
    bob: Membership, provider: ScriptedOpenAI
) -> None:
    acme = bob.organisation
    tool = make_tool(acme, "find_rows", parameters=ODD)
    agent = make_agent(acme, provider.url)
    give_tool(agent, tool)
    make_role(acme, bob)
    session = make_session(bob, agent)
    asks = call("find_rows", {"filter": "a = 1", "ids": [1]})
    replies = iter([Say(calls=[asks]), Say("Found.")])
    provider.enqueue(*[lambda request: strict_vendor(request) or next(replies)] * 4)

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Found.")
    assert len(provider.requests) == 2
    with organisation_scope(acme):
        assert not ToolRefusal.objects.exists()
        assert Tool.objects.get(name="find_rows").current_version.parameters == ODD  # type: ignore[union-attr]
        step = Step.objects.select_related("tool_set").filter(turn=turn, kind=StepKind.MODEL).first()
        called = Step.objects.get(turn=turn, kind=StepKind.TOOL)
    assert step is not None
    assert step.tool_set is not None
    (sent,) = provider.requests[0]["tools"]
    assert json.loads(step.tool_set.wire) == [sent]
    assert step.tool_set.tokens == step.tool_tokens == count_tokens(canonical_json(sent), O200K)
    assert not called.is_malformed


# -- The conversation -------------------------------------------------------------------------------------------------


def mistral(request: Json) -> Raw | None:
    """Ids of calls are nine letters and digits, the same in call and result."""
    for message in request["messages"]:
        ids = [each["id"] for each in message.get("tool_calls") or ()] + [message.get("tool_call_id", "a" * 9)]
        for id in ids:
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", id):
                return refusal(f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.", code="3280")
    return None


def test_a_conversation_that_another_model_began_goes_on_with_one_that_wants_other_ids(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"}, "call_17957598781646542950")]), Say("Two."))
    run(session)
    new_model(session)
    provider.enqueue(*[lambda request: mistral(request) or Say("Yes.")] * 5)

    turn, later = run(session, "Sure?"), run(session, "Really?")

    assert (turn.status, turn.answer, later.answer) == (TurnStatus.DONE, "Yes.", "Yes.")
    assert len(provider.requests) == 5  # one is refused, once
    first, second = (request["messages"] for request in provider.requests[3:])
    assert second[: len(first) - 1] == first[:-1]
    with organisation_scope(session.organisation_id):
        (lesson,) = LanguageModel.objects.get().learned
    assert (lesson["teaches"], lesson["name"], lesson["value"]) == ("history", "call_ids", "9")
