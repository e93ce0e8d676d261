"""The saved filters of a member, as a list shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.http import Http404, HttpRequest

from toolhub.tenants.models import Membership, SavedFilter
from toolhub.tenants.saved_filters.writes import normal_query


@dataclass(frozen=True)
class SavedFilters:
    """A member's saved filters of one list, by name, and the filter of the address that is open."""

    page: str
    query: str
    saved: Sequence[SavedFilter]

    @property
    def may_save(self) -> bool:
        """True where the open address has a filter that is not saved yet."""
        return bool(self.query) and self.query not in [each.query for each in self.saved]


def saved_filters(member: Membership, request: HttpRequest) -> SavedFilters | None:
    """Return those of the page that is open, None where it is no list. One query."""
    match = request.resolver_match
    if match is None or match.url_name is None or match.kwargs.keys() != {"org"}:
        return None
    saved = SavedFilter.objects.filter(membership=member, page=match.url_name).order_by("name", "pk")
    return SavedFilters(match.url_name, normal_query(request.META.get("QUERY_STRING", "")), list(saved))


def own_filter_or_404(member: Membership, filter_id: UUID) -> SavedFilter:
    """Return the member's own filter. Raises Http404 for another's and for none."""
    found = SavedFilter.objects.filter(membership=member, public_id=filter_id).first()
    if found is None:
        raise Http404("No such filter.")
    return found
