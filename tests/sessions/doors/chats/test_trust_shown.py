"""Where the chat and REST say that text from outside is in a conversation."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions.models import ChatSession, StepKind, TurnStatus
from tests.cast import make_session, make_turn
from tests.rest import Rest
from tests.sessions.doors.chats.test_views import add_step, page_of, text_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def test_the_chat_names_the_step_that_brought_it(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, "Read it", status=TurnStatus.DONE, answer="Read.", untrusted_since=2)
    add_step(turn, kind=StepKind.MODEL)
    add_step(turn, tool_name="web_read", result="Hello")

    page = as_bob.get(page_of(session)).content

    assert "Text from outside since step 2: web_read" in text_of(page)
    assert f'href="#step-{turn.pk}-2"'.encode() in page


def test_a_later_turn_has_it_from_the_start(as_bob: Client, session: ChatSession) -> None:
    make_turn(session, "And now?", status=TurnStatus.DONE, answer="Well.", untrusted_since=0)

    assert "Text from outside from the start" in text_of(as_bob.get(page_of(session)).content)


def test_a_trusted_turn_says_nothing_of_it(as_bob: Client, session: ChatSession) -> None:
    make_turn(session, "Hello", status=TurnStatus.DONE, answer="Hi.")

    assert "Text from outside" not in text_of(as_bob.get(page_of(session)).content)


def test_rest_tells_it_of_turn_and_session(bob: Membership, session: ChatSession) -> None:
    turn = make_turn(session, "Read it", status=TurnStatus.DONE, answer="Read.", untrusted_since=2)
    add_step(turn, kind=StepKind.MODEL)
    add_step(turn, tool_name="web_read", result="Hello")
    with system_scope():
        ChatSession.objects.filter(pk=session.pk).update(is_untrusted=True)

    told = Rest(bob).get(f"turns/{turn.pk}").json

    assert (told["untrusted_since"], told["untrusted_tool"]) == (2, "web_read")
    assert Rest(bob).get(f"sessions/{session.pk}").json["is_untrusted"] is True
    assert Rest(bob).get(f"sessions/{session.pk}/turns").json["results"][0]["untrusted_tool"] == "web_read"
