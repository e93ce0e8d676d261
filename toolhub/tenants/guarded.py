"""The base of every row that belongs to an organisation, and the guard on its queries.

Two gaps are known and closed elsewhere: a join from an unguarded table (there are none: foreign keys to Organisation
have no reverse name), and a foreign key set by its bare `_id` (writes go through functions that were given rows).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db import models
from django.db.models.sql import Query

from toolhub.tenants.scope import SYSTEM, ScopeError, current_scope, has_scope

T = TypeVar("T", bound="TenantModel")


class TenantQuery(Query):
    """A query remembers whether it was begun inside a scope; every SELECT and DELETE, sync or async, ends here."""

    scoped = False

    def chain(self, klass: Any = None) -> Any:
        chained: Any = super().chain(klass)
        chained.scoped = self.scoped
        return chained

    def get_compiler(self, *args: Any, **kwargs: Any) -> Any:
        if not self.scoped:
            current_scope()
        return super().get_compiler(*args, **kwargs)


class TenantQuerySet(models.QuerySet[T]):
    def __init__(
        self, model: type[T] | None = None, query: Query | None = None, using: str | None = None, hints: Any = None
    ) -> None:
        if query is None and model is not None:
            query = TenantQuery(model)
        super().__init__(model, query, using, hints)

    def update(self, **values: Any) -> int:
        current_scope()
        for value in values.values():
            if isinstance(value, TenantModel):
                value.check_scope()
        return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[T], *args: Any, **kwargs: Any) -> list[T]:
        rows = list(objs)
        for row in rows:
            row.check_scope()
        return super().bulk_create(rows, *args, **kwargs)

    def bulk_update(self, objs: Iterable[T], fields: Iterable[str], batch_size: int | None = None) -> int:
        rows = list(objs)
        for row in rows:
            row.check_scope()
        return super().bulk_update(rows, fields, batch_size)


class TenantManager(models.Manager[T]):
    def get_queryset(self) -> TenantQuerySet[T]:
        queryset: TenantQuerySet[T] = TenantQuerySet(self.model, using=self._db)
        if not has_scope():
            return queryset  # class-level querysets stay legal; running one raises
        scope = current_scope()
        if scope != SYSTEM:
            queryset = queryset.filter(organisation_id=scope)
        queryset.query.scoped = True  # type: ignore[attr-defined]
        return queryset


class TenantModel(models.Model):
    """A row of one organisation. Saving or deleting it from another organisation's scope raises ScopeError."""

    organisation = models.ForeignKey("tenants.Organisation", on_delete=models.CASCADE, related_name="+")

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
        return super().delete(*args, **kwargs)
