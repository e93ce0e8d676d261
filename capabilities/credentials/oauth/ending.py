"""Disconnecting an account: its tokens are revoked at the authorization server, then the row is removed."""

from __future__ import annotations

import json

from capabilities.common.secrets import SecretUnreadable
from capabilities.credentials.oauth.asking import host_of
from capabilities.credentials.oauth.tokens import revoke
from capabilities.credentials.writes import check_may_disconnect, clear_secret, disconnect_account
from capabilities.models import CredentialKind, StoredSecret
from toolhub.tenants.models import Membership


def revoke_and_disconnect(secret: StoredSecret, *, actor: Membership) -> str | None:
    """Remove a secret: one's own account, another member's, or the organisation's, for who may (PermissionDenied).

    Returns the host where its sign-in was revoked, "" where it was not, and None where there is none to revoke. It is
    removed here in any case.
    """
    check_may_disconnect(secret, actor=actor)
    credential = secret.credential
    revoked: str | None = None
    if credential.kind == CredentialKind.OAUTH:
        try:
            is_revoked = revoke(credential, json.loads(secret.values_json or "{}"))
        except SecretUnreadable:
            is_revoked = False
        revoked = host_of(credential.server_metadata["revocation_endpoint"]) if is_revoked else ""
    if secret.membership_id is None:
        clear_secret(credential, actor=actor)
    else:
        disconnect_account(secret, actor=actor)
    return revoked
