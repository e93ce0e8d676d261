"""Which publications a member may see: those of the own organisation, and those of others that are meant for everyone
on this installation or whose address the member has. What was withdrawn, only its publisher sees."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import Http404

from capabilities.models import Audience, Publication
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: Publishers that a list shows.
OWN, OTHERS = "own", "others"
WHOSE = {OWN: "Published here", OTHERS: "Of other organisations"}
ORDER = ("-pk",)


def listed_publications(member: Membership, *, whose: str = "", q: str = "") -> QuerySet[Publication]:
    """Return the publications of a list, without the copies themselves. `q` is looked for in the names of toolkit and
    publisher."""
    rows = Publication.objects.defer("document").select_related(None)
    own = Q(publisher=member.organisation_id)
    open_ = Q(audience=Audience.INSTALLATION, withdrawn_at=None) & ~own
    rows = rows.filter({OWN: own, OTHERS: open_}.get(whose, own | open_))
    if q:
        rows = rows.filter(Q(toolkit_name__icontains=q) | Q(publisher_name__icontains=q))
    return rows.order_by(*ORDER)


def publications_page(
    member: Membership, *, whose: str = "", q: str = "", after: str = "", before: str = ""
) -> Page[Publication]:
    """The newest first. One query."""
    page = Keyset(listed_publications(member, whose=whose, q=q), ORDER).page(after, before)
    return page.of(lambda row: with_marks(row, member))


def publication_or_404(member: Membership, public_id: UUID) -> Publication:
    """One that the member may read: an own one, or one that is not withdrawn; its address is the key. One query. Raises
    Http404 for another."""
    rows = Publication.objects.filter(public_id=public_id)
    found = rows.filter(Q(publisher=member.organisation_id) | Q(withdrawn_at=None)).first()
    if found is None:
        raise Http404("No such publication.")
    return with_marks(found, member)


def own_publication_or_404(member: Membership, public_id: UUID) -> Publication:
    """One of the member's organisation. One query. Raises Http404 for another."""
    found = Publication.objects.filter(publisher=member.organisation_id, public_id=public_id).first()
    if found is None:
        raise Http404("No such publication.")
    return with_marks(found, member)


def with_marks(row: Publication, member: Membership) -> Publication:
    """The publication with what a template and the API say of it for this member."""
    row.is_own = row.publisher_id == member.organisation_id  # type: ignore[attr-defined]
    row.is_withdrawn = row.withdrawn_at is not None  # type: ignore[attr-defined]
    kinds = row.summary.get("tools", {}) if isinstance(row.summary, dict) else {}
    row.tool_count = sum(kinds.values())  # type: ignore[attr-defined]
    return row


def may_publish(member: Membership) -> bool:
    """Code leaves the house: who publishes holds both rights for every category."""
    return member.has_right(Right.CATALOGUE) and member.has_right(Right.APPROVE_CODE)


def publications_of_toolkit(member: Membership, name: str) -> list[Publication]:
    """The newest ones that the member's organisation published of this toolkit, at most five. One query."""
    rows = Publication.objects.filter(publisher=member.organisation_id, toolkit_name=name).defer("document")
    return [with_marks(row, member) for row in rows.order_by(*ORDER)[:5]]
