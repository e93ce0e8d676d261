"""Calls of which somebody is asked first: who says so, what is asked, and what the answer makes of the call.

An answer never runs anything: it lets the turn go on, and the call passes its whole way again. What is approved runs if
the call is still the one that was shown, and only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from capabilities.access.approval_rules.queries import ask_rules, asked_call
from capabilities.contract.approvals import (
    ASK_USER,
    MAX_HOURS,
    MAX_SHOWN,
    NEVER,
    asks_administrators,
    digest_of,
    is_question,
    rules_of,
)
from capabilities.contract.decisions import Decision, Terms, Verb, decision_on
from capabilities.contract.masking import masked_value
from capabilities.contract.spec import ToolSpec
from capabilities.contract.wire import canonical_json
from capabilities.models import Tool
from capabilities.running.credentials.signing import secrets_for
from sessions.access import own_session
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Approval, ApprovalKind, ApprovalStatus, StepStatus
from sessions.turns import asked
from sessions.turns.fencing import Claim
from sessions.turns.masking import masked_fields
from toolhub.tenants.models import Access

if TYPE_CHECKING:
    from sessions.loop.calls.preparing import Prepared

# -- Who says that somebody is asked ----------------------------------------------------------------------------------


def decide_asking(prepared: Prepared) -> Decision | None:
    """Return the decision of the organisation's approval rules and the tool's runtime settings on the call, or the
    decision of a consent that answers it; None where none of them says anything.

    No query while nothing asks and no rule names a role; else one for the roles, and one for the consents.
    """
    turn, spec = prepared.turn.row, prepared.spec
    rules = ask_rules(turn.organisation_id, prepared.turn.registry_version)
    call = asked_call(spec, prepared.arguments, turn.membership_id, turn.agent_id)
    decision = decision_on(spec, rules_of(rules, call), spec.envelope.ask)
    if decision is not None and asks_administrators(spec) and not turn.membership.has_access(Access.ADMIN):
        return replace(decision, terms=replace(decision.terms, needs_other_person=True))
    if decision is None or decision.verb != Verb.ASK or not decision.terms.allows_consent:
        return decision
    if not has_consent(prepared, decision.terms):
        return decision
    return Decision(Verb.ALLOW, "consent", for_log=f"consent in place of {decision.source}")


def why_not_by_hand(organisation_id: int, membership_id: int, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return why a member may not run the tool by hand with these arguments; "" where they may. A run by hand asks
    nobody: it is refused where another person must approve it. The queries of `ask_rules`."""
    if asks_administrators(spec):
        return f"Not run: {spec.name} asks a person. Ask an agent for it in a chat."
    rules = rules_of(ask_rules(organisation_id, None), asked_call(spec, arguments, membership_id, None))
    rule = next((each for each in rules if each.when != NEVER and each.needs_other_person), None)
    if rule is None:
        return ""
    return f"Not run: the approval rule {rule.name} takes another person. Ask an agent for it in a chat."


def has_consent(prepared: Prepared, terms: Terms) -> bool:
    """Return whether somebody has allowed this member's calls of this version of the tool before, for this session or
    until a later time. Where another person must answer, the member's own consent does not count. One query, and a
    query or two for each level that the session is below the member's own."""
    turn = prepared.turn.row
    consents = asked.consents_in(turn.session).filter(tool_version=prepared.spec.version_id)
    if terms.needs_other_person:
        consents = consents.exclude(granted_by=turn.membership_id)
    return consents.exists()


# -- What is asked ----------------------------------------------------------------------------------------------------


def takes_a_person(prepared: Prepared) -> bool:
    """Return whether a person has to answer before the call goes on."""
    return prepared.is_asked_for or is_question(prepared.spec)


def unanswered(prepared: Prepared) -> Outcome:
    """Build the refusal that the model reads for a call that would ask a person, in a turn that nobody attends."""
    why = "it asks the user, and nobody answers here. Ask in your answer instead, and end your turn with it."
    if not is_question(prepared.spec):
        why = "a person would have to approve it, and nobody answers here. Go on without it, or say so in your answer."
    return refused(f"Not run: {why}", denied_tool=prepared.spec.name)


def ask(claim: Claim, prepared: Prepared, **fields: Any) -> Outcome | None:
    """Ask somebody of this pending call, whose secrets they see neither here nor in its step; `fields` are what that
    says from now on. Or why nobody can be asked, as the model reads it. One transaction, and the queries of
    `secrets_for`."""
    turn, spec, step = prepared.turn.row, prepared.spec, prepared.step
    secrets = secrets_for(spec, turn.membership_id)
    arguments = canonical_json(masked_value(prepared.effective.values, secrets))
    if len(arguments) > MAX_SHOWN:
        return refused(
            f"Not run: a person must approve {spec.name}, and its arguments take {len(arguments):,} characters. "
            f"A person can read {MAX_SHOWN:,}: send less at once."
        )
    decision = prepared.decision or Decision(Verb.ASK)
    terms = decision.terms
    if is_question(spec):
        decision = Decision(Verb.ASK, ASK_USER, for_people=str(prepared.arguments.get("question", "")))
        terms = decision.terms
    approval = Approval(
        organisation_id=turn.organisation_id,
        step=step,
        turn=turn,
        session=own_session(turn.session),
        requester_id=turn.membership_id,
        kind=ApprovalKind.QUESTION if is_question(spec) else ApprovalKind.APPROVAL,
        tool_id=spec.tool_id,
        tool_version_id=spec.version_id,
        arguments=arguments,
        digest=digest_of(spec.name, spec.sha256, prepared.effective.values),
        source=decision.source[:200],
        for_model=decision.for_model,
        for_people=decision.for_people,
        for_log=decision.for_log,
        needs_other_person=terms.needs_other_person,
        allows_consent=terms.allows_consent,
        expires_at=timezone.now() + timedelta(hours=min(terms.expires_after, MAX_HOURS)),
    )
    shown = {name: fields.get(name, getattr(step, name)) for name in ("arguments", "display")}
    asked.ask(claim, approval, **fields | masked_fields(**shown, secrets=secrets))
    return None


# -- What the answer makes of the call --------------------------------------------------------------------------------


def answer_of(approval: Approval) -> Outcome | None:
    """Return the outcome that the model reads in the tool's place; None where the call was approved, and is prepared
    again.

    A query or two for whoever answered.
    """
    if approval.status == ApprovalStatus.APPROVED:
        return None
    if approval.status == ApprovalStatus.RESPONDED:
        return _response(approval)
    if approval.status == ApprovalStatus.DENIED:
        more = {"proposal": approval.proposal} if approval.proposal else {}
        return refused(f"Denied by {who_answered(approval)} on {moment_text(approval.decided_at)}.", **more)
    if approval.status == ApprovalStatus.EXPIRED:
        nobody = "answered the question" if approval.kind == ApprovalKind.QUESTION else "approved it"
        return refused(
            f"Not run: nobody {nobody} until {moment_text(approval.expires_at)}. Ask again, if it is still wanted."
        )
    return refused("Not run: what was asked of a person does not stand any more.")


def _response(approval: Approval) -> Outcome:
    how = "Answered" if approval.kind == ApprovalKind.QUESTION else "Answered in place of the tool, which did not run,"
    receipt = f"{how} by {who_answered(approval)} on {moment_text(approval.decided_at)}."
    return Outcome(StepStatus.DONE, approval.response, approval.response, context=(receipt,))


def is_reversioned(approval: Approval) -> bool:
    """Return whether the tool has another version now than the one that was approved. One query."""
    current = Tool.objects.filter(pk=approval.tool_id).values_list("current_version_id", flat=True).first()
    return current != approval.tool_version_id


def reversioned() -> Outcome:
    return refused("Not run: the tool was changed after this call was approved. Ask again, if it is still wanted.")


def why_not_as_approved(approval: Approval, prepared: Prepared) -> Outcome | None:
    """Return the refusal where the approval does not let this call run now; None where it does. It is used when the
    call begins."""
    if approval.tool_version_id != prepared.spec.version_id:
        return reversioned()
    if not is_of_call(approval, prepared):
        return refused(
            "Not run: the arguments are not those that were approved. Ask for the call again, if it is still wanted."
        )
    decision = prepared.decision
    takes_another = decision is not None and decision.verb == Verb.ASK and decision.terms.needs_other_person
    if (takes_another or approval.needs_other_person) and approval.decided_by_id == approval.requester_id:
        return refused("Not run: it was approved by its requester, and another person must approve it.")
    if approval.used_at is not None:
        return used_up()
    if approval.expires_at <= timezone.now():
        return too_late(approval)
    return None


def is_of_call(approval: Approval, prepared: Prepared) -> bool:
    """Return whether the call is still the one that was shown: this tool in this version, with these arguments."""
    return approval.digest == digest_of(prepared.spec.name, prepared.spec.sha256, prepared.effective.values)


def used_up() -> Outcome:
    return refused("Not run: this approval was used before, or its time is over. An approval lets a call run once.")


def too_late(approval: Approval) -> Outcome:
    return refused(
        f"Not run: it was approved, and the approval could be used until {moment_text(approval.expires_at)} only. "
        "Ask for the call again, if it is still wanted."
    )


def receipt_of(approval: Approval) -> str:
    """Return the sentence that the model reads beside the result of an approved call. A query or two for whoever
    answered."""
    return f"This call was approved by {who_answered(approval)} on {moment_text(approval.decided_at)}."


def refused(message: str, **more: Any) -> Outcome:
    return execution.failure(message, status=StepStatus.REFUSED, **more)


def who_answered(approval: Approval) -> str:
    """The name and the address of who answered."""
    member = approval.decided_by
    if member is None:
        return "somebody who is gone"
    name, email = str(member), str(member.user.email)
    return email if name == email else f"{name} ({email})"


def moment_text(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "an unknown day"
