"""Credentials and accounts as pages and the API show them. No secret is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404

from capabilities.models import CredentialScope, McpServer, SecretStatus, StoredCredential, StoredSecret, Tool
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import Keyset, Page

#: Names of tools that a page lists.
NAMED = 50


def shown_credentials() -> QuerySet[StoredCredential]:
    """Return credentials with `tool_count`, `server_count` and `account_count`, and of the organisation's secret
    `shared_status` (None where there is none) and `shared_reason`."""
    shared = StoredSecret.objects.filter(credential=OuterRef("pk"), membership=None)
    return StoredCredential.objects.defer("client_secret").annotate(
        tool_count=_count(Tool.objects.filter(Q(credential=OuterRef("pk")) | Q(server__credential=OuterRef("pk")))),
        server_count=_count(McpServer.objects.filter(credential=OuterRef("pk"))),
        account_count=_count(connected().filter(credential=OuterRef("pk"))),
        shared_status=Subquery(shared.values("status")[:1]),
        shared_reason=Subquery(shared.values("reason")[:1]),
    )


def _count(rows: QuerySet[Any]) -> Coalesce:
    """Count the rows of the organisation: all are of one, so they make one group."""
    counted = rows.order_by().values("organisation").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted), 0)


def connected() -> QuerySet[StoredSecret]:
    """Return secrets of those who are still members."""
    return StoredSecret.objects.filter(membership__isnull=False, membership__ended_at=None).defer("values_json")


def state_of(credential: StoredCredential) -> str:
    """Return the state of one of `shown_credentials`: connected, refused, needs_more, missing (no secret), or own."""
    if credential.scope == CredentialScope.MEMBER:
        return "own"
    return getattr(credential, "shared_status", None) or "missing"


def credentials_page(*, q: str = "", after: str = "", before: str = "") -> Page[StoredCredential]:
    """Return one page of credentials, by title. One query."""
    rows = shown_credentials()
    if q:
        rows = rows.filter(Q(title__icontains=q) | Q(name__icontains=q))
    return Keyset(rows, ("title", "pk")).page(after, before)


def credential_or_404(name: str) -> StoredCredential:
    """Return the credential of this name with what `shown_credentials` adds. Raises Http404. One query."""
    found = shown_credentials().select_related("organisation").filter(name=name).first()
    if found is None:
        raise Http404("No such credential.")
    return found


@dataclass(frozen=True)
class CredentialUse:
    """Use of a credential: the first of the tools that it signs, by name, and all servers."""

    tools: Sequence[str]
    servers: Sequence[McpServer]


def use_of(credential: StoredCredential) -> CredentialUse:
    """Return the use of a credential. Two queries."""
    tools = Tool.objects.filter(Q(credential=credential) | Q(server__credential=credential)).order_by("name")
    servers = McpServer.objects.filter(credential=credential).order_by("title", "pk")
    return CredentialUse(list(tools.values_list("name", flat=True)[:NAMED]), list(servers[:NAMED]))


def shared_secret(credential: StoredCredential) -> StoredSecret | None:
    """Return the organisation's secret, without its values, or None. One query."""
    return StoredSecret.objects.filter(credential=credential, membership=None).defer("values_json").first()


def accounts_of(credential: StoredCredential) -> QuerySet[StoredSecret]:
    """Return the accounts that members connected."""
    return connected().filter(credential=credential).select_related("membership__user")


def accounts_page(credential: StoredCredential, *, after: str = "", before: str = "") -> Page[StoredSecret]:
    """Return one page of connected accounts, by e-mail address. One query."""
    return Keyset(accounts_of(credential), ("membership__user__email", "pk")).page(after, before)


# -- One's own --------------------------------------------------------------------------------------------------------


def own_accounts(member: Membership) -> QuerySet[StoredCredential]:
    """Return credentials to connect own accounts to; `own` of each lists the member's secret, if any. Two queries."""
    own = StoredSecret.objects.filter(membership=member).defer("values_json")
    rows = StoredCredential.objects.filter(scope=CredentialScope.MEMBER).defer("client_secret")
    return rows.prefetch_related(Prefetch("secrets", own, to_attr="own"))


def own_accounts_page(member: Membership, *, after: str = "", before: str = "") -> Page[StoredCredential]:
    """Return one page of the accounts that the member can connect, by title. Two queries."""
    return Keyset(own_accounts(member), ("title", "pk")).page(after, before)


def own_account_or_404(member: Membership, name: str) -> StoredCredential:
    """Return one account that the member can connect. Raises Http404. Two queries."""
    found = own_accounts(member).select_related("organisation").filter(name=name).first()
    if found is None:
        raise Http404("No such account to connect.")
    return found


def own_secret(credential: StoredCredential) -> StoredSecret | None:
    """Return the member's secret of one of `own_accounts`, or None. No query."""
    own: list[StoredSecret] = getattr(credential, "own", [])
    return own[0] if own else None


def waits_for_member(credential: StoredCredential) -> bool:
    """Return whether the member has to do something before calls can be signed. No query."""
    secret = own_secret(credential)
    return secret is None or secret.status != SecretStatus.CONNECTED
