from __future__ import annotations

from dataclasses import replace

import pytest

from capabilities.contract.context import ToolContext, ToolError
from capabilities.registry import registry
from tests.capabilities.builtin.conftest import Call
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.usefixtures("in_acme")


def test_unwritten_notes_are_empty(as_alice: Call) -> None:
    assert as_alice("agent_notes_read") == "There are no notes."


def test_writing_replaces_the_notes(as_alice: Call) -> None:
    as_alice("agent_notes_write", text="first")

    assert as_alice("agent_notes_write", text="second") == "The notes now hold 6 characters."
    assert as_alice("agent_notes_read") == "second"


def test_appending_adds_a_line(as_alice: Call) -> None:
    for line in ("one", "zwei €"):
        assert as_alice("agent_notes_append", text=line) == "Added."

    assert as_alice("agent_notes_read") == "one\nzwei €"


def test_clearing_empties_the_notes(as_alice: Call) -> None:
    as_alice("agent_notes_write", text="gone")

    assert as_alice("agent_notes_clear") == "The notes are empty."
    assert as_alice("agent_notes_read") == "There are no notes."


def test_full_notes_take_no_more(as_alice: Call) -> None:
    as_alice("agent_notes_write", text="x" * 99_999)

    with pytest.raises(ToolError, match="at most 100000 characters: shorten them"):
        as_alice("agent_notes_append", text="y")


def test_another_agent_has_notes_of_its_own(as_alice: Call, alice: Membership, context: ToolContext) -> None:
    as_alice("agent_notes_write", text="of the assistant")
    other = replace(context, organisation_id=alice.organisation_id, membership_id=alice.pk, agent="coder")

    assert registry.tools["agent_notes_read"].call(other, {}) == "There are no notes."
    registry.tools["agent_notes_append"].call(other, {"text": "of the coder"})

    assert as_alice("agent_notes_read") == "of the assistant"
