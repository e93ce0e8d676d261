"""Test buttons: what was set up is tried by a worker, and the result shown until something changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import ToolContext, ToolError
from capabilities.language_models.providers.writes import ModelContent, model_content, save_model
from capabilities.models import ConnectionTest, LanguageModel, Provider
from capabilities.running.registry import ServiceSpec, registry
from capabilities.running.services.writes import clear_service, save_service, shown_service_or_404
from sessions.insight.connections import runs as connection_tests
from sessions.insight.connections.findings import TOOL
from sessions.insight.connections.runs import run_connection_test
from sessions.insight.connections.writes import request_model_test, request_service_test
from sessions.worker import process as worker
from tests.cast import make_agent, make_member
from tests.rest import Rest
from tests.scripted_openai import Raw, Say, ScriptedOpenAI
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)
ACME = "/o/acme/"
HTMX = {"HX-Request": "true"}
SET = {"base_url": "https://home.example.org", "token": "very-secret-token"}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the test call of Home Assistant does: an exception is raised, all else returned; each call takes one."""
    answers: list[Any] = []

    def ask(context: ToolContext) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer(context) if callable(answer) else answer

    monkeypatch.setitem(registry.services, "home_assistant", replace(registry.services["home_assistant"], test=ask))
    return answers


@pytest.fixture
def home(acme: Organisation, alice: Membership, calls: list[Any]) -> Iterator[ServiceSpec]:
    spec = registry.services["home_assistant"]
    with organisation_scope(acme):
        save_service(spec, SET, actor=alice)
        yield spec


def last_test(**which: Any) -> ConnectionTest:
    return ConnectionTest.objects.get(**which)


def test_every_service_that_can_be_set_up_has_a_test_call() -> None:
    assert [spec.name for spec in registry.services.values() if spec.is_available and spec.test is None] == []


def test_a_service_is_tested_by_a_worker(as_alice: Client, home: ServiceSpec, calls: list[Any]) -> None:
    calls += [{"version": "1"}]
    page = f"{ACME}services/home_assistant/"

    before = as_alice.get(page).content.decode()
    asked = as_alice.post(f"{page}test/", headers=HTMX).content.decode()
    run_connection_test(last_test().public_id)
    after = as_alice.get(f"{page}test/", headers=HTMX).content.decode()
    listed = as_alice.get(f"{ACME}services/").content.decode()

    assert "Not tested" in before
    assert ("Testing" in asked, "<html" in asked, f'hx-get="{page}test/"' in asked) == (True, False, True)
    assert ("Works" in after, "hx-get" in after) == (True, False)
    assert "Works" in listed
    assert [row.after for row in AuditEntry.objects.filter(action="connection.test")] == [{"service": "home_assistant"}]


def test_without_script_the_button_leads_back_to_the_page(as_alice: Client, home: ServiceSpec) -> None:
    answer = as_alice.post(f"{ACME}services/home_assistant/test/")

    assert (answer.status_code, answer["Location"]) == (302, f"{ACME}services/home_assistant/")
    assert "Testing" in as_alice.get(answer["Location"]).content.decode()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ToolError("Home refuses very-secret-token."), "Home refuses ••••."),
        (ValueError("very-secret-token"), "The tool failed (ValueError)."),
    ],
)
def test_a_failure_gives_its_reason_without_secrets(
    as_alice: Client, home: ServiceSpec, alice: Membership, calls: list[Any], answer: Exception, reason: str
) -> None:
    calls += [answer]

    test = request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)
    run_connection_test(test.public_id)
    page = as_alice.get(f"{ACME}services/home_assistant/").content.decode()

    assert (last_test().status, last_test().reason) == ("failed", reason)
    assert ("Failed" in page, reason in page, "very-secret" in page) == (True, True, False)


def test_a_connection_test_that_hangs_fails_at_its_deadline(
    home: ServiceSpec, alice: Membership, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_tests, "CALL_SECONDS", 0.3)
    ended = threading.Event()

    def hang(context: ToolContext) -> None:
        context.stopped.wait(10)
        ended.set()

    calls += [hang]

    run_connection_test(
        request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice).public_id
    )

    assert (last_test().status, "within 0.3 s" in last_test().reason) == ("failed", True)
    assert ended.wait(5)


@pytest.mark.parametrize("change", ["saved", "forgotten"])
def test_a_change_takes_the_result_back(home: ServiceSpec, alice: Membership, calls: list[Any], change: str) -> None:
    def changed_meanwhile(context: ToolContext) -> str:
        with organisation_scope(alice.organisation):
            if change == "saved":
                save_service(home, SET | {"base_url": "https://other.example.org"}, actor=alice)
            else:
                clear_service(home, actor=alice)
        return "fine"

    calls += ["fine", changed_meanwhile]
    run_connection_test(
        request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice).public_id
    )
    assert last_test().status == "works"

    run_connection_test(
        request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice).public_id
    )

    assert not ConnectionTest.objects.exists()


def test_an_open_connection_test_is_not_requested_twice(home: ServiceSpec, alice: Membership, calls: list[Any]) -> None:
    calls += ["fine"]
    first = request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)
    again = request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)

    run_connection_test(first.public_id)
    run_connection_test(first.public_id)

    assert (again.public_id, calls) == (first.public_id, [])


def test_what_is_not_set_up_and_too_many_at_once_are_refused(home: ServiceSpec, alice: Membership) -> None:
    for name in ("arxiv", "wikipedia", "duckduckgo", "open_meteo", "github"):
        spec = registry.services[name]
        save_service(spec, {"base_url": "https://example.org"}, actor=alice)
        request_service_test(shown_service_or_404(alice.organisation, name), actor=alice)

    with pytest.raises(ChangeRefused, match="5 tests have not ended"):
        request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)
    clear_service(home, actor=alice)
    save_service(home, {"base_url": "https://home.example.org"}, actor=alice)
    with pytest.raises(ChangeRefused, match="must be set up"):
        request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)


def test_who_may_not_set_it_up_may_not_test_it(
    client: Client, home: ServiceSpec, bob: Membership, charlie: Membership
) -> None:
    address = f"{ACME}services/home_assistant/test/"
    with pytest.raises(PermissionDenied):
        request_service_test(shown_service_or_404(bob.organisation, home.name), actor=bob)
    client.force_login(bob.user)
    assert client.post(address).status_code == 403
    client.force_login(charlie.user)
    assert client.post(address).status_code == 404
    assert not ConnectionTest.objects.exists()


def test_a_right_that_is_gone_stops_the_test(home: ServiceSpec, acme: Organisation, calls: list[Any]) -> None:
    helper = make_member(acme, "helper")
    right = AdminRight.objects.create(organisation=acme, membership=helper, right=Right.CATALOGUE)
    test = request_service_test(shown_service_or_404(helper.organisation, home.name), actor=helper)
    right.delete()
    calls += ["must not be asked"]

    run_connection_test(test.public_id)

    assert (last_test().status, last_test().reason) == ("failed", connection_tests.NO_RIGHT)
    assert calls == ["must not be asked"]


def test_what_no_worker_takes_or_ends_has_failed(home: ServiceSpec, alice: Membership) -> None:
    test = request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)
    for status, reason in (("queued", connection_tests.NOT_TAKEN), ("running", connection_tests.NO_RESULT)):
        ConnectionTest.objects.filter(pk=test.pk).update(
            status=status, ended_at=None, deadline_at=timezone.now() - timedelta(seconds=1)
        )
        run_connection_test(test.public_id)
        connection_tests.sweep()
        assert (last_test().status, last_test().reason) == ("failed", reason)


def test_without_a_broker_a_sweep_runs_it(home: ServiceSpec, alice: Membership, calls: list[Any]) -> None:
    calls += ["fine"]
    request_service_test(shown_service_or_404(alice.organisation, home.name), actor=alice)
    ConnectionTest.objects.update(rang_at=timezone.now() - timedelta(seconds=10))
    keeper = worker.Housekeeper()

    keeper.call_workers_for_connection_tests()
    keeper._own.shutdown()

    assert last_test().status == "works"


# -- Models -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(acme: Organisation, provider: ScriptedOpenAI) -> LanguageModel:
    model = make_agent(acme, base_url=provider.url).model
    with organisation_scope(acme):
        Provider.objects.update(api_key="sk-very-secret-key")
    return model


def test_a_model_gets_one_short_message(
    as_alice: Client, acme: Organisation, alice: Membership, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    page = f"{ACME}providers/scripted/edit/"
    address = f"{ACME}providers/scripted/models/{model.public_id}/test/"
    provider.enqueue(Say("OK"))

    before = as_alice.get(page).content.decode()
    as_alice.post(address)
    with organisation_scope(acme):
        run_connection_test(last_test(language_model=model).public_id)
    after = as_alice.get(page).content.decode()

    assert ("Not tested" in before, "Works" in after) == (True, True)
    assert [len(request["messages"]) for request in provider.requests] == [1]
    assert [tool["function"]["name"] for tool in provider.requests[0]["tools"]] == [TOOL]
    with organisation_scope(acme):
        agent = make_agent(acme, slug="user-of-it")
        save_model(model.provider, model, model_content(model), agents=[agent], actor=alice)
        assert ConnectionTest.objects.exists()  # who uses it is no part of what was tested
        save_model(model.provider, model, ModelContent("another", 8_000), actor=alice)
        assert not ConnectionTest.objects.exists()


def test_a_model_that_fails_says_why_without_the_key(
    acme: Organisation, alice: Membership, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Raw(b'{"error": {"message": "Bad key sk-very-secret-key"}}', status=401))

    with organisation_scope(acme):
        run_connection_test(request_model_test(model, actor=alice).public_id)
        test = last_test()

    assert test.status == "failed"
    assert "refused the key" in test.reason
    assert "very-secret" not in test.reason
    assert len(provider.requests) == 1


def test_a_model_whose_provider_is_off_is_not_asked(
    acme: Organisation, alice: Membership, model: LanguageModel
) -> None:
    with organisation_scope(acme):
        Provider.objects.update(is_enabled=False)
        run_connection_test(request_model_test(model, actor=alice).public_id)
        assert "switched off" in last_test().reason


# -- REST -------------------------------------------------------------------------------------------------------------


def test_rest_tests_and_reads(home: ServiceSpec, alice: Membership, calls: list[Any], model: LanguageModel) -> None:
    calls += ["fine"]
    api = Rest(alice)

    before = api.get("services/home_assistant/test")
    asked = api.post("services/home_assistant/test")
    run_connection_test(last_test().public_id)
    after = api.get("services/home_assistant/test")
    of_model = api.post(f"models/{model.public_id}/test")
    clear_service(home, actor=alice)
    refused = api.post("services/home_assistant/test")

    assert before.json == {"status": "not_tested", "reason": "", "tested_at": None, "checks": [], "models": []}
    assert (asked.status, asked.json["status"]) == (202, "queued")
    assert (after.json["status"], after.json["reason"], bool(after.json["tested_at"])) == ("works", "", True)
    assert (of_model.status, of_model.json["status"]) == (202, "queued")
    assert refused.error == (409, "conflict", None)
