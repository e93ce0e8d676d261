"""A running turn keeps the versions that it was shown, or is refused: never does it run other code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.common.registry_version import touch_registry
from capabilities.contract.context import InputNeeded
from capabilities.models import Tool, ToolKind
from sessions.asking.approvals import queries, writes
from sessions.models import ChatSession, Step, StepStatus, Turn, TurnStatus
from sessions.turns import ledger
from tests.cast import make_member
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_call_waits import SEAT, answer, crash, error_of
from tests.sessions.far_sides import FarSide, book_with, make_booking
from tests.sessions.run_turns import accept, run, tool_steps_of, work
from tests.sessions.steps import reread
from toolhub.tenants.models import Access, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def rewrite(organisation: Organisation) -> None:
    """The tool gets another version, as the turn runs."""
    with organisation_scope(organisation):
        Tool.objects.filter(name="book_seat").update(kind=ToolKind.BUILTIN)  # what runs is not looked at
        tool = Tool.objects.get(name="book_seat")
        update_tool(tool, Definition("book_seat", "Books any seat.", {"type": "object"}), actor=None)
        Tool.objects.filter(name="book_seat").update(kind=ToolKind.PYTHON)


def keep_back(organisation: Organisation) -> None:
    """The tool is quarantined, as the turn runs."""
    with organisation_scope(organisation):
        Tool.objects.filter(name="book_seat").update(quarantine="Its server has another definition.")
        touch_registry(organisation.pk)


CHANGES = pytest.mark.parametrize(
    ("change", "words"), [(rewrite, "was changed"), (keep_back, "kept back until somebody with the right")]
)
Change = Callable[[Organisation], None]


@pytest.fixture
def far_side(session: ChatSession, monkeypatch: pytest.MonkeyPatch) -> FarSide:
    make_booking(session.organisation)
    return book_with(monkeypatch, FarSide({"booked": "4a"}))


def check_refused(turn: Turn, far_side: FarSide, words: str, calls: int = 0) -> None:
    step: Step = tool_steps_of(turn)[-1]
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.REFUSED, calls)
    assert words in error_of(step)


@CHANGES
def test_between_selection_and_call(
    session: ChatSession, provider: ScriptedOpenAI, far_side: FarSide, change: Change, words: str
) -> None:
    def say(request: Any) -> Say:
        change(session.organisation)
        return Say(calls=[call("book_seat", {"seat": "4a"})])

    provider.enqueue(say, Say("I could not."))

    check_refused(run(session), far_side, words)


@CHANGES
def test_while_somebody_is_asked(
    session: ChatSession, provider: ScriptedOpenAI, far_side: FarSide, change: Change, words: str
) -> None:
    with organisation_scope(session.organisation):
        admin = make_member(session.organisation, "root", Access.ADMIN)
        create_rule(RuleContent("asks", tool_pattern="book_seat"), actor=admin)
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"})]), Say("I could not."))
    turn = run(session)
    change(session.organisation)
    with organisation_scope(session.organisation_id):
        (approval,) = queries.approvals_of_turn(turn)
        writes.approve(approval, actor=session.membership)

    check_refused(work(reread(turn)), far_side, words)


@CHANGES
def test_while_the_member_fills_in_a_form(
    session: ChatSession, provider: ScriptedOpenAI, far_side: FarSide, change: Change, words: str
) -> None:
    far_side.answers = [InputNeeded("Which?", schema=SEAT), {"booked": "4a"}]
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"})]), Say("I could not."))
    turn = run(session)
    change(session.organisation)

    check_refused(answer(turn, seat="4a"), far_side, words, calls=1)


@CHANGES
def test_after_a_crash_before_the_call_began(
    session: ChatSession,
    provider: ScriptedOpenAI,
    far_side: FarSide,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    words: str,
) -> None:
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"})]), Say("I could not."))
    turn = crash(accept(session), monkeypatch, ledger, "start_step")
    change(session.organisation)

    check_refused(work(turn), far_side, words)


@CHANGES
def test_after_a_crash_in_the_middle_of_a_call_that_may_be_repeated(
    session: ChatSession,
    provider: ScriptedOpenAI,
    far_side: FarSide,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    words: str,
) -> None:
    """What had begun may have happened: that is said, or why it is not repeated. It is never run again."""
    with organisation_scope(session.organisation):
        Tool.objects.get(name="book_seat").versions.update(on_crash="retry")
        touch_registry(session.organisation_id)
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"})]), Say("I do not know."))
    turn = crash(accept(session), monkeypatch, ledger, "finish_step")
    change(session.organisation)

    turn = work(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, len(far_side.calls)) == (TurnStatus.DONE, 1)
    assert step.status in (StepStatus.UNKNOWN, StepStatus.REFUSED)
    assert json.loads(step.result_sent)
