"""Approvals and questions of turns, as pages and the API show them: what a member may answer, what was asked, and the
consents kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import Http404

from sessions.access import own_session
from sessions.asking.approvals.answering import answerable_by
from sessions.models import Approval, ApprovalKind, ApprovalStatus, ChatSession, Consent, Turn
from toolhub.tenants.menu import notice
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: The badge counts to one more than this.
COUNTED = 99


#: Columns that no page of approvals shows, of the rows beside one.
_LONG = (
    *(f"step__{name}" for name in ("arguments", "result", "result_sent", "extras", "raw_usage", "text")),
    *(f"turn__{name}" for name in ("message", "answer", "draft")),
    "turn__agent__prompt",
    *(f"tool_version__{name}" for name in ("wire", "parameters", "description", "instructions")),
    *(f"{name}__{place}" for name in ("session", "turn__session") for place in ("tool_order", "last_prompt")),
)


def with_all_shown(approvals: QuerySet[Approval]) -> QuerySet[Approval]:
    """Read the approvals with every row that a page shows of one: its step, agent, session, tool, requester, who
    decided."""
    return approvals.select_related(
        "step",
        "turn__agent",
        "turn__session",
        "session__membership",
        "requester__user",
        "tool__category",
        "tool_version",
        "decided_by__user",
    ).defer(*_LONG)


# -- What waits for a member -------------------------------------------------------------------------------------------


def waiting_for(member: Membership) -> QuerySet[Approval]:
    """Calls and questions that wait and that this member may answer."""
    return with_all_shown(Approval.objects.filter(answerable_by(member)))


def waiting_page(member: Membership, *, after: str = "", before: str = "") -> Page[Approval]:
    """Return a page of what waits for this member, the oldest first. One query, one more for a delegated right."""
    return Keyset(waiting_for(member), ("pk",)).page(after, before)


def count_waiting_for(member: Membership) -> int:
    """Count those that wait for this member, to one more than COUNTED. One query, one more for a delegated right."""
    return Approval.objects.filter(answerable_by(member)).order_by()[: COUNTED + 1].count()


def approvals_notice(member: Membership) -> tuple[int, str]:
    """Count the calls and questions that wait for this member, with a sentence that says it; 0 and "" for nothing. One
    query, one more for a delegated right."""
    return notice(count_waiting_for(member), "approval waits for you", "approvals wait for you", at_most=COUNTED)


#: Approved calls that are looked through for the last one of each tool and agent.
LOOKED_BACK = 1_000


def last_approved(member: Membership, waiting: Iterable[Approval]) -> dict[tuple[int, int], Approval]:
    """Return the call that was approved last of each waiting call's tool and agent, by their keys, as far as the member
    may see it. Two queries, one more for a delegated right; none where nothing waits."""
    calls = [each for each in waiting if each.kind == ApprovalKind.APPROVAL]
    if not calls:
        return {}
    approved = approvals_seen_by(member).filter(
        kind=ApprovalKind.APPROVAL,
        status=ApprovalStatus.APPROVED,
        tool__in={each.tool_id for each in calls},
        turn__agent__in={each.turn.agent_id for each in calls},
    )
    newest: dict[tuple[int, int], int] = {}
    for tool, agent, key in approved.order_by("-pk").values_list("tool_id", "turn__agent_id", "pk")[:LOOKED_BACK]:
        newest.setdefault((tool, agent), key)
    found = approved.filter(pk__in=newest.values())
    return {(each.tool_id, each.turn.agent_id): each for each in found}


def approvals_named(member: Membership, ids: Collection[UUID]) -> list[Approval]:
    """Return the approvals with these ids, the oldest first. Raises Http404 where the member may not see one of them,
    as for one that is missing. One query, one more for a delegated right."""
    found = list(approvals_seen_by(member).filter(public_id__in=ids).order_by("pk"))
    if not ids or len(found) != len(set(ids)):
        raise Http404("No such approval.")
    return found


def answerable_of(member: Membership, approvals: Sequence[Approval]) -> list[Approval]:
    """Return those that wait and that this member may answer. One query, one more for a delegated right."""
    mine = Approval.objects.filter(answerable_by(member), pk__in=[each.pk for each in approvals])
    keys = set(mine.values_list("pk", flat=True))
    return [each for each in approvals if each.pk in keys]


# -- What was asked ----------------------------------------------------------------------------------------------------


def approvals_seen_by(member: Membership) -> QuerySet[Approval]:
    """Query the approvals that the member may see: the member's own; with the right `approvals` those of everybody in
    the categories that it reaches; with the right `sessions` all. None of deleted sessions. A delegated right costs one
    query."""
    approvals = with_all_shown(Approval.objects.filter(session__deleted_at=None))
    reach = member.reach(Right.APPROVALS)
    if reach.covers(EVERY_CATEGORY) or member.has_right(Right.SESSIONS):
        return approvals
    seen = Q(requester=member)
    if reach:
        seen |= Q(tool__category__name__in=reach.categories)
    return approvals.filter(seen)


def approvals_page(member: Membership, *, status: str = "", after: str = "", before: str = "") -> Page[Approval]:
    """Return a page of the approvals that the member may see, of one status or of all, the newest first. One query, one
    more for a delegated right."""
    approvals = approvals_seen_by(member)
    if status:
        approvals = approvals.filter(status=status)
    return Keyset(approvals, ("-pk",)).page(after, before)


def history_page(member: Membership, *, status: str = "", after: str = "", before: str = "") -> Page[Approval]:
    """Return a page of approvals without those that wait for this member, the newest first. One query, one more for a
    delegated right."""
    approvals = approvals_seen_by(member).exclude(answerable_by(member))
    if status:
        approvals = approvals.filter(status=status)
    return Keyset(approvals, ("-pk",)).page(after, before)


def approval_or_404(member: Membership, approval_id: UUID) -> Approval:
    """Return the approval with this id. Raises Http404 where the member may not see it, as for one that is missing."""
    approval = approvals_seen_by(member).filter(public_id=approval_id).first()
    if approval is None:
        raise Http404("No such approval.")
    return approval


def approvals_of_turn(turn: Turn) -> QuerySet[Approval]:
    """Return the approvals that this turn asked for, in its order. One query."""
    return with_all_shown(Approval.objects.filter(turn=turn)).order_by("step__index", "pk")


def waiting_in_session(session: ChatSession) -> QuerySet[Approval]:
    """Return what waits in a member's session, with what its agents ask in sessions below. One query, a query or two
    more for each level that `session` is below the member's own."""
    waiting = Approval.objects.filter(session=own_session(session), status=ApprovalStatus.PENDING)
    return with_all_shown(waiting).order_by("pk")


# -- Consents ----------------------------------------------------------------------------------------------------------


def consents_seen_by(member: Membership) -> QuerySet[Consent]:
    """Query the consents that the member may see: the member's own; with the right `approvals` those of everybody in
    the categories that it reaches."""
    consents = Consent.objects.select_related(
        "membership__user", "tool__category", "tool_version", "session", "approval", "granted_by__user", "revoked_by"
    )
    reach = member.reach(Right.APPROVALS)
    if reach.covers(EVERY_CATEGORY):
        return consents
    return consents.filter(Q(membership=member) | Q(tool__category__name__in=reach.categories))


def consents_page(member: Membership, *, after: str = "", before: str = "") -> Page[Consent]:
    """Return a page of consents, the newest first, those that ended or were revoked too (`consent_in_force` tells them
    apart). One query."""
    return Keyset(consents_seen_by(member), ("-pk",)).page(after, before)


def consent_or_404(member: Membership, consent_id: UUID) -> Consent:
    consent = consents_seen_by(member).filter(public_id=consent_id).first()
    if consent is None:
        raise Http404("No such consent.")
    return consent
