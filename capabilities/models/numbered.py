"""The base of rows that a member calls by number, or by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Protocol

from django.db import models

from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class Owner(Protocol):
    """Owner of a row, and the clock: a running tool has both in its context, and a page makes them of its member."""

    @property
    def organisation_id(self) -> int: ...

    @property
    def membership_id(self) -> int: ...

    @property
    def now(self) -> Callable[[], datetime]:
        """Clock: a function that returns the time, aware, in the zone that days are counted in."""


class MemberRow(TenantModel):
    """A row of one member; it goes when the membership goes."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")

    class Meta(TenantModel.Meta):
        abstract = True


class NumberedRow(MemberRow, PublicModel):
    """Counts from 1 for each member: what people and models call it by."""

    number = models.PositiveIntegerField()

    class Meta(MemberRow.Meta):
        abstract = True
        constraints: ClassVar[Any] = (
            models.UniqueConstraint(fields=["membership", "number"], name="%(class)s_number_once"),
        )


class NamedRow(MemberRow, PublicModel):
    """A row with a name of the member's choosing. `key` is the name as it is compared: without case and width."""

    name = models.CharField(max_length=200)
    key = models.CharField(max_length=400, editable=False)

    class Meta(MemberRow.Meta):
        abstract = True
        constraints = (models.UniqueConstraint(fields=["membership", "key"], name="%(class)s_name_once"),)

    def __str__(self) -> str:
        return self.name
