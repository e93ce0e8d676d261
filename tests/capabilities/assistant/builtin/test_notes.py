from __future__ import annotations

from dataclasses import replace

import pytest

from capabilities.assistant.models import AgentNote
from capabilities.contract.context import ToolContext, ToolError
from capabilities.models import Agent
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.conftest import Call
from tests.cast import make_agent
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


def notes_of(context: ToolContext, member: Membership, agent: Agent) -> Call:
    own = replace(
        context,
        organisation_id=member.organisation_id,
        membership_id=member.pk,
        agent=agent.slug,
        agent_id=agent.pk,
    )
    return lambda name, /, **arguments: registry.tools[name].call(own, arguments)


def test_another_agent_has_notes_of_its_own(alice: Membership, context: ToolContext) -> None:
    assistant, coder = (make_agent(alice.organisation, slug=slug) for slug in ("assistant", "coder"))
    notes_of(context, alice, assistant)("agent_notes_write", text="of the assistant")

    assert notes_of(context, alice, coder)("agent_notes_read") == "There are no notes."
    notes_of(context, alice, coder)("agent_notes_append", text="of the coder")

    assert notes_of(context, alice, assistant)("agent_notes_read") == "of the assistant"


def test_notes_stay_with_a_renamed_agent_and_a_new_one_of_its_slug_has_none(
    alice: Membership, context: ToolContext
) -> None:
    agent = make_agent(alice.organisation, slug="assistant")
    notes_of(context, alice, agent)("agent_notes_write", text="Likes tea.")

    Agent.objects.filter(pk=agent.pk).update(slug="helper")
    agent.refresh_from_db()
    successor = make_agent(alice.organisation, slug="assistant")

    assert notes_of(context, alice, agent)("agent_notes_read") == "Likes tea."
    assert notes_of(context, alice, successor)("agent_notes_read") == "There are no notes."


def test_notes_of_an_agent_that_was_gone_are_read_by_none_that_bears_its_slug(
    alice: Membership, context: ToolContext
) -> None:
    own = {"organisation": alice.organisation, "membership": alice}
    AgentNote.objects.create(**own, former_agent="assistant", text="of one that is gone")
    agent = make_agent(alice.organisation, slug="assistant")

    assert notes_of(context, alice, agent)("agent_notes_read") == "There are no notes."
    by_hand = replace(context, organisation_id=alice.organisation_id, membership_id=alice.pk, agent="")
    assert registry.tools["agent_notes_read"].call(by_hand, {}) == "There are no notes."
