"""`manage.py hand_back_account`: of an account that somebody else made, or got into, nothing opens any more."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from capabilities.assistant.records.feeds import feed_by_secret, make_feed
from tests.cast import PASSWORD, make_member
from toolhub.tenants.access import issue_token, memberships_of_user, token_by_secret
from toolhub.tenants.identity.resets import issue_reset_link, reset_link_by_secret
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation
from toolhub.tenants.people.invitations import LinkDead, invitation_by_secret, invite
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


def hand_back(email: str, *options: str) -> str:
    out = StringIO()
    call_command("hand_back_account", email, *options, stdout=out)
    return out.getvalue()


def add_factors(member: Membership) -> None:
    for kind in Authenticator.Type:
        data = {"name": "Laptop", "credential": {}}
        Authenticator.objects.create(user=member.user, type=kind, data=data)


def test_nothing_that_opened_the_account_opens_it_again(alice: Membership, bob: Membership) -> None:
    dana = make_member(alice.organisation, "dana", Access.ADMIN)
    add_factors(dana)
    add_factors(bob)
    browser = Client()
    browser.force_login(dana.user)
    with organisation_scope(alice.organisation):
        _, token = issue_token(dana, "stolen", actor=dana)
        _, reset = issue_reset_link(dana, actor=alice)
        _, joining = invite("accomplice@example.com", Access.ADMIN, actor=dana)
        _, resetting = issue_reset_link(bob, actor=dana)
        feed = make_feed(alice.organisation_id, dana.pk, timezone.now())

    said = hand_back("Dana@example.com", "--keep", "acme")

    found = re.search(r"Password, shown only now: (\S+)", said)
    assert found is not None
    dana.user.refresh_from_db()
    assert dana.user.check_password(found[1])
    assert list(Authenticator.objects.filter(user=dana.user)) == []
    assert Authenticator.objects.filter(user=bob.user).count() == 3
    assert browser.get("/o/acme/").status_code == 302
    assert token_by_secret(token) is None
    assert feed_by_secret(feed) is None
    for find, secret in (
        (reset_link_by_secret, reset),
        (reset_link_by_secret, resetting),
        (invitation_by_secret, joining),
    ):
        with pytest.raises(LinkDead):
            find(secret)
    browser.post("/accounts/login/", {"login": "dana@example.com", "password": found[1]})
    assert browser.get("/o/acme/").status_code == 200


def test_it_is_on_record_where_it_stays_and_where_it_leaves(
    alice: Membership, globex: Organisation, charlie: Membership
) -> None:
    dana, there = make_member(alice.organisation, "dana"), make_member(globex, "dana")

    hand_back("dana@example.com", "--keep", "acme", "--leave", "globex")

    assert memberships_of_user(dana.user) == [dana]
    with system_scope():
        entries = AuditEntry.objects.order_by("pk").values_list(
            "organisation__slug", "actor_label", "action", "target_id"
        )
        assert list(entries) == [
            ("acme", "toolhub", "member.hand_back", str(dana.public_id)),
            ("globex", "toolhub", "member.remove", str(there.public_id)),
        ]


def test_whoever_made_the_account_cannot_reset_its_password_afterwards(charlie: Membership) -> None:
    """Charlie invited the address of somebody else, joined as it, and kept a passkey."""
    squatted = make_member(charlie.organisation, "victim")
    with organisation_scope(charlie.organisation):
        _, before = issue_reset_link(squatted, actor=charlie)

    hand_back("victim@example.com", "--leave", "globex")

    with organisation_scope(charlie.organisation):
        _, after = issue_reset_link(squatted, actor=charlie)
    for secret in (before, after):
        with pytest.raises(LinkDead):
            reset_link_by_secret(secret)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), r"Say --keep SLUG or --leave SLUG for each organisation of the account: acme \(admin\)"),
        (("--keep", "acme", "--leave", "acme"), "Say --keep SLUG or --leave SLUG"),
        (("--keep", "acme", "--leave", "globex"), "The account does not belong to globex"),
        (("--leave", "acme"), "This is the last admin"),
    ],
)
def test_what_is_not_decided_or_cannot_be_changes_nothing(
    alice: Membership, globex: Organisation, options: tuple[str, ...], sentence: str
) -> None:
    add_factors(alice)

    with pytest.raises(CommandError, match=sentence):
        hand_back("alice@example.com", *options)

    alice.user.refresh_from_db()
    assert alice.user.check_password(PASSWORD)
    assert Authenticator.objects.count() == 3
    with pytest.raises(CommandError, match="There is no account"):
        hand_back("nobody@example.com")
