"""What signs a call: the secret of the organisation, or the member's own and nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from capabilities.choosing.pipeline.specs import specs
from capabilities.contract.context import Credential, LinkNeeded, ToolError
from capabilities.contract.spec import ToolSpec
from capabilities.models import SecretStatus, StoredCredential, StoredSecret, Tool
from capabilities.running.credentials.challenges import challenge_value
from capabilities.running.credentials.refusals import mark_refused
from capabilities.running.credentials.signing import after_refusal, credential_for, stored_credential
from capabilities.running.credentials.writes import set_secret
from tests.cast import make_agent, make_tool, make_toolkit
from tests.rest import Rest
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

ORIGIN = "https://api.example.org"


def make_credential(organisation: Organisation, name: str = "crm", **fields: Any) -> StoredCredential:
    defaults = {"title": name.upper(), "kind": "bearer", "origins": [ORIGIN]} | fields
    with organisation_scope(organisation):
        return StoredCredential.objects.create(organisation=organisation, name=name, **defaults)


def make_secret(credential: StoredCredential, member: Membership | None = None, **fields: Any) -> StoredSecret:
    values = fields.pop("values", {"token": "s3cret-token"})
    with organisation_scope(credential.organisation_id):
        return StoredSecret.objects.create(
            organisation_id=credential.organisation_id,
            credential=credential,
            membership=member,
            values_json=json.dumps(values),
            **fields,
        )


def spec_with(credential: StoredCredential, name: str = "crm_find") -> ToolSpec:
    tool = make_tool(credential.organisation, name)
    with organisation_scope(credential.organisation_id):
        Tool.objects.filter(pk=tool.pk).update(credential=credential)
        return specs(Tool.objects.filter(pk=tool.pk))[0]


def sign(credential: StoredCredential, member: Membership | None) -> Credential:
    with organisation_scope(credential.organisation_id):
        return stored_credential(credential.pk, member.pk if member else None, at_most=1)


@pytest.mark.parametrize(
    ("fields", "values", "headers", "query", "hidden"),
    [
        ({"kind": "bearer"}, {"token": "abc/1"}, {"Authorization": "Bearer abc/1"}, {}, ("abc/1", "abc%2F1")),
        (
            {"kind": "header", "parameter": "X-Api-Key", "prefix": "Key "},
            {"token": "abc1"},
            {"X-Api-Key": "Key abc1"},
            {},
            ("abc1",),
        ),
        ({"kind": "query", "parameter": "key"}, {"token": "abc1"}, {}, {"key": "abc1"}, ("abc1",)),
        (
            {"kind": "basic"},
            {"user": "ann", "password": "pa ss"},
            {"Authorization": "Basic YW5uOnBhIHNz"},
            {},
            ("pa ss", "pa%20ss", "YW5uOnBhIHNz"),
        ),
        ({"kind": "oauth"}, {"access_token": "a1", "refresh_token": "r1"}, {"Authorization": "Bearer a1"}, {}, ("a1",)),
    ],
)
def test_each_kind_is_sent_in_its_way(
    acme: Organisation, alice: Membership, fields: Any, values: Any, headers: Any, query: Any, hidden: Any
) -> None:
    credential = make_credential(acme, **fields)
    secret = make_secret(credential, values=values)

    found = sign(credential, alice)

    assert (found.headers, found.query, found.secrets) == (headers, query, hidden)
    assert (found.origins, found.secret_id) == ((ORIGIN,), secret.pk)


def test_a_tool_without_a_credential_is_signed_with_nothing(acme: Organisation, alice: Membership) -> None:
    tool = make_tool(acme, "calculator")
    with organisation_scope(acme):
        assert credential_for(specs(Tool.objects.filter(pk=tool.pk))[0], alice.pk, at_most=1) == Credential()


def test_each_member_signs_with_their_own(acme: Organisation, alice: Membership, bob: Membership) -> None:
    credential = make_credential(acme, scope="member")
    make_secret(credential, alice, values={"token": "of-alice"})
    make_secret(credential, bob, values={"token": "of-bob"})
    spec = spec_with(credential)

    with organisation_scope(acme):
        signed = [credential_for(spec, member.pk, at_most=1).headers["Authorization"] for member in (alice, bob)]

    assert signed == ["Bearer of-alice", "Bearer of-bob"]


def test_a_member_without_an_account_is_asked_to_connect_one(
    acme: Organisation, alice: Membership, bob: Membership
) -> None:
    credential = make_credential(acme, scope="member")
    make_secret(credential, alice)
    make_secret(credential)

    with pytest.raises(LinkNeeded) as caught:
        sign(credential, bob)

    assert (caught.value.url, caught.value.is_own) == ("/o/acme/accounts/crm/", True)
    assert str(caught.value) == "CRM: connect your account first."


@pytest.mark.parametrize("status", ["connected", "refused"])
def test_the_secret_of_the_organisation_is_never_a_members(acme: Organisation, alice: Membership, status: str) -> None:
    credential = make_credential(acme)
    make_secret(credential, alice, status=status)

    with pytest.raises(ToolError, match="an administrator must enter its secret first"):
        sign(credential, alice)


def test_a_refused_secret_is_not_sent(acme: Organisation, alice: Membership) -> None:
    shared, own = make_credential(acme), make_credential(acme, "own", scope="member")
    make_secret(shared, status="refused")
    make_secret(own, alice, status="refused")

    with pytest.raises(ToolError, match="enter its secret again"):
        sign(shared, alice)
    with pytest.raises(LinkNeeded, match="connect your account again"):
        sign(own, alice)


def test_nobodys_call_cannot_use_a_members_account(acme: Organisation, alice: Membership) -> None:
    credential = make_credential(acme, scope="member")
    make_secret(credential, alice)

    with pytest.raises(ToolError):
        sign(credential, None)


def test_one_of_another_organisation_is_not_there(acme: Organisation, charlie: Membership, alice: Membership) -> None:
    credential = make_credential(acme)
    make_secret(credential)

    with organisation_scope(charlie.organisation), pytest.raises(StoredCredential.DoesNotExist):
        stored_credential(credential.pk, charlie.pk, at_most=1)


# -- What the far side says of it -------------------------------------------------------------------------------------

MORE = 'Bearer error="insufficient_scope", scope="files:read files:write", resource_metadata="https://x.test/y"'


def refusal(secret: StoredSecret, status: int, challenge: str, member: Membership) -> Credential | None:
    signed = Credential(secret_id=secret.pk)
    with organisation_scope(secret.organisation_id):
        return after_refusal(signed, status, challenge, membership_id=member.pk, at_most=1)


@pytest.mark.parametrize(
    ("challenge", "name", "value"),
    [
        (MORE, "error", "insufficient_scope"),
        (MORE, "scope", "files:read files:write"),
        (MORE, "realm", ""),
        ("Bearer realm=x,error=invalid_token", "error", "invalid_token"),
        ('Bearer my_error="no", ERROR="yes"', "error", "yes"),
        ("", "error", ""),
    ],
)
def test_a_challenge_is_read(challenge: str, name: str, value: str) -> None:
    assert challenge_value(challenge, name) == value


def test_step_up_asks_for_the_old_permissions_and_the_new(acme: Organisation, bob: Membership) -> None:
    credential = make_credential(acme, kind="oauth", scope="member")
    secret = make_secret(credential, bob, values={"access_token": "a1"}, granted_scopes=["mail", "files:read"])

    with pytest.raises(LinkNeeded, match="More permissions are needed: files:write"):
        refusal(secret, 403, MORE, bob)

    with organisation_scope(acme):
        secret.refresh_from_db()
    assert (secret.status, secret.wanted_scopes) == ("needs_more", ["mail", "files:read", "files:write"])


def test_nobody_is_asked_for_permissions_that_are_given_already(acme: Organisation, bob: Membership) -> None:
    credential = make_credential(acme, kind="oauth", scope="member")
    secret = make_secret(credential, bob, granted_scopes=["files:read", "files:write"])

    assert refusal(secret, 403, MORE, bob) is None


def test_a_token_that_is_not_valid_any_more_is_not_sent_again(acme: Organisation, bob: Membership) -> None:
    credential = make_credential(acme, scope="member")
    secret = make_secret(credential, bob)

    with pytest.raises(LinkNeeded):
        refusal(secret, 401, 'Bearer error="invalid_token"', bob)
    with pytest.raises(LinkNeeded):
        sign(credential, bob)


def test_what_was_said_of_the_secret_before_does_not_count_for_one_that_was_entered_meanwhile(
    acme: Organisation, alice: Membership
) -> None:
    credential = make_credential(acme)
    before = make_secret(credential)
    with organisation_scope(acme):
        sent = StoredSecret.objects.get(pk=before.pk)
        set_secret(credential, {"token": "entered-anew"}, actor=alice)

        mark_refused(sent, "The server says that it is not valid any more.")

        assert StoredSecret.objects.get().status == SecretStatus.CONNECTED


def test_one_unexplained_401_does_not_stop_everybody(acme: Organisation, bob: Membership) -> None:
    """Any path of the far side may answer so: a call must not switch a shared secret off."""
    secret = make_secret(make_credential(acme))

    assert refusal(secret, 401, "", bob) is None

    with organisation_scope(acme):
        secret.refresh_from_db()
    assert secret.status == "connected"
    assert "refused it with status 401" in secret.reason


def test_an_answer_to_one_member_says_nothing_of_anothers_secret(
    acme: Organisation, alice: Membership, bob: Membership
) -> None:
    secret = make_secret(make_credential(acme, scope="member"), alice)

    assert refusal(secret, 401, 'Bearer error="invalid_token"', bob) is None
    assert sign(secret.credential, alice).secret_id == secret.pk


# -- Whether a tool can work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "status", "is_ready"),
    [
        ("organisation", None, False),
        ("organisation", "connected", True),
        ("organisation", "needs_more", True),
        ("organisation", "refused", False),
        ("member", None, True),
    ],
)
def test_a_tool_needs_set_up_until_the_organisations_secret_is_there(
    acme: Organisation, scope: str, status: str | None, is_ready: bool
) -> None:
    credential = make_credential(acme, scope=scope)
    if status:
        make_secret(credential, status=status)

    spec = spec_with(credential)

    assert (spec.is_ready, spec.acts_as_organisation) == (is_ready, scope == "organisation")


def test_a_members_secret_does_not_make_the_organisations_tools_ready(acme: Organisation, bob: Membership) -> None:
    credential = make_credential(acme)
    make_secret(credential, bob)

    assert spec_with(credential).is_ready is False


# -- MR-35: with whose credential tools, toolkits and agents act ------------------------------------------------------


def test_mr_35_tools_and_toolkits_say_with_whose_credential_they_act(acme: Organisation, alice: Membership) -> None:
    own, shared = make_credential(acme, "own", scope="member"), make_credential(acme)
    spec_with(own, "own_find")
    spec_with(shared, "crm_find")
    plain = make_tool(acme, "plain")
    with organisation_scope(acme):
        tools = {tool.name: tool for tool in Tool.objects.all()}
    make_toolkit(acme, "mixed", tools["own_find"], tools["crm_find"], plain)
    make_toolkit(acme, "own", tools["own_find"], plain)
    make_toolkit(acme, "plain", plain)
    make_toolkit(acme, "whole", categories=(plain.category,))
    rest = Rest(alice)

    scopes = {row["name"]: row["scope"] for row in rest.get("tools").json["results"]}
    kits = {row["name"]: row["scope"] for row in rest.get("toolkits").json["results"]}

    assert scopes == {"own_find": "member", "crm_find": "organisation", "plain": ""}
    assert kits == {"mixed": "organisation", "own": "member", "plain": "", "whole": "organisation"}
    assert rest.get("toolkits/own").json["scope"] == "member"


def test_mr_35_an_agent_for_members_takes_own_accounts_and_refuses_shared_ones(
    acme: Organisation, alice: Membership
) -> None:
    own, shared = make_credential(acme, "own", scope="member"), make_credential(acme)
    spec_with(own, "own_find")
    spec_with(shared, "crm_find")
    agent = make_agent(acme, scope="member")
    rest = Rest(alice)

    refused = rest.patch(f"agents/{agent.slug}", {"tools": ["own_find", "crm_find"]})
    taken = rest.patch(f"agents/{agent.slug}", {"tools": ["own_find"]})

    assert refused.status == 400
    assert "crm_find" in refused.text
    assert "own_find" not in refused.text
    assert (taken.status, taken.json["scope"]) == (200, "member")


def test_a_tool_whose_secret_is_missing_says_so_on_its_page(acme: Organisation, alice: Membership) -> None:
    spec_with(make_credential(acme))
    client = Client()
    client.force_login(alice.user)

    page = client.get("/o/acme/tools/crm_find/").content.decode()

    assert "credential CRM is missing" in page
    assert "/o/acme/credentials/crm/" in page
