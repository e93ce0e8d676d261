"""The time line of a turn: waits, model calls and tool calls in their places."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from sessions.doors.chats.timelines import LEAST_WIDTH, TimeSpan, timeline_of
from sessions.models import Step, StepKind, StepStatus, Turn, TurnStatus
from tests.cast import make_session, make_turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def a_step(pk: int, kind: StepKind, begin: float, end: float | None, **fields: Any) -> Step:
    ended = None if end is None else at(end)
    return Step(pk=pk, index=pk, kind=kind, started_at=at(begin), ended_at=ended, **fields)


def test_waits_and_calls_stand_where_they_were() -> None:
    turn = Turn(created_at=START, ended_at=at(10))
    steps = [
        a_step(1, StepKind.MODEL, 1, 3, round=1),
        a_step(2, StepKind.TOOL, 3, 8, tool_name="mail_send"),
        a_step(3, StepKind.NOTE, 8, 8),
        a_step(4, StepKind.MODEL, 8, 10, round=2),
    ]

    line = timeline_of(turn, steps, {2: [(at(3), at(7))]}, at(99))

    assert line.seconds == 10
    assert [(row.title, row.after, row.seconds, row.waited) for row in line.rows] == [
        ("Waited for a worker", 0, 1, 0),
        ("Model call 1", 1, 2, 0),
        ("mail_send", 3, 5, 4),
        ("Model call 2", 8, 2, 0),
    ]
    assert line.rows[0].spans == [TimeSpan("queue", 0, 10)]
    assert line.rows[2].spans == [TimeSpan("tool", 30, 50), TimeSpan("person", 30, 40)]


def test_what_has_not_ended_goes_to_now_and_what_is_short_is_seen() -> None:
    turn = Turn(created_at=START)
    steps = [a_step(1, StepKind.MODEL, 0, 0.001, round=1), a_step(2, StepKind.TOOL, 50, None, tool_name="mail_send")]

    line = timeline_of(turn, steps, {2: [(at(60), None)]}, at(100))

    assert (line.rows[1].spans[0].width, line.rows[2].seconds, line.rows[2].waited) == (LEAST_WIDTH, None, 40)
    assert line.rows[2].spans == [TimeSpan("tool", 50, 50), TimeSpan("person", 60, 40)]


def test_a_turn_that_nobody_took_waits_to_its_end() -> None:
    waits = timeline_of(Turn(created_at=START), [], {}, at(5)).rows
    ended = timeline_of(Turn(created_at=START, ended_at=at(2)), [], {}, at(5)).rows

    assert ([row.seconds for row in waits], [row.seconds for row in ended]) == ([None], [2])


@pytest.mark.django_db
@pytest.mark.parametrize("count", [1, 3])
def test_the_page_is_a_link_of_its_turn_and_takes_the_same_queries(
    client: Client, bob: Membership, django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    turn = make_turn(make_session(bob), status=TurnStatus.DONE, answer="Yes.")
    done = {"organisation": turn.organisation, "turn": turn, "status": StepStatus.DONE, "ended_at": turn.created_at}
    with organisation_scope(turn.organisation):
        for index in range(count):
            Step.objects.create(index=2 * index + 1, kind=StepKind.MODEL, round=index + 1, input_tokens=1_234, **done)
            call = {"kind": StepKind.TOOL, "round": index + 1, "call_index": 1, "tool_name": "mail_send"}
            Step.objects.create(index=2 * index + 2, **call, **done)
    client.force_login(bob.user)
    address = f"/o/acme/turns/{turn.pk}/timeline/"
    session = client.get(f"/o/acme/sessions/{turn.session_id}/").content.decode()
    client.get(address)

    with django_assert_num_queries(9):
        page = client.get(address).content.decode()

    assert f'href="{address}"' in session
    assert len(re.findall(r'<rect class="time-(?:model|tool)"\s+x=', page)) == 2 * count
    assert page.count("1,234 in") == count
