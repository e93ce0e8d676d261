"""Owners of rows, and the refusals of their writes. Knows no single kind of row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from capabilities.contract.context import ToolError
from capabilities.models.numbered import NamedRow, Owner
from capabilities.running.records.names import name_and_key
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import TenantModel

Row = TypeVar("Row", bound=TenantModel)
Named = TypeVar("Named", bound=NamedRow)


@dataclass(frozen=True)
class RowOwner:
    """An Owner outside of a running tool."""

    organisation_id: int
    membership_id: int
    now: Callable[[], datetime] = timezone.now


class RecordRefused(ToolError):
    """The row cannot be written so. A tool tells the sentence to the model; pages and REST show it beside `field`.

    Without a field it is about what is on record already, such as a list that is full.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def owner_of(member: Membership) -> RowOwner:
    return RowOwner(member.organisation_id, member.pk)


def own_rows(model: type[Row], owner: Owner) -> QuerySet[Row]:
    """The rows of this model that the member may see and change: the member's own. Tools, pages and REST ask here."""
    return model.objects.filter(membership_id=owner.membership_id)


def remove_row(owner: Owner, row: TenantModel) -> None:
    """Delete one row, with what hangs on it. A second time changes nothing."""
    own_rows(type(row), owner).filter(pk=row.pk).delete()


@dataclass(frozen=True)
class Naming:
    """Words for rows with a name: `noun` as "A list", and `full`, the sentence where there are too many."""

    noun: str
    limit: int
    full: str


def named_row(owner: Owner, model: type[Named], name: str, naming: Naming) -> Named:
    """The member's row of that name; it is made where there is none. Raises RecordRefused where there are too many."""
    named = name_and_key(name, naming.noun)
    found = own_rows(model, owner).filter(key=named["key"]).first()
    if found is not None:
        return found
    _check_room(owner, model, naming)
    key = {"organisation_id": owner.organisation_id, "membership_id": owner.membership_id, "key": named["key"]}
    return model.objects.get_or_create(**key, defaults={"name": named["name"]})[0]


def create_named(owner: Owner, model: type[Named], name: str, naming: Naming, **fields: Any) -> Named:
    """A new row under a name that the member has not used. Raises RecordRefused where it is in use, or as above."""
    named = name_and_key(name, naming.noun)
    if own_rows(model, owner).filter(key=named["key"]).exists():
        raise _name_taken(named["name"])
    _check_room(owner, model, naming)
    try:
        with transaction.atomic():
            return model.objects.create(
                organisation_id=owner.organisation_id, membership_id=owner.membership_id, **named, **fields
            )
    except IntegrityError:
        raise _name_taken(named["name"]) from None


def change_named(owner: Owner, row: NamedRow, naming: Naming, *, name: str | None = None, **fields: Any) -> None:
    """Change a row's name and fields; what is not given stays. Raises RecordRefused where the name is in use."""
    named = name_and_key(name, naming.noun) if name is not None else {}
    if not named and not fields:
        return
    try:
        with transaction.atomic():
            own_rows(type(row), owner).filter(pk=row.pk).update(**named, **fields)
    except IntegrityError:
        raise _name_taken(named["name"]) from None


def _check_room(owner: Owner, model: type[NamedRow], naming: Naming) -> None:
    if own_rows(model, owner).count() >= naming.limit:
        raise RecordRefused(naming.full.format(limit=naming.limit))


def _name_taken(name: str) -> RecordRefused:
    return RecordRefused(f"You have one with the name {name} already.", "name")
