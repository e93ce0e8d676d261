"""Several calls of one tool answered together, and each call beside the last one that was approved."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions.asking.approvals.comparing import differing_arguments
from sessions.models import Approval, ApprovalKind, ApprovalStatus, ChatSession, StepStatus, TurnStatus
from tests.cast import make_approval, make_session, make_turn
from tests.sessions.doors.chats.test_views import add_step
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db
LIST = "/o/acme/approvals/"
SEVERAL = f"{LIST}several/"


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, title="Tidy up")


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def asked(session: ChatSession, arguments: Any = None, *, tool: str = "calculator", **fields: Any) -> Approval:
    """A call that waits, or was decided."""
    turn = make_turn(session, "Do it", status=TurnStatus.WAITING_APPROVAL, waiting_since=timezone.now())
    text = json.dumps({"expression": "1+1"} if arguments is None else arguments)
    step = add_step(turn, status=StepStatus.PENDING, tool_name=tool, arguments=text, round=1, call_index=0)
    return make_approval(step, **fields)


def approved(session: ChatSession, arguments: Any = None, **fields: Any) -> Approval:
    decided: dict[str, Any] = {
        "status": ApprovalStatus.APPROVED,
        "decided_by": session.membership,
        "decided_at": timezone.now(),
    }
    return asked(session, arguments, **decided, **fields)


def statuses(*approvals: Approval) -> list[str]:
    with system_scope():
        return [Approval.objects.get(pk=each.pk).status for each in approvals]


def send(client: Client, do: str, *approvals: Approval, confirmed: bool = True) -> Any:
    body = {"do": do, "approval": [str(each.public_id) for each in approvals]}
    return client.post(SEVERAL, body | ({"confirmed": "1"} if confirmed else {}), follow=True)


def text_of(response: Any) -> str:
    return " ".join(response.content.decode().split())


# -- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("do", "status"), [("approve", "approved"), ("deny", "denied")])
def test_each_ticked_call_gets_an_answer_and_an_audit_entry_of_its_own(
    as_bob: Client, session: ChatSession, do: str, status: str
) -> None:
    first, second, left = (asked(session) for _ in range(3))

    send(as_bob, do, first, second)

    assert statuses(first, second, left) == [status, status, "pending"]
    with system_scope():
        targets = AuditEntry.objects.filter(action=f"approval.{do}").values_list("target_id", flat=True)
        assert sorted(targets) == sorted(str(each.public_id) for each in (first, second))


def test_before_it_is_confirmed_the_page_shows_whose_calls_they_are_and_changes_nothing(
    as_bob: Client, session: ChatSession
) -> None:
    calls = [asked(session, {"expression": f"{number}+7"}) for number in range(2)]

    page = text_of(send(as_bob, "approve", *calls, confirmed=False))

    assert [text in page for text in ("0+7", "1+7", "for Bob", "Approve 2 calls")] == [True] * 4
    assert statuses(*calls) == ["pending", "pending"]


def test_a_call_that_was_answered_meanwhile_keeps_that_answer_and_the_others_get_theirs(
    as_bob: Client, session: ChatSession
) -> None:
    first, second = asked(session), asked(session)
    with system_scope():
        Approval.objects.filter(pk=first.pk).update(status=ApprovalStatus.DENIED)

    page = text_of(send(as_bob, "approve", first, second))

    assert statuses(first, second) == ["denied", "approved"]
    assert "Not answered" in page


def test_calls_of_two_tools_are_not_answered_together(as_bob: Client, session: ChatSession) -> None:
    first, second = asked(session), asked(session, tool="clock")

    send(as_bob, "approve", first, second)

    assert statuses(first, second) == ["pending", "pending"]


def test_nothing_is_answered_for_another_person_or_organisation(
    as_bob: Client, alice: Membership, charlie: Membership, session: ChatSession
) -> None:
    own, hers, theirs = asked(session), asked(make_session(alice)), asked(make_session(charlie))

    for other in (hers, theirs):
        assert send(as_bob, "approve", own, other).status_code == 404
    missing = as_bob.post(SEVERAL, {"do": "approve", "approval": [str(uuid4())], "confirmed": "1"})

    assert missing.status_code == 404
    assert statuses(own, hers, theirs) == ["pending"] * 3


def test_a_call_that_needs_another_person_stays_open(as_bob: Client, session: ChatSession) -> None:
    first, second = asked(session), asked(session, needs_other_person=True)

    page = text_of(send(as_bob, "approve", first, second, confirmed=False))
    send(as_bob, "approve", first, second)

    assert "Approve 1 call" in page
    assert statuses(first, second) == ["approved", "pending"]


@pytest.mark.parametrize("body", [{}, {"do": "approve"}, {"do": "x", "approval": str(uuid4())}, {"approval": "x"}])
def test_what_is_not_ticked_or_no_answer_changes_nothing(as_bob: Client, session: ChatSession, body: Any) -> None:
    call = asked(session)

    response = as_bob.post(SEVERAL, body | {"confirmed": "1"})

    assert (response.status_code, statuses(call)) == (302, ["pending"])


def test_the_queue_offers_it_for_several_calls_of_a_tool_only(as_bob: Client, session: ChatSession) -> None:
    asked(session)
    asked(session, tool="clock")
    asked(session, kind=ApprovalKind.QUESTION)
    assert 'name="do"' not in text_of(as_bob.get(LIST))

    asked(session)
    assert text_of(as_bob.get(LIST)).count('name="approval"') == 2


# -- Beside the last approved call -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "arguments", "differing"),
    [
        ({"a": 1, "b": "x"}, {"a": 2, "b": "x"}, [("a", "1", "2")]),
        ({"a": 1}, {"a": 1, "b": ""}, [("b", None, '""')]),
        ({"a": 1, "b": None}, {"a": 1}, [("b", "null", None)]),
        ({"a": "x"}, {"a": "x\u200b"}, [("a", "x", "x\\u200B")]),
        ({"a": 1}, {"a": 1}, []),
        ([1], {"a": 1}, None),
    ],
)
def test_arguments_differ_by_name(earlier: Any, arguments: Any, differing: Any) -> None:
    found = differing_arguments(json.dumps(earlier), json.dumps(arguments))

    def text(parts: Any) -> str | None:
        return None if parts is None else "".join(part.text for part in parts)

    assert differing == (None if found is None else [(text(x.name), text(x.before), text(x.after)) for x in found])


def test_a_waiting_call_is_compared_with_the_last_that_was_approved(as_bob: Client, session: ChatSession) -> None:
    approved(session, {"expression": "1+1", "digits": 2})
    last = approved(session, {"expression": "2+2", "digits": 2})
    asked(session, {"expression": "3+3", "digits": 2})

    page = text_of(as_bob.get(LIST))

    assert "<del>&quot;2+2&quot;</del>" in page or "<del>2+2</del>" in page
    assert (f"{LIST}{last.public_id}/" in page, "<dt>digits</dt>" in page) == (True, False)


def test_it_is_not_compared_with_what_the_reader_may_not_see_nor_with_what_was_denied(
    as_bob: Client, alice: Membership, session: ChatSession
) -> None:
    hers = make_session(alice, session.agent)
    approved(hers, {"expression": "her secret"})
    asked(session, {"expression": "x"}, status=ApprovalStatus.DENIED)
    asked(session, {"expression": "y"})

    page = text_of(as_bob.get(LIST))

    assert ("her secret" in page, "approved call" in page) == (False, False)


def test_comparing_more_calls_takes_no_more_queries(as_bob: Client, session: ChatSession) -> None:
    approved(session)
    counts = []
    for _ in range(3):
        asked(session, {"expression": "x"})
        with CaptureQueriesContext(connection) as queries:
            as_bob.get(LIST)
        counts.append(len(queries))

    assert len(set(counts)) == 1
