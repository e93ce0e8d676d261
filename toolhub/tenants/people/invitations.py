"""Invitations by link: made by members with the right `members`, used once by whoever holds that e-mail address."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from toolhub.tenants.access import secret_digest
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import ASK_AN_ADMIN, guarded_write, hold_organisation
from toolhub.tenants.models import Access, Invitation, Membership, Right, User
from toolhub.tenants.people.writes import Forbidden, MemberRefused, current_members
from toolhub.tenants.provided import Provided
from toolhub.tenants.rows.scope import organisation_scope, system_scope

INVITATION_DAYS = 7


class LinkDead(ValueError):
    """Dead link: unknown, used, revoked or expired; nobody learns which."""


class AddressTaken(LinkDead):
    """The address has an account, so no other is made for it."""


@dataclass(frozen=True)
class Newcomer:
    """Name and password that somebody without an account gives."""

    first_name: str
    last_name: str
    password: str


@Provided
def offered_roles(member: Membership) -> Sequence[tuple[str, str]]:
    """Return short name and name of the roles that this member may put on an invitation, as far as rights go."""
    raise NotImplementedError


@Provided
def set_invited_roles(invitation: Invitation, slugs: Collection[str], *, actor: Membership) -> None:
    """Put the roles on a new invitation. Raises MemberRefused, for `roles`."""


@Provided
def give_invited_roles(invitation: Invitation, member: Membership) -> None:
    """Give the new member those of the roles that the inviter could still give."""


@guarded_write(Forbidden)
def invite(email: str, access: Access, *, actor: Membership, roles: Collection[str] = ()) -> tuple[Invitation, str]:
    """Make an invitation; its secret is returned here and never again. An open one for that address is replaced.

    `roles`: short names of those that whoever accepts it is to have. Raises MemberRefused.
    """
    email = email.strip().lower()
    if not actor.has_right(Right.MEMBERS):
        raise Forbidden("This needs the admin right members.")
    if not actor.has_access(access):
        raise Forbidden("You cannot give more access than you have.", "access")
    if current_members().filter(user__email=email).exists():
        raise MemberRefused("email", f"{email} is a member already.", "exists")
    for older in open_invitations().filter(email=email):
        revoke_invitation(older, actor=actor)
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        organisation_id=actor.organisation_id,
        email=email,
        access=access,
        digest=secret_digest(secret),
        created_by=actor,
        expires_at=timezone.now() + timedelta(days=INVITATION_DAYS),
    )
    after: dict[str, object] = {"email": email, "access": access.value}
    if roles:
        set_invited_roles(invitation, roles, actor=actor)
        after["roles"] = sorted(set(roles))
    record("invitation.create", invitation, actor=actor, after=after)
    return invitation, secret


def open_invitations() -> QuerySet[Invitation]:
    return Invitation.objects.filter(accepted_at=None, revoked_at=None, expires_at__gt=Now())


@guarded_write(Forbidden)
def revoke_invitation(invitation: Invitation, *, actor: Membership) -> None:
    """End the link at once. One that was used, or ended before, stays as it is.

    Raises Forbidden for an invitation to more access than the actor has.
    """
    if not actor.has_access(Access(invitation.access)):
        raise Forbidden(f"{invitation.email} is invited to more access than you have. {ASK_AN_ADMIN}")
    if Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None).update(revoked_at=Now()):
        record("invitation.revoke", invitation, actor=actor, before={"email": invitation.email})


def invitation_by_secret(secret: str) -> Invitation:
    return invitation_by_digest(secret_digest(secret))


def invitation_by_digest(digest: str) -> Invitation:
    """The open invitation whose link has this digest, with its organisation and inviter. Raises LinkDead."""
    with system_scope():
        found = (
            open_invitations()
            .select_related("organisation", "created_by__user")
            .filter(digest=digest, created_by__ended_at=None, created_by__user__is_active=True)
            .first()
        )
    if found is None:
        raise LinkDead
    return found


def join_as_newcomer(invitation: Invitation, newcomer: Newcomer) -> Membership:
    """Make the account and the membership.

    Raises ValidationError for a weak password, AddressTaken where the address has an account, LinkDead when it came too
    late. An address that has an account joins by signing in: a link is no way to set somebody's password. The account
    is looked for last, so that every other answer, and the time it takes, is the same with one and without.
    """
    user = User(email=invitation.email, first_name=newcomer.first_name, last_name=newcomer.last_name)
    validate_password(newcomer.password, user)
    user.set_password(newcomer.password)
    try:
        with transaction.atomic():
            if User.objects.filter(email__iexact=invitation.email).exists():
                raise AddressTaken
            user.save()
            return _join(invitation, user)
    except IntegrityError as error:
        raise AddressTaken from error


@transaction.atomic
def join_as(invitation: Invitation, user: User) -> Membership:
    """Add the membership to an account with the invited address. Raises LinkDead for any other one."""
    if user.email.lower() != invitation.email or not user.is_active:
        raise LinkDead
    return _join(invitation, user)


def _join(invitation: Invitation, user: User) -> Membership:
    """Use the invitation up, once; who is a member already stays what they are."""
    with organisation_scope(invitation.organisation_id):
        hold_organisation(invitation.organisation_id)
        if not open_invitations().filter(pk=invitation.pk).update(accepted_at=Now()):
            raise LinkDead
        known = Membership.objects.filter(user=user, ended_at=None).first()
        if known is not None:
            return known
        membership = Membership.objects.create(
            organisation_id=invitation.organisation_id, user=user, access=invitation.access
        )
        added = {"email": user.email, "access": membership.access}
        record("invitation.accept", invitation, actor=membership, after={"email": invitation.email})
        record("member.add", membership, actor=membership, after=added)
        give_invited_roles(invitation, membership)
        return membership
