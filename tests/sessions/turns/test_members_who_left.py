"""Who was removed is nobody: no tool, no feed, no schedule, no message finds them; what was open for them ends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.utils import timezone

from capabilities.assistant.builtin.communication import _member
from capabilities.assistant.models import CalendarFeed
from capabilities.assistant.records.feeds import digest_of, feed_by_secret
from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.contract.context import ToolError
from sessions.doors.schedules.periodic import run_schedule
from sessions.models import Schedule, Turn
from tests.cast import make_agent, make_role, make_tool
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.people.writes import remove_member

pytestmark = pytest.mark.django_db


def test_their_roles_open_no_tool(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    tool = make_tool(in_acme)
    make_role(in_acme, bob)
    assert permission_for(bob, tool).allowed

    remove_member(bob, actor=alice)

    assert not permission_for(bob, tool).allowed


def test_their_schedule_submits_nothing(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    schedule = Schedule.objects.create(
        organisation=in_acme,
        membership=bob,
        agent=make_agent(in_acme),
        number=1,
        name="nightly",
        message="hello",
        cron="* * * * *",
        timezone="UTC",
        next_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    remove_member(bob, actor=alice)

    assert run_schedule(schedule.pk) is None
    assert not Turn.objects.exists()


def test_their_calendar_and_their_name_are_gone(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    CalendarFeed.objects.create(
        organisation=in_acme, membership=bob, digest=digest_of("secret"), created_at=timezone.now()
    )
    assert feed_by_secret("secret") is not None
    assert _member("bob@example.com") == bob

    remove_member(bob, actor=alice)

    assert feed_by_secret("secret") is None
    with pytest.raises(ToolError):
        _member("bob@example.com")
