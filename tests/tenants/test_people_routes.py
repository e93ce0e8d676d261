"""People, tokens and audit over REST."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.cast import make_category, make_member, make_token
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, AdminRight, ApiToken, Membership, Organisation, Right, Scope
from toolhub.tenants.people.writes import GivenRight, give_right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Api:
    """REST as one member."""

    client: Client

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = "" if body is None else json.dumps(body)
        answer = self.client.generic(method, f"/api/v1/{path}", data, "application/json")
        return answer.status_code, json.loads(answer.content) if answer.content else None


def as_member(member: Membership, **fields: Any) -> Api:
    return Api(Client(headers={"Authorization": f"Bearer {make_token(member, **fields)}"}))


def error(answer: tuple[int, Any]) -> tuple[int, str, str | None]:
    status, body = answer
    return status, body["error"]["code"], body["error"]["field"]


# -- Members ----------------------------------------------------------------------------------------------------------


def test_a_member_is_read_changed_and_removed(alice: Membership, bob: Membership) -> None:
    make_category(bob.organisation, "web")
    api = as_member(alice)
    rights = [{"right": "audit", "category": ""}, {"right": "catalogue", "category": "web"}]

    assert api("GET", f"members/{bob.public_id}")[1]["rights"] == []
    status, changed = api("PATCH", f"members/{bob.public_id}", {"access": "operator", "rights": rights})
    assert (status, changed["access"], changed["rights"]) == (200, "operator", rights)
    assert api("PATCH", f"members/{bob.public_id}", {"rights": [{"right": "audit"}]})[1]["rights"] == rights[:1]
    assert api("DELETE", f"members/{bob.public_id}") == (204, None)

    assert error(api("GET", f"members/{bob.public_id}")) == (404, "not_found", None)
    assert [row["email"] for row in api("GET", "members")[1]["results"]] == ["alice@example.com"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"access": "emperor"}, (400, "invalid_choice", "access")),
        ({"rights": [{"right": "audit", "category": "web"}]}, (400, "refused", "category")),
        ({"rights": [{"right": "catalogue", "category": "nowhere"}]}, (400, "unknown", "category")),
        ({"organisation": 1}, (400, "unknown_field", "organisation")),
        ({"access": "operator", "is_admin": True}, (400, "unknown_field", "is_admin")),
    ],
)
def test_what_cannot_be_is_refused(
    alice: Membership, bob: Membership, body: dict[str, object], said: tuple[int, str, str]
) -> None:
    make_category(bob.organisation, "web")

    assert error(as_member(alice)("PATCH", f"members/{bob.public_id}", body)) == said
    with system_scope():
        assert Membership.objects.get(pk=bob.pk).access == Access.MEMBER


def test_nobody_gives_more_than_they_hold_or_changes_themselves(alice: Membership, bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.MEMBERS)
    dana = make_member(bob.organisation, "dana")
    api = as_member(bob)

    for key, body in (
        (dana.public_id, {"access": "admin"}),
        (dana.public_id, {"rights": [{"right": "audit"}]}),
        (bob.public_id, {"access": "viewer"}),
        (alice.public_id, {"access": "viewer"}),
    ):
        assert error(api("PATCH", f"members/{key}", body)) == (403, "forbidden", None)
    assert error(api("DELETE", f"members/{alice.public_id}")) == (403, "forbidden", None)
    assert error(api("DELETE", f"members/{bob.public_id}")) == (403, "forbidden", None)


def test_without_the_right_nobody_is_shown(bob: Membership, alice: Membership) -> None:
    api = as_member(bob)

    for method in ("GET", "PATCH", "DELETE"):
        assert error(api(method, f"members/{alice.public_id}", {} if method == "PATCH" else None)) == (
            403,
            "forbidden",
            None,
        )


def test_members_take_as_many_queries_for_three_as_for_one(alice: Membership, in_acme: Organisation) -> None:
    api = as_member(alice)
    give_right(make_member(in_acme, "m0"), GivenRight(Right.AUDIT), actor=alice)
    counts = []
    for more in ((), ("m1", "m2")):
        for name in more:
            give_right(make_member(in_acme, name), GivenRight(Right.AUDIT), actor=alice)
        api("GET", "members")
        with CaptureQueriesContext(connection) as seen:
            api("GET", "members")
        counts.append(len(seen))

    assert counts[0] == counts[1]


# -- Invitations ------------------------------------------------------------------------------------------------------


def test_an_invitation_is_made_with_its_link_listed_without_and_revoked(alice: Membership, client: Client) -> None:
    api = as_member(alice)

    status, made = api("POST", "invitations", {"email": "Dana@example.com", "access": "viewer"})
    assert (status, made["email"], made["access"], made["state"]) == (201, "dana@example.com", "viewer", "open")
    link = made["link"].removeprefix("http://testserver")
    assert client.get(link, follow=True).status_code == 200
    (listed,) = api("GET", "invitations")[1]["results"]
    assert listed == {name: value for name, value in made.items() if name != "link"}

    assert api("DELETE", f"invitations/{made['id']}") == (204, None)
    assert client.get(link).status_code == 404
    assert api("GET", "invitations")[1]["results"][0]["state"] == "revoked"


@pytest.mark.parametrize("email", [None, "", [], "no address", "alice@example.com"])
def test_a_bad_address_is_refused(alice: Membership, email: object) -> None:
    status, _, field = error(as_member(alice)("POST", "invitations", {"email": email}))

    assert (status, field) == (400, "email")


# -- Tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_made_listed_and_revoked(bob: Membership) -> None:
    api = as_member(bob)

    status, made = api("POST", "tokens", {"name": "report", "scopes": ["read"], "expires_in_days": 1})
    assert (status, made["scopes"]) == (201, ["read"])
    other = Api(Client(headers={"Authorization": f"Bearer {made['token']}"}))
    assert other("GET", "tokens")[0] == 200
    listed = api("GET", "tokens")[1]["results"]
    assert [row["name"] for row in listed] == ["report", "Test"]
    assert "token" not in listed[0]

    assert api("DELETE", f"tokens/{made['id']}") == (204, None)
    assert other("GET", "tokens")[0] == 401
    assert error(api("DELETE", f"tokens/{made['id']}")) == (404, "not_found", None)


def test_a_token_makes_none_that_can_do_more_or_live_longer(bob: Membership) -> None:
    api = as_member(bob, scopes=[Scope.READ, Scope.MANAGE], days=7)

    assert error(api("POST", "tokens", {"name": "x", "scopes": ["chat"]}))[:2] == (403, "forbidden")
    for days in (None, 8):
        body = {"name": "x", "scopes": ["read"], "expires_in_days": days}
        assert error(api("POST", "tokens", body))[:2] == (403, "forbidden")
    assert api("POST", "tokens", {"name": "x", "scopes": ["read"], "expires_in_days": 6})[0] == 201


def test_nobody_reads_or_revokes_anothers_token(alice: Membership, bob: Membership) -> None:
    make_token(alice)
    with system_scope():
        hers = ApiToken.objects.get()

    api = as_member(bob)

    assert [row["id"] for row in api("GET", "tokens")[1]["results"]] != [str(hers.public_id)]
    assert error(api("DELETE", f"tokens/{hers.public_id}")) == (404, "not_found", None)


# -- Audit ------------------------------------------------------------------------------------------------------------


def test_the_audit_is_filtered_like_its_page(alice: Membership, bob: Membership) -> None:
    api = as_member(alice)
    with organisation_scope(alice.organisation):
        record("member.access", bob, actor=alice, after={"access": "needle"})
        record("tool.update", alice, actor=bob)

    def found(query: str) -> list[str]:
        return [row["action"] for row in api("GET", f"audit?{query}")[1]["results"]]

    assert found("") == ["tool.update", "member.access", "token.issue"]
    assert found("action=member.") == found("q=needle") == found("target=Bob") == ["member.access"]
    assert found("actor=bob") == ["tool.update"]
    assert found("to=2001-01-01") == found("from=2999-01-01") == []
    for query, field in (("from=rubbish", "from"), ("q=%00", "q"), ("actr=bob", "actr")):
        assert error(api("GET", f"audit?{query}")) == (400, "invalid", field)


def test_an_entry_tells_its_number_and_hash(alice: Membership) -> None:
    (row,) = as_member(alice)("GET", "audit")[1]["results"]

    assert row["number"] == 1
    assert len(row["hash"]) == 64
