"""Questions of a turn to people: stored before it waits, answered or ended once, and the turn let go on in that
transaction.

Whoever writes here holds the turn's row, so an answer, an expiry, a stop and a worker that parks the turn come one
after the other; who writes to the audit too holds the organisation's row before.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from capabilities.models import SecretStatus, StoredSecret
from sessions.access import own_session
from sessions.models import (
    UNANSWERED,
    Approval,
    ApprovalKind,
    ApprovalStatus,
    CallWait,
    ChatSession,
    Consent,
    Step,
    StepStatus,
    Turn,
    consent_in_force,
)
from sessions.turns.fencing import EVENT, Claim, LedgerError, add_event, check_may_start, fence, hold, insert_event
from sessions.turns.sweeping import Backoff, each_item
from sessions.turns.waiting import resume
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation

#: Rows that one sweep ends.
AT_ONCE = 100
#: Actions of a member on a form or a link.
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
#: Approvals whose end failed lately, and links to accounts that are connected.
expiry_backoff = Backoff("expiry of an approval")
connected_backoff = Backoff("connected account")
#: Set while a tool runs: what it calls answers nothing.
is_tool_run: ContextVar[bool] = ContextVar("toolhub_is_tool_run", default=False)
#: The event that says that somebody is asked.
EVENTS = {
    ApprovalKind.APPROVAL: "approval_requested",
    ApprovalKind.QUESTION: "question_asked",
    ApprovalKind.INPUT: "input_requested",
    ApprovalKind.LINK: "link_requested",
}
#: Where an approval is read and answered, over REST.
ADDRESS = "/api/v1/approvals/{}"


class ApprovalNotUsable(LedgerError):
    """The approval was used, or its time is over: the call that it was for does not begin."""


def consents_in(session: ChatSession) -> QuerySet[Consent]:
    """Query the consents to calls of the session's member that are in force, for this session or until a later time. A
    query or two for each level that the session is below the member's own."""
    here = Q(session=None) | Q(session=own_session(session))
    return Consent.objects.filter(consent_in_force(), here, membership=session.membership_id)


def ask(claim: Claim, approval: Approval, **fields: Any) -> None:
    """Store what somebody is asked of a pending call, with its event; `fields` are what the call's step says from now
    on. One transaction. Raises LeaseLost, and CancelRequested for a turn that was stopped."""
    with transaction.atomic():
        turn = fence(claim, EVENT)
        check_may_start(turn)
        approval.registry_version = turn["registry"]
        approval.save(force_insert=True)
        if fields:
            Step.objects.filter(pk=approval.step_id).update(**fields)
        add_event(claim, turn, EVENTS[ApprovalKind(approval.kind)], _named(approval))


def go_on_later(claim: Claim, wait: CallWait, approval: Approval | None) -> None:
    """Store that a call that has begun waits, for what the member is asked or for its far side, with its event. One
    transaction. Raises LeaseLost; and CancelRequested, behind it, for a turn that was stopped."""
    with transaction.atomic():
        turn = fence(claim, EVENT)
        if approval is None:
            kind, payload = "task_waits", {"step": wait.step.index, "polls": wait.polls}
        else:
            approval.registry_version = turn["registry"]
            approval.save(force_insert=True)
            kind, payload = EVENTS[ApprovalKind(approval.kind)], _named(approval)
        wait.save()
        Step.objects.filter(pk=wait.step_id, status__in=UNANSWERED).update(status=StepStatus.WAITING)
        add_event(claim, turn, kind, payload)
    wait.step.status = StepStatus.WAITING
    check_may_start(turn)


def settle(approval: Approval, status: ApprovalStatus, still: Q, **fields: Any) -> bool:
    """End the wait for this one, if it is pending and `still` holds, and let its turn go on where it waits for nothing
    else. False, and nothing changed, otherwise. Inside a transaction; of several at once, one does."""
    hold(approval.turn_id)
    pending = Approval.objects.filter(still, pk=approval.pk, status=ApprovalStatus.PENDING)
    if not pending.update(status=status, decided_at=Now(), **fields):
        return False
    Turn.objects.filter(pk=approval.turn_id).update(last_event=F("last_event") + 1)
    number = Turn.objects.values_list("last_event", flat=True).get(pk=approval.turn_id)
    payload = _named(approval) | {"status": str(status)}
    insert_event(approval.organisation_id, approval.turn_id, number, "approval_answered", payload)
    resume(approval.turn_id)
    return True


def mark_used(approval_id: int) -> None:
    """Use an approval, once, in the transaction that begins its call. Raises ApprovalNotUsable."""
    unused = Q(used_at=None, expires_at__gt=Now())
    approved = Approval.objects.filter(unused, pk=approval_id, status=ApprovalStatus.APPROVED)
    if not approved.update(used_at=Now()):
        raise ApprovalNotUsable(str(approval_id))


def expire_due() -> None:
    """End what nobody answered in time, each by itself. In the scope of the system, in any worker."""
    due = Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__lte=Now())
    due = due.exclude(pk__in=expiry_backoff.paused()).order_by("expires_at", "pk")
    each_item(expiry_backoff, list(due.values_list("pk", "organisation_id")[:AT_ONCE]), _expire)


@transaction.atomic
def _expire(approval_id: int) -> None:
    approval = Approval.objects.select_related("tool", "requester__user", "step").get(pk=approval_id)
    hold_organisation(approval.organisation_id)
    if settle(approval, ApprovalStatus.EXPIRED, Q(expires_at__lte=Now())):
        record("approval.expire", approval, actor=None, after={"digest": approval.digest})


def accept_connected() -> None:
    """Let each call go on that waits for an account which is connected by now, each by itself. In the scope of the
    system, in any worker."""
    usable = StoredSecret.objects.filter(
        credential=OuterRef("credential"), membership=OuterRef("requester"), status=SecretStatus.CONNECTED
    )
    waiting = Approval.objects.filter(Exists(usable), status=ApprovalStatus.PENDING, kind=ApprovalKind.LINK)
    waiting = waiting.exclude(pk__in=connected_backoff.paused()).order_by("pk")
    each_item(connected_backoff, list(waiting.values_list("pk", "organisation_id")[:AT_ONCE]), _accept_connected)


@transaction.atomic
def _accept_connected(approval_id: int) -> None:
    approval = Approval.objects.select_related("tool", "requester__user", "step").get(pk=approval_id)
    hold_organisation(approval.organisation_id)
    accepted = {"action": ACCEPT, "decided_by": approval.requester}
    if settle(approval, ApprovalStatus.RESPONDED, Q(expires_at__gt=Now()), **accepted):
        record("approval.answer", approval, actor=None, after={"action": ACCEPT, "digest": approval.digest})


def _named(approval: Approval) -> dict[str, Any]:
    """Build the fields that name the approval in events."""
    address = ADDRESS.format(approval.public_id)
    return {"step": approval.step.index, "approval": str(approval.public_id), "address": address}
