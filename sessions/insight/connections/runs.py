"""Runs of tests of services, models and MCP servers in a worker: what only reads, and what it came to."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.catalogue.servers.tool_lists import ServerNotRead, ask_for_tools
from capabilities.common.queued_rows import claim_unrung
from capabilities.common.secrets import SecretUnreadable
from capabilities.common.text import storable
from capabilities.contract.context import ToolContext
from capabilities.contract.masking import masked_in
from capabilities.language_models.providers.learning import learn
from capabilities.language_models.providers.lessons import Lesson
from capabilities.language_models.providers.listings import note_listed
from capabilities.language_models.providers.resolve import resolve_model, resolve_provider
from capabilities.language_models.providers.vendors import vendor_of
from capabilities.models import ConnectionStatus, ConnectionTest, LanguageModel, McpServer, Provider
from capabilities.running.registry import registry
from capabilities.running.services.writes import secrets_of, service_values
from sessions.insight.connections.findings import (
    QUESTION,
    TOOLS,
    Check,
    Listing,
    Result,
    checks_of_listing,
    checks_of_model,
    checks_of_reply,
)
from sessions.loop.clients.attempts import Asking, Question
from sessions.loop.clients.errors import CallStopped, ModelError
from sessions.loop.clients.exchange import read_models
from sessions.loop.clients.listing import listed_models
from sessions.loop.clients.transport import endpoint_of_provider
from sessions.loop.tools.execution import run_bounded
from sessions.models import StepStatus
from sessions.turns.fencing import from_now
from toolhub.durations import duration
from toolhub.tenants.models import Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

#: Seconds that a provider's list of models and the call of a test may take, and beyond them those in which a worker
#: writes the result down.
LIST_SECONDS = 15.0
CALL_SECONDS = 30.0
GRACE = 15.0
#: Characters of the reason, and rows that one sweep takes up.
MAX_REASON = 500
AT_ONCE = 100
NOT_TAKEN = "No worker took the test in time. Try again."
NO_RESULT = "The worker stopped before there was a result. Try again."
NO_RIGHT = "The member who asked for the test may not test it any more."
UNREADABLE = "The stored values cannot be read any more. Enter them again."


def run_connection_test(public_id: UUID) -> None:
    """Claim the test, if it is free, and make it. What is changed meanwhile has taken its row away, and its result."""
    with system_scope():
        tests = ConnectionTest.objects.select_related("membership")
        test = tests.filter(public_id=public_id).first()
        free = ConnectionTest.objects.filter(public_id=public_id, status=ConnectionStatus.QUEUED, deadline_at__gt=Now())
        deadline = from_now(LIST_SECONDS + CALL_SECONDS + GRACE)
        if test is None or not free.update(status=ConnectionStatus.RUNNING, deadline_at=deadline):
            return
    with organisation_scope(test.organisation_id):
        result = _result_of(test)
        ConnectionTest.objects.filter(pk=test.pk, status=ConnectionStatus.RUNNING).update(
            status=ConnectionStatus.FAILED if result.reason else ConnectionStatus.WORKS,
            reason=storable(result.reason, MAX_REASON),
            findings=result.findings(),
            ended_at=Now(),
        )


def sweep() -> None:
    """End tests that no worker took or ended in time. Safe in any number of workers at once."""
    late = Q(deadline_at__lt=Now(), ended_at=None)
    with system_scope():
        for status, reason in ((ConnectionStatus.QUEUED, NOT_TAKEN), (ConnectionStatus.RUNNING, NO_RESULT)):
            ConnectionTest.objects.filter(late, status=status).update(
                status=ConnectionStatus.FAILED, reason=reason, ended_at=Now()
            )


def unrung(after: float) -> list[UUID]:
    """Tests that no worker was called for in these last seconds; they count as called for from now on."""
    return claim_unrung(ConnectionTest, ConnectionStatus.QUEUED, after, at_once=AT_ONCE)


def _result_of(test: ConnectionTest) -> Result:
    """Run the test, and return its result, in sentences without secrets."""
    right = Right.CATALOGUE if test.service or test.server_id else Right.PROVIDERS
    if not test.membership.has_right(right):
        return Result(NO_RIGHT)
    try:
        if test.service:
            return Result(_service_reason(test))
        if test.server_id:
            return _test_server(test)
        return _test_model(test) if test.language_model_id else _test_provider(test)
    except SecretUnreadable:
        return Result(UNREADABLE)


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


def _test_server(test: ConnectionTest) -> Result:
    """Read the server's list of tools. What is in it is for the test alone: reading it for review is another thing."""
    server = McpServer.objects.select_related("credential", "organisation").get(connection_tests=test)
    try:
        listing = ask_for_tools(server, test.membership, seconds=CALL_SECONDS)
    except ServerNotRead as error:
        return Result(str(error), page=error.url)
    return Result(checks=checks_of_listing(listing))


def _test_provider(test: ConnectionTest) -> Result:
    """Read the provider's list of models, for people to choose from."""
    provider = Provider.objects.get(connection_tests=test)
    listing = _listing(provider)
    if not listing.reason and not listing.models:
        return Result("The provider lists no models. Add them by their names.")
    note_listed(provider, listing.names)
    return Result(listing.reason, models=[model for model in listing.models if model.is_for_chat])


def _test_model(test: ConnectionTest) -> Result:
    """The provider's list is read, and one call made with one tool; what refusals teach on the way is kept."""
    model = LanguageModel.objects.select_related("provider").get(connection_tests=test)
    resolved, lessons, answered = resolve_model(model), list[Lesson](), ""
    listing = _listing(model.provider)
    question = Question(resolved, [{"role": "user", "content": QUESTION}], TOOLS)
    asking = Asking(
        question, threading.Event(), time.monotonic() + CALL_SECONDS, on_lesson=lessons.append, options={"tries": 1}
    )
    try:
        reply = asking.run()
    except ModelError as error:
        reason, checks = _without_key(error, model.provider), list[Check]()
    except CallStopped:
        reason, checks = f"The provider did not answer within {duration(CALL_SECONDS)}.", []
    else:
        reason, answered, checks = "", model.name, checks_of_reply(reply, resolved)
    for lesson in lessons:
        learn(resolved.public_id, lesson)
    note_listed(model.provider, listing.names, answered=answered)
    return Result(reason, [*checks, *checks_of_model(asking.question.model, lessons, listing)])


def _listing(provider: Provider) -> Listing:
    try:
        endpoint = endpoint_of_provider(resolve_provider(provider))
        return Listing(listed_models(read_models(endpoint, LIST_SECONDS), vendor_of(provider.base_url)))
    except ModelError as error:
        return Listing(reason=_without_key(error, provider))


def _without_key(error: ModelError, provider: Provider) -> str:
    return masked_in(str(error), [provider.api_key] if provider.api_key else [])
