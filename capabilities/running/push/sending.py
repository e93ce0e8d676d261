"""Sending of one notification to each browser of a member, encrypted for it, by the guarded client."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from django.utils import timezone
from pydantic import ValidationError
from webpush import WebPush, WebPushSubscription

from capabilities.common.secrets import SecretUnreadable
from capabilities.models import PushSubscription
from capabilities.running.egress import EgressError, fetch
from capabilities.running.push.writes import private_key

#: Seconds that a push service keeps a notification for a browser that is not running: a day.
KEEP_SECONDS = 86_400
#: Seconds until the signature of one message runs out (RFC 8292 allows a day).
SIGNED_SECONDS = 3_600
#: Bytes of one notification: push services need not take more than one record of 4,096 (RFC 8291), with its overhead.
MAX_BYTES = 3_900
#: Status with which a push service answers for a subscription that is over.
GONE = (404, 410)
#: And of a signature that is not by the key of the subscription.
REFUSED = (401, 403)


@dataclass(frozen=True)
class Sent:
    """Result of a notification: number of browsers that took it, number that were over and are removed, and why others
    did not."""

    delivered: int
    removed: int
    reasons: Sequence[str]


def send_to(membership_id: int, organisation_id: int, message: dict[str, str], *, contact: str, seconds: float) -> Sent:
    """Send the message, {"title", "body", "url"}, to each browser of the member, within these seconds in all.

    Raises ValueError for one that is too long. Two queries, and one or two for what changed.
    """
    data = json.dumps(message, ensure_ascii=False).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"A notification holds at most {MAX_BYTES:,} bytes.")
    rows = list(PushSubscription.objects.filter(membership=membership_id).order_by("pk"))
    if not rows:
        return Sent(0, 0, ())
    push = _signer(private_key(organisation_id), contact)
    until = time.monotonic() + seconds
    delivered, expired, reasons = [], [], []
    for row in rows:
        status = _send(push, row, data, until - time.monotonic())
        if isinstance(status, str):
            reasons.append(status)
        elif status in GONE:
            expired.append(row.pk)
        elif status in REFUSED:
            reasons.append(f"{row.label} has to be turned on again: {row.host} takes nothing more for it.")
        elif 200 <= status < 300:
            delivered.append(row.pk)
        else:
            reasons.append(f"{row.host} answered with status {status}.")
    if delivered:
        PushSubscription.objects.filter(pk__in=delivered).update(last_sent_at=timezone.now())
    if expired:
        PushSubscription.objects.filter(pk__in=expired).delete()
    return Sent(len(delivered), len(expired), tuple(reasons))


def _signer(pem: bytes, contact: str) -> WebPush:
    public = load_pem_private_key(pem, None).public_key()
    return WebPush(
        private_key=pem,
        public_key=public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        subscriber=contact,
        ttl=KEEP_SECONDS,
        expiration=SIGNED_SECONDS,
    )


def _send(push: WebPush, row: PushSubscription, data: bytes, seconds: float) -> int | str:
    """The status that the push service answered with, or why there is none."""
    if seconds <= 0:
        return f"There was no time left for {row.label}."
    try:
        values = json.loads(row.values_json)
        browser = WebPushSubscription.model_validate(
            {"endpoint": values["endpoint"], "keys": {"p256dh": values["p256dh"], "auth": values["auth"]}}
        )
        message = push.get(data, browser)
        # Where it is sent is the address as it was checked and stored; the library's own form of it may differ.
        answer = fetch(
            "POST",
            values["endpoint"],
            headers={**message.headers, "content-type": "application/octet-stream", "urgency": "normal"},
            content=message.encrypted,
            timeout=seconds,
            max_bytes=10_000,
            max_redirects=0,
        )
    except (SecretUnreadable, ValidationError, KeyError, ValueError):
        return f"What {row.label} gave can no longer be read: turn notifications on there again."
    except EgressError as error:
        return str(error)
    return answer.status
