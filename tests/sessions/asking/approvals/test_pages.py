"""The queue of what waits for a person, the card that shows one call, and what is remembered: as pages show them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions.models import (
    Approval,
    ApprovalKind,
    ApprovalStatus,
    ChatSession,
    Consent,
    Door,
    StepStatus,
    Turn,
    TurnStatus,
)
from tests.cast import make_agent, make_approval, make_member, make_session, make_tool, make_turn
from tests.sessions.doors.chats.test_views import add_step, delegate, page_of, text_of
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

LIST = "/o/acme/approvals/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, title="Tidy up")


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def login(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def asked(session: ChatSession, *, calls: int = 1, **fields: Any) -> list[Approval]:
    """A turn that waits for these calls of one reply."""
    waiting = {"status": TurnStatus.WAITING_APPROVAL, "waiting_since": timezone.now()}
    turn = make_turn(session, "Do it", **waiting)
    found = []
    for number in range(calls):
        arguments = fields.get("arguments") or json.dumps({"expression": f"{number}+1"})
        step = add_step(
            turn, status=StepStatus.PENDING, tool_name="calculator", arguments=arguments, round=1, call_index=number
        )
        found.append(make_approval(step, **fields))
    return found


def status_of(approval: Approval) -> str:
    with system_scope():
        return Approval.objects.get(pk=approval.pk).status


def address_of(approval: Approval, act: str = "") -> str:
    return f"{LIST}{approval.public_id}/{act and f'{act}/'}"


# -- The queue ---------------------------------------------------------------------------------------------------------


def test_an_empty_queue_says_what_it_is_for(as_bob: Client) -> None:
    text = text_of(as_bob.get(LIST).content)

    assert "Nothing waits for your answer" in text
    assert "Nothing was asked yet" in text


def test_the_queue_shows_the_exact_call_who_asks_and_why(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session, for_people="Refunds are asked for.")

    page = as_bob.get(LIST).content

    text = text_of(page)
    assert "May calculator run?" in text
    assert "Refunds are asked for." in text
    assert "{ &quot;expression&quot;: &quot;0+1&quot; }" in text
    assert approval.digest in text
    assert "rule test" in text
    assert "Tidy up" in text
    for act in ("approve", "deny", "respond"):
        assert address_of(approval, act).encode() in page


def test_calls_of_one_reply_stand_together_each_with_its_own_answer(as_bob: Client, session: ChatSession) -> None:
    approvals = asked(session, calls=3)
    (other,) = asked(session)

    page = as_bob.get(LIST).content

    assert "3 calls of one reply" in text_of(page)
    assert page.count(b'class="approval-group"') == 2
    ids = re.findall(rb'<section class="approval[^>]*id="approval-([0-9a-f-]+)"', page)
    assert [each.decode() for each in ids] == [str(each.public_id) for each in (*approvals, other)]


@pytest.mark.parametrize("act", ["approve", "deny", "respond"])
def test_each_answer_works_without_script_and_goes_back(as_bob: Client, session: ChatSession, act: str) -> None:
    (approval,) = asked(session)

    answer = as_bob.post(
        address_of(approval, act), {"response": "It is 4."}, headers={"Referer": f"http://testserver{page_of(session)}"}
    )

    assert (answer.status_code, answer["Location"]) == (302, f"http://testserver{page_of(session)}")
    verb = {"approve": "approved", "deny": "denied", "respond": "responded"}[act]
    assert status_of(approval) == verb
    page = as_bob.get(address_of(approval)).content
    assert b"<form" not in page.partition(b'class="approval is-')[2].partition(b"</section>")[0]


def test_with_htmx_the_decided_card_comes_back(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session)

    answer = as_bob.post(address_of(approval, "deny"), {"proposal": "Ask me on Monday."}, headers=HTMX)

    text = text_of(answer.content)
    assert answer.status_code == 200
    assert "Denied by Bob" in text
    assert "Ask me on Monday." in text
    assert b"<html" not in answer.content
    assert b"hx-preserve" not in answer.content


def test_approving_once_remembers_nothing_and_for_a_session_it_does(as_bob: Client, session: ChatSession) -> None:
    once, remembered = asked(session, calls=2, allows_consent=True)

    as_bob.post(address_of(once, "approve"))
    with system_scope():
        assert not Consent.objects.exists()
    as_bob.post(address_of(remembered, "approve"), {"remember": "session"})

    with system_scope():
        consent = Consent.objects.get()
    assert (consent.session_id, consent.until) == (session.pk, None)


def test_approving_for_a_time_is_listed_and_revoked(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session, allows_consent=True)

    as_bob.post(address_of(approval, "approve"), {"remember": "hours", "hours": "8"})

    with system_scope():
        consent = Consent.objects.exclude(until=None).get()
    assert consent.until is not None
    assert timedelta(hours=7) < consent.until - timezone.now() <= timedelta(hours=8)
    text = text_of(as_bob.get(f"{LIST}remembered/").content)
    assert "calculator version 1" in text
    assert "In force" in text
    as_bob.post(f"{LIST}remembered/{consent.public_id}/revoke/")
    with system_scope():
        consent.refresh_from_db()
    assert consent.revoked_at is not None
    assert "Revoked" in text_of(as_bob.get(f"{LIST}remembered/").content)


def test_a_call_without_lasting_consent_offers_only_to_allow_it_once(as_bob: Client, session: ChatSession) -> None:
    asked(session, allows_consent=False)

    page = as_bob.get(LIST).content

    assert b'value="session"' not in page
    assert b'value="hours"' not in page


def test_a_second_answer_is_told_who_was_faster(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session)
    as_bob.post(address_of(approval, "deny"))

    answer = as_bob.post(address_of(approval, "approve"), headers=HTMX)

    assert (answer.status_code, status_of(approval)) == (200, "denied")
    assert "Bob was faster: it is denied already." in text_of(answer.content)
    plain = as_bob.post(address_of(approval, "approve"), follow=True)
    assert "Bob was faster" in text_of(plain.content)


def test_an_empty_answer_keeps_what_was_typed_and_says_what_is_wrong(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session)

    answer = as_bob.post(address_of(approval, "respond"), {"response": " ", "proposal": "Typed."}, headers=HTMX)

    assert (answer.status_code, status_of(approval)) == (422, "pending")
    assert "Write an answer." in text_of(answer.content)
    assert b">Typed.</textarea>" in answer.content
    assert re.search(rb'<details class="fold approval-more"\s+open>', answer.content)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"status": ApprovalStatus.EXPIRED}, "Nobody answered in time"),
        ({"expires_at": timezone.now() - timedelta(minutes=1)}, "Nobody answered in time"),
        ({"status": ApprovalStatus.VOID}, "The turn that asked has ended"),
        ({"status": ApprovalStatus.APPROVED}, "It is used once, when the call begins."),
        ({"status": ApprovalStatus.APPROVED, "used_at": timezone.now()}, "It was used"),
    ],
)
def test_a_decided_approval_shows_no_buttons_and_says_why(
    as_bob: Client, session: ChatSession, fields: dict[str, Any], sentence: str
) -> None:
    (approval,) = asked(session, **{"decided_at": timezone.now()} | fields)

    for page in (as_bob.get(address_of(approval)).content, as_bob.get(page_of(session)).content):
        card = page.partition(b'<section class="approval')[2].partition(b"</section>")[0]
        assert sentence in text_of(card)
        assert b"<button" not in card


def test_the_others_stand_behind_in_pages_and_by_state(as_bob: Client, session: ChatSession) -> None:
    for status in ("denied", "approved"):
        asked(session, status=status, decided_by=session.membership, decided_at=timezone.now())

    every = text_of(as_bob.get(LIST).content)
    denied = text_of(as_bob.get(f"{LIST}?status=denied").content).partition("All others")[2].partition("</table>")[0]

    assert every.count("Called by") == 2
    assert denied.count("Called by") == 1


# -- Hostile arguments -------------------------------------------------------------------------------------------------


def test_markup_in_arguments_stays_text(as_bob: Client, session: ChatSession) -> None:
    attack = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"
    asked(session, arguments=json.dumps({"title": attack}), for_people=attack)

    for page in (as_bob.get(LIST).content, as_bob.get(page_of(session)).content):
        assert b"<script>alert" not in page
        assert b"<img src=x" not in page
        assert b"&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("hidden", "escape", "name"),
    [
        ("\u202e", "\\u202E", "RIGHT-TO-LEFT OVERRIDE"),
        ("\u200b", "\\u200B", "ZERO WIDTH SPACE"),
        ("\u2066", "\\u2066", "LEFT-TO-RIGHT ISOLATE"),
        ("\U000e0041", "\\U000E0041", "TAG LATIN CAPITAL LETTER A"),
    ],
)
def test_what_cannot_be_seen_is_marked(
    as_bob: Client, session: ChatSession, hidden: str, escape: str, name: str
) -> None:
    asked(session, arguments=json.dumps({"to": f"a{hidden}b"}, ensure_ascii=False))

    page = as_bob.get(LIST).content.decode()

    assert f'<span class="unseen" title="{name}">{escape}</span>' in page
    assert hidden not in page
    assert "1 character that cannot be seen" in page


def test_what_cannot_be_shown_whole_cannot_be_approved(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session, arguments=json.dumps({"text": "x" * 100_000}))

    page = as_bob.get(LIST).content

    assert len(page) < 60_000
    assert b"Approve once" not in page
    assert "shown whole cannot be approved" in text_of(page)
    answer = as_bob.post(address_of(approval, "approve"), headers=HTMX)
    assert "too long to be shown whole" in text_of(answer.content)
    assert status_of(approval) == "pending"
    as_bob.post(address_of(approval, "deny"))
    assert status_of(approval) == "denied"


# -- Who may -----------------------------------------------------------------------------------------------------------


def test_somebody_elses_looks_like_a_missing_one(as_bob: Client, alice: Membership) -> None:
    (approval,) = asked(make_session(alice))

    for act in ("", "approve", "deny", "respond"):
        address = address_of(approval, act)
        answer = as_bob.post(address, {"response": "x"}) if act else as_bob.get(address)
        assert answer.status_code == 404
    assert status_of(approval) == "pending"
    assert b"May <code>" not in as_bob.get(LIST).content


def test_the_right_approvals_lets_answer_for_others(as_bob: Client, bob: Membership, acme: Any) -> None:
    carol = make_member(acme, "carol")
    (approval,) = asked(make_session(carol, make_agent(acme)))
    assert as_bob.get(address_of(approval)).status_code == 404

    delegate(bob, Right.APPROVALS)

    assert "May calculator run?" in text_of(as_bob.get(LIST).content)
    page = as_bob.get(address_of(approval)).content.decode()
    assert f"/o/acme/turns/{approval.turn_id}/" not in page  # the session is not Bob's to open
    delegate(bob, Right.SESSIONS)
    assert f"/o/acme/turns/{approval.turn_id}/" in as_bob.get(address_of(approval)).content.decode()
    as_bob.post(address_of(approval, "approve"))
    assert status_of(approval) == "approved"


@pytest.mark.parametrize(
    ("door", "told"),
    [
        (Door.MCP, "if it does not go on by itself, let it make the same call again"),
        (Door.CHAT, "the turn goes on by itself, and its answer stands in the session"),
        ("", None),
    ],
)
def test_whoever_comes_from_a_client_is_told_what_happens_next(
    as_bob: Client, session: ChatSession, acme: Any, door: str, told: str | None
) -> None:
    (approval,) = asked(session)
    with system_scope():
        Turn.objects.filter(pk=approval.turn_id).update(door=door)
    helper = make_member(acme, "carol")
    delegate(helper, Right.APPROVALS)

    page, others = (text_of(each.get(address_of(approval)).content) for each in (as_bob, login(helper)))

    assert f"/o/acme/turns/{approval.turn_id}/" in as_bob.get(address_of(approval)).content.decode()
    assert (told or "Bob") in page
    assert "of yours" not in others
    assert ("of yours" in page) == (told is not None)


def test_a_requester_cannot_answer_where_another_person_must(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session, needs_other_person=True)

    chat = as_bob.get(page_of(session)).content
    assert "Another person than Bob must answer it" in text_of(chat)
    assert b"Approve once" not in chat
    assert "Nothing waits for your answer" in text_of(as_bob.get(LIST).content)
    for act in ("approve", "deny", "respond"):
        assert as_bob.post(address_of(approval, act), {"response": "x"}).status_code == 403
    assert status_of(approval) == "pending"


def test_an_onlooker_sees_the_card_in_the_chat_without_buttons(session: ChatSession, acme: Any) -> None:
    carol = make_member(acme, "carol")
    delegate(carol, Right.SESSIONS)
    (approval,) = asked(session)

    page = login(carol).get(page_of(session)).content

    assert "It waits for Bob" in text_of(page)
    assert b"Approve once" not in page
    assert login(carol).post(address_of(approval, "approve")).status_code == 403


def test_charlie_finds_nothing(charlie: Membership, session: ChatSession) -> None:
    (approval,) = asked(session)
    client = login(charlie)

    for address in (address_of(approval), f"/o/globex/approvals/{approval.public_id}/"):
        assert client.get(address).status_code == 404
        assert client.post(f"{address}approve/").status_code == 404
    assert status_of(approval) == "pending"


# -- In the chat -------------------------------------------------------------------------------------------------------


def test_the_chat_shows_the_card_at_its_call(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session)

    page = as_bob.get(page_of(session)).content

    assert f'id="approval-{approval.public_id}"'.encode() in page
    assert address_of(approval, "approve").encode() in page
    assert b'hx-preserve="true"' in page  # what is typed stays, when the stream draws the turn anew


def test_the_turn_that_polls_shows_it_too(as_bob: Client, session: ChatSession) -> None:
    (approval,) = asked(session)

    page = as_bob.get(f"/o/acme/turns/{approval.turn_id}/?poll=1", headers=HTMX).content

    assert b"Approve once" in page


def test_a_parent_shows_what_its_agents_ask_below(as_bob: Client, bob: Membership, session: ChatSession) -> None:
    parent = make_turn(session, "Have it done", status=TurnStatus.WAITING_CHILD, waiting_since=timezone.now())
    call = add_step(parent, status=StepStatus.STARTED, tool_name="spawn_agent")
    with organisation_scope(bob.organisation):
        child = ChatSession.objects.create(
            organisation=bob.organisation, membership=bob, agent=session.agent, parent_turn=parent, depth=1
        )
    waiting = {"status": TurnStatus.WAITING_APPROVAL, "waiting_since": timezone.now()}
    turn = make_turn(child, "Do it", parent_step=call, **waiting)
    step = add_step(turn, status=StepStatus.PENDING, tool_name="calculator", arguments='{"expression": "1"}')
    approval = make_approval(step)

    page = as_bob.get(page_of(session)).content

    assert f'id="approval-{approval.public_id}"'.encode() in page
    assert b"Approve once" in page


def test_a_question_has_its_choices_as_buttons_and_a_field(as_bob: Client, session: ChatSession) -> None:
    arguments = json.dumps({"question": "Which one?", "choices": ["Red", "<b>Blue</b>"]})
    (approval,) = asked(session, kind=ApprovalKind.QUESTION, arguments=arguments)

    page = as_bob.get(page_of(session)).content

    assert "Which one?" in text_of(page)
    assert re.findall(rb'name="choice"\s+value="([^"]*)"', page) == [b"Red", b"&lt;b&gt;Blue&lt;/b&gt;"]
    assert b"Approve once" not in page
    as_bob.post(address_of(approval, "respond"), {"choice": "Red", "response": ""})
    with system_scope():
        approval.refresh_from_db()
    assert (approval.status, approval.response) == ("responded", "Red")


@pytest.mark.parametrize("arguments", ["{}", "[1]", "no json", '{"choices": 3}'])
def test_a_malformed_question_is_shown_all_the_same(as_bob: Client, session: ChatSession, arguments: str) -> None:
    asked(session, kind=ApprovalKind.QUESTION, arguments=arguments)

    assert as_bob.get(page_of(session)).status_code == 200


# -- What it costs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["queue", "history", "remembered", "chat"])
def test_a_page_costs_the_same_with_one_and_with_three(as_bob: Client, session: ChatSession, page: str) -> None:
    bob = session.membership
    other = make_session(bob, session.agent)

    def add() -> None:
        decided: dict[str, Any] = {"status": "denied", "decided_by": bob, "decided_at": timezone.now()}
        (approval,) = asked(other if page != "chat" else session, **(decided if page == "history" else {}))
        if page == "remembered":
            with system_scope():
                Consent.objects.create(
                    organisation=bob.organisation,
                    membership=bob,
                    tool=approval.tool,
                    tool_version=approval.tool_version,
                    session=other,
                    approval=approval,
                    granted_by=bob,
                )

    address = {"queue": LIST, "history": LIST, "remembered": f"{LIST}remembered/", "chat": page_of(session)}[page]
    counts = []
    for more in (1, 2):
        for _ in range(more):
            add()
        as_bob.get(address)
        with CaptureQueriesContext(connection) as captured:
            assert as_bob.get(address).status_code == 200
        counts.append(len(captured))

    assert counts[0] == counts[1]


def test_an_answer_changes_the_counts_of_the_open_page(as_bob: Client, session: ChatSession) -> None:
    first, _ = asked(session, calls=2)

    here = HTMX | {"HX-Current-URL": "http://testserver/o/acme/approvals/"}
    page = as_bob.post(address_of(first, "deny"), headers=here).content.decode()

    swapped = dict(
        re.findall(r'<span id="(waiting[a-z_-]*)"[^>]*hx-swap-oob="true">(.*?)(?=<span id=|\Z)', page, re.DOTALL)
    )
    inbox = {"waiting-in-inbox", "waiting-approval_list", "waiting-request_list"}
    assert set(swapped) == {"waiting", "waiting-in-tools", *inbox}
    assert "1 approval waits for you" in swapped["waiting"]
    assert "1 approval waits for you" in swapped["waiting-in-inbox"]
    assert "1 approval waits for you" in swapped["waiting-approval_list"]
    assert "side-count" not in swapped["waiting-request_list"]


# -- The badge ---------------------------------------------------------------------------------------------------------


def badge(client: Client) -> str:
    page = client.get("/o/acme/").content.decode()
    found = re.search(r'<(?:a|summary) class="top-waiting".*?</(?:a|summary)>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split()) if found else ""


def test_the_badge_counts_what_waits_for_the_member(as_bob: Client, alice: Membership, session: ChatSession) -> None:
    assert badge(as_bob) == ""
    asked(session, calls=2)
    asked(session, needs_other_person=True)
    asked(make_session(alice))

    assert badge(as_bob) == "2 2 approvals wait for you"
    assert badge(login(alice)) == "4 4 approvals wait for you"


def test_one_badge_for_approvals_and_requests(alice: Membership, session: ChatSession) -> None:
    make_tool(session.organisation, "uuid")
    login(session.membership).post("/o/acme/access-requests/", {"tool": "uuid", "reason": "I need it.", "until": "8h"})
    asked(session)
    client = login(alice)

    assert badge(client) == "2 wait for you"
    page = text_of(client.get("/o/acme/").content)
    assert "1 approval waits for you" in page
    assert "1 request for access is waiting for you" in page


def test_a_viewer_is_asked_nothing(acme: Any) -> None:
    dora = make_member(acme, "dora", Access.VIEWER)
    asked(make_session(dora))

    assert badge(login(dora)) == ""
