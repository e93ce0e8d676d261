"""Tokens: what is kept of them, when they work, and what a garbled Authorization header gets."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import WSGIRequest
from django.http import Http404
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from tests.cast import make_member, make_token
from toolhub.tenants.access import issue_token, member_or_404, membership_of_user, revoke_token, token_by_secret
from toolhub.tenants.middleware import MAX_SECRET, identify
from toolhub.tenants.models import Access, AdminRight, ApiToken, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

UNAUTHORISED = {
    "error": {"code": "not_authenticated", "message": "Authentication credentials were not provided.", "field": None}
}


def stored(secret: str) -> ApiToken:
    token = token_by_secret(secret)
    assert token is not None
    return token


def status_of(client: Client, secret: str) -> int:
    return client.get("/api/v1/sessions", headers={"Authorization": f"Bearer {secret}"}).status_code


# -- What is kept -----------------------------------------------------------------------------------------------------


def test_only_the_hash_of_a_token_is_kept(bob: Membership) -> None:
    secret = make_token(bob)

    with system_scope():
        row = ApiToken.objects.values().get()
        audit = AuditEntry.objects.values().get()

    assert secret.startswith("thub_")
    assert len(secret) > 40
    assert (row["prefix"], len(row["digest"])) == (secret[:9], 64)
    assert secret[9:] not in f"{row} {audit}"


def test_two_tokens_of_a_member_differ(bob: Membership) -> None:
    assert make_token(bob) != make_token(bob)


def test_a_token_is_found_with_one_query(bob: Membership, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    secret = make_token(bob)

    with django_assert_num_queries(1):
        token = stored(secret)
        found = token.membership, token.membership.organisation.slug, token.membership.user.email

    assert found == (bob, "acme", "bob@example.com")


# -- When it works ----------------------------------------------------------------------------------------------------


def test_a_token_works_until_it_expires(client: Client, bob: Membership) -> None:
    secret = make_token(bob, days=1)
    assert status_of(client, secret) == 200

    with system_scope():
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert status_of(client, secret) == 401


def test_a_revoked_token_is_refused_at_once(client: Client, alice: Membership, bob: Membership) -> None:
    secret = make_token(bob)
    token = stored(secret)
    assert token.is_usable

    with organisation_scope(bob.organisation):
        revoke_token(token, actor=alice)
        revoke_token(token, actor=alice)
        actions = list(AuditEntry.objects.order_by("pk").values_list("action", "actor_label"))
        token.refresh_from_db()

    assert not token.is_usable
    assert status_of(client, secret) == 401
    assert actions == [("token.issue", "toolhub"), ("token.revoke", "alice@example.com")]


def test_the_token_of_an_inactive_user_is_refused(client: Client, bob: Membership) -> None:
    secret = make_token(bob)
    bob.user.is_active = False
    bob.user.save()

    assert status_of(client, secret) == 401


def test_the_token_of_a_member_who_left_is_gone(client: Client, bob: Membership) -> None:
    secret = make_token(bob)
    with organisation_scope(bob.organisation):
        bob.delete()

    assert status_of(client, secret) == 401


def test_a_token_speaks_for_one_organisation_even_where_its_user_is_in_two(
    client: Client, globex: Organisation, bob: Membership
) -> None:
    make_member(globex, "bob", Access.ADMIN)
    secret = make_token(bob)

    response = client.get("/api/v1/members", headers={"Authorization": f"Bearer {secret}"})

    assert response.status_code == 403  # a plain member, as in Acme; in Globex he is an admin


def test_the_last_use_is_written_once_a_minute(
    client: Client, bob: Membership, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    secret = make_token(bob)
    assert stored(secret).last_used_at is None

    assert status_of(client, secret) == 200
    first = stored(secret).last_used_at
    assert first is not None
    with django_assert_num_queries(3):  # the token, the right `sessions`, the sessions
        assert status_of(client, secret) == 200
    assert stored(secret).last_used_at == first

    with system_scope():
        ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    assert status_of(client, secret) == 200
    again = stored(secret).last_used_at
    assert again is not None
    assert again >= first


def test_a_refused_token_leaves_no_trace_of_use(client: Client, bob: Membership) -> None:
    secret = make_token(bob, days=-1)

    assert status_of(client, secret) == 401
    with system_scope():
        assert ApiToken.objects.get().last_used_at is None


def test_a_login_does_not_open_the_rest_api(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)

    assert client.get("/api/v1/sessions").status_code == 401


def test_a_token_does_not_open_pages(client: Client, alice: Membership) -> None:
    response = client.get("/o/acme/", headers={"Authorization": f"Bearer {make_token(alice)}"})

    assert response.status_code == 302


# -- Garbled headers --------------------------------------------------------------------------------------------------

GARBAGE = {
    "empty": "",
    "scheme alone": "Bearer",
    "scheme and a blank": "Bearer ",
    "no scheme": "{secret}",
    "another scheme": "Token {secret}",
    "basic": "Basic {secret}",
    "glued": "Bearer{secret}",
    "quoted": "Bearer '{secret}'",
    "double quoted": 'Bearer "{secret}"',
    "sql": "Bearer ' OR '1'='1' --",
    "sql in the scheme": "Bearer' OR 1=1 -- {secret}",
    "twice in one header": "Bearer {secret}, Bearer {secret}",
    "two secrets": "Bearer {secret} {secret}",
    "nul at the end": "Bearer {secret}\x00",
    "nul alone": "Bearer \x00",
    "latin-1": "Bearer \xe9\xff\xfe",
    "utf-8 as latin-1": "Bearer " + "ключ🔑".encode().decode("latin-1"),
    "control characters": "Bearer \x01\x1b[31m",
    "prefix only": "Bearer thub_",
    "digest": "Bearer {digest}",
    "upper case": "Bearer {upper}",
    "one character short": "Bearer {short}",
    "percent-encoded": "Bearer %74hub_",
    "a megabyte": "Bearer " + "a" * 1_000_000,
    "a megabyte of blanks": "Bearer " + " " * 1_000_000,
    "a megabyte of scheme": "B" * 1_000_000,
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_garbled_authorization_header_is_nobody(client: Client, bob: Membership, garbage: str) -> None:
    secret = make_token(bob)
    header = GARBAGE[garbage].format(
        secret=secret, digest=stored(secret).digest, upper=secret.upper(), short=secret[:-1]
    )

    response = client.get("/api/v1/sessions", HTTP_AUTHORIZATION=header)

    assert (response.status_code, response.json()) == (401, UNAUTHORISED)
    assert response["WWW-Authenticate"] == 'Bearer realm="toolhub"'


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}", "Bearer {}  "])
def test_the_scheme_is_read_in_any_case_and_blanks_around_the_secret_are_not_its_own(
    client: Client, bob: Membership, header: str
) -> None:
    response = client.get("/api/v1/sessions", HTTP_AUTHORIZATION=header.format(make_token(bob)))

    assert response.status_code == 200


def test_two_authorization_headers_are_nobody(alice: Membership, bob: Membership) -> None:
    """A server that joins them with a comma and one that takes the last must not differ in whom they let in."""
    headers = [(b"authorization", f"Bearer {make_token(member)}".encode()) for member in (alice, bob)]
    scope = {"type": "http", "method": "GET", "path": "/api/v1/sessions", "headers": headers, "query_string": b""}

    assert identify(ASGIRequest(scope, BytesIO())) is None


def test_an_overlong_secret_is_not_even_looked_up(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    request: WSGIRequest = RequestFactory().get(
        "/api/v1/sessions", HTTP_AUTHORIZATION="Bearer " + "x" * (MAX_SECRET + 1)
    )

    with django_assert_num_queries(0):
        assert identify(request) is None


# -- Access and rights ------------------------------------------------------------------------------------------------


def test_a_membership_is_found_by_the_organisations_name(alice: Membership, charlie: Membership) -> None:
    assert membership_of_user(alice.user, "acme") == alice
    assert membership_of_user(alice.user, "globex") is None
    assert membership_of_user(alice.user, "nowhere") is None


@pytest.mark.parametrize(
    ("access", "held"),
    [
        (Access.ADMIN, set(Right)),
        (Access.OPERATOR, set(Right) - {Right.MEMBERS, Right.APPROVE_CODE}),
        (Access.MEMBER, {Right.AUDIT}),
        (Access.VIEWER, {Right.AUDIT}),
    ],
)
def test_access_levels_and_delegated_rights_add_up(acme: Organisation, access: Access, held: set[Right]) -> None:
    member = make_member(acme, "dana", access)

    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=member, right=Right.AUDIT)
        assert {right for right in Right if member.has_right(right)} == held


def test_a_request_without_a_membership_is_a_missing_page() -> None:
    with pytest.raises(Http404):
        member_or_404(RequestFactory().get("/"))


def test_a_token_of_ones_own_making_is_taken_whole(bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        token, secret = issue_token(bob, "Mine", actor=bob, secret="x" * 32)

    assert secret == "x" * 32
    assert stored(secret) == token
