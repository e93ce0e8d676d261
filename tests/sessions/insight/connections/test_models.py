"""Tests of models and providers: what works is seen in one call, models are chosen from the provider's list, and those
that are not in it any more are marked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.listings import add_listed_models
from capabilities.language_models.providers.vendors import OTHER, preset
from capabilities.language_models.providers.writes import ProviderContent, save_provider
from capabilities.models import Agent, ConnectionTest, LanguageModel, Provider
from sessions.insight.connections import runs
from sessions.insight.connections.findings import TOOL
from sessions.insight.connections.runs import run_connection_test
from sessions.insight.connections.writes import request_model_test, request_provider_test
from sessions.loop.clients.exchange import read_models
from sessions.loop.clients.listing import ListedModel, listed_models
from tests.cast import make_agent
from tests.rest import Rest
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
PAGE = "/o/acme/providers/scripted/"
RED, BLUE = call(TOOL, {"word": "red"}, "call_1"), call(TOOL, {"word": "blue"}, "call_2")
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture
def model(acme: Organisation, provider: ScriptedOpenAI) -> LanguageModel:
    model = make_agent(acme, base_url=provider.url).model
    with organisation_scope(acme):
        Provider.objects.update(api_key="sk-very-secret-key")
        LanguageModel.objects.update(name="scripted")
        return LanguageModel.objects.select_related("provider").get(pk=model.pk)


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def result_of(model: LanguageModel, alice: Membership) -> ConnectionTest:
    with organisation_scope(alice.organisation):
        run_connection_test(request_model_test(model, actor=alice).public_id)
        return ConnectionTest.objects.get(language_model=model)


def read(alice: Membership) -> ConnectionTest:
    with organisation_scope(alice.organisation):
        run_connection_test(request_provider_test(Provider.objects.get(slug="scripted"), actor=alice).public_id)
        return ConnectionTest.objects.exclude(provider=None).get()


def works(test: ConnectionTest) -> dict[str, Any]:
    return {check["name"]: check["works"] for check in test.findings["checks"]}


# -- A model ----------------------------------------------------------------------------------------------------------


def test_a_model_test_shows_what_works_after_one_call(
    as_alice: Client, alice: Membership, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("", calls=[RED, BLUE]))

    test = result_of(model, alice)
    page = as_alice.get(f"{PAGE}models/{model.public_id}/").content.decode()
    rest = Rest(alice).get(f"models/{model.public_id}/test").json

    assert test.status == "works"
    assert works(test) == {
        "Streaming": True,
        "Tools": True,
        "Parallel calls": True,
        "Usage": True,
        "Cached tokens": True,
        "API": None,
        "List of models": True,
    }
    for words in ("2 calls came in one reply.", "100 tokens in, 10 out.", "60 of this call.", "Chat completions."):
        assert words in page
    assert rest["checks"] == test.findings["checks"]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("reply", "name", "works_now", "words"),
    [
        (Say("Red and blue."), "Tools", False, "without calling the tool"),
        (Say("", calls=[call(TOOL, "{", "c1")]), "Tools", False, "cannot be used"),
        (Say("", calls=[RED]), "Parallel calls", None, "Not seen"),
        (Say("", calls=[RED], usage=None), "Usage", False, "did not count"),
        (
            Say("", calls=[RED], usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}),
            "Cached tokens",
            None,
            "does not say",
        ),
        (
            Raw(
                json.dumps({"choices": [{"message": {"content": "", "tool_calls": [RED]}}]}).encode(),
                headers=JSON_TYPE,
            ),
            "Streaming",
            False,
            "came whole",
        ),
    ],
)
def test_what_does_not_work_is_said_in_a_sentence(
    alice: Membership,
    model: LanguageModel,
    provider: ScriptedOpenAI,
    reply: Say | Raw,
    name: str,
    works_now: bool | None,
    words: str,
) -> None:
    provider.enqueue(reply)

    test = result_of(model, alice)

    (check,) = [check for check in test.findings["checks"] if check["name"] == name]
    assert (test.status, check["works"], words in check["detail"]) == ("works", works_now, True)


def test_what_a_refusal_teaches_is_learned_and_said(
    alice: Membership, acme: Organisation, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    refusal = {"error": {"message": "Tools are not supported here. Please use /v1/responses instead."}}
    provider.enqueue(Raw(json.dumps(refusal).encode(), status=400, headers=JSON_TYPE), Say("", calls=[RED, BLUE]))

    test = result_of(model, alice)

    details = {check["name"]: check["detail"] for check in test.findings["checks"]}
    assert (test.status, provider.paths) == ("works", ["/chat/completions", "/responses"])
    assert details["API"].startswith("Responses.")
    assert details["Learned"] == "It is called with Responses."
    with organisation_scope(acme):
        model.refresh_from_db()
    assert [each["value"] for each in model.learned] == ["responses"]


def test_a_model_that_fails_still_says_whether_it_is_listed(
    as_alice: Client, alice: Membership, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.models = ["another"]
    provider.enqueue(
        Raw(b'{"error": {"message": "No such model <b>, sk-very-secret-key"}}', status=404, headers=JSON_TYPE)
    )

    test = result_of(model, alice)
    page = as_alice.get(f"{PAGE}models/{model.public_id}/test/?whole=1", headers=HTMX).content.decode()

    assert (test.status, works(test)["List of models"]) == ("failed", False)
    assert "No such model &lt;b&gt;, " in page
    assert "1 models are listed, this one not." in page
    assert "very-secret" not in page + json.dumps(test.findings)


# -- A provider's list ------------------------------------------------------------------------------------------------


def test_models_are_read_and_the_ticked_ones_added_with_one_click(
    as_alice: Client, alice: Membership, acme: Organisation, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.models = ["scripted", {"id": "large", "max_model_len": 32_000}, "plain<b>", "text-embedding-3-small"]

    asked = as_alice.post(f"{PAGE}test/", headers=HTMX).content.decode()
    with organisation_scope(acme):
        run_connection_test(ConnectionTest.objects.get().public_id)
    shown = as_alice.get(f"{PAGE}edit/").content.decode()
    rest = Rest(alice).get("providers/scripted/test").json
    added = as_alice.post(f"{PAGE}models/add/", {"names": ["large", "plain<b>", "scripted"]})
    again = as_alice.get(f"{PAGE}edit/").content.decode()

    assert ("Reading" in asked, "hx-get" in asked, "<html" in asked) == (True, True, False)
    assert ('value="large"' in shown, 'value="plain&lt;b&gt;"' in shown, "embedding" in shown) == (True, True, False)
    assert 'name="names" value="scripted"' not in " ".join(shown.split())
    assert rest["models"][1] == {"name": "large", "context_window": 32_000}
    assert (added.status_code, "2 models added" in again, 'value="large"' in again) == (302, True, False)
    with organisation_scope(acme):
        rows = LanguageModel.objects.order_by("pk").values_list("name", "context_window")
        assert list(rows)[1:] == [("large", 32_000), ("plain<b>", 128_000)]
        assert AuditEntry.objects.filter(action="model.create").count() == 2
    assert provider.listings[0]["authorization"] == "Bearer sk-very-secret-key"
    assert provider.requests == []


def test_what_is_not_in_the_list_is_not_added(alice: Membership, acme: Organisation, model: LanguageModel) -> None:
    read(alice)
    with organisation_scope(acme):
        for names in (["nobody"], ["scripted", "nobody"]):
            with pytest.raises(ChangeRefused) as refused:
                add_listed_models(Provider.objects.get(slug="scripted"), names, actor=alice)
            assert (refused.value.field, refused.value.code) == ("names", "unknown")
        assert LanguageModel.objects.count() == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Raw(b'{"data": []}', headers=JSON_TYPE), "lists no models"),
        (Raw(b'{"data": 3}', headers=JSON_TYPE), "lists no models"),
        (Raw(b"<html>", headers={"Content-Type": "text/html"}), "not JSON"),
        (Raw(b'{"error": {"message": "sk-very-secret-key is bad"}}', status=401, headers=JSON_TYPE), "refused the key"),
        (Raw(b"", status=404), "rejected the request (404)"),
        (Raw(reset=True), "cannot be reached, or broke off"),
        (Raw(b'{"data": [', headers=JSON_TYPE, pieces=[b" "] * 5, linger=5), "did not answer in time"),
        (Raw(b'{"data": ["' + b"x" * 9_000_000, headers=JSON_TYPE), "over 8,000,000 bytes"),
    ],
)
def test_a_list_that_cannot_be_read_says_why_and_marks_nothing(
    alice: Membership,
    acme: Organisation,
    model: LanguageModel,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    answer: Raw,
    reason: str,
) -> None:
    if answer.linger:
        monkeypatch.setattr(runs, "LIST_SECONDS", 0.5)
    provider.models = answer

    test = read(alice)

    assert (test.status, test.findings["models"]) == ("failed", [])
    assert reason in test.reason
    assert "very-secret" not in test.reason
    with organisation_scope(acme):
        model.refresh_from_db()
    assert model.missing_since is None


def test_windows_are_those_that_the_server_says_or_that_are_known() -> None:
    openai = preset("openai")
    assert openai is not None
    rows: list[Any] = [
        {"id": "a", "context_length": 9_000},
        {"id": "b", "max_model_len": 9_001},
        {"id": "c", "meta": {"n_ctx_train": 9_002}},
        {"id": "models/d"},
        {"id": "gpt-5"},
        {"id": "a"},
        {"id": 3},
        {"id": "e", "context_length": -1},
        {"id": "f", "context_length": "many"},
        "g",
    ]

    found = listed_models({"data": rows}, openai)

    assert [(model.name, model.context_window) for model in found] == [
        ("a", 9_000),
        ("b", 9_001),
        ("c", 9_002),
        ("d", None),
        ("gpt-5", 400_000),
        ("e", None),
        ("f", None),
    ]
    assert listed_models([{"id": "gpt-5"}], OTHER) == (ListedModel("gpt-5"),)
    assert not [model.name for model in found if not model.is_for_chat]
    for name in ("text-embedding-3-small", "whisper-1", "gpt-4o-mini-tts", "dall-e-3", "gpt-image-1", "gpt-realtime"):
        assert not ListedModel(name).is_for_chat


# -- Models that are not listed any more ------------------------------------------------------------------------------


def test_a_model_that_disappeared_is_marked_where_it_is_used_until_it_is_listed_again(
    as_alice: Client, alice: Membership, acme: Organisation, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.models = ["another"]
    pages = (f"{PAGE}edit/", "/o/acme/providers/", "/o/acme/agents/", "/o/acme/agents/starter/")

    read(alice)
    for page in pages:
        assert "Not listed" in as_alice.get(page).content.decode(), page
    home = as_alice.get("/o/acme/").content.decode()
    assert "no longer lists scripted" in home
    assert Rest(alice).get(f"models/{model.public_id}").json["missing_since"]

    provider.models = ["scripted"]
    read(alice)
    for page in pages:
        assert "Not listed" not in as_alice.get(page).content.decode(), page
    assert "does not list" not in as_alice.get("/o/acme/").content.decode()
    with organisation_scope(acme):
        entries = AuditEntry.objects.filter(action__in=("model.missing", "model.listed")).order_by("pk")
        assert [(entry.action, entry.actor) for entry in entries] == [("model.missing", None), ("model.listed", None)]


@pytest.mark.parametrize(
    ("name", "listed", "missing"),
    [
        ("claude-opus-4-1", "claude-opus-4-1-20250805", False),
        ("llama3", "llama3:latest", False),
        ("vendor/model:nitro", "vendor/model", False),
        ("gpt-5", "gpt-5-mini", True),
    ],
)
def test_a_name_that_stands_for_a_listed_one_is_listed(
    alice: Membership,
    acme: Organisation,
    model: LanguageModel,
    provider: ScriptedOpenAI,
    name: str,
    listed: str,
    missing: bool,
) -> None:
    provider.models = [listed]
    with organisation_scope(acme):
        LanguageModel.objects.update(name=name)

    read(alice)

    with organisation_scope(acme):
        assert (LanguageModel.objects.get().missing_since is not None) == missing


def test_a_model_that_answers_is_not_missing_and_a_new_address_asks_anew(
    alice: Membership, acme: Organisation, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    provider.models = ["another"]
    read(alice)
    provider.enqueue(Say("", calls=[RED]))

    result_of(model, alice)

    with organisation_scope(acme):
        assert LanguageModel.objects.get().missing_since is None
        read(alice)
        assert LanguageModel.objects.get().missing_since is not None
        content = ProviderContent("scripted", "S", "https://x.example.org/v1", api_key="")
        save_provider(Provider.objects.get(), content, actor=alice)
        assert LanguageModel.objects.get().missing_since is None
        assert not ConnectionTest.objects.exists()


def test_a_list_of_an_address_that_was_left_meanwhile_marks_nothing(
    alice: Membership,
    acme: Organisation,
    model: LanguageModel,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.models = ["another"]

    def moved_meanwhile(endpoint: Any, seconds: float) -> Any:
        answer = read_models(endpoint, seconds)
        with organisation_scope(acme):
            content = ProviderContent("scripted", "S", "https://x.example.org/v1", api_key="")
            save_provider(Provider.objects.get(), content, actor=alice)
        return answer

    monkeypatch.setattr(runs, "read_models", moved_meanwhile)
    with organisation_scope(acme):
        run_connection_test(request_provider_test(Provider.objects.get(slug="scripted"), actor=alice).public_id)

        assert LanguageModel.objects.get().missing_since is None
        assert not ConnectionTest.objects.exists()


def test_home_names_who_has_the_model_in_reserve(as_alice: Client, acme: Organisation, model: LanguageModel) -> None:
    with organisation_scope(acme):
        spare = LanguageModel.objects.create(
            organisation=acme, provider=model.provider, name="spare", missing_since=timezone.now()
        )
        LanguageModel.objects.create(
            organisation=acme, provider=model.provider, name="unused", missing_since=timezone.now()
        )
        Agent.objects.update(fallback_model=spare)

    home = as_alice.get("/o/acme/").content.decode()

    (line,) = [each for each in home.splitlines() if "no longer lists" in each]
    assert ("spare" in line, "Starter" in line) == (True, True)
    assert "unused" not in home


def test_who_may_not_set_providers_up_reads_and_adds_nothing(
    client: Client, bob: Membership, charlie: Membership, acme: Organisation, model: LanguageModel
) -> None:
    for member, status in ((bob, 403), (charlie, 404)):
        client.force_login(member.user)
        assert client.post(f"{PAGE}test/").status_code == status
        assert client.post(f"{PAGE}models/add/", {"names": ["scripted"]}).status_code == status
        assert Rest(member).post("providers/scripted/test").status == status
    with organisation_scope(acme):
        with pytest.raises(PermissionDenied):
            request_provider_test(Provider.objects.get(), actor=bob)
        with pytest.raises(PermissionDenied):
            add_listed_models(Provider.objects.get(), ["scripted"], actor=bob)
        assert not ConnectionTest.objects.exists()


def test_a_long_list_costs_pages_no_more_queries(
    as_alice: Client, alice: Membership, model: LanguageModel, provider: ScriptedOpenAI
) -> None:
    counts = []
    for number in (1, 3):
        rows: list[str | Json] = [f"model-{place}" for place in range(number)]
        provider.models = rows
        read(alice)
        with CaptureQueriesContext(connection) as seen:
            as_alice.get(f"{PAGE}edit/")
        counts.append(len(seen))
    assert counts[0] == counts[1]
