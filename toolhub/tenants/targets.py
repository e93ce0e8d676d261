"""Pages of the rows that the audit names: each app provides the kinds that it keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse

from toolhub.tenants.models import AuditEntry, Membership, Right
from toolhub.tenants.provided import ProvidedByKey

Row = TypeVar("Row")
#: The addresses of those rows with these ids that are still there, and whose pages the member may see; by id.
FindAddresses = Callable[[Membership, Collection[UUID]], Mapping[UUID, str]]

#: By the kind of target, named as `AuditEntry.target_type` names it. Each takes one query at most.
target_pages: ProvidedByKey[FindAddresses] = ProvidedByKey("pages of audited rows")


def rows_with_page(
    rows: Callable[[Membership], QuerySet[Any]],
    view: str,
    *columns: str,
    key: str = "public_id",
    right: Right | None = None,
) -> FindAddresses:
    """Return a finder for rows that have a page of their own: `view` takes the organisation and then these columns.

    With a right, whoever holds it, for a category at least, sees the page.
    """

    def find(reader: Membership, ids: Collection[UUID]) -> dict[UUID, str]:
        if right is not None and not reader.reach(right):
            return {}
        found = rows(reader).filter(**{f"{key}__in": ids}).values_list(key, *columns)
        return {row: reverse(view, args=[reader.organisation.slug, *rest]) for row, *rest in found}

    return find


def addresses_of(entries: Iterable[AuditEntry], reader: Membership) -> dict[tuple[str, str], str]:
    """Return the pages of those targets that the reader may see, by kind and id as entries name them. One query a
    kind."""
    pages = {**_OWN_PAGES, **target_pages}
    wanted: dict[str, set[UUID]] = defaultdict(set)
    for entry in entries:
        if entry.target_type in pages and (target_id := _uuid(entry.target_id)):
            wanted[entry.target_type].add(target_id)
    return {
        (kind, str(target_id)): address
        for kind, ids in wanted.items()
        for target_id, address in pages[kind](reader, ids).items()
    }


def _uuid(text: str) -> UUID | None:
    """None for an entry from before rows had random ids, and for one that names several rows."""
    try:
        return UUID(text)
    except ValueError:
        return None


_OWN_PAGES: Mapping[str, FindAddresses] = {
    "membership": rows_with_page(
        lambda reader: Membership.objects.all(), "member_detail", "public_id", right=Right.MEMBERS
    )
}
