"""The REST routes of members and audit."""

from __future__ import annotations

import hashlib

import pytest

from tests.cast import make_member, make_token
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_members_are_told_with_their_access(alice: Membership, bob: Membership, charlie: Membership) -> None:
    rows = Rest(alice).get("members").json["results"]

    assert [{name: row[name] for name in ("id", "email", "name", "access")} for row in rows] == [
        {"id": str(alice.public_id), "email": "alice@example.com", "name": "Alice", "access": "admin"},
        {"id": str(bob.public_id), "email": "bob@example.com", "name": "Bob", "access": "member"},
    ]


@pytest.mark.parametrize(
    ("access", "status"),
    [(Access.VIEWER, 403), (Access.MEMBER, 403), (Access.OPERATOR, 403), (Access.ADMIN, 200)],
)
def test_members_need_the_right_members(acme: Organisation, access: Access, status: int) -> None:
    assert Rest(make_member(acme, "dana", access)).get("members").status == status


@pytest.mark.parametrize(
    ("access", "status"),
    [(Access.VIEWER, 403), (Access.MEMBER, 403), (Access.OPERATOR, 200), (Access.ADMIN, 200)],
)
def test_the_audit_needs_the_right_audit(acme: Organisation, access: Access, status: int) -> None:
    assert Rest(make_member(acme, "dana", access)).get("audit").status == status


@pytest.mark.parametrize(("path", "right"), [("members", Right.MEMBERS), ("audit", Right.AUDIT)])
def test_a_delegated_right_opens_its_route_alone(bob: Membership, path: str, right: Right) -> None:
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=right)

    rest = Rest(bob)

    assert [other for other in ("members", "audit", "providers", "roles") if rest.get(other).status == 200] == [path]


def test_the_audit_never_tells_a_secret(alice: Membership) -> None:
    secret = make_token(alice)

    reply = Rest(alice).get("audit")

    assert [row["action"] for row in reply.json["results"]] == ["token.issue", "token.issue"]
    assert secret not in reply.text
    assert hashlib.sha256(secret.encode()).hexdigest() not in reply.text


def test_without_a_token_every_answer_is_the_same(acme: Organisation) -> None:
    rest = Rest(None)

    answers = {rest.get(path).text for path in ("members", "audit", "sessions", "tools/x", "turns")}

    assert len(answers) == 2  # `turns` is no route at all
    assert rest.get("turns").status == 404
