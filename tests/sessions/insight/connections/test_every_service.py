"""Every Test button, pressed once against a service that answers and once against one that does not take the call."""

from __future__ import annotations

import pytest

from capabilities.models import ConnectionTest
from capabilities.running.registry import registry
from capabilities.running.services.writes import save_service, shown_service_or_404
from sessions.insight.connections.runs import run_connection_test
from sessions.insight.connections.writes import request_service_test
from tests.sessions.loop.test_every_tool import Surroundings, world
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["world"]

pytestmark = pytest.mark.django_db(transaction=True)

#: Nobody listens there.
CLOSED = "http://127.0.0.1:9"
#: What is wrong in what was set up, where it is not the address.
WRONG = {
    "sql_database": {"url": "sqlite:////missing/shop.sqlite3"},
    "github": {"token": "ghp_wrong"},
    "aws": {"endpoint_url": CLOSED},
    "home_assistant": {"token": "wrong"},
    "smtp": {"port": "9"},
    "web_push": {"contact": "nobody"},
    "nextcloud": {"password": "wrong"},
    "open_meteo": {"base_url": CLOSED, "geocoding_url": CLOSED},
}


def results_of_tests(alice: Membership, services: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    """Status and reason by service, each set up and tested."""
    found = {}
    with organisation_scope(alice.organisation):
        for name, values in services.items():
            save_service(registry.services[name], values, actor=alice)
            test = request_service_test(shown_service_or_404(alice.organisation, name), actor=alice)
            run_connection_test(test.public_id)
            found[name] = ConnectionTest.objects.values_list("status", "reason").get(service=name)
    return found


def test_every_service_that_answers_works(alice: Membership, world: Surroundings) -> None:
    tested = {name for name, spec in registry.services.items() if spec.is_available and spec.test is not None}

    assert results_of_tests(alice, world.services) == dict.fromkeys(tested, ("works", ""))


def test_every_service_that_does_not_take_the_call_says_why(
    alice: Membership,
    world: Surroundings,
) -> None:
    wrong = {name: values | WRONG.get(name, {"base_url": CLOSED}) for name, values in world.services.items()}

    results = results_of_tests(alice, wrong)

    assert {name for name, (status, _) in results.items() if status != "failed"} == set()
    unclear = {name: reason for name, (_, reason) in results.items() if not reason or "The tool failed (" in reason}
    assert unclear == {}
    assert not any("404" in reason for _, reason in results.values()), "the call itself is wrong"
    assert not any("wrong" in reason for _, reason in results.values()), "a secret is in a reason"
