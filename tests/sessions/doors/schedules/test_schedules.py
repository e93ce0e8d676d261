"""Schedules on their page and over REST: one's own; with the right `sessions` everybody's, to switch off and delete."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from sessions.models import ChatSession, Schedule
from tests.cast import PASSWORD, make_agent, make_member, make_session
from tests.rest import Rest
from tests.sessions.doors.schedules.test_periodic import schedule
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Right
from toolhub.tenants.people.writes import set_access
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

BODY = {"name": "Morning", "cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin", "message": "What is due?"}


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def row(session: ChatSession) -> Schedule:
    return schedule(session, last_error="Its turn before was still running.")


def browser(member: Membership) -> Client:
    client = Client()
    assert client.login(email=member.user.email, password=PASSWORD)
    return client


def fresh(row: Schedule) -> Schedule:
    with organisation_scope(row.organisation_id):
        return Schedule.objects.get(pk=row.pk)


def audited(row: Schedule) -> list[tuple[str, str]]:
    with organisation_scope(row.organisation_id):
        entries = AuditEntry.objects.filter(action__startswith="schedule.").order_by("number")
        return [(entry.action, entry.actor_label) for entry in entries]


def exists(row: Schedule) -> bool:
    with organisation_scope(row.organisation_id):
        return Schedule.objects.filter(pk=row.pk).exists()


# -- REST -------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_added_read_changed_switched_and_deleted_over_rest(bob: Membership, session: ChatSession) -> None:
    rest = Rest(bob)

    added = rest.post("schedules", BODY)
    path = added.headers["Location"]
    renamed = rest.ask("PATCH", path, b'{"name": "Evening", "cron": "0 18 * * *"}')
    off = rest.ask("PATCH", path, b'{"is_enabled": false}')

    assert (added.status, added.json["agent"], added.json["member"]) == (201, "starter", str(bob.public_id))
    assert (renamed.json["name"], renamed.json["cron"], renamed.json["message"]) == (
        "Evening",
        "0 18 * * *",
        BODY["message"],
    )
    assert renamed.json["next_at"] != added.json["next_at"]
    assert (off.json["is_enabled"], off.json["next_at"]) == (False, None)
    assert [each["name"] for each in rest.get("schedules").json["results"]] == ["Evening"]
    assert rest.ask("DELETE", path).status == 204
    assert rest.get(path).status == 404
    with organisation_scope(bob.organisation_id):
        actions = AuditEntry.objects.filter(action__startswith="schedule.").values_list("action", flat=True)
        assert sorted(actions) == ["schedule.add", "schedule.change", "schedule.remove", "schedule.switch"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cron": "61 * * * *"}, (400, "invalid", "cron")),
        ({"cron": "daily"}, (400, "invalid", "cron")),
        ({"timezone": "Moon"}, (400, "invalid", "timezone")),
        ({"agent": "no-agent"}, (400, "unknown", "agent")),
        ({"message": " "}, (400, "blank", "message")),
        ({"name": 7}, (400, "invalid", "name")),
        ({"owner": "x"}, (400, "unknown_field", "owner")),
    ],
)
def test_invalid_input_is_refused_with_its_field(
    bob: Membership, row: Schedule, change: dict[str, Any], error: tuple[int, str, str]
) -> None:
    rest = Rest(bob)

    assert rest.post("schedules", BODY | change).error == error
    assert rest.ask("PATCH", f"schedules/{row.public_id}", json.dumps(change).encode()).error == error
    assert fresh(row).cron == row.cron
    with organisation_scope(bob.organisation_id):
        assert Schedule.objects.count() == 1


def test_a_member_has_twenty_schedules_at_most_over_rest_too(bob: Membership, session: ChatSession) -> None:
    for number in range(1, 21):
        schedule(session, number=number)

    assert Rest(bob).post("schedules", BODY).error == (409, "conflict", None)


def test_who_sees_everybody_s_switches_off_and_deletes_but_never_edits_or_switches_on(
    alice: Membership, row: Schedule
) -> None:
    rest, path = Rest(alice), f"schedules/{row.public_id}"

    assert rest.ask("PATCH", path, b'{"message": "mine now"}').error == (403, "forbidden", None)
    assert rest.ask("PATCH", path, b'{"is_enabled": false}').status == 200
    assert rest.ask("PATCH", path, b'{"is_enabled": true}').error == (403, "forbidden", None)
    assert (fresh(row).is_enabled, fresh(row).message) == (False, row.message)
    assert rest.ask("DELETE", path).status == 204
    assert audited(row) == [("schedule.switch", "alice@example.com"), ("schedule.remove", "alice@example.com")]


@pytest.mark.parametrize("who", ["charlie", "dora"])
def test_to_others_it_looks_like_a_missing_one(
    request: pytest.FixtureRequest, row: Schedule, who: str, charlie: Membership
) -> None:
    member = charlie if who == "charlie" else make_member(row.organisation, "dora")
    rest, client, org = Rest(member), browser(member), member.organisation.slug

    for method in ("GET", "PATCH", "DELETE"):
        there = rest.ask(method, f"schedules/{row.public_id}", b"{}")
        missing = rest.ask(method, f"schedules/{uuid4()}", b"{}")
        assert (there.status, there.text) == (missing.status, missing.text) == (404, missing.text)
    for what in ("", "switch/", "delete/"):
        assert client.post(f"/o/{org}/schedules/{row.public_id}/{what}", {"enabled": "0"}).status_code == 404
    assert rest.get("schedules").json["results"] == []
    assert fresh(row).is_enabled


def test_a_member_who_became_a_viewer_reads_and_changes_nothing(
    alice: Membership, bob: Membership, row: Schedule
) -> None:
    with organisation_scope(alice.organisation_id):
        set_access(bob, Access.VIEWER, actor=alice)
    rest, client = Rest(bob), browser(bob)

    assert rest.get(f"schedules/{row.public_id}").status == 200
    for method in ("PATCH", "DELETE"):
        assert rest.ask(method, f"schedules/{row.public_id}", b'{"is_enabled": true}').status == 403
    assert rest.post("schedules", BODY).status == 403
    assert client.get("/o/acme/schedules/").status_code == 200
    for what in ("switch/", "delete/"):
        assert client.post(f"/o/acme/schedules/{row.public_id}/{what}", {"enabled": "1"}).status_code == 403
    assert exists(row)


def test_pages_of_the_list_leave_none_out_where_names_are_the_same(bob: Membership, session: ChatSession) -> None:
    for number in range(1, 6):
        schedule(session, number=number, name="Same")
    rest, seen, query = Rest(bob), [], {"limit": 2}

    while True:
        reply = rest.get("schedules", **query)
        seen += [each["id"] for each in reply.json["results"]]
        if reply.json["next"] is None:
            break
        query["cursor"] = reply.json["next"]

    assert len(seen) == len(set(seen)) == 5
    for cursor in ("x", "WyJhIl0", "bnVsbA", "a" * 2_000):
        assert rest.get("schedules", cursor=cursor).status == 400


# -- Pages ------------------------------------------------------------------------------------------------------------


def test_the_page_lists_what_runs_when_and_what_went_wrong(bob: Membership, row: Schedule) -> None:
    page = browser(bob).get("/o/acme/schedules/").content.decode()

    for said in ("Morning", "0 9 * * *", "Starter", "Its turn before was still running.", "Switch off", "Delete"):
        assert said in page
    assert row.next_text in page
    assert 'aria-current="page"' in page


def test_everybody_s_are_for_the_right_sessions_alone(alice: Membership, bob: Membership, row: Schedule) -> None:
    dora = make_member(row.organisation, "dora")
    client = browser(dora)
    assert "Morning" not in client.get("/o/acme/schedules/?whose=all").content.decode()
    with organisation_scope(row.organisation_id):
        AdminRight.objects.create(organisation=row.organisation, membership=dora, right=Right.SESSIONS)

    page = client.get("/o/acme/schedules/?whose=all").content.decode()

    assert "Morning" in page
    assert "bob@example.com" in page
    assert f"/schedules/{row.public_id}/switch/" in page
    assert f'href="/o/acme/schedules/{row.public_id}/"' not in page
    assert client.post(f"/o/acme/schedules/{row.public_id}/switch/", {"enabled": "0"}).status_code == 302
    assert not fresh(row).is_enabled
    assert client.get(f"/o/acme/schedules/{row.public_id}/").status_code == 403


def test_a_schedule_is_added_edited_switched_and_deleted_in_the_browser(bob: Membership, session: ChatSession) -> None:
    client = browser(bob)
    form = BODY | {"agent": "starter"}

    assert client.post("/o/acme/schedules/", form).status_code == 302
    with organisation_scope(bob.organisation_id):
        row = Schedule.objects.get()
        make_agent(bob.organisation, slug="other")
    address = f"/o/acme/schedules/{row.public_id}/"
    assert client.post(address, form | {"agent": "other", "name": "Evening"}).status_code == 302
    assert client.post(f"{address}switch/", {"enabled": "0"}).status_code == 302

    changed = fresh(row)
    with organisation_scope(bob.organisation_id):
        assert (changed.name, changed.agent.slug, changed.is_enabled) == ("Evening", "other", False)
    assert client.post(f"{address}delete/").status_code == 302
    assert not exists(row)


def test_what_is_wrong_stands_beside_its_field(bob: Membership, session: ChatSession) -> None:
    client = browser(bob)

    answer = client.post("/o/acme/schedules/", BODY | {"agent": "starter", "cron": "0 0 30 2 *"})

    assert answer.status_code == 422
    assert "no such moment comes" in answer.content.decode()


def test_switching_on_what_cannot_be_read_says_why(bob: Membership, session: ChatSession) -> None:
    row = schedule(session, cron="garbage", is_enabled=False)

    answer = browser(bob).post(f"/o/acme/schedules/{row.public_id}/switch/", {"enabled": "1"}, follow=True)

    assert "five fields" in answer.content.decode()
    assert not fresh(row).is_enabled


def test_the_page_takes_as_many_queries_for_three_as_for_one(
    alice: Membership, bob: Membership, session: ChatSession, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = browser(alice)
    schedule(session)
    client.get("/o/acme/schedules/?whose=all")
    with django_assert_num_queries(11):
        client.get("/o/acme/schedules/?whose=all")
    for number in (2, 3):
        other = make_session(make_member(bob.organisation, f"m{number}"))
        schedule(other, agent=make_agent(bob.organisation, slug=f"a{number}"))

    with django_assert_num_queries(11):
        client.get("/o/acme/schedules/?whose=all")
