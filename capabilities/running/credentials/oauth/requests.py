"""Asking an authorization server for JSON, and the checks of every address that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from capabilities.common.fair_places import FairPlaces
from capabilities.running.egress import EgressError, Purpose, check_url, fetch, is_listed, resolve_checked
from capabilities.running.egress.placing import USUAL_PORTS
from toolhub.bounded_json import load_json

#: Bytes of an answer that are read, and seconds for one.
MAX_ANSWER = 200_000
SECONDS = 10.0
TOO_MANY = "Several accounts are being connected just now: try again in a moment."


class OAuthRefused(Exception):
    """Reason why a sign-in cannot go on, or a token cannot be got. The message is one sentence for the reader.

    `code` is the far side's own word for it (RFC 6749, 5.2), empty where it said none; `is_lasting` whether asking
    again would not help.
    """

    def __init__(self, message: str, *, code: str = "", is_lasting: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.is_lasting = is_lasting


#: Requests of people that wait for far sides, of the threads of a web server (toolhub/web/handler.py): each holds one
#: that answers everybody's pages.
_waiting = FairPlaces(lambda: (16, 4))


@contextmanager
def person_waits(organisation_id: int) -> Iterator[None]:
    """Hold a place while a far side is asked and a person waits for it. Raises OAuthRefused where as many of the
    organisation wait as may."""
    with _waiting.place_for(organisation_id) as is_there:
        if not is_there:
            raise OAuthRefused(TOO_MANY, is_lasting=False)
        yield


#: Sign-ins are for tools and for MCP servers.
SIGN_IN = (Purpose.TOOL, Purpose.MCP)


def host_of(url: str) -> str:
    """The host of an address, for people; with its port where that is not the usual one."""
    return httpx2.URL(url).netloc.decode()


def check_endpoint(title: str, url: str, *, seconds: float = SECONDS) -> None:
    """Raise OAuthRefused unless this may be opened, or asked: https, or a host that the operator lists; no private
    address, no other scheme. One look-up of its name."""
    try:
        parsed = check_url(url)
        if parsed.scheme != "https" and not is_listed(url):
            raise OAuthRefused(f"{title} is not an https address: {url[:200]}.")
        resolve_checked(parsed.host, parsed.port or USUAL_PORTS[parsed.scheme], timeout=seconds, purposes=SIGN_IN)
    except EgressError as error:
        raise OAuthRefused(f"{title} may not be used: {error}", is_lasting=False) from error


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    seconds: float = SECONDS,
) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers and JSON of an answer; None for a body that is none. Redirects are not followed.

    Raises OAuthRefused where nothing came, and for an address that is neither https nor listed by the operator.
    """
    try:
        if check_url(url).scheme != "https" and not is_listed(url):
            raise OAuthRefused(f"{url[:200]} is not an https address.")
        answer = fetch(
            method,
            url,
            headers={"Accept": "application/json", **(headers or {})},
            content=content,
            timeout=min(seconds, SECONDS),
            max_bytes=MAX_ANSWER,
            max_redirects=0,
            purposes=SIGN_IN,
        )
    except EgressError as error:
        raise OAuthRefused(str(error), is_lasting=False) from error
    try:
        body = None if answer.truncated else load_json(answer.body)
    except ValueError:
        body = None
    return answer.status, answer.headers, body
