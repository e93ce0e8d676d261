"""The rows of this app: columns, and no state of a worker beside them."""

from __future__ import annotations

from typing import Any

from django.apps import apps


def beside_the_columns(table: type[Any]) -> set[str]:
    """Names of a table's class that hold a value, or promise one, and are no column."""
    held = {
        name for name, value in vars(table).items() if not hasattr(value, "__get__") and not isinstance(value, type)
    }
    return {name for name in {*held, *vars(table).get("__annotations__", {})} if not name.startswith("_")}


def test_rows_have_columns_alone() -> None:
    tables = apps.get_app_config("toolhub_sessions").get_models()

    assert {table.__name__: found for table in tables if (found := beside_the_columns(table))} == {}


def test_a_value_in_memory_is_seen() -> None:
    class Row:
        has_loads = True
        model: str

        @property
        def is_open(self) -> bool:
            return True

    assert beside_the_columns(Row) == {"has_loads", "model"}
