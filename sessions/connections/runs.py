"""Runs of tests of services and models in a worker: one call that only reads, and what it came to."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.common.secrets import SecretUnreadable
from capabilities.common.text import storable
from capabilities.contract.context import ToolContext
from capabilities.models import ConnectionStatus, ConnectionTest, LanguageModel
from capabilities.providers.resolve import resolve_model
from capabilities.registry import registry
from capabilities.services.writes import secrets_of, service_values
from sessions.loop.batch import release_connection
from sessions.loop.execution import masked_in, run_bounded
from sessions.loop.models.asking import Asking, Question
from sessions.loop.models.client import CallStopped, ModelError
from sessions.models import StepStatus
from sessions.turns.fencing import from_now
from toolhub.tenants.models import Right
from toolhub.tenants.scope import organisation_scope, system_scope

#: Seconds that the call of a test may take, and beyond it those in which a worker writes the result down.
CALL_SECONDS = 30.0
GRACE = 15.0
#: Characters of the reason, and rows that one sweep takes up.
MAX_REASON = 500
AT_ONCE = 100
QUESTION = "Answer with the word OK and nothing else."
NOT_TAKEN = "No worker took the test in time. Try again."
NO_RESULT = "The worker stopped before there was a result. Try again."
NO_RIGHT = "The member who asked for the test may not test it any more."
UNREADABLE = "The stored values cannot be read any more. Enter them again."


def run_connection_test(public_id: UUID) -> None:
    """Claim the test, if it is free, and make it. What is changed meanwhile has taken its row away, and its result."""
    with system_scope():
        tests = ConnectionTest.objects.select_related("membership", "language_model__provider")
        tests = tests.defer("language_model__provider__api_key")
        test = tests.filter(public_id=public_id).first()
        free = ConnectionTest.objects.filter(public_id=public_id, status=ConnectionStatus.QUEUED, deadline_at__gt=Now())
        deadline = from_now(CALL_SECONDS + GRACE)
        if test is None or not free.update(status=ConnectionStatus.RUNNING, deadline_at=deadline):
            return
    with organisation_scope(test.organisation_id):
        reason = _reason_of_failure(test)
        ConnectionTest.objects.filter(pk=test.pk, status=ConnectionStatus.RUNNING).update(
            status=ConnectionStatus.FAILED if reason else ConnectionStatus.WORKS,
            reason=storable(reason, MAX_REASON),
            ended_at=Now(),
        )


def sweep() -> None:
    """End what nobody will. Safe in any number of workers at once."""
    late = Q(deadline_at__lt=Now(), ended_at=None)
    with system_scope():
        for status, reason in ((ConnectionStatus.QUEUED, NOT_TAKEN), (ConnectionStatus.RUNNING, NO_RESULT)):
            ConnectionTest.objects.filter(late, status=status).update(
                status=ConnectionStatus.FAILED, reason=reason, ended_at=Now()
            )


def unrung(after: float) -> list[UUID]:
    """Tests that no worker was called for in these last seconds; they count as called for from now on."""
    quiet = Q(rang_at=None) | Q(rang_at__lt=from_now(-after))
    with system_scope():
        free = ConnectionTest.objects.filter(quiet, status=ConnectionStatus.QUEUED, ended_at=None).order_by(
            "created_at", "pk"
        )
        found = list(free.values_list("public_id", flat=True)[:AT_ONCE])
        if not found:
            return []
        with transaction.atomic():
            return [
                each for each in found if ConnectionTest.objects.filter(quiet, public_id=each).update(rang_at=Now())
            ]


def _reason_of_failure(test: ConnectionTest) -> str:
    """Why it does not work, in a sentence without secrets; "" where it works."""
    right = Right.CATALOGUE if test.service else Right.PROVIDERS
    if not test.membership.has_right(right):
        return NO_RIGHT
    try:
        return _service_reason(test) if test.service else _model_reason(test)
    except SecretUnreadable:
        return UNREADABLE


def _service_reason(test: ConnectionTest) -> str:
    spec = registry.services.get(test.service)
    if spec is None or spec.test is None:
        return "This version does not know the service any more."
    values = service_values(spec)
    context = ToolContext(
        organisation_id=test.organisation_id,
        membership_id=test.membership_id,
        agent="",
        workspace=Path(settings.WORKSPACES_DIR) / str(test.organisation_id),
        now=timezone.now,
        timeout=CALL_SECONDS,
        service=values,
    )
    call = spec.test
    release_connection()
    outcome = run_bounded(
        f"test of {spec.name}",
        lambda: call(context),
        context,
        threading.Event(),
        is_read=True,
        secrets=secrets_of(spec, values),
    )
    if outcome.status == StepStatus.DONE:
        return ""
    return str(json.loads(outcome.result)["error"])


def _model_reason(test: ConnectionTest) -> str:
    model = LanguageModel.objects.select_related("provider").get(connection_tests=test)
    try:
        question = Question(resolve_model(model), [{"role": "user", "content": QUESTION}])
        release_connection()
        Asking(question, threading.Event(), time.monotonic() + CALL_SECONDS, options={"tries": 1}).run()
    except ModelError as error:
        return masked_in(str(error), [model.provider.api_key] if model.provider.api_key else [])
    except CallStopped:
        return f"The provider did not answer within {CALL_SECONDS:g} seconds."
    return ""
