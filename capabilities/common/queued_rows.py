"""Rows that a worker is called for: small works beside turns, queued in a row with `status`, `rang_at` and `ended_at`.

The row is the truth, and the call may be lost: a sweep calls again for those that nobody was called for lately.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from capabilities.common.moments import from_now
from toolhub.tenants.rows.scope import system_scope


def claim_unrung(model: Any, queued: str, after: float, *, order: str = "created_at", at_once: int) -> list[UUID]:
    """Public ids of the rows with the status `queued` that no worker was called for in these last seconds, the first
    by `order`, at most so many. They count as called for from now on; of two sweeps at once, one gets each.

    One query, and one for each row.
    """
    quiet = Q(rang_at=None) | Q(rang_at__lt=from_now(-after))
    with system_scope():
        free = model.objects.filter(quiet, status=queued, ended_at=None).order_by(order, "pk")
        found = list(free.values_list("public_id", flat=True)[:at_once])
        if not found:
            return []
        with transaction.atomic():
            return [each for each in found if model.objects.filter(quiet, public_id=each).update(rang_at=Now())]
