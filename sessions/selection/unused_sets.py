"""Removes stored tool sets and verdicts that no step names any more: their sessions were deleted.

Rows are shared, and a process remembers those that it used last, so a row is not taken while anybody may still use it.
A row that nothing names is marked first, and removed GRACE_SECONDS later if it is still marked and still named by
nothing. Whoever takes a row for a model call takes the mark away (`tool_sets`), and remembers the row for at most
REMEMBERED_SECONDS, far less than the grace: so a turn that begins to use one either finds it unmarked, or stores it
anew. Safe in several workers at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from capabilities.common.moments import from_now
from sessions.models import Step, ToolSet, VerdictSet
from sessions.turns.sweeping import Backoff, each_item
from toolhub.tenants.rows.scope import system_scope

#: Seconds between a row's mark and its end.
GRACE_SECONDS = 24 * 3600.0
#: Seconds between two looks of one process.
EVERY_SECONDS = 60.0
#: Rows that one look marks or removes at most.
AT_ONCE = 200
#: The columns of a step that name rows of each table. Each has an index.
NAMED_BY: dict[Any, tuple[str, ...]] = {ToolSet: ("tool_set", "declared_set"), VerdictSet: ("verdict_set",)}


@dataclass
class Look:
    """Position of this process in one table."""

    table: Any
    after: int = 0
    backoff: Backoff = field(default_factory=lambda: Backoff("removal of unused set"))


LOOKS = [Look(table) for table in NAMED_BY]
_last_look = 0.0


def remove_unused_sets() -> None:
    """Mark and remove some of them, once a minute. Safe in any worker."""
    global _last_look
    if time.monotonic() - _last_look < EVERY_SECONDS:
        return
    _last_look = time.monotonic()
    for look in LOOKS:
        _mark(look)
        _remove(look)


def is_named(table: Any) -> Q:
    """Rows of the table that a step names."""
    named = Q()
    for column in NAMED_BY[table]:
        named |= Q(Exists(Step.objects.filter(**{column: OuterRef("pk")})))
    return named


def is_unnamed(table: Any) -> Q:
    """Build the condition that no step names the row: one for each column, so that each is looked up in its own
    index."""
    unnamed = Q()
    for column in NAMED_BY[table]:
        unnamed &= ~Q(Exists(Step.objects.filter(**{column: OuterRef("pk")})))
    return unnamed


def _mark(look: Look) -> None:
    """Mark those of the next rows by their keys that nothing names; young ones may belong to a call that is under
    way."""
    with system_scope():
        rows = look.table.objects.filter(pk__gt=look.after).order_by("pk")
        keys = list(rows.values_list("pk", flat=True)[:AT_ONCE])
        look.after = keys[-1] if len(keys) == AT_ONCE else 0
        old = look.table.objects.filter(pk__in=keys, unused_since=None, created_at__lt=from_now(-GRACE_SECONDS))
        old.filter(is_unnamed(look.table)).update(unused_since=Now())


def _remove(look: Look) -> None:
    with system_scope():
        ended = look.table.objects.filter(unused_since__lt=from_now(-GRACE_SECONDS))
        ended = ended.exclude(pk__in=look.backoff.paused()).order_by("unused_since", "pk")
        found = list(ended.values_list("pk", "organisation_id")[:AT_ONCE])
    each_item(look.backoff, found, partial(remove_unused, look.table))


@transaction.atomic
def remove_unused(table: Any, key: int) -> None:
    """Remove one marked row if nothing names it; take the mark away where something does. Two statements.

    The condition stands in the statement that deletes: a mark that was taken away meanwhile keeps the row.
    """
    marked = table.objects.filter(pk=key, unused_since__lt=from_now(-GRACE_SECONDS))
    table.objects.filter(pk=key).filter(is_named(table)).update(unused_since=None)
    unnamed = marked.filter(~is_named(table))
    unnamed._raw_delete(unnamed.db)
