"""Exchange of an access token that is about to end for a new one, by one worker at a time."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from capabilities.contract.context import ToolError
from capabilities.models import SecretStatus, StoredSecret
from capabilities.running.credentials.oauth.requests import SECONDS, OAuthRefused
from capabilities.running.credentials.oauth.revoking import queue_unkept
from capabilities.running.credentials.oauth.tokens import Tokens, refreshed
from capabilities.running.credentials.refusals import mark_refused, refused_now

logger = logging.getLogger(__name__)

#: A token that ends within this time is exchanged; one that has this much left may be used while another does so.
EARLY, USABLE = timedelta(seconds=60), timedelta(seconds=5)
#: Time that a worker has for it, before another one tries.
HOLD = timedelta(seconds=SECONDS + 20)
LOOK_EVERY = 0.1


def fresh(secret: StoredSecret, *, at_most: float, not_this: str = "") -> StoredSecret:
    """The secret with an access token that can be used, its credential at hand. `not_this`: an access token that the
    far side just refused.

    Of several workers that come at once, one asks the authorization server; the others wait for what it stores, for
    `at_most` seconds. No query where nothing is to do. Raises LinkNeeded, for a member whose sign-in is not valid any
    more, and ToolError.
    """
    deadline = time.monotonic() + at_most
    while True:
        now = timezone.now()
        if not _must_refresh(secret, now, not_this):
            return secret
        if not _values(secret).get("refresh_token"):
            return _without_refresh(secret, now, not_this)
        until = now + HOLD
        free = Q(refreshing_until=None) | Q(refreshing_until__lt=now)
        if StoredSecret.objects.filter(free, pk=secret.pk).update(refreshing_until=until):
            return _refresh(_again(secret), until, not_this, seconds=max(1.0, deadline - time.monotonic()))
        if _is_usable(secret, now, not_this):
            return secret
        if time.monotonic() > deadline:
            title = secret.credential.title
            raise ToolError(f"The sign-in at {title} is being renewed: try again in a moment.", nothing_came=True)
        time.sleep(LOOK_EVERY)
        secret = _again(secret)


def _must_refresh(secret: StoredSecret, now: datetime, not_this: str) -> bool:
    if not_this and _values(secret).get("access_token") == not_this:
        return True
    return secret.expires_at is not None and secret.expires_at <= now + EARLY


def _is_usable(secret: StoredSecret, now: datetime, not_this: str) -> bool:
    is_alive = secret.expires_at is None or secret.expires_at > now + USABLE
    return is_alive and _values(secret).get("access_token") != not_this


def _without_refresh(secret: StoredSecret, now: datetime, not_this: str) -> StoredSecret:
    """Return a secret that cannot be renewed while it is usable; afterwards only signing in again helps."""
    if _is_usable(secret, now, not_this):
        return secret
    mark_refused(secret, "The sign-in has ended, and the server gave no way to renew it.")
    raise refused_now(secret)


def _refresh(secret: StoredSecret, until: datetime, not_this: str, *, seconds: float) -> StoredSecret:
    """Ask the server, with the row held until then. What another worker stored meanwhile is good enough."""
    if not _must_refresh(secret, timezone.now(), not_this):
        _let_go(secret, until)
        return secret
    try:
        tokens = refreshed(secret.credential, _values(secret)["refresh_token"], secret.granted_scopes, seconds=seconds)
    except OAuthRefused as error:
        _let_go(secret, until)
        return _failed(secret, error, not_this)
    except BaseException:
        _let_go(secret, until)
        raise
    _store(secret, until, tokens)
    return _again(secret)


def _store(secret: StoredSecret, until: datetime, tokens: Tokens) -> None:
    """Store the tokens, unless another worker took over: its tokens hold then. Where the secret was removed meanwhile,
    tokens that came too late are ended at the server."""
    fresh_values: dict[str, Any] = {
        "values_json": json.dumps(tokens.values),
        "expires_at": tokens.expires_at,
        "granted_scopes": list(tokens.scopes),
        "refreshing_until": None,
        "updated_at": timezone.now(),
    }
    if StoredSecret.objects.filter(pk=secret.pk, refreshing_until=until).update(**fresh_values):
        return
    if not StoredSecret.objects.filter(pk=secret.pk).exists():
        queue_unkept(secret.credential, tokens.values, secret.membership)


def _failed(secret: StoredSecret, error: OAuthRefused, not_this: str) -> StoredSecret:
    logger.warning("The token of the credential %s was not renewed: %s", secret.credential.name, error)
    if error.code == "invalid_grant":
        mark_refused(secret, str(error))
        raise refused_now(secret) from error
    if _is_usable(secret, timezone.now(), not_this):
        return secret
    if error.is_lasting:
        message = f"{secret.credential.title} cannot be used: {error} An administrator must look at the credential."
        raise ToolError(message, nothing_came=True) from error
    raise ToolError(f"The sign-in at {secret.credential.title} could not be renewed: {error}") from error


def _let_go(secret: StoredSecret, until: datetime) -> None:
    StoredSecret.objects.filter(pk=secret.pk, refreshing_until=until).update(refreshing_until=None)


def _again(secret: StoredSecret) -> StoredSecret:
    """The row as it is now. One query. Raises as `refused_now` where it is gone, or refused by now."""
    rows = StoredSecret.objects.select_related("credential__organisation").defer("credential__client_secret")
    found = rows.filter(pk=secret.pk).first()
    if found is None or found.status == SecretStatus.REFUSED:
        raise refused_now(secret)
    return found


def _values(secret: StoredSecret) -> Mapping[str, str]:
    values: dict[str, str] = json.loads(secret.values_json or "{}")
    return values
