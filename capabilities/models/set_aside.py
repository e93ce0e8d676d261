"""Rows of an app that the organisation does not have now: they are kept, and only `every` finds them."""

from __future__ import annotations

from typing import TypeVar

from django.db import models
from django.db.models import Exists, OuterRef

from toolhub.tenants.rows.guarded import TenantManager, TenantModel, TenantQuerySet

T = TypeVar("T", bound=TenantModel)


class PresentManager(TenantManager[T]):
    """Rows that are not set aside."""

    def get_queryset(self) -> TenantQuerySet[T]:
        return super().get_queryset().filter(is_set_aside=False)


class SetAside(TenantModel):
    """A row that may be set aside: `objects` does not find it then, and foreign keys do."""

    is_set_aside = models.BooleanField(default=False, editable=False)

    objects = PresentManager()  # type: ignore[misc]
    every = TenantManager()

    class Meta(TenantModel.Meta):
        abstract = True
        base_manager_name = "every"


class LinkManager(TenantManager[T]):
    """Rows none of whose foreign keys leads to a row that is set aside."""

    def get_queryset(self) -> TenantQuerySet[T]:
        queryset = super().get_queryset()
        for name, target in _targets(self.model):
            aside = target.every.filter(pk=OuterRef(name), is_set_aside=True)  # type: ignore[attr-defined]
            queryset = queryset.filter(~Exists(aside))
        return queryset


class Link(TenantModel):
    """A row that says something of rows that may be set aside, and is not found while one of them is."""

    objects = LinkManager()  # type: ignore[misc]
    every = TenantManager()

    class Meta(TenantModel.Meta):
        abstract = True
        base_manager_name = "every"


def _targets(model: type[models.Model]) -> list[tuple[str, type[models.Model]]]:
    """The foreign keys of a model that lead to rows that may be set aside, with their models."""
    keys = [field for field in model._meta.concrete_fields if isinstance(field, models.ForeignKey)]
    return [(field.name, field.related_model) for field in keys if issubclass(field.related_model, SetAside)]
