"""Rows that hold sums: an amount is added to the row that is there, or the row is made. One statement for many rows.

`bulk_create` can only overwrite on a conflict, and refuses even that in a scope, because the row may be another
organisation's. Here the organisation is part of what a row is found by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models.sql import InsertQuery

from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import SYSTEM, ScopeError, current_scope

#: Rows of one statement: SQLite takes 32,766 values.
AT_ONCE = 500


def add_to_sums(
    model: type[TenantModel],
    rows: Sequence[Mapping[str, Any]],
    *,
    found_by: Sequence[str],
    sums: Sequence[str],
    newest: Sequence[str] = (),
) -> None:
    """Add each row's `sums` to the row of the organisation in scope that has the same values in `found_by`, which
    with the organisation name one row. Columns of `newest` take the value that is given.

    Rows are taken in the order of `found_by`, so that two at once never wait for each other. One statement for each 500
    rows. Raises ScopeError outside an organisation's scope.
    """
    if current_scope() == SYSTEM:
        raise ScopeError("Sums are added in the scope of their organisation.")
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in found_by))
    for begin in range(0, len(ordered), AT_ONCE):
        _add(model, ordered[begin : begin + AT_ONCE], found_by, sums, newest)


def _add(
    model: type[TenantModel],
    rows: Sequence[Mapping[str, Any]],
    found_by: Sequence[str],
    sums: Sequence[str],
    newest: Sequence[str],
) -> None:
    """Add rows to sums, in one statement: a row that is there already gets the numbers added."""
    names = ("organisation", *found_by, *sums, *newest)
    columns: list[Any] = [model._meta.get_field(name) for name in names]
    query = InsertQuery(model)
    objects: list[Any] = [model(organisation_id=current_scope(), **row) for row in rows]
    query.insert_values(columns, objects)
    ((sql, params),) = query.get_compiler(connection=connection).as_sql()
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    column = {name: quote(str(each.column)) for name, each in zip(names, columns, strict=True)}
    key = ", ".join(column[name] for name in ("organisation", *found_by))
    changes = [f"{column[name]} = {table}.{column[name]} + EXCLUDED.{column[name]}" for name in sums]
    changes += [f"{column[name]} = EXCLUDED.{column[name]}" for name in newest]
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} ON CONFLICT ({key}) DO UPDATE SET {', '.join(changes)}", params)
