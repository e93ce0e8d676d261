"""Adding a credential to a request: behind everything that the model wrote, and only where the request goes home.

Pure. Knows addresses and the contract's Credential; must not know where a credential comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_plus, urlencode

from capabilities.contract.context import Credential
from capabilities.running.egress.addresses import check_url, plain_host

USUAL_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return an address's origin, as origins are compared: `https://api.example.org`, `http://host:8080`.

    The usual port of a scheme is left out, and so is the dot that may end a name. Raises EgressRefused for what is no
    plain http or https address.
    """
    parsed = check_url(url)
    host = plain_host(parsed.host)
    shown = f"[{host}]" if ":" in host else host
    is_usual = parsed.port in (None, USUAL_PORTS[parsed.scheme])
    return f"{parsed.scheme}://{shown}" + ("" if is_usual else f":{parsed.port}")


def fits(credential: Credential, url: str) -> bool:
    """Return whether the credential may go to this address, which has one of its origins. Raises EgressRefused."""
    return bool(credential.origins) and origin_of(url) in credential.origins


def place(credential: Credential, url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The address and the headers of a request with the credential in them, where the address has one of its origins;
    else both as they were.

    Call it last, with the whole address (its query included) and all headers that the model and the tool's author
    chose: what the credential sets replaces what they wrote under the same name, in whatever case. Call it again for
    the address of every redirect, with the headers as they were *before* it was placed.

    Raises EgressRefused for what is no plain http or https address.
    """
    if not fits(credential, url):
        return url, dict(headers)
    taken = {name.lower() for name in credential.headers}
    kept = {name: value for name, value in headers.items() if name.lower() not in taken}
    return _with_query(url, credential.query), {**kept, **credential.headers}


def _with_query(url: str, query: Mapping[str, str]) -> str:
    """The address with these parameters in its query; the rest of it is left as it was written, byte for byte."""
    if not query:
        return url
    address, hash_mark, fragment = url.partition("#")
    base, _, written = address.partition("?")
    parts = [part for part in written.split("&") if part and unquote_plus(part.partition("=")[0]) not in query]
    return f"{base}?{'&'.join([*parts, urlencode(query)])}{hash_mark}{fragment}"
