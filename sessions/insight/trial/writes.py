"""A tool run by hand: asked for here, with an audit row, and run by a worker.

The checks, the deadline, the cap and the masks are those of a call of a turn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db import transaction
from django.db.models.functions import Now
from django.http import Http404
from django.shortcuts import get_object_or_404

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.common.text import storable
from capabilities.contract.masking import masked_json
from capabilities.contract.spec import ToolSpec
from capabilities.models import Tool
from capabilities.running.credentials.signing import secrets_for
from sessions.loop.clients.replies import Call
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import OPEN_TRIALS, StepStatus, TrialRun
from sessions.turns.bell import ring_for_trial
from sessions.turns.fencing import from_now
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Membership

#: Seconds that a run waits for a worker, and runs of one member that are open at the same time.
QUEUE_SECONDS = 60.0
MAX_OPEN = 5
TOO_MANY = f"Not run: {MAX_OPEN} of your runs have not ended yet. Wait for one of them."
#: Runs of one organisation that are open at the same time.
MAX_OPEN_OF_ORGANISATION = 30
TOO_MANY_OF_ORGANISATION = (
    f"Not run: {MAX_OPEN_OF_ORGANISATION} runs of your organisation have not ended yet. Try again in a moment."
)
#: Characters of the arguments that the audit keeps.
MAX_RECORDED = 4_000


@dataclass(frozen=True)
class Trial:
    """A tool that may be tried, at its current version; `refused` is why this member may not run it now."""

    tool: Tool
    spec: ToolSpec
    refused: Outcome | None

    @property
    def why_not(self) -> str:
        """The refusal as a sentence, or nothing."""
        return str(json.loads(self.refused.result)["error"]) if self.refused else ""


def trial_or_404(member: Membership, name: str) -> Trial:
    """Return the tool of this name, as the member may try it. Four queries. Raises Http404 where no version of such a
    tool is in force."""
    tool = Tool.objects.select_related("category").filter(name=name, current_version__isnull=False).first()
    specs = current_specs([tool.current_version_id]) if tool and tool.current_version_id else []
    if tool is None or not specs:
        raise Http404("No such tool.")
    return Trial(tool, specs[0], execution.refusal_to(member.pk, specs[0]))


def request_trial(trial: Trial, arguments_text: str, *, actor: Membership) -> TrialRun | Outcome:
    """Put a run of the tool by this member on record, with its audit row, and call for a worker; or the answer right
    away, where it is not permitted or its arguments do not fit."""
    spec = trial.spec
    refused = execution.refusal_to(actor.pk, spec)
    if refused is not None:
        return refused
    arguments = execution.read_arguments(spec, Call("", spec.name, arguments_text), actor.organisation_id)
    if isinstance(arguments, Outcome):
        return arguments
    text = json.dumps(arguments, ensure_ascii=False)
    masked = masked_json(text, secrets_for(spec, actor.pk))
    with transaction.atomic():
        hold_organisation(actor.organisation_id)
        open_runs = TrialRun.objects.filter(status__in=OPEN_TRIALS)
        if open_runs.filter(membership=actor).count() >= MAX_OPEN:
            return execution.failure(TOO_MANY, status=StepStatus.REFUSED)
        if open_runs.count() >= MAX_OPEN_OF_ORGANISATION:
            return execution.failure(TOO_MANY_OF_ORGANISATION, status=StepStatus.REFUSED)
        run = TrialRun.objects.create(
            organisation_id=actor.organisation_id,
            membership=actor,
            tool_version_id=spec.version_id,
            arguments=text,
            deadline_at=from_now(QUEUE_SECONDS),
            rang_at=Now(),
        )
        after = {"arguments": storable(masked, MAX_RECORDED), "effect": spec.effect}
        record("tool.try", trial.tool, actor=actor, after=after)
        transaction.on_commit(lambda: ring_for_trial(run.public_id))
    return run


def trial_run_or_404(member: Membership, name: str, public_id: str) -> TrialRun:
    """Return a run of this tool that the member asked for. Raises Http404 where there is no such one. One query."""
    runs = TrialRun.objects.select_related("tool_version__tool").filter(membership=member)
    return get_object_or_404(runs, public_id=public_id, tool_version__tool__name=name)
