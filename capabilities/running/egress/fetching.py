"""Asking the network for one answer: redirects, the deadline, and how much of a body is taken.

Knows HTTP. Which addresses may be reached, the guard says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import httpcore2
import httpx2

from capabilities.contract.context import Credential
from capabilities.running.egress.addresses import Purpose, check_characters, check_url
from capabilities.running.egress.decoding import ACCEPTED, decoder
from capabilities.running.egress.errors import EgressError, EgressFailed, EgressRefused, doubt_after
from capabilities.running.egress.guard import Clock, Guard, GuardedTransport
from capabilities.running.egress.placing import place
from toolhub.durations import duration

#: Redirects that are followed where nobody says otherwise, and at most.
MAX_REDIRECTS = 3
MOST_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# All that another host gets to see after a redirect: any other header may be a key, whatever it is called.
HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "range", "user-agent"})
# These say where a message goes or how long it is, which is ours to say.
OWN_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"})
#: Nothing that signs a request.
UNSIGNED = Credential()
# Not charsets but transformations of Python's, some of them quadratic or raising whatever `errors` says.
ODD_CODECS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"})


@dataclass(frozen=True)
class Fetched:
    """An answer, of whatever status. `headers` has lower-case names; `body` is decompressed, cut where `truncated`."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    #: Method of the request that was answered.
    method: str = "GET"

    @property
    def doubt(self) -> str:
        """A sentence to add to a failure after which something may have been done; empty where nothing was."""
        return doubt_after(self.method, self.status)

    @property
    def text(self) -> str:
        charset = httpx2.Response(200, headers={"content-type": self.headers.get("content-type", "")}).charset_encoding
        name = (charset or "utf-8").lower().replace("-", "_")
        try:
            return self.body.decode("utf-8" if name in ODD_CODECS else name, "replace")
        except (LookupError, ValueError):
            return self.body.decode("utf-8", "replace")


def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    timeout: float,
    max_bytes: int = 2_000_000,
    max_redirects: int = MAX_REDIRECTS,
    credential: Credential = UNSIGNED,
    purposes: tuple[Purpose, ...] = (Purpose.TOOL,),
) -> Fetched:
    """Ask the network. `timeout` is seconds for all of it: look-ups, redirects and the last byte of the body.

    Follows redirects itself, each checked like the first address; with `max_redirects` 0 one is refused. The body is
    cut at `max_bytes`, counted both as sent and as decompressed. The `credential` is added last, at each address anew:
    only those of its origins get it, and the answer's `url` never holds it. Raises EgressRefused and EgressFailed.
    """
    clock = deadline_clock(timeout)
    request = httpx2.Request(method.upper(), check_url(url), headers=_request_headers(headers or {}), content=content)
    limit = min(max_redirects, MOST_REDIRECTS)
    host, guard = request.url.host, Guard(purposes=purposes)
    with _redirects() as redirects, GuardedTransport(guard, clock) as transport, _plain_errors(host, timeout):
        for _ in range(limit + 1):
            response = transport.handle_request(_signed(request, credential))
            try:
                if response.status_code not in REDIRECTS or "location" not in response.headers:
                    body, truncated = _read_body(response, max_bytes)
                    return Fetched(
                        url=str(request.url),
                        status=response.status_code,
                        headers=MappingProxyType(dict(response.headers.items())),
                        body=body,
                        truncated=truncated,
                        method=request.method,
                    )
            finally:
                response.close()
            if not limit:
                raise EgressRefused(f"{request.url.host} redirects elsewhere, and this request is not sent on.")
            request = _redirected(request, response)
            redirects.append(request.url.host)
        raise EgressFailed(f"{request.url.host} was not reached: there were more than {limit} redirects.")


@contextlib.contextmanager
def _redirects() -> Iterator[list[str]]:
    """A list for the hosts that others redirect to; an error says whether there were any."""
    hosts: list[str] = []
    try:
        yield hosts
    except EgressError as error:
        error.is_after_redirect = bool(hosts)
        raise


def deadline_clock(seconds: float) -> Clock:
    """Return a function that cuts every wait to what is left of `seconds` from now, and raises httpcore2's timeout when
    nothing is."""
    deadline = time.monotonic() + seconds

    def left(timeout: float | None) -> float:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise httpcore2.ReadTimeout("deadline")
        return remaining if timeout is None else min(timeout, remaining)

    return left


@contextlib.contextmanager
def _plain_errors(host: str, timeout: float) -> Iterator[None]:
    """Turn the client's exceptions into ours, one sentence each."""
    try:
        yield
    except (httpx2.TimeoutException, httpcore2.TimeoutException) as error:
        raise EgressFailed(f"{host} did not finish its answer within {duration(timeout)}.") from error
    except httpx2.LocalProtocolError as error:
        raise EgressRefused(f"The request to {host} is not valid HTTP: {str(error).rstrip('.')}.") from error
    except httpx2.HTTPError as error:
        raise EgressFailed(f"{host} could not be reached: {str(error).rstrip('.')}.") from error


def _request_headers(headers: Mapping[str, str]) -> httpx2.Headers:
    for name in headers:
        if name.lower() in OWN_HEADERS or name.lower().startswith("proxy-"):
            raise EgressRefused(f"The header {name} cannot be set; it follows from the address and the body.")
    try:
        asked = httpx2.Headers(dict(headers))
    except UnicodeEncodeError as error:
        raise EgressRefused("A header has a character in it that headers cannot carry.") from error
    defaults = httpx2.Headers({"accept": "*/*", "user-agent": "toolhub"})
    defaults.update(asked)
    defaults["accept-encoding"] = ACCEPTED
    return defaults


def _signed(request: httpx2.Request, credential: Credential) -> httpx2.Request:
    """The request with the credential in it, where its address has one of the credential's origins."""
    if not (credential.headers or credential.query):
        return request
    asked = {name: value for name, value in request.headers.items() if name not in OWN_HEADERS}
    url, headers = place(credential, str(request.url), asked)
    return httpx2.Request(request.method, url, headers=_request_headers(headers), content=request.content or None)


def _redirected(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The next request of a chain. Its address gets the same checks as the first, and less of our secrets."""
    target = _redirect_target(request.url, response.headers["location"])
    method, content, headers = request.method, request.content, request.headers
    if (response.status_code == 303 and method != "HEAD") or (response.status_code in (301, 302) and method == "POST"):
        method, content = "GET", b""
    # httpx2 leaves out a scheme's usual port, so that the step up from http to https counts as the same host.
    same_host = (request.url.host, request.url.port) == (target.host, target.port)
    kept = {
        name: value
        for name, value in headers.items()
        if name not in OWN_HEADERS
        and (same_host or name in HARMLESS_HEADERS)
        and (content or name not in ("content-type", "content-encoding"))
    }
    return httpx2.Request(method, target, headers=kept, content=content or None)


def _redirect_target(source: httpx2.URL, location: str) -> httpx2.URL:
    check_characters(location)
    try:
        target = check_url(str(source.join(location)))
    except (httpx2.InvalidURL, ValueError) as error:
        raise EgressRefused(f"{source.host} redirects to an address that is not valid.") from error
    if source.scheme == "https" and target.scheme == "http":
        raise EgressRefused(f"{source.host} redirects from https to http, which is not followed.")
    return target


def _read_body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """The decompressed body, and whether it was cut.

    Both what comes off the wire and what it inflates to stop at `max_bytes`, so a bomb costs no more than an honest
    body. A ratio between the two is not held against it: honest JSON lists shrink twentyfold.
    """
    decode = decoder(response.headers.get("content-encoding", ""))
    body, received = bytearray(), 0
    for piece in response.iter_raw():
        received += len(piece)
        body += decode(piece, max_bytes + 1 - len(body))
        if max(received, len(body)) > max_bytes:
            return bytes(body[:max_bytes]), True
    return bytes(body), False
