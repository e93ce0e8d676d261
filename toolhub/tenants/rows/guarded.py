"""The base of every row that belongs to an organisation, and the guard on its queries.

One gap is known: a foreign key set by its bare `_id` on a row that is saved is not looked up, for the price of a query
(writes go through functions that were given rows; `bulk_create` and `update` do look). Joins from tables without an
organisation have nowhere to go: foreign keys to Organisation and User have no reverse name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from django.db import models
from django.db.models.sql import Query

from toolhub.tenants.rows.scope import SYSTEM, ScopeError, current_scope, has_scope
from toolhub.tenants.rows.statements import guard_value

T = TypeVar("T", bound="TenantModel")


class TenantQuery(Query):
    """A query remembers whether it was begun inside a scope; every SELECT, sync or async, ends here.

    One that was begun outside holds no organisation: it raises inside a scope too, or it would read everybody's rows.
    """

    scoped = False

    def chain(self, klass: Any = None) -> Any:
        chained: Any = super().chain(klass)
        chained.scoped = self.scoped
        return chained

    def combine(self, rhs: Query, connector: str) -> None:
        super().combine(rhs, connector)
        self.scoped = self.scoped and getattr(rhs, "scoped", False)

    def get_compiler(self, *args: Any, **kwargs: Any) -> Any:
        self.check_scope()
        return super().get_compiler(*args, **kwargs)

    def check_scope(self) -> None:
        """Raise ScopeError unless this query holds its organisation, reads nothing, or is the system's."""
        if not self.scoped and not self.is_empty() and current_scope() != SYSTEM:
            raise ScopeError("This query was begun before its scope: begin it inside.")


class TenantQuerySet(models.QuerySet[T]):
    """UPDATE, DELETE and INSERT change the class of the query on their way, so each of them asks here."""

    def __init__(
        self, model: type[T] | None = None, query: Query | None = None, using: str | None = None, hints: Any = None
    ) -> None:
        if query is None and model is not None:
            query = TenantQuery(model)
        super().__init__(model, query, using, hints)

    def update(self, **values: Any) -> int:
        self._check_scope()
        for name, value in values.items():
            self._check_value(self.model._meta.get_field(name), value)
        return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        self._check_scope()
        return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _raw_delete(self, using: str | None) -> int:
        self._check_scope()
        deleted: int = super()._raw_delete(using)
        return deleted

    def bulk_create(self, objs: Iterable[T], *args: Any, **kwargs: Any) -> list[T]:
        """Create rows of the scope's organisation. Raises ScopeError for a row or key of another, and where conflicts
        would overwrite rows."""
        scope = current_scope()
        rows = list(objs)
        for row in rows:
            row.check_scope()
        if scope != SYSTEM:
            if kwargs.get("update_conflicts"):
                raise ScopeError("A conflict may be with another organisation's row: it cannot be overwritten.")
            self._check_keys(rows)
        return super().bulk_create(rows, *args, **kwargs)

    def bulk_update(self, objs: Iterable[T], fields: Iterable[str], batch_size: int | None = None) -> int:
        rows = list(objs)
        for row in rows:
            row.check_scope()
        return super().bulk_update(rows, fields, batch_size)

    def raw(self, *args: Any, **kwargs: Any) -> models.query.RawQuerySet[Any]:
        """Run SQL in the system's scope. Raises ScopeError in any other: SQL of its own holds no organisation."""
        if current_scope() != SYSTEM:
            raise ScopeError("SQL of its own holds no organisation.")
        return super().raw(*args, **kwargs)

    def _check_scope(self) -> None:
        if isinstance(self.query, TenantQuery):
            self.query.check_scope()
        else:
            current_scope()

    def _check_value(self, field: Any, value: Any) -> None:
        """Raise ScopeError where `value` would give a row to another organisation, or link it to one of its rows."""
        if field.name == "organisation":
            raise ScopeError("A row stays with its organisation.")
        if isinstance(value, TenantModel):
            value.check_scope()
        elif not isinstance(field, models.ForeignKey) or value is None or hasattr(value, "resolve_expression"):
            return
        elif current_scope() != SYSTEM:
            _check_linked(field, {value})

    def _check_keys(self, rows: list[T]) -> None:
        """Raise ScopeError where a key names another organisation's row that is not at hand. One query for each foreign
        key."""
        for field in self.model._meta.concrete_fields:
            if isinstance(field, models.ForeignKey):
                keys = {getattr(row, field.attname) for row in rows if not field.is_cached(row)}
                _check_linked(field, keys - {None})


def _check_linked(field: Any, keys: set[Any]) -> None:
    if not keys or not issubclass(field.related_model, TenantModel):
        return
    found = field.related_model._base_manager.filter(**{f"{field.target_field.name}__in": keys}).count()
    if found != len(keys):
        raise ScopeError(f"{field.name} names a row that is not in this organisation.")


class AppendOnlyQuerySet(TenantQuerySet[T]):
    """Rows that are written once. (Deleting the organisation takes them with it, past these methods.)"""

    def update(self, **values: Any) -> int:
        """Raises TypeError: rows stay as they are recorded."""
        raise TypeError("What was recorded is never changed.")

    def bulk_update(self, objs: Iterable[T], fields: Iterable[str], batch_size: int | None = None) -> int:
        """Raises TypeError: rows stay as they are recorded."""
        raise TypeError("What was recorded is never changed.")

    def bulk_create(self, objs: Iterable[T], *args: Any, **kwargs: Any) -> list[T]:
        """Raises TypeError: rows are recorded one by one."""
        raise TypeError("What is recorded is recorded one by one.")

    def delete(self) -> tuple[int, dict[str, int]]:
        """Raises TypeError: rows stay as they are recorded."""
        raise TypeError("What was recorded is never removed, but with its organisation.")


class TenantManager(models.Manager[T]):
    queryset_class: type[TenantQuerySet[Any]] = TenantQuerySet

    def get_queryset(self) -> TenantQuerySet[T]:
        """Return the rows of the scope's organisation; all in the system's scope."""
        queryset: TenantQuerySet[T] = self.queryset_class(self.model, using=self._db)
        if not has_scope():
            return queryset  # class-level querysets stay legal; running one raises
        scope = current_scope()
        if scope != SYSTEM:
            queryset = queryset.filter(organisation_id=guard_value(scope))
        queryset.query.scoped = True  # type: ignore[attr-defined]
        return queryset


class AppendOnlyManager(TenantManager[T]):
    queryset_class = AppendOnlyQuerySet


class TenantModel(models.Model):
    """A row of one organisation. Saving or deleting it from another organisation's scope raises ScopeError.

    No table has an index on the organisation alone: every query names the organisation, and a database without
    statistics, as SQLite is, would read all of an organisation's rows in place of the few that are asked for. A table
    whose rows are listed by organisation has an index that begins with it.
    """

    organisation = models.ForeignKey("tenants.Organisation", on_delete=models.CASCADE, related_name="+", db_index=False)

    objects = TenantManager()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def check_scope(self) -> None:
        """Raise ScopeError unless this row, and every row it points to that is at hand, is the scope's own."""
        scope = current_scope()
        if scope != SYSTEM and self.organisation_id != scope:
            raise ScopeError(f"{type(self).__name__} belongs to another organisation than the one in scope.")
        for field in self._meta.concrete_fields:
            if not isinstance(field, models.ForeignKey) or not field.is_cached(self):
                continue
            related = getattr(self, field.name)
            if isinstance(related, TenantModel) and related.organisation_id != self.organisation_id:
                raise ScopeError(f"{type(self).__name__}.{field.name} belongs to another organisation.")

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.check_scope()
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        self.check_scope()
        # DELETE goes by the primary key alone: a made-up row must not take another organisation's with it.
        if current_scope() != SYSTEM and not type(self)._base_manager.filter(pk=self.pk).exists():
            return 0, {}
        return super().delete(*args, **kwargs)


class PublicModel(TenantModel):
    """A row that people outside can name: in an address, a form, a REST id, a cursor.

    They name it by `public_id`. The primary key counts the rows of every organisation, and stays inside.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)

    class Meta(TenantModel.Meta):
        abstract = True
