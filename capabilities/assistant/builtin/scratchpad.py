"""A member's page of working notes. Knows one row: that of the member it runs for."""

from __future__ import annotations

from typing import Annotated

from django.db.models import Case, F, Q, TextField, Value, When
from django.db.models.functions import Concat, Length
from pydantic import Field

from capabilities.assistant.models import Scratchpad
from capabilities.assistant.records.writes.notebook import PAGE_TEXT, write_scratchpad
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="scratchpad",
    title="Scratchpad",
    description="One page of working notes for each member.",
    keywords=("scratch", "scratchpad", "jot down", "notepad", "working notes", "working note"),
)

#: Characters that the page holds.
LIMIT = PAGE_TEXT

Text = Annotated[str, Field(description="Plain text or Markdown.", max_length=LIMIT), WITHOUT_NUL]


@tool(category="scratchpad", effect="read", human_format="Reading the scratchpad")
def scratch_read(context: ToolContext) -> str:
    """Read the user's scratchpad, a page of working notes that lasts beyond this conversation."""
    page = own_rows(Scratchpad, context).first()
    return page.text if page and page.text else "The scratchpad is empty."


@tool(category="scratchpad", effect="write", on_crash="retry", human_format="Writing the scratchpad")
def scratch_write(context: ToolContext, text: Text) -> str:
    """Replace the whole scratchpad with this text. To keep what is there use scratch_append."""
    write_scratchpad(context, text=text)
    return f"The scratchpad now holds {len(text)} characters."


@tool(category="scratchpad", effect="write", human_format="Adding to the scratchpad")
def scratch_append(context: ToolContext, text: Text) -> str:
    """Add this text as a new line at the end of the scratchpad."""
    mine = own_rows(Scratchpad, context)
    mine.get_or_create(organisation_id=context.organisation_id, membership_id=context.membership_id)
    # One statement, so that of two calls at the same time neither loses its line.
    line = Value("\n" + text, output_field=TextField())
    with_room = mine.annotate(length=Length("text")).filter(Q(text="") | Q(length__lte=LIMIT - len(text) - 1))
    if not with_room.update(
        text=Case(When(text="", then=Value(text, output_field=TextField())), default=Concat(F("text"), line)),
        updated_at=context.now(),
    ):
        raise ToolError(f"The scratchpad holds at most {LIMIT} characters: shorten it with scratch_write first.")
    return "Added."


@tool(category="scratchpad", effect="write", on_crash="retry", human_format="Clearing the scratchpad")
def scratch_clear(context: ToolContext) -> str:
    """Empty the scratchpad. Use it only when the user asks for it."""
    own_rows(Scratchpad, context).update(text="", updated_at=context.now())
    return "The scratchpad is empty."
