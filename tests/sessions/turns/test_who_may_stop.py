"""Who may stop a turn: one table, asked of the REST API and of the browser alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client, RequestFactory

from sessions.doors.chats.live import watch_turn
from sessions.models import Turn, TurnStatus
from tests.cast import PASSWORD, make_member, make_session, make_turn
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

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


def browser_of(member: Membership) -> Client:
    client = Client()
    assert client.login(email=member.user.email, password=PASSWORD)
    return client


def by_browser(member: Membership, turn: Turn) -> int:
    return (
        browser_of(member)
        .post(f"/o/{member.organisation.slug}/turns/{turn.pk}/cancel/", headers={"HX-Request": "true"})
        .status_code
    )


def make_case(acme: Organisation, access: Access, has_right: bool, is_own: bool) -> tuple[Membership, Turn]:
    """Who asks, and the turn."""
    asking = make_member(acme, "erin", access)
    if has_right:
        with organisation_scope(acme):
            AdminRight.objects.create(organisation=acme, membership=asking, right=Right.SESSIONS)
    return asking, make_turn(make_session(asking if is_own else make_member(acme, "owner")), last_event=1)


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
    asking, turn = make_case(acme, access, has_right, is_own)

    assert ask(asking, turn) == answer

    with organisation_scope(acme):
        turn.refresh_from_db()
    assert (turn.status == TurnStatus.CANCELLED) is (answer == 200)


@pytest.mark.parametrize(("access", "has_right", "is_own", "answer"), [row for row in TABLE if row[3] != 404])
def test_stop_is_offered_to_those_who_may_wherever_a_turn_is_shown(
    acme: Organisation, access: Access, has_right: bool, is_own: bool, answer: int
) -> None:
    asking, turn = make_case(acme, access, has_right, is_own)
    browser, partial = browser_of(asking), {"HX-Request": "true"}
    session = f"/o/acme/sessions/{turn.session_id}/"

    shown = {
        "page": browser.get(session).content.decode(),
        "news": browser.get(f"{session}notices/?after=0", headers=partial).content.decode(),
        "poll": browser.get(f"/o/acme/turns/{turn.pk}/?poll=1", headers=partial).content.decode(),
        "stream": streamed(browser, asking, turn),
    }

    assert all(f'id="turn-state-{turn.pk}"' in html for html in shown.values())
    offered = {place for place, html in shown.items() if f'id="stop-{turn.pk}"' in html}
    assert offered == (set(shown) if answer == 200 else set())


def streamed(browser: Client, member: Membership, turn: Turn) -> str:
    """What the turn's stream sends first."""
    request: Any = RequestFactory().get("/")
    request.session, request.user, request.membership = browser.session, member.user, member

    async def first() -> str:
        async for part in watch_turn(request, turn.pk):
            return part
        return ""

    return async_to_sync(first)()


@pytest.mark.parametrize("ask", [by_rest, by_browser])
def test_another_organisation_s_admin_finds_no_turn(
    charlie: Membership, bob: Membership, ask: Callable[[Membership, Turn], int]
) -> None:
    assert ask(charlie, make_turn(make_session(bob))) == 404
