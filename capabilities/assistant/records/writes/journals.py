"""Journals and their entries."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.db import transaction

from capabilities.assistant.models import Journal, JournalEntry
from capabilities.models.numbered import Owner
from capabilities.running.records.names import name_and_key
from capabilities.running.records.own import Naming, change_named, create_named, named_row, own_rows
from capabilities.running.records.rows import create_numbered

#: Journals that a member has; characters of an entry's text and title.
JOURNALS = 500
ENTRY_TEXT = 100_000
ENTRY_TITLE = 200

A_JOURNAL = Naming("A journal", JOURNALS, "All {limit} journals are in use: write into one that exists.")


def create_journal(owner: Owner, *, name: str) -> Journal:
    return create_named(owner, Journal, name, A_JOURNAL)


def change_journal(owner: Owner, journal: Journal, *, name: str) -> None:
    change_named(owner, journal, A_JOURNAL, name=name)


@transaction.atomic
def create_entry(
    owner: Owner, *, journal: str, text: str, title: str = "", date: date | None = None, is_hidden: bool = False
) -> JournalEntry:
    """An entry of the journal of that name, which is made where there is none. Without a date it is of today."""
    return create_numbered(
        JournalEntry,
        owner,
        journal=_journal(owner, journal),
        title=" ".join(title.split()),
        text=text,
        date=date or owner.now().date(),
        disabled_at=owner.now() if is_hidden else None,
    )


@transaction.atomic
def change_entry(
    owner: Owner, entry: JournalEntry, *, journal: str | None = None, is_hidden: bool | None = None, **changes: Any
) -> None:
    """`changes`: text, title, date. `journal` moves the entry; a hidden one is shown by no tool, and stays stored."""
    if "title" in changes:
        changes["title"] = " ".join(changes["title"].split())
    if journal is not None and name_and_key(journal, "A journal")["key"] != entry.journal.key:
        changes["journal"] = _journal(owner, journal)
    rows = own_rows(JournalEntry, owner).filter(pk=entry.pk)
    if changes:
        rows.update(**changes, updated_at=owner.now())
    if is_hidden is not None:
        rows.filter(disabled_at__isnull=is_hidden).update(disabled_at=owner.now() if is_hidden else None)


def _journal(owner: Owner, name: str) -> Journal:
    return named_row(owner, Journal, name, A_JOURNAL)
