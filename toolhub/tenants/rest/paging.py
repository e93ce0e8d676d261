"""Lists over REST: their parameters, and their pages. A cursor is the place of the last row, as pages write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.encoders import JSONEncoder

from toolhub.tenants.rows.cursors import opened_place, sealed_place
from toolhub.tenants.rows.keyset import PAGE, Keyset
from toolhub.tenants.rows.public_ids import public_id_of

M = TypeVar("M", bound=Model)
T = TypeVar("T", int, str)

MAX_PAGE = 200
#: A page holds no more than this, but for a single row that does.
MAX_BYTES = 100_000
JSON = JSONEncoder(ensure_ascii=False, separators=(",", ":"))

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")

#: The parameters of every list, for its description.
PAGE_PARAMETERS = [
    OpenApiParameter("cursor", str, description="`next` of the page before; leave out for the first."),
    OpenApiParameter(
        "limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE}, description="Rows a page."
    ),
]


def only_parameters(request: Request, *names: str) -> None:
    """Refuse query parameters that this address does not know: a misspelled filter must not look like an empty one.
    Raises ValidationError."""
    for name in request.query_params:
        if name not in names:
            raise ValidationError(
                {name[:100]: f"There is no such parameter here; known are {', '.join(sorted(names))}."}
            )


def integer_parameter(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a whole number of the query, or its default. Raises ValidationError for another text, and for one beyond
    its bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not WHOLE_NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise ValidationError({name: f"Give a whole number from {low} to {high}."})
    return int(text)


def uuid_parameter(request: Request, name: str) -> UUID | None:
    """The id that the query gives, or None where it gives none. Raises ValidationError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = public_id_of(text)
    if found is None:
        raise ValidationError({name: "Give an id like 6f0d9c1e-3b52-4a57-9d0e-2f4f1c1f7a10."})
    return found


def page(
    request: Request,
    rows: QuerySet[M],
    key: str,
    shown: Callable[[M], Mapping[str, Any]],
    *,
    newest_first: bool = False,
    filters: tuple[str, ...] = (),
    complete: Callable[[list[M]], None] = lambda rows: None,
    at_once: int = MAX_PAGE,
) -> dict[str, Any]:
    """One page of rows in the order of `key`, a unique field: {"results": [...], "next": cursor or null}.

    It ends before `limit` where its rows weigh more than MAX_BYTES. `complete` adds to rows what their query did not
    bring, `at_once` is how many rows of a heavy kind are read together.
    """
    only_parameters(request, "cursor", "limit", *filters)
    limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
    ordered = begun(request, Keyset(rows, (f"-{key}" if newest_first else key,)))
    results: list[Mapping[str, Any]] = []
    weight, taken = 0, list[M]()
    while True:
        wanted = min(limit - len(results), at_once)
        found = list(_behind(ordered, taken)[: wanted + 1])
        complete(found[:wanted])
        for row in found[:wanted]:
            body = shown(row)
            weight += len(JSON.encode(body))
            if results and weight > MAX_BYTES:
                return {"results": results, "next": ordered.place_of(taken[-1])}
            results.append(body)
            taken.append(row)
        if len(found) <= wanted:
            return {"results": results, "next": None}
        if len(results) == limit:
            return {"results": results, "next": ordered.place_of(taken[-1])}


def _behind(ordered: Keyset[M], taken: list[M]) -> QuerySet[M]:
    """Return the rows that come after these."""
    rows = ordered.rows_behind_row(taken[-1]) if taken else ordered.rows
    return rows.order_by(*ordered.order)


def begun(request: Request, ordered: Keyset[M]) -> Keyset[M]:
    """Return the rows behind the query's cursor. Raises ValidationError for one that no list in this order wrote."""
    cursor = request.query_params.get("cursor")
    rows = ordered.rows if cursor is None else ordered.rows_behind(cursor)
    if rows is None:
        raise no_such_cursor()
    return Keyset(rows, ordered.order)


def cursor_of(request: Request) -> str:
    """The query's cursor, empty where there is none. Raises ValidationError for one that none of our lists wrote."""
    cursor = request.query_params.get("cursor")
    if cursor is not None and opened_place(cursor, list) is None:
        raise no_such_cursor()
    return str(cursor or "")


def write_cursor(position: int | str) -> str:
    return sealed_place(position)


def read_cursor(text: str, kind: type[T]) -> T:
    """The place in a cursor. Raises ValidationError for one that none of our pages wrote."""
    position = opened_place(text, kind)
    if position is None:
        raise no_such_cursor()
    return position


def no_such_cursor() -> ValidationError:
    """Return the error for a cursor that none of our pages wrote, or whose row is gone."""
    return ValidationError({"cursor": "This is no cursor of ours; begin without one."})
