"""Tests of services, models and MCP servers, asked for here with an audit row. A worker makes them (`runs.py`)."""

from __future__ import annotations

from django.db import transaction
from django.db.models.functions import Now

from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import require
from capabilities.models import OPEN_CONNECTION_TESTS, ConnectionTest, LanguageModel, McpServer, Provider
from capabilities.running.services.writes import ShownService
from sessions.turns.bell import ring_for_connection_test
from sessions.turns.fencing import from_now
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Membership, Right

#: Seconds that a test waits for a worker.
QUEUE_SECONDS = 60.0
#: Tests of one organisation that are open at the same time.
MAX_OPEN = 5


def request_service_test(service: ShownService, *, actor: Membership) -> ConnectionTest:
    """Put a test on record and call for a worker; one that is open already is returned as it is.

    Raises ChangeRefused for a service that is not set up, or that has nothing to ask for.
    """
    require(actor, Right.CATALOGUE)
    if service.state != "ready":
        raise ChangeRefused("service", f"{service.title} must be set up before it can be tested.", code="conflict")
    if service.spec.test is None:
        raise ChangeRefused("service", f"{service.title} cannot be tested.", code="conflict")
    return _request(ConnectionTest(service=service.name), actor=actor)


def request_model_test(model: LanguageModel, *, actor: Membership) -> ConnectionTest:
    """Ask for a test of a model: its provider's list is read, and it is sent one short message with one tool. Raises
    PermissionDenied without the right `providers`, and ChangeRefused where too many tests are open."""
    require(actor, Right.PROVIDERS)
    return _request(ConnectionTest(language_model=model), actor=actor)


def request_provider_test(provider: Provider, *, actor: Membership) -> ConnectionTest:
    """Ask for a test of a provider: its list of models is read. Nothing is sent to a model. Raises as
    `request_model_test` does."""
    require(actor, Right.PROVIDERS)
    return _request(ConnectionTest(provider=provider), actor=actor)


def request_server_test(server: McpServer, *, actor: Membership) -> ConnectionTest:
    """Ask for a test of an MCP server: its list of tools is read, with the actor's account where each member has an own
    one. Nothing of it is written down but what the test found. Raises ChangeRefused for one that is switched off."""
    require(actor, Right.CATALOGUE)
    if not server.is_enabled:
        raise ChangeRefused("server", f"{server.title} is switched off: switch it on first.", code="conflict")
    return _request(ConnectionTest(server=server), actor=actor)


@transaction.atomic
def _request(test: ConnectionTest, *, actor: Membership) -> ConnectionTest:
    hold_organisation(actor.organisation_id)
    same = ConnectionTest.objects.filter(
        service=test.service, language_model=test.language_model, provider=test.provider, server=test.server
    )
    still_open = ConnectionTest.objects.filter(status__in=OPEN_CONNECTION_TESTS, deadline_at__gt=Now())
    earlier = (same & still_open).first()
    if earlier is not None:
        return earlier
    if still_open.count() >= MAX_OPEN:
        raise ChangeRefused("test", f"{MAX_OPEN} tests have not ended yet: wait for one of them.", code="conflict")
    same.delete()
    test.organisation_id, test.membership = actor.organisation_id, actor
    test.deadline_at, test.rang_at = from_now(QUEUE_SECONDS), Now()
    test.save()
    test.refresh_from_db()
    kinds = {"service": test.service, "model": test.language_model, "server": test.server, "provider": test.provider}
    kind = next(name for name, tested in kinds.items() if tested)
    record("connection.test", test, actor=actor, after={kind: str(test)})
    transaction.on_commit(lambda: ring_for_connection_test(test.public_id))
    return test
