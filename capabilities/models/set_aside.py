"""Rows of an app that the organisation does not have now: they are kept, and only `every` finds them."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from django.db import models
from django.db.models.lookups import Exact
from django.db.models.signals import class_prepared
from django.db.models.sql.where import WhereNode
from django.dispatch import receiver

from toolhub.tenants.rows.guarded import TenantManager, TenantModel, TenantQuerySet

T = TypeVar("T", bound=TenantModel)


class PresentManager(TenantManager[T]):
    """Rows that are not set aside."""

    def get_queryset(self) -> TenantQuerySet[T]:
        return super().get_queryset().filter(is_set_aside=False)


class SetAside(TenantModel):
    """A row that may be set aside, as something of an app or with the row of the app that it speaks of. Neither
    `objects` finds it then, nor a join from a row that a foreign key of it leads to. A foreign key to it does: past
    turns go on naming what was used."""

    is_set_aside = models.BooleanField(default=False, editable=False)

    objects = PresentManager()  # type: ignore[misc]
    every = TenantManager()

    class Meta(TenantModel.Meta):
        abstract = True
        base_manager_name = "every"


def set_links_aside() -> None:
    """Set aside the rows that would be deleted with a row that is set aside. A query for each such foreign key."""
    for model in set_aside_models():
        for name in keys_to_owners(model):
            model.objects.filter(**{f"{name}__is_set_aside": True}).update(is_set_aside=True)


def keys_to_owners(model: type[SetAside]) -> list[str]:
    """Names of the foreign keys with which a row is deleted when the row that may be set aside is."""
    keys = [field for field in model._meta.concrete_fields if isinstance(field, models.ForeignKey)]
    owning = [key for key in keys if key.remote_field.on_delete is models.CASCADE]
    return [key.name for key in owning if issubclass(key.related_model, SetAside)]


def set_aside_models() -> list[type[SetAside]]:
    """Every table of rows that may be set aside."""
    return SetAside.__subclasses__()


@receiver(class_prepared)
def _restrict_joins(sender: type[models.Model], **kwargs: Any) -> None:
    """Leave rows that are set aside out of every join that comes to their table: the condition stands in its ON."""
    if not issubclass(sender, SetAside):
        return
    for field in sender._meta.local_fields:
        if isinstance(field, models.ForeignKey):
            field.remote_field.get_extra_restriction = partial(_of_join, sender)  # type: ignore[method-assign]
            field.get_extra_restriction = partial(_of_trimmed_join, sender)  # type: ignore[method-assign]


def _of_join(model: type[SetAside], alias: str, related_alias: str | None) -> WhereNode:
    """The condition on rows of the model, joined under this alias, as `ForeignObjectRel` asks for it."""
    column = model._meta.get_field("is_set_aside").get_col(alias)
    return WhereNode([Exact(column, False)])  # type: ignore[list-item]


def _of_trimmed_join(model: type[SetAside], alias: str | None, related_alias: str) -> WhereNode | None:
    """The condition where a subquery begins with the joined rows, which Django asks the foreign key for without an
    alias; None for a join along the foreign key."""
    return _of_join(model, related_alias, None) if alias is None else None
