"""Statements that are compiled once: what they say is Django's, and the guard in them is that of each execution."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import DurationField, F, Value
from django.db.models.functions import Now
from django.utils import timezone

from sessions.models import ChatSession, Turn, TurnEvent
from sessions.turns.ledger import from_now
from tests.cast import make_agent, make_session, make_turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import ScopeError, organisation_scope, system_scope
from toolhub.tenants.rows.statements import Insert, Param, Select, Update, param

pytestmark = pytest.mark.django_db


def turn_of(member: Membership, message: str = "hello") -> Turn:
    return make_turn(make_session(member, make_agent(member.organisation)), message)


def by_key() -> Any:
    return Turn.objects.filter(pk=param(Turn, "id", "turn"))


def test_a_select_answers_as_its_queryset_does(bob: Membership) -> None:
    turn = turn_of(bob)
    columns = ("pk", "message", "created_at", "draft_event", "usage_estimated", "lease_until")
    select = Select(lambda: by_key().values_list(*columns))

    with organisation_scope(bob.organisation):
        (row,) = select.rows(turn=turn.pk)

        assert tuple(row) == Turn.objects.values_list(*columns).get(pk=turn.pk)


def test_a_select_gives_instances_with_their_related_rows(bob: Membership, django_assert_num_queries: Any) -> None:
    turn = turn_of(bob)
    select = Select(
        lambda: by_key().select_related("session", "agent__model__provider", "parent_step").annotate(n=F("seq"))
    )
    with organisation_scope(bob.organisation):
        for _ in range(2):
            with django_assert_num_queries(1):
                (found,) = select.instances(turn=turn.pk)
                assert (found, found.session_id, found.session.membership_id) == (turn, turn.session_id, bob.pk)
                assert (found.agent.model.provider.slug, found.parent_step, found.n) == (
                    turn.agent.model.provider.slug,
                    None,
                    1,
                )
        assert found.message == turn.message


def test_the_guard_is_that_of_each_execution(bob: Membership, charlie: Membership) -> None:
    ours, theirs = turn_of(bob), turn_of(charlie)
    select, update = Select(lambda: by_key().values_list("pk")), Update(by_key, {"draft": None}, ("draft",))

    for member, own, other in ((bob, ours, theirs), (charlie, theirs, ours)):
        with organisation_scope(member.organisation):
            assert [list(row) for row in select.rows(turn=own.pk)] == [[own.pk]]
            assert select.rows(turn=other.pk) == []
            assert update.rows(turn=own.pk, draft="mine") == [{"draft": "mine"}]
            assert update.rows(turn=other.pk, draft="stolen") == []
    with system_scope():
        assert len(select.rows(turn=ours.pk)) == len(select.rows(turn=theirs.pk)) == 1
    with organisation_scope(bob.organisation):
        assert select.rows(turn=theirs.pk) == []


def test_outside_of_every_scope_nothing_is_sent(bob: Membership) -> None:
    turn = turn_of(bob)
    select = Select(lambda: by_key().values_list("pk"))
    with organisation_scope(bob.organisation):
        select.rows(turn=turn.pk)

    with pytest.raises(ScopeError):
        select.rows(turn=turn.pk)


def test_an_update_returns_the_row_as_it_is_afterwards(bob: Membership) -> None:
    turn = turn_of(bob)
    update = Update(
        by_key,
        {
            "last_event": F("last_event") + Param("more", Turn._meta.get_field("last_event")),
            "draft": "fixed",
            "owner": None,
            "lease_until": from_now(Param("lease", DurationField())),
            "waiting_since": Value(None),
        },
        ("last_event", "owner", "lease_until", "session_id"),
    )

    with organisation_scope(bob.organisation):
        (row,) = update.rows(turn=turn.pk, more=3, owner="me", lease=timedelta(seconds=60))
        stored = Turn.objects.get(pk=turn.pk)

    assert row == {
        "last_event": turn.last_event + 3,
        "owner": "me",
        "lease_until": stored.lease_until,
        "session_id": turn.session_id,
    }
    assert (stored.draft, stored.waiting_since, stored.last_event) == ("fixed", None, turn.last_event + 3)
    assert stored.lease_until is not None
    assert abs((stored.lease_until - timezone.now()).total_seconds() - 60) < 50


def test_returning_reaches_no_joined_row(bob: Membership) -> None:
    turn = turn_of(bob)
    with organisation_scope(bob.organisation), pytest.raises(ValueError, match="no joined rows"):
        Update(by_key, {"draft": ""}, ("session__title",)).rows(turn=turn.pk)


def test_an_insert_stores_rows_with_defaults_and_times_of_now(bob: Membership, charlie: Membership) -> None:
    turn = turn_of(bob)
    insert = Insert(TurnEvent, dict.fromkeys(("organisation", "turn", "number", "type")))
    rows = [{"organisation": bob.organisation_id, "turn": turn.pk, "number": n, "type": f"t{n}"} for n in (101, 102)]

    with organisation_scope(bob.organisation):
        keys = insert.rows(*rows)
        (third,) = insert.rows(rows[0] | {"number": 103})

        stored = list(TurnEvent.objects.filter(number__gt=100).order_by("number"))
        assert [each.pk for each in stored] == [*keys, third]
        assert [(each.number, each.type, each.payload) for each in stored][:2] == [(101, "t101", {}), (102, "t102", {})]
        assert all(abs((each.created_at - timezone.now()).total_seconds()) < 60 for each in stored)
        with pytest.raises(ScopeError):
            insert.rows(rows[0] | {"organisation": charlie.organisation_id, "number": 104})


def test_a_whole_row_is_stored_as_its_save_does(bob: Membership, charlie: Membership) -> None:
    first, second = turn_of(bob), turn_of(charlie)
    insert = Insert.whole(TurnEvent)
    with organisation_scope(bob.organisation):
        columns = {"organisation": bob.organisation, "turn": first, "type": "told", "payload": {"a": [1, None]}}
        saved, added = TurnEvent(number=101, **columns), TurnEvent(number=102, **columns)
        saved.save(force_insert=True)
        insert.add(added)

        one, other = (TurnEvent.objects.values().get(pk=each.pk) for each in (saved, added))
        assert {**other, "id": 0, "number": 0, "created_at": 0} == {**one, "id": 0, "number": 0, "created_at": 0}
        assert other["created_at"] == added.created_at
        added.type = "told again"
        added.save()  # it knows that it is stored
        assert TurnEvent.objects.filter(number=102, type="told again").count() == 1
        for other_row in (
            TurnEvent(organisation=charlie.organisation, turn_id=first.pk, number=103),
            TurnEvent(organisation=bob.organisation, turn=second, number=103),
        ):
            with pytest.raises(ScopeError):
                insert.add(other_row)


def test_an_insert_of_a_whole_row_computes_its_expressions_in_the_database(bob: Membership) -> None:
    turn = turn_of(bob)
    seconds = Param("seconds", DurationField())
    with organisation_scope(bob.organisation):
        insert = Insert.whole(Turn, deadline_at=from_now(seconds), rang_at=Now())
        new = Turn(organisation=bob.organisation, session=turn.session, membership=bob, agent=turn.agent, seq=7)
        insert.add(new, seconds=timedelta(seconds=60))

        stored = Turn.objects.get(pk=new.pk)
        assert stored.rang_at is not None
        assert abs((stored.deadline_at - stored.rang_at).total_seconds() - 60) < 1


def test_values_without_parameter_stand_in_the_text_of_a_statement(bob: Membership) -> None:
    session = make_session(bob, make_agent(bob.organisation))
    update = Update(lambda: ChatSession.objects.filter(pk=param(ChatSession, "id", "session")), {"deleted_at": Now()})

    with organisation_scope(bob.organisation):
        assert update.rows(session=session.pk) == []
        session.refresh_from_db()

    assert session.deleted_at is not None
