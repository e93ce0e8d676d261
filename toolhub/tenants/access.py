"""The one place where a request becomes a membership: by the organisation in the path, or by an API token."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest
from django.utils import timezone
from django_htmx.middleware import HtmxDetails

from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import NotYours, why_not_of
from toolhub.tenants.models import EVERY_CATEGORY, Access, ApiToken, Membership, Organisation, Right, Scope, User
from toolhub.tenants.rows.scope import system_scope
from toolhub.tenants.rows.statements import Select, param
from toolhub.tenants.tokens.last_use import TokenUse, use_of

if TYPE_CHECKING:
    from toolhub.embedded.sqlite3.base import DatabaseWrapper

logger = logging.getLogger(__name__)

#: How often, at most, a token's last use is written down.
LAST_USE_EVERY = timedelta(minutes=1)
#: How often in that time, at most, it is written down that something else uses the token.
MAX_CHANGES = 5
TOKEN_PREFIX = "thub_"


class MemberRequest(HttpRequest):
    """A request whose membership is known, as views get it."""

    htmx: HtmxDetails
    membership: Membership


def member_or_404(
    request: HttpRequest,
    *,
    at_least: Access = Access.VIEWER,
    right: Right | None = None,
    category: str | None = EVERY_CATEGORY,
) -> Membership:
    """The member that this request acts as, in the organisation of its path.

    A stranger gets the answer of a missing page (404); a member with too little access, or without the right where one
    is asked for, gets an answer that says so (403). A right that was given for one category counts with that
    `category`; None takes one held for any, for pages that then ask `check_right` about each row. Raises Http404 and
    PermissionDenied.
    """
    membership = cast("Membership | None", getattr(request, "membership", None))
    if membership is None:
        raise Http404("No such page.")
    if not membership.has_access(at_least):
        raise PermissionDenied(f"This needs at least the access level {at_least.label.lower()}.")
    if right is not None:
        check_right(membership, right, category)
    return membership


def check_right(member: Membership, right: Right, category: str | None = EVERY_CATEGORY) -> None:
    """Raise PermissionDenied unless the member holds the right for this category (None: for any)."""
    reach = member.reach(right)
    if not (bool(reach) if category is None else reach.covers(category)):
        raise PermissionDenied(f"This needs the admin right {right.value}{f' for {category}' if category else ''}.")


_MEMBERSHIP = Select(
    lambda: Membership.objects.select_related("organisation", "user").filter(
        user=param(Membership, "user"),
        user__is_active=True,
        organisation__slug=param(Organisation, "slug"),
        ended_at=None,
    )
)


def membership_of_user(user: User, slug: str) -> Membership | None:
    """Return the user's membership in the organisation of that name, or None where there is none of either. One
    query."""
    with system_scope():
        found: list[Membership] = _MEMBERSHIP.instances(user=user.pk, slug=slug)
    return found[0] if found else None


def memberships_of_user(user: User) -> list[Membership]:
    with system_scope():
        found = Membership.objects.select_related("organisation").filter(user=user, ended_at=None)
        return list(found.order_by("organisation__name", "pk"))


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def usable_tokens() -> QuerySet[ApiToken]:
    """Tokens that were not revoked, have not expired, and whose member may still sign in."""
    tokens = ApiToken.objects.filter(revoked_at=None, membership__user__is_active=True, membership__ended_at=None)
    return tokens.filter(Q(expires_at=None) | Q(expires_at__gt=Now()))


_USABLE_TOKEN = Select(
    lambda: (
        usable_tokens()
        .select_related("membership", "membership__organisation", "membership__user")
        .filter(digest=param(ApiToken, "digest"))[:1]
    )
)


def token_by_secret(secret: str) -> ApiToken | None:
    """The usable token with this secret, with its membership, organisation and user at hand. One query."""
    with system_scope():
        found: list[ApiToken] = _USABLE_TOKEN.instances(digest=secret_digest(secret))
    return found[0] if found else None


def note_token_use(token: ApiToken, request: HttpRequest, *, agent: str = "", client: str = "") -> None:
    """Write down the use: see `record_token_use`. `agent`: slug of an agent, or `toolkit/<name>`, where the request
    names one; `client`: the client's name by the protocol, in place of its User-Agent."""
    record_token_use(token, use_of(request, agent=agent, client=client))


def record_token_use(token: ApiToken, use: TokenUse) -> None:
    """Write down that a token was used, and by what. At most one statement, and the request never waits for it: where
    somebody else is writing just now, nothing is written.

    Once a minute; at once where the client, the agent or the address is another one, which counts MAX_CHANGES times a
    minute: clients that take turns with one token do not write with each request. Who names no agent keeps the one
    that the same client named before.
    """
    if not use.agent and (use.client, use.address) == (token.last_client, token.last_address):
        use = replace(use, agent=token.last_agent)
    values: dict[str, Any] = {"last_client": use.client, "last_agent": use.agent, "last_address": use.address}
    still = Q(pk=token.pk)
    if token.last_used_at is None or timezone.now() - token.last_used_at >= LAST_USE_EVERY:
        values |= {"last_used_at": Now(), "last_use_changes": 0}
    elif token.last_use_changes >= MAX_CHANGES or all(getattr(token, name) == values[name] for name in values):
        return
    else:
        still &= Q(last_use_changes=token.last_use_changes)
        values["last_use_changes"] = token.last_use_changes + 1
    try:
        with system_scope(), _without_waiting():
            ApiToken.objects.filter(still).update(**values)
    except OperationalError:
        logger.debug("The last use of a token was not written down: the database is locked.")


def _without_waiting() -> AbstractContextManager[None]:
    """A statement that finds SQLite locked fails at once, in place of waiting for its turn."""
    if connection.vendor != "sqlite":
        return nullcontext()
    return cast("DatabaseWrapper", connection).without_waiting()


@transaction.atomic
def issue_token(
    membership: Membership,
    name: str,
    *,
    actor: Membership | None,
    secret: str = "",
    days: int | None = None,
    scopes: Iterable[Scope] = tuple(Scope),
) -> tuple[ApiToken, str]:
    """Make a token; its secret is returned here and never again. `days` until it expires, None for never."""
    wanted = set(scopes)
    secret = secret or TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        organisation=membership.organisation,
        membership=membership,
        name=name,
        prefix=secret[:9],
        digest=secret_digest(secret),
        scopes=[scope.value for scope in Scope if scope in wanted],
        expires_at=timezone.now() + timedelta(days=days) if days is not None else None,
    )
    after = {"name": name, "scopes": token.scopes, "expires_at": str(token.expires_at or "")}
    record("token.issue", token, actor=actor, after=after)
    return token, secret


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: Membership) -> None:
    """End a token at once. A second time changes nothing. Raises NotYours for one of a member of higher access."""
    reason = why_not_of(actor, Membership.objects.filter(pk=token.membership_id))
    if reason:
        raise NotYours(reason)
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
        record("token.revoke", token, actor=actor, before={"name": token.name})
