"""The audited writes of stored credentials and of the secrets behind them, the organisation's and each member's own.

A secret that was typed for one address never goes to another: with other origins, another resource or another
authorization server it has to be typed, or the account connected, again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import PermissionDenied
from django.db.models import Q

from capabilities.common.refused import ChangeRefused, check_slug
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write
from capabilities.common.secrets import SecretUnreadable
from capabilities.models import (
    CredentialKind,
    CredentialScope,
    McpServer,
    OAuthSignIn,
    SecretStatus,
    StoredCredential,
    StoredSecret,
    Tool,
    ToolImport,
)
from capabilities.running.credentials.oauth.revoking import queue_revocations
from capabilities.running.egress import EgressError, check_url, is_listed, origin_of
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

MAX_ORIGINS, MAX_SCOPES = 10, 50
#: Characters of one secret, and at least: a shorter one would be masked in half of what a far side says.
MAX_SECRET, MIN_SECRET = 4_000, 4
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
#: Text that may stand in a header or an address: no line break, no letter that headers cannot carry.
SENDABLE = re.compile(r"[\x20-\x7e]+")
#: One permission of OAuth (RFC 6749, 3.3).
OAUTH_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
#: These say where a request goes, how long it is or who is signed in: they are not ours to set.
NOT_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"})
#: The values of a secret, by kind.
VALUES: Mapping[str, tuple[str, ...]] = {
    CredentialKind.BEARER: ("token",),
    CredentialKind.HEADER: ("token",),
    CredentialKind.QUERY: ("token",),
    CredentialKind.BASIC: ("user", "password"),
    CredentialKind.OAUTH: (),
}
LABELS = {"token": "Secret", "user": "User name", "password": "Password"}


@dataclass(frozen=True)
class CredentialContent:
    """Content of a credential, as people give it. `kind`, `scope` and the name are fixed once it is there.

    `client_secret` empty keeps the stored one.
    """

    title: str
    kind: str = CredentialKind.BEARER
    scope: str = CredentialScope.ORGANISATION
    parameter: str = ""
    prefix: str = ""
    origins: Sequence[str] = ()
    resource: str = ""
    issuer: str = ""
    scopes: Sequence[str] = ()
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


def content_of(credential: StoredCredential) -> CredentialContent:
    """Return the stored content, as people gave it; a client that we registered ourselves is left out."""
    return CredentialContent(
        title=credential.title,
        kind=credential.kind,
        scope=credential.scope,
        parameter=credential.parameter,
        prefix=credential.prefix,
        origins=tuple(credential.origins),
        resource=credential.resource,
        issuer=credential.issuer,
        scopes=tuple(credential.scopes),
        client_id=credential.client_id if credential.registration == MANUAL else "",
    )


#: Way in which we became a client of an authorization server: the client's id was typed, or see oauth/clients.
MANUAL = "manual"


def may_manage(member: Membership) -> bool:
    """Return whether the member may make and change credentials, and enter the organisation's secrets: with the right
    `providers`, or `catalogue` for every category."""
    return member.has_right(Right.PROVIDERS) or member.has_right(Right.CATALOGUE)


def may_see(member: Membership) -> bool:
    """Return whether the member may see which credentials there are."""
    return may_manage(member) or bool(member.reach(Right.CATALOGUE))


def require_manager(actor: Membership | None) -> None:
    """Raise PermissionDenied for who may not manage credentials. None is the service itself."""
    if actor is not None and not may_manage(actor):
        raise PermissionDenied("This needs the admin right providers, or catalogue for every category.")


# -- Credentials ------------------------------------------------------------------------------------------------------


@configuration_write()
def create_credential(
    name: str, content: CredentialContent, *, actor: Membership, secret: Mapping[str, str] | None = None
) -> StoredCredential:
    """Make one; `secret`: the organisation's, if it is there already. Raises ChangeRefused."""
    require_manager(actor)
    check_slug(name)
    if StoredCredential.objects.filter(name=name).exists():
        raise ChangeRefused("name", "There is a credential of this name already.", code="taken")
    content = checked(content)
    credential = StoredCredential(
        organisation_id=actor.organisation_id, name=name, kind=content.kind, scope=content.scope, created_by=actor
    )
    _fill(credential, content)
    credential.save()
    record("credential.create", credential, actor=actor, after=_shown(content))
    if _typed(secret):
        set_secret(credential, secret or {}, actor=actor)
    touch_registry(actor.organisation_id)
    return credential


@configuration_write()
def update_credential(
    credential: StoredCredential,
    content: CredentialContent,
    *,
    actor: Membership,
    secret: Mapping[str, str] | None = None,
) -> StoredCredential:
    """Change one. Where it would be sent to another address than before, the organisation's secret has to be typed
    again, and members connect their accounts again. Raises ChangeRefused."""
    require_manager(actor)
    credential = as_it_is(credential)
    before = content_of(credential)
    content = checked(replace(content, kind=credential.kind, scope=credential.scope))
    if moves(before, content):
        _check_typed_again(credential, content, secret)
        secrets = StoredSecret.objects.filter(credential=credential)
        queue_revocations(secrets)
        _forget_client(credential)
        dropped = secrets.delete()[0]
        OAuthSignIn.objects.filter(credential=credential).delete()
    else:
        dropped = 0
    _fill(credential, content)
    credential.save()
    after = _shown(content) | ({"secrets_dropped": dropped} if dropped else {})
    record("credential.update", credential, actor=actor, before=_shown(before), after=after)
    if _typed(secret):
        set_secret(credential, secret or {}, actor=actor)
    touch_registry(actor.organisation_id)
    return credential


@configuration_write()
def delete_credential(credential: StoredCredential, *, actor: Membership) -> None:
    """Remove it with all its secrets. Raises ChangeRefused while tools, servers or imports use it."""
    require_manager(actor)
    used = [
        *Tool.objects.filter(credential=credential).order_by("name").values_list("name", flat=True)[:3],
        *McpServer.objects.filter(credential=credential).order_by("name").values_list("name", flat=True)[:3],
    ]
    if used:
        raise ChangeRefused("name", f"It is in use by {', '.join(used[:3])}: change them first.", code="in_use")
    if ToolImport.objects.filter(credential=credential).exists():
        raise ChangeRefused("name", "An import uses it: remove that first.", code="in_use")
    record("credential.delete", credential, actor=actor, before=_shown(content_of(credential)))
    queue_revocations(StoredSecret.objects.filter(credential=credential))
    credential.delete()
    touch_registry(actor.organisation_id)


def as_it_is(credential: StoredCredential) -> StoredCredential:
    """Return the row as it is now, its client's secret left in the database until it is asked for. One query.

    What a page was made from may have changed: a secret that is typed for one address now must not go to another.
    """
    return StoredCredential.objects.defer("client_secret").select_related("organisation").get(pk=credential.pk)


def moves(before: CredentialContent, after: CredentialContent) -> bool:
    """Return whether secrets that are stored for the one would go elsewhere with the other, or to another client.

    An origin that is taken away moves nothing.
    """
    if set(after.origins) - set(before.origins):
        return True
    return any(getattr(before, name) != getattr(after, name) for name in ("resource", "issuer", "client_id"))


def _check_typed_again(
    credential: StoredCredential, content: CredentialContent, secret: Mapping[str, str] | None
) -> None:
    """Raise ChangeRefused where a secret is stored that has to be typed again."""
    shared = StoredSecret.objects.filter(credential=credential, membership=None).exclude(credential__kind="oauth")
    if shared.exists() and not _typed(secret):
        name = VALUES[credential.kind][-1]
        raise ChangeRefused(name, "The address changed: type the secret again, it was for the one before.")
    is_manual = credential.registration == MANUAL and bool(content.client_id)
    if is_manual and not content.client_secret and _has_client_secret(credential):
        message = "The address changed: type the client’s secret again, it was for the one before."
        raise ChangeRefused("client_secret", message)


def _has_client_secret(credential: StoredCredential) -> bool:
    try:
        return bool(credential.client_secret)
    except SecretUnreadable:
        return False


def _forget_client(credential: StoredCredential) -> None:
    """Clear what we know of the authorization server, and our client there: both belong to the address before."""
    credential.registration = credential.client_id = credential.client_secret = credential.client_auth = ""
    credential.redirect_uri = credential.resource_indicator = ""
    credential.server_metadata, credential.discovered_at = {}, None


def _fill(credential: StoredCredential, content: CredentialContent) -> None:
    for name in ("title", "parameter", "prefix", "resource", "issuer"):
        setattr(credential, name, getattr(content, name))
    credential.origins, credential.scopes = list(content.origins), list(content.scopes)
    if content.client_id:
        credential.registration, credential.client_id = MANUAL, content.client_id
        if content.client_secret:
            credential.client_secret = content.client_secret
        credential.client_auth = "client_secret_basic" if _has_client_secret(credential) else "none"


def _shown(content: CredentialContent) -> dict[str, Any]:
    """Return the content as the audit records it: no secret."""
    shown: dict[str, Any] = {
        "title": content.title,
        "kind": str(content.kind),
        "scope": str(content.scope),
        "parameter": content.parameter,
        "prefix": content.prefix,
        "origins": list(content.origins),
        "resource": content.resource,
        "issuer": content.issuer,
        "scopes": list(content.scopes),
        "client_id": content.client_id,
        "client_secret": "set" if content.client_secret else "",
    }
    return {name: value for name, value in shown.items() if value}


# -- What may stand in one --------------------------------------------------------------------------------------------


def checked(content: CredentialContent) -> CredentialContent:
    """The content in the form in which it is stored. Raises ChangeRefused."""
    if not content.title.strip():
        raise ChangeRefused("title", "Give it a title.")
    if content.kind not in CredentialKind.values:
        raise ChangeRefused("kind", "There is no such kind of credential.", code="unknown")
    if content.scope not in CredentialScope.values:
        raise ChangeRefused("scope", "There is no such scope.", code="unknown")
    is_oauth = content.kind == CredentialKind.OAUTH
    content = replace(content, title=content.title.strip()[:100])
    if not is_oauth:
        content = replace(content, resource="", issuer="", scopes=(), client_id="", client_secret="")
    content = _checked_oauth(content) if is_oauth else _checked_parameter(content)
    return replace(content, origins=_checked_origins(content))


def _checked_parameter(content: CredentialContent) -> CredentialContent:
    """Return the content with the header or query parameter that carries the secret. Raises ChangeRefused."""
    name = content.parameter.strip()
    if content.kind == CredentialKind.HEADER:
        if not HEADER_NAME.fullmatch(name) or name.lower() in NOT_HEADERS or name.lower().startswith("proxy-"):
            raise ChangeRefused("parameter", "Give the name of a header, such as X-Api-Key.")
    elif content.kind == CredentialKind.QUERY:
        if not SENDABLE.fullmatch(name) or len(name) > 100:
            raise ChangeRefused("parameter", "Give the name of the query parameter, such as api_key.")
    else:
        name = ""
    prefix = "" if content.kind == CredentialKind.BASIC else content.prefix
    if prefix and (not SENDABLE.fullmatch(prefix) or len(prefix) > 40):
        raise ChangeRefused("prefix", "Use plain letters, digits and marks, at most 40.")
    return replace(content, parameter=name, prefix=prefix)


def _checked_oauth(content: CredentialContent) -> CredentialContent:
    """Return the content of an OAuth credential as it is stored. Raises ChangeRefused."""
    resource, issuer = content.resource.strip(), content.issuer.strip()
    for name, url in (("resource", resource), ("issuer", issuer)):
        if url:
            check_address(name, url)
    if not resource and not issuer:
        raise ChangeRefused("resource", "Give the address of the service, or of its authorization server.")
    scopes = tuple(dict.fromkeys(each for scope in content.scopes for each in scope.split()))
    if len(scopes) > MAX_SCOPES or not all(OAUTH_SCOPE.fullmatch(each) for each in scopes):
        raise ChangeRefused("scopes", f"Give at most {MAX_SCOPES} permissions, plain words with spaces between.")
    client_id = content.client_id.strip()
    if client_id and (not SENDABLE.fullmatch(client_id) or len(client_id) > 500):
        raise ChangeRefused("client_id", "Use plain letters, digits and marks, at most 500.")
    if content.client_secret and not client_id:
        raise ChangeRefused("client_id", "A client’s secret needs the client’s id.")
    if len(content.client_secret) > MAX_SECRET:
        raise ChangeRefused("client_secret", f"Keep it under {MAX_SECRET:,} characters.")
    origins = content.origins or ([origin_of(resource)] if resource else [])
    content = replace(content, resource=resource, issuer=issuer, scopes=scopes, client_id=client_id)
    return replace(content, parameter="", prefix="", origins=origins)


def _checked_origins(content: CredentialContent) -> tuple[str, ...]:
    found = []
    for each in content.origins:
        check_address("origins", each.strip())
        parts = urlsplit(each.strip())
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ChangeRefused("origins", f"{each[:200]} has a path: give scheme and host, https://api.example.org.")
        found.append(origin_of(each.strip()))
    if not found:
        raise ChangeRefused("origins", "Give the address that it may be sent to, such as https://api.example.org.")
    if len(found) > MAX_ORIGINS:
        raise ChangeRefused("origins", f"Give at most {MAX_ORIGINS} addresses.")
    return tuple(dict.fromkeys(found))


def check_address(field_name: str, url: str) -> None:
    """Raise ChangeRefused for an address that no secret may go to: only https, or what the operator lists."""
    try:
        parsed = check_url(url)
        if parsed.scheme != "https" and not is_listed(url):
            raise ChangeRefused(
                field_name,
                f"{url[:200]}: secrets are sent by https only; an operator can allow other hosts with "
                "TOOLHUB_PRIVATE_HOSTS.",
            )
    except EgressError as error:
        raise ChangeRefused(field_name, str(error)) from error
    if len(url) > 500:
        raise ChangeRefused(field_name, "Keep it under 500 characters.")


# -- Secrets ----------------------------------------------------------------------------------------------------------


@configuration_write()
def set_secret(credential: StoredCredential, values: Mapping[str, str], *, actor: Membership) -> StoredSecret:
    """Enter the organisation's secret, in place of one that is there. Raises ChangeRefused."""
    require_manager(actor)
    if credential.scope != CredentialScope.ORGANISATION:
        raise ChangeRefused("scope", "Each member connects an own account here; there is no secret of all.")
    secret = store_secret(credential, None, checked_values(credential, values))
    record("credential.secret", credential, actor=actor, after={"secret": "set"})
    touch_registry(credential.organisation_id)
    return secret


@configuration_write()
def clear_secret(credential: StoredCredential, *, actor: Membership) -> list[str]:
    """Forget the organisation's secret: tools that need it are not sent from then on. Returns the host at which its
    sign-in is ended, as far as there is one."""
    require_manager(actor)
    secrets = StoredSecret.objects.filter(credential=credential, membership=None)
    hosts = queue_revocations(secrets)
    if secrets.delete()[0]:
        record("credential.secret", credential, actor=actor, before={"secret": "set"})
        touch_registry(credential.organisation_id)
    return hosts


@configuration_write()
def connect_account(credential: StoredCredential, values: Mapping[str, str], *, actor: Membership) -> StoredSecret:
    """Connect the actor's own account by what they typed. Raises ChangeRefused."""
    if credential.scope != CredentialScope.MEMBER:
        raise ChangeRefused("credential", "This one is the organisation’s: no member connects an account.")
    secret = store_secret(credential, actor, checked_values(credential, values))
    record("account.connect", credential, actor=actor, after={"by": "typed"})
    return secret


@configuration_write()
def disconnect_account(secret: StoredSecret, *, actor: Membership) -> list[str]:
    """Remove a member's secret: one's own, or another member's for who manages credentials. What it says is not shown
    to anybody. Returns the host at which its sign-in is ended, as far as there is one. Raises PermissionDenied, also
    for an account of a member of higher access."""
    check_may_disconnect(secret, actor=actor)
    secrets = StoredSecret.objects.filter(pk=secret.pk)
    hosts = queue_revocations(secrets)
    if secrets.delete()[0]:
        owner = "" if secret.membership_id == actor.pk else str(secret.membership)
        record("account.disconnect", secret.credential, actor=actor, before={"account": secret.account, "of": owner})
        touch_registry(secret.organisation_id)
    return hosts


def remove_secret(secret: StoredSecret, *, actor: Membership) -> list[str]:
    """Remove a secret, a member's or the organisation's, as `disconnect_account` and `clear_secret` do."""
    if secret.membership_id is None:
        return clear_secret(secret.credential, actor=actor)
    return disconnect_account(secret, actor=actor)


def forget_accounts(member: Membership, actor: Membership | None) -> None:
    """Delete the secrets of a member who leaves, inside the transaction of that; their sign-ins are ended at the
    services afterwards."""
    secrets = StoredSecret.objects.filter(membership=member).defer("values_json").select_related("credential")
    for secret in secrets:
        before = {"account": secret.account, "of": str(member)}
        record("account.disconnect", secret.credential, actor=actor, before=before)
    queue_revocations(StoredSecret.objects.filter(membership=member))
    secrets.delete()
    OAuthSignIn.objects.filter(membership=member).delete()


def check_may_disconnect(secret: StoredSecret, *, actor: Membership) -> None:
    """Raise PermissionDenied for who may not remove this secret. At most one query."""
    if secret.membership_id != actor.pk:
        require_manager(actor)
        check_rank(actor, Membership.objects.filter(stored_secrets=secret))


def store_secret(
    credential: StoredCredential, membership: Membership | None, values: Mapping[str, str], **fields: Any
) -> StoredSecret:
    """Store these values in the one row of the organisation, or of the member; those of an older one are gone.

    Called inside the transaction of a write.
    """
    fresh: dict[str, Any] = {
        "values_json": json.dumps(dict(values)),
        "status": SecretStatus.CONNECTED,
        "reason": "",
        "account": "",
        "granted_scopes": [],
        "wanted_scopes": [],
        "expires_at": None,
        "refreshing_until": None,
    } | fields
    owner = Q(membership=None) if membership is None else Q(membership=membership)
    row = StoredSecret.objects.filter(owner, credential=credential).defer("values_json").first()
    if row is None:
        row = StoredSecret(organisation_id=credential.organisation_id, credential=credential, membership=membership)
    for name, value in fresh.items():
        setattr(row, name, value)
    row.save()
    return row


def checked_values(credential: StoredCredential, values: Mapping[str, str]) -> dict[str, str]:
    """The values of a secret of this kind, as they are stored. Raises ChangeRefused."""
    if credential.kind == CredentialKind.OAUTH:
        raise ChangeRefused("kind", "This one is connected by signing in at the service.")
    known = VALUES[credential.kind]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ChangeRefused(unknown[0][:64], "This kind of credential has no such value.", code="unknown_field")
    found = {name: values.get(name, "").strip() for name in known}
    for name, value in found.items():
        if not value:
            raise ChangeRefused(name, f"Give the {LABELS[name].lower()}.")
        if len(value) > MAX_SECRET:
            raise ChangeRefused(name, f"Keep it under {MAX_SECRET:,} characters.")
        if name != "user" and len(value) < MIN_SECRET:
            raise ChangeRefused(name, f"This is too short for a secret: give at least {MIN_SECRET} characters.")
        if credential.kind != CredentialKind.BASIC and not SENDABLE.fullmatch(value):
            raise ChangeRefused(name, "It has a character that cannot be sent: a line break, or a letter that is none.")
    if ":" in found.get("user", ""):
        raise ChangeRefused("user", "A user name cannot have a colon in it.")
    return found


def _typed(secret: Mapping[str, str] | None) -> bool:
    return any(value.strip() for value in (secret or {}).values())
