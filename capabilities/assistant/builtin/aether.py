"""A member's journals and their entries. A disabled entry is hidden from every tool, and stays stored."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Case, Count, F, Max, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Concat, Length
from pydantic import Field

from capabilities.assistant.models import Journal, JournalEntry
from capabilities.assistant.records.writes.journals import ENTRY_TEXT, ENTRY_TITLE, change_entry, create_entry
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.dates import parse_date
from capabilities.running.records.names import folded, key_of, words_of
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL, listing
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="aether",
    title="Journals",
    description="The member's journals: write, read, search and hide entries.",
    keywords=(
        "journal",
        "note entry",
        "log entry",
        "aether",
        "search journals",
        "ae_",
        "aether journal",
        "search journal",
        "ae_journal",
    ),
)

#: Journals and entries of one listing, results of one search, characters of an entry shown with a result.
LIST_LIMIT = 100
SEARCH_LIMIT = 20
EXCERPT = 200
#: Entries that one search looks at, the latest first.
SEARCHED = 5_000

Name = Annotated[str, Field(description="The journal's name.", max_length=200), WITHOUT_NUL]
Number = Annotated[int, Field(description="The entry's number.")]
Text = Annotated[str, Field(description="Plain text or Markdown.", min_length=1, max_length=ENTRY_TEXT), WITHOUT_NUL]
Title = Annotated[str, Field(max_length=ENTRY_TITLE), WITHOUT_NUL]
Day = Annotated[str | None, Field(description="YYYY-MM-DD, or words such as yesterday.", max_length=40)]
Offset = Annotated[int, Field(description="How many to skip.", ge=0, le=100_000)]


@tool(category="aether", effect="read", human_format="Listing the journals")
def ae_journal_list(context: ToolContext) -> dict[str, Any]:
    """List the user's journals, with how many entries each has and the day of its latest one."""
    shown = Q(entries__disabled_at=None)
    journals = _journals(context).annotate(
        count=Count("entries", filter=shown), latest=Max("entries__date", filter=shown)
    )
    return listing("journals", journals.order_by("key"), _journal_as_json, limit=LIST_LIMIT)


@tool(category="aether", effect="read", human_format="Searching the journals for {query}")
def ae_journal_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words; all must occur.", min_length=1, max_length=200)],
    journal: Annotated[str | None, Field(description="Only this journal.", max_length=200)] = None,
) -> dict[str, Any]:
    """Find journal entries in which all these words occur, the latest first."""
    words = words_of(query)
    if not words:
        raise ToolError("Name at least one word to look for.")
    entries = _entries(context) if journal is None else _entries(context).filter(journal=_journal(context, journal))
    latest = entries.select_related("journal").order_by("-date", "-number")[:SEARCHED]
    found = [entry for entry in latest.iterator() if _holds(entry, words)]
    results = [_as_json(entry) | {"excerpt": _excerpt(entry.text, words[0])} for entry in found[:SEARCH_LIMIT]]
    return {"found": results} | ({"more": len(found) - SEARCH_LIMIT} if len(found) > SEARCH_LIMIT else {})


@tool(category="aether", effect="read", human_format="Listing entries of {journal}")
def ae_journal_entries_list(
    context: ToolContext, journal: Name, since: Day = None, until: Day = None, offset: Offset = 0
) -> dict[str, Any]:
    """List the entries of a journal, the latest first, with the beginning of each text."""
    entries = _entries(context).filter(journal=_journal(context, journal)).select_related("journal")
    today = context.now().date()
    if since:
        entries = entries.filter(date__gte=parse_date(since, today))
    if until:
        entries = entries.filter(date__lte=parse_date(until, today))
    ordered = entries.order_by("-date", "-number")
    return listing(
        "entries",
        ordered,
        lambda entry: _as_json(entry) | {"excerpt": entry.text[:EXCERPT]},
        limit=LIST_LIMIT,
        offset=offset,
    )


@tool(category="aether", effect="read", human_format="Reading journal entry {number}")
def ae_journal_entry_read(context: ToolContext, number: Number) -> dict[str, Any]:
    """Read one journal entry in full."""
    return _whole(_entry(context, number))


@tool(category="aether", effect="write", human_format="Writing into the journal {journal}")
def ae_journal_entry_create(
    context: ToolContext,
    journal: Annotated[Name, Field(description="A new name makes a new journal.")],
    text: Text,
    title: Title = "",
    date: Annotated[Day, Field(description="The day it is about; default today.")] = None,
) -> dict[str, Any]:
    """Add an entry to one of the user's journals."""
    day = parse_date(date, context.now().date()) if date else None
    entry = create_entry(context, journal=journal, text=text, title=title, date=day)
    return {"entry": _as_json(entry)}


# Setting the same values a second time changes nothing, so a crash may be followed by another try.
@tool(category="aether", effect="write", on_crash="retry", human_format="Changing journal entry {number}")
def ae_journal_entry_update(
    context: ToolContext,
    number: Number,
    text: Annotated[Text | None, Field(description="Replaces the whole text.")] = None,
    title: Title | None = None,
    date: Day = None,
) -> dict[str, Any]:
    """Change a journal entry; what is left out stays. To add to its text use append or prepend."""
    changes: dict[str, Any] = {}
    if text is not None:
        changes["text"] = text
    if title is not None:
        changes["title"] = title
    if date is not None:
        changes["date"] = parse_date(date, context.now().date())
    if not changes:
        raise ToolError("Say what to change: text, title or date.")
    change_entry(context, _entry(context, number), **changes)
    return {"entry": _as_json(_entry(context, number))}


@tool(category="aether", effect="write", on_crash="retry", human_format="Disabling journal entry {number}")
def ae_journal_entry_disable(context: ToolContext, number: Number) -> str:
    """Hide a journal entry. It stays stored, but no tool shows it again: only when the user asks for it."""
    entry = _mine(context).select_related("journal").filter(number=number).first()
    if entry is None:
        raise _no_entry(number)
    change_entry(context, entry, is_hidden=True)
    return f"Entry {number} is hidden."


@tool(category="aether", effect="write", human_format="Adding to journal entry {number}")
def ae_journal_entry_append(context: ToolContext, number: Number, text: Text) -> dict[str, Any]:
    """Add a line at the end of a journal entry."""
    return _added(context, number, text, Concat(F("text"), _value("\n" + text)))


@tool(category="aether", effect="write", human_format="Adding to journal entry {number}")
def ae_journal_entry_prepend(context: ToolContext, number: Number, text: Text) -> dict[str, Any]:
    """Add a line at the beginning of a journal entry."""
    return _added(context, number, text, Concat(_value(text + "\n"), F("text")))


def _journals(context: ToolContext) -> QuerySet[Journal]:
    return own_rows(Journal, context)


def _journal(context: ToolContext, name: str) -> Journal:
    journal = _journals(context).filter(key=key_of(name)).first()
    if journal is None:
        raise ToolError(f"There is no journal {name}: ae_journal_list shows them.")
    return journal


def _mine(context: ToolContext) -> QuerySet[JournalEntry]:
    """All entries of the member, hidden ones too."""
    return own_rows(JournalEntry, context)


def _entries(context: ToolContext) -> QuerySet[JournalEntry]:
    return _mine(context).filter(disabled_at=None)


def _entry(context: ToolContext, number: int) -> JournalEntry:
    entry = _entries(context).select_related("journal").filter(number=number).first()
    if entry is None:
        raise _no_entry(number)
    return entry


def _no_entry(number: int) -> ToolError:
    return ToolError(f"There is no journal entry {number}: ae_journal_entries_list shows the numbers.")


def _added(context: ToolContext, number: int, text: str, longer: Concat) -> dict[str, Any]:
    """One statement, so that of two calls at the same time neither loses its line."""
    with_room = _entries(context).annotate(length=Length("text")).filter(number=number)
    with_room = with_room.filter(length__lte=ENTRY_TEXT - len(text) - 1)
    if not with_room.update(text=Case(When(text="", then=_value(text)), default=longer), updated_at=context.now()):
        _entry(context, number)
        raise ToolError(f"An entry holds at most {ENTRY_TEXT} characters: write a new one.")
    return {"entry": _as_json(_entry(context, number))}


def _value(text: str) -> Value:
    return Value(text, output_field=TextField())


def _holds(entry: JournalEntry, words: list[str]) -> bool:
    whole = folded(f"{entry.title}\n{entry.text}")
    return all(word in whole for word in words)


def _excerpt(text: str, word: str) -> str:
    """The text around the first place of the word, or its beginning."""
    start = max(0, folded(text).find(word) - EXCERPT // 4)
    return text[start : start + EXCERPT]


def _journal_as_json(journal: Journal) -> dict[str, Any]:
    count, latest = journal.count, journal.latest  # type: ignore[attr-defined]
    return {"name": journal.name, "entries": count} | ({"latest": latest.isoformat()} if latest else {})


def _as_json(entry: JournalEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"number": entry.number, "journal": entry.journal.name, "date": entry.date.isoformat()}
    if entry.title:
        row["title"] = entry.title
    return row | {"characters": len(entry.text)}


def _whole(entry: JournalEntry) -> dict[str, Any]:
    return _as_json(entry) | {"text": entry.text, "updated": entry.updated_at.isoformat(timespec="minutes")}
