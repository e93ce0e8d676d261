"""Facts that a member asked to be kept, and one search over all that is kept for a member. Nobody else's rows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Annotated, Any

from django.db.models import QuerySet
from pydantic import Field

from capabilities.assistant.builtin._lib.passages import Passage, best_of
from capabilities.assistant.models import AgentNote, JournalEntry, Memory
from capabilities.assistant.records.writes.notebook import MEMORY_TEXT, create_memory
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import words_of
from capabilities.running.records.own import own_rows, remove_row
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="memory",
    title="Memory",
    description="Facts about the user that last beyond one conversation.",
    keywords=("remember", "memory", "memories", "recall", "forget", "keep in mind", "don't forget", "did i tell you"),
    is_core=True,
)

#: Memories that one search answers with, and rows of each kind that a search over all looks at, the latest first.
SEARCH_LIMIT = 20
SEARCHED = 5_000
_PARAGRAPHS = re.compile(r"\n\s*\n")


@tool(category="memory", effect="write", human_format="Remembering: {text}")
def memory_store(
    context: ToolContext,
    text: Annotated[
        str, Field(description="One fact, understandable on its own.", max_length=MEMORY_TEXT), WITHOUT_NUL
    ],
) -> dict[str, Any]:
    """Keep a fact about the user for later conversations. Use it when the user asks, or states a lasting preference."""
    return {"memory": _as_json(create_memory(context, text=text))}


@tool(category="memory", effect="read", human_format="Searching memory: {query}")
def memory_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words to look for; empty for the latest.", max_length=500)] = "",
) -> dict[str, Any]:
    """Find facts kept earlier about the user, best match first. Use it before asking what the user may have said."""
    words = set(re.findall(r"\w+", _folded(query)))
    # Compared here and not in the database: SQLite ignores case in ASCII letters only.
    found = [(sum(word in _folded(row.text) for word in words), row.number, row) for row in _mine(context)]
    if query.strip():
        found = [entry for entry in found if entry[0]]
    found.sort(key=lambda entry: entry[:2], reverse=True)
    listing: dict[str, Any] = {"memories": [_as_json(row) for _, _, row in found[:SEARCH_LIMIT]]}
    if len(found) > SEARCH_LIMIT:
        listing["more"] = len(found) - SEARCH_LIMIT
    return listing


# No retry after a crash: the highest number is given again, so a repeat could forget a newer memory.
@tool(category="memory", effect="write", human_format="Forgetting memory {number}")
def memory_forget(
    context: ToolContext, number: Annotated[int, Field(description="The memory's number.")]
) -> dict[str, Any]:
    """Remove a fact kept earlier, by the number that memory_search shows."""
    row = _mine(context).filter(number=number).first()
    if row is None:
        raise ToolError(f"There is no memory {number}: memory_search shows the numbers.")
    remove_row(context, row)
    return {"forgotten": _as_json(row)}


@tool(category="memory", effect="read", human_format="Looking up {query}")
def knowledge(
    context: ToolContext,
    query: Annotated[str, Field(description="Words to look for.", min_length=1, max_length=500)],
) -> dict[str, Any]:
    """Search all that is kept for this user at once: memories, journals, your own notes. The best match is first."""
    words = list(dict.fromkeys(words_of(query)))
    if not words:
        raise ToolError("Name at least one word to look for.")
    found = best_of(_passages(context), words)
    return {"found": found[:SEARCH_LIMIT]} | ({"more": len(found) - SEARCH_LIMIT} if len(found) > SEARCH_LIMIT else {})


def _mine(context: ToolContext) -> QuerySet[Memory]:
    return own_rows(Memory, context)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _as_json(row: Memory) -> dict[str, Any]:
    return {"number": row.number, "text": row.text, "stored": row.created_at.date().isoformat()}


def _passages(context: ToolContext) -> Iterator[Passage]:
    """Three queries."""
    memories = own_rows(Memory, context).order_by("-number").values_list("number", "text")
    for number, text in memories[:SEARCHED].iterator():
        yield Passage({"from": "memory", "number": number}, text)
    entries = own_rows(JournalEntry, context).filter(disabled_at=None).order_by("-date", "-number")
    columns = entries.values_list("number", "journal__name", "date", "title", "text")
    for number, journal, date, title, text in columns[:SEARCHED].iterator():
        source = {"from": "journal", "journal": journal, "number": number, "date": date.isoformat()}
        yield Passage(source | ({"title": title} if title else {}), text, title)
    pages = own_rows(AgentNote, context).filter(agent=context.agent_id, former_agent="")
    for page in pages.values_list("text", flat=True):
        for paragraph in _PARAGRAPHS.split(page):
            if paragraph.strip():
                yield Passage({"from": "notes"}, paragraph)
