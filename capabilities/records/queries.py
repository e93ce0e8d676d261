"""Members' own rows as pages and REST show them. Each function asks for the rows of one owner."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Field, Q, QuerySet
from django.http import Http404

from capabilities.models.numbered import Owner
from capabilities.records.kind import Kind
from capabilities.records.own import own_rows
from toolhub.tenants.guarded import PublicModel

ROWS_A_PAGE = 50
#: Words of a search that count.
MOST_WORDS = 8


def rows_of(kind: Kind, owner: Owner) -> QuerySet[Any]:
    return kind.joined(own_rows(kind.model, owner))


def row_or_404(kind: Kind, owner: Owner, public_id: UUID) -> Any:
    """One of the owner's rows. Another member's looks like a missing one. One query."""
    row = rows_of(kind, owner).filter(public_id=public_id).first()
    if row is None:
        raise Http404("No such row.")
    return row


def count_rows(kinds: Sequence[Kind], owner: Owner) -> list[tuple[Kind, int]]:
    """How many rows of each kind there are. A query for each kind."""
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
    anywhere = Q()
    for field in fields:
        for spelling in sorted({word, word.lower(), word.upper(), word.capitalize()}):
            anywhere |= Q(**{f"{field}__icontains": spelling})
    return anywhere


@dataclass(frozen=True)
class RecordsPage:
    """Some rows, and the cursor of the next ones, empty at the end."""

    rows: Sequence[PublicModel]
    next: str


def records_page(kind: Kind, rows: QuerySet[Any], cursor: str = "") -> RecordsPage:
    """A page of these rows in the kind's order. A cursor that no page of ours wrote begins anew. One query."""
    place = _place(kind, rows, cursor)
    if place is not None:
        rows = rows.filter(_after(kind.order, place))
    found = list(rows.order_by(*kind.order)[: ROWS_A_PAGE + 1])
    shown = found[:ROWS_A_PAGE]
    return RecordsPage(shown, _cursor(kind, shown[-1]) if len(found) > ROWS_A_PAGE else "")


def _after(order: tuple[str, ...], place: Sequence[Any]) -> Q:
    """Rows behind this place: later in the first field, or the same there and later in the next one, and so on."""
    behind, same = Q(), Q()
    for name, value in zip(order, place, strict=True):
        field = name.removeprefix("-")
        step = "lt" if name.startswith("-") else "gt"
        behind |= same & Q(**{f"{field}__{step}": value})
        same &= Q(**{field: value})
    return behind


def _cursor(kind: Kind, row: PublicModel) -> str:
    place = [str(getattr(row, name.removeprefix("-"))) for name in kind.order]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _place(kind: Kind, rows: QuerySet[Any], cursor: str) -> list[Any] | None:
    try:
        texts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))) if cursor else None
        if not isinstance(texts, list) or len(texts) != len(kind.order):
            return None
        return [_column(rows, name).to_python(str(text)) for name, text in zip(kind.order, texts, strict=True)]
    except (ValueError, RecursionError, ValidationError):
        return None


def _column(rows: QuerySet[Any], name: str) -> Field[Any, Any]:
    """The field that orders by this name, also one that was annotated."""
    name = name.removeprefix("-")
    annotation = rows.query.annotations.get(name)
    column: Field[Any, Any] = annotation.output_field if annotation else rows.model._meta.get_field(name)
    return column
