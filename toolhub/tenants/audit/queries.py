"""Audit as pages and REST read it: entries by filter, and one entry's changes side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from toolhub.tenants.audit.sentences import Sentence, sentence_of
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.keyset import PAGE, Keyset, Page
from toolhub.tenants.targets import addresses_of

#: Newest entries that the choices of a filter are taken from, and choices of one field.
LOOKED_AT, MOST_CHOICES = 2_000, 200
#: Entries of one file, and of each query for it.
MOST_LINES, PART = 100_000, 500


def newest_number(organisation_id: int) -> int:
    """Return the number of the organisation's newest entry, 0 where there is none. One query."""
    return Organisation.objects.values_list("audit_count", flat=True).get(pk=organisation_id)


@dataclass(frozen=True)
class AuditFilter:
    """Part of the actor's address, the beginning of an action, a kind or part of the name of a target, days (both
    inclusive; of the page's time zone, UTC for REST), text anywhere in an entry, and the id of a target."""

    actor: str = ""
    action: str = ""
    target: str = ""
    since: date | None = None
    until: date | None = None
    q: str = ""
    target_id: UUID | None = None


def audit_entries(wanted: AuditFilter) -> QuerySet[AuditEntry]:
    """Return the entries that the filter lets through, with their actors and these actors' users. No query yet."""
    entries = AuditEntry.objects.select_related("actor__user")
    if wanted.target_id:
        entries = entries.filter(target_id=str(wanted.target_id))
    if wanted.actor:
        entries = entries.filter(actor_label__icontains=wanted.actor)
    if wanted.action:
        entries = entries.filter(action__startswith=wanted.action)
    if wanted.target:
        entries = entries.filter(Q(target_type=wanted.target) | Q(target_label__icontains=wanted.target))
    if wanted.since:
        entries = entries.filter(created_at__gte=_midnight(wanted.since))
    if wanted.until:
        entries = entries.filter(created_at__lt=_midnight(wanted.until) + timedelta(days=1))
    if wanted.q:
        entries = entries.annotate(old=Cast("before", TextField()), new=Cast("after", TextField())).filter(
            Q(actor_label__icontains=wanted.q)
            | Q(action__icontains=wanted.q)
            | Q(target_label__icontains=wanted.q)
            | Q(request_id=wanted.q)
            | Q(old__icontains=wanted.q)
            | Q(new__icontains=wanted.q)
        )
    return entries


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, timezone.get_current_timezone())


@dataclass(frozen=True)
class Change:
    """One field of an entry; None where it was not, or is no more."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ShownEntry:
    entry: AuditEntry
    sentence: Sentence
    changes: Sequence[Change]
    #: The page of what it names, where that is still there and the reader may see it.
    address: str = ""

    @property
    def has_history(self) -> bool:
        """True where other entries can name the same thing: one from before there were random ids has none."""
        return bool(self.entry.target_id) and not self.entry.target_id.isdecimal()


def trail_page(
    wanted: AuditFilter, reader: Membership, *, after: str = "", before: str = "", limit: int = PAGE
) -> Page[ShownEntry]:
    """The newest first. One query, and one for each kind of target among them."""
    page = Keyset(audit_entries(wanted), ("-number",)).page(after, before, limit=limit)
    found_at = addresses_of(page.rows, reader)
    return page.of(
        lambda row: ShownEntry(
            row,
            sentence_of(row),
            changes(row.before, row.after),
            found_at.get((row.target_type, row.target_id), ""),
        )
    )


@dataclass(frozen=True)
class Occurring:
    """Actors, actions and kinds of targets of the newest entries, sorted."""

    actors: Sequence[str]
    actions: Sequence[str]
    kinds: Sequence[str]


def occurring() -> Occurring:
    """Return what the newest entries hold, for the choices of a filter. One query."""
    rows = AuditEntry.objects.order_by("-number").values_list("actor_label", "action", "target_type")
    columns = zip(*rows[:LOOKED_AT], strict=True)
    actors, actions, kinds = [*columns] or [(), (), ()]
    return Occurring(*(sorted(set(each))[:MOST_CHOICES] for each in (actors, actions, kinds)))


def changes(before: dict[str, Any], after: dict[str, Any], *, with_empty: bool = False) -> list[Change]:
    """The fields that differ, in order of their names; of new ones those that are not empty, or `with_empty` all."""
    names = sorted({*before, *after})
    return [
        Change(name, _shown(before, name), _shown(after, name))
        for name in names
        if before.get(name) != after.get(name) or (name in before) != (name in after)
        if with_empty or name in before or after[name] not in ("", None, [], {})
    ]


def _shown(values: dict[str, Any], name: str) -> str | None:
    if name not in values:
        return None
    value = values[name]
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
