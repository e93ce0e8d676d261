"""An agent's private notes about its work for one member. Knows one row: of this member and this agent."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Case, F, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Concat, Length
from pydantic import Field

from capabilities.assistant.models import AgentNote
from capabilities.assistant.records.writes.notebook import PAGE_TEXT
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="notes",
    title="Agent notes",
    description="A page on which an agent keeps notes for itself, for each member.",
    keywords=("agent notes", "private notes", "my notes", "agent_notes"),
)

#: Characters that the page holds.
LIMIT = PAGE_TEXT

Text = Annotated[str, Field(description="Plain text or Markdown.", max_length=LIMIT), WITHOUT_NUL]


@tool(category="notes", effect="read", human_format="Reading the agent's notes")
def agent_notes_read(context: ToolContext) -> str:
    """Read your own private notes on working for this user. Other agents have notes of their own."""
    page = _mine(context).first()
    return page.text if page and page.text else "There are no notes."


@tool(category="notes", effect="write", on_crash="retry", human_format="Writing the agent's notes")
def agent_notes_write(context: ToolContext, text: Text) -> str:
    """Replace your private notes with this text. To keep what is there use agent_notes_append."""
    AgentNote.objects.update_or_create(**_key(context), defaults={"text": text})
    return f"The notes now hold {len(text)} characters."


@tool(category="notes", effect="write", human_format="Adding to the agent's notes")
def agent_notes_append(context: ToolContext, text: Text) -> str:
    """Add this text as a new line at the end of your private notes."""
    AgentNote.objects.get_or_create(**_key(context))
    # One statement, so that of two calls at the same time neither loses its line.
    whole = Value(text, output_field=TextField())
    line = Value("\n" + text, output_field=TextField())
    with_room = _mine(context).annotate(length=Length("text")).filter(Q(text="") | Q(length__lte=LIMIT - len(text) - 1))
    longer = Case(When(text="", then=whole), default=Concat(F("text"), line))
    if not with_room.update(text=longer, updated_at=context.now()):
        raise ToolError(f"The notes hold at most {LIMIT} characters: shorten them with agent_notes_write first.")
    return "Added."


@tool(category="notes", effect="write", on_crash="retry", human_format="Clearing the agent's notes")
def agent_notes_clear(context: ToolContext) -> str:
    """Empty your private notes."""
    _mine(context).update(text="", updated_at=context.now())
    return "The notes are empty."


def _key(context: ToolContext) -> dict[str, Any]:
    """Return the key of a page: the agent and the member, and for a run by hand the member alone."""
    member = {"organisation_id": context.organisation_id, "membership_id": context.membership_id}
    return member | {"agent_id": context.agent_id, "former_agent": ""}


def _mine(context: ToolContext) -> QuerySet[AgentNote]:
    return own_rows(AgentNote, context).filter(**_key(context))
