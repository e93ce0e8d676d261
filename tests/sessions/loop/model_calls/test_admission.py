"""What a model call must pass before it is made: where it does not, nothing is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from sessions.loop.clients.client import ModelCall
from sessions.loop.run.turn import run_turn
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import accepting
from sessions.turns.fencing import QueueFull
from sessions.turns.held import Held, Reason
from tests.sessions.run_turns import accept, steps_of
from tests.sessions.steps import change, claimed, reread
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model call that is begun, whatever becomes of it, fails the test."""

    def begun(self: ModelCall) -> None:
        raise AssertionError("The model is called.")

    monkeypatch.setattr(ModelCall, "run", begun)


@pytest.mark.parametrize(("reason", "status"), [("cancelled", TurnStatus.CANCELLED), ("draining", TurnStatus.QUEUED)])
@pytest.mark.usefixtures("no_call")
def test_a_turn_that_was_stopped_asks_no_model(session: ChatSession, reason: Reason, status: TurnStatus) -> None:
    turn = accept(session)
    held = Held(claimed(turn))
    held.stop(reason)

    with organisation_scope(session.organisation_id):
        run_turn(held)

    assert (reread(turn).status, steps_of(turn)) == (status, [])


@pytest.mark.usefixtures("no_call")
def test_a_turn_whose_time_is_up_asks_no_model(session: ChatSession) -> None:
    turn = accept(session)
    held = Held(claimed(turn))
    change(turn.pk, deadline_at=timezone.now() - timedelta(seconds=1))

    with organisation_scope(session.organisation_id):
        run_turn(held)

    turn = reread(turn)
    assert (turn.status, turn.error_code) == (TurnStatus.EXPIRED, "deadline")


def test_what_is_taken_where_a_turn_is_admitted_is_taken_with_it_or_not_at_all(
    session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reservation is to go there: it is inside the transaction that stores the turn."""

    def admit(waiting: int, mine: int) -> None:
        ChatSession.objects.filter(pk=session.pk).update(title="taken")
        if waiting:
            raise QueueFull("No more.")

    monkeypatch.setattr(accepting, "admit_turn", admit)
    accept(session)
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(title="before")

    with pytest.raises(QueueFull):
        accept(session)

    with organisation_scope(session.organisation_id):
        assert (ChatSession.objects.get().title, Turn.objects.count()) == ("before", 1)
