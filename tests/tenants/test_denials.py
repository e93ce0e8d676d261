"""Refusals for want of a right are on record, bounded: pages, REST routes, and calls of tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client

from sessions.insight.trial.writes import trial_or_404
from sessions.loop.clients.replies import Call
from sessions.loop.tools import execution
from tests.cast import PASSWORD, make_session, make_token, make_tool, make_turn
from tests.rest import Rest
from tests.sessions.run_turns import as_claimed
from toolhub.tenants.audit import denials
from toolhub.tenants.audit.denials import MOST_A_WINDOW, WINDOW, Recent, record_denial
from toolhub.tenants.audit.writes import check_chain
from toolhub.tenants.models import AuditEntry, Membership, Scope
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_denied_yet() -> Iterator[None]:
    denials.recent.clear()
    yield
    denials.recent.clear()


def denied(member: Membership) -> list[tuple[str, str, Any]]:
    with organisation_scope(member.organisation_id):
        entries = AuditEntry.objects.filter(action="denied").order_by("number")
        return [(entry.actor_label, entry.target_type, entry.after["what"]) for entry in entries]


def test_a_page_that_asks_for_a_right_leaves_one_entry_a_minute(bob: Membership) -> None:
    client = Client()
    client.login(email=bob.user.email, password=PASSWORD)

    answers = [client.get("/o/acme/roles/").status_code for _ in range(5)]

    assert answers == [403] * 5
    assert denied(bob) == [("bob@example.com", "membership", "GET role_list")]
    assert check_chain(bob.organisation) is None


def test_a_route_of_rest_does_too_and_says_why(bob: Membership) -> None:
    rest = Rest(bob)

    assert [rest.get("roles").status for _ in range(3)] == [403] * 3
    assert rest.post("roles", {}).status == 403

    assert [what for _, _, what in denied(bob)] == ["GET api-roles", "POST api-roles"]
    with organisation_scope(bob.organisation_id):
        assert AuditEntry.objects.filter(action="denied")[0].after["reason"] == "This needs the admin right roles."


def test_a_token_without_the_scope_is_on_record(bob: Membership) -> None:
    client = Client(headers={"Authorization": f"Bearer {make_token(bob, scopes=[Scope.READ])}"})

    answer = client.post("/api/v1/sessions", b"{}", content_type="application/json")

    assert answer.status_code == 403
    assert denied(bob) == [("bob@example.com", "membership", "POST api-sessions")]


def test_a_call_of_a_tool_that_the_member_may_not_use_is_on_record(bob: Membership) -> None:
    tool = make_tool(bob.organisation, "calculator")
    turn = make_turn(make_session(bob))
    with organisation_scope(bob.organisation_id):
        spec = trial_or_404(bob, tool.name).spec
        claimed = as_claimed(turn)
        for _ in range(3):
            execution.permitted_arguments(claimed, spec, Call("c", "calculator", "{}"))

    assert denied(bob) == [("bob@example.com", "tool", "tool calculator")]


def test_a_missing_or_foreign_row_is_not_recorded_as_a_denial(charlie: Membership, bob: Membership) -> None:
    rest = Rest(charlie)

    assert rest.get("turns/00000000-0000-4000-8000-000000000000").status == 404
    assert rest.get(f"sessions/{make_session(bob).pk}").status == 404

    assert denied(bob) == denied(charlie) == []


def test_one_member_writes_so_many_a_minute_whatever_they_are_of() -> None:
    recent = Recent()

    due = [recent.is_due(1, f"GET page-{number}") for number in range(MOST_A_WINDOW + 50)]

    assert sum(due) == MOST_A_WINDOW
    assert recent.is_due(2, "GET page-0")


def test_after_a_minute_it_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recent, now = Recent(), [1000.0]
    monkeypatch.setattr("toolhub.tenants.audit.denials.time.monotonic", lambda: now[0])

    first, again = recent.is_due(1, "x"), recent.is_due(1, "x")
    now[0] += WINDOW
    later = recent.is_due(1, "x")

    assert (first, again, later) == (True, False, True)


def test_a_denial_stands_where_its_entry_cannot_be_written(bob: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(denials, "record", fails)

    record_denial(bob, "x", "y")

    assert Rest(bob).get("roles").status == 403
