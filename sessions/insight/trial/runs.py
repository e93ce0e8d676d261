"""Runs of a tool by hand, as a worker does them: claimed once, checked again, never run a second time."""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from capabilities.choosing.pipeline.runtime_layers import in_force, layers_for
from capabilities.choosing.pipeline.specs import current_specs, specs
from capabilities.common.queued_rows import claim_unrung
from capabilities.contract.context import LinkNeeded, ToolError
from capabilities.contract.masking import masked_json
from capabilities.models import Tool
from capabilities.running.credentials.signing import credential_for, secrets_for
from sessions.loop.calls.approvals import why_not_by_hand
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import StepStatus, TrialRun, TrialStatus
from sessions.turns.fencing import from_now
from toolhub.tenants.models import Access
from toolhub.tenants.rows.scope import organisation_scope, system_scope

#: The window that a result is capped for: a small model's, so that nothing is hidden that a model would not see.
CONTEXT_WINDOW = 32_000
#: Seconds beyond the tool's own time in which a worker writes the result down.
GRACE = 30.0
#: Seconds that a run is kept once it has ended, and rows that one sweep takes up.
KEPT = 86_400.0
AT_ONCE = 100
NOT_TAKEN = "Not run: no worker took it in time. Try again."
CHANGED = "Not run: the tool was changed since. Look at it and try again."
NO_MEMBER = "Not run: your access no longer allows it."


def run_trial(public_id: UUID) -> None:
    """Claim the run, if it is free, and do it as its member, whose rights are asked for again."""
    run = _claim(public_id)
    if run is None:
        return
    with organisation_scope(run.organisation_id):
        outcome = _outcome(run)
        TrialRun.objects.filter(pk=run.pk, status=TrialStatus.RUNNING).update(
            status=TrialStatus(outcome.status.value),
            arguments=_masked_arguments(run),
            result=outcome.result_sent,
            result_chars=len(outcome.result),
            ended_at=Now(),
        )


def sweep() -> None:
    """End runs that were not taken, or whose worker is gone. Forget what ended a day ago. Safe in any number of workers
    at once."""
    late = Q(deadline_at__lt=Now(), ended_at=None)
    with system_scope():
        TrialRun.objects.filter(late, status=TrialStatus.QUEUED).update(
            status=TrialStatus.EXPIRED, result=NOT_TAKEN, result_chars=len(NOT_TAKEN), ended_at=Now()
        )
        TrialRun.objects.filter(late, status=TrialStatus.RUNNING).update(
            status=TrialStatus.UNKNOWN, result=OUTCOME_UNKNOWN, result_chars=len(OUTCOME_UNKNOWN), ended_at=Now()
        )
        old = list(TrialRun.objects.filter(ended_at__lt=from_now(-KEPT)).values_list("pk", flat=True)[:AT_ONCE])
        if old:
            TrialRun.objects.filter(pk__in=old).delete()


def unrung(after: float) -> list[UUID]:
    """Runs that no worker was called for in these last seconds; they count as called for from now on."""
    return claim_unrung(TrialRun, TrialStatus.QUEUED, after, at_once=AT_ONCE)


def _claim(public_id: UUID) -> TrialRun | None:
    """The run, if this call took it: one conditional UPDATE decides, and nobody takes it a second time."""
    with system_scope():
        runs = TrialRun.objects.select_related("membership", "tool_version__tool")
        run = runs.filter(public_id=public_id).first()
        if run is None:
            return None
        taken = TrialRun.objects.filter(pk=run.pk, status=TrialStatus.QUEUED, deadline_at__gt=Now()).update(
            status=TrialStatus.RUNNING, deadline_at=from_now(run.tool_version.timeout + GRACE)
        )
        return run if taken else None


def _masked_arguments(run: TrialRun) -> str:
    """The arguments without the secrets that sign the member's calls of the tool. Two queries or three."""
    found = specs(Tool.objects.filter(versions=run.tool_version_id))
    return masked_json(run.arguments, secrets_for(found[0], run.membership_id)) if found else run.arguments


def _outcome(run: TrialRun) -> Outcome:
    specs = current_specs([run.tool_version_id])
    if not specs:
        return execution.failure(CHANGED, status=StepStatus.REFUSED)
    spec = in_force(specs[0], layers_for(run.organisation_id))
    member = run.membership
    if not member.has_access(Access.MEMBER):
        return execution.failure(NO_MEMBER, status=StepStatus.REFUSED)
    refused = execution.refusal_to(member.pk, spec)
    if refused is not None:
        return refused
    arguments = execution.read_arguments(spec, Call("", spec.name, run.arguments), run.organisation_id)
    if isinstance(arguments, Outcome):
        return arguments
    if spec.envelope.timeout > run.tool_version.timeout:
        TrialRun.objects.filter(pk=run.pk).update(deadline_at=from_now(spec.envelope.timeout + GRACE))
    if why := why_not_by_hand(run.organisation_id, member.pk, spec, arguments):
        return execution.failure(why, status=StepStatus.REFUSED)
    context = execution.context_of(spec, run.organisation_id, member.pk)
    context = replace(context, idempotency_key=str(run.public_id))
    try:
        credential = credential_for(spec, member.pk, at_most=context.timeout)
    except ToolError as error:
        return execution.failure(str(error))
    except LinkNeeded as needed:
        return execution.waiting_outcome(needed)
    outcome = execution.run_tool(spec, credential, context, arguments, threading.Event())
    return execution.capped(outcome, spec, CONTEXT_WINDOW)
