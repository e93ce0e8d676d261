from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from capabilities.contract.context import ToolError
from capabilities.models import Agent
from sessions.doors.builtin.cron import cron_add
from sessions.doors.schedules import periodic
from sessions.insight.trial.writes import trial_or_404
from sessions.loop.tools.execution import context_of
from sessions.models import ChatSession, Schedule, Turn
from tests.cast import make_category, make_member, make_role, make_session, make_tool, make_turn
from tests.sessions.doors.builtin.conftest import Use
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_a_schedule_that_was_added_submits_its_turn(session: ChatSession, use: Use) -> None:
    added = use("cron_add", name="Morning", schedule="0 9 * * mon-fri", message="What is due?", timezone="Europe/Paris")
    with organisation_scope(session.organisation_id):
        Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))

    periodic.sweep()

    assert added["schedule"]["schedule"] == "0 9 * * mon-fri"
    with organisation_scope(session.organisation_id):
        turn = Turn.objects.select_related("session").get(message="What is due?")
    assert (turn.session.title, turn.membership_id) == ("Schedule: Morning", session.membership_id)


def test_a_schedule_is_listed_switched_and_removed(use: Use) -> None:
    use("cron_add", name="Morning", schedule="0 9 * * *", message="What is due?")

    assert use("cron_toggle", number=1, enabled=False)["schedule"]["next"] is None
    assert [each["enabled"] for each in use("cron_list")["schedules"]] == [False]
    assert use("cron_toggle", number=1, enabled=True)["schedule"]["enabled"] is True
    assert use("cron_remove", number=1) == {"removed": 1}
    assert use("cron_list") == {"schedules": []}


def test_a_line_or_a_zone_that_cannot_be_is_told(use: Use) -> None:
    assert "five fields" in use("cron_add", name="x", schedule="daily", message="x")["error"]
    assert "no time zone" in use("cron_add", name="x", schedule="0 9 * * *", message="x", timezone="Moon")["error"]


def test_a_member_has_twenty_schedules_at_most(use: Use) -> None:
    for number in range(20):
        use("cron_add", name=str(number), schedule="0 9 * * *", message="x")

    refused = use("cron_add", name="one more", schedule="0 9 * * *", message="x")

    assert "20 schedules" in refused["error"]


def test_another_member_s_schedules_do_not_exist(session: ChatSession, use: Use) -> None:
    use("cron_add", name="secret", schedule="0 9 * * *", message="x")
    dora = make_member(session.organisation, "dora")
    make_role(session.organisation, dora)
    hers = make_turn(make_session(dora))

    assert use("cron_list", of=hers) == {"schedules": []}
    assert "There is no schedule 1" in use("cron_remove", of=hers, number=1)["error"]
    assert "There is no schedule 1" in use("cron_toggle", of=hers, number=1, enabled=False)["error"]


def test_by_hand_it_is_for_the_first_agent_that_is_on(session: ChatSession) -> None:
    make_tool(session.organisation, "cron_add", category=make_category(session.organisation, "cron"))
    with organisation_scope(session.organisation_id):
        spec = trial_or_404(session.membership, "cron_add").spec
        by_hand = context_of(spec, session.organisation_id, session.membership_id)

        added = cron_add(by_hand, name="Morning", schedule="0 9 * * *", message="What is due?")
        Agent.objects.update(is_enabled=False)
        with pytest.raises(ToolError, match=r"There is no agent that is switched on."):
            cron_add(by_hand, name="Morning", schedule="0 9 * * *", message="What is due?")

    assert added["schedule"]["agent"] == session.agent.slug
