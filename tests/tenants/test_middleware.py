"""Each request runs in the scope of the organisation that its path or its token names, and in no other."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.test import AsyncClient, Client, RequestFactory

from tests.cast import make_member, make_token, make_tool
from toolhub.tenants.audit.writes import request_id
from toolhub.tenants.middleware import TenancyMiddleware, identify
from toolhub.tenants.models import Membership, Organisation, User
from toolhub.tenants.rows.scope import current_scope, has_scope

pytestmark = pytest.mark.django_db


def asked(path: str, user: User | None = None, *, headers: dict[str, str] | None = None) -> HttpRequest:
    request = RequestFactory().get(path, headers=headers)
    request.user = user or AnonymousUser()
    return request


def scope_seen(request: HttpRequest) -> int | None:
    """The scope in which a view behind the middleware runs."""
    seen: list[int | None] = []

    def view(request: HttpRequest) -> HttpResponseBase:
        seen.append(current_scope() if has_scope() else None)
        return HttpResponse()

    TenancyMiddleware(view)(request)
    return seen[0]


def test_a_member_is_in_the_scope_of_the_organisation_in_the_path(alice: Membership) -> None:
    assert scope_seen(asked("/o/acme/tools/", alice.user)) == alice.organisation_id


def test_a_user_of_two_organisations_is_in_the_one_that_the_path_names(alice: Membership, globex: Organisation) -> None:
    make_member(globex, "alice")

    assert scope_seen(asked("/o/acme/", alice.user)) == alice.organisation_id
    assert scope_seen(asked("/o/globex/", alice.user)) == globex.pk


def test_a_token_is_in_the_scope_of_its_organisation_whatever_the_path_says(alice: Membership) -> None:
    headers = {"Authorization": f"Bearer {make_token(alice)}"}

    assert scope_seen(asked("/api/v1/sessions", headers=headers)) == alice.organisation_id
    assert scope_seen(asked("/api/v1/o/globex/", headers=headers)) == alice.organisation_id


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/o/",
        "/o/acme",
        "/o/globex/",
        "/o/ACME/",
        "/o//acme/",
        "/o/acme%0A/",
        "/O/acme/",
        "/x/o/acme/",
        "/o/-acme/",
        "/o/" + "a" * 64 + "/",
        "/healthz",
        "/accounts/login/",
        "/api/schema/",
        "/api/v1/sessions",
    ],
)
def test_any_other_path_of_a_signed_in_user_has_no_scope(alice: Membership, globex: Organisation, path: str) -> None:
    assert scope_seen(asked(path, alice.user)) is None


def test_a_stranger_and_an_inactive_member_have_no_scope(alice: Membership) -> None:
    assert scope_seen(asked("/o/acme/")) is None
    alice.user.is_active = False
    alice.user.save()
    assert scope_seen(asked("/o/acme/", alice.user)) is None


def test_the_scope_ends_with_the_request(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)

    assert client.get("/o/acme/tools/").status_code == 200
    assert not has_scope()


def test_the_scope_ends_with_a_view_that_fails(alice: Membership) -> None:
    def fail(request: HttpRequest) -> HttpResponseBase:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        TenancyMiddleware(fail)(asked("/o/acme/", alice.user))

    assert not has_scope()


def test_each_request_has_an_id_of_its_own() -> None:
    seen: list[str] = []

    def view(request: HttpRequest) -> HttpResponseBase:
        seen.append(request_id.get())
        return HttpResponse()

    for _ in range(2):
        TenancyMiddleware(view)(asked("/healthz"))

    assert [len(each) for each in seen] == [32, 32]
    assert seen[0] != seen[1]


def test_the_id_of_a_request_is_never_the_clients(client: Client, alice: Membership) -> None:
    identify(asked("/", headers={"X-Request-ID": "chosen"}))

    client.get("/healthz", headers={"X-Request-ID": "chosen"})

    assert request_id.get() != "chosen"


def test_two_requests_at_once_do_not_share_a_scope(alice: Membership, charlie: Membership) -> None:
    """Alice and Charlie ask at the same time, again and again, in one event loop."""
    secrets = {}
    for member in (alice, charlie):
        make_tool(member.organisation, f"{member.organisation.slug}_tool")
        secrets[member.organisation.slug] = make_token(member)

    async def tools(slug: str) -> list[str]:
        response = await AsyncClient().get("/api/v1/tools", headers={"Authorization": f"Bearer {secrets[slug]}"})
        return [tool["name"] for tool in response.json()["results"]]

    async def ask() -> list[list[str]]:
        return list(await asyncio.gather(*(tools(slug) for slug in ["acme", "globex"] * 10)))

    assert async_to_sync(ask)() == [["acme_tool"], ["globex_tool"]] * 10


def test_a_path_with_nul_names_nothing_before_any_view_or_row_is_asked(alice: Membership) -> None:
    headers = {"Authorization": f"Bearer {make_token(alice)}"}

    with pytest.raises(Http404):
        scope_seen(asked("/api/v1/tools/a%00b", headers=headers))


@pytest.mark.parametrize("path", ["/api/v1/tools/a%00b", "/v1/models/a%00b", "/mcp/a%00b", "/o/acme/tools/a%00b/"])
def test_such_a_path_is_a_missing_one_in_the_shape_of_its_api(client: Client, alice: Membership, path: str) -> None:
    client.force_login(alice.user)

    answer = client.get(path, headers={"Authorization": f"Bearer {make_token(alice)}"})

    assert answer.status_code == 404
