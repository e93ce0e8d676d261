"""AWS Signature Version 4: the headers that prove who sends a request. Knows no service and sends nothing."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Credentials:
    access_key: str
    secret_key: str
    region: str
    service: str


def signed(
    method: str, url: str, headers: Mapping[str, str], body: bytes, credentials: Credentials, now: datetime
) -> dict[str, str]:
    """The given headers with X-Amz-Date and Authorization; all of them and the host are signed."""
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    signable = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signable |= {"host": _host(url), "x-amz-date": moment}
    names = ";".join(sorted(signable))
    canonical = "\n".join(
        [
            method,
            quote(parts.path or "/", safe="/-_.~"),  # encoded a second time: S3 alone does without
            _query(parts.query),
            *(f"{name}:{signable[name]}" for name in sorted(signable)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{moment[:8]}/{credentials.region}/{credentials.service}/aws4_request"
    to_sign = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(_key(credentials, moment[:8]), to_sign.encode(), hashlib.sha256).hexdigest()
    proof = f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "X-Amz-Date": moment, "Authorization": proof}


def _host(url: str) -> str:
    """Return the host as a client sends it: without the scheme's own port."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.hostname or "") + (f":{parts.port}" if parts.port and parts.port != usual else "")


def _query(query: str) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(query, True))
    return "&".join(f"{name}={value}" for name, value in pairs)


def _key(credentials: Credentials, day: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, credentials.region, credentials.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
