"""The audit row of a change, written in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from django.db import transaction

from toolhub.tenants.guarded import TenantModel
from toolhub.tenants.models import AuditEntry, Membership

#: Set by the middleware, for one request.
request_id: ContextVar[str] = ContextVar("toolhub_request_id", default="")


def record(
    action: str,
    target: TenantModel,
    *,
    actor: Membership | None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Write down who did what to which row. `actor` is None for what the service does itself (set-up).

    Raises RuntimeError outside a transaction: a change and its audit row stand or fall together.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("An audit row is written inside the transaction of its change.")
    return AuditEntry.objects.create(
        organisation_id=target.organisation_id,
        actor=actor,
        actor_label=str(actor.user.email) if actor else "toolhub",
        action=action,
        target_type=target._meta.model_name or "",
        target_id=str(target.pk),
        target_label=str(target)[:200],
        before=dict(before or {}),
        after=dict(after or {}),
        request_id=request_id.get(),
    )
