"""A push service as browsers' makers run one, with browsers that subscribed to it."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from capabilities.running.push.writes import Browser
from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True)
class FakeBrowser:
    """A browser's half: its private key, and what it tells the page."""

    path: str
    private: ec.EllipticCurvePrivateKey
    auth: bytes
    subscription: Browser

    def decrypted(self, body: bytes) -> bytes:
        """RFC 8188 and 8291, for one record."""
        salt, length = body[:16], body[20]
        server, sealed = body[21 : 21 + length], body[21 + length :]
        own = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), server))
        secret = _derived(shared, self.auth, b"WebPush: info\0" + own + server, 32)
        key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
        plain = AESGCM(key).decrypt(nonce, sealed, None)
        assert plain.endswith(b"\x02")
        return plain[:-1]


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(secret)


class PushService(FakeService):
    """Takes messages, checks that they are signed, and keeps them."""

    status = 201

    def browser(self, name: str) -> FakeBrowser:
        private, auth, path = ec.generate_private_key(ec.SECP256R1()), os.urandom(16), f"/push/{name}"
        point = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        subscription = Browser(self.url + path, encoded(point), encoded(auth), name)
        return FakeBrowser(path, private, auth, subscription)

    def answer(self, asked: Asked) -> Reply:
        check_signed(asked.headers["authorization"], "http://127.0.0.1")
        return Reply(self.status, b"", {})

    def read(self, browser: FakeBrowser) -> dict[str, Any]:
        """What the browser shows of the only message that it got."""
        (asked,) = [each for each in self.asked if each.path == browser.path]
        message: dict[str, Any] = json.loads(browser.decrypted(asked.body))
        return message


def check_signed(authorization: str, audience: str) -> None:
    """RFC 8292: a token for this origin, by the key that stands beside it. (The library leaves a port out.)"""
    scheme, _, rest = authorization.partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decoded(parts["k"]))
    claims = jwt.decode(parts["t"], key, algorithms=["ES256"], audience=audience)
    assert (scheme, claims["sub"]) == ("vapid", "mailto:ops@acme.example")
