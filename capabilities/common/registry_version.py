"""The version of what an organisation's members may call: raised by each change of it."""

from __future__ import annotations

from django.db.models import F

from toolhub.tenants.models import Organisation


def touch_registry(organisation_id: int) -> None:
    """Raise the organisation's registry version: what its members may call has changed."""
    Organisation.objects.filter(pk=organisation_id).update(registry_version=F("registry_version") + 1)
