"""Switching tools off: what other members lose by it is shown first."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from capabilities.models import Tool
from tests.capabilities.access.test_member_tools import text_of
from tests.cast import make_role, make_tool
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right

pytestmark = pytest.mark.django_db

SWITCH = "/o/acme/tools/fetch/switch/"
STAMP = re.compile(r'name="stamp"\s+value="([^"]+)"')
HTMX = {"HX-Request": "true"}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def fetch(in_acme: Organisation, bob: Membership) -> Tool:
    """Bob may use it."""
    make_role(in_acme, bob)
    return make_tool(in_acme, "fetch")


def is_on(tool: Tool) -> bool:
    tool.refresh_from_db(fields=["is_enabled"])
    return tool.is_enabled


def test_what_others_lose_is_shown_before_a_tool_is_switched_off(as_alice: Client, fetch: Tool) -> None:
    shown = as_alice.post(SWITCH, {"enabled": "0"}, headers={"Referer": "http://testserver/o/acme/tools/"})
    was = is_on(fetch)
    form = dict(re.findall(r'name="(stamp|back|enabled)"\s+value="([^"]+)"', shown.content.decode()))
    done = as_alice.post(SWITCH, form)

    assert "1 member loses fetch" in text_of(shown.content)
    assert (was, is_on(fetch), done["Location"]) == (True, False, "http://testserver/o/acme/tools/")


def test_htmx_asks_in_the_place_of_the_switch(as_alice: Client, fetch: Tool) -> None:
    shown = as_alice.post(SWITCH, {"enabled": "0"}, headers=HTMX).content.decode()
    stamp = STAMP.search(shown)
    assert stamp is not None
    kept = as_alice.post(SWITCH, {"enabled": "1", "stamp": stamp[1]}, headers=HTMX).content.decode()
    was = is_on(fetch)
    off = as_alice.post(SWITCH, {"enabled": "0", "stamp": stamp[1]}, headers=HTMX).content.decode()

    assert ("<html" in shown, "1 other member can no longer use it" in shown) == (False, True)
    assert ('aria-checked="true"' in kept, was) == (True, True)
    assert ('aria-checked="false"' in off, is_on(fetch)) == (True, False)


def test_a_tool_that_nobody_else_may_use_is_switched_off_at_once(
    as_alice: Client, in_acme: Organisation, alice: Membership
) -> None:
    make_role(in_acme, alice)
    tool = make_tool(in_acme, "fetch")

    answer = as_alice.post(SWITCH, {"enabled": "0"})

    assert (answer.status_code, is_on(tool)) == (302, False)


def test_several_at_once_are_shown_too(as_alice: Client, fetch: Tool, in_acme: Organisation) -> None:
    make_tool(in_acme, "search")
    form = {"names": ["fetch", "search"], "enabled": "0"}

    shown = as_alice.post("/o/acme/catalogue/switch/", form)
    stamp = STAMP.search(shown.content.decode())
    was = is_on(fetch)
    as_alice.post("/o/acme/catalogue/switch/", form | {"stamp": stamp and stamp[1]})

    assert "1 member loses 2 tools" in text_of(shown.content)
    assert (was, is_on(fetch)) == (True, False)


def test_a_right_for_another_category_shows_nothing(client: Client, fetch: Tool, bob: Membership) -> None:
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.CATALOGUE, category="other")
    client.force_login(bob.user)

    assert client.post(SWITCH, {"enabled": "0"}).status_code == 403
    assert client.post("/o/acme/catalogue/switch/", {"names": ["fetch"], "enabled": "0"}).status_code == 403


def test_a_stranger_cannot_switch_a_tool(client: Client, fetch: Tool, charlie: Membership) -> None:
    client.force_login(charlie.user)

    assert client.post(SWITCH, {"enabled": "0"}).status_code == 404
    assert is_on(fetch)
