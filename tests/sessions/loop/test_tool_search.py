"""Loading mode `native_search`: the provider itself searches what the agent could load, and shows the model what it
finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from uuid import UUID

import pytest
from openai.types.responses import ResponseInputParam
from openai.types.responses.tool_param import ParseableToolParam
from pydantic import TypeAdapter

from capabilities.catalogue.tools.writes import set_instructions
from capabilities.common.registry_version import touch_registry
from capabilities.language_models.providers.lessons import Lesson, Teaches
from capabilities.language_models.providers.resolve import ResolvedProvider
from capabilities.models import (
    Agent,
    AgentTool,
    Dialect,
    LoadingMode,
    RoutingMode,
    Tool,
    Toolkit,
)
from sessions.models import ChatSession, ClientRequest, Door, StepKind, StepStatus, ToolSet, TurnStatus
from sessions.selection.queries import selection_preview
from sessions.turns import accepting
from tests import vendors
from tests.cast import allow_toolkit, make_role, make_toolkit
from tests.scripted_openai import Json, Raw, Reply, Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    AT_FIRST,
    answers_in,
    kit_tool,
    load,
    load_by_hand,
    loads_of,
    make_loading_session,
    payloads,
    reread,
)
from tests.sessions.loop.conversation.test_added_tools import (
    CLOCK,
    all_replies,
    assert_begins_as,
    assert_repeats,
    declared,
    deny,
    lose,
    make_new_version,
    named,
    second,
    set_provider,
)
from tests.sessions.run_turns import a_model, accept, check_request, run, steps_of, tool_steps_of, work
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["second"]

pytestmark = pytest.mark.django_db(transaction=True)

SEARCH = {"type": "tool_search"}


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent has `calculator`, and its provider searches the toolkits `clock` and `ids`."""
    made = make_loading_session(bob, provider.url, LoadingMode.NATIVE_SEARCH, prompt="Be brief.")
    make_role(bob.organisation, bob)
    set_provider(bob.organisation, dialect=Dialect.RESPONSES, takes_added_tools=True, takes_tool_search=True)
    return made


Answer = Callable[[Json], Reply]


def finding(*names: str, calls: tuple[Json, ...] = (), text: str = "") -> Answer:
    """A reply of a provider that searches the request's namespaces for these ones, and goes on with calls or words."""

    def answer(request: Json) -> Say:
        found = [entry for entry in request["tools"] if entry.get("name") in names and entry["type"] == "namespace"]
        return Say(text, calls=calls, found=found, reasoning="sealed")

    return answer


def speak(
    provider: ScriptedOpenAI, *replies: Reply | Answer, check: vendors.Check = vendors.openai_with_added_tools
) -> None:
    """As OpenAI, from this script; each request is one that OpenAI's own types take."""
    left: Iterator[Reply | Answer] = iter(replies)

    def answer(request: Json) -> Reply:
        TypeAdapter(list[ParseableToolParam]).validate_python(request.get("tools", []))
        TypeAdapter(ResponseInputParam).validate_python(request["input"])
        if refused := check(provider.paths[-1], request):
            return refused
        reply = next(left, Say("OK."))
        return reply(request) if callable(reply) else reply

    provider.script = [answer] * 40


def within(name: str, namespace: str, **more: object) -> Json:
    """A call of a tool in a namespace, as OpenAI makes it."""
    made = call(name, **more)  # type: ignore[arg-type]
    return {**made, "function": {**made["function"], "namespace": namespace}}


def spaces(body: bytes) -> dict[str, list[str]]:
    """The names of the tools in each namespace of a request."""
    entries = json.loads(body).get("tools", ())
    return {each["name"]: [tool["name"] for tool in each["tools"]] for each in entries if each["type"] == "namespace"}


def functions(body: bytes) -> list[str]:
    return [each["name"] for each in json.loads(body).get("tools", ()) if each["type"] == "function"]


def searches(body: bytes) -> list[list[str]]:
    """The namespaces that each output of a search in a request's input brings."""
    items = json.loads(body)["input"]
    return [[each["name"] for each in item["tools"]] for item in items if item.get("type") == "tool_search_output"]


TIME = within("current_time", "clock")


# -- What goes out ----------------------------------------------------------------------------------------------------


def test_mr_40_what_could_be_loaded_stands_in_namespaces_that_the_provider_searches(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider)

    run(session)

    (body,) = provider.bodies
    entries = json.loads(body)["tools"]
    assert [each["type"] for each in entries] == ["function", "namespace", "namespace", "tool_search"]
    assert entries[-1] == SEARCH
    assert functions(body) == ["calculator"]
    assert spaces(body) == {"clock": CLOCK, "ids": ["uuid"]}
    clock, ids = entries[1:3]
    assert (clock["description"], ids["description"]) == ("Time and dates", "Tools: uuid")
    assert all(tool["defer_loading"] is True and tool["strict"] is False for tool in (*clock["tools"], *ids["tools"]))
    assert "defer_loading" not in entries[0]
    check_request(body)


def test_mr_40_what_is_found_is_called_in_the_same_reply_and_goes_back_byte_for_byte(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, finding("clock", calls=(TIME,)), Say("It is noon."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "It is noon.")
    (done,) = tool_steps_of(turn)
    assert (done.status, done.tool_name) == (StepStatus.DONE, "current_time")
    first, second = provider.bodies
    assert_begins_as(second, first)
    kinds = [item.get("type", item.get("role")) for item in json.loads(second)["input"]]
    assert kinds == [
        "system",
        "user",
        "reasoning",
        "tool_search_call",
        "tool_search_output",
        "function_call",
        "function_call_output",
    ]
    called, output = json.loads(second)["input"][3:5]
    assert (called["arguments"], called["call_id"], called["execution"]) == ({"paths": ["clock"]}, None, "server")
    assert output["tools"] == [entry for entry in json.loads(first)["tools"] if entry.get("name") == "clock"]
    assert json.loads(second)["input"][5]["namespace"] == "clock"
    assert_repeats(all_replies(session))


def test_mr_40_what_was_found_is_on_record_and_is_no_load(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))

    turn = run(session)

    first, second = steps_of(turn, StepKind.MODEL)
    assert (first.structured, second.structured) == ({"found": CLOCK}, None)
    assert loads_of(session) == []
    with organisation_scope(session.organisation_id):
        stored = ToolSet.objects.get(pk=first.tool_set_id or 0)
        names = list(Tool.objects.filter(current_version__in=stored.searched_ids).values_list("name", flat=True))
    assert sorted(names) == sorted([*CLOCK, "uuid"])
    assert first.verdict_set is not None
    told = {each["tool"]: each for each in first.verdict_set.verdicts if each["stage"] == "search"}
    assert told["uuid"]["reason"] == "the provider searches it in ids"


def test_mr_40_a_later_turn_repeats_what_an_earlier_one_found(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(
        provider,
        finding("clock", calls=(TIME,)),
        Say("Noon."),
        Say(calls=[within("current_time", "clock")]),
        Say("One."),
    )

    run(session)
    turn = run(session, "And now?")

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE]
    for before, body in pairwise(provider.bodies):
        assert_begins_as(body, before)
    assert [searches(body) for body in provider.bodies] == [[], [["clock"]], [["clock"]], [["clock"]]]
    assert_repeats(all_replies(session))


def test_mr_40_a_search_that_finds_nothing_goes_back_too(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, finding(text="There is no such tool."))

    turn = run(session)
    run(session, "Look again.")

    assert steps_of(turn, StepKind.MODEL)[0].structured == {"found": []}
    assert searches(provider.bodies[-1]) == [[]]


def test_mr_40_names_that_the_provider_makes_up_are_not_on_record(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    made_up = {"type": "namespace", "name": "x", "description": "x", "tools": [{"type": "function", "name": "rm"}]}
    speak(provider, Say("Hm.", found=[made_up]))

    turn = run(session)

    assert steps_of(turn, StepKind.MODEL)[0].structured == {"found": []}


def test_mr_40_own_tools_that_are_deferred_are_searched_in_one_namespace(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        units = kit_tool(session.organisation, "unit_convert")
        AgentTool.objects.create(
            organisation_id=session.organisation_id, agent=session.agent, tool=units, position=2, is_deferred=True
        )
        touch_registry(session.organisation_id)
    speak(provider)

    run(session)

    assert spaces(provider.bodies[0])["_own_tools"] == ["unit_convert"]
    entry = json.loads(provider.bodies[0])["tools"][3]
    assert entry["description"] == "Tools: unit_convert"


def test_mr_41_instructions_of_a_searched_tool_stand_behind_its_description(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "current_time"), "Say the zone.", actor=alice)
    speak(provider)

    run(session)

    body = json.loads(provider.bodies[0])
    assert body["tools"][1]["tools"][0]["description"].endswith("\n\nSay the zone.")
    assert "Say the zone" not in json.dumps(body["input"])


def test_mr_40_a_tool_of_two_toolkits_is_declared_once(session: ChatSession, provider: ScriptedOpenAI) -> None:
    again = make_toolkit(session.organisation, "again", kit_tool(session.organisation, "uuid"))
    allow_toolkit(session.agent, again)
    speak(provider)

    run(session)

    assert spaces(provider.bodies[0]) == {"clock": CLOCK, "ids": ["uuid"]}


def test_mr_40_an_agent_with_nothing_but_namespaces_calls_what_is_found(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        AgentTool.objects.all().delete()
        touch_registry(session.organisation_id)
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))

    turn = run(session)

    assert (turn.answer, functions(provider.bodies[0])) == ("Noon.", [])
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE]


def test_mr_40_namespaces_count_in_the_limit_of_a_request(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_provider(session.organisation, tool_limit=3)
    speak(provider)

    turn = run(session)

    body = provider.bodies[0]
    assert len(json.loads(body)["tools"]) == 3
    assert spaces(body) == {"clock": CLOCK}
    assert payloads(turn, "tools_over_limit") == [{"count": 1, "tools": ["uuid"]}]


def test_the_tokens_of_a_first_call_are_those_that_pages_say(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        shown = selection_preview(reread(session))
    speak(provider)

    turn = run(session)

    (step,) = steps_of(turn, StepKind.MODEL)
    assert step.tool_tokens == shown.tokens
    of_functions = sum(tool.tokens for tool in shown.tools)
    assert of_functions < shown.tokens < of_functions + 40  # beside, names and descriptions of two toolkits


# -- What the member may use ------------------------------------------------------------------------------------------


def test_mr_40_only_what_the_member_may_use_is_searched(session: ChatSession, provider: ScriptedOpenAI) -> None:
    deny(session, "uuid")
    deny(session, "date_arithmetic")
    speak(provider)

    run(session)

    assert spaces(provider.bodies[0]) == {"clock": ["current_time"]}


def test_mr_40_a_tool_that_is_denied_after_it_was_found_does_not_run(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def denied_meanwhile(request: Json) -> Reply:
        deny(session, "current_time")
        return finding("clock", calls=(TIME,))(request)

    speak(provider, denied_meanwhile, Say("I may not."))

    turn = run(session)

    (refused,) = tool_steps_of(turn)
    assert refused.status == StepStatus.REFUSED
    assert json.loads(refused.result_sent)["error"].startswith("Access denied")


def test_mr_40_what_may_not_be_used_any_more_is_not_sent_again(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))
    run(session)
    deny(session, "current_time")

    turn = run(session, "And now?")

    body = provider.bodies[-1]
    assert spaces(body) == {"clock": ["date_arithmetic"], "ids": ["uuid"]}
    assert searches(body) == []
    assert "Get the current" not in body.decode()
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["changed"]
    check_request(body)


def test_mr_40_a_searched_tool_that_is_changed_while_the_model_answers_does_not_run(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def changed_meanwhile(request: Json) -> Reply:
        make_new_version(session, "current_time")
        return finding("clock", calls=(TIME,))(request)

    speak(provider, changed_meanwhile, Say("Again?"))

    turn = run(session)

    (refused,) = tool_steps_of(turn)
    assert refused.status == StepStatus.REFUSED
    assert "was changed while this turn ran" in refused.result_sent


def test_mr_40_a_tool_outside_the_namespaces_is_not_called(session: ChatSession, provider: ScriptedOpenAI) -> None:
    """It is there, in a toolkit that the agent may not load."""
    speak(provider, Say(calls=[within("unit_convert", "clock")]), Say("I cannot."))

    turn = run(session)

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED]


def test_mr_40_a_found_tool_has_what_its_toolkit_says_of_it(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        Toolkit.objects.get(name="clock").toolkit_tools.filter(tool__name="current_time").update(max_result_chars=1_200)
        touch_registry(session.organisation_id)
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))

    turn = run(session)

    (model_step,) = steps_of(turn, StepKind.MODEL)[:1]
    with organisation_scope(session.organisation_id):
        stored = ToolSet.objects.get(pk=model_step.tool_set_id or 0)
        version = str(kit_tool(session.organisation, "current_time").current_version_id)
    assert stored.overrides == {version: {"max_result_chars": 1_200}}


# -- Anew -------------------------------------------------------------------------------------------------------------


def test_mr_40_what_a_person_loads_is_sent_as_it_is_and_all_are_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))
    run(session)
    load_by_hand(session, "clock")

    turn = run(session, "And now?")

    body = provider.bodies[-1]
    assert functions(body) == ["calculator", *CLOCK]
    assert (spaces(body), searches(body)) == ({"ids": ["uuid"]}, [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["loaded"]
    calls = [item for item in json.loads(body)["input"] if item.get("type") == "function_call"]
    assert [item.get("namespace") for item in calls] == [None]
    check_request(body)


def test_mr_40_a_searched_tool_with_a_new_version_is_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, finding("clock", text="Found."))
    run(session)
    make_new_version(session, "current_time")

    turn = run(session, "And now?")

    assert "New: " in json.loads(provider.bodies[-1])["tools"][1]["tools"][0]["description"]
    assert searches(provider.bodies[-1]) == []
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["changed"]


def test_mr_40_another_worker_sends_the_same_bytes_after_a_crash(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = accept(session)

    def hang(request: Json) -> Say:
        lose(turn.pk)
        return Say("Too late.")

    speak(provider, finding("clock", calls=(TIME,)), hang, Say("There."))
    work(turn)
    done = work(turn)

    assert (done.status, done.answer) == (TurnStatus.DONE, "There.")
    assert provider.bodies[-1] == provider.bodies[-2]
    assert len(tool_steps_of(turn)) == 1


# -- Where it is not known --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "because"), [({"takes_tool_search": False}, "provider"), ({"dialect": Dialect.CHAT}, "dialect")]
)
def test_mr_40_a_provider_that_is_not_known_to_search_gets_tools_that_load_others(
    fields: Json, because: str, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_provider(session.organisation, **fields)
    provider.enqueue(Say(calls=[load("clock")]), Say(calls=[call("current_time")]), Say("Noon."))

    turn = run(session)

    assert turn.answer == "Noon."
    assert b"tool_search" not in b"".join(provider.bodies)
    assert payloads(turn, "search_unavailable") == [{"because": because, "model": "scripted"}]
    assert loads_of(session) == [("clock", "model", "")]


def test_mr_40_a_provider_that_refuses_is_asked_with_tools_that_load_others_and_that_is_learned(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    replies = Say(calls=[load("clock")]), Say(calls=[named("current_time")]), Say("Noon.")
    speak(provider, *replies, check=vendors.knows_no_tool_search)

    turn = run(session)

    assert turn.answer == "Noon."
    first, second, *_ = provider.bodies
    assert list(spaces(first)) == ["clock", "ids"]
    assert (declared(second), spaces(second)) == (AT_FIRST, {})
    assert payloads(turn, "model_learned") == [{"model": "scripted", "learned": "tool_search is not sent."}]
    assert [told["because"] for told in payloads(turn, "search_unavailable")] == ["refused"]
    run(session, "And now?")
    assert b'"tool_search"' not in provider.bodies[-1]


def test_mr_40_a_provider_that_refuses_in_the_middle_of_a_turn_is_asked_without(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    asked = 0

    def check(path: str, request: Json) -> Raw | None:
        nonlocal asked
        asked += 1
        return (vendors.openai_with_added_tools if asked == 1 else vendors.knows_no_tool_search)(path, request)

    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."), check=check)

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Noon.")
    body = provider.bodies[-1]
    assert (declared(body), spaces(body), searches(body)) == (AT_FIRST, {}, [])


@pytest.mark.parametrize(
    ("base_url", "name", "switch", "because"),
    [
        ("https://api.openai.com/v1", "gpt-5.4", False, ""),
        ("https://api.openai.com/v1", "gpt-5.4-mini-2026-03-17", False, ""),
        ("https://api.openai.com/v1", "gpt-5.4-nano-2026-03-17", False, "model"),
        ("https://api.openai.com/v1", "gpt-6.1-sol", False, ""),
        ("https://api.openai.com/v1", "gpt-5.3", False, "model"),
        ("https://api.openai.com/v1", "gpt-5", False, "model"),
        ("https://api.openai.com/v1", "ft:gpt-5.4:acme", False, "model"),
        ("https://api.openai.com.example.org/v1", "gpt-5.4", False, "provider"),
        ("https://models.example.org/v1", "gpt-5.4", False, "provider"),
        ("https://models.example.org/v1", "any", True, ""),
    ],
)
def test_mr_40_only_openais_own_newer_models_are_known_to_search(
    base_url: str, name: str, switch: bool, because: str
) -> None:
    provider = ResolvedProvider(
        UUID(int=1), "p", "P", base_url, True, Dialect.RESPONSES, "key", takes_tool_search=switch
    )
    refused = Lesson(Teaches.OMIT, "tool_search")

    assert a_model(provider=provider, name=name).why_no_tool_search == because
    assert a_model(provider=provider, name=name, dialect_setting=Dialect.CHAT).why_no_tool_search == "dialect"
    assert a_model(provider=provider, name=name).with_lesson(refused).why_no_tool_search == (because or "refused")


def test_mr_40_where_added_tools_are_not_taken_it_searches_all_the_same(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_provider(session.organisation, takes_added_tools=False)
    speak(provider, finding("clock", calls=(TIME,)), Say("Noon."))

    turn = run(session)

    assert turn.answer == "Noon."
    first, second = provider.bodies
    assert_begins_as(second, first)
    assert [told["because"] for told in payloads(turn, "native_unavailable")] == ["provider"]
    assert payloads(turn, "search_unavailable") == []


def test_mr_40_a_second_model_that_does_not_search_gets_tools_that_load_others(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    gone = vendors.refusal("The model does not exist.", status=404, code="model_not_found")
    speak(provider, finding("clock", calls=(TIME,)), gone)
    second.enqueue(Say("Noon."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Noon.")
    assert [tool["function"]["name"] for tool in second.requests[0]["tools"]] == AT_FIRST
    assert "namespace" not in second.bodies[0].decode()
    assert "tool_search" not in second.bodies[0].decode()


def test_mr_40_beside_a_clients_own_tools_the_agent_loads_itself(
    session: ChatSession, provider: ScriptedOpenAI, bob: Membership
) -> None:
    own = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}
    speak(provider, Say(calls=[call("search_tools", {"query": "uuid"})]), Say("Hello."))
    with organisation_scope(session.organisation_id):
        token = issue_token(bob, "Test", actor=None)[0]
        asks = accepting.ClientAsks(door=Door.CHAT, token=token, digest="d", tools=[own])
        turn = accepting.accept(session, "hello", member=bob, asks=asks).turn

    work(turn)

    assert declared(provider.bodies[0]) == [*AT_FIRST, "mine"]
    assert payloads(turn, "search_unavailable") == [{"because": "client_tools", "model": "scripted"}]
    with organisation_scope(session.organisation_id):
        assert ClientRequest.objects.filter(turn=turn).exists()
    (found,) = answers_in(turn)
    assert [(each["name"], each["toolkit"]) for each in found["tools"]] == [("uuid", "ids")]


def test_mr_40_search_tools_of_a_routed_agent_leaves_to_the_provider_what_it_searches(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.update(routing_mode=RoutingMode.HYBRID)
        touch_registry(session.organisation_id)
    speak(provider, Say(calls=[call("search_tools", {"query": "uuid"})]), Say("None."))

    turn = run(session, "Deploy the demo app to AWS")

    assert functions(provider.bodies[0]) == ["search_tools"]
    assert spaces(provider.bodies[0]) == {"clock": CLOCK, "ids": ["uuid"]}
    assert answers_in(turn) == [{"tools": []}]
