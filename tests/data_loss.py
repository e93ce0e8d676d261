"""Which operations of a migration take stored data away, whatever way they do it: as tests of migrations ask."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

from django.db.migrations import DeleteModel, RemoveField, RunPython, RunSQL, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation

#: SQL that takes rows, columns or tables away. An index, a trigger or a function holds no data.
_SQL = re.compile(r"\b(DELETE\s+FROM|TRUNCATE\b|DROP\s+(TABLE|COLUMN|SCHEMA|DATABASE)|REPLACE\s+INTO)", re.IGNORECASE)
#: The same through the ORM and the schema editor.
_CALLS = re.compile(r"\.(delete|_raw_delete|delete_model|remove_field)\(")
#: Packages whose code is read where a migration calls it.
_OWN = ("toolhub", "capabilities", "sessions", "tests")


def takes_away(operations: Sequence[Operation]) -> list[str]:
    """What each operation that takes data away is, on the way forward. Going back may take away what came."""
    return [type(each).__name__ for each in _all(operations) if _takes(each)]


def _all(operations: Sequence[Operation]) -> Iterator[Operation]:
    for each in operations:
        if isinstance(each, SeparateDatabaseAndState):
            yield from _all(each.database_operations)
        else:
            yield each


def _takes(operation: Operation) -> bool:
    if isinstance(operation, DeleteModel | RemoveField):
        return True
    if isinstance(operation, RunSQL):
        return bool(_SQL.search(_sql(operation.sql)))
    if isinstance(operation, RunPython):
        return _does(operation.code, set())
    if type(operation).__module__.startswith(_OWN):
        return _does(type(operation).database_forwards, set())
    return False


def _sql(statements: Any) -> str:
    """RunSQL takes a text, a list of texts, or pairs of a text and its parameters."""
    if isinstance(statements, str):
        return statements
    return "\n".join(each if isinstance(each, str) else str(each[0]) for each in statements)


def _does(function: Any, seen: set[Any]) -> bool:
    """Whether the function, or one of ours that it names, takes data away: by its text, and by texts of its module."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or function in seen:
        return False
    seen.add(function)
    source = inspect.getsource(function)
    if _CALLS.search(source) or _SQL.search(source):
        return True
    named = [function.__globals__.get(name) for name in _names(function.__code__)]
    if any(isinstance(each, str) and _SQL.search(each) for each in named):
        return True
    ours = (each for each in named if getattr(each, "__module__", "").startswith(_OWN))
    return any(_does(each, seen) for each in ours if isinstance(each, FunctionType))


def _names(code: Any) -> Iterator[str]:
    """Those of nested functions as well."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names(constant)
