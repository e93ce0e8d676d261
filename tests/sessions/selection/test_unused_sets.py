"""CX-30: stored tool sets and verdicts go when nothing names them, and never under a turn that begins to use one.

tests/test_postgres.py runs this file on PostgreSQL too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from capabilities.common.memory import forget_everything
from capabilities.common.moments import from_now
from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import ChatSession, Step, StepKind, StepStatus, ToolSet, TurnStatus, VerdictSet
from sessions.selection import tool_sets, unused_sets
from sessions.usage.rollups.sweep import roll_up
from tests.cast import make_agent, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.run_turns import run
from tests.threads import at_once
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 24 * 3600.0


@pytest.fixture
def chat(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)
    return make_session(bob, make_agent(bob.organisation, provider.url))


@pytest.fixture(autouse=True)
def each_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each call looks, from the first row on."""
    monkeypatch.setattr(unused_sets, "EVERY_SECONDS", -1.0)
    for look in unused_sets.LOOKS:
        look.after = 0
    yield
    forget_everything()


def say(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Hello."))
    assert run(session).status == TurnStatus.DONE


def later(seconds: float) -> None:
    """All rows are older by so many seconds."""
    with system_scope():
        for table in (ToolSet, VerdictSet):
            table.objects.update(created_at=F("created_at") - (from_now(seconds) - from_now(0)))
            table.objects.exclude(unused_since=None).update(
                unused_since=F("unused_since") - (from_now(seconds) - from_now(0))
            )


def sweep() -> None:
    unused_sets.remove_unused_sets()


def marks() -> list[bool]:
    with system_scope():
        return [
            row.unused_since is not None
            for table in (ToolSet, VerdictSet)
            for row in table.objects.order_by("pk")
        ]  # fmt: skip


def forget_chat(session: ChatSession) -> None:
    """Its steps go, and nothing names the sets."""
    roll_up()
    with organisation_scope(session.organisation_id):
        delete_session(session, actor=session.membership)
    with system_scope():
        ChatSession.objects.update(deleted_at=from_now(-30 * DAY))
    remove_deleted()
    with system_scope():
        assert not Step.objects.exists()


def use(session: ChatSession, tool_set: ToolSet) -> None:
    """What the loop stores of a model call."""
    with organisation_scope(session.organisation_id):
        turn = session.turns.get()
        step = Step(organisation_id=session.organisation_id, turn=turn, index=90, kind=StepKind.MODEL)
        step.status, step.tool_set = StepStatus.DONE, tool_set
        step.save()


def test_cx_30_what_nothing_names_is_marked_and_a_day_later_removed(
    chat: ChatSession, provider: ScriptedOpenAI
) -> None:
    say(chat, provider)
    later(2 * DAY)
    sweep()
    assert marks() == [False, False], "a step names both"

    forget_chat(chat)
    sweep()
    sweep()
    assert marks() == [True, True]
    later(DAY + 60)
    sweep()

    assert marks() == []


def test_cx_30_a_young_row_is_left_alone(chat: ChatSession, provider: ScriptedOpenAI) -> None:
    say(chat, provider)
    forget_chat(chat)

    sweep()

    assert marks() == [False, False]


def test_cx_30_a_set_that_is_used_again_is_kept(chat: ChatSession, bob: Membership, provider: ScriptedOpenAI) -> None:
    say(chat, provider)
    forget_chat(chat)
    later(2 * DAY)
    sweep()
    forget_everything()

    say(make_session(bob, chat.agent), provider)
    assert marks() == [False, False]
    later(2 * DAY)
    sweep()

    assert marks() == [False, False]


def test_cx_30_a_row_that_is_removed_between_look_and_use_is_stored_anew(
    chat: ChatSession, bob: Membership, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(chat, provider)
    forget_chat(chat)
    later(2 * DAY)
    sweep()
    later(2 * DAY)
    forget_everything()
    get_or_create = type(ToolSet.objects).get_or_create
    looks = []

    def then_removed(manager: Any, **values: Any) -> Any:
        found = get_or_create(manager, **values)
        looks.append(found)
        if len(looks) == 1:
            sweep()
        return found

    monkeypatch.setattr(type(ToolSet.objects), "get_or_create", then_removed, raising=False)
    say(make_session(bob, chat.agent), provider)

    assert (len(looks) > 2, marks()) == (True, [False, False])


def test_cx_30_a_set_that_got_a_step_after_its_mark_stays(chat: ChatSession, provider: ScriptedOpenAI) -> None:
    say(chat, provider)
    with organisation_scope(chat.organisation_id):
        Step.objects.update(tool_set=None, verdict_set=None)
        tool_set = ToolSet.objects.get()
    later(2 * DAY)
    sweep()
    later(2 * DAY)
    use(chat, tool_set)

    sweep()

    assert marks() == [False], "the verdicts went, the set is named"


@pytest.mark.parametrize("is_named", [True, False])
def test_cx_30_a_row_whose_mark_was_taken_away_after_the_look_stays(
    chat: ChatSession, provider: ScriptedOpenAI, *, is_named: bool
) -> None:
    """The row is what the statement that deletes sees, and not what the look saw."""
    say(chat, provider)
    with organisation_scope(chat.organisation_id):
        if not is_named:
            Step.objects.update(tool_set=None)
        key = ToolSet.objects.get(unused_since=None).pk
        unused_sets.remove_unused(ToolSet, key)

        assert ToolSet.objects.filter(pk=key).exists()


def test_cx_30_a_step_between_the_two_statements_keeps_the_row(chat: ChatSession, provider: ScriptedOpenAI) -> None:
    say(chat, provider)
    used: list[str] = []

    def then_used(execute: Any, sql: str, *more: Any) -> Any:
        result = execute(sql, *more)
        if sql.startswith("UPDATE") and not used:
            used.append(sql)
            use(chat, tool_set)
        return result

    with organisation_scope(chat.organisation_id):
        Step.objects.update(tool_set=None)
        ToolSet.objects.update(unused_since=from_now(-2 * DAY))
        tool_set = ToolSet.objects.get()
        with connection.execute_wrapper(then_used):
            unused_sets.remove_unused(ToolSet, tool_set.pk)

        assert (len(used), ToolSet.objects.filter(pk=tool_set.pk).exists()) == (1, True)


def test_cx_30_a_turn_that_begins_to_use_a_set_races_the_sweep(chat: ChatSession, provider: ScriptedOpenAI) -> None:
    """Marked long ago: one thread takes it for a call while another removes it. Whoever comes first, the call has its
    row."""
    say(chat, provider)
    with organisation_scope(chat.organisation_id):
        stored = ToolSet.objects.get()
        Step.objects.update(tool_set=None)
    kept: list[ToolSet] = []

    for _ in range(8):
        with system_scope():
            Step.objects.filter(index=90).delete()
            ToolSet.objects.update(unused_since=from_now(-2 * DAY))
            key = ToolSet.objects.get().pk

        def take() -> None:
            with organisation_scope(chat.organisation_id):
                row = tool_sets._in_use(
                    ToolSet,
                    chat.organisation_id,
                    stored.key,
                    {"sha256": "x", "wire": "[]", "tokens": 0, "version_ids": []},
                )[0]
            use(chat, row)
            kept.append(row)

        def remove(key: int = key) -> None:
            with organisation_scope(chat.organisation_id):
                unused_sets.remove_unused(ToolSet, key)

        at_once([take, remove])

        with system_scope():
            assert Step.objects.get(index=90).tool_set == ToolSet.objects.get()
    assert len(kept) == 8


def test_cx_30_one_look_takes_so_many_rows_in_as_many_queries(
    chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(count: int) -> None:
        with organisation_scope(chat.organisation_id):
            for number in range(count):
                ToolSet.objects.create(
                    organisation=chat.organisation, key=f"{number}", sha256="x", wire="[]", tokens=0, version_ids=[]
                )

    def queries() -> int:
        unused_sets.LOOKS[0].after = 0
        with CaptureQueriesContext(connection) as caught:
            unused_sets._mark(unused_sets.LOOKS[0])
        return len(caught)

    monkeypatch.setattr(unused_sets, "AT_ONCE", 4)
    rows(1)
    one = queries()
    with system_scope():
        ToolSet.objects.all().delete()
    rows(6)
    later(2 * DAY)
    assert queries() == one
    assert sum(marks()) == 4

    sweep()
    assert sum(marks()) == 6
    later(2 * DAY)
    sweep()
    assert len(marks()) == 2


def test_cx_30_a_process_looks_again_after_an_hour(
    chat: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 10 * tool_sets.REMEMBERED_SECONDS < unused_sets.GRACE_SECONDS
    say(chat, provider)
    forget_chat(chat)
    later(2 * DAY)
    sweep()
    hour = tool_sets._hour()

    monkeypatch.setattr(tool_sets, "_hour", lambda: hour + 1)
    say(make_session(chat.membership, chat.agent), provider)

    assert marks() == [False, False]
