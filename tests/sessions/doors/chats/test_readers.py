"""What the permission of a stream's reader hangs on: each change of it is seen, by five queries for all readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from sessions.doors.chats import readers
from sessions.doors.chats.readers import Reader, Readers, rows_of
from sessions.models import ChatSession
from tests.cast import make_agent, make_member, make_session
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Access, AdminRight, ApiToken, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(bob: Membership, client: Client) -> Reader:
    """Bob, with a login, a token and the right `sessions`, at a session of his."""
    client.force_login(bob.user)
    with organisation_scope(bob.organisation):
        token, _ = issue_token(bob, "stream", actor=bob, days=1)
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.SESSIONS)
    session = make_session(bob, make_agent(bob.organisation))
    return Reader(bob.pk, session.pk, client.session.session_key, token.pk)


def rows(reader: Reader) -> int:
    return rows_of([reader])[0]


def set_password(bob: Membership) -> None:
    bob.user.set_password("another-password")
    bob.user.save()


CHANGES: dict[str, Callable[[Membership], Any]] = {
    "signed out": lambda bob: Session.objects.all().delete(),
    "login expired": lambda bob: Session.objects.update(expire_date=timezone.now()),
    "another user's login": lambda bob: Session.objects.update(session_data="other"),
    "new password": set_password,
    "account off": lambda bob: type(bob.user).objects.filter(pk=bob.user_id).update(is_active=False),
    "removed": lambda bob: Membership.objects.filter(pk=bob.pk).update(ended_at=timezone.now()),
    "membership gone": lambda bob: Membership.objects.filter(pk=bob.pk).delete(),
    "demoted": lambda bob: Membership.objects.filter(pk=bob.pk).update(access=Access.VIEWER),
    "right taken": lambda bob: AdminRight.objects.all().delete(),
    "right narrowed": lambda bob: AdminRight.objects.update(category="web"),
    "token revoked": lambda bob: ApiToken.objects.update(revoked_at=timezone.now()),
    "token expired": lambda bob: ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1)),
    "session deleted": lambda bob: ChatSession.objects.update(deleted_at=timezone.now()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_that_may_end_a_stream_is_seen(reader: Reader, bob: Membership, change: str) -> None:
    before = rows(reader)
    assert rows(reader) == before

    with system_scope():
        CHANGES[change](bob)

    assert rows(reader) != before


def test_a_session_that_is_another_s_now_is_seen(reader: Reader, bob: Membership) -> None:
    before, alice = rows(reader), make_member(bob.organisation, "erin")

    with system_scope():
        ChatSession.objects.update(membership=alice)

    assert rows(reader) != before


def test_the_use_of_a_token_is_no_change(reader: Reader) -> None:
    before = rows(reader)

    with system_scope():
        ApiToken.objects.update(last_used_at=timezone.now())

    assert rows(reader) == before


@pytest.mark.parametrize("count", [1, 3])
def test_five_queries_for_all_readers(
    reader: Reader, bob: Membership, count: int, django_assert_num_queries: Any
) -> None:
    others = [make_member(bob.organisation, f"member{number}") for number in range(count - 1)]
    all_readers = [reader, *(Reader(other.pk, reader.session_id, f"login{other.pk}") for other in others)]

    with django_assert_num_queries(5):
        found = rows_of(all_readers)

    assert len(set(found)) == count


def test_a_reader_is_asked_for_once_at_first_and_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"first": 1, "second": 1}
    looks: list[int] = []

    def look(all_readers: list[Reader]) -> list[int]:
        looks.append(len(all_readers))
        return [now[str(reader.login)] for reader in all_readers]

    monkeypatch.setattr(readers, "rows_of", look)
    monkeypatch.setattr(readers, "CHECK_EVERY", -1.0)

    async def ask() -> list[list[bool]]:
        mine, answers = Readers(), []
        first, second = [Reader(1, None, name) for name in ("first", "second")]  # type: ignore[arg-type]
        with mine.reading(first), mine.reading(second):
            for change in ({}, {}, {"first": 2}, {}):
                now.update(change)
                answers.append(list(await asyncio.gather(mine.must_ask(first), mine.must_ask(second))))
        assert (mine.open, mine.rows) == (set(), {})
        return answers

    assert asyncio.run(ask()) == [[True, True], [False, False], [True, False], [False, False]]
    assert looks == [2] * 4  # one look for both


def test_a_reader_that_was_just_let_in_waits_for_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(all_readers: list[Reader]) -> list[int]:
        looks.append(len(all_readers))
        return [1] * len(all_readers)

    monkeypatch.setattr(readers, "rows_of", look)

    async def ask() -> list[bool]:
        mine, reader = Readers(), Reader(1, None, "first")  # type: ignore[arg-type]
        with mine.reading(reader):
            first = await mine.must_ask(reader)
            reader.began_at -= readers.CHECK_EVERY
            return [first, await mine.must_ask(reader), await mine.must_ask(reader)]

    assert asyncio.run(ask()) == [False, True, False]
    assert looks == [1]
