"""The mark at the head of a chat that says whether tools are on: its class, its icon and its colour in each state."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from sessions.models import ChatSession
from tests.cast import make_role, make_session, make_tool
from tests.paths import ROOT
from tests.sessions.doors.chats.test_views import page_of as url_of
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.django_db

CSS = (ROOT / "static" / "toolhub.css").read_text()


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def mark(client: Client, session: ChatSession) -> tuple[bool, str]:
    """Whether it has the class of what is on, and its icon."""
    chip = re.search(rb'<a class="chip".*?</a>', client.get(url_of(session)).content, re.DOTALL)
    assert chip is not None
    icon = re.search(r"#([\w-]+)", chip[0].decode().partition("<svg")[2])
    assert icon is not None
    return b'class="is-ok-text"' in chip[0], icon[1]


def colours(selector: str) -> list[tuple[int, int, int]]:
    """Red, green and blue of its colour, in the light and in the dark theme."""
    rule = re.search(rf"^{re.escape(selector)} {{ color: var\((--[\w-]+)\); }}$", CSS, re.MULTILINE)
    assert rule is not None, selector
    found = re.findall(rf"(?<![\w-]){rule[1]}: #([0-9a-f]{{6}})\b", CSS)
    assert len(found) == 2
    return [(int(each[:2], 16), int(each[2:4], 16), int(each[4:], 16)) for each in found]


def test_cx_35_cx_36_a_green_bolt_stands_for_tools_and_a_grey_speech_bubble_for_pure_chat(
    as_bob: Client, session: ChatSession
) -> None:
    off = mark(as_bob, session)
    make_tool(session.organisation, "calculator")
    make_role(session.organisation, session.membership)
    on = mark(as_bob, session)

    assert (off, on) == ((False, "chat-left-text"), (True, "lightning-charge-fill"))


def test_cx_35_what_is_on_is_green_and_what_is_off_is_grey() -> None:
    for red, green, blue in colours(".chip .is-ok-text .icon"):
        assert green > 1.3 * max(red, blue)
    for shades in colours(".chip .icon"):
        assert max(shades) - min(shades) < 40
