"""The writes of the REST API on catalogue, agents and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from capabilities.models import Agent, Grant, LanguageModel, Provider, Role, ServiceSetting, Tool
from tests.cast import make_agent, make_category, make_member, make_role, make_tool
from tests.rest import Reply, Rest
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

KEY = "sk-abcdefghijklmnop1234"


@pytest.fixture
def api(alice: Membership) -> Rest:
    return Rest(alice)


def send(api: Rest, method: str, path: str, body: Any = None) -> Reply:
    return api.ask(method, path, b"" if body is None else json.dumps(body).encode())


@pytest.fixture
def web(acme: Organisation) -> Tool:
    return make_tool(acme, "http_post", category=make_category(acme, "web"))


# -- Roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
def test_a_role_lives_its_life(api: Rest) -> None:
    made = send(api, "POST", "roles", {"slug": "web", "name": "Web", "mode": "listed", "rules": [{"category": "web"}]})
    changed = send(api, "PATCH", "roles/web", {"rules": [{"tool": "http_post", "effect": "deny"}]})
    renamed = send(api, "PATCH", "roles/web", {"name": "The web", "mode": "all"})

    rule = {"category": "web", "tool": None, "effect": "allow"}
    role = {"slug": "web", "name": "Web", "description": "", "mode": "listed", "rules": [rule], "members": 0}
    assert (made.status, made.json) == (201, role)
    role["rules"] = [{"category": None, "tool": "http_post", "effect": "deny"}]
    assert (changed.status, changed.json) == (200, role)
    assert (renamed.status, renamed.json) == (200, role | {"name": "The web", "mode": "all"})
    assert send(api, "GET", "roles/web").json == renamed.json
    assert send(api, "DELETE", "roles/web").status == 204
    assert send(api, "GET", "roles/web").error == (404, "not_found", None)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"slug": "x", "name": "X", "rules": [{"tool": "missing"}]}, (400, "unknown", "rules")),
        ({"slug": "x", "name": "X", "rules": [{"tool": "http_post", "id": 3}]}, (400, "unknown_field", "rules.0.id")),
        ({"slug": "x", "name": "X", "rules": [{}]}, (400, "invalid", "rules")),
        ({"slug": "all", "name": "X"}, (400, "taken", "slug")),
        ({"slug": "X!", "name": "X"}, (400, "invalid", "slug")),
        ({"slug": "x"}, (400, "required", "name")),
        ({"slug": "x", "name": "X", "organisation": 2}, (400, "unknown_field", "organisation")),
        ({"slug": "x", "name": "X", "members": 2}, (400, "unknown_field", "members")),
        ({"slug": "x", "name": "X", "mode": "some"}, (400, "invalid_choice", "mode")),
    ],
)
def test_a_role_that_cannot_be(
    api: Rest, alice: Membership, acme: Organisation, body: dict[str, Any], error: tuple[int, str, str]
) -> None:
    make_role(acme, alice)

    assert send(api, "POST", "roles", body).error == error

    with organisation_scope(acme):
        assert Role.objects.count() == 1


def test_the_roles_of_a_member_are_put_whole(
    api: Rest, alice: Membership, bob: Membership, charlie: Membership, acme: Organisation
) -> None:
    make_role(acme, alice)

    assert send(api, "PUT", f"members/{bob.public_id}/roles", {"roles": ["all"]}).json == {"roles": ["all"]}
    assert send(api, "GET", f"members/{bob.public_id}/roles").json == {"roles": ["all"]}
    assert send(api, "PUT", f"members/{bob.public_id}/roles", {"roles": ["x"]}).error == (400, "unknown", "roles")
    assert send(api, "PUT", f"members/{bob.public_id}/roles", {"roles": []}).json == {"roles": []}
    assert send(api, "PUT", f"members/{charlie.public_id}/roles", {"roles": ["all"]}).error == (404, "not_found", None)


# -- Grants -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
def test_a_grant_lives_its_life(api: Rest, bob: Membership) -> None:
    body = {"member": str(bob.public_id), "tool": "http_post", "effect": "allow", "reason": "Today"}

    made = send(api, "POST", "grants", body)
    path = f"grants/{made.json['id']}"
    changed = send(api, "PATCH", path, {"expires_at": "2999-01-01T00:00:00Z"})

    assert made.status == 201
    assert {name: made.json[name] for name in body} == body
    assert (changed.json["reason"], changed.json["expires_at"]) == ("Today", "2999-01-01T00:00:00Z")
    assert send(api, "GET", path).json == changed.json
    assert send(api, "GET", f"grants?member={bob.public_id}").json["results"] == [changed.json]
    assert send(api, "POST", "grants", body).error == (400, "taken", "member")
    assert send(api, "PATCH", path, {"effect": "deny"}).error == (400, "unknown_field", "effect")
    assert send(api, "DELETE", path).status == 204
    assert send(api, "DELETE", path).error == (404, "not_found", None)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member": 10**9}, (400, "unknown", "member")),
        ({"tool": "missing"}, (400, "unknown", "tool")),
        ({"tool": None, "category": "missing"}, (400, "unknown", "category")),
        ({"tool": None}, (400, "invalid", "tool")),
        ({"effect": "maybe"}, (400, "invalid_choice", "effect")),
        ({"expires_at": "2001-01-01T00:00:00Z"}, (400, "invalid", "expires_at")),
        ({"expires_at": "tomorrow"}, (400, "invalid", "expires_at")),
        ({"created_by": 1}, (400, "unknown_field", "created_by")),
    ],
)
def test_a_grant_that_cannot_be(
    api: Rest, bob: Membership, acme: Organisation, fields: dict[str, Any], error: tuple[int, str, str]
) -> None:
    body = {"member": str(bob.public_id), "tool": "http_post", "effect": "allow"} | fields

    assert send(api, "POST", "grants", body).error == error

    with organisation_scope(acme):
        assert not Grant.objects.exists()


@pytest.mark.usefixtures("web")
def test_a_right_for_one_category_is_for_it_alone(bob: Membership, acme: Organisation) -> None:
    make_tool(acme, "file_read", category=make_category(acme, "file"))
    with organisation_scope(acme):
        for right in (Right.ROLES, Right.CATALOGUE):
            AdminRight.objects.create(organisation=acme, membership=bob, right=right, category="web")
    api = Rest(bob)
    grant = {"member": str(make_member(acme, "dora").public_id), "effect": "allow"}

    assert send(api, "POST", "grants", grant | {"tool": "http_post"}).status == 201
    assert send(api, "POST", "grants", grant | {"tool": "file_read"}).status == 403
    assert send(api, "POST", "roles", {"slug": "mine", "name": "Mine", "mode": "all"}).status == 403
    assert send(api, "PATCH", "tools/http_post", {"is_enabled": False}).status == 200
    assert send(api, "PATCH", "tools/http_post", {"category": "file"}).status == 403
    assert send(api, "PATCH", "tools/file_read", {"is_enabled": False}).status == 403
    bulk = {"names": ["http_post", "file_read"], "is_enabled": False}
    assert send(api, "POST", "tools/bulk", bulk).status == 403
    assert send(api, "PATCH", "categories/web", {"title": "The web"}).status == 200
    assert send(api, "PATCH", "categories/web", {"is_core": False}).status == 403


# -- Agents, providers, models ----------------------------------------------------------------------------------------


def test_an_agent_lives_its_life(api: Rest, acme: Organisation, bob: Membership) -> None:
    make_agent(acme)
    for name in ("a", "b"):
        make_tool(acme, name)
    body = {"slug": "coder", "name": "Coder", "provider": "scripted", "model": "scripted", "prompt": " Be brief.\n"}

    made = send(api, "POST", "agents", body | {"tools": ["b", "a"], "max_rounds": 9})
    changed = send(api, "PATCH", "agents/coder", {"tools": ["a"], "is_enabled": False})

    assert made.status == 201
    assert (made.json["tools"], made.json["max_rounds"], made.json["prompt"]) == (["b", "a"], 9, " Be brief.\n")
    assert changed.json == made.json | {"tools": ["a"], "is_enabled": False}
    assert Rest(bob).get("agents/coder").json == changed.json | {"prompt": None}
    assert send(api, "PATCH", "agents/coder", {"model": "x"}).error == (400, "unknown", "model")
    assert send(api, "PATCH", "agents/coder", {"provider": "x"}).error == (400, "unknown", "provider")
    assert send(api, "PATCH", "agents/coder", {"tools": ["x"]}).error == (400, "unknown", "tools")
    assert send(api, "PATCH", "agents/coder", {"pk": 1}).error == (400, "unknown_field", "pk")
    assert send(api, "DELETE", "agents/coder").status == 204


def test_an_agent_with_sessions_is_in_use(api: Rest, acme: Organisation) -> None:
    make_agent(acme)
    assert send(api, "POST", "sessions", {"agent": "starter"}).status == 201

    assert send(api, "DELETE", "agents/starter").error == (409, "in_use", None)


def test_a_provider_and_its_models_live_their_lives(api: Rest, acme: Organisation) -> None:
    body = {"slug": "openai", "name": "OpenAI", "base_url": "https://api.openai.com/v1/", "api_key": KEY}

    made = send(api, "POST", "providers", body)
    model = send(api, "POST", "models", {"provider": "openai", "name": "gpt-5", "max_rounds": 7})
    path = f"models/{model.json['id']}"

    shown = {"base_url": "https://api.openai.com/v1", "api_key": "••••1234", "tool_limit": 128, "is_enabled": True}
    spoken_to = {
        "vendor": "openai",
        "dialect": "auto",
        "keeps_routed_tools": False,
        "takes_added_tools": False,
        "takes_tool_search": False,
    }
    assert (made.status, made.json) == (201, {"slug": "openai", "name": "OpenAI"} | shown | spoken_to)
    assert send(api, "PATCH", "providers/openai", {"tool_limit": 20}).json == made.json | {"tool_limit": 20}
    moved = send(api, "PATCH", "providers/openai", {"base_url": "https://evil.example/v1"})
    assert moved.error == (400, "invalid", "api_key")
    assert send(api, "PATCH", "providers/openai", {"api_key": ""}).json["api_key"] == ""
    assert (model.status, model.json["max_rounds"], model.json["tool_limit"]) == (201, 7, None)
    assert send(api, "PATCH", path, {"context_window": 5}).error == (400, "min_value", "context_window")
    assert send(api, "PATCH", path, {"tool_limit": 9}).json == model.json | {"tool_limit": 9}
    assert send(api, "PATCH", path, {"provider": "other"}).error == (400, "unknown_field", "provider")
    assert send(api, "POST", "models", {"provider": "x", "name": "y"}).error == (400, "unknown", "provider")
    with organisation_scope(acme):
        make_agent(acme, model=LanguageModel.objects.get(name="gpt-5"))
    assert send(api, "DELETE", path).error == (409, "in_use", None)
    assert send(api, "DELETE", "providers/openai").error == (409, "in_use", None)
    with organisation_scope(acme):
        Agent.objects.all().delete()
        told = str(list(AuditEntry.objects.values_list("before", "after")))
    assert send(api, "DELETE", path).status == 204
    assert send(api, "DELETE", "providers/openai").status == 204
    assert KEY not in told


def test_a_key_that_cannot_be_read_takes_no_list_with_it(api: Rest, acme: Organisation) -> None:
    with organisation_scope(acme):
        Provider.objects.create(organisation=acme, slug="a", name="A", api_key=KEY)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE capabilities_provider SET api_key = 'damaged'")

    assert api.get("providers").json["results"][0]["api_key"] == "••••"


# -- The catalogue ----------------------------------------------------------------------------------------------------


def test_a_category_lives_its_life(api: Rest) -> None:
    body = {"name": "ops", "title": "Operations", "keywords": ["deploy", "Deploy "]}

    made = send(api, "POST", "categories", body)

    assert (made.status, made.json["keywords"]) == (201, ["Deploy"])
    assert send(api, "PATCH", "categories/ops", {"is_core": True}).json == made.json | {"is_core": True}
    assert send(api, "GET", "categories/ops").json["is_core"] is True
    assert send(api, "POST", "categories", body).error == (400, "taken", "name")
    assert send(api, "PATCH", "categories/ops", {"name": "x"}).error == (400, "unknown_field", "name")
    assert send(api, "DELETE", "categories/ops").status == 204


def test_a_tool_is_switched_and_moved(api: Rest, web: Tool, acme: Organisation) -> None:
    make_category(acme, "ops")

    changed = send(api, "PATCH", "tools/http_post", {"is_enabled": False, "category": "ops"})

    assert (changed.status, changed.json["is_enabled"], changed.json["category"]) == (200, False, "ops")
    assert send(api, "PATCH", "tools/http_post", {"category": "x"}).error == (400, "unknown", "category")
    assert send(api, "PATCH", "tools/http_post", {"name": "x"}).error == (400, "unknown_field", "name")
    assert send(api, "DELETE", "categories/ops").error == (409, "in_use", None)


def test_many_tools_are_switched_at_once_or_none(api: Rest, acme: Organisation) -> None:
    for name in ("a", "b"):
        make_tool(acme, name)

    assert send(api, "POST", "tools/bulk", {"names": ["a", "b"], "is_enabled": False}).json == {
        "changed": 2,
        "waiting": [],
    }
    refused = send(api, "POST", "tools/bulk", {"names": ["a", "x"], "is_enabled": True})

    assert refused.error == (400, "unknown", "names")
    with organisation_scope(acme):
        assert not Tool.objects.filter(is_enabled=True).exists()


def test_a_service_is_set_up_and_forgotten(api: Rest, acme: Organisation) -> None:
    address = {"base_url": "https://search.example.org"}

    ready = send(api, "PUT", "services/searxng", {"values": address})

    assert (ready.status, ready.json["state"], ready.json["fields"][0]["value"]) == (200, "ready", address["base_url"])
    assert send(api, "GET", "services/searxng").json == ready.json
    assert ready.json in send(api, "GET", "services").json["results"]
    assert send(api, "PUT", "services/searxng", {"values": {"x": "y"}}).error == (400, "unknown_field", "values.x")
    assert send(api, "PUT", "services/searxng", {"values": {"base_url": 5, "x": []}}).error[0] == 400
    assert send(api, "DELETE", "services/searxng").status == 204
    assert send(api, "GET", "services/searxng").json["state"] == "needs_set_up"
    assert send(api, "GET", "services/missing").error == (404, "not_found", None)
    with organisation_scope(acme):
        assert not ServiceSetting.objects.exists()


def test_a_secret_of_a_service_goes_in_and_never_comes_out(api: Rest) -> None:
    values = {"base_url": "https://home.example.org", "token": "very-secret-token-5678"}

    put = send(api, "PUT", "services/home_assistant", {"values": values})

    assert put.status == 200, put.text
    assert "••••5678" in [field["value"] for field in put.json["fields"]]
    for reply in (put, api.get("services"), api.get("services/home_assistant"), api.get("audit")):
        assert "very-secret" not in reply.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "roles"),
        ("PATCH", "roles/all"),
        ("DELETE", "roles/all"),
        ("POST", "grants"),
        ("POST", "agents"),
        ("PATCH", "agents/starter"),
        ("DELETE", "agents/starter"),
        ("POST", "providers"),
        ("PATCH", "providers/scripted"),
        ("DELETE", "providers/scripted"),
        ("POST", "models"),
        ("POST", "categories"),
        ("PATCH", "categories/utility"),
        ("DELETE", "categories/utility"),
        ("PATCH", "tools/calculator"),
        ("POST", "tools/bulk"),
        ("GET", "services"),
        ("PUT", "services/searxng"),
        ("DELETE", "services/searxng"),
    ],
)
def test_a_member_without_the_right_may_not(bob: Membership, acme: Organisation, method: str, path: str) -> None:
    make_tool(acme)
    make_agent(acme)
    make_role(acme, bob)

    assert send(Rest(bob), method, path, {}).error == (403, "forbidden", None)
