"""So many turns of a member, and of an organisation, wait at once; then a client is told when to come again."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from sessions.doors.schedules import periodic
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import ledger
from sessions.turns.fencing import RETRY_AFTER
from tests.cast import PASSWORD, make_member, make_session, make_turn
from tests.rest import Rest
from tests.sessions.doors.schedules.test_periodic import schedule
from tests.sessions.steps import accepted
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
MINE = "2 of your messages wait for an answer: try again when some have theirs."


@pytest.fixture
def session(bob: Membership, settings: Settings) -> ChatSession:
    settings.TOOLHUB_QUEUED_PER_MEMBER = 2
    settings.TOOLHUB_QUEUED_PER_ORGANISATION = 3
    return make_session(bob)


@pytest.fixture
def full(session: ChatSession) -> ChatSession:
    """A session whose member has as many turns waiting as may be."""
    accepted(session)
    accepted(make_session(session.membership))
    return session


def count(session: ChatSession) -> int:
    with organisation_scope(session.organisation_id):
        return Turn.objects.count()


def test_rest_answers_429_and_says_when_to_come_again(full: ChatSession) -> None:
    reply = Rest(full.membership).post(f"sessions/{full.pk}/turns", {"message": "one more"})

    assert reply.error == (429, "too_many_turns", None)
    assert reply.json["error"]["message"] == MINE
    assert reply.headers["Retry-After"] == str(RETRY_AFTER)
    assert count(full) == 2


def test_a_key_that_is_known_gets_its_turn_again_all_the_same(session: ChatSession) -> None:
    rest, key = Rest(session.membership), {"Idempotency-Key": "k"}
    first = rest.post(f"sessions/{session.pk}/turns", {"message": "hello"}, key)
    accepted(session)

    again = rest.post(f"sessions/{session.pk}/turns", {"message": "hello"}, key)

    assert (first.status, again.status, again.json["id"]) == (202, 200, first.json["id"])


def test_the_browser_says_it_in_a_sentence_and_keeps_what_was_written(full: ChatSession) -> None:
    client = Client()
    client.login(email=full.membership.user.email, password=PASSWORD)

    answer = client.post(f"/o/acme/sessions/{full.pk}/turns/", {"message": "one more", "agent": "starter"})

    assert answer.status_code == 422
    assert MINE in answer.content.decode()
    assert "one more" in answer.content.decode()


def test_a_schedule_says_it_and_moves_on(full: ChatSession) -> None:
    row = schedule(full)

    periodic.sweep()

    with organisation_scope(full.organisation_id):
        row.refresh_from_db()
    assert row.last_error == MINE
    assert count(full) == 2


def test_what_runs_or_has_ended_does_not_count(session: ChatSession) -> None:
    for status in (TurnStatus.RUNNING, TurnStatus.DONE, TurnStatus.WAITING_CHILD):
        make_turn(session, status=status)

    accepted(session)
    accepted(session)

    with pytest.raises(ledger.QueueFull):
        accepted(session)


def test_an_organisation_has_a_limit_of_its_own_which_no_other_meets(full: ChatSession, charlie: Membership) -> None:
    dora = make_session(make_member(full.organisation, "dora"))
    accepted(dora)

    with pytest.raises(ledger.QueueFull, match=r"^3 messages of your organisation wait for an answer"):
        accepted(dora)

    accepted(make_session(charlie))
