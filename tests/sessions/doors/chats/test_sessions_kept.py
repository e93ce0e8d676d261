"""A session is renamed, searched for and deleted: on its pages and over REST, by its own member or with `sessions`."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import ChatSession, Notice, Reminder, Schedule, Step, StepKind, Turn, TurnStatus
from sessions.turns import accepting, ledger
from sessions.usage.rollups.sweep import roll_up
from tests.cast import PASSWORD, make_member, make_session, make_turn
from tests.rest import Rest
from tests.sessions.doors.schedules.test_periodic import schedule
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    found = make_session(bob, title="The plumber")
    make_turn(found, "When does he come?", status=TurnStatus.DONE, answer="On Friday.", input_tokens=10)
    return found


def browser(member: Membership) -> Client:
    client = Client()
    assert client.login(email=member.user.email, password=PASSWORD)
    return client


def page(session: ChatSession, name: str = "") -> str:
    return f"/o/acme/sessions/{session.pk}/{name}"


def title_of(session: ChatSession) -> str:
    with organisation_scope(session.organisation_id):
        return ChatSession.objects.get(pk=session.pk).title


def audited(member: Membership) -> list[tuple[str, dict[str, object]]]:
    with organisation_scope(member.organisation):
        entries = AuditEntry.objects.filter(action="session.delete").order_by("number")
        return [(entry.actor_label, entry.before) for entry in entries]


# -- Rename -----------------------------------------------------------------------------------------------------------


def test_a_session_is_renamed_on_its_page(bob: Membership, session: ChatSession) -> None:
    client = browser(bob)

    assert b"The plumber" in client.get(page(session, "edit/")).content
    assert client.post(page(session, "edit/"), {"title": " "}).status_code == 422
    assert client.post(page(session, "edit/"), {"title": "Plumbing"})["Location"] == page(session)

    assert title_of(session) == "Plumbing"


def test_only_its_member_renames_a_session(alice: Membership, charlie: Membership, session: ChatSession) -> None:
    assert browser(alice).post(page(session, "edit/"), {"title": "Mine"}).status_code == 403
    assert browser(charlie).post(page(session, "edit/"), {"title": "Mine"}).status_code == 404

    assert title_of(session) == "The plumber"


# -- Search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "titles"),
    [
        ("plumber", ["The plumber"]),
        ("PLUMBER friday", ["The plumber"]),
        ("he come", ["The plumber"]),
        ("Überweisung", ["Bank"]),
        ("überweisung", ["Bank"]),
        ("plumber bank", []),
        ("   ", ["Bank", "The plumber"]),
        ("%", []),
    ],
)
def test_each_word_of_a_search_is_in_the_title_a_message_or_an_answer(
    bob: Membership, session: ChatSession, q: str, titles: list[str]
) -> None:
    make_turn(make_session(bob, title="Bank"), "Überweisung an Ann", status=TurnStatus.DONE)

    found = Rest(bob).get("sessions", q=q).json["results"]
    shown = browser(bob).get("/o/acme/sessions/", {"q": q}).content.decode()

    assert [row["title"] for row in found] == titles
    assert [title for title in ("Bank", "The plumber") if f">{title}</a>" in shown] == titles


def test_a_search_goes_on_page_by_page(bob: Membership) -> None:
    for number in range(3):
        make_session(bob, title=f"Plumber {number}")
        make_session(bob, title="Other")
    rest = Rest(bob)

    first = rest.get("sessions", q="plumber", limit=2).json
    second = rest.get("sessions", q="plumber", limit=2, cursor=first["next"]).json

    titles = [row["title"] for row in (*first["results"], *second["results"])]
    assert (titles, second["next"]) == (["Plumber 2", "Plumber 1", "Plumber 0"], None)


def test_a_search_finds_nothing_of_another_member(alice: Membership, session: ChatSession) -> None:
    colleague = make_member(alice.organisation, "colleague")

    assert Rest(colleague).get("sessions", q="plumber").json["results"] == []
    assert len(Rest(alice).get("sessions", q="plumber").json["results"]) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_a_search_asks_the_same_queries_for_one_and_three(
    bob: Membership, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(count):
        make_session(bob, title=f"Plumber {number}")
    client = browser(bob)
    client.get("/o/acme/sessions/?q=plumber")

    with django_assert_num_queries(11):  # one of them for the member's saved filters
        client.get("/o/acme/sessions/?q=plumber")


# -- Delete -----------------------------------------------------------------------------------------------------------


def child_of(session: ChatSession) -> ChatSession:
    """A session that an agent opened for a turn of this one."""
    with organisation_scope(session.organisation):
        parent = session.turns.get(seq=1)
        return ChatSession.objects.create(
            organisation=session.organisation,
            membership=session.membership,
            agent=session.agent,
            parent_turn=parent,
            depth=1,
            title="Child",
        )


def test_a_deleted_session_is_gone_from_pages_and_rest_at_once(alice: Membership, session: ChatSession) -> None:
    bob = session.membership
    child = child_of(session)
    turns = [child.parent_turn_id, make_turn(child, "part", status=TurnStatus.DONE).pk]
    client, rest = browser(bob), Rest(bob)
    addresses = [
        *(f"/o/acme/sessions/{each.pk}/{name}" for each in (session, child) for name in ("", "edit/", "notices/")),
        *(f"/o/acme/turns/{turn}/" for turn in turns),
    ]
    paths = [
        *(f"sessions/{each.pk}{name}" for each in (session, child) for name in ("", "/turns", "/tools", "/toolkits")),
        *(f"turns/{turn}{name}" for turn in turns for name in ("", "/steps", "/events")),
    ]
    assert {client.get(address).status_code for address in addresses} <= {200, 204, 302, 403}
    assert {rest.get(path).status for path in paths if "events" not in path} == {200}

    answer = client.post(page(session, "delete/"))

    assert answer["Location"] == "/o/acme/sessions/"
    assert {client.get(address).status_code for address in addresses} == {404}
    assert {rest.get(path).status for path in paths} == {404}
    assert {Rest(alice).get(path).status for path in paths} == {404}
    assert rest.get("sessions").json["results"] == []
    assert rest.get("sessions", q="plumber").json["results"] == []
    assert rest.post(f"sessions/{session.pk}/turns", {"message": "hello"}).status == 404
    assert rest.ask("DELETE", f"sessions/{session.pk}").status == 404
    assert b"plumber" not in client.get("/o/acme/").content.replace(b"The plumber is deleted", b"")


def test_a_deletion_is_on_record_without_what_was_said(session: ChatSession) -> None:
    bob = session.membership

    assert Rest(bob).ask("DELETE", f"sessions/{session.pk}").status == 204

    [(actor, before)] = audited(bob)
    assert (actor, before["turns"], before["input_tokens"]) == ("bob@example.com", 1, 10)
    with organisation_scope(bob.organisation):
        entry = AuditEntry.objects.get(action="session.delete")
        assert "plumber" not in f"{entry.target_label} {entry.before} {entry.after}".lower()


def test_open_turns_are_stopped_first_and_the_rows_go_when_none_is_open(session: ChatSession) -> None:
    bob = session.membership
    waiting = make_turn(session, "queued")
    running = make_turn(session, "running", status=TurnStatus.RUNNING, lease_until=timezone.now(), epoch=1, owner="w")

    with organisation_scope(bob.organisation):
        delete_session(session, actor=bob)
        waiting.refresh_from_db()
        running.refresh_from_db()
        assert (waiting.status, waiting.cancel_requested_at is not None) == (TurnStatus.CANCELLED, True)
        assert (running.status, running.cancel_requested_at is not None) == (TurnStatus.RUNNING, True)

    remove_deleted()
    with system_scope():
        assert ChatSession.objects.filter(pk=session.pk).exists(), "a worker still runs one of its turns"
        Turn.objects.filter(pk=running.pk).update(status=TurnStatus.CANCELLED)

    roll_up()
    remove_deleted()
    with system_scope():
        assert not ChatSession.objects.filter(pk=session.pk).exists()
        assert not Turn.objects.filter(session=session.pk).exists()


def test_the_sweep_removes_all_that_hangs_on_a_deleted_session_and_nothing_else(session: ChatSession) -> None:
    bob = session.membership
    child = child_of(session)
    child_turn = make_turn(child, "part", status=TurnStatus.DONE)
    kept = make_session(bob, title="Kept")
    kept_turn = make_turn(kept, "kept", status=TurnStatus.DONE)
    with organisation_scope(bob.organisation):
        Step.objects.create(
            organisation=bob.organisation, turn=child_turn, index=1, kind=StepKind.NOTE, status="done", round=1
        )
        Notice.objects.create(organisation=bob.organisation, session=session, text="Reminder")
        delete_session(session, actor=bob)

    remove_deleted()

    with system_scope():
        assert list(ChatSession.objects.values_list("pk", flat=True)) == [kept.pk]
        assert list(Turn.objects.values_list("pk", flat=True)) == [kept_turn.pk]
        assert (Step.objects.count(), Notice.objects.count()) == (0, 0)


def test_schedules_and_reminders_stay_and_go_on_elsewhere(session: ChatSession) -> None:
    bob = session.membership
    row = schedule(session, session=session)
    with organisation_scope(bob.organisation):
        reminder = Reminder.objects.create(
            organisation=bob.organisation,
            membership=bob,
            number=1,
            session=session,
            text="call",
            due_at=timezone.now(),
        )
        delete_session(session, actor=bob)

        row.refresh_from_db()
        reminder.refresh_from_db()
        assert (row.session_id, row.is_enabled, reminder.session_id) == (None, True, None)
        assert Schedule.objects.count() == 1


def test_a_message_does_not_reach_a_session_that_was_deleted_meanwhile(session: ChatSession) -> None:
    bob = session.membership
    with organisation_scope(bob.organisation):
        at_hand = ChatSession.objects.get(pk=session.pk)
        delete_session(session, actor=bob)

        with pytest.raises(ledger.Conflict, match="deleted") as refused:
            accepting.accept(at_hand, "hello", member=bob)

        assert refused.value.code == "deleted"
        assert session.turns.count() == 1


def test_members_who_may_delete_a_session_of_another(
    alice: Membership, charlie: Membership, session: ChatSession
) -> None:
    colleague = make_member(alice.organisation, "colleague")
    viewer = make_member(alice.organisation, "viewer", Access.VIEWER)
    own = make_session(viewer, title="Own")

    assert browser(charlie).post(page(session, "delete/")).status_code == 404
    assert Rest(charlie).ask("DELETE", f"sessions/{session.pk}").status == 404
    assert browser(colleague).post(page(session, "delete/")).status_code == 404
    assert browser(viewer).post(page(own, "delete/")).status_code == 403

    with organisation_scope(alice.organisation):
        AdminRight.objects.create(organisation=alice.organisation, membership=colleague, right=Right.SESSIONS)
    assert browser(colleague).post(page(session, "delete/"))["Location"] == "/o/acme/sessions/?whose=all"
    assert [actor for actor, _ in audited(alice)] == ["colleague@example.com"]


def test_what_an_agent_opened_goes_with_the_session_above_only(session: ChatSession) -> None:
    child = child_of(session)

    assert browser(session.membership).post(page(child, "delete/")).status_code == 403
    assert Rest(session.membership).ask("DELETE", f"sessions/{child.pk}").status == 403


def test_a_session_names_its_schedule_before_it_is_deleted(session: ChatSession) -> None:
    schedule(session, session=session, name="Morning brief")

    shown = " ".join(browser(session.membership).get(page(session, "edit/")).content.decode().split())

    assert "Morning brief; the next run" in shown
