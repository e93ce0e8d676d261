"""Private hosts are open for the purpose that the operator named, and for the organisation."""

from __future__ import annotations

import ast
import logging

import pytest
from pytest_django import Settings

from capabilities.running.egress import EgressRefused, Guard, Purpose, allowed_host, fetch, guarded_client, is_listed
from capabilities.running.egress.guard import warn_of_open_hosts
from tests.capabilities.running.egress.servers import say, serve
from tests.paths import ROOT
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

PRIVATE = "10.1.2.3"


def opens(purpose: Purpose) -> bool:
    try:
        Guard(purposes=(purpose,), ports=None).check(PRIVATE, PRIVATE, 8080)
    except EgressRefused:
        return False
    return True


@pytest.mark.parametrize(
    ("entry", "purposes"),
    [
        ("10.0.0.0/8", {"provider"}),
        ("provider:10.0.0.0/8", {"provider"}),
        ("tool:10.0.0.0/8", {"tool"}),
        ("TOOL:10.1.2.3:8080", {"tool"}),
        ("tool:10.1.2.3:8081", set()),
        ("mcp:10.1.2.3", {"mcp"}),
    ],
)
def test_a_private_host_is_open_for_its_purpose_alone(settings: Settings, entry: str, purposes: set[str]) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = [entry]

    assert {str(each) for each in Purpose if opens(each)} == purposes
    assert is_listed(f"http://{PRIVATE}:8080/", (Purpose.TOOL,)) is ("tool" in purposes)


@pytest.mark.parametrize("entry", ["tool:", "tool@:10.0.0.1", "tool@a_b:10.0.0.1", "other:10.0.0.0/8", "mcp:a..b"])
def test_an_entry_that_is_none_is_refused(entry: str) -> None:
    assert allowed_host(entry) is None


def test_a_host_may_be_called_like_a_purpose() -> None:
    found = allowed_host("tool:8080")

    assert found is not None
    assert (found.name, found.port, found.purpose, found.names_purpose) == ("tool", 8080, Purpose.PROVIDER, False)


def test_an_ipv6_host_takes_a_purpose(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:[fd00::5]:8080", "mcp:fd00::/8"]

    Guard(ports=None).check("fd00::5", "fd00::5", 8080)
    Guard(ports=None, purposes=(Purpose.MCP,)).check("fd00::6", "fd00::6", 1)
    with pytest.raises(EgressRefused):
        Guard(ports=None).check("fd00::6", "fd00::6", 8080)


@pytest.mark.django_db
def test_an_entry_of_one_organisation_is_open_to_no_other(
    settings: Settings, acme: Organisation, globex: Organisation
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = [f"tool@{acme.slug}:10.0.0.0/8"]

    with organisation_scope(acme):
        assert opens(Purpose.TOOL)
    with organisation_scope(globex):
        assert not opens(Purpose.TOOL)
    assert not opens(Purpose.TOOL)


def test_a_tool_does_not_reach_what_is_open_to_providers(settings: Settings) -> None:
    for server in serve():
        server.answers["/"] = say(b"models")
        settings.TOOLHUB_PRIVATE_HOSTS = [f"provider:127.0.0.1:{server.port}"]
        with pytest.raises(EgressRefused):
            fetch("GET", f"{server.url}/", timeout=5)
        with guarded_client(timeout=5) as client:
            assert client.get(f"{server.url}/").content == b"models"


@pytest.mark.django_db
def test_a_kept_connection_of_one_organisation_is_no_others(
    settings: Settings, acme: Organisation, globex: Organisation
) -> None:
    for server in serve():
        server.answers["/"] = say(b"models")
        settings.TOOLHUB_PRIVATE_HOSTS = [f"provider@{acme.slug}:127.0.0.1"]
        with guarded_client(timeout=5) as client:
            with organisation_scope(acme):
                assert client.get(f"{server.url}/").content == b"models"
            with organisation_scope(globex), pytest.raises(EgressRefused):
                client.get(f"{server.url}/")


def test_the_start_warns_of_an_entry_without_a_purpose(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["10.0.0.5", "tool:10.0.0.6"]

    with caplog.at_level(logging.WARNING):
        warn_of_open_hosts()

    assert ["10.0.0.5" in record.getMessage() for record in caplog.records] == [True]


def test_nobody_makes_a_guard_without_saying_for_what() -> None:
    """Beside the editor of HTTP tools, whose purpose is the guard's own."""
    house = ROOT
    found = []
    for room in ("capabilities", "sessions", "toolhub"):
        for path in (house / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Guard":
                    names = {each.arg for each in node.keywords}
                    if "purposes" not in names:
                        found.append(f"{path.relative_to(house)}:{node.lineno}")
    assert found == []
