"""A tool run by hand: the same checks, deadline, cap and masks as a call of a turn, and an audit row of its own."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from uuid import uuid4

from django.db import transaction
from django.http import Http404

from capabilities.active import ToolSpec, current_specs
from capabilities.models import Tool
from sessions import execution
from sessions.execution import Outcome
from sessions.models import StepStatus
from sessions.replies import Call
from sessions.text import storable
from toolhub.tenants.audit import record
from toolhub.tenants.models import Membership

#: The window that a result is capped for: a small model's, so that nothing is hidden that a model would not see.
CONTEXT_WINDOW = 32_000
#: Characters of the arguments that the audit keeps.
MAX_TOLD = 4_000


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
    """Four queries."""
    tool = Tool.objects.select_related("category").filter(name=name, current_version__isnull=False).first()
    specs = current_specs([tool.current_version_id]) if tool and tool.current_version_id else []
    if tool is None or not specs:
        raise Http404("No such tool.")
    return Trial(tool, specs[0], execution.refusal_to(member.pk, specs[0]))


def try_tool(trial: Trial, arguments_text: str, *, actor: Membership) -> Outcome:
    """Run it as this member. The audit row is written before the run: a tool that breaks the service is on record."""
    spec = trial.spec
    refused = execution.refusal_to(actor.pk, spec)
    if refused is not None:
        return refused
    arguments = execution.read_arguments(spec, Call("", spec.name, arguments_text), actor.organisation_id)
    if isinstance(arguments, Outcome):
        return arguments
    context = execution.context_of(spec, actor.organisation_id, actor.pk)
    context = replace(context, idempotency_key=str(uuid4()))
    told = execution.masked_in(json.dumps(arguments, ensure_ascii=False), context.secrets)
    with transaction.atomic():
        after = {"arguments": storable(told, MAX_TOLD), "effect": spec.effect}
        record("tool.try", trial.tool, actor=actor, after=after)
    outcome = execution.run_tool(spec, context, arguments, threading.Event())
    return execution.capped(outcome, spec, CONTEXT_WINDOW)


def is_good(outcome: Outcome) -> bool:
    return outcome.status == StepStatus.DONE
