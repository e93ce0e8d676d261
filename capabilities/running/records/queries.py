"""Members' own rows as pages and REST show them. Each function asks for the rows of one owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import Http404

from capabilities.common.text import storable
from capabilities.models.numbered import Owner
from capabilities.running.records.kind import Kind
from capabilities.running.records.own import own_rows

ROWS_A_PAGE = 50
#: Words of a search that count.
MOST_WORDS = 8


def rows_of(kind: Kind, owner: Owner) -> QuerySet[Any]:
    return kind.joined(own_rows(kind.model, owner))


def row_or_404(kind: Kind, owner: Owner, public_id: UUID) -> Any:
    """One of the owner's rows. Another member's looks like a missing one. One query. Raises Http404 where there is
    none."""
    row = rows_of(kind, owner).filter(public_id=public_id).first()
    if row is None:
        raise Http404("No such row.")
    return row


def count_rows(kinds: Sequence[Kind], owner: Owner) -> list[tuple[Kind, int]]:
    """Return the number of rows of each kind. A query for each kind."""
    return [(kind, own_rows(kind.model, owner).count()) for kind in kinds]


def matching(kind: Kind, words: str) -> Q:
    """Rows in which each of the words occurs."""
    found = Q()
    for word in words.split()[:MOST_WORDS]:
        found &= holds_word(kind.searched, word)
    return found


def holds_word(fields: Iterable[str], word: str) -> Q:
    """Rows in which the word occurs in one of these fields.

    SQLite knows the case of ASCII letters only: a word is looked for as it is written, in small and in capital letters,
    and with a capital at its beginning.
    """
    word, anywhere = storable(word), Q()
    for field in fields:
        for spelling in sorted({word, word.lower(), word.upper(), word.capitalize()}):
            anywhere |= Q(**{f"{field}__icontains": spelling})
    return anywhere
