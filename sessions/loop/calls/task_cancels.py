"""Long tasks of far sides that nobody waits for any more: each far side is asked once to stop, as far as it can be."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from dataclasses import replace
from uuid import uuid5

from django.db.models.functions import Now

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.context import CallWaits, Resumed, ToolError
from capabilities.running.credentials.signing import credential_for
from sessions.loop.tools import execution
from sessions.models import CallWait
from toolhub.tenants.rows.scope import organisation_scope, system_scope

logger = logging.getLogger(__name__)

#: Rows that one sweep takes up, and seconds that a far side has to hear of it.
AT_ONCE = 20
SECONDS = 20.0


def asked_for() -> list[int]:
    """Return the keys of the waits whose far side is still to be asked to stop, the oldest first. One query."""
    with system_scope():
        rows = CallWait.objects.filter(cancel_requested_at__isnull=False, cancel_requested_at__lte=Now())
        return list(rows.order_by("cancel_requested_at").values_list("pk", flat=True)[:AT_ONCE])


def cancel_task(wait_id: int) -> None:
    """Ask the far side to stop, if no other worker did: the worker that removes the row sends the request. It is sent
    once, and its answer is not read; where the tool has another version by now, or the credential of the call is gone,
    nothing is sent."""
    with system_scope():
        rows = CallWait.objects.select_related("step", "turn__agent", "turn__session")
        wait = rows.filter(pk=wait_id, cancel_requested_at__isnull=False).first()
        if wait is None or not CallWait.objects.filter(pk=wait_id).delete()[0]:
            return
    with organisation_scope(wait.organisation_id):
        turn, step = wait.turn, wait.step
        found = current_specs([step.tool_version_id]) if step.tool_version_id else []
        if not found or not found[0].is_enabled or found[0].quarantine:
            return
        key = str(uuid5(turn.pk, f"{step.round}:{step.call_index}"))
        context = execution.context_for(turn, found[0], seconds_left=SECONDS, idempotency_key=key, step_id=step.pk)
        context = replace(context, resumed=Resumed(wait.state, "cancel"))
        with suppress(CallWaits, ToolError, ValueError):
            credential = credential_for(found[0], turn.membership_id, at_most=SECONDS)
            arguments = json.loads(step.arguments or "{}")
            execution.run_tool(found[0], credential, context, arguments, threading.Event())
