"""Who may write credentials and accounts, what stays secret, and that no secret goes where it was not typed for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client

from capabilities.common.refused import ChangeRefused
from capabilities.models import OAuthSignIn, StoredCredential, StoredSecret, Tool
from capabilities.running.credentials.writes import (
    CredentialContent,
    clear_secret,
    connect_account,
    content_of,
    create_credential,
    delete_credential,
    disconnect_account,
    set_secret,
    update_credential,
)
from tests.capabilities.running.credentials.test_signing import ORIGIN, make_credential, make_secret
from tests.cast import make_member, make_tool
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.people.writes import remove_member
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
SECRET = "s3cret-of-acme-1"
CRM = CredentialContent("CRM", origins=["https://API.example.org:443/"])


@pytest.fixture(autouse=True)
def in_scope(acme: Organisation) -> Any:
    with organisation_scope(acme):
        yield


def with_right(member: Membership, right: Right, category: str = "") -> Membership:
    AdminRight.objects.create(organisation=member.organisation, membership=member, right=right, category=category)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def refusal(field: str) -> Any:
    return pytest.raises(ChangeRefused, check=lambda error: error.field == field)


# -- Who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "category", "may"),
    [
        (Right.PROVIDERS, "", True),
        (Right.CATALOGUE, "", True),
        (Right.CATALOGUE, "utility", False),
        (Right.TOOLKITS, "", False),
    ],
)
def test_providers_or_the_whole_catalogue_manage_credentials(
    bob: Membership, right: Right, category: str, may: bool
) -> None:
    bob = with_right(bob, right, category)

    if may:
        assert create_credential("crm", CRM, actor=bob, secret={"token": SECRET}).created_by == bob
    else:
        with pytest.raises(PermissionDenied):
            create_credential("crm", CRM, actor=bob)
        assert not StoredCredential.objects.exists()


def test_a_member_manages_none(acme: Organisation, bob: Membership) -> None:
    credential = make_credential(acme)
    make_secret(credential)

    for write in (
        lambda: update_credential(credential, CRM, actor=bob),
        lambda: delete_credential(credential, actor=bob),
        lambda: set_secret(credential, {"token": SECRET}, actor=bob),
        lambda: clear_secret(credential, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            write()


def test_members_disconnect_their_own_account_and_nobody_elses(
    acme: Organisation, alice: Membership, bob: Membership
) -> None:
    credential = make_credential(acme, scope="member")
    dave = make_member(acme, "dave")
    of_alice, of_bob, of_dave = (make_secret(credential, member) for member in (alice, bob, dave))

    for other in (of_alice, of_dave):
        with pytest.raises(PermissionDenied):
            disconnect_account(other, actor=bob)
    disconnect_account(of_bob, actor=bob)

    assert set(StoredSecret.objects.all()) == {of_alice, of_dave}


def test_nobody_below_admin_disconnects_an_admin(acme: Organisation, alice: Membership, bob: Membership) -> None:
    bob = with_right(bob, Right.PROVIDERS)
    secret = make_secret(make_credential(acme, scope="member"), alice)

    with pytest.raises(PermissionDenied, match="more access than you"):
        disconnect_account(secret, actor=bob)


# -- A secret goes where it was typed for -----------------------------------------------------------------------------


@pytest.mark.parametrize("origins", [["https://evil.example"], [ORIGIN, "https://evil.example"], ["http://127.0.0.1"]])
def test_rule_12_another_address_wants_the_secret_again(
    acme: Organisation, bob: Membership, origins: list[str]
) -> None:
    bob = with_right(bob, Right.CATALOGUE)
    credential = make_credential(acme)
    make_secret(credential)

    with refusal("token"):
        update_credential(credential, replace(content_of(credential), origins=origins), actor=bob)

    credential.refresh_from_db()
    assert credential.origins == [ORIGIN]


def test_with_the_secret_typed_again_it_moves(acme: Organisation, alice: Membership) -> None:
    credential = make_credential(acme)
    make_secret(credential)
    moved = replace(content_of(credential), origins=["https://new.example"])

    update_credential(credential, moved, actor=alice, secret={"token": "typed-again"})

    (secret,) = StoredSecret.objects.all()
    assert json.loads(secret.values_json) == {"token": "typed-again"}


def test_an_address_that_is_taken_away_asks_for_nothing(acme: Organisation, alice: Membership) -> None:
    credential = make_credential(acme, origins=[ORIGIN, "https://other.example"])
    secret = make_secret(credential)

    update_credential(credential, replace(content_of(credential), origins=[ORIGIN]), actor=alice)

    assert StoredSecret.objects.filter(pk=secret.pk).exists()


def test_what_a_page_was_made_from_does_not_count(acme: Organisation, alice: Membership, bob: Membership) -> None:
    """Bob has the page open while Alice types the secret of another address."""
    bob = with_right(bob, Right.CATALOGUE)
    old = make_credential(acme)
    stale = StoredCredential.objects.get(pk=old.pk)
    moved = replace(content_of(old), origins=["https://new.example"])
    update_credential(old, moved, actor=alice, secret={"token": "of-the-new-one"})

    with refusal("token"):
        update_credential(stale, content_of(stale), actor=bob)


@pytest.mark.parametrize(
    "change",
    [
        {"origins": ["https://evil.example"]},
        {"resource": "https://evil.example/mcp"},
        {"issuer": "https://evil.example"},
    ],
)
def test_members_connect_again_where_their_tokens_would_go_elsewhere(
    acme: Organisation, alice: Membership, bob: Membership, change: dict[str, Any]
) -> None:
    known = {"resource": f"{ORIGIN}/mcp", "issuer": ORIGIN, "registration": "dynamic", "client_id": "c"}
    credential = make_credential(acme, kind="oauth", scope="member", server_metadata={"issuer": ORIGIN}, **known)
    make_secret(credential, bob)

    changed = update_credential(credential, replace(content_of(credential), **change), actor=alice)

    assert not StoredSecret.objects.exists()
    assert (changed.client_id, changed.server_metadata, changed.registration) == ("", {}, "")


def test_a_typed_client_secret_is_typed_again_for_another_server(acme: Organisation, alice: Membership) -> None:
    typed = {"registration": "manual", "client_id": "c", "client_secret": "client-secret"}
    credential = make_credential(acme, kind="oauth", resource=f"{ORIGIN}/mcp", issuer=ORIGIN, **typed)
    moved = replace(content_of(credential), issuer="https://evil.example")

    with refusal("client_secret"):
        update_credential(credential, moved, actor=alice)

    assert update_credential(credential, replace(moved, client_secret="again"), actor=alice).client_secret == "again"


def test_kind_and_scope_stay(acme: Organisation, alice: Membership) -> None:
    credential = make_credential(acme, scope="member")

    changed = update_credential(
        credential, replace(content_of(credential), kind="query", scope="organisation", parameter="k"), actor=alice
    )

    assert (changed.kind, changed.scope, changed.parameter) == ("bearer", "member", "")


def test_who_leaves_the_organisation_leaves_no_secret(acme: Organisation, alice: Membership, bob: Membership) -> None:
    credential = make_credential(acme, scope="member")
    of_alice, _ = (make_secret(credential, member) for member in (alice, bob))

    remove_member(bob, actor=alice)

    assert list(StoredSecret.objects.all()) == [of_alice]
    assert AuditEntry.objects.filter(action="account.disconnect", target_id=credential.public_id).count() == 1


# -- What may stand in one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("title", CredentialContent(" ", origins=[ORIGIN])),
        ("origins", CredentialContent("C")),
        ("origins", CredentialContent("C", origins=["http://api.example.org"])),
        ("origins", CredentialContent("C", origins=["https://api.example.org/path"])),
        ("origins", CredentialContent("C", origins=["https://user@api.example.org"])),
        ("origins", CredentialContent("C", origins=["file:///etc/passwd"])),
        ("origins", CredentialContent("C", origins=["https://*.example.org"])),
        ("origins", CredentialContent("C", origins=[f"https://a{n}.example" for n in range(11)])),
        ("parameter", CredentialContent("C", kind="header", origins=[ORIGIN], parameter="Host")),
        ("parameter", CredentialContent("C", kind="header", origins=[ORIGIN], parameter="X-A\r\nX-B")),
        ("parameter", CredentialContent("C", kind="query", origins=[ORIGIN])),
        ("prefix", CredentialContent("C", origins=[ORIGIN], prefix="a\r\nb")),
        ("kind", CredentialContent("C", kind="cookie", origins=[ORIGIN])),
        ("resource", CredentialContent("C", kind="oauth")),
        ("resource", CredentialContent("C", kind="oauth", resource="http://10.0.0.7/mcp")),
        ("issuer", CredentialContent("C", kind="oauth", issuer="javascript:alert(1)")),
        ("scopes", CredentialContent("C", kind="oauth", resource=f"{ORIGIN}/mcp", scopes=['a"b'])),
        ("client_id", CredentialContent("C", kind="oauth", resource=f"{ORIGIN}/mcp", client_secret="s")),
    ],
)
def test_an_invalid_value_is_refused_beside_its_field(
    alice: Membership, field: str, content: CredentialContent
) -> None:
    with refusal(field):
        create_credential("crm", content, actor=alice)


def test_it_is_stored_in_one_form(alice: Membership) -> None:
    made = create_credential("crm", CRM, actor=alice)

    assert made.origins == [ORIGIN]


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("bearer", {"token": "abc"}, "token"),
        ("bearer", {"token": "with\nbreak"}, "token"),
        ("bearer", {"password": "unknown"}, "password"),
        ("bearer", {}, "token"),
        ("basic", {"user": "a:b", "password": "secret"}, "user"),
        ("oauth", {"access_token": "taken"}, "kind"),
    ],
)
def test_a_secret_that_cannot_be_sent_is_refused(
    acme: Organisation, alice: Membership, kind: str, values: dict[str, str], field: str
) -> None:
    with refusal(field):
        set_secret(make_credential(acme, kind=kind), values, actor=alice)


def test_one_that_tools_use_is_not_deleted(acme: Organisation, alice: Membership) -> None:
    credential = make_credential(acme)
    tool = make_tool(acme, "crm_find")
    Tool.objects.filter(pk=tool.pk).update(credential=credential)

    with pytest.raises(ChangeRefused, match="in use by crm_find"):
        delete_credential(credential, actor=alice)


# -- What is told -----------------------------------------------------------------------------------------------------


def test_no_secret_is_in_the_database_the_audit_or_an_answer(acme: Organisation, alice: Membership) -> None:
    rest = Rest(alice)
    body = {"name": "crm", "title": "CRM", "origins": [ORIGIN], "secret": {"token": SECRET}}

    replies = [
        rest.post("credentials", body),
        rest.get("credentials"),
        rest.get("credentials/crm"),
        rest.ask("PUT", "credentials/crm/secret", json.dumps({"values": {"token": SECRET}}).encode()),
    ]

    assert [each.status for each in replies] == [201, 200, 200, 200]
    assert replies[2].json["state"] == "connected"
    assert SECRET not in "".join(each.text for each in replies)
    assert SECRET not in str(list(AuditEntry.objects.values()))
    client = Client()
    client.force_login(alice.user)
    pages = [client.get(f"/o/acme/credentials/{page}") for page in ("", "crm/", "crm/edit/")]
    assert all(page.status_code == 200 and SECRET not in page.content.decode() for page in pages)


def test_each_write_is_on_record(acme: Organisation, alice: Membership, bob: Membership) -> None:
    own = create_credential("own", replace(CRM, scope="member"), actor=alice)
    shared = create_credential("crm", CRM, actor=alice, secret={"token": SECRET})
    disconnect_account(connect_account(own, {"token": SECRET}, actor=bob), actor=bob)
    clear_secret(shared, actor=alice)
    delete_credential(shared, actor=alice)

    actions = AuditEntry.objects.filter(action__regex="^(credential|account)").order_by("number")
    assert list(actions.values_list("action", flat=True)) == [
        "credential.create",
        "credential.create",
        "credential.secret",
        "account.connect",
        "account.disconnect",
        "credential.secret",
        "credential.delete",
    ]


def test_a_member_connects_and_disconnects_over_rest(acme: Organisation, bob: Membership) -> None:
    make_credential(acme, scope="member")
    rest = Rest(bob)

    connected = rest.ask("PUT", "accounts/crm", json.dumps({"values": {"token": SECRET}}).encode())

    assert (connected.status, connected.json["status"]) == (200, "connected")
    assert SECRET not in connected.text
    assert rest.delete("accounts/crm").status == 204
    assert rest.get("accounts/crm").json["status"] == "missing"


def test_an_account_that_wants_a_sign_in_is_not_typed(acme: Organisation, bob: Membership) -> None:
    make_credential(acme, kind="oauth", scope="member")

    reply = Rest(bob).ask("PUT", "accounts/crm", json.dumps({"values": {"access_token": SECRET}}).encode())

    assert reply.error == (400, "invalid", "kind")
    assert not OAuthSignIn.objects.exists()


def test_a_viewer_sees_accounts_and_connects_none(acme: Organisation, bob: Membership) -> None:
    make_credential(acme, scope="member")
    Membership.objects.filter(pk=bob.pk).update(access=Access.VIEWER)
    rest = Rest(bob)

    assert rest.get("accounts").status == 200
    assert rest.ask("PUT", "accounts/crm", json.dumps({"values": {"token": SECRET}}).encode()).status == 403


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/o/acme/sessions/", "/o/acme/sessions/"),
        ("//evil.example/", ""),
        ("https://evil.example/", ""),
        ("/\\evil.example", ""),
        ("javascript:alert(1)", ""),
    ],
)
def test_s30_the_way_back_is_ours(acme: Organisation, bob: Membership, given: str, kept: str) -> None:
    make_credential(acme, scope="member")
    client = Client()
    client.force_login(bob.user)

    answer = client.post("/o/acme/accounts/crm/", {"token": SECRET, "next": given})

    assert answer.headers["Location"] == (kept or "/o/acme/accounts/")
