from __future__ import annotations

import pytest

from sessions.models import ChatSession, Turn
from tests.cast import make_member, make_role, make_session, make_turn
from tests.sessions.doors.builtin.conftest import Use
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_a_routine_submits_the_next_turn_once_for_one_call(session: ChatSession, use: Use) -> None:
    use("automation_save", name="standup", message="List my tasks.")

    first = use("automation_run", name="standup")
    again = use("automation_run", name="standup")  # the same call, repeated after a crash

    assert (first["turn"], again["turn"]) == (2, 2)
    with organisation_scope(session.organisation_id):
        assert Turn.objects.filter(message="List my tasks.").count() == 1


def test_a_routine_starts_no_other_routine(session: ChatSession, use: Use) -> None:
    use("automation_save", name="loop", message="Run the routine loop.")
    submitted = make_turn(session, origin_key="routine:x")

    refused = use("automation_run", of=submitted, name="loop")

    assert "is a routine itself" in refused["error"]


def test_routines_are_replaced_listed_and_removed(use: Use) -> None:
    use("automation_save", name="standup", message="old")
    use("automation_save", name="standup", message="new")

    assert use("automation_list") == {"routines": [{"name": "standup", "message": "new"}]}
    assert use("automation_remove", name="standup") == {"removed": "standup"}
    assert "There is no routine standup" in use("automation_run", name="standup")["error"]


def test_another_member_s_routines_do_not_exist(session: ChatSession, use: Use) -> None:
    use("automation_save", name="secret", message="x")
    dora = make_member(session.organisation, "dora")
    make_role(session.organisation, dora)
    hers = make_turn(make_session(dora))

    assert use("automation_list", of=hers) == {"routines": []}
    assert "There is no routine secret" in use("automation_run", of=hers, name="secret")["error"]
