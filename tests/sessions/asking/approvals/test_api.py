"""Approvals and consents over REST."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions.models import Approval, ApprovalKind, ApprovalStatus, ChatSession, Consent, TurnStatus
from tests.cast import make_member, make_session, make_token
from tests.rest import Rest
from tests.sessions.asking.approvals.test_pages import asked, status_of
from toolhub.tenants.models import Membership, Scope
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, title="Tidy up")


@pytest.fixture
def rest(bob: Membership) -> Rest:
    return Rest(bob)


def test_an_approval_is_told_whole(rest: Rest, bob: Membership, session: ChatSession) -> None:
    (approval,) = asked(session)

    told = rest.get(f"approvals/{approval.public_id}").json

    times = {name: told.pop(name) for name in ("created_at", "expires_at")}
    assert all(times.values())
    assert told == {
        "id": str(approval.public_id),
        "kind": "approval",
        "status": "pending",
        "turn": str(approval.turn_id),
        "step": 1,
        "round": 1,
        "session": str(session.pk),
        "agent": "starter",
        "requester": str(bob.public_id),
        "tool": "calculator",
        "tool_version": 1,
        "arguments": '{"expression": "0+1"}',
        "digest": approval.digest,
        "asked_by": "rule test",
        "reason": "The rule test asks.",
        "form": {},
        "url": "",
        "action": "",
        "needs_other_person": False,
        "allows_consent": False,
        "decided_by": None,
        "decided_at": None,
        "note": "",
        "proposal": "",
        "response": "",
        "used_at": None,
    }


def test_a_turn_that_waits_names_its_approvals(rest: Rest, session: ChatSession) -> None:
    first, second = asked(session, calls=2)
    rest.post(f"approvals/{second.public_id}/deny", {})

    told = rest.get(f"turns/{first.turn_id}").json

    (waiting,) = told["waiting_for"]
    assert waiting.pop("expires_at")
    assert waiting == {
        "approval": str(first.public_id),
        "address": f"/api/v1/approvals/{first.public_id}",
        "kind": "approval",
        "step": 1,
        "tool": "calculator",
    }
    assert rest.get(waiting["address"]).status == 200


def test_the_list_is_filtered(rest: Rest, session: ChatSession, alice: Membership) -> None:
    (pending,) = asked(session)
    (denied,) = asked(session, status="denied")
    (other,) = asked(session, needs_other_person=True)
    asked(make_session(alice))

    def ids(**query: Any) -> list[str]:
        return [each["id"] for each in rest.get("approvals", **query).json["results"]]

    mine = [str(each.public_id) for each in (other, denied, pending)]
    assert ids() == mine
    assert ids(status="denied") == [mine[1]]
    assert ids(answerable="true") == [mine[2]]
    assert ids(turn=str(denied.turn_id)) == [mine[1]]
    assert ids(session=str(session.pk)) == mine
    for query, field in (({"status": "x"}, "status"), ({"turn": "1"}, "turn"), ({"answerable": "no"}, "answerable")):
        assert rest.get("approvals", **query).error == (400, "invalid", field)


@pytest.mark.parametrize(
    ("act", "body", "after"),
    [
        ("approve", {"note": "Fine."}, {"status": "approved", "note": "Fine."}),
        ("deny", {"proposal": "On Monday."}, {"status": "denied", "proposal": "On Monday."}),
        ("respond", {"response": "It is 4."}, {"status": "responded", "response": "It is 4."}),
    ],
)
def test_each_answer_is_stored(
    rest: Rest, bob: Membership, session: ChatSession, act: str, body: dict[str, str], after: dict[str, str]
) -> None:
    (approval,) = asked(session)

    reply = rest.post(f"approvals/{approval.public_id}/{act}", body)

    assert reply.status == 200
    assert {name: reply.json[name] for name in after} == after
    assert reply.json["decided_by"] == str(bob.public_id)
    assert rest.post(f"approvals/{approval.public_id}/{act}", body).error == (409, "already_decided", None)


@pytest.mark.parametrize(
    ("fields", "act", "code"),
    [
        ({"status": ApprovalStatus.VOID}, "approve", "void"),
        ({"status": ApprovalStatus.EXPIRED}, "approve", "expired"),
        ({"expires_at": timezone.now() - timedelta(minutes=1)}, "deny", "expired"),
        ({"kind": ApprovalKind.QUESTION}, "approve", "not_a_call"),
        ({"arguments": json.dumps({"text": "x" * 100_000})}, "approve", "not_whole"),
    ],
)
def test_a_refused_answer_gets_409_with_its_code(
    rest: Rest, session: ChatSession, fields: dict[str, Any], act: str, code: str
) -> None:
    (approval,) = asked(session, **fields)
    before = status_of(approval)

    assert rest.post(f"approvals/{approval.public_id}/{act}", {}).error == (409, code, None)
    assert status_of(approval) == before


def test_remembering(rest: Rest, session: ChatSession) -> None:
    once, here, timed, never = (asked(session, allows_consent=allowed)[0] for allowed in (True, True, True, False))
    assert rest.post(f"approvals/{once.public_id}/approve", {}).status == 200
    assert rest.get("consents").json["results"] == []
    assert rest.post(f"approvals/{never.public_id}/approve", {"remember": "session"}).error == (409, "no_consent", None)
    assert rest.post(f"approvals/{here.public_id}/approve", {"remember": "hours"}).error == (400, "invalid", "hours")
    assert rest.post(f"approvals/{here.public_id}/approve", {"hours": 1}).error == (400, "invalid", "hours")

    assert rest.post(f"approvals/{here.public_id}/approve", {"remember": "session"}).status == 200
    (consent,) = rest.get("consents").json["results"]
    assert (consent["tool"], consent["session"], consent["until"], consent["in_force"]) == (
        "calculator", str(session.pk), None, True,
    )  # fmt: skip
    assert rest.post(f"approvals/{timed.public_id}/approve", {"remember": "hours", "hours": 8}).status == 200
    with system_scope():
        assert Consent.objects.exclude(until=None).count() == 1

    assert rest.delete(f"consents/{consent['id']}").json["in_force"] is False
    assert rest.get(f"consents/{consent['id']}").json["revoked_at"] is not None


def test_a_token_that_only_chats_does_not_allow_its_own_calls(bob: Membership, session: ChatSession) -> None:
    (approval,) = asked(session)
    rest = Rest(bob)
    rest.client = type(rest.client)(
        headers={"Authorization": f"Bearer {make_token(bob, scopes=[Scope.READ, Scope.CHAT, Scope.MANAGE])}"}
    )

    for act in ("approve", "deny", "respond"):
        assert rest.post(f"approvals/{approval.public_id}/{act}", {"response": "x"}).error == (403, "forbidden", None)
    assert status_of(approval) == "pending"


def test_the_requester_is_refused_where_another_person_must_answer(rest: Rest, session: ChatSession) -> None:
    (approval,) = asked(session, needs_other_person=True)

    reply = rest.post(f"approvals/{approval.public_id}/approve", {})

    assert reply.error == (403, "forbidden", None)
    assert status_of(approval) == "pending"


def test_bob_and_charlie_find_nothing_of_somebody_else(
    rest: Rest, charlie: Membership, alice: Membership, session: ChatSession
) -> None:
    (hers,) = asked(make_session(alice))
    (his,) = asked(session)

    for who, approval in ((rest, hers), (Rest(charlie), hers), (Rest(charlie), his)):
        assert who.get(f"approvals/{approval.public_id}").error == (404, "not_found", None)
        assert who.post(f"approvals/{approval.public_id}/approve", {}).error == (404, "not_found", None)
    assert (status_of(hers), status_of(his)) == ("pending", "pending")


def test_lists_cost_the_same_with_one_and_with_three(rest: Rest, session: ChatSession) -> None:
    other = make_session(make_member(session.organisation, "carol"), session.agent)
    for address in ("approvals", f"sessions/{session.pk}/turns"):
        with system_scope():
            Approval.objects.all().delete()
        counts = []
        for more in (1, 2):
            for _ in range(more):
                asked(session)
                asked(other)
            rest.get(address)
            with CaptureQueriesContext(connection) as captured:
                assert rest.get(address).status == 200
            counts.append(len(captured))
        assert counts[0] == counts[1], address


def test_a_finished_turn_waits_for_nothing(rest: Rest, session: ChatSession) -> None:
    (approval,) = asked(session, status="approved")
    with system_scope():
        approval.turn.status = TurnStatus.DONE
        approval.turn.save(update_fields=["status"])

    assert rest.get(f"turns/{approval.turn_id}").json["waiting_for"] == []
