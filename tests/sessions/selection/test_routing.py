"""What a routed agent sends: whole turns against a scripted provider, in the words of the issue's acceptance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.agents.agents.queries import agent_or_404
from capabilities.choosing.pipeline.routing import NEVER_CHANGES, SEARCH_ALONE, SMALL_TALK
from capabilities.common.registry_version import touch_registry
from capabilities.models import AgentTool, LanguageModel, LoadingMode, Provider, RoutingMode
from sessions.asking.approvals.writes import approve
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.models import Approval, ChatSession, Step, Turn, TurnStatus
from sessions.selection.queries import select_tools, selection_preview
from sessions.turns import accepting
from tests.cast import allow_toolkit, make_role, make_tool, make_toolkit
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import carried, reread
from tests.sessions.routed import HA, WEB, first_step, make_routed_session, set_routing
from tests.sessions.run_turns import run, tool_steps_of, verdicts_of, work
from tests.sessions.steps import expire_lease
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.django_db(transaction=True)]

MODES = (RoutingMode.KEYWORDS, RoutingMode.HYBRID)
SEARCH = "search_tools"


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_routed_session(bob, provider.url)


#: What no tool of the session is for, and no small talk.
UNMATCHED = "Deploy the demo app to AWS"


def sent_for(session: ChatSession, provider: ScriptedOpenAI, message: str) -> list[str]:
    """Names of the tools that a turn with this message carries at first."""
    seen = len(provider.requests)
    run(session, message)
    return carried(provider.requests[seen])


def let_load(session: ChatSession) -> None:
    """The session's agent may load a toolkit."""
    with organisation_scope(session.organisation_id):
        docker = make_tool(session.organisation, "docker")
        allow_toolkit(session.agent, make_toolkit(session.organisation, "devops", docker))
        touch_registry(session.organisation_id)


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


@pytest.mark.parametrize("loads", [False, True], ids=["own tools", "loads others"])
@pytest.mark.parametrize("message", ["Good morning", "test", "What do you think?", "Hey can you check something"])
def test_cx_14_19_20_where_no_keyword_matches_nothing_is_sent(
    session: ChatSession, provider: ScriptedOpenAI, message: str, loads: bool
) -> None:
    set_routing(session, routing_mode=RoutingMode.KEYWORDS)
    if loads:
        let_load(session)

    assert sent_for(session, provider, message) == []
    assert "tools" not in provider.requests[-1]


@pytest.mark.parametrize("loads", [False, True], ids=["own tools", "loads others"])
@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ("Good morning", []),
        ("Hello!", []),
        ("Thanks, that was all", []),
        ("thank you so much", []),
        ("How are you?", []),
        ("thx", []),
        ("👋", []),
        ("Hey can you check something", []),
        ("What can you do?", [SEARCH]),
        (UNMATCHED, [SEARCH]),
    ],
)
def test_cx_14_20_small_talk_is_sent_nothing_and_what_matches_nothing_the_search_alone(
    session: ChatSession, provider: ScriptedOpenAI, message: str, sent: list[str], loads: bool
) -> None:
    set_routing(session, routing_mode=RoutingMode.HYBRID)
    if loads:
        let_load(session)

    assert sent_for(session, provider, message) == sent


@pytest.mark.parametrize("mode", MODES)
def test_cx_14_what_loads_others_goes_with_a_match(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode
) -> None:
    set_routing(session, routing_mode=mode)
    let_load(session)

    assert {"load_tools", "list_toolkits"} < set(sent_for(session, provider, "Create a task"))
    assert sent_for(session, provider, "Good morning") == []


def test_a_search_that_finds_what_can_be_loaded_brings_what_loads_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    let_load(session)
    provider.enqueue(Say(calls=[call(SEARCH, {"query": "docker"})]), Say("So."))

    turn = run(session, UNMATCHED)

    assert [carried(request) == [SEARCH] for request in provider.requests] == [True, False]
    assert "load_tools" in carried(provider.requests[1])
    reasons = {each["tool"]: each["reason"] for each in verdicts_of(first_step(turn)) if not each["kept"]}
    assert reasons["load_tools"] == SEARCH_ALONE


def test_what_loads_others_comes_when_it_is_asked_for(session: ChatSession, provider: ScriptedOpenAI) -> None:
    let_load(session)
    provider.enqueue(
        Say(calls=[call("list_toolkits", {}, id="early")]), Say(calls=[call("list_toolkits", {}, id="two")]), Say("So.")
    )

    turn = run(session, "Good morning")

    early, again = tool_steps_of(turn)
    assert "It comes with your next step" in early.result_sent
    assert again.status == "done"
    assert carried(provider.requests[0]) == []
    assert "load_tools" in carried(provider.requests[1])
    first = first_step(turn)
    assert {each["tool"]: each["reason"] for each in verdicts_of(first) if not each["kept"]}["load_tools"] == SMALL_TALK


def test_cx_16_18_21_matching_ignores_case_and_unites_categories(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_routing(session, routing_mode=RoutingMode.KEYWORDS)

    sent = set(sent_for(session, provider, "SEARCH JOURNALS for ideas"))

    assert sent >= WEB | {"ae_journal_search"}
    assert len(sent - {SEARCH}) == 12  # CX-41


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "message",
    [
        "Thanks for the feedback!",
        "I love digital art.",
        "Multitasking is hard.",
        "That was the highlight of my day.",
        "My favourite vegetable is kale.",
        "My keyboard is loud.",
        "I want to establish a healthy habit.",
    ],
)
def test_cx_24_parts_of_words_send_nothing(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str
) -> None:
    set_routing(session, routing_mode=mode)

    assert set(sent_for(session, provider, message)) <= ({SEARCH} if mode == RoutingMode.HYBRID else set())


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
    by_router = {each["tool"]: each for each in verdicts_of(step) if each["stage"] == "router"}
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

    turn = run(session, UNMATCHED)

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

    turn = run(session, UNMATCHED)

    early, _ = tool_steps_of(turn)
    assert early.status == "refused"
    assert "It comes with your next step" in early.result_sent
    first, second, third = (carried(request) for request in provider.requests)
    assert (first, second) == ([SEARCH], [SEARCH, "git_log"])
    assert third == [SEARCH, "git_log", "task_list"]


# -- Decided once a turn ----------------------------------------------------------------------------------------------


def test_a_turn_that_crashed_keeps_what_was_decided(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[call("git_status", {})]), Say("Nothing."))
    with monkeypatch.context() as patch:
        patch.setattr("sessions.loop.run.turn.answer_calls", killed)
        with pytest.raises(KilledError):
            run(session, "Show the git status of the repository")
    set_routing(session, routing_mode=RoutingMode.KEYWORDS, routing_tokens=100)
    turn = last_turn(session)
    expire_lease(turn.pk)

    turn = work(turn)

    assert turn.status == TurnStatus.DONE
    first, second = (carried(request) for request in provider.requests)
    assert first == second
    assert {"git_status", SEARCH} <= set(first)


class KilledError(BaseException):
    """The worker died here."""


def killed(*args: Any, **more: Any) -> None:
    raise KilledError


def last_turn(session: ChatSession) -> Turn:
    with organisation_scope(session.organisation_id):
        return Turn.objects.filter(session=session).latest("seq")


def test_a_tool_that_was_found_stays_after_a_crash(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(
        Say(calls=[call(SEARCH, {"query": "create a task"})]), Say(calls=[call("task_list", {}, id="b")]), Say("Ok.")
    )
    with monkeypatch.context() as patch:
        patch.setattr("sessions.loop.model_calls.sent_tools.select_tools", killed_the_second_time(select_tools))
        with pytest.raises(KilledError):
            run(session, UNMATCHED)
    turn = last_turn(session)
    expire_lease(turn.pk)

    work(turn)

    first, second, third = (carried(request) for request in provider.requests)
    assert first == [SEARCH]
    assert "task_create" in second
    assert third == second


def killed_the_second_time(select: Callable[..., Any]) -> Callable[..., Any]:
    times = iter([False, True])
    return lambda *args, **more: killed() if next(times) else select(*args, **more)


def test_a_wait_for_a_person_keeps_what_was_decided(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation):
        create_rule(RuleContent("asks", tool_pattern="task_create"), actor=alice)
    provider.enqueue(Say(calls=[call("task_create", {"title": "milk"})]), Say("Done."))

    turn = run(session, "Create a task: buy milk")
    assert turn.status == TurnStatus.WAITING_APPROVAL
    with organisation_scope(session.organisation):
        approve(Approval.objects.get(), actor=session.membership)
    turn = work(turn)

    assert turn.status == TurnStatus.DONE
    first, second = (carried(request) for request in provider.requests)
    assert "task_create" in first
    assert first == second


# -- What stays -------------------------------------------------------------------------------------------------------


def test_pinned_tools_and_tools_of_open_calls_stay(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation):
        AgentTool.objects.filter(tool__name="git_diff").update(is_pinned=True)
        touch_registry(session.organisation_id)
        LanguageModel.objects.update(max_rounds=1)
    set_routing(session, routing_mode=RoutingMode.KEYWORDS)
    provider.enqueue(Say(calls=[call("task_list", {})]))

    run(session, "What is on my todo list?")

    assert set(sent_for(session, provider, "Good morning")) == {"git_diff", "task_list", SEARCH}
    assert sent_for(session, provider, "Good evening") == ["git_diff"]


@pytest.mark.parametrize(
    ("mode", "message", "more"),
    [
        (RoutingMode.KEYWORDS, "Good morning", []),
        (RoutingMode.KEYWORDS, UNMATCHED, []),
        (RoutingMode.HYBRID, "Good morning", []),
        (RoutingMode.HYBRID, UNMATCHED, [SEARCH]),
    ],
)
def test_cx_14_a_pinned_tool_is_no_match(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str, more: list[str]
) -> None:
    with organisation_scope(session.organisation):
        AgentTool.objects.filter(tool__name="git_diff").update(is_pinned=True)
    set_routing(session, routing_mode=mode)
    let_load(session)

    assert sent_for(session, provider, message) == ["git_diff", *more]


def test_a_tool_that_the_message_names_goes(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_routing(session, routing_mode=RoutingMode.KEYWORDS)

    assert sent_for(session, provider, "Hello, what does http_fetch do?") == ["http_fetch", SEARCH]
    assert first_step(last_turn(session)).routing["why"] == {"http_fetch": "named in the message"}


def test_tools_of_earlier_messages_stay_where_the_provider_keeps_them(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation):
        Provider.objects.update(keeps_routed_tools=True)

    lights = sent_for(session, provider, "Turn off the kitchen lights")
    again = sent_for(session, provider, "Turn on the bedroom light")
    more = sent_for(session, provider, "Show the git log")
    talk = sent_for(session, provider, "Good morning")

    assert again == lights
    assert more[: len(lights)] == lights
    assert "git_log" in more[len(lights) :]
    assert talk == more
    assert first_step(last_turn(session)).prefix_bytes > 0


@pytest.mark.parametrize("mode", MODES)
def test_cx_14_what_loads_others_stays_only_where_it_was_sent_before(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode
) -> None:
    set_routing(session, routing_mode=mode)
    let_load(session)
    with organisation_scope(session.organisation):
        Provider.objects.update(keeps_routed_tools=True)

    talk = [sent_for(session, provider, message) for message in ("Hello!", "How are you?")]
    searches = sent_for(session, provider, UNMATCHED)
    thanks = sent_for(session, provider, "Thanks!")
    task = sent_for(session, provider, "Create a task")

    assert talk == [[], []]
    assert searches == ([SEARCH] if mode == RoutingMode.HYBRID else [])
    assert thanks == searches
    assert {"load_tools", "task_create"} < set(task)
    assert sent_for(session, provider, "Thanks!") == task


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answer", "is_open"),
    [
        ("Done. Is there anything else I can help you with?", False),
        ("Done.", False),
        ("Which list shall it be on?", True),
    ],
)
def test_cx_14_thanks_for_what_is_done_are_sent_nothing(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, answer: str, is_open: bool
) -> None:
    set_routing(session, routing_mode=mode)
    let_load(session)
    provider.enqueue(Say(answer))
    run(session, "Create a task: buy milk")

    assert bool(sent_for(session, provider, "Thanks!")) is is_open


def test_the_tools_that_stay_stand_where_they_stood(session: ChatSession, provider: ScriptedOpenAI) -> None:
    lights = sent_for(session, provider, "Turn off the kitchen lights")

    both = sent_for(session, provider, "Turn off the kitchen lights and show the git log")

    kept = [name for name in lights if name in both]
    assert both[: len(kept)] == kept


def test_messages_decide_nothing_where_tools_never_change(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_routing(session, loading_mode=LoadingMode.CONSTANT)
    with organisation_scope(session.organisation):
        touch_registry(session.organisation_id)

    sent = sent_for(session, provider, "Good morning")

    assert len(sent) > 20
    step = first_step(last_turn(session))
    assert step.routing == {}
    with organisation_scope(session.organisation):
        preview = selection_preview(reread(session), message="Good morning")
    assert {each.reason for each in preview.verdicts if each.stage == "router"} == {NEVER_CHANGES}


def test_a_quick_question_leaves_what_is_known_of_the_conversation(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("Shall I turn them off?"))
    before = sent_for(session, provider, "The kitchen lights are on")
    with organisation_scope(session.organisation_id):
        work(accepting.accept(session, "What is a lumen?", member=session.membership, without_tools=True).turn)

    assert sent_for(session, provider, "yes, do it") == before


# -- One answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["Turn off the kitchen lights", "Good morning", "search journals for ideas"])
def test_every_page_says_what_the_turn_does(
    session: ChatSession, provider: ScriptedOpenAI, client: Client, message: str
) -> None:
    client.force_login(session.membership.user)
    rest = Rest(session.membership)
    query = urlencode({"message": message})

    before = rest.get(f"sessions/{session.pk}/tools?{query}").json
    fresh = rest.get(f"agents/{session.agent.slug}/tools?{query}").json
    explained = rest.get(f"explain?{query}&session={session.pk}&state=sent").json
    page = client.get(f"/o/acme/agents/{session.agent.slug}/?{query}").content.decode()
    turn = run(session, message)

    sent = carried(provider.requests[0])
    step = first_step(turn)
    assert [tool["function"]["name"] for tool in before["tools"]] == sent
    assert before["sha256"] == fresh["sha256"]
    assert (before["tokens"], before["all_tokens"]) == (step.tool_tokens, step.all_tool_tokens)
    assert (explained["sent"], explained["tokens"], explained["all_tokens"]) == (
        len(sent),
        step.tool_tokens,
        step.all_tool_tokens,
    )
    assert {each["tool"] for each in explained["results"]} == set(sent)
    assert {each["tool"] for each in verdicts_of(step) if each["stage"] == "router" and each["kept"]} == set(sent) - {
        SEARCH
    }
    part = page.split('id="message"')[1].split("Tools that a message may bring")[0]
    assert re.findall(r'class="mono"[^>]*>([^<]+)</a>', part) == sent
    assert all(each["stops"] is False for row in explained["results"] for each in row["verdicts"])


def test_explain_says_what_would_bring_a_tool_that_was_left_out(session: ChatSession, client: Client) -> None:
    rest = Rest(session.membership)

    (tool,) = rest.get("explain?message=Good%20morning&q=git_log&state=stopped").json["results"][:1]

    assert tool["tool"] == "git_log"
    assert tool["first_stop"] == "router"
    assert tool["sentence"] == f"Starter does not send git_log for {session.membership}: not needed for this message."
    assert [each["code"] for each in tool["changes"]] == ["pin_tool", "route_nothing"]


@pytest.mark.parametrize("code", ["pin_tool", "route_nothing"])
def test_what_explain_says_of_a_tool_that_was_left_out_is_so(
    session: ChatSession, alice: Membership, code: str
) -> None:
    with organisation_scope(session.organisation):
        subject = Subject(session.membership, agent_or_404(session.agent.slug, alice), None)
        asked = Asked(tool="git_log", message="Good morning")
        (before,) = explain(subject, asked).tools
        write = next(each.write for each in before.changes if each.code == code)
        assert write is not None
        write(alice)

        subject = Subject(session.membership, agent_or_404(session.agent.slug, alice), None)
        (after,) = explain(subject, asked).tools

    assert (before.reasons.is_sent, after.reasons.is_sent) == (False, True)


# -- Hostile messages and strangers -----------------------------------------------------------------------------------

HOSTILE = [
    "git " * 25_000,
    "a_b" * 33_333,
    "x" * 100_000,
    "turn off the kitchen lights \ufffd\u202e" + "🌩" * 40_000,
    "“" * 50_000 + "task_create" + "_" * 49_000,
]


@pytest.mark.parametrize("message", HOSTILE, ids=["words", "one name", "one word", "signs", "a name in quotes"])
@pytest.mark.parametrize("mode", MODES)
def test_a_message_of_100_000_characters_is_routed_and_little_of_it_is_kept(
    session: ChatSession, provider: ScriptedOpenAI, mode: RoutingMode, message: str
) -> None:
    set_routing(session, routing_mode=mode)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=1_000_000)

    turn = run(session, message)

    assert turn.status == TurnStatus.DONE
    assert len(json.dumps(first_step(turn).routing)) < 10_000
    assert len(json.dumps(reread(session).last_prompt)) < 20_000
    assert run(session, "yes, do it").status == TurnStatus.DONE


def test_what_a_session_keeps_for_routing_may_be_nonsense(session: ChatSession, provider: ScriptedOpenAI) -> None:
    for stored in (
        "nonsense",
        {"sent": "all", "messages": 7, "open_calls": [{}, None], "unfinished": "yes"},
        {"sent": [0, -1, None]},
    ):
        with organisation_scope(session.organisation_id):
            ChatSession.objects.update(last_prompt={str(session.agent_id): {"routing": stored}})

        assert sent_for(session, provider, "Good morning") == []


def test_what_a_step_keeps_of_routing_may_be_nonsense(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=[call("git_log", {})]), Say("There."))
    with monkeypatch.context() as patch:
        patch.setattr("sessions.loop.run.turn.answer_calls", killed)
        with pytest.raises(KilledError):
            run(session, UNMATCHED)
    turn = last_turn(session)
    with organisation_scope(session.organisation_id):
        Step.objects.update(routing={"kept": "everything", "why": [1], "wanted": {"a": 1}})
    expire_lease(turn.pk)

    assert work(turn).status == TurnStatus.DONE
    assert carried(provider.requests[1]) == [SEARCH, "git_log"]


def test_a_stranger_learns_nothing_by_a_message(session: ChatSession, charlie: Membership) -> None:
    rest = Rest(charlie)
    message = "Turn off the kitchen lights with ha_call_service"

    answers = [
        rest.get(f"sessions/{session.pk}/tools", message=message),
        rest.get(f"agents/{session.agent.slug}/tools", message=message),
        rest.get("explain", message=message, session=str(session.pk)),
        rest.get("explain", message=message, agent=session.agent.slug),
    ]

    assert [answer.status for answer in answers] == [404, 404, 400, 400]
    assert not any("ha_call_service" in answer.text for answer in answers)
