"""One call of a reply, from the moment that the model wrote it to its answer on record.

elsewhere    another agent has it, a person is asked, or a far side works on it: its answer comes later
ready        a person's answer, what a crash left behind, and all that a call passes before it begins or goes on
allowed      somebody allowed it, nobody has to, or somebody is asked now
begin        its start on record, and an approval used up with it, in one transaction
run          the credential, and the tool; or what the call waits for now, on record: it goes on later
finish       its hooks, the cut, and the outcome on record
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid5

from capabilities.contract.context import LinkNeeded, ToolError
from capabilities.contract.loading import READ_RESULT
from capabilities.contract.spec import ToolSpec
from capabilities.running.credentials.signing import credential_for, secrets_for
from capabilities.running.kinds.lines import display
from sessions.loop.calls import approvals, call_waits, delegation, tracing
from sessions.loop.calls.called_tools import ResolvedCall, resolve_call
from sessions.loop.calls.preparing import Prepared, prepare
from sessions.loop.calls.trust import keep_trust
from sessions.loop.clients.errors import CallStopped
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.steps import Steps
from sessions.loop.hooks.phases import hooked_outcome
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.loop.tools.result_files import with_files
from sessions.loop.tools.stored_results import number_of
from sessions.models import Approval, ApprovalStatus, CallWait, Step, StepFile, StepStatus, Turn
from sessions.turns import ledger
from sessions.turns.fencing import check_may_start

CHANGED_MEANWHILE = "Not finished: the tool was changed while this turn ran. Ask again, if it is still wanted."
TAKES_A_PERSON_NOW = "Not finished: a person must approve it by now. Ask again, if it is still wanted."


def answer_call(turn: RunningTurn, reply: Step, step: Step, tools: Mapping[str, ToolSpec]) -> None:
    """Answer one call of the reply, or leave it open for an agent, a person or a far side, and note that in the turn's
    steps.

    `tools` are those of the round by name. A pending call is run; a call that had begun when a worker died is run again
    only if its tool says that it may. Raises CallStopped and CancelRequested.
    """
    if not turn.held.may_begin(turn.row.deadline_at):
        raise CallStopped
    steps = turn.steps
    approval, wait = steps.approvals.get(step.pk), steps.call_waits.get(step.pk)
    if _is_elsewhere(step, approval, wait, steps):
        return
    sent = reply.tool_set.callable_ids if reply.tool_set is not None else ()
    wanted = resolve_call(turn, _call_of(reply, step), tools, sent)
    ready = _ready(turn, wanted, step, approval, wait)
    fields = _resolved_fields(turn, wanted, ready)
    if isinstance(ready, Prepared):
        allowed = _allowed(ready, approval, fields)
        if allowed is None:
            steps.was_asked = True
            return
        ready = allowed
    if approval is not None and isinstance(ready, Prepared):
        fields["approval_id"] = approval.pk
    try:
        if isinstance(ready, Prepared) and delegation.is_delegation(ready.spec):
            steps.was_delegated = True
            delegation.hand_over(ready, **fields)
            return
        if step.status == StepStatus.PENDING:
            ledger.start_step(turn.claim, step, **fields)
        elif step.status == StepStatus.WAITING and isinstance(ready, Prepared) and not call_waits.is_poll(wait):
            ledger.start_step(turn.claim, step)
    except ledger.ApprovalNotUsable:  # used, or out of time, since it was read
        ready = approvals.used_up()
        ledger.start_step(turn.claim, step, **{**fields, "approval_id": None})
    outcome = _run(ready, wait) if isinstance(ready, Prepared) else replace(ready, hooks=())
    if outcome is None:
        steps.was_asked = True
        return
    secrets = _secrets(turn, wanted.spec, step)
    outcome, files = with_files(execution.masked(outcome, secrets), step)
    if wanted.spec is not None:
        number = number_of(turn.row, step) if READ_RESULT in tools else ""
        outcome = execution.capped(outcome, wanted.spec, turn.model.context_window, step=number)
    is_left = call_waits.is_poll(wait) and not isinstance(ready, Prepared)
    _finish(turn, step, outcome, wait, files, is_task_left=is_left, secrets=secrets)


def _secrets(turn: RunningTurn, spec: ToolSpec | None, step: Step) -> Sequence[str]:
    """The secrets that sign the call, whether it ran or was answered without a run. The queries of `secrets_for` where
    it did not run."""
    known = turn.steps.secrets
    if step.pk not in known:
        known[step.pk] = () if spec is None else secrets_for(spec, turn.row.membership_id)
    return known[step.pk]


def _call_of(reply: Step, step: Step) -> Call:
    """The call as the model wrote it."""
    raw = reply.tool_calls[step.call_index]
    return Call(raw["id"], raw.get("raw_name", raw["name"]), raw.get("raw_arguments", raw["arguments"]))


def _is_elsewhere(step: Step, approval: Approval | None, wait: CallWait | None, steps: Steps) -> bool:
    """Return whether another agent, a person or a far side has the call. One query for a call that had begun."""
    if call_waits.is_open(wait):
        steps.was_asked = True
        return True
    if step.status == StepStatus.STARTED and Turn.objects.filter(parent_step=step).exists():
        steps.was_delegated = True
        return True
    if approval is not None and approval.status == ApprovalStatus.PENDING:
        steps.was_asked = True
        return True
    return False


def _ready(
    turn: RunningTurn, wanted: ResolvedCall, step: Step, approval: Approval | None, wait: CallWait | None
) -> Prepared | Outcome:
    """The call as it could begin, or go on, now; or its answer without a run."""
    answer = None if approval is None else _answered(approval, wanted.spec)
    if answer is not None:
        return answer
    is_delegation = wanted.answer is None and delegation.is_delegation(wanted.spec)
    if step.status == StepStatus.STARTED and not (is_delegation or _may_repeat(wanted.spec, step)):
        return execution.outcome_unknown()
    if wait is not None and (ended := call_waits.answer_of(wait)) is not None:
        return ended
    if step.status == StepStatus.WAITING and (wanted.spec is None or wanted.spec.version_id != step.tool_version_id):
        return approvals.refused(CHANGED_MEANWHILE)
    if wanted.answer is not None:
        return wanted.answer
    if wanted.spec is None:
        return execution.inactive(wanted.call.name)
    return prepare(turn, wanted.spec, wanted.call, step)


def _answered(approval: Approval, spec: ToolSpec | None) -> Outcome | None:
    """Return the outcome that a person's answer gives the call without a run of its tool; None where the call may go
    on. One query."""
    outcome = approvals.answer_of(approval)
    if outcome is None and (spec is None or spec.version_id != approval.tool_version_id):
        return approvals.reversioned() if approvals.is_reversioned(approval) else None
    return outcome


def _may_repeat(spec: ToolSpec | None, step: Step) -> bool:
    """Return whether a call that had begun before a crash may begin again."""
    return spec is not None and spec.envelope.may_repeat and spec.version_id == step.tool_version_id


def _allowed(ready: Prepared, approval: Approval | None, fields: Mapping[str, Any]) -> Prepared | Outcome | None:
    """The call, where nobody has to allow it or somebody did; its answer, where it may not run as it is now; None where
    somebody is asked now: nobody is in a turn that nobody attends. What began before a crash and would be another
    call now has an unknown outcome."""
    has_begun = ready.step.status != StepStatus.PENDING
    if approval is None:
        if not approvals.takes_a_person(ready):
            return ready
        if ready.step.status == StepStatus.WAITING:
            return approvals.refused(TAKES_A_PERSON_NOW)
        if has_begun:
            return execution.outcome_unknown()
        if ready.turn.row.is_unattended:
            return approvals.unanswered(ready)
        return approvals.ask(ready.turn.claim, ready, **fields)
    if has_begun and not approvals.is_of_call(approval, ready):
        return execution.outcome_unknown()
    refused = None if has_begun else approvals.why_not_as_approved(approval, ready)
    return refused or replace(ready, context=(approvals.receipt_of(approval), *ready.context))


def _finish(
    turn: RunningTurn,
    step: Step,
    outcome: Outcome,
    wait: CallWait | None,
    files: Sequence[StepFile],
    *,
    is_task_left: bool,
    secrets: Sequence[str],
) -> None:
    """Store what came of the call. Raises CancelRequested where the turn may not go on behind it."""
    counters = ledger.finish_step(
        turn.claim,
        step,
        outcome.status,
        result=outcome.result,
        result_sent=outcome.result_sent,
        malformed=outcome.malformed,
        untrusted=outcome.untrusted,
        hooked_result=outcome.hooked_result,
        hooks=outcome.hooks,
        structured=outcome.structured,
        promised=outcome.promised,
        files=files,
        waited=wait is not None,
        is_task_left=is_task_left,
        secrets=secrets,
    )
    turn.registry_version = counters["registry"]
    keep_trust(turn.row, counters)
    check_may_start(counters)


def _run(ready: Prepared, wait: CallWait | None) -> Outcome | None:
    """Run a call that has begun, or go on with it; None where it waits now, which is on record then. Notes what signed
    it in the turn's steps. The queries of `credential_for`. Raises as `call_waits.wait_for`."""
    turn, spec, step = ready.turn, ready.spec, ready.step
    left = turn.held.deadline(turn.row.deadline_at) - time.monotonic()
    key = str(uuid5(turn.row.pk, f"{step.round}:{step.call_index}"))
    context = execution.context_for(turn.row, spec, seconds_left=left, idempotency_key=key, step_id=step.pk)
    most = execution.result_cap_of(spec.envelope, turn.model.context_window)
    context = replace(context, max_result_chars=most, resumed=call_waits.resumed_with(wait))
    try:
        credential = credential_for(spec, turn.row.membership_id, at_most=context.timeout)
    except ToolError as error:
        return execution.failure(str(error))
    except LinkNeeded as needed:
        return call_waits.wait_for(turn.claim, ready, wait, needed, None)
    turn.steps.secrets[step.pk] = credential.secrets

    def still_running(seconds: float) -> None:
        with suppress(ledger.LeaseLost):  # whoever holds the turn is told elsewhere
            ledger.write_event(turn.claim, "tool_progress", {"step": step.index, "seconds": round(seconds)})

    with tracing.execute_tool(ready) as span:
        outcome = execution.run_tool(spec, credential, context, ready.arguments, turn.held.stopped, still_running)
        span.fail("" if outcome.waits is not None or outcome.status == StepStatus.DONE else outcome.status)
    if outcome.waits is not None:
        return call_waits.wait_for(turn.claim, ready, wait, outcome.waits, credential.secrets)
    return replace(hooked_outcome(turn, spec, step, ready.arguments, outcome), context=ready.context)


def _resolved_fields(turn: RunningTurn, wanted: ResolvedCall, ready: Prepared | Outcome) -> dict[str, Any]:
    """Return the step's fields beyond the call itself: the version that is called, its line for people, and the tool
    that it was called through."""
    spec, call = wanted.spec, wanted.call
    arguments: dict[str, Any] | Outcome = {}
    if isinstance(ready, Prepared):
        arguments = ready.arguments
    elif spec is not None and execution.has_own_schema(spec):
        arguments = execution.read_arguments(spec, call, turn.row.organisation_id)
    elif spec is not None and spec.human_format:  # a schema from outside is not read for the sake of a line
        arguments = execution.parsed_arguments(spec, call)
    fields: dict[str, Any] = {
        "tool_version_id": spec.version_id if spec else None,
        "display": display(call.name, spec, arguments if isinstance(arguments, dict) else {}),
    }
    if wanted.through:
        fields |= {"tool_name": call.name[:200], "arguments": call.arguments, "called_through": wanted.through}
    if ready.hooks:
        fields["hooks"] = list(ready.hooks)
        if isinstance(ready, Prepared):
            fields["arguments"] = json.dumps(ready.arguments, ensure_ascii=False)
    return fields
