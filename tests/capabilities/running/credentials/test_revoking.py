"""Sign-ins whose secrets are removed here are ended at their authorization server, afterwards, by a worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.utils import timezone

from capabilities.contract.context import LinkNeeded
from capabilities.models import StoredCredential, StoredSecret, TokenRevocation
from capabilities.running.credentials.oauth import revoking
from capabilities.running.credentials.oauth.requests import OAuthRefused
from capabilities.running.credentials.oauth.revoking import PAUSES, claim_due, revoke_claimed
from capabilities.running.credentials.oauth.tokens import exchange_code, refreshed
from capabilities.running.credentials.signing import stored_credential
from capabilities.running.credentials.writes import (
    clear_secret,
    content_of,
    delete_credential,
    disconnect_account,
    update_credential,
)
from sessions.worker.process import Housekeeper
from tests.authorization_server import AuthorizationServer
from tests.capabilities.running.credentials import test_oauth
from tests.capabilities.running.credentials.test_oauth import (
    agree,
    begin,
    come_back,
    connect,
    oauth_credential,
    values_of,
)
from tests.cast import make_member, make_organisation
from tests.rest import Rest
from tests.threads import at_once
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation
from toolhub.tenants.people.writes import remove_member
from toolhub.tenants.rows.scope import organisation_scope, system_scope

server = test_oauth.server
far = test_oauth.far


def work() -> int:
    """What a worker does until nothing is due; how many tries that were."""
    tries = 0
    while (key := claim_due()) is not None:
        revoke_claimed(key)
        tries += 1
    return tries


def waiting() -> list[TokenRevocation]:
    with system_scope():
        return list(TokenRevocation.objects.order_by("pk"))


def make_due() -> None:
    with system_scope():
        TokenRevocation.objects.update(next_at=Now())


def outcomes() -> list[dict[str, Any]]:
    with system_scope():
        found = AuditEntry.objects.filter(action="account.revoke").order_by("number")
        return [each.before | each.after for each in found]


def token_of(secret: StoredSecret) -> str:
    return values_of(secret)["refresh_token"]


def disconnect(secret: StoredSecret, actor: Membership) -> list[str]:
    with organisation_scope(secret.organisation_id):
        row = StoredSecret.objects.select_related("credential").defer("values_json").get(pk=secret.pk)
        return disconnect_account(row, actor=actor)


def test_disconnecting_asks_nothing_and_a_worker_revokes(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    host = server.url.removeprefix("http://")

    assert disconnect(secret, bob) == [host]

    assert server.revoked == []
    assert work() == 1
    assert (server.revoked, waiting()) == ([token_of(secret)], [])
    assert outcomes() == [{"of": str(bob), "at": host, "revoked": True, "attempts": 1}]
    with organisation_scope(far.organisation_id), pytest.raises(LinkNeeded, match="connect your account first"):
        stored_credential(far.pk, bob.pk, at_most=1)


def of_all(far: StoredCredential, alice: Membership) -> None:
    delete_credential(far, actor=alice)


def moved(far: StoredCredential, alice: Membership) -> None:
    content = replace(content_of(far), origins=["https://elsewhere.example"])
    update_credential(far, content, actor=alice)


def with_another_server(far: StoredCredential, alice: Membership) -> None:
    content = replace(content_of(far), issuer="https://elsewhere.example", resource="")
    update_credential(far, content, actor=alice)


def of_bob(far: StoredCredential, alice: Membership) -> None:
    remove_member(Membership.objects.get(user__email__startswith="bob"), actor=alice)


@pytest.mark.parametrize(
    ("remove", "whose"),
    [(of_all, {"alice", "bob"}), (moved, {"alice", "bob"}), (with_another_server, {"alice", "bob"}), (of_bob, {"bob"})],
)
def test_each_way_to_lose_an_account_revokes_it(
    far: StoredCredential,
    alice: Membership,
    bob: Membership,
    server: AuthorizationServer,
    remove: Callable[[StoredCredential, Membership], None],
    whose: set[str],
) -> None:
    tokens = {"alice": token_of(connect(far, alice)), "bob": token_of(connect(far, bob))}
    with organisation_scope(far.organisation_id):
        remove(StoredCredential.objects.get(pk=far.pk), alice)

    work()

    assert sorted(server.revoked) == sorted(tokens[name] for name in whose)
    assert [each["revoked"] for each in outcomes()] == [True] * len(whose)
    assert waiting() == []


def test_an_origin_that_is_only_taken_away_revokes_nothing(
    far: StoredCredential, alice: Membership, server: AuthorizationServer
) -> None:
    with organisation_scope(far.organisation_id):
        StoredCredential.objects.filter(pk=far.pk).update(origins=[server.url, "https://second.example"])
    connect(far, alice)

    with organisation_scope(far.organisation_id):
        row = StoredCredential.objects.get(pk=far.pk)
        update_credential(row, replace(content_of(row), origins=[server.url]), actor=alice)

    assert (work(), server.revoked) == (0, [])


def test_the_organisations_sign_in_is_revoked_with_the_secret_of_its_client(
    acme: Organisation, alice: Membership, server: AuthorizationServer
) -> None:
    """The credential is deleted behind it: the server still asks who we are."""
    server.clients["typed"] = "client-s3cret"
    fields = {"registration": "manual", "client_id": "typed", "client_secret": "client-s3cret"}
    shared = oauth_credential(acme, server, scope="organisation", client_auth="client_secret_basic", **fields)
    secret = connect(shared, alice)

    with organisation_scope(acme):
        clear_secret(StoredCredential.objects.get(pk=shared.pk), actor=alice)
        delete_credential(StoredCredential.objects.get(pk=shared.pk), actor=alice)
    work()

    assert server.revoked == [token_of(secret)]
    assert outcomes()[0]["of"] == ""


def test_what_is_rolled_back_revokes_nothing(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)

    with transaction.atomic():
        disconnect(secret, bob)
        transaction.set_rollback(True)

    assert (work(), server.revoked) == (0, [])


def test_waiting_revocations_are_encrypted(far: StoredCredential, bob: Membership, server: AuthorizationServer) -> None:
    secret = connect(far, bob)
    disconnect(secret, bob)

    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM capabilities_tokenrevocation")
        (row,) = cursor.fetchall()

    assert not any(value in str(row) for value in values_of(secret).values())


# -- A server that does not do it -------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_asked_again_with_growing_pauses_and_then_given_up(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    server.revoke_status = 503
    disconnect(secret, bob)

    pauses = []
    for _ in PAUSES:
        assert work() == 1
        (row,) = waiting()
        pauses.append(round((row.next_at - timezone.now()).total_seconds()))
        make_due()
    assert work() == 1

    assert all(abs(pause - wanted) <= 20 for pause, wanted in zip(pauses, PAUSES, strict=True))
    assert (waiting(), server.revoked) == ([], [])
    (outcome,) = outcomes()
    assert (outcome["revoked"], outcome["attempts"]) == (False, len(PAUSES) + 1)
    assert "answered with status 503" in outcome["problem"]


def test_a_server_that_comes_back_is_told(far: StoredCredential, bob: Membership, server: AuthorizationServer) -> None:
    secret = connect(far, bob)
    server.revoke_status = 503
    disconnect(secret, bob)
    work()

    server.revoke_status = 200
    assert (work(), server.revoked) == (0, [])
    make_due()
    work()

    assert server.revoked == [token_of(secret)]
    assert outcomes()[0]["attempts"] == 2


def test_a_permanently_refused_revocation_is_tried_once(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    server.clients.clear()
    disconnect(secret, bob)

    assert work() == 1

    assert (waiting(), outcomes()[0]["revoked"]) == ([], False)


def test_all_that_wait_for_a_dead_server_cost_one_try(
    acme: Organisation, far: StoredCredential, alice: Membership, server: AuthorizationServer
) -> None:
    for member in [alice, *(make_member(acme, f"member-{number}") for number in range(4))]:
        connect(far, member)
    server.revoke_status = 503
    with organisation_scope(acme):
        delete_credential(StoredCredential.objects.get(pk=far.pk), actor=alice)

    assert work() == 1

    assert {each.attempts for each in waiting()} == {1}
    make_due()
    server.revoke_status = 200
    assert (work(), len(server.revoked)) == (5, 5)


def test_without_an_address_for_it_the_member_is_told_to_end_it_there(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.metadata = {"revocation_endpoint": None}
    connect(far, bob)
    client = Client()
    client.force_login(bob.user)

    answer = client.post("/o/acme/accounts/crm/disconnect/", follow=True)

    assert "cannot be revoked at the service" in answer.content.decode()
    assert waiting() == []


def test_a_secret_that_no_key_reads_is_removed_all_the_same(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)

    with override_settings(TOOLHUB_FIELD_KEYS=["A" * 43 + "="]):
        assert disconnect(secret, bob) == []

    assert waiting() == []
    with organisation_scope(far.organisation_id):
        assert not StoredSecret.objects.exists()


def test_an_unreadable_revocation_is_given_up(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    disconnect(connect(far, bob), bob)

    with override_settings(TOOLHUB_FIELD_KEYS=["A" * 43 + "="]):
        assert work() == 1

    assert (waiting(), server.revoked) == ([], [])
    assert outcomes()[0]["problem"] == revoking.UNREADABLE


def test_over_rest_nothing_waits_for_the_server(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    server.revoke_status = 503

    assert Rest(bob).delete("accounts/crm").status == 204

    assert server.asked("/revoke") == []
    server.revoke_status = 200
    work()
    assert server.revoked == [token_of(secret)]


# -- Tokens that come too late ----------------------------------------------------------------------------------------


def test_tokens_that_are_renewed_while_the_account_is_disconnected_are_revoked(
    far: StoredCredential, bob: Membership, server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = connect(far, bob)
    with organisation_scope(far.organisation_id):
        StoredSecret.objects.filter(pk=secret.pk).update(expires_at=timezone.now() - timedelta(seconds=1))

    def meanwhile(*args: Any, **fields: Any) -> Any:
        renewed = refreshed(*args, **fields)
        disconnect(secret, bob)
        return renewed

    monkeypatch.setattr("capabilities.running.credentials.oauth.refreshing.refreshed", meanwhile)
    with organisation_scope(far.organisation_id), pytest.raises(LinkNeeded):
        stored_credential(far.pk, bob.pk, at_most=5)
    work()

    assert server.revoked[0] == token_of(secret)
    assert len(server.revoked) == 2
    assert all(grant.is_over for grant in server.tokens.values())


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_sign_in_that_ends_when_the_credential_is_another_by_then_is_revoked(
    far: StoredCredential,
    bob: Membership,
    server: AuthorizationServer,
    monkeypatch: pytest.MonkeyPatch,
    is_deleted: bool,
) -> None:
    back = agree(begin(far, bob).url)

    def meanwhile(*args: Any, **fields: Any) -> Any:
        found = exchange_code(*args, **fields)
        rows = StoredCredential.objects.filter(pk=far.pk)
        rows.delete() if is_deleted else rows.update(redirect_uri="https://changed.example/")
        return found

    monkeypatch.setattr("capabilities.running.credentials.oauth.sign_in.exchange_code", meanwhile)
    with pytest.raises(OAuthRefused, match=r"(changed|deleted) meanwhile"):
        come_back(bob, back)
    work()

    assert len(server.revoked) == 1
    assert all(grant.is_over for grant in server.tokens.values())
    assert outcomes()[0]["of"] == str(bob)


# -- The worker -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_revocation_is_claimed_by_one_worker(server: AuthorizationServer) -> None:
    organisation = make_organisation("acme")
    bob = make_member(organisation, "bob")
    disconnect(connect(oauth_credential(organisation, server), bob), bob)

    claimed = at_once([claim_due] * 4)

    assert sum(key is not None for key in claimed) == 1


@pytest.mark.django_db(transaction=True)
def test_the_sweep_of_a_worker_revokes(server: AuthorizationServer) -> None:
    organisation = make_organisation("acme")
    bob = make_member(organisation, "bob", Access.MEMBER)
    secret = connect(oauth_credential(organisation, server), bob)
    disconnect(secret, bob)
    housekeeper = Housekeeper()

    housekeeper.sweep()

    until = time.monotonic() + 30
    while waiting() and time.monotonic() < until:
        time.sleep(0.05)
    housekeeper.stop()
    assert server.revoked == [token_of(secret)]


def test_a_worker_that_died_holds_it_for_a_while_only(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    secret = connect(far, bob)
    disconnect(secret, bob)
    assert claim_due() is not None

    assert claim_due() is None
    make_due()
    work()

    assert server.revoked == [token_of(secret)]
    assert json.dumps(outcomes()[0]["attempts"]) == "2"
