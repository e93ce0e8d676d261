"""Browsers of a member that show notifications: added by the browser itself, removed by the member."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from django.db import transaction
from webpush.vapid import VAPID

from capabilities.common.refused import ChangeRefused
from capabilities.common.secrets import SecretUnreadable
from capabilities.models import PushKey, PushSubscription
from capabilities.running.egress import EgressRefused, check_url
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation

#: Browsers of one member.
MAX_BROWSERS = 10
MAX_ENDPOINT = 2_000
MAX_LABEL = 100
#: Bytes of what a browser sends (RFC 8291): an uncompressed point of P-256, and the shared secret.
POINT_BYTES = 65
AUTH_BYTES = 16


@dataclass(frozen=True)
class Browser:
    """Subscription as `PushManager.subscribe` gave it: the address, and the two keys in base64url."""

    endpoint: str
    p256dh: str
    auth: str
    label: str = ""

    def check(self) -> None:
        """Raise ChangeRefused where nothing could be sent there."""
        if len(self.endpoint) > MAX_ENDPOINT:
            raise ChangeRefused("endpoint", "The address of the browser's push service is too long.")
        try:
            url = check_url(self.endpoint)
        except EgressRefused as error:
            raise ChangeRefused("endpoint", str(error)) from error
        if url.scheme != "https" and url.host not in ("localhost", "127.0.0.1"):
            raise ChangeRefused("endpoint", "A push service has an https address.")
        point = _bytes_of(self.p256dh)
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        except ValueError as error:
            raise ChangeRefused("p256dh", "This is no key of a browser.") from error
        if len(point) != POINT_BYTES or len(_bytes_of(self.auth)) != AUTH_BYTES:
            raise ChangeRefused("p256dh", "These are no keys of a browser.")


def _bytes_of(text: str) -> bytes:
    """Return the bytes of a base64url text; empty where it is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return b""


@transaction.atomic
def add_browser(member: Membership, browser: Browser) -> PushSubscription:
    """Send the member's notifications to this browser too. The same browser again renews its keys and its name; those
    of another member are not shown in it any more, because somebody else sits there now.

    Raises ChangeRefused for what is no subscription, and behind the tenth browser.
    """
    browser.check()
    label = " ".join(browser.label.split())[:MAX_LABEL] or "Browser"
    digest = hashlib.sha256(browser.endpoint.encode()).hexdigest()
    values = json.dumps({"endpoint": browser.endpoint, "p256dh": browser.p256dh, "auth": browser.auth})
    own = PushSubscription.objects.filter(membership=member)
    row = own.filter(endpoint_sha256=digest).first()
    if row is None and own.count() >= MAX_BROWSERS:
        raise ChangeRefused("label", f"Notifications go to at most {MAX_BROWSERS} browsers: remove one first.")
    row = row or PushSubscription(
        organisation_id=member.organisation_id,
        membership=member,
        endpoint_sha256=digest,
        host=check_url(browser.endpoint).host,
    )
    _take_from_others(row, browser)
    is_new = row.pk is None
    row.values_json, row.label = values, label
    row.save()
    if is_new:
        record("push.add", row, actor=member, after={"browser": label, "host": row.host})
    return row


def _take_from_others(row: PushSubscription, browser: Browser) -> None:
    """Take a browser from other members, for one with its keys: others may know its address alone. One query."""
    same_endpoint = PushSubscription.objects.filter(endpoint_sha256=row.endpoint_sha256).exclude(
        membership=row.membership
    )
    for other in same_endpoint.select_related("membership"):
        with suppress(SecretUnreadable):
            values = json.loads(other.values_json)
            if (values["p256dh"], values["auth"]) == (browser.p256dh, browser.auth):
                remove_browser(other, actor=row.membership)


@transaction.atomic
def remove_browser(row: PushSubscription, *, actor: Membership) -> None:
    """Send nothing there any more."""
    record("push.remove", row, actor=actor, before={"browser": row.label, "host": row.host})
    row.delete()


def private_key(organisation_id: int) -> bytes:
    """The organisation's private key as PEM. One query, a few the first time.

    It is made the first time, and anew where it cannot be read any more. Subscriptions hold for one key only: those of
    before are refused by their push services then, and the member turns notifications on there again.
    """
    return _readable_key() or _new_key(organisation_id)


def _readable_key() -> bytes:
    """Return the private key that is stored, or empty bytes."""
    with suppress(SecretUnreadable, ValueError):
        row = PushKey.objects.first()
        if row is not None:
            pem: bytes = row.private_pem.encode()
            load_pem_private_key(pem, None)
            return pem
    return b""


@transaction.atomic
def _new_key(organisation_id: int) -> bytes:
    Organisation.objects.select_for_update().get(pk=organisation_id)  # two at once make one key
    if made := _readable_key():
        return made
    PushKey.objects.all().delete()
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    PushKey.objects.create(organisation_id=organisation_id, private_pem=pem.decode())
    return pem


def application_server_key(organisation_id: int) -> str:
    """The public half, in base64url, as a browser wants it. Queries of `private_key`."""
    key = load_pem_private_key(private_key(organisation_id), None)
    return str(VAPID.get_application_server_key(key.public_key()))
