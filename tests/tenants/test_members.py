"""Nobody gives or takes more than they hold, nobody touches their own membership, and an admin stays."""

from __future__ import annotations

import pytest

from tests.cast import make_category, make_member, make_token
from tests.threads import at_once
from toolhub.tenants.access import membership_of_user, memberships_of_user, token_by_secret
from toolhub.tenants.identity.resets import issue_reset_link
from toolhub.tenants.models import (
    Access,
    AdminRight,
    AuditEntry,
    Invitation,
    Membership,
    Organisation,
    ResetLink,
    Right,
)
from toolhub.tenants.people.invitations import invite
from toolhub.tenants.people.writes import (
    Forbidden,
    GivenRight,
    MemberRefused,
    change_member,
    current_members,
    give_right,
    held_rights,
    remove_member,
    set_access,
    take_right,
)
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def delegate(member: Membership, *rights: Right, category: str = "") -> None:
    with organisation_scope(member.organisation):
        for right in rights:
            AdminRight.objects.create(
                organisation=member.organisation, membership=member, right=right, category=category
            )


def last_entry() -> tuple[str, str, object, object]:
    entry = AuditEntry.objects.order_by("-number")[0]
    return entry.actor_label, entry.action, entry.before, entry.after


# -- Rights for one category ------------------------------------------------------------------------------------------


def test_a_right_for_one_category_counts_for_that_category_alone(bob: Membership, in_acme: Organisation) -> None:
    delegate(bob, Right.CATALOGUE, category="web")

    held = {name: bob.has_right(Right.CATALOGUE, name) for name in ("", "web", "file")}

    assert held == {"": False, "web": True, "file": False}
    assert bob.reach(Right.CATALOGUE)
    assert not bob.reach(Right.AUDIT)


def test_a_right_for_every_category_counts_for_each(bob: Membership, in_acme: Organisation) -> None:
    delegate(bob, Right.CATALOGUE)

    assert bob.has_right(Right.CATALOGUE)
    assert bob.has_right(Right.CATALOGUE, "web")


# -- Access -----------------------------------------------------------------------------------------------------------


def test_an_admin_changes_access_and_it_is_written_down(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    set_access(bob, Access.OPERATOR, actor=alice)

    assert Membership.objects.get(pk=bob.pk).access == Access.OPERATOR
    assert last_entry() == ("alice@example.com", "member.access", {"access": "member"}, {"access": "operator"})


def test_the_same_access_again_changes_nothing(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    set_access(bob, Access.MEMBER, actor=alice)

    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("access", [Access.OPERATOR, Access.ADMIN])
def test_who_manages_members_gives_no_more_access_than_their_own(
    bob: Membership, in_acme: Organisation, access: Access
) -> None:
    delegate(bob, Right.MEMBERS)
    dana = make_member(in_acme, "dana", Access.VIEWER)

    with pytest.raises(Forbidden, match="more access than you have"):
        set_access(dana, access, actor=bob)

    assert set_access(dana, Access.MEMBER, actor=bob).access == Access.MEMBER


def test_who_manages_members_cannot_touch_somebody_with_more(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    delegate(bob, Right.MEMBERS)
    dana = make_member(in_acme, "dana")
    delegate(dana, Right.AUDIT)

    for above in (alice, dana):
        for act in (
            lambda member: set_access(member, Access.VIEWER, actor=bob),
            lambda member: take_right(member, GivenRight(Right.AUDIT), actor=bob),
            lambda member: remove_member(member, actor=bob),
            lambda member: issue_reset_link(member, actor=bob),
        ):
            with pytest.raises(Forbidden):
                act(above)

    assert not AuditEntry.objects.exists()


def test_nobody_changes_their_own_membership(alice: Membership, in_acme: Organisation) -> None:
    make_member(in_acme, "dana", Access.ADMIN)

    for act in (
        lambda: set_access(alice, Access.MEMBER, actor=alice),
        lambda: give_right(alice, GivenRight(Right.AUDIT), actor=alice),
        lambda: remove_member(alice, actor=alice),
    ):
        with pytest.raises(Forbidden, match="their own"):
            act()


def test_without_the_right_nobody_manages_members(bob: Membership, in_acme: Organisation) -> None:
    dana = make_member(in_acme, "dana", Access.VIEWER)

    with pytest.raises(Forbidden, match="members"):
        set_access(dana, Access.MEMBER, actor=bob)


def test_the_last_admin_is_neither_demoted_nor_removed(alice: Membership, in_acme: Organisation) -> None:
    """An admin whose account is closed is none."""
    dana = make_member(in_acme, "dana", Access.ADMIN)
    dana.user.is_active = False
    dana.user.save()

    for act in (lambda: set_access(alice, Access.MEMBER, actor=dana), lambda: remove_member(alice, actor=dana)):
        with pytest.raises(MemberRefused) as refused:
            act()
        assert refused.value.code == "last_admin"


def test_a_stale_admin_is_asked_again(alice: Membership, in_acme: Organisation) -> None:
    """Dana was demoted after her request began."""
    dana = make_member(in_acme, "dana", Access.ADMIN)
    stale = Membership.objects.get(pk=dana.pk)
    set_access(dana, Access.MEMBER, actor=alice)

    with pytest.raises(Forbidden):
        set_access(alice, Access.MEMBER, actor=stale)


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_demote_each_other_at_once_leave_one(alice: Membership, in_acme: Organisation) -> None:
    dana = make_member(in_acme, "dana", Access.ADMIN)

    def demote(member: Membership, actor: Membership) -> str:
        try:
            set_access(member, Access.MEMBER, actor=actor)
        except MemberRefused as error:
            return error.code
        return "done"

    said = at_once([lambda: demote(dana, alice), lambda: demote(alice, dana)])

    assert sorted(said) == ["done", "forbidden"]
    assert Membership.objects.filter(access=Access.ADMIN).count() == 1


# -- Rights -----------------------------------------------------------------------------------------------------------


def test_rights_are_given_and_taken_and_written_down(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    make_category(in_acme, "web")
    give_right(bob, GivenRight(Right.CATALOGUE, "web"), actor=alice)
    give_right(bob, GivenRight(Right.AUDIT), actor=alice)
    give_right(bob, GivenRight(Right.AUDIT), actor=alice)
    member = take_right(bob, GivenRight(Right.CATALOGUE, "web"), actor=alice)

    assert held_rights(member) == {GivenRight(Right.AUDIT)}
    assert list(AuditEntry.objects.filter(action="member.rights").order_by("number").values_list("after")) == [
        ({"rights": ["catalogue:web"]},),
        ({"rights": ["audit", "catalogue:web"]},),
        ({"rights": ["audit"]},),
    ]


def test_nobody_gives_a_right_that_they_lack(bob: Membership, in_acme: Organisation) -> None:
    make_category(in_acme, "web")
    delegate(bob, Right.MEMBERS)
    delegate(bob, Right.CATALOGUE, category="web")
    dana = make_member(in_acme, "dana")

    for given in (GivenRight(Right.AUDIT), GivenRight(Right.CATALOGUE)):
        with pytest.raises(Forbidden) as refused:
            give_right(dana, given, actor=bob)
        assert refused.value.field == "right"

    assert held_rights(give_right(dana, GivenRight(Right.CATALOGUE, "web"), actor=bob)) == {
        GivenRight(Right.CATALOGUE, "web")
    }


def test_an_operator_with_members_cannot_give_approve_code(in_acme: Organisation, bob: Membership) -> None:
    otto = make_member(in_acme, "otto", Access.OPERATOR)
    delegate(otto, Right.MEMBERS)

    with pytest.raises(Forbidden):
        give_right(bob, GivenRight(Right.APPROVE_CODE), actor=otto)


@pytest.mark.parametrize(
    ("given", "code"),
    [(GivenRight(Right.AUDIT, "web"), "refused"), (GivenRight(Right.CATALOGUE, "nowhere"), "unknown")],
)
def test_a_category_that_cannot_be_is_refused(
    alice: Membership, bob: Membership, in_acme: Organisation, given: GivenRight, code: str
) -> None:
    make_category(in_acme, "web")

    with pytest.raises(MemberRefused) as refused:
        give_right(bob, given, actor=alice)

    assert (refused.value.field, refused.value.code) == ("category", code)


def test_a_category_of_another_organisation_is_an_unknown_one(
    alice: Membership, bob: Membership, globex: Organisation, in_acme: Organisation
) -> None:
    make_category(globex, "secret")

    with pytest.raises(MemberRefused, match="no such category"):
        give_right(bob, GivenRight(Right.CATALOGUE, "secret"), actor=alice)


def test_a_change_of_several_things_is_made_as_a_whole_or_not(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    with pytest.raises(MemberRefused):
        change_member(bob, access=Access.OPERATOR, rights=[GivenRight(Right.CATALOGUE, "nowhere")], actor=alice)

    assert Membership.objects.get(pk=bob.pk).access == Access.MEMBER
    assert not AuditEntry.objects.exists()


def test_a_member_of_another_organisation_is_not_there(
    alice: Membership, charlie: Membership, in_acme: Organisation
) -> None:
    with pytest.raises(MemberRefused) as refused:
        set_access(charlie, Access.MEMBER, actor=alice)

    assert refused.value.code == "unknown"


# -- Leaving ----------------------------------------------------------------------------------------------------------


def test_a_removed_member_gets_in_nowhere_and_the_chats_stay(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    secret = make_token(bob)
    delegate(bob, Right.MEMBERS)
    invite("new@example.com", Access.VIEWER, actor=bob)
    issue_reset_link(make_member(in_acme, "dana"), actor=bob)

    remove_member(bob, actor=alice)

    ended = Membership.objects.get(pk=bob.pk)
    assert membership_of_user(bob.user, "acme") is None
    assert memberships_of_user(bob.user) == []
    assert token_by_secret(secret) is None
    assert [member.pk for member in current_members().filter(user=bob.user)] == []
    assert not ended.has_right(Right.MEMBERS)
    assert not AdminRight.objects.exists()
    assert Invitation.objects.get().state == "revoked"
    assert ResetLink.objects.get().ended_at is not None
    entry = AuditEntry.objects.get(action="member.remove")
    assert entry.before == {"access": "member", "rights": ["members"]}


def test_a_removed_member_who_returns_gets_a_new_membership(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    secret = make_token(bob)
    remove_member(bob, actor=alice)

    again = make_member(in_acme, "bob")

    assert membership_of_user(bob.user, "acme") == again
    assert again.pk != bob.pk
    assert token_by_secret(secret) is None


def test_who_loses_access_loses_the_invitations_that_they_could_not_make_now(
    alice: Membership, in_acme: Organisation
) -> None:
    dana = make_member(in_acme, "dana", Access.ADMIN)
    delegate(dana, Right.MEMBERS)
    invite("admin@example.com", Access.ADMIN, actor=dana)
    invite("viewer@example.com", Access.VIEWER, actor=dana)

    set_access(dana, Access.MEMBER, actor=alice)

    states = {each.email: each.state for each in Invitation.objects.all()}
    assert states == {"admin@example.com": "revoked", "viewer@example.com": "open"}
