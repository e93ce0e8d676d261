from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from tests.cast import PASSWORD, make_member
from toolhub.tenants.identity.resets import issue_reset_link, reset_link_by_secret, reset_password
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation, ResetLink
from toolhub.tenants.people.invitations import LinkDead
from toolhub.tenants.people.writes import Forbidden, MemberRefused
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

NEW = "another-long-password"


def issued(actor: Membership, member: Membership) -> str:
    with organisation_scope(actor.organisation):
        return issue_reset_link(member, actor=actor)[1]


def test_a_link_sets_the_password_once_and_ends_every_login(alice: Membership, bob: Membership) -> None:
    secret = issued(alice, bob)
    browser = Client()
    browser.force_login(bob.user)
    assert browser.get("/o/acme/").status_code == 200

    reset_password(reset_link_by_secret(secret), NEW)

    bob.user.refresh_from_db()
    assert bob.user.check_password(NEW)
    assert browser.get("/o/acme/").status_code == 302
    with pytest.raises(LinkDead):
        reset_link_by_secret(secret)


def test_only_the_hash_is_kept_and_both_acts_are_written_down(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    secret = issued(alice, bob)
    reset_password(reset_link_by_secret(secret), NEW)

    assert secret not in str(ResetLink.objects.values().get())
    assert list(AuditEntry.objects.order_by("number").values_list("actor_label", "action")) == [
        ("alice@example.com", "member.reset_link"),
        ("bob@example.com", "member.reset_password"),
    ]


def test_a_weak_password_leaves_the_link_open(alice: Membership, bob: Membership) -> None:
    secret = issued(alice, bob)

    with pytest.raises(ValidationError):
        reset_password(reset_link_by_secret(secret), "short")

    assert reset_link_by_secret(secret)


def test_a_link_is_dead_after_the_password_changed(alice: Membership, bob: Membership) -> None:
    secret = issued(alice, bob)
    early = reset_link_by_secret(secret)
    bob.user.set_password("changed-in-the-meantime")
    bob.user.save()

    with pytest.raises(LinkDead):
        reset_link_by_secret(secret)
    with pytest.raises(LinkDead):
        reset_password(early, NEW)


def test_links_end_by_time_by_a_newer_one_and_with_their_maker(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    dana = make_member(in_acme, "dana", Access.ADMIN)
    older = issued(alice, bob)
    newer = issued(dana, bob)
    with pytest.raises(LinkDead):
        reset_link_by_secret(older)
    assert reset_link_by_secret(newer)

    Membership.objects.filter(pk=dana.pk).update(ended_at=timezone.now())
    with pytest.raises(LinkDead):
        reset_link_by_secret(newer)

    last = issued(alice, bob)
    ResetLink.objects.filter(ended_at=None).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(LinkDead):
        reset_link_by_secret(last)


def test_an_admin_of_one_organisation_cannot_take_over_an_account_of_another(
    alice: Membership, bob: Membership, globex: Organisation, in_acme: Organisation
) -> None:
    secret = issued(alice, bob)
    make_member(globex, "bob")

    with pytest.raises(MemberRefused, match="also belongs to another organisation") as refused:
        issue_reset_link(bob, actor=alice)
    assert refused.value.code == "elsewhere"
    with pytest.raises(LinkDead):
        reset_link_by_secret(secret)  # made before he joined the other


def test_nobody_resets_their_own_or_without_the_right(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    for member, actor in ((alice, alice), (alice, bob)):
        with pytest.raises(Forbidden):
            issue_reset_link(member, actor=actor)
    assert alice.user.check_password(PASSWORD)
