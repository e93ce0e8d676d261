"""Asking a service that an organisation set up: its address, its credential, its JSON. Knows no service by name.

Where a request may go, capabilities.running.egress says. What comes back is data, of whatever shape.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.masking import masked_in
from capabilities.running.egress import MAX_REDIRECTS, EgressError, Fetched, fetch
from capabilities.running.egress.answers import media_type
from capabilities.running.registry import ServiceSpec
from toolhub.bounded_json import load_json
from toolhub.durations import duration

#: Bytes of an answer, and characters of what a service says about an error.
MAX_BYTES = 2_000_000
MAX_COMPLAINT = 300
#: Share of the tool's time that its requests may take: what is left brings the answer home.
SHARE = 0.9
#: Value that may stand in a header, a credential above all: no line break, no letter that headers cannot carry.
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")

Query = Mapping[str, str | int | float | None]
Shape = TypeVar("Shape", dict[str, Any], list[Any])


@dataclass(frozen=True)
class Remote:
    """One service at one address, for one call of a tool. Every method raises ToolError with a sentence."""

    title: str
    base_url: str
    #: Moment of time.monotonic() that ends all requests of the call together.
    deadline: float
    #: Sent with each request, and to no other host.
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        *segments: str,
        query: Query | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Fetched:
        """One request; an answer of any status. Segments are encoded. What writes follows no redirect. Raises ToolError
        where no answer comes."""
        reads = method == "GET"
        try:
            return fetch(
                method,
                self.url(*segments, query=query),
                headers=self._checked_headers(headers or {}),
                content=content,
                timeout=self.seconds_left(),
                max_bytes=max_bytes,
                max_redirects=MAX_REDIRECTS if reads else 0,
            )
        except EgressError as error:
            doubt = error.doubt(method)
            raise ToolError(f"{self.title}: {error}{doubt}", nothing_came=not error.is_after_redirect) from error

    def json(
        self,
        method: str,
        *segments: str,
        shape: type[Shape],
        missing: str = "",
        query: Query | None = None,
        body: Any = None,
        max_bytes: int = MAX_BYTES,
    ) -> Shape:
        """The JSON value of a good answer, of this shape. `missing` says what a 404 means."""
        sent = {"accept": "application/json"} | ({} if body is None else {"content-type": "application/json"})
        content = None if body is None else json.dumps(body).encode()
        answer = self.ask(method, *segments, query=query, content=content, headers=sent, max_bytes=max_bytes)
        return self.parsed(self.good(answer, missing), shape)

    def url(self, *segments: str, query: Query | None = None) -> str:
        """Return the address of these segments, encoded, with the query. Raises ToolError for an address that takes
        none, and for a segment that is empty or leads elsewhere."""
        if "?" in self.base_url or "#" in self.base_url:
            raise ToolError(f"The address of {self.title} is not valid: an administrator must leave out ? and #.")
        if any(segment in {"", ".", ".."} for segment in segments):
            raise ToolError("A name is empty, or leads to another place.")
        path = "".join(f"/{quote(segment, safe='')}" for segment in segments) or "/"
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return self.base_url.rstrip("/") + path + (f"?{urlencode(asked)}" if asked else "")

    def seconds_left(self) -> float:
        """Return the seconds until the deadline. Raises ToolError where none are left."""
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise ToolError(f"{self.title} did not answer in time.", nothing_came=True)
        return remaining

    def good(self, answer: Fetched, missing: str = "") -> Fetched:
        """Return the answer where its status is below 300. Raises ToolError with the service's own words for
        another."""
        if answer.status >= 300:
            raise ToolError(self._refusal(answer, missing))
        return answer

    def parsed(self, answer: Fetched, shape: type[Shape]) -> Shape:
        """Return the answer's JSON, of this type. Raises ToolError for an answer that was cut, is no JSON, or is of
        another type."""
        if answer.truncated:
            raise ToolError(f"{self.title} answered with more than {len(answer.body):,} bytes: ask for less.")
        value = read_json(self.without_credential(answer.text))
        if value is None:
            kind = media_type(answer) or "something"
            raise ToolError(f"{self.title} answered with {kind} that is no JSON: is its address right?")
        if not isinstance(value, shape):
            raise ToolError(f"{self.title} answered in a form that is not understood: is its address right?")
        return value

    def without_credential(self, text: str) -> str:
        """The text, should the far side send a header of ours back: one that is made of a secret is masked nowhere."""
        for name, value in self.headers.items():
            credential = value.rpartition(" ")[2]
            if name.lower() == "authorization" and credential:
                text = masked_in(text, [credential])
        return text

    def _checked_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        sent = {**self.headers, **headers}
        if not all(HEADER_VALUE.fullmatch(value) for value in sent.values()):
            raise ToolError(f"A credential of {self.title} has a character that cannot be sent: set it up again.")
        return sent

    def _refusal(self, answer: Fetched, missing: str) -> str:
        """Return the sentence for an answer of the service that is no success, with its own words."""
        status, wait = answer.status, wait_of(answer)
        if status == 429 or wait is not None:
            when = f"in {duration(wait)}" if wait else "later"
            return f"{self.title} takes no more calls now: try again {when}."
        if status == 404 and missing:
            return missing
        complaint = self.without_credential(complaint_of(answer.text))
        detail = f": {complaint.rstrip('.')}." if complaint else "."
        if status in {401, 403}:
            verb = "refuses what it was set up with" if "Authorization" in self.headers else "refuses the request"
            return f"{self.title} {verb} (status {status}){detail}"
        return f"{self.title} answered with status {status}{detail}{answer.doubt}"


def remote(
    context: ToolContext, spec: ServiceSpec, *, address: str = "base_url", headers: Mapping[str, str] | None = None
) -> Remote:
    """The service as this call may ask it. `address` is the field that names it. Raises ToolError where that is
    empty."""
    base_url = context.service.get(address, "").strip()
    if not base_url:
        raise ToolError(f"{spec.title} is not set up: an administrator must enter its address.")
    return Remote(spec.title, base_url, time.monotonic() + context.timeout * SHARE, headers or {})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def read_json(text: str) -> Any:
    """The value, or None where the text is no JSON that can be worked with."""
    try:
        return load_json(text, constant=lambda name: None)
    except ValueError:
        return None


def wait_of(answer: Fetched) -> int | None:
    """Seconds that the far side asks to wait, by Retry-After or by GitHub's headers; None where it does not ask."""
    if answer.status not in {403, 429, 503}:
        return None
    headers = answer.headers
    after = headers.get("retry-after", "").strip()
    if after.isdecimal():
        return min(int(after[:9]), 86_400)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(0, int(reset[:12]) - int(time.time()))
    try:
        return max(0, int(parsedate_to_datetime(after).timestamp() - time.time())) if after else None
    except (ValueError, OverflowError):
        return None


def complaint_of(text: str) -> str:
    """Return the error that a service describes, where it does so in JSON; "" elsewhere."""
    value = read_json(text[:100_000])
    for name in ("error", "message", "Message", "reason", "detail", "errors"):
        found = a_dict(value).get(name)
        found = a_dict(found).get("message", found)
        if isinstance(found, str) and found.strip():
            return short(found, MAX_COMPLAINT)
    return ""


def a_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one: for reading what need not be there."""
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def short(value: Any, limit: int = 500) -> str:
    """A plain value as one line of text, cut at `limit` characters; lists, objects and nothing are empty."""
    if value is None or isinstance(value, (dict, list)):
        return ""
    text = " ".join(str(value)[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def filled(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without what is empty: it would cost tokens and say nothing."""
    return {name: value for name, value in row.items() if value not in (None, "", [], {})}


def names(found: Sequence[str], limit: int = 20) -> str:
    """Some names, for a sentence."""
    return ", ".join(found[:limit]) + (f" and {len(found) - limit} more" if len(found) > limit else "")
