from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from capabilities.access.grants.writes import GrantContent, give_grant, revoke_grant, update_grant
from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.common.refused import ChangeRefused
from capabilities.models import Grant, Tool
from sessions.doors.schedules.periodic import lapse_grants
from tests.cast import make_category, make_member, make_role, make_tool
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def tool(acme: Organisation, in_acme: Organisation) -> Tool:
    return make_tool(acme, "http_post", category=make_category(acme, "web"))


def content(to: Membership, **fields: Any) -> GrantContent:
    values: dict[str, Any] = {"member": to.public_id, "effect": "allow", "tool": "http_post"}
    return GrantContent(**values | fields)


def test_an_allow_adds_to_the_roles_and_revoking_takes_it_back(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant = give_grant(content(bob, reason=" Deploys today. "), actor=alice)
    assert permission_for(bob, tool).allowed

    revoke_grant(grant, actor=alice)

    assert not permission_for(bob, tool).allowed
    rows = [(row.action, row.before or row.after) for row in AuditEntry.objects.exclude(actor=None).order_by("pk")]
    told = {
        "member": "bob@example.com",
        "effect": "allow",
        "tool": "http_post",
        "category": "",
        "reason": "Deploys today.",
        "expires_at": "",
    }
    assert rows == [("grant.give", told), ("grant.revoke", told)]


def test_a_deny_of_the_category_beats_an_allow_of_the_tool_and_every_role(
    alice: Membership, bob: Membership, tool: Tool, acme: Organisation
) -> None:
    make_role(acme, bob)
    give_grant(content(bob), actor=alice)
    give_grant(content(bob, effect="deny", tool="", category="web"), actor=alice)

    assert not permission_for(bob, tool).allowed


def test_an_expired_grant_does_nothing_and_may_be_given_again(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant = give_grant(content(bob, expires_at=timezone.now() + timedelta(hours=1)), actor=alice)
    Grant.objects.filter(pk=grant.pk).update(expires_at=timezone.now() - timedelta(seconds=1))

    assert not permission_for(bob, tool).allowed
    give_grant(content(bob), actor=alice)
    with pytest.raises(ChangeRefused) as refused:
        give_grant(content(bob), actor=alice)

    assert (refused.value.field, refused.value.code) == ("member", "taken")


def test_reason_and_expiry_of_a_grant_can_be_changed(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant = give_grant(content(bob), actor=alice)
    until = timezone.now() + timedelta(days=1)

    update_grant(grant, reason="Longer.", expires_at=until, actor=alice)

    grant.refresh_from_db()
    assert (grant.reason, grant.expires_at) == ("Longer.", until)
    assert AuditEntry.objects.get(action="grant.update").after["reason"] == "Longer."


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"member": uuid4()}, "member", "unknown"),
        ({"tool": "missing"}, "tool", "unknown"),
        ({"tool": "", "category": "missing"}, "category", "unknown"),
        ({"tool": ""}, "tool", "invalid"),
        ({"category": "web"}, "tool", "invalid"),
        ({"effect": "maybe"}, "effect", "invalid"),
        ({"reason": "x" * 2001}, "reason", "invalid"),
        ({"expires_at": timezone.now() - timedelta(days=1)}, "expires_at", "invalid"),
    ],
)
def test_an_invalid_grant_is_not_created(
    alice: Membership, bob: Membership, fields: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        give_grant(content(bob, **fields), actor=alice)

    assert (refused.value.field, refused.value.code) == (field, code)
    assert not Grant.objects.exists()


def test_charlie_cannot_be_given_anything_in_acme(alice: Membership, charlie: Membership, tool: Tool) -> None:
    with pytest.raises(ChangeRefused) as refused:
        give_grant(content(charlie), actor=alice)

    assert (refused.value.field, refused.value.code) == ("member", "unknown")


def expired(grant: Grant) -> Grant:
    """The same grant, an hour after its end."""
    Grant.objects.filter(pk=grant.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    grant.refresh_from_db()
    return grant


def lapses() -> list[tuple[str, str]]:
    rows = AuditEntry.objects.filter(action="grant.lapse").order_by("pk")
    return [(row.actor_label, row.target_label) for row in rows]


def test_a_grant_with_an_end_expires_by_itself_and_once(
    alice: Membership, bob: Membership, tool: Tool, acme: Organisation
) -> None:
    later = timezone.now() + timedelta(hours=1)
    over = expired(give_grant(content(bob, expires_at=later), actor=alice))
    give_grant(content(bob, tool="", category="web", expires_at=later), actor=alice)
    give_grant(content(bob, effect="deny"), actor=alice)
    before = Organisation.objects.get(pk=acme.pk).registry_version

    assert (lapse_grants(), lapse_grants()) == (1, 0)

    over.refresh_from_db()
    assert over.lapsed_at is not None
    assert Grant.objects.exclude(lapsed_at=None).count() == 1
    assert lapses() == [("toolhub", "Bob: allow http_post")]
    assert Organisation.objects.get(pk=acme.pk).registry_version == before + 1


def test_a_lapse_of_each_organisation_is_on_its_own_record(
    alice: Membership, bob: Membership, charlie: Membership, tool: Tool, globex: Organisation
) -> None:
    later = timezone.now() + timedelta(hours=1)
    expired(give_grant(content(bob, expires_at=later), actor=alice))
    make_tool(globex, "http_post")
    with organisation_scope(globex):
        expired(give_grant(content(charlie, expires_at=later), actor=charlie))

    assert lapse_grants() == 2

    assert lapses() == [("toolhub", "Bob: allow http_post")]
    with organisation_scope(globex):
        assert lapses() == [("toolhub", "Charlie: allow http_post")]


def test_a_later_end_brings_a_lapsed_grant_back(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant = expired(give_grant(content(bob, expires_at=timezone.now() + timedelta(hours=1)), actor=alice))
    lapse_grants()
    grant.refresh_from_db()

    update_grant(grant, reason="Still over.", expires_at=grant.expires_at, actor=alice)
    grant.refresh_from_db()
    assert grant.lapsed_at is not None
    update_grant(grant, reason="Longer.", expires_at=timezone.now() + timedelta(days=1), actor=alice)

    grant.refresh_from_db()
    assert grant.lapsed_at is None
    assert permission_for(bob, tool).allowed
    assert lapse_grants() == 0


def test_revoking_twice_is_on_record_once(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant = give_grant(content(bob), actor=alice)
    again = Grant.objects.get(pk=grant.pk)

    revoke_grant(grant, actor=alice)
    revoke_grant(again, actor=alice)

    assert AuditEntry.objects.filter(action="grant.revoke").count() == 1


def test_a_right_for_one_category_is_for_grants_in_it_alone(
    alice: Membership, bob: Membership, acme: Organisation, tool: Tool
) -> None:
    make_tool(acme, "file_read", category=make_category(acme, "file"))
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES, category="web")

    dora = make_member(acme, "dora")
    give_grant(content(dora), actor=bob)
    elsewhere = give_grant(content(dora, tool="file_read"), actor=alice)
    for change in (
        lambda: give_grant(content(dora, tool="file_read"), actor=bob),
        lambda: give_grant(content(dora, tool="", category="file"), actor=bob),
        lambda: revoke_grant(elsewhere, actor=bob),
        lambda: update_grant(elsewhere, reason="mine", expires_at=None, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            change()
