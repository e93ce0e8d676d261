"""Access tokens are renewed before they end, by one worker at a time; a sign-in that is over is not used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from capabilities.contract.context import Credential, LinkNeeded, ToolError
from capabilities.models import StoredCredential, StoredSecret
from capabilities.running.credentials.oauth.tokens import Tokens, refreshed
from capabilities.running.credentials.signing import after_refusal, stored_credential
from tests.authorization_server import AuthorizationServer
from tests.capabilities.running.credentials.test_oauth import connect, oauth_credential, values_of
from tests.cast import make_member, make_organisation
from tests.threads import at_once
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as running:
        yield running


@pytest.fixture
def far(acme: Organisation, server: AuthorizationServer) -> StoredCredential:
    return oauth_credential(acme, server)


def sign(credential: StoredCredential, member: Membership | None, *, at_most: float = 5) -> Credential:
    with organisation_scope(credential.organisation_id):
        return stored_credential(credential.pk, member.pk if member else None, at_most=at_most)


def change(secret: StoredSecret, **fields: Any) -> None:
    with organisation_scope(secret.organisation_id):
        StoredSecret.objects.filter(pk=secret.pk).update(**fields)


def ended(secret: StoredSecret) -> StoredSecret:
    """Its access token has ended."""
    change(secret, expires_at=timezone.now() - timedelta(seconds=1))
    return secret


def now_of(secret: StoredSecret) -> StoredSecret:
    with organisation_scope(secret.organisation_id):
        return StoredSecret.objects.select_related("credential__organisation").get(pk=secret.pk)


def token_of(credential: Credential) -> str:
    return credential.headers["Authorization"].removeprefix("Bearer ")


def test_a_token_that_has_time_left_is_used_as_it_is(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)

    assert token_of(sign(far, bob)) == values_of(secret)["access_token"]
    assert server.refreshes() == 0


def test_a_token_that_ended_is_exchanged_with_its_refresh_token_for_the_same_resource(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = ended(connect(far, bob))

    signed = sign(far, bob)

    assert token_of(signed) in server.tokens
    asked = server.asked("/token")[-1].form
    assert (asked["refresh_token"], asked["resource"]) == (values_of(secret)["refresh_token"], server.resource)
    kept = now_of(secret)
    assert values_of(kept)["access_token"] == token_of(signed)
    assert values_of(kept)["refresh_token"] != values_of(secret)["refresh_token"]
    assert (kept.refreshing_until, kept.status) == (None, "connected")


def test_what_is_kept_of_new_tokens_is_encrypted(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = ended(connect(far, bob))
    token = token_of(sign(far, bob))

    with connection.cursor() as cursor:
        cursor.execute("SELECT values_json FROM capabilities_storedsecret WHERE id = %s", [secret.pk])
        stored = cursor.fetchone()[0]
    assert token not in stored


def test_a_refresh_token_that_stays_is_kept(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.rotates = False
    secret = ended(connect(far, bob))

    sign(far, bob)

    assert values_of(now_of(secret))["refresh_token"] == values_of(secret)["refresh_token"]


def test_a_refresh_token_that_is_not_said_again_is_kept(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.rotates = server.repeats = False
    secret = ended(connect(far, bob))
    first = values_of(secret)["refresh_token"]

    for _ in range(2):
        sign(far, bob)
        assert values_of(now_of(secret))["refresh_token"] == first
        ended(secret)

    assert server.refreshes() == 2


def test_a_revoked_sign_in_asks_the_member_to_sign_in_again(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = ended(connect(far, bob))
    server.end_everything()

    with pytest.raises(LinkNeeded, match="connect your account again"):
        sign(far, bob)

    kept = now_of(secret)
    assert kept.status == "refused"
    assert "it ended, or was revoked" in kept.reason
    with pytest.raises(LinkNeeded):
        sign(far, bob)
    assert server.refreshes() == 1


def test_of_the_organisations_a_revoked_sign_in_asks_an_administrator(
    acme: Organisation, alice: Membership, bob: Membership, server: AuthorizationServer
) -> None:
    shared = oauth_credential(acme, server, scope="organisation")
    ended(connect(shared, alice))
    server.end_everything()

    with pytest.raises(ToolError, match="an administrator must enter its secret again"):
        sign(shared, bob)


def test_a_server_that_is_away_does_not_end_a_sign_in(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = ended(connect(far, bob))
    with organisation_scope(far.organisation_id):
        StoredCredential.objects.filter(pk=far.pk).update(
            server_metadata={"issuer": server.url, "token_endpoint": "http://127.0.0.1:9/token"}
        )

    with pytest.raises(ToolError, match="could not be renewed"):
        sign(far, bob)

    kept = now_of(secret)
    assert (kept.status, kept.refreshing_until) == ("connected", None)


def test_a_worker_that_died_holds_the_others_up_for_a_while_only(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = ended(connect(far, bob))
    change(secret, refreshing_until=timezone.now() + timedelta(seconds=30))

    with pytest.raises(ToolError, match="is being renewed"):
        sign(far, bob, at_most=0.2)

    change(secret, refreshing_until=timezone.now() - timedelta(seconds=1))
    assert token_of(sign(far, bob)) in server.tokens


def test_a_worker_that_comes_too_late_stores_nothing_over_anothers_token(
    far: StoredCredential, bob: Membership, server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up for longer than it had the row; what another one stored, or a member entered, is newer."""
    secret = ended(connect(far, bob))

    def renew(*args: Any, **options: Any) -> Tokens:
        tokens = refreshed(*args, **options)
        newer = {"values_json": '{"access_token": "of-another", "refresh_token": "r"}', "refreshing_until": None}
        change(secret, **newer, expires_at=timezone.now() + timedelta(hours=1))
        return tokens

    monkeypatch.setattr("capabilities.running.credentials.oauth.refreshing.refreshed", renew)

    assert token_of(sign(far, bob)) == "of-another"


def test_while_another_worker_renews_it_a_token_with_time_left_is_used(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    soon = timezone.now() + timedelta(seconds=40)
    change(secret, expires_at=soon, refreshing_until=timezone.now() + timedelta(seconds=30))

    assert token_of(sign(far, bob)) == values_of(secret)["access_token"]


def test_after_a_401_the_request_is_signed_anew(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    connect(far, bob)
    refused = sign(far, bob)

    with organisation_scope(far.organisation_id):
        again = after_refusal(refused, 401, 'Bearer error="invalid_token"', membership_id=bob.pk, at_most=5)

    assert again is not None
    assert token_of(again) != token_of(refused)
    assert token_of(again) in server.tokens


def test_step_up_goes_on_after_the_member_agreed(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    with organisation_scope(far.organisation_id):
        StoredCredential.objects.filter(pk=far.pk).update(scopes=["mail"])
    connect(far, bob)
    signed = sign(far, bob)
    challenge = 'Bearer error="insufficient_scope", scope="files"'

    with organisation_scope(far.organisation_id), pytest.raises(LinkNeeded, match="More permissions are needed: files"):
        after_refusal(signed, 403, challenge, membership_id=bob.pk, at_most=5)
    connect(far, bob)

    assert server.asked("/authorize")[-1].query["scope"] == "mail files"
    assert server.tokens[token_of(sign(far, bob))].scope == "mail files"


def test_s39_nobodys_call_uses_another_members_token(
    acme: Organisation, alice: Membership, bob: Membership, server: AuthorizationServer
) -> None:
    """Two members, two credentials, whoever is connected to which: a call is signed with the own token, or not."""
    first, second = (oauth_credential(acme, server, name=name) for name in ("first", "second"))
    owners: dict[str, tuple[int, int]] = {}
    for credential, members in ((first, (alice,)), (second, (alice, bob))):
        for member in members:
            owners[values_of(connect(credential, member))["access_token"]] = (credential.pk, member.pk)

    for credential in (first, second):
        for member in (alice, bob):
            if (credential.pk, member.pk) in owners.values():
                assert owners[token_of(sign(credential, member))] == (credential.pk, member.pk)
            else:
                with pytest.raises(LinkNeeded):
                    sign(credential, member)


def test_who_left_the_organisation_is_signed_for_no_more(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    connect(far, bob)
    with organisation_scope(far.organisation_id):
        Membership.objects.filter(pk=bob.pk).update(ended_at=timezone.now())

    with pytest.raises(LinkNeeded):
        sign(far, bob)


@pytest.mark.django_db(transaction=True)
def test_workers_that_come_at_once_refresh_once(server: AuthorizationServer) -> None:
    server.delay = 0.3
    organisation = make_organisation("acme")
    bob = make_member(organisation, "bob")
    far = oauth_credential(organisation, server)
    secret = ended(connect(far, bob))

    signed = at_once([lambda: token_of(sign(far, bob, at_most=30))] * 6)

    assert server.refreshes() == 1
    assert set(signed) == {json.loads(now_of(secret).values_json)["access_token"]}
    assert now_of(secret).status == "connected"
