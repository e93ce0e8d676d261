"""The calls of one reply: each is answered exactly once, those that may run side by side, the others with a refusal."""

from __future__ import annotations

import contextvars
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid5

from django.conf import settings
from django.db import connection

from capabilities.contract.envelope import overrides_from
from capabilities.contract.loading import READ_RESULT
from capabilities.contract.spec import ToolSpec
from capabilities.kinds.builtin import display
from capabilities.pipeline.specs import current_specs
from sessions.loop import asking, delegation, execution
from sessions.loop.calls import ResolvedCall, meant
from sessions.loop.connections import release_connection
from sessions.loop.execution import Outcome
from sessions.loop.hooks import hooked_outcome
from sessions.loop.models.errors import CallStopped
from sessions.loop.models.replies import Call
from sessions.loop.preparing import Prepared, prepare
from sessions.loop.steps import Steps
from sessions.loop.stored_results import number_of
from sessions.loop.trust import keep_trust
from sessions.models import Approval, ApprovalStatus, Step, StepStatus, ToolSet, Turn
from sessions.turns import ledger
from sessions.turns.fencing import check_may_start
from sessions.turns.held import Held


def answer_calls(turn: Turn, held: Held, step: Step, steps: Steps, *, at_limit: bool) -> None:
    """Give each call of the reply exactly one answer: those that may run side by side, the others a refusal.

    Raises CancelRequested where the turn was stopped meanwhile, or may not go on.
    """
    known = steps.of_round(step.round)
    if missing := [place for place in range(len(step.tool_calls)) if place not in known]:
        steps.calls += ledger.add_calls(held.claim, step, missing)
        known = steps.of_round(step.round)
    most = 0 if at_limit or step.finish_reason == "length" else int(settings.TOOLHUB_CALLS_PER_ROUND)
    unanswered = [known[place] for place in sorted(known) if known[place].is_unanswered]
    beyond = [each for each in unanswered if each.call_index >= most and each.status == StepStatus.PENDING]
    if beyond:
        outcome = execution.failure(_why_not_run(step, at_limit), status=StepStatus.REFUSED)
        ledger.refuse_steps(held.claim, beyond, outcome.result)
    to_run = [each for each in unanswered if each.is_unanswered]
    if not to_run:
        return

    def answer(call: Step) -> None:
        names = _selected(turn, step.tool_set)  # as they are when this call begins
        try:
            _answer_call(turn, held, step, steps, call, names)
        finally:
            release_connection()

    if len(to_run) == 1:
        answer(to_run[0])
        return
    with ThreadPoolExecutor(min(len(to_run), settings.TOOLHUB_PARALLEL_CALLS), "tool-calls") as pool:
        running = [pool.submit(contextvars.copy_context().run, _closing(answer), each) for each in to_run]
    for each in running:
        each.result()


def _why_not_run(step: Step, at_limit: bool) -> str:
    if at_limit:
        return "Not run: the turn is at its limit of rounds."
    if step.finish_reason == "length":
        return "Not run: the reply was cut off in the middle of the calls. Ask for less at once."
    return f"Not run: only {settings.TOOLHUB_CALLS_PER_ROUND} calls of one reply are run. Ask again for the rest."


def can_read_on(turn: Turn, reply: Step) -> bool:
    """Whether the round of this reply has the tool that reads on in results. Queries as for its calls."""
    return READ_RESULT in _selected(turn, reply.tool_set)


def _selected(turn: Turn, tool_set: ToolSet | None) -> dict[str, ToolSpec]:
    """The round's tools by name, as they are now, under the overrides that they were selected with; one with
    another version since is not among them."""
    if tool_set is None:
        return {}
    found = {}
    for spec in current_specs(tool_set.version_ids, organisation_id=turn.organisation_id, at=turn.registry_version):
        found[spec.name] = spec.overridden(overrides_from(tool_set.overrides.get(str(spec.version_id))))
    return found


def _answer_call(
    turn: Turn,
    held: Held,
    step: Step,
    steps: Steps,
    known: Step,
    names: dict[str, ToolSpec],
) -> None:
    """One call: its intent on record first, then the run, then the outcome. One that is pending is run; one that had
    begun when a worker died is run again only if its tool says that it may."""
    if held.stopped.is_set() or held.deadline(turn.deadline_at) <= time.monotonic():
        raise CallStopped
    has_begun = known.status == StepStatus.STARTED
    if has_begun and Turn.objects.filter(parent_step=known).exists():
        steps.was_delegated = True
        return  # another agent has it
    approval = steps.approvals.get(known.pk)
    if approval is not None and approval.status == ApprovalStatus.PENDING:
        steps.was_asked = True
        return  # a person has it
    raw = step.tool_calls[known.call_index]
    call = Call(raw["id"], raw.get("raw_name", raw["name"]), raw.get("raw_arguments", raw["arguments"]))
    wanted = meant(turn, call, names)
    spec = wanted.spec
    is_delegation = wanted.answer is None and delegation.is_delegation(spec)
    answer = None if approval is None else _answered(approval, spec)
    if has_begun and answer is None and not (is_delegation or _may_repeat(spec, known)):
        _finish(turn, held, known, execution.outcome_unknown())
        return
    ready = answer or _prepared(turn, wanted, known)
    fields = _meant_fields(turn, wanted, ready)
    if isinstance(ready, Prepared):
        if approval is not None and not has_begun:
            ready = asking.why_not_as_approved(approval, ready) or ready
        elif approval is not None and not asking.is_of_call(approval, ready):  # it began as another one
            _finish(turn, held, known, execution.outcome_unknown())
            return
        elif approval is None and asking.takes_a_person(ready):
            if has_begun:  # and asked for only since then
                _finish(turn, held, known, execution.outcome_unknown())
                return
            refused = asking.ask(held.claim, ready, **fields)
            if refused is None:
                steps.was_asked = True
                return
            ready = refused
    if approval is not None and isinstance(ready, Prepared):
        ready = replace(ready, context=(asking.receipt_of(approval), *ready.context))
        fields["approval_id"] = approval.pk
    try:
        if is_delegation and isinstance(ready, Prepared):
            steps.was_delegated = True
            delegation.hand_over(held, ready, **fields)
            return
        if not has_begun:
            ledger.start_step(held.claim, known, **fields)
    except ledger.ApprovalNotUsable:  # used, or out of time, since it was read
        ready = asking.used_up()
        ledger.start_step(held.claim, known, **{**fields, "approval_id": None})
    outcome = _run(held, ready) if isinstance(ready, Prepared) else replace(ready, hooks=())
    if spec is not None:
        number = number_of(turn, known) if READ_RESULT in names else ""
        outcome = execution.capped(outcome, spec, turn.model.context_window, step=number)
    _finish(turn, held, known, outcome)


def _answered(approval: Approval, spec: ToolSpec | None) -> Outcome | None:
    """What a person's answer makes of the call without a run of its tool; None where it may go its way. One query."""
    outcome = asking.answer_of(approval)
    if outcome is None and (spec is None or spec.version_id != approval.tool_version_id):
        return asking.reversioned() if asking.is_reversioned(approval) else None
    return outcome


def _may_repeat(spec: ToolSpec | None, step: Step) -> bool:
    """Whether a call that had begun before a crash may begin again."""
    return spec is not None and spec.envelope.may_repeat and spec.version_id == step.tool_version_id


def _prepared(turn: Turn, wanted: ResolvedCall, step: Step) -> Prepared | Outcome:
    """The call, ready to begin; or its answer without a run."""
    if wanted.answer is not None:
        return wanted.answer
    if wanted.spec is None:
        return execution.inactive(wanted.call.name)
    return prepare(turn, wanted.spec, wanted.call, step)


def _finish(turn: Turn, held: Held, step: Step, outcome: Outcome) -> None:
    """Store what came of the call. Raises CancelRequested where the turn may not go on behind it."""
    counters = ledger.finish_step(
        held.claim,
        step,
        outcome.status,
        result=outcome.result,
        result_sent=outcome.result_sent,
        malformed=outcome.malformed,
        untrusted=outcome.untrusted,
        hooked_result=outcome.hooked_result,
        hooks=outcome.hooks,
    )
    turn.registry_version = counters["registry"]
    keep_trust(turn, counters)
    check_may_start(counters)


def _run(held: Held, ready: Prepared) -> Outcome:
    """Run a call that has begun. One query for the credential of its tool's service, where it needs one."""
    turn, spec, step = ready.turn, ready.spec, ready.step
    left = held.deadline(turn.deadline_at) - time.monotonic()
    key = str(uuid5(turn.pk, f"{step.round}:{step.call_index}"))
    context = execution.context_for(turn, spec, seconds_left=left, idempotency_key=key, step_id=step.pk)
    most = execution.result_cap_of(spec.envelope, turn.model.context_window)
    context = replace(context, max_result_chars=most)
    credential = execution.credential_of(spec)
    release_connection()

    def still_running(seconds: float) -> None:
        with suppress(ledger.LeaseLost):  # whoever holds the turn is told elsewhere
            ledger.write_event(held.claim, "tool_progress", {"step": step.index, "seconds": round(seconds)})
        release_connection()

    outcome = execution.run_tool(spec, credential, context, ready.arguments, held.stopped, still_running)
    return replace(hooked_outcome(turn, spec, step, ready.arguments, outcome), context=ready.context)


def _meant_fields(turn: Turn, wanted: ResolvedCall, ready: Prepared | Outcome) -> dict[str, Any]:
    """What the step says beyond the call itself: the version that is called, in one line, and through what."""
    spec, call = wanted.spec, wanted.call
    arguments: dict[str, Any] | Outcome = {}
    if isinstance(ready, Prepared):
        arguments = ready.arguments
    elif spec is not None and execution.has_own_schema(spec):  # only a tool of our own has more to show than its name
        arguments = execution.read_arguments(spec, call, turn.organisation_id)
    fields: dict[str, Any] = {
        "tool_version_id": spec.version_id if spec else None,
        "display": display(call.name, arguments if isinstance(arguments, dict) else {}),
    }
    if wanted.through:
        fields |= {"tool_name": call.name[:200], "arguments": call.arguments, "called_through": wanted.through}
    if ready.hooks:
        fields["hooks"] = list(ready.hooks)
        if isinstance(ready, Prepared):
            fields["arguments"] = json.dumps(ready.arguments, ensure_ascii=False)
    return fields


def _closing(work: Any) -> Any:
    """The same work, that gives its thread's database connection back at the end."""

    def run(*args: Any) -> None:
        try:
            work(*args)
        finally:
            connection.close()

    return run
