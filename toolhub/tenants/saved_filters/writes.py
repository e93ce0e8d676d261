"""Addresses of lists that a member keeps under a name. They are the member's own: nothing of the organisation changes,
and the audit has no entry of them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from django.db import transaction
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from toolhub.tenants.list_address import PLACES
from toolhub.tenants.models import Membership, SavedFilter

MAX_FILTERS = 20
MAX_NAME, MAX_QUERY = 60, 1_000
#: Values of one address.
MAX_VALUES = 100


class FilterRefused(ValueError):
    """Refusal of a filter that cannot be saved, in a sentence for its member."""


@transaction.atomic
def save_filter(member: Membership, page: str, name: str, query: str) -> SavedFilter:
    """Keep the query of a list's address under a name; one of this name on this page is replaced.

    `page` is the name of the list's route. Raises FilterRefused for a name or a query that is empty or too long, for a
    page that is not there, and for more than MAX_FILTERS on one page.
    """
    name, query = " ".join(name.split()), normal_query(query)
    if not 0 < len(name) <= MAX_NAME:
        raise FilterRefused(f"Give the filter a name of at most {MAX_NAME} characters.")
    if not 0 < len(query) <= MAX_QUERY:
        raise FilterRefused(
            "There is no filter to save: choose one first." if not query else "This filter is too long."
        )
    try:
        reverse(page, args=[member.organisation.slug])
    except NoReverseMatch:
        raise FilterRefused("There is no such list.") from None
    own = SavedFilter.objects.filter(membership=member, page=page)
    if own.exclude(name=name).count() >= MAX_FILTERS:
        raise FilterRefused(f"You have {MAX_FILTERS} saved filters for this list. Remove one first.")
    saved, _ = SavedFilter.objects.update_or_create(
        organisation_id=member.organisation_id, membership=member, page=page, name=name, defaults={"query": query}
    )
    return saved


def normal_query(query: str) -> str:
    """Return the query without empty values and without the place of a page in its list; "" for one of too many."""
    if len(query) > 10 * MAX_QUERY or query.count("&") >= MAX_VALUES:
        return ""
    return urlencode([(name, value) for name, value in parse_qsl(query.replace("\x00", "")) if name not in PLACES])
