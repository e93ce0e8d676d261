from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from tests.cast import make_member
from tests.threads import at_once
from toolhub.tenants.models import Access, AuditEntry, Invitation, Membership, Organisation, User
from toolhub.tenants.people.invitations import (
    LinkDead,
    Newcomer,
    invitation_by_secret,
    invite,
    join_as,
    join_as_newcomer,
    revoke_invitation,
)
from toolhub.tenants.people.writes import MemberRefused
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

DANA = Newcomer("Dana", "Doe", "a-good-long-password")


def invited(alice: Membership, email: str = "dana@example.com", access: Access = Access.MEMBER) -> str:
    with organisation_scope(alice.organisation):
        return invite(email, access, actor=alice)[1]


def test_only_the_hash_of_a_link_is_kept(alice: Membership, in_acme: Organisation) -> None:
    secret = invited(alice)

    kept = f"{Invitation.objects.values().get()} {AuditEntry.objects.values().get()}"

    assert len(secret) == 43  # 256 bits
    assert secret not in kept


def test_a_newcomer_gets_an_account_and_the_access_of_the_invitation(alice: Membership) -> None:
    secret = invited(alice, " Dana@Example.com ", Access.OPERATOR)

    member = join_as_newcomer(invitation_by_secret(secret), DANA)

    assert (member.user.email, member.user.get_full_name(), member.access) == (
        "dana@example.com",
        "Dana Doe",
        Access.OPERATOR,
    )
    assert member.user.check_password("a-good-long-password")
    with system_scope():
        actions = list(AuditEntry.objects.order_by("number").values_list("actor_label", "action"))
    assert actions == [
        ("alice@example.com", "invitation.create"),
        ("dana@example.com", "invitation.accept"),
        ("dana@example.com", "member.add"),
    ]


def test_a_weak_password_leaves_the_link_open(alice: Membership) -> None:
    secret = invited(alice)

    with pytest.raises(ValidationError):
        join_as_newcomer(invitation_by_secret(secret), Newcomer("Dana", "Doe", "dana@example"))

    assert invitation_by_secret(secret).state == "open"
    assert not User.objects.filter(email="dana@example.com").exists()


def test_a_link_works_once(alice: Membership) -> None:
    secret = invited(alice)
    early = invitation_by_secret(secret)
    join_as_newcomer(invitation_by_secret(secret), DANA)

    with pytest.raises(LinkDead):
        invitation_by_secret(secret)
    with pytest.raises(LinkDead):
        join_as_newcomer(early, DANA)


@pytest.mark.django_db(transaction=True)
def test_two_who_use_a_link_at_once_make_one_member(alice: Membership) -> None:
    secret = invited(alice)

    def join() -> str:
        try:
            join_as_newcomer(invitation_by_secret(secret), DANA)
        except LinkDead:
            return "dead"
        return "joined"

    assert sorted(at_once([join, join])) == ["dead", "joined"]
    with system_scope():
        assert Membership.objects.filter(user__email="dana@example.com").count() == 1


@pytest.mark.parametrize("secret", ["", "x", "x" * 43, "\x00", "é", "x" * 5000])
def test_an_unknown_link_is_dead(alice: Membership, secret: str) -> None:
    invited(alice)

    with pytest.raises(LinkDead):
        invitation_by_secret(secret)


def test_links_end_by_time_by_hand_and_with_their_maker(alice: Membership, in_acme: Organisation) -> None:
    dana = make_member(in_acme, "dana", Access.ADMIN)
    late, revoked, left, closed = (
        invited(maker, f"{number}@example.com") for number, maker in enumerate((alice, alice, dana, dana))
    )
    Invitation.objects.filter(email="0@example.com").update(expires_at=timezone.now() - timedelta(seconds=1))
    revoke_invitation(Invitation.objects.get(email="1@example.com"), actor=alice)
    Membership.objects.filter(pk=dana.pk).update(ended_at=timezone.now())

    for secret in (late, revoked, left, closed):
        with pytest.raises(LinkDead):
            invitation_by_secret(secret)


def test_a_new_invitation_replaces_the_open_one(alice: Membership, in_acme: Organisation) -> None:
    first, second = invited(alice), invited(alice)

    with pytest.raises(LinkDead):
        invitation_by_secret(first)
    assert invitation_by_secret(second).email == "dana@example.com"


def test_revoking_twice_is_written_down_once(alice: Membership, in_acme: Organisation) -> None:
    invited(alice)
    invitation = Invitation.objects.get()

    revoke_invitation(invitation, actor=alice)
    revoke_invitation(invitation, actor=alice)

    assert AuditEntry.objects.filter(action="invitation.revoke").count() == 1


def test_who_has_an_account_joins_with_it_and_only_with_the_invited_one(
    alice: Membership, charlie: Membership, bob: Membership
) -> None:
    secret = invited(alice, "charlie@example.com", Access.VIEWER)

    with pytest.raises(LinkDead):
        join_as(invitation_by_secret(secret), bob.user)
    member = join_as(invitation_by_secret(secret), charlie.user)

    assert (member.organisation, member.access) == (alice.organisation, Access.VIEWER)
    with system_scope():
        assert Membership.objects.filter(user=charlie.user).count() == 2


def test_an_account_cannot_be_taken_over_by_a_link_to_its_address(alice: Membership, charlie: Membership) -> None:
    secret = invited(alice, "charlie@example.com")

    with pytest.raises(LinkDead):
        join_as_newcomer(invitation_by_secret(secret), DANA)

    charlie.user.refresh_from_db()
    assert not charlie.user.check_password(DANA.password)
    assert invitation_by_secret(secret)


def test_a_member_is_not_invited_again_and_nobody_invites_above_themselves(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    otto = make_member(in_acme, "otto", Access.OPERATOR)

    for email, access, actor, field in (
        ("BOB@example.com", Access.MEMBER, alice, "email"),
        ("x@example.com", Access.MEMBER, otto, ""),
        ("x@example.com", Access.MEMBER, bob, ""),
    ):
        with pytest.raises(MemberRefused) as refused:
            invite(email, access, actor=actor)
        assert refused.value.field == field
    assert not Invitation.objects.exists()
