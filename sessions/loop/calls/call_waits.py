"""Calls that have begun and cannot end now: what the member is asked, when a far side is asked again, and what the call
goes on with.

The turn waits without a worker. When the member has answered, or the moment has come, the same call is made again: with
the same key, and with what its runner wanted back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.utils import timezone

from capabilities.common.text import storable, storable_json
from capabilities.contract.approvals import MAX_SHOWN, USUAL_HOURS, digest_of
from capabilities.contract.context import CallWaits, InputNeeded, LinkNeeded, Resumed, TaskStarted
from capabilities.contract.masking import masked_in, masked_value
from capabilities.contract.wire import canonical_json
from sessions.access import own_session
from sessions.loop.calls.approvals import moment_text, refused, who_answered
from sessions.loop.calls.preparing import Prepared
from sessions.loop.calls.question_forms import form_fields
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Approval, ApprovalKind, ApprovalStatus, CallWait, StepStatus
from sessions.turns.asked import go_on_later
from sessions.turns.fencing import Claim, from_now

#: How often one call may ask its member for something.
MOST_TIMES = 5
#: Seconds between two questions how far a task is: at least, and at most. It is asked less often the longer it takes:
#: the pause is at least this part of the time so far.
SHORTEST, LONGEST, PART = 1.0, 600.0, 0.05
#: Seconds that a task may take, from the first time that the far side says that it works on it.
TASK_SECONDS = 86_400.0
#: Characters of what a runner wants back, of a form, and of an address.
MAX_STATE, MAX_FORM, MAX_URL = 200_000, 50_000, 4_000
MAX_MESSAGE = 4_000


# -- It waits ---------------------------------------------------------------------------------------------------------


def wait_for(
    claim: Claim, ready: Prepared, wait: CallWait | None, waits: CallWaits, secrets: Sequence[str] | None
) -> Outcome | None:
    """Store what the call waits for, without these secrets; or why it cannot wait for that, as the model reads it. One
    transaction.

    No `secrets` at all: it was not run, because what signs the call is missing; what its runner goes on with stays as
    it was. Raises as `go_on_later`.
    """
    is_runner = secrets is not None
    wait = wait or CallWait(organisation_id=ready.turn.row.organisation_id, step=ready.step, turn=ready.turn.row)
    wait.step = ready.step
    why_not = _why_not(wait, waits)
    if why_not:
        return refused(f"Not finished: {why_not}")
    if is_runner:
        wait.state = storable(waits.state)
    if isinstance(waits, TaskStarted):
        _keep_task(wait, waits, secrets or ())
        go_on_later(claim, wait, None)
        return None
    approval = _asked(ready, waits, secrets or ())
    wait.asked, wait.poll_at, wait.times = approval, None, wait.times + 1
    if is_runner:
        wait.answer, wait.is_task = approval, False
    go_on_later(claim, wait, approval)
    return None


def _why_not(wait: CallWait, waits: CallWaits) -> str:
    if len(waits.state) > MAX_STATE:
        return "what the far side wants to be told again is too long."
    if isinstance(waits, TaskStarted):
        return ""
    if wait.times >= MOST_TIMES:
        return f"the call asked for something {MOST_TIMES} times. Call it again, if it is still wanted."
    if isinstance(waits, LinkNeeded):
        return _why_no_link(waits)
    assert isinstance(waits, InputNeeded)
    if storable_json(dict(waits.schema), MAX_FORM) is None:
        return "it asks for something that no form can hold."
    try:
        fields = form_fields(waits.schema)
    except ValueError as error:
        return f"it asks for something that no form can hold. {error}"
    return "" if fields else "it asks for a form without a field."


def _why_no_link(waits: LinkNeeded) -> str:
    """Return why a member cannot be sent to the link, or "": only to pages of ours, and to addresses with a host over
    HTTPS."""
    refusal = "it asks to open an address that cannot be opened safely."
    if len(waits.url) > MAX_URL or not waits.url.isprintable() or any(each in waits.url for each in " \\\"'<>"):
        return refusal
    try:
        parts = urlsplit(waits.url)
        has_user = parts.username is not None or parts.password is not None
    except ValueError:
        return refusal
    if waits.is_own:
        is_path = waits.url.startswith("/") and not waits.url.startswith("//") and not parts.netloc
        return "" if is_path else refusal
    is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    return "" if parts.hostname and not has_user and (parts.scheme == "https" or is_local) else refusal


def _keep_task(wait: CallWait, waits: TaskStarted, secrets: Sequence[str]) -> None:
    so_far = 0.0
    if wait.task_until is None or not wait.is_task:
        wait.task_until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    else:
        so_far = TASK_SECONDS - (wait.task_until - timezone.now()).total_seconds()
        wait.polls += 1
    pause = pause_of(waits.seconds, so_far)
    wait.message = masked_in(storable(str(waits), MAX_MESSAGE), secrets)
    wait.is_task, wait.asked, wait.poll_at = True, None, from_now(pause)


def pause_of(wanted: float, so_far: float) -> float:
    """Seconds until a far side is asked again that has worked for `so_far`, and wants to be asked after `wanted`."""
    pause = max(wanted if wanted == wanted else SHORTEST, SHORTEST, so_far * PART)
    return min(pause, LONGEST)


def _asked(ready: Prepared, waits: CallWaits, secrets: Sequence[str]) -> Approval:
    """Build the question to the member, not stored yet."""
    turn, spec = ready.turn.row, ready.spec
    approval = Approval(
        organisation_id=turn.organisation_id,
        step=ready.step,
        turn=turn,
        session=own_session(turn.session),
        requester_id=turn.membership_id,
        kind=ApprovalKind.LINK if isinstance(waits, LinkNeeded) else ApprovalKind.INPUT,
        tool_id=spec.tool_id,
        tool_version_id=spec.version_id,
        arguments=canonical_json(masked_value(ready.arguments, secrets))[:MAX_SHOWN],
        digest=digest_of(spec.name, spec.sha256, ready.arguments),
        source=spec.name,
        for_people=masked_in(storable(str(waits), MAX_MESSAGE), secrets),
        expires_at=timezone.now() + timedelta(hours=USUAL_HOURS),
    )
    if isinstance(waits, LinkNeeded):
        approval.url, approval.is_own_url = waits.url, waits.is_own
        approval.credential_id = spec.credential_id if waits.is_own else None
    elif isinstance(waits, InputNeeded):
        approval.form = masked_value(storable_json(dict(waits.schema), MAX_FORM), secrets)
    return approval


# -- It goes on -------------------------------------------------------------------------------------------------------


def answer_of(wait: CallWait) -> Outcome | None:
    """Return the outcome that the model reads for a call that does not go on; None where it does. A query or two for
    whoever answered."""
    asked = wait.asked
    if asked is None:
        if wait.task_until is not None and wait.task_until <= timezone.now():
            hours = round(TASK_SECONDS / 3_600)
            return execution.failure(f"Not finished: the far side worked on it for more than {hours} hours.")
        return None
    if asked.status == ApprovalStatus.EXPIRED:
        nobody = "opened the link" if asked.kind == ApprovalKind.LINK else "filled in the form that it asked for"
        return refused(
            f"Not finished: nobody {nobody} until {moment_text(asked.expires_at)}. Ask again, if it is wanted."
        )
    if asked.status == ApprovalStatus.VOID:
        return refused("Not finished: what was asked of a person does not stand any more.")
    if asked.status == ApprovalStatus.DENIED and (asked.is_own_url or asked.pk != wait.answer_id):
        how = "declined" if asked.action != "cancel" else "cancelled"
        return refused(f"Not finished: {who_answered(asked)} {how} it on {moment_text(asked.decided_at)}.")
    return None


def resumed_with(wait: CallWait | None) -> Resumed | None:
    """Return the state and answer that the runner goes on with; None for a call that it has not waited in. The wait's
    answer is already loaded."""
    if wait is None:
        return None
    if wait.is_task:
        return Resumed(wait.state, "poll")
    if wait.answer is None:
        return None
    content: dict[str, Any] = json.loads(wait.answer.content or "{}")
    return Resumed(wait.state, wait.answer.action, content)


def is_poll(wait: CallWait | None) -> bool:
    """Return whether the call only asks how far a task is: that changes nothing, and may be done again."""
    return wait is not None and wait.is_task


def is_open(wait: CallWait | None) -> bool:
    """Return whether the call still waits, as it was when it was read. No query."""
    if wait is None or wait.step.status != StepStatus.WAITING:
        return False
    if wait.asked is not None:
        return wait.asked.status == ApprovalStatus.PENDING
    return wait.poll_at is not None and not vars(wait).get("is_due", False)
