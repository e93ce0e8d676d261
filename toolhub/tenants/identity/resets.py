"""Reset links: an admin gives one to a member who lost the password. Shown once, good for a day, used once."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from toolhub.tenants.access import secret_digest
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import guarded_write, why_beyond
from toolhub.tenants.models import Membership, ResetLink, User
from toolhub.tenants.people.invitations import LinkDead
from toolhub.tenants.people.writes import Forbidden, MemberRefused, why_not
from toolhub.tenants.rows.scope import organisation_scope, system_scope

RESET_DAYS = 1
ELSEWHERE = (
    "{} also belongs to another organisation. Whoever can reset this password could sign in there, "
    "so nobody here may: ask the operator of this service."
)


@guarded_write(Forbidden)
def issue_reset_link(member: Membership, *, actor: Membership) -> tuple[ResetLink, str]:
    """Make a link for a member who lost the password; its secret is returned here and never again.

    Links made before end. Raises MemberRefused where the actor may not manage the member, or may use less than the
    member: whoever sets a password can sign in with it. Likewise for a user of another organisation as well: one
    organisation's admin must not get into another's account.
    """
    reason = why_no_reset(actor, member)
    if reason:
        raise Forbidden(reason)
    if _belongs_elsewhere(member):
        raise MemberRefused("", ELSEWHERE.format(member), "elsewhere")
    ResetLink.objects.filter(membership=member, ended_at=None).update(ended_at=Now())
    secret = secrets.token_urlsafe(32)
    link = ResetLink.objects.create(
        organisation_id=member.organisation_id,
        membership=member,
        digest=secret_digest(secret),
        password_mark=member.user.get_session_auth_hash(),
        created_by=actor,
        expires_at=timezone.now() + timedelta(days=RESET_DAYS),
    )
    record("member.reset_link", member, actor=actor, after={"expires_at": link.expires_at.isoformat()})
    return link, secret


def why_no_reset(actor: Membership, member: Membership) -> str:
    """Why the actor may not make a reset link for this member; "" where they may."""
    return why_not(actor, member) or why_beyond(actor, member)


def reset_link_by_secret(secret: str) -> ResetLink:
    return reset_link_by_digest(secret_digest(secret))


def reset_link_by_digest(digest: str) -> ResetLink:
    """The link that has this digest and still works, with its member. Raises LinkDead."""
    with system_scope():
        link = (
            ResetLink.objects.select_related("membership__user", "organisation", "created_by__user")
            .filter(digest=digest, ended_at=None, expires_at__gt=Now())
            .filter(membership__ended_at=None, membership__user__is_active=True, created_by__ended_at=None)
            .first()
        )
    if link is None or not _password_is_the_same(link) or _belongs_elsewhere(link.membership):
        raise LinkDead
    with organisation_scope(link.organisation_id):
        # As both are now: the member may have got more since the link was made.
        if why_no_reset(link.created_by, link.membership):
            raise LinkDead
    return link


@transaction.atomic
def reset_password(link: ResetLink, password: str) -> User:
    """Set the password and use the link up; every login session of the user ends with the old password.

    Raises ValidationError for a weak password, LinkDead when it came too late. Two-factor login stays in force.
    """
    with organisation_scope(link.organisation_id):
        member = Membership.objects.select_related("user").get(pk=link.membership_id)
        user = member.user
        validate_password(password, user)
        used = ResetLink.objects.filter(pk=link.pk, ended_at=None, expires_at__gt=Now()).update(ended_at=Now())
        if not used or not constant_time_compare(link.password_mark, user.get_session_auth_hash()):
            raise LinkDead
        user.set_password(password)
        user.save(update_fields=["password"])
        record("member.reset_password", member, actor=member)
        return user


def _password_is_the_same(link: ResetLink) -> bool:
    return constant_time_compare(link.password_mark, link.membership.user.get_session_auth_hash())


def _belongs_elsewhere(member: Membership) -> bool:
    with system_scope():
        memberships = Membership.objects.filter(user_id=member.user_id, ended_at=None)
        return memberships.exclude(organisation_id=member.organisation_id).exists()
