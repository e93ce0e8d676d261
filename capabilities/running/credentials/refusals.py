"""Secrets that are not valid any more: how they are marked, and the errors that their callers get."""

from __future__ import annotations

from django.urls import reverse

from capabilities.common.registry_version import touch_registry
from capabilities.contract.context import LinkNeeded, ToolError
from capabilities.models import SecretStatus, StoredCredential, StoredSecret


def mark_refused(secret: StoredSecret, reason: str) -> None:
    """Mark a secret as refused: it is not sent any more until it is entered, or connected, again."""
    refused = {"status": SecretStatus.REFUSED, "reason": reason[:500], "refreshing_until": None}
    # A secret that was entered meanwhile is another one: what was said is of the one before.
    same = StoredSecret.objects.filter(pk=secret.pk, updated_at=secret.updated_at)
    if same.update(**refused):
        touch_registry(secret.organisation_id)


def refused_now(secret: StoredSecret) -> LinkNeeded | ToolError:
    """Return the error that the caller gets for a secret that is not valid any more."""
    credential = secret.credential
    if secret.membership_id is not None:
        return connect_again(credential, "connect your account again")
    return ToolError(
        f"{credential.title} cannot be used: an administrator must enter its secret again.", nothing_came=True
    )


def connect_again(credential: StoredCredential, advice: str) -> LinkNeeded:
    """The link to the page on which a member connects an own account."""
    return LinkNeeded(f"{credential.title}: {advice}.", url=account_url(credential), is_own=True)


def account_url(credential: StoredCredential) -> str:
    """The page of ours on which a member connects an own account."""
    return reverse("accounts_connect", args=[credential.organisation.slug, credential.name])
