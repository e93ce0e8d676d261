"""Services that tools need: what of them is set up, and the audited write that sets one up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    ExpressionWrapper,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast
from django.http import Http404

from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.secrets import SecretUnreadable, decrypted, masked
from capabilities.contract.loading import CREATE_TOOL
from capabilities.models import (
    ConnectionTest,
    CredentialScope,
    SecretStatus,
    ServiceSetting,
    StoredCredential,
    StoredSecret,
    Tool,
    ToolKind,
)
from capabilities.running.assistant import registry_of
from capabilities.running.registry import Registry, ServiceField, ServiceSpec, registry
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right

#: Characters of one value.
MAX_VALUE = 4_000


def is_ready(source: Registry = registry) -> ExpressionWrapper[Q]:
    """Return a condition for a query of tools: the tool needs no service, or one that is set up or works without; and
    no server, or one that is there and switched on; and no credential of the organisation, or one whose secret can be
    used. The one that makes tools needs an organisation that lets agents make some."""
    unset = [spec.name for spec in source.services.values() if spec.works_unset]
    complete = Exists(
        ServiceSetting.objects.filter(
            organisation=OuterRef("organisation"), service=OuterRef("service"), is_complete=True
        )
    )
    ready = Q(service="") | Q(service__in=unset) | Q(complete)
    # With both conditions it is false, and not unknown, where there is no server.
    makes = Organisation.objects.filter(pk=OuterRef("organisation"), agents_make_tools=True)
    ready &= ~Q(name=CREATE_TOOL) | Q(Exists(makes))
    ready &= Q(server__isnull=False, server__is_enabled=True) | (Q(server=None) & ~Q(kind=ToolKind.MCP))
    usable = StoredSecret.objects.filter(credential=OuterRef("pk"), membership=None).exclude(
        status=SecretStatus.REFUSED
    )
    ready &= ~Q(_IS_SIGNED, Exists(_signing_credential(CredentialScope.ORGANISATION).filter(~Exists(usable))))
    return ExpressionWrapper(ready, output_field=BooleanField())


def acts_as_member() -> ExpressionWrapper[Q]:
    """Return a condition for a query of tools: the tool acts with an account that each member connects."""
    return ExpressionWrapper(
        Q(_IS_SIGNED, Exists(_signing_credential(CredentialScope.MEMBER))), output_field=BooleanField()
    )


def tool_scope() -> Case:
    """Return an expression for a query of tools: the owner of the credential with which the tool acts, `organisation`
    or `member`; empty for none."""
    return Case(
        When(acts_as_organisation(), then=Value(str(CredentialScope.ORGANISATION))),
        When(acts_as_member(), then=Value(str(CredentialScope.MEMBER))),
        default=Value(""),
    )


_IS_SIGNED = Q(credential__isnull=False) | Q(server__isnull=False)


def _signing_credential(scope: CredentialScope) -> QuerySet[StoredCredential]:
    """Return a query for the credential of the tool, or of its server, where it has this scope."""
    own = Q(pk=OuterRef("credential")) | Q(pk=OuterRef("server__credential"))
    return StoredCredential.objects.filter(own, scope=scope)


def service_values(spec: ServiceSpec) -> dict[str, str]:
    """Return the values that the organisation in scope set up, with defaults for the rest. One query."""
    row = ServiceSetting.objects.filter(service=spec.name).first()
    return spec.filled(stored_values(row))


def secrets_of(spec: ServiceSpec, values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(values[field.name] for field in spec.fields if field.is_secret and values.get(field.name))


def service_title(name: str) -> str:
    spec = registry.services.get(name)
    return spec.title if spec else name


def set_up_title(service: str) -> str:
    """Return the title, for people, of what a tool that is not ready needs."""
    return service_title(service) if service else "its credential or server"


def acts_as_organisation(source: Registry = registry) -> ExpressionWrapper[Q]:
    """Return a condition for a query of tools: the tool acts with a credential that the whole organisation shares.

    It does where its service cannot work without a secret, and where one that may be left out is set; and where it, or
    its server, is signed with a credential of the organisation.
    """
    needing, allowing = [], []
    for spec in source.services.values():
        secrets = [field for field in spec.fields if field.is_secret]
        if any(field.is_required and not field.default for field in secrets):
            needing.append(spec.name)
        elif secrets:
            allowing.append(spec.name)
    has_secret = Exists(
        ServiceSetting.objects.filter(
            organisation=OuterRef("organisation"), service=OuterRef("service"), holds_secret=True
        )
    )
    # Never unknown, as a comparison with the scope of no credential would be.
    signed = Q(_IS_SIGNED, Exists(_signing_credential(CredentialScope.ORGANISATION)))
    by_service = Q(service__in=needing) | (Q(service__in=allowing) & Q(has_secret))
    return ExpressionWrapper(by_service | signed, output_field=BooleanField())


@dataclass(frozen=True)
class ShownField:
    """One field of a service as pages and the API show it: of a secret, the mask."""

    field: ServiceField
    value: str


@dataclass(frozen=True)
class ShownService:
    """A service and what is set up of it; `tools` counts those that need it."""

    spec: ServiceSpec
    fields: tuple[ShownField, ...]
    #: ready, needs_set_up, off_here (the operator has not switched it on) or unknown (no such service any more)
    state: str
    tools: int
    #: True where anything is stored, and when it last was.
    is_set: bool = False
    updated_at: datetime | None = None
    #: True where no key of ours can read what is stored: it has to be entered again.
    is_unreadable: bool = False
    #: Result of the last test; None before one, and after a change.
    test: ConnectionTest | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def description(self) -> str:
        return self.spec.description


def shown_services(organisation: Organisation, *, only: str | None = None) -> list[ShownService]:
    """Return every service that tools of the organisation need, by title, and those set up that no tool needs any more.
    Three queries."""
    known = registry_of(organisation).services
    elsewhere = registry.services.keys() - known.keys()
    rows = ServiceSetting.objects.defer("values_json").annotate(stored=Cast("values_json", TextField()))
    tools = Tool.objects.exclude(service="").values_list("service")
    if only is not None:
        rows, tools = rows.filter(service=only), tools.filter(service=only)
    counts = dict(tools.annotate(count=Count("pk")))
    settings = {row.service: row for row in rows}
    tests = {test.service: test for test in ConnectionTest.objects.exclude(service="")}
    specs = {name: spec for name, spec in known.items() if only in (None, name)}
    for name in (settings.keys() | counts.keys()) - elsewhere:
        specs.setdefault(name, ServiceSpec(name, name, "No tool of this version talks to it.", (), is_available=False))
    found = [
        replace(_shown_service(spec, settings.get(name), counts.get(name, 0), known), test=tests.get(name))
        for name, spec in specs.items()
    ]
    return sorted(found, key=lambda each: (each.title.casefold(), each.name))


def shown_service(organisation: Organisation, name: str) -> ShownService | None:
    """Return the service of this name, or None. Three queries."""
    return next(iter(shown_services(organisation, only=name)), None)


def shown_service_or_404(organisation: Organisation, name: str) -> ShownService:
    """Return the service of this name. Raises Http404. Three queries."""
    shown = shown_service(organisation, name)
    if shown is None:
        raise Http404("No such service.")
    return shown


def _shown_service(spec: ServiceSpec, row: Any, tools: int, known: Mapping[str, ServiceSpec]) -> ShownService:
    """Return a service as its page shows it, secrets masked."""
    values, is_unreadable = {}, False
    if row is not None and row.stored:
        try:
            values = json.loads(decrypted(row.stored))
        except SecretUnreadable:
            is_unreadable = True
    fields = tuple(
        ShownField(field, masked(values.get(field.name, "")) if field.is_secret else values.get(field.name, ""))
        for field in spec.fields
    )
    if spec.name not in known:
        state = "unknown"
    elif not spec.is_available:
        state = "off_here"
    else:
        state = "ready" if spec.works_unset or (row is not None and row.is_complete) else "needs_set_up"
    return ShownService(spec, fields, state, tools, row is not None, row.updated_at if row else None, is_unreadable)


def stored_values(row: ServiceSetting | None) -> dict[str, str]:
    if row is None or not row.values_json:
        return {}
    values: dict[str, str] = json.loads(row.values_json)
    return values


@configuration_write()
def save_service(spec: ServiceSpec, values: Mapping[str, str], *, actor: Membership) -> ServiceSetting:
    """Set a service up. An empty secret keeps the stored one; any other empty value clears its field.

    Raises ChangeRefused for what is no field of it, and for a stored secret that would go to another host than it was
    entered for. The audit row names the fields that changed, and of secrets nothing else.
    """
    require(actor, Right.CATALOGUE)
    _check_values(spec, values)
    row, before = _stored(spec)
    row = row or ServiceSetting(organisation_id=actor.organisation_id, service=spec.name)
    after = {
        field.name: value
        for field in spec.fields
        if (value := values.get(field.name, "").strip() or (before.get(field.name, "") if field.is_secret else ""))
    }
    if after == before and row.pk is not None:
        return row
    _check_secrets_stay(spec, before, after, typed=values)
    row.values_json = json.dumps(after)
    row.is_complete = spec.is_available and not spec.missing(after)
    row.holds_secret = any(field.is_secret and after.get(field.name) for field in spec.fields)
    row.save()
    ConnectionTest.objects.filter(service=spec.name).delete()
    record("service.save", row, actor=actor, before=_shown(spec, before), after=_shown(spec, after))
    touch_registry(actor.organisation_id)
    return row


@configuration_write()
def clear_service(spec: ServiceSpec, *, actor: Membership) -> None:
    """Forget what was set up, the credentials too. Raises PermissionDenied without the right `catalogue`."""
    require(actor, Right.CATALOGUE)
    row, before = _stored(spec)
    if row is None:
        return
    record("service.clear", row, actor=actor, before=_shown(spec, before))
    row.delete()
    ConnectionTest.objects.filter(service=spec.name).delete()
    touch_registry(actor.organisation_id)


def _stored(spec: ServiceSpec) -> tuple[ServiceSetting | None, dict[str, str]]:
    """The row with its values; without them where no key of ours reads them any more: they are entered again."""
    rows = ServiceSetting.objects.filter(service=spec.name)
    try:
        row = rows.first()
    except SecretUnreadable:
        return rows.defer("values_json").first(), {}
    return row, stored_values(row)


def _check_values(spec: ServiceSpec, values: Mapping[str, str]) -> None:
    if not spec.is_available:
        raise ChangeRefused("service", f"{spec.title} is not switched on in this installation. Its operator does that.")
    known = {field.name: field for field in spec.fields}
    for name, value in values.items():
        if name not in known:
            raise ChangeRefused(f"values.{name[:64]}", "This service has no such field.", code="unknown_field")
        if len(value) > MAX_VALUE:
            raise ChangeRefused(f"values.{name}", f"Keep it under {MAX_VALUE:,} characters.")


def _check_secrets_stay(
    spec: ServiceSpec, before: Mapping[str, str], after: Mapping[str, str], *, typed: Mapping[str, str]
) -> None:
    """Raise ChangeRefused where a secret that was typed for one place would go to another."""
    old, new = spec.filled(before), spec.filled(after)
    moved = [
        field.label for field in binding_fields(spec) if _destination(old[field.name]) != _destination(new[field.name])
    ]
    for field in spec.fields:
        if moved and field.is_secret and before.get(field.name) and not typed.get(field.name, "").strip():
            raise ChangeRefused(
                f"values.{field.name}",
                f"{' and '.join(moved)} changed: type the {field.label} again, it was for the one before.",
            )


def binding_fields(spec: ServiceSpec) -> list[ServiceField]:
    """The fields that a stored secret is bound to: with another value of one it has to be typed again."""
    return [field for field in spec.fields if field.binds_secrets and not field.is_secret]


def _destination(value: str) -> tuple[str, str]:
    """Return where a value leads: scheme and host of an address, else the whole value (such as a mail server)."""
    try:
        parts = urlsplit(value.strip().lower())
    except ValueError:
        return "", value
    return (parts.scheme, parts.netloc) if parts.netloc else ("", value.strip().lower())


def _shown(spec: ServiceSpec, values: Mapping[str, str]) -> dict[str, str]:
    return {
        field.name: "set" if field.is_secret else values[field.name] for field in spec.fields if values.get(field.name)
    }
