"""Short names that nobody typed: made from the name, and never one that another row has."""

from __future__ import annotations

import json

import pytest
from django.db.models import QuerySet
from django.test import Client

from capabilities.common.short_names import free_short_name, short_name_of
from capabilities.models import Agent, Category, Provider, Role
from tests.cast import make_agent, make_role
from tests.rest import Reply, Rest
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
ACME = "/o/acme/"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Coder", "coder"),
        ("  Home & garden ", "home-garden"),
        ("Bob's Büro", "bobs-buro"),
        ("a_b--c", "a-b-c"),
        ("研究", ""),
        ("x" * 62 + " y", "x" * 62),
    ],
)
def test_a_short_name_is_the_letters_and_digits_of_the_name(name: str, short: str) -> None:
    assert short_name_of(name) == short


def test_a_name_in_use_gets_a_number(acme: Organisation) -> None:
    with organisation_scope(acme):
        for slug in ("coder", "coder-2", "x" * 63):
            Role.objects.create(organisation=acme, slug=slug, name=slug)
        rows: QuerySet[Role] = Role.objects.all()

        assert free_short_name(rows, "slug", "Coder") == "coder-3"
        assert free_short_name(rows, "slug", "x" * 80) == "x" * 61 + "-2"
        assert free_short_name(rows, "slug", "研究") == "role"
        assert free_short_name(rows, "slug", "New") == "new-2"
        assert free_short_name(rows, "slug", "Matrix") == "matrix-2"


def test_what_another_organisation_has_does_not_count(acme: Organisation, charlie: Membership) -> None:
    with organisation_scope(charlie.organisation):
        Role.objects.create(organisation=charlie.organisation, slug="coder", name="Coder")
    with organisation_scope(acme):
        assert free_short_name(Role.objects.all(), "slug", "Coder") == "coder"


def test_each_form_makes_the_short_name_that_is_left_blank(as_alice: Client, acme: Organisation) -> None:
    with organisation_scope(acme):
        model = make_agent(acme).model
        Category.objects.create(organisation=acme, name="home_garden", title="Home garden")
    words = {"name": "Home & garden"}

    as_alice.post(f"{ACME}roles/new/", words | {"mode": "listed", "slug": ""})
    as_alice.post(
        f"{ACME}agents/new/",
        words | {"model": str(model.public_id), "loading_mode": "next_request", "scope": "organisation"},
    )
    as_alice.post(
        f"{ACME}providers/new/", words | {"tool_limit": "128", "model_name": "small", "context_window": "8000"}
    )
    as_alice.post(f"{ACME}categories/new/", {"title": "Home & garden"})

    with organisation_scope(acme):
        assert Role.objects.filter(slug="home-garden").exists()
        assert Agent.objects.filter(slug="home-garden").exists()
        assert Provider.objects.filter(slug="home-garden").exists()
        assert Category.objects.filter(name="home_garden_2", title="Home & garden").exists()


def test_a_short_name_that_is_emptied_later_stays(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    with organisation_scope(acme):
        make_role(acme, alice, slug="coder")

    as_alice.post(f"{ACME}roles/coder/", {"name": "Somebody", "slug": "", "mode": "all"})

    with organisation_scope(acme):
        assert Role.objects.get(slug="coder").name == "Somebody"


def test_rest_makes_it_too(acme: Organisation, alice: Membership) -> None:
    api = Rest(alice)
    model = make_agent(acme).model

    def add(path: str, **body: str) -> Reply:
        return api.ask("POST", path, json.dumps(body).encode())

    role = add("roles", name="Night shift")
    again = add("roles", name="Night shift")
    agent = add("agents", name="Night shift", provider="scripted", model=model.name)
    provider = add("providers", name="Night shift")
    category = add("categories", title="Night shift")

    assert [each.status for each in (role, again, agent, provider, category)] == [201] * 5
    assert [each.json["slug"] for each in (role, again, agent, provider)] == [
        "night-shift",
        "night-shift-2",
        "night-shift",
        "night-shift",
    ]
    assert category.json["name"] == "night_shift"
