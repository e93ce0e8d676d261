"""What a routed agent sends: whole turns against a scripted provider, in the words of the issue's acceptance."""

from __future__ import annotations

import pytest

from capabilities.models import RoutingMode
from sessions.models import ChatSession
from tests.cast import make_role
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import carried
from tests.sessions.routed import HA, WEB, first_step, make_routed_session, set_routing
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Membership

pytestmark = [pytest.mark.django_db(transaction=True)]

MODES = (RoutingMode.KEYWORDS, RoutingMode.HYBRID)
#: Those that tell small talk from a wish.
GATED = (RoutingMode.KEYWORDS,)
SEARCH = "search_tools"


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_routed_session(bob, provider.url)


def sent_for(session: ChatSession, provider: ScriptedOpenAI, message: str) -> list[str]:
    """Names of the tools that a turn with this message carries at first."""
    seen = len(provider.requests)
    run(session, message)
    return carried(provider.requests[seen])


@pytest.mark.parametrize("mode", MODES)
def test_cx_12_only_the_tools_that_a_message_needs_go_out(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode
) -> None:
    set_routing(session, routing_mode=mode)

    sent = sent_for(session, provider, "Turn off kitchen lights")

    assert set(sent) >= HA
    assert 3 <= len(sent) <= 9
    assert SEARCH in sent


def test_cx_13_each_round_carries_the_same_tools(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("task_list", {})]), Say(calls=[call("task_list", {}, id="two")]), Say("None."))

    run(session, "What is on my todo list? Show each task.")

    first, second, third = (carried(request) for request in provider.requests)
    assert "task_list" in first
    assert first == second == third


@pytest.mark.parametrize("mode", GATED)
@pytest.mark.parametrize("message", ["Good morning", "test", "What do you think?", "Hey can you check something"])
def test_cx_14_19_20_small_talk_sends_the_search_tool_alone(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str
) -> None:
    set_routing(session, routing_mode=mode)

    assert sent_for(session, provider, message) == [SEARCH]


def test_cx_16_18_21_matching_ignores_case_and_unites_categories(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_routing(session, routing_mode=RoutingMode.KEYWORDS)

    sent = set(sent_for(session, provider, "SEARCH JOURNALS for ideas"))

    assert sent >= WEB | {"ae_journal_search"}
    assert len(sent - {SEARCH}) == 12  # CX-41


@pytest.mark.parametrize("mode", GATED)
@pytest.mark.parametrize(
    "message",
    [
        "Thanks for the feedback!",
        "I love digital art.",
        "Multitasking is hard.",
        "That was the highlight of my day.",
        "My favourite vegetable is kale.",
        "My keyboard is loud.",
        "I want to establish a healthy routine.",
    ],
)
def test_cx_24_parts_of_words_send_nothing(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str
) -> None:
    set_routing(session, routing_mode=mode)

    assert sent_for(session, provider, message) == [SEARCH]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("message", ["yes, do it", "Go ahead"])
def test_cx_26_a_follow_up_keeps_the_tools_of_the_last_turn(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str
) -> None:
    set_routing(session, routing_mode=mode)
    provider.enqueue(Say("Shall I turn off the kitchen lights?"))
    before = sent_for(session, provider, "The kitchen lights are still on, can you turn them off?")

    assert sent_for(session, provider, message) == before
    assert set(before) >= HA


def test_a_step_keeps_what_routing_did(session: ChatSession, provider: ScriptedOpenAI) -> None:
    turn = run(session, "Turn off the kitchen lights")

    step = first_step(turn)
    record = step.routing
    assert record["mode"] == "hybrid"
    assert "ha" in record["categories"]
    assert record["dropped"] > 10
    assert record["all_tokens"] == step.all_tool_tokens > 5 * sum(len(carried(provider.requests[0])) for _ in "x")
    by_router = {each["tool"]: each for each in step.verdicts if each["stage"] == "router"}
    assert by_router["ha_call_service"]["kept"]
    assert by_router["git_log"] == {
        "tool": "git_log",
        "stage": "router",
        "kept": False,
        "reason": "not needed for this message",
    }


def test_a_wrong_guess_is_repaired_by_a_search_within_the_turn(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(
        Say(calls=[call(SEARCH, {"query": "create a task"}, id="look")]),
        Say(calls=[call("task_create", {"title": "buy milk"}, id="make")]),
        Say("Noted."),
    )

    turn = run(session, "Good morning")

    first, second, third = (carried(request) for request in provider.requests)
    assert first == [SEARCH]
    assert "task_create" in second
    assert second[0] == SEARCH
    assert third == second
    assert [(step.tool_name, step.status) for step in tool_steps_of(turn)] == [
        (SEARCH, "done"),
        ("task_create", "done"),
    ]


def test_a_tool_that_is_called_by_its_name_comes_with_the_next_round(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(
        Say(calls=[call("git_log", {}, id="early")]), Say(calls=[call("task_list", {}, id="two")]), Say("There.")
    )

    turn = run(session, "Good morning")

    early, _ = tool_steps_of(turn)
    assert early.status == "refused"
    assert "It comes with your next step" in early.result_sent
    first, second, third = (carried(request) for request in provider.requests)
    assert (first, second) == ([SEARCH], [SEARCH, "git_log"])
    assert third == [SEARCH, "git_log", "task_list"]
