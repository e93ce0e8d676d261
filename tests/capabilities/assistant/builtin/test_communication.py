from __future__ import annotations

from typing import Any

import pytest

from capabilities.assistant.builtin import communication
from capabilities.assistant.models import Message
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call
from tests.cast import make_member
from toolhub.tenants.models import Membership, Organisation

pytestmark = pytest.mark.usefixtures("in_acme")


def read(call: Call, **arguments: Any) -> list[tuple[str, str, bool]]:
    """Sender, text and whether it was unread."""
    messages = call("message_list", **arguments)["messages"]
    return [(each["from"], each["text"], each.get("unread", False)) for each in messages]


@pytest.mark.parametrize("to", ["bob@example.com", "BOB@example.com", "Bob", " bob "])
def test_a_message_reaches_the_member_meant(as_alice: Call, as_bob: Call, bob: Membership, to: str) -> None:
    assert as_alice("message_send", to=to, text=" Lunch? ") == {"sent_to": "Bob"}

    assert read(as_bob) == [("Alice", "Lunch?", True)]
    assert read(as_alice) == []


def test_reading_marks_as_read_and_unread_ones_come_first(as_alice: Call, as_bob: Call, bob: Membership) -> None:
    as_alice("message_send", to="bob", text="one")
    read(as_bob)
    for text in ("two", "three"):
        as_alice("message_send", to="bob", text=text)

    assert read(as_bob) == [("Alice", "three", True), ("Alice", "two", True), ("Alice", "one", False)]
    assert read(as_bob, unread_only=True) == []
    assert {text for _, text, unread in read(as_bob) if not unread} == {"one", "two", "three"}


def test_a_long_inbox_is_cut_and_what_was_not_shown_stays_unread(as_alice: Call, as_bob: Call, bob: Membership) -> None:
    for text in ("one", "two", "three"):
        as_alice("message_send", to="bob", text=text)

    answer = as_bob("message_list", limit=2)

    assert ([each["text"] for each in answer["messages"]], answer["more"]) == (["three", "two"], 1)
    assert read(as_bob, unread_only=True) == [("Alice", "one", True)]


def test_a_full_name_is_enough_where_the_first_one_is_not(as_alice: Call, acme: Organisation) -> None:
    for name, last in (("sam1", "Hill"), ("sam2", "Lake")):
        user = make_member(acme, name).user
        user.first_name, user.last_name = "Sam", last
        user.save()

    with pytest.raises(ToolError, match=r"^Several members are called Sam: give the e-mail address\.$"):
        as_alice("message_send", to="Sam", text="x")

    assert as_alice("message_send", to="sam lake", text="x") == {"sent_to": "Sam Lake"}


@pytest.mark.parametrize("to", ["charlie@example.com", "Charlie", "nobody"])
def test_a_message_to_a_stranger_is_refused_as_unknown(as_alice: Call, charlie: Membership, to: str) -> None:
    with pytest.raises(ToolError, match=f"^There is no member {to} in this organisation.$"):
        as_alice("message_send", to=to, text="x")


def test_who_was_shut_out_gets_no_message(as_alice: Call, bob: Membership) -> None:
    bob.user.is_active = False
    bob.user.save()

    with pytest.raises(ToolError, match="There is no member bob"):
        as_alice("message_send", to="bob", text="x")


def test_a_message_stays_when_its_sender_has_left(
    as_alice: Call, as_bob: Call, alice: Membership, bob: Membership
) -> None:
    as_alice("message_send", to="bob", text="bye")
    alice.delete()

    assert read(as_bob) == [("Alice", "bye", True)]


@pytest.mark.parametrize(("to", "text", "sentence"), [(" ", "x", "Say to whom"), ("bob", " ", "The message is empty")])
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, bob: Membership, to: str, text: str, sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice("message_send", to=to, text=text)
    assert not Message.objects.exists()


def test_a_full_inbox_takes_no_more(as_alice: Call, bob: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "UNREAD_LIMIT", 1)
    as_alice("message_send", to="bob", text="x")

    with pytest.raises(ToolError, match="Bob has too many unread messages"):
        as_alice("message_send", to="bob", text="y")


@pytest.mark.parametrize("count", [1, 3])
def test_the_inbox_takes_three_queries(
    as_alice: Call, as_bob: Call, bob: Membership, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(count):
        as_alice("message_send", to="bob", text="x")

    with django_assert_num_queries(3):  # type: ignore[operator]
        as_bob("message_list")
