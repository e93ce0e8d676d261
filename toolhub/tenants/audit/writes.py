"""The audit entry of a change, written in the transaction of the change; the chain of entries, and its check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from toolhub.tenants.audit.chain import FIELDS, entry_hash
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope

#: Set by the middleware, for one request.
request_id: ContextVar[str] = ContextVar("toolhub_request_id", default="")


def in_request() -> bool:
    """Return whether a request to the web server is being answered, and not the work of a worker or a command."""
    return bool(request_id.get())


def record(
    action: str,
    target: TenantModel,
    *,
    actor: Membership | None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Write down who did what to which row. `actor` is None for what the service does itself (set-up).

    Raises RuntimeError outside a transaction: a change and its audit row stand or fall together. Until that transaction
    ends, no other can write an entry of this organisation: a gap or a fork cannot be. Three queries.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("An audit row is written inside the transaction of its change.")
    for row in (target, actor):
        if row is not None:
            row.check_scope()
    organisation = Organisation.objects.filter(pk=target.organisation_id)
    while True:
        count, head = organisation.values_list("audit_count", "audit_head").get()
        fields: dict[str, Any] = {
            "organisation_id": target.organisation_id,
            "number": count + 1,
            "actor_id": actor.pk if actor else None,
            "actor_label": str(actor.user.email) if actor else "toolhub",
            "action": action,
            "target_type": target._meta.model_name or "",
            "target_id": _public_id(target),
            "target_label": str(target)[:200],
            "before": _as_stored(before),
            "after": _as_stored(after),
            "request_id": request_id.get(),
            "created_at": timezone.now(),
            "previous_hash": head,
        }
        digest = entry_hash(fields)
        if organisation.filter(audit_count=count).update(audit_count=count + 1, audit_head=digest):
            return AuditEntry.objects.create(**fields, hash=digest)
        # Another transaction wrote meanwhile (PostgreSQL): hold the row, then nobody else can.
        organisation.update(audit_count=F("audit_count"))


def _public_id(target: TenantModel) -> str:
    """The id that people outside know the row by; "" for a row that stands for several.

    Raises TypeError for a row that has only a key: it would tell how many rows all organisations have.
    """
    if target._state.adding:
        return ""
    key = getattr(target, "public_id", target.pk)
    if not isinstance(key, UUID):
        raise TypeError(f"{type(target).__name__} has no public id: make it a PublicModel.")
    return str(key)


def _as_stored(values: Mapping[str, Any] | None) -> Any:
    """Return the values as JSON gives them back: lists for tuples, texts for names."""
    return json.loads(json.dumps(dict(values or {}), allow_nan=False))


# -- The check --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrokenEntry:
    """The first place where the chain does not hold."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"Entry {self.number}: {self.reason}"


@dataclass(frozen=True)
class ChainEnd:
    """End of an intact chain: the number of its entries, and the hash of the last."""

    count: int
    head: str


def check_chain(organisation: Organisation) -> BrokenEntry | None:
    """The first broken entry of the organisation's audit, or None. Reads every entry once, while others go on writing.

    Found are entries that were changed, taken out, put in, swapped or cut off at the end. Not found is a whole chain
    that was written anew, with the organisation's row: keep `audit_head` somewhere else against that.
    """
    with organisation_scope(organisation):
        last = AuditEntry.objects.aggregate(last=Max("number"))["last"] or 0
        end = ChainEnd(*Organisation.objects.values_list("audit_count", "audit_head").get(pk=organisation.pk))
        expected, previous_hash = 1, ""
        entries = AuditEntry.objects.filter(number__lte=end.count).order_by("number").values("hash", *FIELDS)
        for entry in entries.iterator(chunk_size=1000):
            if entry["number"] != expected:
                return BrokenEntry(expected, "it is missing.")
            if entry["previous_hash"] != previous_hash:
                return BrokenEntry(expected, "it does not follow the entry before it.")
            if entry_hash(entry) != entry["hash"]:
                return BrokenEntry(expected, "its content is not what was recorded.")
            expected, previous_hash = expected + 1, entry["hash"]
        if expected <= end.count:
            return BrokenEntry(expected, "it is missing.")
        if previous_hash != end.head:
            return BrokenEntry(end.count, "it is not the last that was recorded.")
        if last > end.count:
            return BrokenEntry(end.count + 1, "it was not recorded by this service.")
        return None
