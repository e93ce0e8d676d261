"""Loading mode `native`: loads are added to the conversation, and what was sent before stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.access.policies.writes import PolicyContent, save_policy
from capabilities.catalogue.tools.writes import set_instructions, set_tool_enabled
from capabilities.common.registry_version import touch_registry
from capabilities.contract.wire import names_in
from capabilities.language_models.providers.lessons import Lesson, Teaches
from capabilities.language_models.providers.resolve import ResolvedProvider
from capabilities.models import (
    Agent,
    AgentTool,
    Category,
    ClientApprovals,
    Dialect,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Provider,
    RoleMembership,
    RoutingMode,
    Tool,
    Toolkit,
    ToolVersion,
)
from sessions.loop.clients.responses import added_tools
from sessions.models import ChatSession, Door, Step, StepKind, StepStatus, ToolSet, Turn, TurnStatus
from sessions.selection.tool_sets import keep_tool_set
from sessions.turns import accepting, ledger
from sessions.turns.accepting import ClientAsks
from tests import vendors
from tests.cast import allow_toolkit, make_agent, make_category, make_role, make_tool, make_toolkit
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    AT_FIRST,
    answers_in,
    kit_tool,
    load,
    load_by_hand,
    make_loading_session,
    payloads,
    reread,
    unload,
    unload_by_hand,
)
from tests.sessions.run_turns import a_model, accept, check_request, run, steps_of, tool_steps_of, work
from tests.sessions.steps import expire_lease
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

CLOCK = ["current_time", "date_arithmetic"]


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent has `calculator` and may load `clock` and `ids`, which are added to the
    conversation: its provider speaks Responses, and takes that."""
    made = make_loading_session(bob, provider.url, LoadingMode.NATIVE, prompt="Be brief.")
    make_role(bob.organisation, bob)
    set_provider(bob.organisation, dialect=Dialect.RESPONSES, takes_added_tools=True)
    return made


def set_provider(organisation: Organisation, **fields: object) -> None:
    with organisation_scope(organisation):
        Provider.objects.filter(slug="scripted").update(**fields)


def speak(
    provider: ScriptedOpenAI, *replies: Say | Raw, check: vendors.Check = vendors.openai_with_added_tools
) -> None:
    """As OpenAI, from this script."""
    provider.script = [vendors.answering(check, lambda: provider.paths[-1], *replies)] * 40


def items_of(body: bytes) -> list[bytes]:
    """The bytes of each item of a request's input, in order."""
    text, decoder, found = body.decode(), json.JSONDecoder(), []
    place = text.index('"input":[') + len('"input":[')
    while text[place] != "]":
        _, end = decoder.raw_decode(text, place)
        found.append(text[place:end].encode())
        place = end + (text[end] == ",")
    return found


def tools_of(body: bytes) -> bytes:
    """The bytes of a request's tools."""
    text = body.decode()
    place = text.index('"tools":[', text.rindex('"input":[') + sum(map(len, items_of(body)))) + len('"tools":')
    _, end = json.JSONDecoder().raw_decode(text, place)
    return text[place:end].encode()


def named(name: str, **more: str) -> Json:
    """A call of a tool that was added, as OpenAI makes it."""
    made = call(name)
    return {**made, "function": {**made["function"], "namespace": name, **more}}


def declared(body: bytes) -> list[str]:
    return [tool["name"] for tool in json.loads(body).get("tools", ())]


def added(body: bytes) -> list[list[str]]:
    """The names that each item adds."""
    items = json.loads(body)["input"]
    return [[tool["name"] for tool in item["tools"]] for item in items if item.get("type") == "additional_tools"]


def words(body: bytes) -> list[str]:
    """What the service says to the model beside the agent's prompt."""
    return [
        item["content"] for item in json.loads(body)["input"] if item.get("role") == "developer" and "content" in item
    ]


def assert_begins_as(body: bytes, before: bytes) -> None:
    """The tools are the same bytes, and the input begins with all items of the one before."""
    items = items_of(before)
    assert tools_of(body) == tools_of(before)
    assert items_of(body)[: len(items)] == items
    check_request(body)


def assert_repeats(steps: list[Step]) -> None:
    """Each model call says that all of the one before it was known."""
    for before, step in pairwise(steps):
        assert step.prefix_bytes == before.prompt_bytes > 0


def all_replies(session: ChatSession) -> list[Step]:
    with organisation_scope(session.organisation_id):
        rows = Step.objects.filter(turn__session=session, kind=StepKind.MODEL)
        return list(rows.select_related("tool_set", "declared_set").order_by("turn__seq", "index"))


# -- What goes out ----------------------------------------------------------------------------------------------------


def test_mr_40_a_load_is_added_behind_its_result_and_all_before_stays_byte_for_byte(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say(calls=[named("current_time")]), Say("It is noon."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "It is noon.")
    first, second, third = provider.bodies
    assert_begins_as(second, first)
    assert_begins_as(third, second)
    assert declared(first) == declared(third) == AT_FIRST
    assert added(second) == added(third) == [CLOCK]
    kinds = [item.get("type", item.get("role")) for item in json.loads(second)["input"]]
    assert kinds == ["system", "user", "function_call", "function_call_output", "additional_tools"]
    item = json.loads(second)["input"][-1]
    assert {name: item[name] for name in ("type", "role")} == {"type": "additional_tools", "role": "developer"}
    assert [sorted(tool) for tool in item["tools"]] == [["description", "name", "parameters", "strict", "type"]] * 2
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE, StepStatus.DONE]


def test_mr_40_what_was_added_is_a_step_and_its_tokens_count(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("There."))

    turn = run(session)

    assert [step.kind for step in steps_of(turn)] == ["model", "tool", "tools", "model"]
    (step,) = steps_of(turn, StepKind.TOOLS)
    assert (step.round, step.status, step.display) == (1, StepStatus.DONE, "current_time, date_arithmetic")
    assert step.structured == {"added": CLOCK, "unavailable": []}
    assert step.origin == steps_of(turn, StepKind.MODEL)[0].origin
    assert step.extras.encode() == items_of(provider.bodies[1])[-1]
    assert payloads(turn, "tools_added") == [{"step": 3, "count": 2, "tools": CLOCK, "unavailable": []}]
    first, second = all_replies(session)
    assert first.declared_set == first.tool_set == second.declared_set
    assert second.tool_set is not None
    assert list(names_in(second.tool_set.wire)) == [*AT_FIRST, *CLOCK]
    assert second.tool_tokens == first.tool_tokens + step.tool_tokens == second.tool_set.tokens
    assert second.prefix_bytes == first.prompt_bytes


def test_mr_40_a_later_turn_repeats_what_an_earlier_one_added(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."), Say(calls=[named("current_time")]), Say("Noon."))

    run(session)
    turn = run(session, "And now?")

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE]
    for before, body in pairwise(provider.bodies):
        assert_begins_as(body, before)
    assert [added(body) for body in provider.bodies] == [[], [CLOCK], [CLOCK], [CLOCK]]
    assert_repeats(all_replies(session))
    assert steps_of(turn, StepKind.TOOLS) == []


def test_mr_40_what_a_person_loads_between_two_turns_stands_in_front_of_the_message(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say("Hello."))
    run(session)
    load_by_hand(session, "ids")

    turn = run(session, "An id, please.")

    first, second = provider.bodies
    assert_begins_as(second, first)
    assert [item.get("type", item.get("role")) for item in json.loads(second)["input"]] == [
        "system",
        "user",
        "assistant" if "type" not in json.loads(second)["input"][2] else "message",
        "additional_tools",
        "user",
    ]
    (step,) = steps_of(turn, StepKind.TOOLS)
    assert (step.round, step.structured) == (0, {"added": ["uuid"], "unavailable": []})


def test_mr_40_several_loads_come_one_behind_the_other(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("ids", "a")]), Say(calls=[load("clock", "b")]), Say("Both."))

    run(session)

    first, second, third = provider.bodies
    assert_begins_as(second, first)
    assert_begins_as(third, second)
    assert added(third) == [["uuid"], CLOCK]
    assert_repeats(all_replies(session))


def test_mr_40_a_load_never_shows_in_its_own_batch_of_calls(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("ids"), call("uuid")]), Say(calls=[call("uuid", id="again")]), Say("There."))

    turn = run(session)

    told = answers_in(turn)
    assert told[0]["takes_effect"] == "next_round"
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE, StepStatus.REFUSED, StepStatus.DONE]


def test_mr_40_instructions_of_added_tools_are_told_beside_them(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "current_time"), "Say the zone.", actor=alice)
    speak(provider, Say(calls=[load("clock")]), Say("There."))

    run(session)

    first, second = provider.bodies
    assert_begins_as(second, first)
    assert words(second) == ["current_time: Say the zone."]


def test_mr_40_instructions_of_tools_of_the_list_stay_behind_the_prompt(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "calculator"), "Round nothing.", actor=alice)
    speak(provider, Say(calls=[load("clock")]), Say("There."))

    run(session)

    for body in provider.bodies:
        assert json.loads(body)["input"][0]["content"] == "Be brief.\n\ncalculator: Round nothing."


def test_mr_40_each_agent_of_a_session_has_its_own_line(session: ChatSession, provider: ScriptedOpenAI) -> None:
    other = make_agent(session.organisation, provider.url, slug="other", loading_mode=LoadingMode.NATIVE)
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    with organisation_scope(session.organisation_id):
        turn = accepting.accept(session, "And you?", member=session.membership, agent=other).turn

    work(turn)

    assert added(provider.bodies[-1]) == []
    run(session, "And now?")
    assert added(provider.bodies[-1]) == [CLOCK]


def test_mr_40_a_quick_question_leaves_the_line_as_it_is(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    before = provider.bodies[-1]
    with organisation_scope(session.organisation_id):
        quick = accepting.accept(session, "Quick?", member=session.membership, without_tools=True).turn
    work(quick)
    assert "additional_tools" not in provider.bodies[-1].decode()

    run(session, "And now?")

    assert_begins_as(provider.bodies[-1], before)
    assert added(provider.bodies[-1]) == [CLOCK]


def test_mr_40_routing_takes_nothing_back_that_was_declared(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.update(routing_mode=RoutingMode.KEYWORDS)
        Category.objects.filter(name="kit").update(keywords=["sums"])
        touch_registry(session.organisation_id)
    speak(provider)
    run(session, "do my sums")
    turn = run(session, "what is the weather like in the mountains of Peru")

    first, second = provider.bodies
    assert_begins_as(second, first)
    assert "calculator" in declared(first)
    assert steps_of(turn, StepKind.TOOLS) == []


def test_mr_40_the_first_tools_of_a_session_stand_in_the_list_where_an_earlier_turn_had_none(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        RoleMembership.objects.all().delete()
        touch_registry(session.organisation_id)
    speak(provider, Say("Hello."), Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    make_role(session.organisation, session.membership)
    with organisation_scope(session.organisation_id):
        touch_registry(session.organisation_id)

    run(session, "And now?")

    assert [declared(body) for body in provider.bodies] == [[], AT_FIRST, AT_FIRST]
    assert [added(body) for body in provider.bodies] == [[], [], [CLOCK]]


# -- What a worker leaves behind --------------------------------------------------------------------------------------


def lose(turn_id: UUID) -> None:
    """The turn's worker hangs, and another one has it for a moment."""
    expire_lease(turn_id)
    claim = ledger.claim(turn_id, "other")
    assert claim is not None
    with organisation_scope(claim.organisation_id):
        ledger.release(claim)


@pytest.mark.parametrize("by_hand", [False, True])
def test_mr_40_another_worker_sends_the_same_bytes_after_a_crash(
    by_hand: bool, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    """The tools are stored, and the worker dies before the reply is."""
    if by_hand:
        run(session)
        load_by_hand(session, "clock")
    turn = accept(session, "hello")

    def hang(request: Json) -> Say:
        lose(turn.pk)
        return Say("Too late.")

    provider.script = [hang, Say("There.")] if by_hand else [Say(calls=[load("clock")]), hang, Say("There.")]
    work(turn)
    done = work(turn)

    assert (done.status, done.answer) == (TurnStatus.DONE, "There.")
    assert provider.bodies[-1] == provider.bodies[-2]
    assert added(provider.bodies[-1]) == [CLOCK]
    assert len(steps_of(turn, StepKind.TOOLS)) == 1
    assert_repeats(all_replies(session))


def test_mr_40_tools_of_a_turn_that_failed_are_added_by_the_next_one(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("Hello."))
    run(session)
    load_by_hand(session, "clock")
    provider.enqueue(vendors.refusal("No.", status=401))
    failed = run(session, "now?")
    assert (failed.status, len(steps_of(failed, StepKind.TOOLS))) == (TurnStatus.FAILED, 1)

    turn = run(session, "again?")

    assert_begins_as(provider.bodies[-1], provider.bodies[0])
    assert added(provider.bodies[-1]) == [CLOCK]
    assert len(steps_of(turn, StepKind.TOOLS)) == 1


# -- Where it is not known --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"takes_added_tools": False}, "provider"),
        ({"dialect": Dialect.CHAT}, "dialect"),
    ],
)
def test_mr_40_a_provider_that_is_not_known_to_take_it_gets_what_same_run_sends(
    fields: Json, because: str, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_provider(session.organisation, **fields)
    provider.enqueue(Say(calls=[load("clock")]), Say(calls=[named("current_time")]), Say("Noon."))

    turn = run(session)

    assert turn.answer == "Noon."
    assert [len(request["tools"]) for request in provider.requests] == [5, 7, 7]
    assert all(b"additional_tools" not in body for body in provider.bodies)
    told = {"because": because, "mode": "same_run", "model": "scripted"}
    assert payloads(turn, "native_unavailable") == [told]
    assert steps_of(turn, StepKind.TOOLS) == []
    assert [reply.declared_set for reply in all_replies(session)] == [None] * 3


def test_mr_40_a_provider_that_refuses_the_item_is_asked_without_it_and_that_is_learned(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    replies = Say(calls=[load("clock")]), Say(calls=[named("current_time")]), Say("Noon.")
    speak(provider, *replies, check=vendors.knows_no_added_tools)

    turn = run(session)

    assert turn.answer == "Noon."
    assert [declared(body) for body in provider.bodies] == [
        AT_FIRST,
        AT_FIRST,
        [*AT_FIRST, *CLOCK],
        [*AT_FIRST, *CLOCK],
    ]
    assert [bool(added(body)) for body in provider.bodies] == [False, True, False, False]
    assert [told["because"] for told in payloads(turn, "native_unavailable")] == ["refused"]
    assert payloads(turn, "model_learned") == [{"model": "scripted", "learned": "additional_tools is not sent."}]
    assert [bool(reply.declared_set) for reply in all_replies(session)] == [True, False, False]


@pytest.mark.parametrize(
    ("base_url", "switch", "because"),
    [
        ("https://api.openai.com/v1", False, ""),
        ("https://api.openai.com.example.org/v1", False, "provider"),
        ("https://eu.api.openai.com/v1", False, "provider"),
        ("https://models.example.org/v1", False, "provider"),
        ("https://models.example.org/v1", True, ""),
    ],
)
def test_mr_40_only_openais_own_address_is_known_to_take_it(base_url: str, switch: bool, because: str) -> None:
    provider = ResolvedProvider(
        UUID(int=1), "p", "P", base_url, True, Dialect.RESPONSES, "key", takes_added_tools=switch
    )
    refused = Lesson(Teaches.OMIT, "additional_tools")

    assert a_model(provider=provider).why_no_added_tools == because
    assert a_model(provider=provider, dialect_setting=Dialect.CHAT).why_no_added_tools == "dialect"
    assert a_model(provider=provider).with_lesson(refused).why_no_added_tools == (because or "refused")


# -- What may be called -----------------------------------------------------------------------------------------------


def deny(session: ChatSession, name: str) -> None:
    with organisation_scope(session.organisation_id):
        tool = kit_tool(session.organisation, name)
        Grant.objects.create(
            organisation_id=session.organisation_id, membership=session.membership, tool=tool, effect=Effect.DENY
        )
        touch_registry(session.organisation_id)


def test_mr_40_a_tool_that_is_denied_after_it_was_added_does_not_run(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def denied_meanwhile(request: Json) -> Say:
        deny(session, "current_time")
        return Say(calls=[named("current_time")])

    provider.script = [Say(calls=[load("clock")]), denied_meanwhile, Say("I may not.")]

    turn = run(session)

    loaded, refused = tool_steps_of(turn)
    assert (loaded.status, refused.status) == (StepStatus.DONE, StepStatus.REFUSED)
    assert json.loads(refused.result_sent)["error"].startswith("Access denied")


def test_mr_40_what_the_member_may_not_use_any_more_is_not_sent_with_the_next_turn(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    deny(session, "current_time")

    turn = run(session, "And now?")

    body = provider.bodies[-1]
    assert (declared(body), added(body)) == ([*AT_FIRST, "date_arithmetic"], [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["withdrawn"]
    check_request(body)


def test_mr_40_an_unloaded_tool_stays_declared_is_said_to_be_gone_and_is_refused(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."), Say(calls=[named("current_time")]), Say("I cannot."))
    run(session)
    unload_by_hand(session, "clock")

    turn = run(session, "What time is it?")

    for before, body in pairwise(provider.bodies):
        assert_begins_as(body, before)
    said = "These tools are not available any more, and a call of one is refused: current_time, date_arithmetic."
    assert words(provider.bodies[2]) == words(provider.bodies[3]) == [said]
    (refused,) = tool_steps_of(turn)
    assert refused.status == StepStatus.REFUSED
    assert json.loads(refused.result_sent)["toolkit"] == "clock"
    assert_repeats(all_replies(session))


def test_mr_40_a_tool_that_is_loaded_again_is_not_declared_a_second_time(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(
        provider,
        Say(calls=[load("clock", "a")]),
        Say(calls=[unload("clock")]),
        Say("Unloaded."),
        Say(calls=[load("clock", "b")]),
        Say(calls=[named("current_time")]),
        Say("Noon."),
    )
    run(session)
    turn = run(session, "Again.")

    for before, body in pairwise(provider.bodies):
        assert_begins_as(body, before)
    assert added(provider.bodies[-1]) == [CLOCK]
    _, back = words(provider.bodies[-1])
    assert back.endswith(" again: current_time, date_arithmetic.")
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE, StepStatus.DONE]


def test_mr_40_the_model_is_told_of_what_came_and_went_since_and_of_nothing_else(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock", "a"), load("ids", "b")]), Say("Loaded."))
    run(session)
    for change, name in ((unload_by_hand, "clock"), (unload_by_hand, "ids"), (load_by_hand, "ids")):
        change(session, name)
        run(session, "And now?")

    both_went, one_went, one_came = words(provider.bodies[-1])
    assert both_went.startswith("These tools are not available any more")
    assert both_went.endswith(" refused: current_time, date_arithmetic.")
    assert one_went.endswith(" refused: uuid.")
    assert one_came.endswith(" available again: uuid.")


def test_mr_40_long_lists_of_tools_are_cut_for_people_and_whole_for_the_model(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    home = make_category(session.organisation, "kit")
    tools = [
        make_tool(session.organisation, f"a_tool_with_a_long_name_{number:02}", category=home) for number in range(25)
    ]
    allow_toolkit(session.agent, make_toolkit(session.organisation, "many", *tools))
    speak(provider, Say(calls=[load("many")]), Say("Loaded."))

    turn = run(session)
    unload_by_hand(session, "many")
    gone = run(session, "And now?")

    (step,) = steps_of(turn, StepKind.TOOLS)
    (told,), (of_gone,) = payloads(turn, "tools_added"), payloads(gone, "tools_added")
    assert len(step.display) == 300
    assert (told["count"], len(told["tools"]), len(of_gone["unavailable"])) == (25, 20, 20)
    assert len(added(provider.bodies[1])[0]) == words(provider.bodies[-1])[0].count("a_tool_with") == 25


# -- Anew -------------------------------------------------------------------------------------------------------------


def test_mr_40_where_history_is_cut_the_tools_are_declared_anew(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session, "word " * 1_000)
    run(session, "word " * 1_000)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=2_600)

    turn = run(session, "And now?")

    body = provider.bodies[-1]
    assert (declared(body), added(body)) == ([*AT_FIRST, *CLOCK], [])
    check_request(body)
    (told,) = payloads(turn, "tools_declared_anew")
    assert (told["because"], told["count"]) == ("history_cut", 7)
    assert payloads(turn, "history_cut")[0]["turns"] >= 1
    run(session, "And later?")
    assert_begins_as(provider.bodies[-1], body)


def test_mr_40_where_the_provider_finds_it_too_long_the_tools_are_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def check(path: str, request: Json) -> Raw | None:
        too_long = vendors.refusal("Your input exceeds the context window.", code="context_length_exceeded")
        refused = too_long if len(json.dumps(request["input"])) > 9_000 else None
        return refused or vendors.openai_with_added_tools(path, request)

    speak(provider, Say(calls=[load("clock")]), Say("Loaded."), check=check)
    run(session, "word " * 600)
    run(session, "word " * 600)

    turn = run(session, "word " * 600)

    assert turn.status == TurnStatus.DONE
    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, *CLOCK], [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["history_cut"]


def test_mr_40_definitions_of_unloaded_tools_make_room_where_nothing_else_can(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    unload_by_hand(session, "clock")
    first, second = all_replies(session)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=int((second.tool_tokens + 10) / 0.875))

    turn = run(session, "hi")

    assert turn.status == TurnStatus.DONE
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["history_cut"]
    assert all_replies(session)[-1].tool_tokens == first.tool_tokens


def test_mr_40_a_message_that_fits_in_no_way_says_nothing_of_tools(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=8_000)

    turn = run(session, "word " * 9_000)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "context_length")
    assert payloads(turn, "tools_declared_anew") == []


@pytest.mark.parametrize("line", [{"base": 1}, {"model": "", "base": 0, "added": [], "unavailable": []}, 7, None])
def test_mr_40_a_line_that_is_none_of_ours_counts_as_none(
    line: object, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(last_prompt={str(session.agent_id): {"line": line}})

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, *CLOCK], [])


def test_mr_40_more_tools_than_a_request_takes_are_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_provider(session.organisation, tool_limit=7)
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    unload_by_hand(session, "clock")
    load_by_hand(session, "ids")

    turn = run(session, "An id.")

    body = provider.bodies[-1]
    assert added(provider.bodies[1]) == [CLOCK]
    assert (declared(body), added(body), words(body)) == ([*AT_FIRST, "uuid"], [], [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["tool_limit"]


def test_mr_40_base_and_added_tools_are_held_to_the_limit_together(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_provider(session.organisation, tool_limit=6)
    speak(provider, Say(calls=[load("clock")]), Say(calls=[call("date_arithmetic")]), Say("I cannot."))

    turn = run(session)

    body = provider.bodies[-1]
    assert len(declared(body)) + sum(map(len, added(body))) == 6
    assert payloads(turn, "tools_over_limit")[0]["count"] == 1
    check_request(body)


def make_new_version(session: ChatSession, name: str) -> None:
    """The tool has other words."""
    with organisation_scope(session.organisation_id):
        tool = kit_tool(session.organisation, name)
        version = ToolVersion.objects.get(tool=tool)
        version.pk, version.number = None, version.number + 1
        version.wire = version.wire.replace('"description":"', '"description":"New: ', 1)
        version.save()
        Tool.objects.filter(pk=tool.pk).update(current_version=version)
        touch_registry(session.organisation_id)


def test_mr_40_a_tool_of_the_list_with_a_new_version_is_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider)
    run(session)
    make_new_version(session, "calculator")

    turn = run(session, "And now?")

    assert declared(provider.bodies[-1]) == AT_FIRST
    assert tools_of(provider.bodies[-1]) != tools_of(provider.bodies[0])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["changed"]


def test_mr_40_a_tool_with_a_new_version_is_declared_anew(session: ChatSession, provider: ScriptedOpenAI) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    make_new_version(session, "current_time")

    turn = run(session, "And now?")

    body = provider.bodies[-1]
    assert (declared(body), added(body)) == ([*AT_FIRST, *CLOCK], [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["changed"]


@pytest.fixture
def second(session: ChatSession) -> Iterator[ScriptedOpenAI]:
    """The agent's second model, at a provider of its own that takes chat completions."""
    server = ScriptedOpenAI().start()
    with organisation_scope(session.organisation_id):
        own = {"organisation_id": session.organisation_id}
        other = Provider.objects.create(slug="second", name="Second", base_url=server.url, **own)
        Agent.objects.update(fallback_model=LanguageModel.objects.create(provider=other, name="spare", **own))
    yield server
    server.stop()


GONE = Raw(
    json.dumps({"error": {"message": "The model does not exist.", "code": "model_not_found"}}).encode(),
    404,
    {"Content-Type": "application/json"},
)


def test_mr_40_a_second_model_of_another_provider_gets_all_tools_declared(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[load("clock")]), GONE)
    second.enqueue(Say(calls=[named("current_time")]), Say("Noon."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Noon.")
    names = [tool["function"]["name"] for tool in second.requests[0]["tools"]]
    assert names == [*AT_FIRST, *CLOCK]
    assert "additional_tools" not in second.bodies[0].decode()
    assert [told["because"] for told in payloads(turn, "native_unavailable")] == ["dialect"]
    run(session, "And now?")
    assert_begins_as(provider.bodies[-1], provider.bodies[0])
    assert added(provider.bodies[-1]) == [CLOCK]


def test_mr_40_a_second_model_that_takes_it_too_gets_all_tools_declared_anew(
    session: ChatSession, provider: ScriptedOpenAI, second: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect=Dialect.RESPONSES, takes_added_tools=True)
    provider.enqueue(Say(calls=[load("clock")]), GONE)
    second.enqueue(Say(calls=[load("ids")]), Say("Both."))

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert declared(second.bodies[0]) == [*AT_FIRST, *CLOCK]
    assert added(second.bodies[1]) == [["uuid"]]
    assert_begins_as(second.bodies[1], second.bodies[0])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["model"]


# -- Between two turns ------------------------------------------------------------------------------------------------


def accept_of_client(session: ChatSession, message: str) -> Turn:
    """As a client of the gateway that has a tool of its own."""
    own = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    with organisation_scope(session.organisation_id):
        token, _ = issue_token(session.membership, "Test", actor=None)
        asks = ClientAsks(Door.CHAT, token, "digest", tools=[own])
        return accepting.accept(session, message, member=session.membership, asks=asks).turn


def test_mr_40_a_turn_with_tools_of_a_client_sends_all_in_the_list(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(
        provider, Say(calls=[load("clock")]), Say("Loaded."), Say(calls=[named("current_time")]), Say("Noon."), Say(".")
    )
    run(session)

    turn = work(accept_of_client(session, "What time is it?"))

    assert turn.answer == "Noon."
    for body in provider.bodies[2:]:
        assert (declared(body), added(body)) == ([*AT_FIRST, *CLOCK, "weather"], [])
        check_request(body)
    assert [told["because"] for told in payloads(turn, "native_unavailable")] == ["client_tools"]
    run(session, "And now?")
    assert_begins_as(provider.bodies[-1], provider.bodies[1])
    assert added(provider.bodies[-1]) == [CLOCK]


def other_model(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        own = {"organisation_id": session.organisation_id, "provider": Provider.objects.get()}
        Agent.objects.update(model=LanguageModel.objects.create(name="another", **own))


def first_model(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.update(model=LanguageModel.objects.get(name="scripted"))


def test_mr_40_another_model_begins_with_all_tools_and_so_does_the_first_one_when_it_is_back(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)

    other_model(session)
    switched = run(session, "And you?")
    again = run(session, "And now?")

    assert [told["because"] for told in payloads(switched, "tools_declared_anew")] == ["model"]
    assert payloads(again, "tools_declared_anew") == []
    assert_begins_as(provider.bodies[-1], provider.bodies[-2])
    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, *CLOCK], [])
    load_by_hand(session, "ids")
    run(session, "An id.")
    first_model(session)
    back = run(session, "And you?")
    assert [told["because"] for told in payloads(back, "tools_declared_anew")] == ["model"]
    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, *CLOCK, "uuid"], [])
    check_request(provider.bodies[-1])


def test_mr_40_another_model_says_nothing_where_nothing_was_added(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider)
    run(session)
    other_model(session)

    turn = run(session, "And you?")

    assert payloads(turn, "tools_declared_anew") == []
    assert all_replies(session)[-1].prefix_bytes == 0


def test_mr_40_a_provider_that_takes_it_no_more_gets_the_list_and_one_that_does_again_the_line(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    before = provider.bodies[-1]

    set_provider(session.organisation, takes_added_tools=False)
    turn = run(session, "And now?")
    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, *CLOCK], [])
    assert [told["because"] for told in payloads(turn, "native_unavailable")] == ["provider"]
    load_by_hand(session, "ids")
    run(session, "An id.")
    set_provider(session.organisation, takes_added_tools=True)
    run(session, "And now?")

    assert_begins_as(provider.bodies[-1], before)
    assert added(provider.bodies[-1]) == [CLOCK, ["uuid"]]


def switched_off(session: ChatSession, alice: Membership) -> None:
    set_tool_enabled(kit_tool(session.organisation, "current_time"), False, actor=alice)


def denied_by_policy(session: ChatSession, alice: Membership) -> None:
    save_policy(None, PolicyContent(deny=("current_time",)), actor=alice)


def denied_by_policy_of_the_provider(session: ChatSession, alice: Membership) -> None:
    save_policy(Provider.objects.get(), PolicyContent(deny=("current_time",)), actor=alice)


def kept_back(session: ChatSession, alice: Membership) -> None:
    Tool.objects.filter(name="current_time").update(quarantine="It lies.")
    touch_registry(session.organisation_id)


@pytest.mark.parametrize(
    "withdraw",
    [switched_off, denied_by_policy, denied_by_policy_of_the_provider, kept_back],
    ids=lambda each: each.__name__,
)
def test_mr_40_a_tool_that_was_withdrawn_is_in_no_later_request(
    withdraw: Callable[[ChatSession, Membership], None],
    session: ChatSession,
    provider: ScriptedOpenAI,
    alice: Membership,
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    with organisation_scope(session.organisation_id):
        withdraw(session, alice)

    turn = run(session, "And now?")
    run(session, "And later?")

    for body in provider.bodies[2:]:
        assert (declared(body), added(body)) == ([*AT_FIRST, "date_arithmetic"], [])
        assert b'"current_time"' not in tools_of(body)
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["withdrawn"]


def test_mr_40_an_own_tool_that_the_agent_lost_stays_declared_and_is_refused(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    speak(provider, Say("Hello."), Say(calls=[call("calculator", {"expression": "1+1"})]), Say("I cannot."))
    run(session)
    with organisation_scope(session.organisation_id):
        AgentTool.objects.filter(tool__name="calculator").delete()
        touch_registry(session.organisation_id)

    turn = run(session, "One and one?")

    assert_begins_as(provider.bodies[1], provider.bodies[0])
    (went,) = words(provider.bodies[1])
    assert went.endswith(" refused: calculator.")
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED]


def test_mr_40_what_was_added_stays_byte_for_byte_when_another_release_would_write_it_otherwise(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."), Say(calls=[load("ids", "b")]), Say("Both."))
    run(session)

    def spaced(wire: str) -> str:
        return json.dumps(json.loads(added_tools(wire)))

    monkeypatch.setattr("sessions.loop.conversation.added_tools.added_tools", spaced)
    run(session, "More.")

    first, *_, last = provider.bodies
    assert_begins_as(last, provider.bodies[1])
    assert added(last) == [CLOCK, ["uuid"]]
    assert tools_of(last) == tools_of(first)


def test_mr_40_agents_that_share_loads_have_what_was_loaded_once_each(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    other = make_agent(session.organisation, provider.url, slug="other", loading_mode=LoadingMode.NATIVE)
    with organisation_scope(session.organisation_id):
        for each in Toolkit.objects.filter(name__in=("clock", "ids")):
            allow_toolkit(other, each)
        ChatSession.objects.filter(pk=session.pk).update(shares_loads=True)
    speak(
        provider, Say(calls=[load("clock")]), Say("Loaded."), Say("Mine."), Say(calls=[load("ids", "b")]), Say("Both.")
    )
    run(session)
    with organisation_scope(session.organisation_id):
        turn = accepting.accept(session, "And you?", member=session.membership, agent=other).turn
    work(turn)

    assert set(CLOCK) <= set(declared(provider.bodies[2]))
    assert added(provider.bodies[2]) == []
    run(session, "And now?")
    assert_begins_as(provider.bodies[3], provider.bodies[1])
    assert added(provider.bodies[-1]) == [CLOCK, ["uuid"]]


# -- Workers ----------------------------------------------------------------------------------------------------------


def test_mr_40_words_of_what_is_gone_are_sent_again_after_a_crash(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    """They are stored, and the worker dies before the reply is."""
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    unload_by_hand(session, "clock")
    turn = accept(session, "Now?")

    def hang(request: Json) -> Say:
        lose(turn.pk)
        return Say("Too late.")

    provider.script = [hang, Say("There.")]
    work(turn)
    done = work(turn)

    assert done.answer == "There."
    assert provider.bodies[-1] == provider.bodies[-2]
    assert len(steps_of(turn, StepKind.TOOLS)) == 1


def test_mr_40_what_is_loaded_while_no_worker_has_the_turn_comes_behind_what_was_stored(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    turn = accept(session, "hello")

    def hang(request: Json) -> Say:
        load_by_hand(session, "ids")
        lose(turn.pk)
        return Say("Too late.")

    provider.script = [Say(calls=[load("clock")]), hang, Say("There.")]
    work(turn)
    work(turn)

    _, second, third = provider.bodies
    assert_begins_as(third, second)
    assert added(third) == [CLOCK, ["uuid"]]
    assert [told["tools"] for told in payloads(turn, "tools_added")] == [CLOCK, ["uuid"]]
    assert_repeats(all_replies(session)[:1])


def test_mr_40_a_worker_that_lost_the_turn_stores_nothing(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs between its selection and the step, and another worker adds the tools meanwhile."""
    turn = accept(session, "hello")
    speak(provider, Say(calls=[load("clock")]), Say("There."), Say("Too late."))
    hung: list[bool] = []

    def hang(*args: Any) -> ToolSet:
        if not hung:
            hung.append(True)
            lose(turn.pk)
            work(turn)
        return keep_tool_set(*args)

    monkeypatch.setattr("sessions.loop.conversation.added_tools.keep_tool_set", hang)
    done = work(turn)

    assert (done.status, done.answer) == (TurnStatus.DONE, "There.")
    assert [added(body) for body in provider.bodies] == [[], [CLOCK]]
    assert len(steps_of(turn, StepKind.TOOLS)) == len(payloads(turn, "tools_added")) == 1


# -- Limits -----------------------------------------------------------------------------------------------------------


def test_mr_40_what_is_loaded_behind_the_last_continuation_is_added_in_the_next_turn(
    session: ChatSession, provider: ScriptedOpenAI, settings: Any
) -> None:
    settings.TOOLHUB_MAX_CONTINUATIONS = 1
    speak(provider, Say(calls=[load("clock", "a")]), Say(calls=[load("ids", "b")]), Say("Both."))

    run(session)
    assert [added(body) for body in provider.bodies] == [[], [CLOCK], [CLOCK]]
    run(session, "And now?")

    assert_begins_as(provider.bodies[-1], provider.bodies[-2])
    assert added(provider.bodies[-1]) == [CLOCK, ["uuid"]]


def test_mr_40_where_a_result_must_be_cut_all_tools_are_declared_and_stay_so(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    """Older turns fall out for this once, and what was added between them."""
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."), Say("word " * 1_500))
    run(session)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=2_600)
    long = [call("calculator", {"expression": "1+" * 900 + "1"}, id=f"call_{number}") for number in range(3)]
    speak(provider, Say(calls=long), Say("There."))

    turn = run(session, "Add.")

    body = provider.bodies[-1]
    assert turn.status == TurnStatus.DONE
    assert (declared(body), added(body)) == ([*AT_FIRST, *CLOCK], [])
    check_request(body)
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["history_cut"]
    assert payloads(turn, "history_cut")[-1]["turns"] == 1
    run(session, "And now?")
    assert tools_of(provider.bodies[-1]) == tools_of(body)


def test_mr_40_that_it_cannot_be_is_said_once_a_turn(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_provider(session.organisation, takes_added_tools=False)
    provider.enqueue(Say(calls=[load("clock", "a")]), Say(calls=[load("ids", "b")]), Say("Both."), Say("Again."))

    turns = [run(session), run(session, "again")]

    assert [len(payloads(turn, "native_unavailable")) for turn in turns] == [1, 1]


def test_mr_40_a_tool_that_would_ask_is_not_sent_on_where_nobody_could_answer(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    speak(provider, Say(calls=[load("clock")]), Say("Loaded."))
    run(session)
    with organisation_scope(session.organisation_id):
        create_rule(RuleContent(tool_pattern="current_time"), actor=alice)
        Agent.objects.update(client_approvals=ClientApprovals.HIDE)
        touch_registry(session.organisation_id)
        token, _ = issue_token(session.membership, "Test", actor=None)
        asks = ClientAsks(Door.CHAT, token, "digest")
        asked = accepting.accept(reread(session), "What time is it?", member=session.membership, asks=asks).turn

    turn = work(asked)

    assert (declared(provider.bodies[-1]), added(provider.bodies[-1])) == ([*AT_FIRST, "date_arithmetic"], [])
    assert [told["because"] for told in payloads(turn, "tools_declared_anew")] == ["withdrawn"]
