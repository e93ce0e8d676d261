"""Numbers of rows that a member calls by number. Knows no tool and no category."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Max, Model, QuerySet
from pydantic import AfterValidator

from capabilities.contract.context import ToolError
from capabilities.models.numbered import NumberedRow, Owner

Numbered = TypeVar("Numbered", bound=NumberedRow)
Row = TypeVar("Row", bound=Model)

#: PostgreSQL stores no NUL in a text; it never means anything in one.
WITHOUT_NUL: Final = AfterValidator(lambda text: text.replace("\0", ""))

#: Two calls at once may count to the same number; the second one counts again.
TRIES = 20


def create_numbered(model: type[Numbered], owner: Owner, **fields: Any) -> Numbered:
    """A new row of this member, under the number after the highest one. Safe with several at once. Raises ToolError
    where others take the number each time."""
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                number = last_number(model, owner) + 1
                return model.objects.create(
                    organisation_id=owner.organisation_id,
                    membership_id=owner.membership_id,
                    number=number,
                    **fields,
                )
        except IntegrityError:
            continue
    raise ToolError("Too many changes at the same time; try again.")


def last_number(model: type[Numbered], owner: Owner) -> int:
    mine = model.objects.filter(membership_id=owner.membership_id)
    return mine.aggregate(last=Max("number"))["last"] or 0


def listing(
    name: str, rows: QuerySet[Row], as_json: Callable[[Row], dict[str, Any]], *, limit: int, offset: int = 0
) -> dict[str, Any]:
    """The first rows under this name, and how many more there are. Two queries."""
    total = rows.count()
    shown = [as_json(row) for row in rows[offset : offset + limit]]
    not_shown = total - offset - len(shown)
    return {name: shown} | ({"more": not_shown} if not_shown > 0 else {})


def numbered(rows: QuerySet[Numbered], numbers: list[int], lister: str) -> list[Numbered]:
    """The rows with these numbers. Raises ToolError, naming the tool that lists them, where one is missing."""
    storable = [number for number in numbers if 0 < number < 2**31]
    found = list(rows.filter(number__in=storable).order_by("number"))
    if missing := sorted(set(numbers) - {row.number for row in found}):
        raise ToolError(f"There is no item {', '.join(map(str, missing))}: {lister} shows the numbers.")
    return found
