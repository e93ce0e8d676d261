"""Signing in at a real authorization server: found, checked, begun, ended, renewed, and refused where it must be."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.utils import timezone

from capabilities.models import OAuthSignIn, StoredCredential, StoredSecret
from capabilities.running.credentials.oauth import tokens
from capabilities.running.credentials.oauth.clients import client_document
from capabilities.running.credentials.oauth.discovery import discover
from capabilities.running.credentials.oauth.requests import TOO_MANY, OAuthRefused, ask
from capabilities.running.credentials.oauth.sign_in import (
    Answer,
    Departure,
    OwnAddresses,
    begin_sign_in,
    digest,
    end_sign_in,
    used_sign_in,
)
from capabilities.running.credentials.oauth.tokens import exchange_code
from tests.authorization_server import AuthorizationServer
from tests.capabilities.running.credentials.test_signing import make_credential
from tests.capabilities.running.egress.servers import Server, serve
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

OURS = OwnAddresses("http://127.0.0.1:9/oauth/callback/", "http://127.0.0.1:9/oauth/client.json")
LOGIN = "login-session"
egress_server = pytest.fixture(serve, name="egress_server")
canary = pytest.fixture(serve, name="canary")


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as running:
        yield running


@pytest.fixture
def far(acme: Organisation, server: AuthorizationServer) -> StoredCredential:
    """Members connect own accounts at the server."""
    return oauth_credential(acme, server)


def oauth_credential(organisation: Organisation, server: AuthorizationServer, **fields: Any) -> StoredCredential:
    defaults = {"kind": "oauth", "scope": "member", "resource": server.resource, "origins": [server.url]}
    return make_credential(organisation, **(defaults | fields))


def begin(credential: StoredCredential, member: Membership) -> Departure:
    with organisation_scope(credential.organisation_id):
        return begin_sign_in(credential, actor=member, login_key=LOGIN, addresses=OURS)


class NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def agree(url: str) -> dict[str, str]:
    """Open the page to sign in, as a browser does; what it sends back in the query."""
    opener = build_opener(NoRedirects)
    try:
        opener.open(url, timeout=5)
    except OSError as answer:
        location = answer.headers["Location"]  # type: ignore[attr-defined]
        assert location.startswith(OURS.redirect_uri)
        return {name: values[-1] for name, values in parse_qs(urlsplit(location).query).items()}
    raise AssertionError("The server did not send the member back.")


def come_back(member: Membership, back: dict[str, str], *, login: str = LOGIN) -> StoredSecret:
    with organisation_scope(member.organisation_id):
        found = OAuthSignIn.objects.select_related("credential").get(state_sha256=digest(back["state"]))
        answer = Answer(back.get("code", ""), back.get("iss", ""), back.get("error", ""))
        return end_sign_in(used_sign_in(found, login_key=login), answer, actor=member)


def connect(credential: StoredCredential, member: Membership) -> StoredSecret:
    return come_back(member, agree(begin(credential, member).url))


def values_of(secret: StoredSecret) -> dict[str, str]:
    found: dict[str, str] = json.loads(secret.values_json)
    return found


# -- Connect ----------------------------------------------------------------------------------------------------------


def test_a_member_connects_an_own_account(far: StoredCredential, bob: Membership, server: AuthorizationServer) -> None:
    secret = connect(far, bob)

    assert (secret.membership_id, secret.status, secret.account) == (bob.pk, "connected", "someone@far.example")
    assert server.tokens[values_of(secret)["access_token"]].resource == server.resource


def test_what_is_asked_for_has_pkce_and_the_resource(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    connect(far, bob)

    asked, exchanged = server.asked("/authorize")[0].query, server.asked("/token")[0].form
    assert (asked["code_challenge_method"], asked["resource"]) == ("S256", server.resource)
    assert (exchanged["resource"], exchanged["redirect_uri"]) == (server.resource, OURS.redirect_uri)
    assert len(exchanged["code_verifier"]) >= 43


def test_a_client_is_registered_once(
    far: StoredCredential, alice: Membership, bob: Membership, server: AuthorizationServer
) -> None:
    connect(far, alice)
    connect(far, bob)

    assert len(server.clients) == len(server.asked("/register")) == 1
    with organisation_scope(far.organisation_id):
        far.refresh_from_db()
    assert (far.registration, far.client_id, far.issuer) == ("dynamic", *server.clients, server.url)


def test_our_document_is_taken_where_the_server_reads_such(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.metadata["client_id_metadata_document_supported"] = True

    asked = parse_qs(urlsplit(begin(far, bob).url).query)

    assert (asked["client_id"], server.clients) == ([OURS.document_url], {})
    document = client_document(OURS.document_url, OURS.redirect_uri)
    assert (document["client_id"], document["redirect_uris"]) == (OURS.document_url, [OURS.redirect_uri])


def test_a_typed_client_says_who_it_is_with_its_secret(
    acme: Organisation, bob: Membership, server: AuthorizationServer
) -> None:
    server.clients["typed client"] = "se:cret/1"
    server.metadata |= {"registration_endpoint": None}
    typed = {"registration": "manual", "client_id": "typed client", "client_secret": "se:cret/1"}
    credential = oauth_credential(acme, server, client_auth="client_secret_basic", **typed)

    assert connect(credential, bob).status == "connected"
    assert "client_secret" not in server.asked("/token")[0].form


def test_a_server_that_registers_nobody_needs_a_typed_client(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.metadata["registration_endpoint"] = None

    with pytest.raises(OAuthRefused, match="an administrator must register one there"):
        begin(far, bob)


# -- S39: what a hostile server says of itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"issuer": "https://evil.example"}, "says that it is another issuer"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "cannot be read|only http"),
        ({"authorization_endpoint": "http://10.0.0.7/authorize"}, "is not an https address"),
        ({"authorization_endpoint": "https://10.0.0.7/authorize"}, "is a private address"),
        ({"authorization_endpoint": "https://169.254.169.254/latest"}, "is a private address"),
        (
            {"authorization_endpoint": "https://$(touch /tmp/x).example/"},
            "cannot be read|may not be used",
        ),
        ({"authorization_endpoint": "javascript:alert(1)"}, "cannot be read"),
        ({"authorization_endpoint": "https://user@127.0.0.1/authorize"}, "user name"),
        ({"token_endpoint": "http://192.168.0.1/token"}, "is not an https address"),
        ({"token_endpoint": None}, r"cannot be read \(token_endpoint"),
        ({"registration_endpoint": "https://[::1]/register"}, "is a private address"),
        ({"revocation_endpoint": "https://10.1.2.3/revoke"}, "is a private address"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
        ({"code_challenge_methods_supported": None}, "PKCE with S256"),
    ],
)
def test_s39_metadata_of_a_hostile_server_is_refused(
    server: AuthorizationServer, metadata: dict[str, Any], message: str
) -> None:
    server.metadata = metadata

    with pytest.raises(OAuthRefused, match=f"(?i){message}"):
        discover(server.resource, "")


@pytest.mark.parametrize(
    ("resource_metadata", "message"),
    [
        ({"resource": "https://other.example/mcp"}, "describes another resource"),
        ({"authorization_servers": ["https://10.0.0.7"]}, "private address"),
        ({"authorization_servers": ["http://10.0.0.7"]}, "not an https address"),
    ],
)
def test_s39_a_hostile_resource_is_refused(
    server: AuthorizationServer, resource_metadata: dict[str, Any], message: str
) -> None:
    server.resource_metadata = resource_metadata

    with pytest.raises(OAuthRefused, match=message):
        discover(server.resource, "")


def test_a_resource_that_names_another_server_than_before_is_refused(server: AuthorizationServer) -> None:
    with AuthorizationServer() as other:
        server.resource_metadata = {"authorization_servers": [other.url]}

        with pytest.raises(OAuthRefused, match="now names another authorization server"):
            discover(server.resource, server.url)


def test_a_server_is_found_by_its_issuer_alone(server: AuthorizationServer) -> None:
    found = discover("", server.url)

    assert (found.issuer, found.resource_indicator) == (server.url, "")


# -- Coming back ------------------------------------------------------------------------------------------------------


def test_s30_a_state_is_good_once(far: StoredCredential, bob: Membership) -> None:
    back = agree(begin(far, bob).url)
    come_back(bob, back)

    with pytest.raises(OAuthRefused, match="used already"):
        come_back(bob, back)


def test_s30_a_state_belongs_to_one_login_session(far: StoredCredential, bob: Membership) -> None:
    back = agree(begin(far, bob).url)

    with pytest.raises(OAuthRefused, match="another browser or login"):
        come_back(bob, back, login="of somebody else")

    assert come_back(bob, back).status == "connected"


def test_s30_a_sign_in_of_somebody_else_is_not_ended(far: StoredCredential, alice: Membership, bob: Membership) -> None:
    back = agree(begin(far, bob).url)

    with pytest.raises(OAuthRefused, match="begun by somebody else"):
        come_back(alice, back)


@pytest.mark.parametrize(("iss", "message"), [("https://evil.example", "another authorization"), ("", "does not say")])
def test_the_answer_says_which_server_it_is_from(
    far: StoredCredential, bob: Membership, server: AuthorizationServer, iss: str, message: str
) -> None:
    server.iss = iss

    with pytest.raises(OAuthRefused, match=message):
        connect(far, bob)

    assert server.asked("/token") == []


def test_a_denied_consent_is_refused(far: StoredCredential, bob: Membership, server: AuthorizationServer) -> None:
    server.consent = "deny"

    with pytest.raises(OAuthRefused, match="you did not agree there"):
        connect(far, bob)


def test_s39_a_token_for_another_service_is_not_kept(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.audience = "https://other.example/mcp"

    with pytest.raises(OAuthRefused, match="gave a token for another service"):
        connect(far, bob)

    with organisation_scope(far.organisation_id):
        assert not StoredSecret.objects.exists()


def test_a_token_that_names_this_service_is_kept(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    server.audience = server.resource

    assert connect(far, bob).status == "connected"


def test_a_credential_that_was_changed_meanwhile_gets_no_token(
    far: StoredCredential, bob: Membership, server: AuthorizationServer
) -> None:
    back = agree(begin(far, bob).url)
    with organisation_scope(far.organisation_id):
        StoredCredential.objects.filter(pk=far.pk).update(client_id="another")

    with pytest.raises(OAuthRefused, match="changed meanwhile"):
        come_back(bob, back)

    assert server.asked("/token") == []


def test_s30_a_sign_in_is_good_for_ten_minutes(far: StoredCredential, bob: Membership) -> None:
    back = agree(begin(far, bob).url)
    with organisation_scope(far.organisation_id):
        OAuthSignIn.objects.update(expires_at=timezone.now())

    with pytest.raises(OAuthRefused, match="took more than ten minutes"):
        come_back(bob, back)


def test_who_may_not_manage_it_any_more_signs_the_organisation_in_no_more(
    acme: Organisation, server: AuthorizationServer, alice: Membership
) -> None:
    shared = oauth_credential(acme, server, scope="organisation")
    back = agree(begin(shared, alice).url)
    with organisation_scope(acme):
        Membership.objects.filter(pk=alice.pk).update(access=Access.MEMBER)
        demoted = Membership.objects.get(pk=alice.pk)

    with pytest.raises(PermissionDenied):
        come_back(demoted, back)

    assert server.asked("/token") == []


def test_a_credential_that_changes_during_the_exchange_gets_no_token(
    far: StoredCredential, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(*args: Any, **options: Any) -> Any:
        StoredCredential.objects.filter(pk=far.pk).update(client_id="another")
        return exchange_code(*args, **options)

    monkeypatch.setattr("capabilities.running.credentials.oauth.sign_in.exchange_code", exchange)

    with pytest.raises(OAuthRefused, match="changed meanwhile"):
        come_back(bob, agree(begin(far, bob).url))

    with organisation_scope(far.organisation_id):
        assert not StoredSecret.objects.exists()


def test_metadata_of_the_former_server_is_not_stored_for_a_new_one(
    far: StoredCredential, bob: Membership, server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*args: Any) -> Any:
        StoredCredential.objects.filter(pk=far.pk).update(resource="https://other.example.org/mcp")
        return discover(*args)

    monkeypatch.setattr("capabilities.running.credentials.oauth.sign_in.discover", find)

    with pytest.raises(OAuthRefused, match="changed a moment ago"):
        begin(far, bob)

    with organisation_scope(far.organisation_id):
        now = StoredCredential.objects.get()
        assert (now.client_id, now.server_metadata) == ("", {})


def test_a_member_begins_so_many_sign_ins(
    far: StoredCredential, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capabilities.running.credentials.oauth.sign_in.MOST_BEGUN", 2)
    begin(far, bob)
    begin(far, bob)

    with pytest.raises(OAuthRefused, match="Too many sign-ins"):
        begin(far, bob)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Admin: 1", "tök", "x" * 20_001, None, 7])
def test_what_is_no_token_is_not_kept(far: StoredCredential, server: AuthorizationServer, token: Any) -> None:
    far.server_metadata = {"token_endpoint": f"{server.url}/token"}

    with pytest.raises(OAuthRefused, match="gave no token that can be used"):
        tokens._tokens(far, {"access_token": token, "token_type": "bearer"})


def test_an_authorization_server_sends_no_request_on(egress_server: Server, canary: Server) -> None:
    """A code or a client's secret would go along."""
    egress_server.redirect("/token", f"{canary.url}/", status=307)

    with pytest.raises(OAuthRefused, match="redirects elsewhere"):
        ask("POST", f"{egress_server.url}/token", content=b"code=1")

    assert canary.requests == []


# -- What stops nobody else -------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_sign_ins_at_a_server_that_never_answers_hold_few_threads(
    server: AuthorizationServer,
    far: StoredCredential,
    bob: Membership,
    charlie: Membership,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each holds a thread that answers everybody's pages."""
    hangs, hanging = threading.Event(), threading.Semaphore(0)
    other = oauth_credential(charlie.organisation, server)

    def never(*_: Any, **__: Any) -> Any:
        hanging.release()
        hangs.wait(60)
        raise OAuthRefused("It did not answer.")

    monkeypatch.setattr("capabilities.running.credentials.oauth.sign_in.discover", never)
    said: list[str] = []

    def connect(credential: StoredCredential, member: Membership) -> None:
        try:
            begin(credential, member)
        except OAuthRefused as error:
            said.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=connect, args=(far, bob)) for _ in range(12)]
    for thread in threads:
        thread.start()
    held = sum(hanging.acquire(timeout=20) for _ in range(4))
    for _ in range(400):
        if len(said) == 8:
            break
        time.sleep(0.05)
    refused = list(said)
    threads.append(threading.Thread(target=connect, args=(other, charlie)))
    threads[-1].start()
    another = hanging.acquire(timeout=20)
    hangs.set()
    for thread in threads:
        thread.join()

    assert (held, another, refused) == (4, True, [TOO_MANY] * 8)
    assert said[8:] == ["It did not answer."] * 5
