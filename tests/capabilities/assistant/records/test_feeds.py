from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from capabilities.assistant.models import CalendarEvent, CalendarFeed
from capabilities.assistant.records.feeds import make_feed
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def address(alice: Membership) -> str:
    """Of Alice's feed, with one event in it."""
    add_event(alice, "Dentist")
    return address_of(alice)


def add_event(member: Membership, title: str, start: datetime | None = None, **fields: object) -> None:
    with organisation_scope(member.organisation):
        CalendarEvent.objects.create(
            organisation=member.organisation,
            membership=member,
            number=CalendarEvent.objects.filter(membership=member).count() + 1,
            title=title,
            starts_at=start or timezone.now(),
            ends_at=start or timezone.now(),
            time_zone="UTC",
            **fields,
        )


def address_of(member: Membership) -> str:
    with organisation_scope(member.organisation):
        return f"/calendar/{make_feed(member.organisation_id, member.pk, timezone.now())}.ics"


def summaries(text: str) -> list[str]:
    return [line.removeprefix("SUMMARY:") for line in text.split("\r\n") if line.startswith("SUMMARY:")]


def test_the_feed_is_read_without_a_login(client: Client, address: str) -> None:
    response = client.get(address)

    assert response.status_code == 200
    assert summaries(response.content.decode()) == ["Dentist"]
    assert response["Content-Type"] == "text/calendar; charset=utf-8"
    assert response["Cache-Control"] == "private, no-cache"
    assert "X-WR-CALNAME:Acme: Alice\r\n" in response.content.decode()


def test_only_reading_is_allowed(client: Client, address: str) -> None:
    assert client.head(address).status_code == 200
    assert client.post(address).status_code == 405


def test_nobody_elses_events_are_in_it(client: Client, address: str, bob: Membership, charlie: Membership) -> None:
    add_event(bob, "of Bob")
    add_event(charlie, "of Charlie")

    assert summaries(client.get(address).content.decode()) == ["Dentist"]
    assert summaries(client.get(address_of(charlie)).content.decode()) == ["of Charlie"]


def test_what_is_long_over_is_left_out(client: Client, alice: Membership) -> None:
    old = timezone.now() - timedelta(days=800)
    add_event(alice, "over", old)
    add_event(alice, "over too", old, repeat="weekly", repeat_until=old.date())
    add_event(alice, "goes on", old, repeat="weekly")

    assert summaries(client.get(address_of(alice)).content.decode()) == ["goes on"]


@pytest.mark.parametrize("secret", ["x", "a" * 43, "a" * 5000, "%00", "%F0%9F%98%80", "%80"])
def test_an_unknown_secret_is_no_page(client: Client, address: str, secret: str) -> None:
    assert client.get(f"/calendar/{secret}.ics").status_code == 404


def test_a_new_secret_ends_the_old_one(client: Client, address: str, alice: Membership) -> None:
    newer = address_of(alice)

    assert client.get(address).status_code == 404
    assert client.get(newer).status_code == 200


def test_the_secret_itself_is_not_stored(address: str, alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        (row,) = CalendarFeed.objects.values()

    assert not [value for value in row.values() if str(value) in address and len(str(value)) > 3]


def test_the_feed_of_who_was_shut_out_is_no_page(client: Client, address: str, alice: Membership) -> None:
    alice.user.is_active = False
    alice.user.save()

    assert client.get(address).status_code == 404


def test_the_feed_of_who_left_is_no_page(client: Client, address: str, alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        alice.delete()

    assert client.get(address).status_code == 404


@pytest.mark.parametrize("count", [1, 3])
def test_the_feed_takes_two_queries(
    client: Client, alice: Membership, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(count):
        add_event(alice, "x")
    address = address_of(alice)

    with django_assert_num_queries(2):  # type: ignore[operator]
        client.get(address)
