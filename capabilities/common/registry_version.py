"""The version of what an organisation's members may call: raised by each change of it."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.db.models import F

from toolhub.tenants.models import Organisation
from toolhub.tenants.provided import Provided


@Provided
def announce_registry(organisation_id: int) -> None:
    """Tell web servers that the version was raised, once that is committed. Raises nothing."""


def touch_registry(organisation_id: int) -> None:
    """Raise the organisation's registry version: what its members may call has changed."""
    Organisation.objects.filter(pk=organisation_id).update(registry_version=F("registry_version") + 1)
    transaction.on_commit(partial(announce_registry, organisation_id))


def registry_version(organisation_id: int) -> int:
    """The version that is in force now. One query."""
    return Organisation.objects.values_list("registry_version", flat=True).get(pk=organisation_id)
