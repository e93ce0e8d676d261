"""The version of what an organisation's members may call: raised by each change of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.db import transaction
from django.db.models import F

from toolhub.tenants.models import Organisation

#: Called with the organisation's key once a change is committed. It raises nothing.
AFTER_CHANGE: list[Callable[[int], None]] = []


def touch_registry(organisation_id: int) -> None:
    """Raise the organisation's registry version: what its members may call has changed."""
    Organisation.objects.filter(pk=organisation_id).update(registry_version=F("registry_version") + 1)
    for tell in AFTER_CHANGE:
        transaction.on_commit(partial(tell, organisation_id))


def registry_version(organisation_id: int) -> int:
    """The version that is in force now. One query."""
    return Organisation.objects.values_list("registry_version", flat=True).get(pk=organisation_id)
