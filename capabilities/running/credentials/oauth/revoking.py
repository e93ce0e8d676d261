"""End of sign-ins that nobody keeps any more at their authorization servers too (RFC 7009).

They are queued in the transaction that removes them here, and a worker asks the server afterwards: nothing that is
removed waits for a far side, or fails because of one. The audit records the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.db import transaction
from django.db.models import F, QuerySet, TextField
from django.db.models.functions import Cast, Now

from capabilities.common.moments import from_now
from capabilities.common.secrets import SecretUnreadable, decrypted
from capabilities.models import CredentialKind, StoredCredential, StoredSecret, TokenRevocation
from capabilities.running.credentials.oauth.clients import OAuthClient
from capabilities.running.credentials.oauth.requests import OAuthRefused, host_of
from capabilities.running.credentials.oauth.tokens import client_of, revoke, token_to_revoke
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

#: Seconds until the next try, behind each one that failed; after the last it is given up.
PAUSES = (30.0, 300.0, 1_800.0, 7_200.0)
#: Seconds that a worker has for one try, before another takes it for dead.
HOLD = 60.0
AT_ONCE = 200
UNREADABLE = "What was stored of it could not be read any more."


# -- What is to be ended ----------------------------------------------------------------------------------------------


def queue_revocations(secrets: QuerySet[StoredSecret]) -> list[str]:
    """Have a worker end the sign-ins of these secrets, which are deleted in this same transaction. Returns the hosts
    that it will ask.

    One that cannot be read, or whose server has no address for it, is left out. Two queries, and one for each
    credential whose client has a secret.
    """
    rows = secrets.filter(credential__kind=CredentialKind.OAUTH).select_related("credential", "membership__user")
    rows = rows.defer("values_json", "credential__client_secret").annotate(stored=Cast("values_json", TextField()))
    clients: dict[int, OAuthClient | None] = {}
    found = []
    for secret in rows:
        if secret.credential_id not in clients:
            clients[secret.credential_id] = _client_or_none(secret.credential)
        values = _values_or_none(secret.stored)
        made = _revocation(secret.credential, clients[secret.credential_id], values or {})
        if made is not None:
            made.owner = str(secret.membership or "")[:300]
            found.append(made)
    TokenRevocation.objects.bulk_create(found, batch_size=AT_ONCE)
    return sorted({each.host for each in found})


def queue_unkept(credential: StoredCredential, values: Mapping[str, str], member: Membership | None) -> None:
    """Have a worker end tokens that came too late: what they were for was removed, or changed, meanwhile."""
    made = _revocation(credential, _client_or_none(credential), values)
    if made is not None:
        is_there = StoredCredential.objects.filter(pk=credential.pk).exists()
        made.credential = credential if is_there else None
        made.owner = str(member or "")[:300]
        made.save()


def _client_or_none(credential: StoredCredential) -> OAuthClient | None:
    try:
        return client_of(credential)
    except (OAuthRefused, StoredCredential.DoesNotExist):
        return None


def _values_or_none(stored: str) -> dict[str, str] | None:
    try:
        values: dict[str, str] = json.loads(decrypted(stored) or "{}")
    except SecretUnreadable:
        return None
    return values


def _revocation(
    credential: StoredCredential, client: OAuthClient | None, values: Mapping[str, str]
) -> TokenRevocation | None:
    """Return a revocation that is not saved yet; None where there is nothing to end, or nobody to ask."""
    endpoint = str(credential.server_metadata.get("revocation_endpoint") or "")
    token, hint = token_to_revoke(values)
    if not endpoint or not token or client is None:
        return None
    asked = {
        "endpoint": endpoint,
        "token": token,
        "hint": hint,
        "client_id": client.client_id,
        "client_secret": client.client_secret,
        "client_auth": client.client_auth,
    }
    return TokenRevocation(
        organisation_id=credential.organisation_id,
        credential=credential,
        title=credential.title,
        host=host_of(endpoint)[:300],
        values_json=json.dumps(asked),
        next_at=Now(),
    )


# -- In a worker ------------------------------------------------------------------------------------------------------


def claim_due() -> int | None:
    """Claim the revocation that is due first for this worker, and return its key; None where none is due. One query
    where none is, else two."""
    with system_scope():
        due = TokenRevocation.objects.filter(next_at__lte=Now())
        for key in due.order_by("next_at", "pk").values_list("pk", flat=True)[:5]:
            if due.filter(pk=key).update(attempts=F("attempts") + 1, next_at=from_now(HOLD)):
                return key
    return None


def revoke_claimed(key: int) -> None:
    """Ask the authorization server, outside any transaction. The row goes where that ended the sign-in, where the
    server will never do it, and after the last try."""
    with system_scope():
        rows = TokenRevocation.objects.select_related("credential").defer("values_json", "credential__client_secret")
        row = rows.annotate(stored=Cast("values_json", TextField())).filter(pk=key).first()
    if row is None:
        return
    with organisation_scope(row.organisation_id):
        asked = _values_or_none(row.stored)
        if asked is None:
            _end(row, UNREADABLE)
            return
        client = OAuthClient("", asked["client_id"], asked["client_secret"], asked["client_auth"])
        try:
            revoke(client, asked["endpoint"], asked["token"], asked["hint"])
        except OAuthRefused as error:
            if error.is_lasting or row.attempts > len(PAUSES):
                _end(row, str(error))
            else:
                _try_again(row)
        else:
            _end(row)


@transaction.atomic
def _end(row: TokenRevocation, problem: str = "") -> None:
    """Remove it, with its secret, and record the outcome in the audit."""
    if not TokenRevocation.objects.filter(pk=row.pk, attempts=row.attempts).delete()[0]:
        return
    outcome = {"revoked": False, "problem": problem[:500]} if problem else {"revoked": True}
    after = {"at": row.host, **outcome, "attempts": row.attempts}
    record("account.revoke", row.credential or row, actor=None, before={"of": row.owner}, after=after)


def _try_again(row: TokenRevocation) -> None:
    """Try again later; and with it the others for the same host, which would wait for it just as long, one after the
    other."""
    later = from_now(PAUSES[row.attempts - 1])
    TokenRevocation.objects.filter(pk=row.pk, attempts=row.attempts).update(next_at=later)
    same = TokenRevocation.objects.filter(host=row.host, next_at__lte=Now(), attempts__lt=len(PAUSES))
    same.update(attempts=F("attempts") + 1, next_at=later)
