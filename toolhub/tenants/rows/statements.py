"""Statements that are sent again and again: compiled once, by Django and with the guard in them, and bound each time.

Compiling a query costs Django ten times what a database takes to answer it. A `Select`, `Update` or `Insert` is
declared once, beside the function that runs it; what differs between two executions is a `Param`. The guard's
organisation is a Param too, and is bound to the scope of each execution. `Update` also knows RETURNING, which querysets
do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, models
from django.db.models import Expression, QuerySet
from django.db.models.functions import Now
from django.db.models.query import get_related_populators
from django.db.models.sql import InsertQuery, UpdateQuery

from toolhub.tenants.rows.scope import SYSTEM, ScopeError, current_scope

#: The name under which the guard's organisation is bound.
SCOPE = "scope of the execution"
#: Whether a statement is being declared: then the guard puts a Param in place of the organisation.
_declaring: ContextVar[bool] = ContextVar("toolhub_declaring", default=False)


class Param(Expression):
    """The place of a value that comes with each execution, under this name."""

    def __init__(self, name: str, output_field: models.Field[Any, Any]) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "%s", [self]

    def bound(self, values: Mapping[str, Any], database: Any) -> Any:
        """The value as this thread's database takes it."""
        return self.output_field.get_db_prep_save(values[self.name], database)


def param(model: type[models.Model], name: str, called: str = "") -> Param:
    """A Param for values of this field, by the field's name or as it is `called`."""
    found = model._meta.get_field(name)
    if isinstance(found, models.ForeignKey):
        found = found.target_field
    return Param(called or name, _plain(found))


def _plain(expression: Any) -> Any:
    """A key of a row, not one that the database makes up."""
    return models.BigIntegerField() if isinstance(expression, models.AutoField) else expression


def guard_value(scope: int) -> Any:
    """Return the value that the guard compares a row's organisation with."""
    return Param(SCOPE, models.BigIntegerField()) if _declaring.get() else scope


@dataclass(frozen=True)
class _Compiled:
    """The text of a statement, its values and Params in order, and what makes Python values of a row's columns."""

    sql: str
    params: tuple[Any, ...]
    converters: tuple[tuple[int, tuple[Callable[..., Any], ...], Any], ...] = ()
    #: For instances of a model: its class, the names and places of its columns, and its related rows.
    model: Any = None
    names: tuple[str, ...] = ()
    columns: tuple[int, int] = (0, 0)
    populators: tuple[Any, ...] = ()
    annotations: tuple[tuple[str, int], ...] = ()

    def rows(self, values: Mapping[str, Any]) -> list[Sequence[Any]]:
        database = connections[DEFAULT_DB_ALIAS]
        bound = [each.bound(values, database) if isinstance(each, Param) else each for each in self.params]
        with database.cursor() as cursor:
            cursor.execute(self.sql, bound)
            rows = cursor.fetchall() if cursor.description else []
        return [self._converted(row, database) for row in rows] if self.converters else rows

    def _converted(self, row: Sequence[Any], database: Any) -> list[Any]:
        converted = list(row)
        for index, converters, expression in self.converters:
            for converter in converters:
                converted[index] = converter(converted[index], expression, database)
        return converted

    def instance(self, row: Sequence[Any]) -> Any:
        found = self.model.from_db(connection.alias, self.names, row[slice(*self.columns)])
        for populator in self.populators:
            populator.populate(row, found)
        for name, index in self.annotations:
            setattr(found, name, row[index])
        return found


@dataclass
class _Statement:
    """A statement as it was compiled for each kind of database, and for the system's scope beside an organisation's."""

    _compiled: dict[Any, _Compiled] = field(default_factory=dict, init=False)

    def _for_scope(self, *shape: Any) -> _Compiled:
        key = (connection.vendor, current_scope() == SYSTEM, *shape)
        found = self._compiled.get(key)
        if found is None:
            token = _declaring.set(True)
            try:
                found = self._compiled[key] = self._compile(*shape)
            finally:
                _declaring.reset(token)
        return found

    def _compile(self, *shape: Any) -> _Compiled:
        raise NotImplementedError


@dataclass
class Select(_Statement):
    """`rows()` makes the queryset, with Params in it."""

    queryset: Callable[[], QuerySet[Any, Any]]

    def rows(self, **values: Any) -> list[Sequence[Any]]:
        """The rows of a `values_list`. One query."""
        return self._for_scope().rows(values | {SCOPE: current_scope()})

    def instances(self, **values: Any) -> list[Any]:
        """The rows as the queryset's models. One query."""
        compiled = self._for_scope()
        return [compiled.instance(row) for row in compiled.rows(values | {SCOPE: current_scope()})]

    def _compile(self) -> _Compiled:
        """Compile the query of a SELECT, with the columns and converters that make rows of its model."""
        query = self.queryset().query
        compiler = query.get_compiler(connection=connection)
        sql, params = compiler.as_sql()
        shown = compiler.select[: compiler.col_count]
        converters = _converters(compiler, [expression for expression, _, _ in shown])
        info = compiler.klass_info
        if info is None or not query.default_cols:  # columns of their own, of which some may be expressions
            return _Compiled(sql, tuple(params), converters)
        columns = (info["select_fields"][0], info["select_fields"][-1] + 1)
        return _Compiled(
            sql,
            tuple(params),
            converters,
            info["model"],
            tuple(expression.target.attname for expression, _, _ in shown[slice(*columns)]),
            columns,
            tuple(get_related_populators(info, shown, connection.alias)),  # type: ignore[call-arg]
            tuple(compiler.annotation_col_map.items()),
        )


@dataclass
class Update(_Statement):
    """An UPDATE of the rows in the queryset. A change to None is bound with each execution, under its field's name.

    `returning` names columns and annotations of the queryset that the UPDATE gives back, as they are behind it; none of
    them may need a join.
    """

    queryset: Callable[[], QuerySet[Any, Any]]
    changes: Mapping[str, Any]
    returning: Sequence[str] = ()

    def rows(self, **values: Any) -> list[dict[str, Any]]:
        """A mapping for each row that was changed. One query."""
        rows = self._for_scope().rows(values | {SCOPE: current_scope()})
        return [dict(zip(self.returning, row, strict=True)) for row in rows]

    def _compile(self) -> _Compiled:
        """Compile an UPDATE with RETURNING. Raises ValueError where that would need joined rows."""
        queryset = self.queryset()
        model = queryset.model
        changes = {name: param(model, name) if each is None else each for name, each in self.changes.items()}
        shown = queryset.values_list(*self.returning or ("pk",)).query
        reader = shown.get_compiler(connection=connection)
        reader.pre_sql_setup()
        if sum(map(bool, shown.alias_refcount.values())) > 1:
            raise ValueError("RETURNING reaches the row's own columns and subqueries, no joined rows.")
        query: Any = queryset.query.chain(UpdateQuery)
        query.annotations = {}
        query.add_update_values(changes)
        sql, params = query.get_compiler(connection=connection).as_sql()
        if not self.returning:
            return _Compiled(sql, tuple(params))
        columns = [text for _, (text, _), _ in reader.select]
        update_values = [each for _, (_, values), _ in reader.select for each in values]
        converters = _converters(reader, [expression for expression, _, _ in reader.select])
        return _Compiled(f"{sql} RETURNING {', '.join(columns)}", (*params, *update_values), converters)


@dataclass
class Insert(_Statement):
    """An INSERT of rows with these fields, of which those that are None are bound with each execution.

    The other fields have their default, and times that the model sets are now.
    """

    model: Any
    fields: Mapping[str, Any]

    @classmethod
    def whole(cls, model: type[models.Model], **fields: Any) -> Insert:
        """One that binds every field but these: for `add`."""
        return cls(model, dict.fromkeys(each.name for each in model._meta.concrete_fields) | fields)

    def rows(self, *rows: Mapping[str, Any], **values: Any) -> list[Any]:
        """Insert these rows, and return their keys; `values` are bound in each. One query. Raises ScopeError for a row
        of another organisation."""
        scope = current_scope()
        if scope != SYSTEM and any(row["organisation"] != scope for row in rows):
            raise ScopeError(f"{self.model.__name__} belongs to another organisation than the one in scope.")
        bound = {f"{number} {name}": value for number, row in enumerate(rows) for name, value in row.items()}
        return [key for (key, *_) in self._for_scope(len(rows)).rows(values | bound)]

    def add(self, row: Any, **values: Any) -> None:
        """Insert this row, as its `save` does. The values of this statement's fields are not read from the row, nor set
        on it. One query. Raises ScopeError."""
        row.check_scope()
        columns = (each for each in self.model._meta.concrete_fields if self.fields[each.name] is None)
        (row.pk,) = self.rows({each.name: each.pre_save(row, add=True) for each in columns}, **values)
        row._state.adding, row._state.db = False, connection.alias

    def _compile(self, count: int) -> _Compiled:
        meta = self.model._meta
        columns = [each for each in meta.concrete_fields if not isinstance(each, models.AutoField)]
        query = InsertQuery(self.model)
        query.insert_values(columns, [self._row(number, columns) for number in range(count)], raw=True)
        compiler = query.get_compiler(connection=connection)
        compiler.returning_fields = [meta.pk]
        ((sql, params),) = compiler.as_sql()
        converters = _converters(compiler, [meta.pk.get_col(meta.db_table)])
        return _Compiled(sql, tuple(params), converters)

    def _row(self, number: int, columns: Sequence[Any]) -> Any:
        made = self.model()
        for each in columns:
            if each.name in self.fields:
                value: Any = self.fields[each.name] or param(self.model, each.name, f"{number} {each.name}")
            elif getattr(each, "auto_now_add", False):
                value = Now()
            else:
                value = each.get_default()
            setattr(made, each.attname, value)
        return made


def _converters(compiler: Any, expressions: Sequence[Any]) -> Any:
    found = compiler.get_converters(expressions)
    return tuple((index, tuple(converters), expression) for index, (converters, expression) in found.items())
