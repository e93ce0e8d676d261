"""Services that tools need: what of them is set up, and the audited write that sets one up."""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.db import transaction
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q

from capabilities.catalogue import touch_registry
from capabilities.models import ServiceSetting
from capabilities.registry import Registry, ServiceSpec, registry
from toolhub.tenants.audit import record
from toolhub.tenants.models import Membership


def is_ready(source: Registry = registry) -> ExpressionWrapper[Q]:
    """For a query of tools: whether the tool needs no service, or one that is set up or works without."""
    unset = [spec.name for spec in source.services.values() if spec.works_unset]
    complete = Exists(
        ServiceSetting.objects.filter(
            organisation=OuterRef("organisation"), service=OuterRef("service"), is_complete=True
        )
    )
    ready = Q(service="") | Q(service__in=unset) | Q(complete)
    return ExpressionWrapper(ready, output_field=BooleanField())


def service_values(spec: ServiceSpec) -> dict[str, str]:
    """What the organisation in scope set up, with defaults for the rest. One query."""
    row = ServiceSetting.objects.filter(service=spec.name).first()
    return spec.filled(stored_values(row))


def secrets_of(spec: ServiceSpec, values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(values[field.name] for field in spec.fields if field.is_secret and values.get(field.name))


def service_title(name: str) -> str:
    spec = registry.services.get(name)
    return spec.title if spec else name


def stored_values(row: ServiceSetting | None) -> dict[str, str]:
    if row is None or not row.values_json:
        return {}
    values: dict[str, str] = json.loads(row.values_json)
    return values


@transaction.atomic
def save_service(spec: ServiceSpec, values: Mapping[str, str], *, actor: Membership) -> ServiceSetting:
    """Set a service up. An empty secret keeps the stored one; any other empty value clears its field.

    The audit row tells which fields changed, and of secrets nothing else.
    """
    row = ServiceSetting.objects.filter(service=spec.name).first() or ServiceSetting(
        organisation_id=actor.organisation_id, service=spec.name
    )
    before = stored_values(row)
    after = {
        field.name: value
        for field in spec.fields
        if (value := values.get(field.name, "").strip() or (before.get(field.name, "") if field.is_secret else ""))
    }
    if after == before and row.pk is not None:
        return row
    row.values_json = json.dumps(after)
    row.is_complete = spec.is_available and not spec.missing(after)
    row.save()
    record("service.save", row, actor=actor, before=_shown(spec, before), after=_shown(spec, after))
    touch_registry(actor.organisation_id)
    return row


@transaction.atomic
def clear_service(spec: ServiceSpec, *, actor: Membership) -> None:
    """Forget what was set up, the credentials too."""
    row = ServiceSetting.objects.filter(service=spec.name).first()
    if row is None:
        return
    record("service.clear", row, actor=actor, before=_shown(spec, stored_values(row)))
    row.delete()
    touch_registry(actor.organisation_id)


def _shown(spec: ServiceSpec, values: Mapping[str, str]) -> dict[str, str]:
    return {
        field.name: "set" if field.is_secret else values[field.name] for field in spec.fields if values.get(field.name)
    }
