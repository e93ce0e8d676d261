"""The calls of one reply: each is answered exactly once, those that may run side by side, the others with a refusal."""

from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.db import connection

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.envelope import overrides_from
from capabilities.contract.loading import READ_RESULT
from capabilities.contract.spec import ToolSpec
from sessions.loop.calls.one_call import answer_call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.model_calls.client_requests import left_to_client
from sessions.loop.tools import execution
from sessions.models import Step, StepStatus, ToolSet
from sessions.turns import ledger
from sessions.turns.masking import mask_reply


def answer_calls(turn: RunningTurn, step: Step, *, at_limit: bool) -> list[Step]:
    """Give each call of the reply exactly one answer: those that may run side by side, the others a refusal. Returns
    the calls that are the client's to run: nothing is done about these.

    Raises CancelRequested where the turn was stopped meanwhile, or may not go on.
    """
    steps = turn.steps
    known = steps.of_round(step.round)
    if missing := [place for place in range(len(step.tool_calls)) if place not in known]:
        steps.calls += ledger.add_calls(turn.claim, step, missing)
        known = steps.of_round(step.round)
    most = 0 if at_limit or step.finish_reason == "length" else int(settings.TOOLHUB_CALLS_PER_ROUND)
    left = left_to_client(turn.row, step, (known[place] for place in sorted(known)))
    unanswered = [known[place] for place in sorted(known) if known[place].is_unanswered and known[place] not in left]
    beyond = [each for each in unanswered if each.call_index >= most and each.status == StepStatus.PENDING]
    if beyond:
        outcome = execution.failure(_why_not_run(step, at_limit), status=StepStatus.REFUSED)
        ledger.refuse_steps(turn.claim, beyond, outcome.result)
    to_run = [each for each in unanswered if each.is_unanswered]
    if not to_run:
        return left

    def answer(call: Step) -> None:
        names = _selected(turn, step.tool_set)  # as they are when this call begins
        answer_call(turn, step, call, names)

    if len(to_run) == 1:
        answer(to_run[0])
        return left
    with ThreadPoolExecutor(min(len(to_run), settings.TOOLHUB_PARALLEL_CALLS), "tool-calls") as pool:
        running = [pool.submit(contextvars.copy_context().run, _closing(answer), each) for each in to_run]
    for each in running:
        each.result()
    return left


def _why_not_run(step: Step, at_limit: bool) -> str:
    if at_limit:
        return "Not run: the turn is at its limit of rounds."
    if step.finish_reason == "length":
        return "Not run: the reply was cut off in the middle of the calls. Ask for less at once."
    return f"Not run: only {settings.TOOLHUB_CALLS_PER_ROUND} calls of one reply are run. Ask again for the rest."


def mask_calls(turn: RunningTurn, reply: Step) -> None:
    """Mask the secrets in the arguments of a reply whose calls are answered, or left to the client, before it goes back
    to the model. Queries and errors as `mask_reply`."""
    calls = turn.steps.of_round(reply.round).values()
    mask_reply(turn.claim, reply, calls, turn.steps.secrets, membership_id=turn.row.membership_id)


def can_read_on(turn: RunningTurn, reply: Step) -> bool:
    """Return whether the round of this reply has the tool that reads on in results. Queries as for its calls."""
    return READ_RESULT in _selected(turn, reply.tool_set)


def _selected(turn: RunningTurn, tool_set: ToolSet | None) -> dict[str, ToolSpec]:
    """The round's tools by name, those too that the provider searches, as they are now, under the overrides that they
    were selected with; one with another version since is not among them."""
    if tool_set is None:
        return {}
    found, at = {}, turn.registry_version
    for spec in current_specs(tool_set.callable_ids, organisation_id=turn.row.organisation_id, at=at):
        found[spec.name] = spec.overridden(overrides_from(tool_set.overrides.get(str(spec.version_id))))
    return found


def _closing(work: Any) -> Any:
    """Wrap this work so that it gives its thread's database connection back at the end."""

    def run(*args: Any) -> None:
        try:
            work(*args)
        finally:
            connection.close()

    return run
