"""Calls that cannot end at once, through whole turns: forms, links, long tasks. tests/test_postgres.py runs this file
on PostgreSQL."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.contract.context import InputNeeded, LinkNeeded, TaskStarted, ToolContext
from capabilities.models import (
    CredentialKind,
    CredentialScope,
    SecretStatus,
    StoredCredential,
    StoredSecret,
    Tool,
)
from sessions.asking.approvals import queries, writes
from sessions.asking.approvals.writes import ContentRefused
from sessions.loop.calls import call_waits, task_cancels
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.run import parking
from sessions.models import (
    Approval,
    ApprovalKind,
    ApprovalStatus,
    CallWait,
    ChatSession,
    Step,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns import ledger, waiting
from sessions.turns.fencing import Conflict
from sessions.turns.reaping import reap
from sessions.worker import process
from tests.cast import make_member
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.far_sides import FarSide, book_with, make_booking
from tests.sessions.run_turns import accept, events_of, run, tool_steps_of, work
from tests.sessions.steps import change, expire_lease, reread
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

SEAT = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}
FORM = InputNeeded("Which seat?", schema=SEAT, state="round 1")
LINK = LinkNeeded("Agree there.", url="https://far.example/agree?x=1", state="round 1")
TASK = TaskStarted("It is being booked.", seconds=5, state="task 7")


@pytest.fixture
def far_side(session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> FarSide:
    """Books seats for an agent that asks for one."""
    make_booking(session.organisation)
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "any"})]), Say("Booked."))
    return book_with(monkeypatch, FarSide({"booked": "4a"}))


def asked_of(turn: Turn) -> list[Approval]:
    with organisation_scope(turn.organisation_id):
        return list(queries.approvals_of_turn(turn))


def answer(turn: Turn, action: str = "accept", actor: Membership | None = None, **content: Any) -> Turn:
    """Answer the last thing that the turn asks, and let a worker go on."""
    approval = asked_of(turn)[-1]
    with organisation_scope(turn.organisation_id):
        writes.answer(approval, actor=actor or approval.requester, action=action, content=content)
    return work(reread(turn))


def waits_of(turn: Turn) -> list[CallWait]:
    with organisation_scope(turn.organisation_id):
        return list(CallWait.objects.filter(turn=turn))


def make_due(turn: Turn) -> None:
    """As if the moment had come to ask for the turn's tasks."""
    with system_scope():
        CallWait.objects.filter(turn=turn, is_task=True).update(poll_at=ledger.from_now(-1))


def ask_again(turn: Turn) -> Turn:
    """What workers do when the moment has come."""
    make_due(turn)
    reap()
    return work(reread(turn))


def error_of(step: Step) -> str:
    return str(json.loads(step.result)["error"])


# -- Forms ------------------------------------------------------------------------------------------------------------


def test_a_form_waits_for_its_member_and_the_same_call_goes_on(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM, {"booked": "4a"}]

    turn = run(session)

    (step,), (approval,), (wait,) = tool_steps_of(turn), asked_of(turn), waits_of(turn)
    assert (turn.status, turn.owner, turn.lease_until) == (TurnStatus.WAITING_INPUT, "", None)
    assert (step.status, step.result) == (StepStatus.WAITING, "")
    assert (approval.kind, approval.status, approval.for_people) == (ApprovalKind.INPUT, "pending", "Which seat?")
    assert (approval.form, approval.requester_id) == (SEAT, session.membership_id)
    assert (wait.state, wait.times) == ("round 1", 1)
    assert events_of(turn)[-3:] == ["tool_started", "input_requested", "waiting_input"]

    turn = answer(turn, seat="4a")

    (step,), (approval,) = tool_steps_of(turn), asked_of(turn)
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Booked.")
    assert (step.status, step.result) == (StepStatus.DONE, '{"booked": "4a"}')
    assert (approval.status, approval.action, approval.decided_by_id) == ("responded", "accept", session.membership_id)
    assert far_side.resumed == [None, ("round 1", "accept", {"seat": "4a"})]
    assert len({each.idempotency_key for each in far_side.calls}) == 1
    assert waits_of(turn) == []


def test_state_and_content_are_encrypted_where_they_are_stored(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM, FORM]
    turn = answer(run(session), seat="my own seat")

    with connection.cursor() as cursor:
        cursor.execute("SELECT state FROM toolhub_sessions_callwait")
        ((state,),) = cursor.fetchall()
        cursor.execute("SELECT content FROM toolhub_sessions_approval WHERE content <> ''")
        ((content,),) = cursor.fetchall()

    assert "round" not in state
    assert "seat" not in content
    assert turn.status == TurnStatus.WAITING_INPUT


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_far_side_hears_that_the_member_said_no(session: ChatSession, far_side: FarSide, action: str) -> None:
    far_side.answers = [FORM, {"booked": None}]

    turn = answer(run(session), action)

    assert far_side.resumed[1] == ("round 1", action, {})
    assert (turn.status, asked_of(turn)[0].status) == (TurnStatus.DONE, ApprovalStatus.DENIED)


def test_a_call_asks_five_times_at_most(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)

    for _ in range(5):
        turn = answer(turn, seat="4a")

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.REFUSED, 6)
    assert "asked for something 5 times" in error_of(step)
    assert len(asked_of(turn)) == 5
    assert waits_of(turn) == []


def test_what_does_not_fit_the_form_is_refused_beside_its_field(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)

    with pytest.raises(ContentRefused) as refused:
        answer(turn, seat="", row=4)

    assert refused.value.errors == {"row": "The form has no such field.", "seat": "Fill this in."}
    assert asked_of(turn)[0].status == ApprovalStatus.PENDING
    assert reread(turn).status == TurnStatus.WAITING_INPUT


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {str(number): {"type": "string"} for number in range(41)}},
        {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 60_000}}},
        {"type": "array"},
    ],
)
def test_a_question_that_fits_no_form_ends_the_call(
    session: ChatSession, far_side: FarSide, schema: dict[str, Any]
) -> None:
    far_side.answers = [InputNeeded("Which?", schema=schema)]

    turn = run(session)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, asked_of(turn)) == (TurnStatus.DONE, StepStatus.REFUSED, [])
    assert error_of(step).startswith("Not finished: it asks for")


def test_nobody_but_its_member_answers(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)
    with system_scope():
        admin = make_member(session.organisation, "root", Access.ADMIN)

    with pytest.raises(PermissionDenied, match="Only whose session it is answers this"):
        answer(turn, actor=admin, seat="4a")
    with organisation_scope(session.organisation_id):
        assert not queries.waiting_for(admin).exists()
        assert queries.waiting_for(session.membership).count() == 1
    assert reread(turn).status == TurnStatus.WAITING_INPUT


def test_a_form_is_neither_approved_nor_answered_in_words(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    (approval,) = asked_of(run(session))
    bob = session.membership

    with organisation_scope(session.organisation_id):
        others: list[tuple[Any, dict[str, str]]] = [
            (writes.approve, {}),
            (writes.deny, {}),
            (writes.respond, {"response": "4a"}),
        ]
        for write, fields in others:
            with pytest.raises(Conflict) as refused:
                write(approval, actor=bob, **fields)
            assert refused.value.code == "not_a_call"
        writes.answer(approval, actor=bob, action="accept", content={"seat": "4a"})
        with pytest.raises(Conflict) as refused:
            writes.answer(approval, actor=bob, action="accept", content={"seat": "4b"})
        assert refused.value.code == "already_decided"


def test_a_call_that_was_approved_before_is_not_approved_again(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM, {"booked": "4a"}]
    with organisation_scope(session.organisation):
        admin = make_member(session.organisation, "root", Access.ADMIN)
        create_rule(RuleContent("asks", tool_pattern="book_seat"), actor=admin)
    turn = run(session)
    with organisation_scope(session.organisation_id):
        writes.approve(asked_of(turn)[0], actor=session.membership)
    turn = work(reread(turn))
    assert turn.status == TurnStatus.WAITING_INPUT

    turn = answer(turn, seat="4a")

    assert [each.kind for each in asked_of(turn)] == [ApprovalKind.APPROVAL, ApprovalKind.INPUT]
    assert (turn.status, len(far_side.calls)) == (TurnStatus.DONE, 2)
    assert tool_steps_of(turn)[0].status == StepStatus.DONE


def test_what_nobody_fills_in_expires_and_the_far_side_is_not_asked_again(
    session: ChatSession, far_side: FarSide
) -> None:
    far_side.answers = [FORM]
    turn = run(session)
    with system_scope():
        Approval.objects.filter(turn=turn).update(expires_at=ledger.from_now(-1))

    reap()
    turn = work(reread(turn))

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.REFUSED, 1)
    assert "nobody filled in the form" in error_of(step)


@pytest.mark.parametrize("waits", [FORM, LINK, TASK])
def test_a_turn_that_is_stopped_while_a_call_waits_ends_there(
    session: ChatSession, far_side: FarSide, waits: Any
) -> None:
    far_side.answers = [waits, {"booked": "4a"}]
    turn = run(session)

    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)

    (step,) = tool_steps_of(turn)
    is_task = isinstance(waits, TaskStarted)
    assert turn.status == TurnStatus.CANCELLED
    assert step.status == (StepStatus.UNKNOWN if is_task else StepStatus.FAILED)
    assert [each.status for each in asked_of(turn)] == ([] if is_task else [ApprovalStatus.VOID])
    assert len(waits_of(turn)) == is_task
    if not is_task:
        with pytest.raises(Conflict):
            answer(turn, seat="4a")


# -- Links ------------------------------------------------------------------------------------------------------------


def test_a_link_waits_until_its_member_was_there(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [LINK, {"booked": "4a"}]

    turn = run(session)

    (approval,) = asked_of(turn)
    assert (turn.status, approval.kind, approval.url) == (TurnStatus.WAITING_INPUT, ApprovalKind.LINK, LINK.url)
    assert not approval.is_own_url
    assert answer(turn).status == TurnStatus.DONE
    assert far_side.resumed == [None, ("round 1", "accept", {})]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "http://far.example/",
        "https://user:pass@far.example/",
        "https://bank.example@far.example/",
        "//far.example/x",
        "/o/acme/accounts/",
        "https:///x",
        "https://far.example/\n",
        'https://far.example/"onclick',
        "https://far.example\\@bank.example/",
        "https://[far",
        "data:text/html,x",
        "https://far.example/" + "x" * 5_000,
    ],
)
def test_a_link_that_is_not_safe_to_open_is_not_shown(session: ChatSession, far_side: FarSide, url: str) -> None:
    far_side.answers = [LinkNeeded("Go.", url=url)]

    turn = run(session)

    assert (turn.status, asked_of(turn)) == (TurnStatus.DONE, [])
    assert "to open an address that cannot" in error_of(tool_steps_of(turn)[0])


@pytest.mark.parametrize("url", ["https://far.example/", "//far.example/", "o/acme", "/\\far.example/"])
def test_an_own_link_is_a_path_of_ours(session: ChatSession, far_side: FarSide, url: str) -> None:
    far_side.answers = [LinkNeeded("Go.", url=url, is_own=True)]

    turn = run(session)

    assert (turn.status, asked_of(turn)) == (TurnStatus.DONE, [])


def sign_with(session: ChatSession) -> StoredCredential:
    """Bookings are signed with each member's own account."""
    with organisation_scope(session.organisation):
        credential = StoredCredential.objects.create(
            organisation=session.organisation,
            name="far",
            title="Far Side",
            kind=CredentialKind.BEARER,
            scope=CredentialScope.MEMBER,
            origins=["https://far.example"],
        )
        Tool.objects.filter(name="book_seat").update(credential=credential)
    return credential


def connect(credential: StoredCredential, member: Membership) -> None:
    with organisation_scope(credential.organisation):
        StoredSecret.objects.update_or_create(
            organisation=credential.organisation,
            credential=credential,
            membership=member,
            defaults={"values_json": json.dumps({"token": "t0p-secret"}), "status": SecretStatus.CONNECTED},
        )


def test_mr35_a_call_waits_for_an_account_and_goes_on_by_itself_when_it_is_connected(
    session: ChatSession, far_side: FarSide, alice: Membership
) -> None:
    far_side.answers = [lambda context, arguments: {"token": "t0p-secret"}]
    credential = sign_with(session)
    turn = run(session)
    (approval,) = asked_of(turn)
    assert (turn.status, far_side.calls) == (TurnStatus.WAITING_INPUT, [])
    assert (approval.kind, approval.is_own_url) == (ApprovalKind.LINK, True)
    assert approval.url == "/o/acme/accounts/far/"

    connect(credential, alice)
    reap()
    assert reread(turn).status == TurnStatus.WAITING_INPUT

    connect(credential, session.membership)
    reap()
    turn = work(reread(turn))

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, StepStatus.DONE)
    assert json.loads(step.result) == {"token": "••••"}
    assert far_side.resumed == [None]
    assert far_side.credentials[0].headers == {"Authorization": "Bearer t0p-secret"}


def test_an_account_that_is_declined_ends_the_call_without_a_run(session: ChatSession, far_side: FarSide) -> None:
    sign_with(session)

    turn = answer(run(session), "decline")

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, far_side.calls) == (TurnStatus.DONE, StepStatus.REFUSED, [])
    assert "declined it on" in error_of(step)


def test_an_account_that_falls_away_in_between_loses_nothing_of_the_call(
    session: ChatSession, far_side: FarSide
) -> None:
    far_side.answers = [FORM, {"booked": "4a"}]
    credential = sign_with(session)
    connect(credential, session.membership)
    turn = run(session)
    with organisation_scope(session.organisation_id):
        StoredSecret.objects.update(status=SecretStatus.REFUSED)
    turn = answer(turn, seat="4a")
    assert [each.kind for each in asked_of(turn)] == [ApprovalKind.INPUT, ApprovalKind.LINK]
    assert len(far_side.calls) == 1

    connect(credential, session.membership)
    reap()
    turn = work(reread(turn))

    assert turn.status == TurnStatus.DONE
    assert far_side.resumed == [None, ("round 1", "accept", {"seat": "4a"})]


# -- Tasks ------------------------------------------------------------------------------------------------------------


def test_a_long_task_holds_no_thread_and_is_asked_for_when_its_moment_has_come(
    session: ChatSession, far_side: FarSide
) -> None:
    far_side.answers = [TASK, TaskStarted("Half done.", seconds=5, state="task 7b"), {"booked": "4a"}]

    turn = run(session)

    (wait,) = waits_of(turn)
    assert (turn.status, turn.owner, turn.lease_until) == (TurnStatus.WAITING_TASK, "", None)
    assert (wait.message, wait.state, wait.polls) == ("It is being booked.", "task 7", 0)
    assert wait.poll_at is not None
    assert timedelta(seconds=2) < wait.poll_at - timezone.now() < timedelta(seconds=6)
    assert events_of(turn)[-3:] == ["tool_started", "task_waits", "waiting_task"]
    reap()
    assert (reread(turn).status, len(far_side.calls)) == (TurnStatus.WAITING_TASK, 1)

    turn = ask_again(turn)
    (wait,) = waits_of(turn)
    assert (turn.status, wait.message, wait.polls) == (TurnStatus.WAITING_TASK, "Half done.", 1)
    turn = ask_again(turn)

    assert (turn.status, tool_steps_of(turn)[0].result) == (TurnStatus.DONE, '{"booked": "4a"}')
    assert far_side.resumed == [None, ("task 7", "poll", {}), ("task 7b", "poll", {})]
    assert waits_of(turn) == []


def test_what_a_far_side_says_of_a_task_is_in_the_chat_until_it_ends(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [TASK, TaskStarted("Half \u202edone <b>.", seconds=5, state="task 7b"), {"booked": "4a"}]
    client = Client()
    client.force_login(session.membership.user)

    def shown(turn: Turn) -> str:
        address = reverse("turn_detail", args=[session.organisation.slug, turn.pk])
        return client.get(address, headers={"HX-Request": "true"}).content.decode()

    turn = run(session)
    first = shown(turn)
    turn = ask_again(turn)
    second = shown(turn)
    turn = ask_again(turn)
    last = shown(turn)

    assert "It is being booked." in first
    assert "It is being booked." not in second
    assert "Half " in second
    assert "done &lt;b&gt;." in second
    assert "\u202e" not in second
    assert "Half" not in last


def test_a_stopped_turn_shows_no_task_any_more(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [TASK]
    turn = run(session)
    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    client = Client()
    client.force_login(session.membership.user)

    page = client.get(reverse("turn_detail", args=[session.organisation.slug, turn.pk]), headers={"HX-Request": "true"})

    assert "It is being booked." not in page.content.decode()


@pytest.mark.parametrize(
    ("wanted", "so_far", "pause"),
    [(5, 0, 5), (0.01, 0, 1), (-3, 0, 1), (float("nan"), 0, 1), (10_000, 0, 600), (1, 1_000, 50), (1, 90_000, 600)],
)
def test_the_pause_between_two_questions_is_bounded(wanted: float, so_far: float, pause: float) -> None:
    assert call_waits.pause_of(wanted, so_far) == pause


def test_a_task_that_takes_a_day_ends_and_its_far_side_is_told(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [TASK]
    turn = run(session)
    with system_scope():
        CallWait.objects.filter(turn=turn).update(task_until=ledger.from_now(-1))

    turn = ask_again(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.FAILED, 1)
    assert "more than 24 hours" in error_of(step)
    stop_tasks()
    assert far_side.resumed == [None, ("task 7", "cancel", {})]


def stop_tasks() -> None:
    """What the sweeps of two workers do."""
    found = task_cancels.asked_for()
    for wait_id in [*found, *found]:
        process.stop_task(wait_id)


def test_the_far_side_of_a_stopped_task_is_told_once(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [TASK, {"booked": "too late"}]
    turn = run(session)
    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)

    stop_tasks()
    stop_tasks()

    (step,) = tool_steps_of(turn)
    assert far_side.resumed == [None, ("task 7", "cancel", {})]
    assert (reread(turn).status, step.status, step.result) == (TurnStatus.CANCELLED, StepStatus.UNKNOWN, "")
    assert waits_of(turn) == []


def test_a_task_is_asked_for_while_another_call_waits_for_a_person(
    session: ChatSession, far_side: FarSide, provider: ScriptedOpenAI
) -> None:
    def book(context: ToolContext, arguments: dict[str, Any]) -> Any:
        if arguments["seat"] == "form" and context.resumed is None:
            raise FORM
        if arguments["seat"] == "task" and context.resumed is None:
            raise TASK
        return {"booked": arguments["seat"]}

    far_side.answers = [book]
    provider.script.clear()
    provider.enqueue(
        Say(calls=[call("book_seat", {"seat": "form"}), call("book_seat", {"seat": "task"})]), Say("Both.")
    )
    turn = run(session)
    assert turn.status == TurnStatus.WAITING_INPUT

    turn = ask_again(turn)
    assert turn.status == TurnStatus.WAITING_INPUT
    assert [each.status for each in tool_steps_of(turn)] == [StepStatus.WAITING, StepStatus.DONE]

    turn = answer(turn, seat="4a")
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Both.")
    assert [each.status for each in tool_steps_of(turn)] == [StepStatus.DONE, StepStatus.DONE]


# -- Who may not go on ------------------------------------------------------------------------------------------------


def test_a_member_who_left_stops_what_waits(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)
    with system_scope():
        Membership.objects.filter(pk=session.membership_id).update(ended_at=timezone.now())

    reap()

    assert reread(turn).error_code == "member_removed"
    assert [each.status for each in asked_of(turn)] == [ApprovalStatus.VOID]
    assert tool_steps_of(turn)[0].status == StepStatus.FAILED


def test_a_right_that_was_taken_meanwhile_ends_the_call(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)
    with organisation_scope(session.organisation_id):
        admin = make_member(session.organisation, "root", Access.ADMIN)
        set_tool_enabled(Tool.objects.get(name="book_seat"), False, actor=admin)

    turn = answer(turn, seat="4a")

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.REFUSED, 1)


def test_a_rule_that_asks_since_then_ends_the_call(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [FORM]
    turn = run(session)
    with organisation_scope(session.organisation_id):
        admin = make_member(session.organisation, "root", Access.ADMIN)
        create_rule(RuleContent("asks", tool_pattern="book_seat"), actor=admin)

    turn = answer(turn, seat="4a")

    (step,) = tool_steps_of(turn)
    assert (step.status, len(far_side.calls)) == (StepStatus.REFUSED, 1)
    assert "a person must approve it" in error_of(step)


# -- Crashes ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The worker is gone."""


def die(*_: Any, **__: Any) -> Any:
    raise Killed


def crash(turn: Turn, monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> Turn:
    """Work on the turn with a worker that dies there; its lease runs out."""
    with monkeypatch.context() as patch:
        patch.setattr(target, name, die)
        with pytest.raises(Killed):
            process.work_on(turn.pk)
    expire_lease(turn.pk)
    return reread(turn)


@pytest.mark.parametrize(("on_crash", "calls"), [("never", 1), ("retry", 2), ("retry_with_key", 2)])
def test_a_crash_before_the_wait_is_on_record_goes_by_the_tool(
    session: ChatSession,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    on_crash: str,
    calls: int,
) -> None:
    make_booking(session.organisation, on_crash=on_crash)
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "any"})]), Say("Booked."))
    far_side = book_with(monkeypatch, FarSide(FORM))

    turn = work(crash(accept(session), monkeypatch, call_waits, "go_on_later"))

    (step,) = tool_steps_of(turn)
    assert len(far_side.calls) == calls
    assert len({each.idempotency_key for each in far_side.calls}) == 1
    if on_crash == "never":
        assert (turn.status, step.status, step.result_sent) == (TurnStatus.DONE, "unknown", OUTCOME_UNKNOWN)
    else:
        assert (turn.status, step.status) == (TurnStatus.WAITING_INPUT, StepStatus.WAITING)


def test_a_crash_between_the_wait_and_the_park_asks_once(
    session: ChatSession, far_side: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side.answers = [FORM, {"booked": "4a"}]
    turn = work(crash(accept(session), monkeypatch, parking, "park"))
    assert (turn.status, len(asked_of(turn)), len(far_side.calls)) == (TurnStatus.WAITING_INPUT, 1, 1)

    assert answer(turn, seat="4a").status == TurnStatus.DONE
    assert len(far_side.calls) == 2


@pytest.mark.parametrize(("on_crash", "calls"), [("never", 2), ("retry", 3)])
def test_a_crash_after_the_answer_goes_by_the_tool_and_keeps_what_was_filled_in(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, on_crash: str, calls: int
) -> None:
    make_booking(session.organisation, on_crash=on_crash)
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "any"})]), Say("Booked."))
    far_side = book_with(monkeypatch, FarSide(FORM, {"booked": "4a"}))
    turn = run(session)
    with organisation_scope(session.organisation_id):
        writes.answer(asked_of(turn)[0], actor=session.membership, action="accept", content={"seat": "4a"})

    turn = work(crash(turn, monkeypatch, ledger, "finish_step"))

    (step,) = tool_steps_of(turn)
    assert len(far_side.calls) == calls
    assert far_side.resumed[1:] == [("round 1", "accept", {"seat": "4a"})] * (calls - 1)
    assert (turn.status, step.status) == (TurnStatus.DONE, "unknown" if on_crash == "never" else "done")
    assert waits_of(turn) == []


def test_a_crash_while_a_task_is_asked_for_leaves_nothing_in_doubt(
    session: ChatSession, far_side: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side.answers = [TASK, {"booked": "4a"}]
    turn = run(session)
    make_due(turn)
    reap()

    turn = work(crash(turn, monkeypatch, ledger, "finish_step"))

    assert (turn.status, tool_steps_of(turn)[0].status) == (TurnStatus.DONE, StepStatus.DONE)
    assert far_side.resumed == [None, ("task 7", "poll", {}), ("task 7", "poll", {})]


def test_an_answer_that_comes_before_the_turn_is_parked_is_taken_at_once(
    session: ChatSession, far_side: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_side.answers = [FORM, {"booked": "4a"}]
    park = waiting.park

    def answered_first(claim: Any) -> bool:
        with organisation_scope(claim.organisation_id):
            approval = Approval.objects.select_related("requester").get()
            writes.answer(approval, actor=approval.requester, action="accept", content={"seat": "4a"})
        return park(claim)

    monkeypatch.setattr(parking, "park", answered_first)

    assert run(session).status == TurnStatus.DONE
    assert len(far_side.calls) == 2


def test_a_deadline_stands_still_while_a_call_waits(session: ChatSession, far_side: FarSide) -> None:
    far_side.answers = [TASK, {"booked": "4a"}]
    turn = run(session)
    before = turn.deadline_at
    change(turn.pk, waiting_since=timezone.now() - timedelta(hours=3))

    turn = ask_again(turn)

    assert turn.status == TurnStatus.DONE
    assert turn.deadline_at - before > timedelta(hours=2, minutes=59)
