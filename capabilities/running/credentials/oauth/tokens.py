"""Tokens of an authorization server: for a code, for a refresh token, and revoked. Knows no row but the credential."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from django.utils import timezone

from capabilities.common.secrets import SecretUnreadable
from capabilities.models import StoredCredential
from capabilities.running.credentials.oauth.clients import OAuthClient
from capabilities.running.credentials.oauth.requests import SECONDS, OAuthRefused, ask, host_of
from capabilities.running.egress import EgressError, origin_of
from toolhub.bounded_json import load_json

#: Characters of one token, and seconds that one may live at most.
MAX_TOKEN, MAX_LIFE = 20_000, 10 * 365 * 86_400
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
#: Meaning for the reader of an authorization server's word for an error (RFC 6749, 5.2).
MEANINGS = {
    "invalid_grant": "the sign-in is not valid any more: it ended, or was revoked",
    "invalid_client": "it does not know this service as a client any more",
    "unauthorized_client": "it does not allow this to our client",
    "invalid_scope": "it does not give these permissions",
    "invalid_target": "it gives no tokens for this service",
}


@dataclass(frozen=True)
class Tokens:
    """Tokens that an authorization server issued."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires_at: datetime | None
    #: Name of who signed in, as an id token says it; empty where there is none.
    account: str = ""

    @property
    def values(self) -> dict[str, str]:
        """Values of the tokens as a stored secret holds them."""
        return {"access_token": self.access_token, "refresh_token": self.refresh_token}


def exchange_code(credential: StoredCredential, code: str, *, verifier: str, redirect_uri: str) -> Tokens:
    """The tokens for the code that a member came back with. Raises OAuthRefused."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    return _asked(credential, form, seconds=SECONDS)


def refreshed(credential: StoredCredential, refresh_token: str, scopes: Sequence[str], *, seconds: float) -> Tokens:
    """Return new tokens for a refresh token, which may be another one from now on. Raises OAuthRefused; its code is
    `invalid_grant` where only signing in again helps."""
    found = _asked(credential, {"grant_type": "refresh_token", "refresh_token": refresh_token}, seconds=seconds)
    return Tokens(
        found.access_token,
        found.refresh_token or refresh_token,
        found.scopes or tuple(scopes),
        found.expires_at,
        found.account,
    )


def token_to_revoke(values: Mapping[str, str]) -> tuple[str, str]:
    """The token that ends a sign-in, and which of the two it is, as RFC 7009 calls it; ("", "") where there is none.

    With a refresh token, the server ends the access tokens too.
    """
    found = ((values.get(name), name) for name in ("refresh_token", "access_token"))
    return next(((token, name) for token, name in found if token), ("", ""))


def revoke(client: OAuthClient, endpoint: str, token: str, hint: str, *, seconds: float = SECONDS) -> None:
    """End a token at its authorization server (RFC 7009). Raises OAuthRefused."""
    status, _ = _post(client, endpoint, {"token": token, "token_type_hint": hint}, seconds=seconds)
    if not 200 <= status < 300:
        is_lasting = 400 <= status < 500 and status not in (408, 429)
        raise OAuthRefused(f"{host_of(endpoint)} answered with status {status}.", is_lasting=is_lasting)


def _asked(credential: StoredCredential, form: Mapping[str, str], *, seconds: float) -> Tokens:
    endpoint = str(credential.server_metadata.get("token_endpoint", ""))
    if not endpoint:
        raise OAuthRefused("The authorization server is not known any more: sign in again.")
    if credential.resource_indicator:
        form = {**form, "resource": credential.resource_indicator}
    status, body = _post(client_of(credential), endpoint, form, seconds=seconds)
    if status == 200 and isinstance(body, dict):
        return _tokens(credential, body)
    code = str(body.get("error", ""))[:60] if isinstance(body, dict) else ""
    reason = MEANINGS.get(code, f"status {status}" + (f", {code}" if code.isidentifier() else ""))
    raise OAuthRefused(f"{host_of(endpoint)} gave no token: {reason}.", code=code, is_lasting=400 <= status < 500)


def client_of(credential: StoredCredential) -> OAuthClient:
    """Return our client as the authorization server of this credential knows it. Raises OAuthRefused where our secret
    cannot be read. At most one query, for that."""
    method = _client_auth(credential)
    secret = _client_secret(credential) if method in SECRET_METHODS else ""
    return OAuthClient(credential.registration, credential.client_id, secret, method)


def _post(client: OAuthClient, endpoint: str, form: Mapping[str, str], *, seconds: float) -> tuple[int, Any]:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = {**form, "client_id": client.client_id}
    if client.client_auth == "client_secret_basic":
        del fields["client_id"]
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.client_auth == "client_secret_post":
        fields["client_secret"] = client.client_secret
    status, _, body = ask("POST", endpoint, headers=headers, content=urlencode(fields).encode(), seconds=seconds)
    return status, body


def _client_secret(credential: StoredCredential) -> str:
    try:
        return str(credential.client_secret)
    except SecretUnreadable as error:
        raise OAuthRefused("Our client’s secret cannot be read any more: an administrator must enter it.") from error


def _client_auth(credential: StoredCredential) -> str:
    """Return how we say who we are. For a client that was typed: of the two ways with a secret, the one taken there."""
    if credential.client_auth != "client_secret_basic":
        return credential.client_auth
    taken = credential.server_metadata.get("token_endpoint_auth_methods_supported") or SECRET_METHODS
    return next((method for method in SECRET_METHODS if method in taken), "client_secret_basic")


def _tokens(credential: StoredCredential, body: Mapping[str, Any]) -> Tokens:
    """The tokens of an answer. Raises OAuthRefused for what is none, and for one that is for another service."""
    access, refresh = body.get("access_token"), body.get("refresh_token") or ""
    host = host_of(str(credential.server_metadata["token_endpoint"]))
    if not isinstance(access, str) or not isinstance(refresh, str) or not _is_token(access):
        raise OAuthRefused(f"{host} gave no token that can be used.")
    if str(body.get("token_type", "bearer")).lower() != "bearer":
        raise OAuthRefused(f"{host} gave a token of a kind that cannot be used.")
    _check_audience(credential, access, host)
    scope = body.get("scope")
    scopes = tuple(scope.split()[:100]) if isinstance(scope, str) else ()
    return Tokens(access, refresh, scopes, _end(body.get("expires_in")), _account(body.get("id_token")))


def _is_token(text: str) -> bool:
    return 0 < len(text) <= MAX_TOKEN and text.isascii() and text.isprintable() and " " not in text


def _end(expires_in: Any) -> datetime | None:
    """Return when a token ends; None where the server does not say."""
    try:
        seconds = float(expires_in)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    return timezone.now() + timedelta(seconds=min(seconds, MAX_LIFE))


def _check_audience(credential: StoredCredential, token: str, host: str) -> None:
    """Raise OAuthRefused where a token says itself that it is for other services than this one (S39). Most say nothing
    that we can read, and are the server's to check."""
    audiences = _claims(token).get("aud")
    every = audiences if isinstance(audiences, list) else [audiences]
    named = [each for each in every if isinstance(each, str) and each.startswith(("https://", "http://"))]
    own = {*credential.origins, *_origins(credential.resource, credential.resource_indicator, credential.issuer)}
    if named and not own & _origins(*named):
        raise OAuthRefused(f"{host} gave a token for another service, {str(named[0])[:200]}.")


def _origins(*urls: str) -> set[str]:
    found = set()
    for url in urls:
        try:
            found.add(origin_of(url))
        except EgressError:
            continue
    return found


def _account(id_token: Any) -> str:
    """Return who signed in, for people. The id token came from the token endpoint itself, so its signature is not asked
    for (OpenID Connect Core, 3.1.3.7)."""
    claims = _claims(id_token) if isinstance(id_token, str) else {}
    found = next((claims[name] for name in ("email", "preferred_username", "name") if claims.get(name)), "")
    return " ".join(found.split())[:200] if isinstance(found, str) else ""


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JWT; none for any other text."""
    parts = token.split(".")
    if len(parts) != 3 or len(parts[1]) > MAX_TOKEN:
        return {}
    try:
        claims = load_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
