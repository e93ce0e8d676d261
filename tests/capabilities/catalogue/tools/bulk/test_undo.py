"""The way back from a change to many tools: what goes back, and what somebody changed since."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from capabilities.catalogue.http_tools.writes import create_http_tool
from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.models import Category, Tool
from tests.capabilities.catalogue.http_tools.rows import content
from tests.cast import make_category
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db

NAMES = ["a", "b", "c"]


@pytest.fixture
def pets(in_acme: Organisation) -> Category:
    make_category(in_acme)
    return make_category(in_acme, "pets", is_core=False)


@pytest.fixture
def tools(pets: Category, alice: Membership, client: Client) -> list[Tool]:
    client.force_login(alice.user)
    made = [create_http_tool(content(name=name, effect="external"), actor=alice) for name in NAMES]
    set_tool_enabled(made[0], False, actor=alice, message="Under repair")
    return made


def state() -> dict[str, Any]:
    rows = Tool.objects.order_by("name").select_related("current_version", "category")
    return {
        each.name: (each.is_enabled, each.off_message, each.category.name, each.current_version.effect)
        for each in rows
        if each.current_version
    }


def post(client: Client, path: str, **fields: Any) -> tuple[str, str]:
    """What the next page says of the change, and where its button posts to."""
    page = client.post(f"/o/acme/catalogue/{path}/", {"names": NAMES, **fields}, follow=True).content.decode()
    notice = re.search(r'<div class="notice is-(?:success|error)".*?</div>', page, re.DOTALL)
    assert notice is not None
    undo = re.search(r'action="([^"]*/undo/[^"]*)"', notice[0])
    return " ".join(re.sub(r"<[^>]+>", " ", notice[0]).split()), undo[1] if undo else ""


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("switch", {"enabled": "1"}),
        ("switch", {"enabled": "0"}),
        ("change", {"category": "pets"}),
        ("change", {"effect": "read"}),
        ("change", {"effect": "read", "category": "pets"}),
    ],
)
def test_a_change_of_many_tools_is_undone_from_its_confirmation(
    client: Client, tools: list[Tool], path: str, fields: dict[str, str]
) -> None:
    before = state()

    _, undo = post(client, path, **fields)
    assert state() != before
    entries = AuditEntry.objects.count()
    client.post(undo)

    assert state() == before
    assert AuditEntry.objects.count() > entries


def test_what_was_as_it_should_be_already_is_not_touched(client: Client, tools: list[Tool]) -> None:
    text, undo = post(client, "switch", enabled="0")
    assert "2 of 3 tools" in text

    client.post(undo)

    assert [each[0] for each in state().values()] == [False, True, True]


def test_a_tool_that_somebody_changed_since_is_left_alone_and_named(
    client: Client, tools: list[Tool], alice: Membership
) -> None:
    _, undo = post(client, "switch", enabled="0")
    set_tool_enabled(Tool.objects.get(name="b"), False, actor=alice, message="Ask Bob")

    page = client.post(undo, follow=True).content.decode()

    assert {name: each[:2] for name, each in state().items()} == {
        "a": (False, "Under repair"),
        "b": (False, "Ask Bob"),
        "c": (True, ""),
    }
    assert "1 of 2 tools" in page
    assert "left alone: b." in page


def test_only_ones_own_change_is_undone_and_only_with_the_right(
    client: Client, tools: list[Tool], bob: Membership, charlie: Membership
) -> None:
    _, undo = post(client, "change", category="pets")
    after = state()

    client.force_login(bob.user)
    assert client.post(undo).status_code == 403
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.CATALOGUE)
    assert "nothing to undo" in client.post(undo, follow=True).content.decode()
    client.force_login(charlie.user)
    assert client.post(undo).status_code == 404
    client.post(undo.replace("/acme/", "/globex/"))

    assert state() == after


@pytest.mark.parametrize("entries", ["", "0", "x", "-1", "99999", "9" * 30, ",,,"])
def test_numbers_of_no_entry_undo_nothing(client: Client, tools: list[Tool], entries: str) -> None:
    before = state()

    answer = client.post(f"/o/acme/catalogue/undo/?entries={entries}", follow=True)

    assert (answer.status_code, state()) == (200, before)


def test_a_preview_says_how_many_tools_change_from_what_and_saves_nothing(client: Client, tools: list[Tool]) -> None:
    client.post("/o/acme/catalogue/change/", {"names": ["a"], "effect": "write"})
    before, entries = state(), AuditEntry.objects.count()
    fields = {"names": NAMES, "effect": "read", "category": "pets", "preview": "1"}

    page = client.post("/o/acme/catalogue/change/", fields, headers={"Referer": "http://testserver/o/acme/tools/?q=a"})

    text = " ".join(re.sub(r"<[^>]+>", " ", page.content.decode()).split())
    assert "3 of 3 tools" in text
    assert ("effect external read 2" in text, "effect write read 1" in text) == (True, True)
    assert "category utility pets 3" in text
    assert (state(), AuditEntry.objects.count()) == (before, entries)
    kept = dict(re.findall(r'type="hidden" name="(effect|category|back)" value="([^"]+)"', page.content.decode()))
    done = client.post("/o/acme/catalogue/change/", {"names": NAMES, **kept})
    assert done["Location"].endswith("/o/acme/tools/?q=a")
    assert {each[2:] for each in state().values()} == {("pets", "read")}


@pytest.mark.parametrize("path", ["change", "switch"])
def test_the_page_to_go_back_to_is_ours(client: Client, tools: list[Tool], path: str) -> None:
    fields = {"names": ["b"], "effect": "read", "enabled": "1", "back": "https://evil.example/o/acme/"}

    assert client.post(f"/o/acme/catalogue/{path}/", fields)["Location"] == "/o/acme/tools/"


def test_a_preview_of_what_would_be_refused_says_why(client: Client, tools: list[Tool]) -> None:
    fields = {"names": [*NAMES, "missing"], "effect": "read", "preview": "1"}

    answer = client.post("/o/acme/catalogue/change/", fields, follow=True)

    assert "There is no tool missing." in answer.content.decode()
