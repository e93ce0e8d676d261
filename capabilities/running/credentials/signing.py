"""Signing of a call: the credential of its tool, with the secret of the organisation or of the member who calls.

How it is used: before a call the loop asks `credential_for(spec, membership_id, at_most=seconds)` and gives the answer
to the tool's runner. The runner builds its whole request, and adds the credential last with
`capabilities.running.egress.place(credential, url, headers)`. Where the answer's status is 401 or 403 and the
credential came from here (`credential.secret_id`), the runner calls `after_refusal`, and sends the request once more
where that returns a credential.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import quote

from django.db.models import Q
from django.utils import timezone

from capabilities.common.secrets import SecretUnreadable
from capabilities.contract.context import CallWaits, Credential, LinkNeeded, ToolError
from capabilities.contract.spec import ToolSpec
from capabilities.models import CredentialKind, CredentialScope, SecretStatus, StoredCredential, StoredSecret
from capabilities.running.credentials.challenges import challenge_value
from capabilities.running.credentials.oauth.refreshing import fresh
from capabilities.running.credentials.refusals import account_url, connect_again, mark_refused, refused_now
from capabilities.running.registry import registry
from capabilities.running.services.writes import secrets_of, service_values

#: Shortest time after which a secret's last use is written down again.
LAST_USE_EVERY = timedelta(minutes=1)
#: Permissions that are asked for at once.
MOST_SCOPES = 100


def secrets_for(spec: ToolSpec, membership_id: int) -> Sequence[str]:
    """Return the secrets that sign the member's calls of the tool, as they are stored now, which no record of the calls
    may show; none where they cannot be had. No query for a tool without a credential; else one or two, and no request
    for a new token."""
    service = registry.services.get(spec.service)
    try:
        if service is not None:
            return secrets_of(service, service_values(service))
        if spec.credential_id is None:
            return ()
        credential = _credential(spec.credential_id)
        return signed_with(credential, _secret_of(credential, membership_id)).secrets
    except (CallWaits, SecretUnreadable, ToolError):
        return ()


def credential_for(spec: ToolSpec, membership_id: int, *, at_most: float) -> Credential:
    """Return the credential that signs this member's call of the tool: what the organisation set up for its service, or
    its stored credential with the organisation's secret, or with the member's own. Empty for a tool that has neither.

    Raises LinkNeeded where the member has to connect an account first, and ToolError where an administrator must enter
    the secret. An OAuth token that is about to end is exchanged for a new one, which takes `at_most` seconds.
    No query for a tool without a credential; else one or two, and more where a token is refreshed.
    """
    service = registry.services.get(spec.service)
    if service is not None:
        values = service_values(service)
        return Credential(values, secrets_of(service, values))
    if spec.credential_id is None:
        return Credential()
    return stored_credential(spec.credential_id, membership_id, at_most=at_most)


def stored_credential(credential_id: int, membership_id: int | None, *, at_most: float) -> Credential:
    """Return the credential that signs with a stored one, given by its key, such as an MCP server's. `membership_id`
    None: nobody calls, so that only one of the organisation can sign. Raises as `credential_for`."""
    credential = _credential(credential_id)
    secret = _secret_of(credential, membership_id)
    secret.credential = credential
    if credential.kind == CredentialKind.OAUTH:
        secret = fresh(secret, at_most=at_most)
    _note_use(secret)
    return signed_with(credential, secret)


def _credential(credential_id: int) -> StoredCredential:
    """One query."""
    return StoredCredential.objects.select_related("organisation").defer("client_secret").get(pk=credential_id)


def _secret_of(credential: StoredCredential, membership_id: int | None) -> StoredSecret:
    """The secret that signs, whose status allows it; never another member's. One query."""
    is_own = credential.scope == CredentialScope.MEMBER
    if is_own and membership_id is None:
        raise ToolError(f"{credential.title} works only with a member’s own account.", nothing_came=True)
    owner = Q(membership=membership_id, membership__ended_at=None) if is_own else Q(membership=None)
    try:
        secret = StoredSecret.objects.filter(owner, credential=credential).first()
    except SecretUnreadable:
        secret = None
    if secret is not None and secret.status != SecretStatus.REFUSED:
        return secret
    if is_own:
        advice = "connect your account again" if secret is not None else "connect your account first"
        raise connect_again(credential, advice)
    advice = "enter its secret again" if secret is not None else "enter its secret first"
    raise ToolError(f"{credential.title} cannot be used: an administrator must {advice}.", nothing_came=True)


def signed_with(credential: StoredCredential, secret: StoredSecret) -> Credential:
    """Return the headers and query to add to a request, and the secrets that must never be seen of it. No query."""
    values: dict[str, str] = json.loads(secret.values_json or "{}")
    headers, query = added_by(credential, values)
    hidden = [values.get(name, "") for name in ("token", "password", "access_token", "id_token")]
    hidden += [value.rpartition(" ")[2] for value in headers.values()]
    return Credential(
        headers=headers,
        query=query,
        secrets=tuple(dict.fromkeys(written for each in hidden if each for written in (each, quote(each, safe="")))),
        origins=tuple(credential.origins),
        secret_id=secret.pk,
    )


def added_by(credential: StoredCredential, values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the parameters of the query that these values are sent as."""
    token = values.get("token", "")
    match credential.kind:
        case CredentialKind.BEARER:
            return {"Authorization": f"{credential.prefix or 'Bearer '}{token}"}, {}
        case CredentialKind.HEADER:
            return {credential.parameter: f"{credential.prefix}{token}"}, {}
        case CredentialKind.QUERY:
            return {}, {credential.parameter: f"{credential.prefix}{token}"}
        case CredentialKind.BASIC:
            pair = f"{values.get('user', '')}:{values.get('password', '')}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}
        case _:
            return {"Authorization": f"Bearer {values.get('access_token', '')}"}, {}


# -- What the far side says of it -------------------------------------------------------------------------------------


def after_refusal(
    credential: Credential, status: int, challenge: str, *, membership_id: int, at_most: float
) -> Credential | None:
    """Handle an answer of status 401 or 403 to a request that this credential signed. `challenge` is the answer's
    WWW-Authenticate header, empty for none.

    Returns a new credential where the request should be sent once more with it, and None where the answer stands as it
    is. Raises LinkNeeded where the member has to sign in again, for a secret that is not valid any more or for more
    permissions, and ToolError where an administrator has to.
    """
    secrets = StoredSecret.objects.select_related("credential__organisation").defer("credential__client_secret")
    secret = None if credential.secret_id is None else secrets.filter(pk=credential.secret_id).first()
    if secret is None or secret.membership_id not in (None, membership_id):
        return None
    error = challenge_value(challenge, "error")
    can_renew = bool(json.loads(secret.values_json or "{}").get("refresh_token"))
    if status == 401 and can_renew:
        sent = credential.headers.get("Authorization", "").removeprefix("Bearer ")
        renewed = fresh(secret, at_most=at_most, not_this=sent)
        return signed_with(renewed.credential, renewed)
    if status == 401 and error == "invalid_token":
        mark_refused(secret, "The server says that it is not valid any more.")
        raise refused_now(secret)
    if status == 401:
        note = f"The server last refused it with status 401 on {timezone.now():%Y-%m-%d %H:%M} UTC."
        StoredSecret.objects.filter(pk=secret.pk).update(reason=note)
    if status == 403 and error == "insufficient_scope":
        _ask_for_more(secret, challenge_value(challenge, "scope").split())
    return None


def _ask_for_more(secret: StoredSecret, scopes: Sequence[str]) -> None:
    """Write down which permissions are missing, and raise LinkNeeded or ToolError. Where the account has them already,
    nothing would come of asking again: then the answer stands."""
    credential = secret.credential
    missing = [scope for scope in scopes if scope not in secret.granted_scopes]
    if credential.kind != CredentialKind.OAUTH or not missing:
        return
    wanted = list(dict.fromkeys([*secret.granted_scopes, *secret.wanted_scopes, *missing]))[:MOST_SCOPES]
    reason = f"More permissions are needed: {', '.join(missing)}."[:500]
    needs_more = {"status": SecretStatus.NEEDS_MORE, "wanted_scopes": wanted, "reason": reason}
    StoredSecret.objects.filter(pk=secret.pk).update(**needs_more)
    if secret.membership_id is None:
        raise ToolError(f"{credential.title} needs more permissions: an administrator must connect it again.")
    raise LinkNeeded(f"{credential.title}: {reason}", url=account_url(credential), is_own=True)


def _note_use(secret: StoredSecret) -> None:
    """Write down that it was used, at most once a minute."""
    now = timezone.now()
    if secret.last_used_at is None or now - secret.last_used_at > LAST_USE_EVERY:
        StoredSecret.objects.filter(pk=secret.pk).update(last_used_at=now)
