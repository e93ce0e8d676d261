"""What refusals taught of a model: shown with the provider's words, forgotten by a person and when it is not true."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client

from capabilities.language_models.providers.learning import forget_lesson, learn
from capabilities.language_models.providers.lessons import Lesson, Teaches
from capabilities.language_models.providers.writes import ModelContent, ProviderContent, save_model, save_provider
from capabilities.models import LanguageModel, Provider
from tests.cast import make_agent, make_member
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
WORDS = "Use /v1/responses <b>instead</b>."
DIALECT = Lesson(Teaches.DIALECT, "dialect", "responses", WORDS)
OMIT = Lesson(Teaches.OMIT, "stream_options", because="Unknown parameter.")


@pytest.fixture
def model(acme: Organisation) -> LanguageModel:
    model = make_agent(acme, base_url="https://models.example.org/v1").model
    with organisation_scope(acme):
        for lesson in (DIALECT, OMIT):
            learn(model.public_id, lesson)
    return model


def page_of(model: LanguageModel) -> str:
    return f"/o/acme/providers/{model.provider.slug}/models/{model.public_id}/"


def learned(model: LanguageModel) -> list[str]:
    model.refresh_from_db()
    return [each["name"] for each in model.learned]


def test_the_models_page_says_how_it_is_spoken_to_and_why(
    client: Client, alice: Membership, acme: Organisation, model: LanguageModel
) -> None:
    client.force_login(alice.user)

    shown = client.get(page_of(model)).content.decode()
    rest = Rest(alice).get(f"models/{model.public_id}").json

    for words in ("Responses", "The provider refused the other one", "stream_options is not sent.", "Forget"):
        assert words in shown
    assert "Use /v1/responses &lt;b&gt;instead&lt;/b&gt;." in shown
    assert (rest["spoken"], [each["key"] for each in rest["lessons"]]) == (
        "responses",
        ["dialect:dialect", "omit:stream_options"],
    )
    assert rest["lessons"][0]["because"] == WORDS
    with organisation_scope(acme):
        LanguageModel.objects.update(dialect="chat")
    assert "It is set on this model." in client.get(page_of(model)).content.decode()


def test_a_person_with_the_right_forgets_one_and_it_is_on_record(
    client: Client, alice: Membership, acme: Organisation, model: LanguageModel
) -> None:
    helper = make_member(acme, "helper")
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=helper, right=Right.PROVIDERS)
    client.force_login(helper.user)

    answer = client.post(f"{page_of(model)}forget/", {"key": "dialect:dialect"})

    assert (answer.status_code, answer["Location"]) == (302, page_of(model))
    assert "Called with <strong>Chat completions</strong>" in client.get(page_of(model)).content.decode()
    with organisation_scope(acme):
        assert learned(model) == ["stream_options"]
        entry = AuditEntry.objects.get(action="model.forget")
        assert (entry.actor, entry.before) == (helper, {"learned": DIALECT.summary})
    api = Rest(alice)
    assert api.delete(f"models/{model.public_id}/lessons/omit:stream_options").status == 204
    assert api.delete(f"models/{model.public_id}/lessons/omit:stream_options").error == (404, "not_found", None)
    with organisation_scope(acme):
        assert learned(model) == []


def test_who_has_no_right_or_another_organisation_forgets_nothing(
    client: Client, bob: Membership, charlie: Membership, acme: Organisation, model: LanguageModel
) -> None:
    path = f"models/{model.public_id}/lessons/dialect:dialect"
    for member, status in ((bob, 403), (charlie, 404)):
        client.force_login(member.user)
        assert client.post(f"{page_of(model)}forget/", {"key": "dialect:dialect"}).status_code == status
        assert Rest(member).delete(path).status == status
    with organisation_scope(acme):
        with pytest.raises(PermissionDenied):
            forget_lesson(model, "dialect:dialect", actor=bob)
        assert learned(model) == ["dialect", "stream_options"]


@pytest.mark.parametrize(
    ("name", "address", "kept"),
    [
        ("scripted", "https://models.example.org/v1", True),
        ("another", "https://models.example.org/v1", False),
        ("scripted", "https://other.example.org/v1", False),
    ],
)
def test_another_address_or_name_forgets_what_was_learned(
    alice: Membership, acme: Organisation, model: LanguageModel, name: str, address: str, kept: bool
) -> None:
    with organisation_scope(acme):
        LanguageModel.objects.update(name="scripted")
        model = LanguageModel.objects.select_related("provider").get()
        slug = model.provider.slug

        save_model(model.provider, model, ModelContent(name, 9_000), actor=alice)
        save_provider(Provider.objects.get(), ProviderContent(slug, "Renamed", address), actor=alice)

        assert learned(model) == (["dialect", "stream_options"] if kept else [])
        told: list[Any] = [row.after.get("learned") for row in AuditEntry.objects.filter(action__endswith=".update")]
        assert ("forgotten" in told) is not kept


def test_what_a_worker_learns_while_a_form_is_open_stays(
    alice: Membership, acme: Organisation, model: LanguageModel
) -> None:
    with organisation_scope(acme):
        stale = LanguageModel.objects.select_related("provider").get()
        learn(model.public_id, Lesson(Teaches.OMIT, "store"))

        save_model(stale.provider, stale, ModelContent(stale.name, 9_000), actor=alice)
        assert learned(model) == ["dialect", "stream_options", "store"]
        forget_lesson(stale, "omit:stream_options", actor=alice)

        assert learned(model) == ["dialect", "store"]
