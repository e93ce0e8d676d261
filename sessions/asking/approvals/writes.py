"""The audited answers to what a turn asks, and what is remembered of them. People answer, never an agent.

Each raises PermissionDenied for who may not; Conflict where it cannot be answered any more (`already_decided`,
`expired`, `void`) or not in this way (`not_a_call`, `not_a_form`, `no_consent`); and ChangeRefused for a
field. What is stored lets the turn go on in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.common.text import storable, storable_value
from capabilities.contract.approvals import MAX_SHOWN
from sessions.asking.approvals.answering import why_not_answer
from sessions.loop.calls.question_forms import form_fields, read_content
from sessions.models import Approval, ApprovalKind, ApprovalStatus, Consent
from sessions.turns.asked import ACCEPT, CANCEL, DECLINE, is_tool_run, settle
from sessions.turns.fencing import Conflict
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Membership, Right

#: Characters of a note, of a proposal, and of a person's answer.
MAX_NOTE = 2_000
MAX_PROPOSAL = 4_000
MAX_RESPONSE = 20_000
#: Hours that a consent may last.
MAX_CONSENT_HOURS = 24 * 30


@transaction.atomic
def approve(approval: Approval, *, actor: Membership, note: str = "", only_once: bool = False) -> Approval:
    """Let the call run, once, with exactly these arguments.

    Where it is asked for the first time in a session (`allows_consent`), later calls of the same version of the tool
    are not asked for again in the session, unless `only_once`: that is kept as a consent, listed and revocable.
    Raises PermissionDenied for who may not answer, and Conflict where it cannot be answered any more, or `not_whole`
    where the arguments are too long to be read.
    """
    _check_may(approval, actor)
    if not is_whole(approval):
        raise Conflict("not_whole", "The arguments are too long to be shown whole: deny it, or answer in its place.")
    _answer(approval, ApprovalStatus.APPROVED, actor, note=note)
    if approval.allows_consent and not only_once:
        _remember(approval, actor, session=approval.session)
    return approval


@transaction.atomic
def approve_with_consent(
    approval: Approval, *, actor: Membership, until: datetime | None = None, note: str = ""
) -> Approval:
    """Approve the call, and remember that: for the session, and with `until` for the member's other sessions too, up to
    that moment.

    Raises as `approve` does; Conflict `no_consent` where each call is to be asked for; and ChangeRefused for a moment
    that is past or too far off.
    """
    _check_may(approval, actor)
    if not approval.allows_consent:
        raise Conflict("no_consent", "Each of these calls is asked for: this approval cannot be remembered.")
    if until is not None:
        latest = timezone.now() + timedelta(hours=MAX_CONSENT_HOURS)
        if not timezone.now() < until <= latest:
            raise ChangeRefused("until", f"Give a moment within the next {MAX_CONSENT_HOURS // 24} days.")
    approve(approval, actor=actor, note=note)
    if until is not None:
        _remember(approval, actor, until=until)
    return approval


@transaction.atomic
def deny(approval: Approval, *, actor: Membership, proposal: str = "", note: str = "") -> Approval:
    """Keep the call from running. The model reads the denial, with the person's name, and the proposal; only people
    read the note.

    Raises PermissionDenied for who may not answer, Conflict where it cannot be answered any more or not in this way,
    and ChangeRefused for a text that is too long.
    """
    _answer(approval, ApprovalStatus.DENIED, actor, note=note, proposal=_text("proposal", proposal, MAX_PROPOSAL))
    return approval


@transaction.atomic
def respond(approval: Approval, *, actor: Membership, response: str, note: str = "") -> Approval:
    """Answer a question, or a call in the tool's place: the text is the result that the model reads. No tool runs.

    Raises ChangeRefused for a text that is empty or too long, and PermissionDenied and Conflict as `deny` does.
    """
    if not response.strip():
        raise ChangeRefused("response", "Write an answer.")
    text = _text("response", response, MAX_RESPONSE)
    _answer(approval, ApprovalStatus.RESPONDED, actor, note=note, response=text)
    return approval


class ContentRefused(ChangeRefused):
    """Refusal of an input that does not fit the form; `errors` has a sentence for each field."""

    def __init__(self, errors: dict[str, str]) -> None:
        name, message = next(iter(errors.items()))
        super().__init__(f"content.{name}", message)
        self.errors = errors


@transaction.atomic
def answer(approval: Approval, *, actor: Membership, action: str, content: Mapping[str, Any] | None = None) -> Approval:
    """Answer a form or a link: accept it, with what the form says; decline; or cancel, which says neither. The call
    goes on with it. Raises ContentRefused, and Conflict `not_a_form` for what else is asked."""
    _check_may(approval, actor)
    if approval.kind not in (ApprovalKind.INPUT, ApprovalKind.LINK):
        raise Conflict("not_a_form", "This is neither a form nor a link: approve, deny or answer it in words.")
    if action not in (ACCEPT, DECLINE, CANCEL):
        raise ChangeRefused("action", f"The action is {ACCEPT}, {DECLINE} or {CANCEL}.")
    fields: dict[str, Any] = {"action": action}
    if action == ACCEPT and approval.kind == ApprovalKind.INPUT:
        found, errors = read_content(form_fields(approval.form), content or {})
        if errors:
            raise ContentRefused(errors)
        fields["content"] = json.dumps(storable_value(found), ensure_ascii=False)
    _answer(approval, ApprovalStatus.RESPONDED if action == ACCEPT else ApprovalStatus.DENIED, actor, note="", **fields)
    return approval


@transaction.atomic
def revoke_consent(consent: Consent, *, actor: Membership) -> Consent:
    """End the consent: later calls are asked for again. A second time changes nothing.

    Raises PermissionDenied unless the consent is the actor's own, or the actor has the right `approvals` for the tool's
    category.
    """
    is_own = consent.membership_id == actor.pk
    if is_tool_run.get() or not (is_own or actor.has_right(Right.APPROVALS, consent.tool.category.name)):
        raise PermissionDenied("A consent is revoked by its member, or with the admin right approvals.")
    if Consent.objects.filter(pk=consent.pk, revoked_at=None).update(revoked_at=Now(), revoked_by=actor):
        record("consent.revoke", consent, actor=actor, before=_consent_fields(consent))
    consent.refresh_from_db(fields=["revoked_at", "revoked_by"])
    return consent


def _answer(approval: Approval, status: ApprovalStatus, actor: Membership, *, note: str, **fields: Any) -> None:
    """Store the answer, if it waits for one, with its audit row."""
    _check_may(approval, actor)
    hold_organisation(actor.organisation_id)
    if approval.kind == ApprovalKind.QUESTION and status == ApprovalStatus.APPROVED:
        raise Conflict("not_a_call", "This is a question: it takes an answer in words.")
    if approval.kind in (ApprovalKind.INPUT, ApprovalKind.LINK) and "action" not in fields:
        raise Conflict("not_a_call", "This is a form or a link: accept, decline or cancel it.")
    texts = {"note": _text("note", note, MAX_NOTE), **fields}
    if not settle(approval, status, Q(expires_at__gt=Now()), decided_by=actor, **texts):
        raise _too_late(approval)
    approval.refresh_from_db(fields=["status", "decided_by", "decided_at", *texts])
    # The texts are in the row; what is said in a conversation stays out of the audit.
    after = {"status": str(status), "digest": approval.digest, "tool": str(approval.tool)}
    if approval.action:
        record("approval.answer", approval, actor=actor, after={**after, "action": approval.action})
        return
    record(f"approval.{_VERBS[status]}", approval, actor=actor, after=after)


_VERBS = {
    ApprovalStatus.APPROVED: "approve",
    ApprovalStatus.DENIED: "deny",
    ApprovalStatus.RESPONDED: "respond",
}


def is_whole(approval: Approval) -> bool:
    """Return whether its arguments can be shown whole, so that somebody can read what they allow."""
    return len(approval.arguments) <= MAX_SHOWN


def _check_may(approval: Approval, actor: Membership) -> None:
    if reason := why_not_answer(actor, approval):
        raise PermissionDenied(reason)


def _too_late(approval: Approval) -> Conflict:
    """Why it cannot be answered any more: a sentence for each state."""
    approval.refresh_from_db(fields=["status", "decided_by", "decided_at", "expires_at"])
    if approval.status == ApprovalStatus.VOID:
        return Conflict("void", "The turn that asked has ended: nothing waits for this answer any more.")
    if approval.status in (ApprovalStatus.EXPIRED, ApprovalStatus.PENDING):
        return Conflict("expired", "The time for this answer is over. Ask the agent to try again.")
    who = approval.decided_by or "Somebody"
    return Conflict("already_decided", f"{who} was faster: it is {approval.get_status_display().lower()} already.")


def _remember(approval: Approval, actor: Membership, **how: Any) -> None:
    consent = Consent.objects.create(
        organisation_id=approval.organisation_id,
        membership_id=approval.requester_id,
        tool_id=approval.tool_id,
        tool_version_id=approval.tool_version_id,
        approval=approval,
        granted_by=actor,
        **how,
    )
    record("consent.grant", consent, actor=actor, after=_consent_fields(consent))


def _consent_fields(consent: Consent) -> dict[str, Any]:
    return {
        "member": str(consent.membership.user.email),
        "tool": str(consent.tool),
        "version": consent.tool_version.number,
        "session": str(consent.session_id or ""),
        "until": consent.until.isoformat() if consent.until else "",
    }


def _text(field: str, text: str, most: int) -> str:
    if len(text) > most:
        raise ChangeRefused(field, f"Keep the {field} under {most:,} characters.")
    return storable(text.strip())
