"""API tokens that members issue for themselves, and the list of a member's tokens, for admins too."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from toolhub.tenants.access import issue_token
from toolhub.tenants.models import ApiToken, Membership, Scope
from toolhub.tenants.people.writes import MemberRefused

#: Tokens that one member may have in use.
MAX_TOKENS = 50
MAX_DAYS = 3_650


def tokens_of(member: Membership) -> QuerySet[ApiToken]:
    """The member's tokens that were not revoked, newest first."""
    return ApiToken.objects.filter(membership=member, revoked_at=None).order_by("-pk")


def issue_own_token(
    member: Membership, name: str, scopes: Iterable[Scope], days: int | None, *, by: ApiToken | None = None
) -> tuple[ApiToken, str]:
    """A token for oneself. One that is made with a token (`by`) can do no more and live no longer than that.

    Raises MemberRefused.
    """
    wanted = set(scopes)
    if not wanted:
        raise MemberRefused("scopes", "Choose at least one scope.")
    if tokens_of(member).count() >= MAX_TOKENS:
        raise MemberRefused("", f"You have {MAX_TOKENS} tokens; revoke one first.", "too_many")
    if by is not None:
        missing = sorted(wanted - set(by.scopes))
        if missing:
            raise MemberRefused("scopes", f"The token that asks lacks the scope {missing[0]} itself.", "forbidden")
        if by.expires_at is not None and (days is None or timezone.now() + timedelta(days=days) > by.expires_at):
            raise MemberRefused("expires_in_days", "The token that asks expires before that.", "forbidden")
    return issue_token(member, name, actor=member, scopes=wanted, days=days)
