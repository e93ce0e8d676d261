"""Account of a user, in every organisation at once: its name, its ways to sign in, and how it is handed back."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

from allauth.mfa.models import Authenticator
from django.db import transaction
from django.utils import timezone

from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, User
from toolhub.tenants.people.writes import end_made_links, remove_by_operator
from toolhub.tenants.provided import Provided
from toolhub.tenants.rows.scope import organisation_scope


@Provided
def end_calendar_address(membership_id: int) -> None:
    """End the secret address at which the member's calendar is read, if there is one."""


@transaction.atomic
def rename_user(user: User, first_name: str, last_name: str) -> None:
    """Change one's own name; each organisation of the user has it in its audit."""
    before = user.get_full_name()
    user.first_name, user.last_name = first_name, last_name
    if user.get_full_name() == before:
        return
    user.save(update_fields=["first_name", "last_name"])
    for membership in memberships_of_user(user):
        with organisation_scope(membership.organisation_id):
            membership.user = user
            record(
                "member.rename",
                membership,
                actor=membership,
                before={"name": before},
                after={"name": user.get_full_name()},
            )


@dataclass(frozen=True)
class SignIn:
    """Factors that sign in to an account beside its password, or are asked for after it."""

    passkeys: list[Authenticator]
    has_app: bool


def sign_in_of(user: User) -> SignIn:
    """One query."""
    found = list(Authenticator.objects.filter(user=user).order_by("created_at"))
    passkeys = [each for each in found if each.type == Authenticator.Type.WEBAUTHN]
    return SignIn(passkeys, any(each.type == Authenticator.Type.TOTP for each in found))


def hand_back(user: User, *, keep: Collection[str]) -> tuple[str, list[Membership]]:
    """Give the account to whoever gets the password that is returned, and to nobody else; with the memberships kept.

    Passkeys, second factors, login sessions, API tokens, reset links and the links that it made end. It stays in the
    organisations with the short names in `keep` and leaves all others: their admins could reset its password. On record
    in each. For the operator of the service, inside a transaction. Raises MemberRefused where it is the last admin of
    an organisation to leave.
    """
    password, now, kept = secrets.token_urlsafe(12), timezone.now(), []
    user.set_password(password)
    user.save(update_fields=["password"])
    Authenticator.objects.filter(user=user).delete()
    for member in sorted(memberships_of_user(user), key=lambda each: each.organisation_id):
        with organisation_scope(member.organisation_id):
            if member.organisation.slug not in keep:
                remove_by_operator(member)
                continue
            ended = member.api_tokens.filter(revoked_at=None).update(revoked_at=now)
            member.reset_links.filter(ended_at=None).update(ended_at=now)
            end_made_links(member, None)
            record("member.hand_back", member, actor=None, after={"tokens_ended": ended})
            kept.append(member)
    return password, kept
