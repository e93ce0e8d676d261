"""Who may stop a turn: one table, asked of the REST API and of the browser alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from sessions.models import Turn, TurnStatus
from tests.cast import PASSWORD, make_member, make_session, make_turn
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db

#: Access of whoever asks, whether with the right `sessions`, whether the turn is their own, and the answer.
TABLE = [
    (Access.VIEWER, False, True, 403),
    (Access.MEMBER, False, True, 200),
    (Access.OPERATOR, False, True, 200),
    (Access.ADMIN, False, True, 200),
    (Access.VIEWER, False, False, 404),
    (Access.MEMBER, False, False, 404),
    (Access.OPERATOR, False, False, 200),
    (Access.ADMIN, False, False, 200),
    (Access.VIEWER, True, True, 200),
    (Access.VIEWER, True, False, 200),
    (Access.MEMBER, True, False, 200),
]


def by_rest(member: Membership, turn: Turn) -> int:
    return Rest(member).post(f"turns/{turn.pk}/cancel").status


def by_browser(member: Membership, turn: Turn) -> int:
    client = Client()
    assert client.login(email=member.user.email, password=PASSWORD)
    return client.post(
        f"/o/{member.organisation.slug}/turns/{turn.pk}/cancel/", headers={"HX-Request": "true"}
    ).status_code


@pytest.mark.parametrize("ask", [by_rest, by_browser])
@pytest.mark.parametrize(("access", "has_right", "is_own", "answer"), TABLE)
def test_both_give_the_same_answer(
    acme: Organisation,
    ask: Callable[[Membership, Turn], int],
    access: Access,
    has_right: bool,
    is_own: bool,
    answer: int,
) -> None:
    asking = make_member(acme, "erin", access)
    if has_right:
        with organisation_scope(acme):
            AdminRight.objects.create(organisation=acme, membership=asking, right=Right.SESSIONS)
    turn = make_turn(make_session(asking if is_own else make_member(acme, "owner")), last_event=1)

    assert ask(asking, turn) == answer

    with organisation_scope(acme):
        turn.refresh_from_db()
    assert (turn.status == TurnStatus.CANCELLED) is (answer == 200)


@pytest.mark.parametrize("ask", [by_rest, by_browser])
def test_another_organisation_s_admin_finds_no_turn(
    charlie: Membership, bob: Membership, ask: Callable[[Membership, Turn], int]
) -> None:
    assert ask(charlie, make_turn(make_session(bob))) == 404
