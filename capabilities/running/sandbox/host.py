"""Functions of the service that the code may call, in either runtime: `http_get`, `http_post`, `now_in`, `in_zone`.

The arguments come from code that nobody trusts: each is checked here, and nothing of the service goes back but text,
numbers and times. How many requests a run has, and how long, is counted here as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from capabilities.running.sandbox.values import HostError, HostFunctions

#: The names, in the order in which `describe_runtime` tells them.
NAMES = ("http_get", "http_post", "now_in", "in_zone")
#: Their types, for the type check.
STUBS = """
import datetime
from typing import Any
def http_get(url: str, params: Any = None, headers: Any = None) -> dict[str, Any]: ...
def http_post(url: str, body: Any = None, params: Any = None, headers: Any = None) -> dict[str, Any]: ...
def now_in(zone: str) -> datetime.datetime: ...
def in_zone(moment: datetime.datetime, zone: str) -> datetime.datetime: ...
"""
MAX_URL = 8_000
MAX_BODY = 1_000_000
#: Calls of those that do not leave the machine.
MAX_LOCAL_CALLS = 1_000


class TooManyCalls(Exception):
    """End of a run that has had its requests: the code cannot catch this."""


class OutOfTime(Exception):
    """End of a run whose time is over."""


class HostCalls:
    """The host functions of one run: counted, and none past its deadline (of time.monotonic)."""

    def __init__(self, host: HostFunctions, *, limit: int, deadline: float) -> None:
        self._host = host
        self._limit = limit
        self._deadline = deadline
        self._local = 0
        self.requests = 0

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the function's result. Raises what the code should see: OSError, TypeError or ValueError; and
        TooManyCalls and OutOfTime, which end the run."""
        functions: dict[str, Callable[..., Any]] = {
            "http_get": self.http_get,
            "http_post": self.http_post,
            "now_in": self.now_in,
            "in_zone": self.in_zone,
        }
        if name not in functions:
            raise NameError(f"name {name!r} is not defined")
        return functions[name](*args, **kwargs)

    def http_get(self, url: Any, params: Any = None, headers: Any = None) -> dict[str, Any]:
        return self._asked("GET", url, params, headers, None)

    def http_post(self, url: Any, body: Any = None, params: Any = None, headers: Any = None) -> dict[str, Any]:
        """Answer `http_post` of a run. Raises TypeError and ValueError for wrong arguments, TooManyCalls, OutOfTime,
        and OSError where the request fails."""
        sent = _headers(headers)
        if body is None:
            content = b""
        elif isinstance(body, str | bytes):
            content = body.encode("utf-8", "replace") if isinstance(body, str) else body
        else:
            try:
                content = json.dumps(body, allow_nan=False).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise TypeError("http_post: body must be text, bytes, or what JSON can hold") from error
            if not any(name.lower() == "content-type" for name in sent):
                sent["Content-Type"] = "application/json"
        if len(content) > MAX_BODY:
            raise ValueError(f"http_post: body is longer than {MAX_BODY:,} bytes")
        return self._asked("POST", url, params, sent, content)

    def now_in(self, zone: Any) -> datetime:
        self._count_local()
        return datetime.now(_zone(zone))

    def in_zone(self, moment: Any, zone: Any) -> datetime:
        """Answer `in_zone` of a run. Raises TypeError and ValueError for wrong arguments."""
        self._count_local()
        if not isinstance(moment, datetime):
            raise TypeError("in_zone: the first argument must be a datetime")
        to = _zone(zone)
        try:
            return moment.replace(tzinfo=to) if moment.tzinfo is None else moment.astimezone(UTC).astimezone(to)
        except OverflowError as error:
            raise ValueError("in_zone: the year is out of range") from error

    def _count_local(self) -> None:
        self._local += 1
        if self._local > MAX_LOCAL_CALLS:
            raise TooManyCalls(f"now_in and in_zone can be called {MAX_LOCAL_CALLS:,} times in one run.")

    def _asked(self, method: str, url: Any, params: Any, headers: Any, content: bytes | None) -> dict[str, Any]:
        """Ask through the guard; return status, headers and body. Raises TooManyCalls, OutOfTime and OSError."""
        address = _address(url, params)
        self.requests += 1
        if self.requests > self._limit:
            raise TooManyCalls(f"http_get and http_post can be called {self._limit:,} times in one run.")
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise OutOfTime
        try:
            answer = self._host.http(method, address, headers=_headers(headers), content=content, timeout=remaining)
        except HostError as error:
            if time.monotonic() >= self._deadline:
                raise OutOfTime from None
            raise OSError(str(error)) from None
        return {"status": answer.status, "headers": dict(answer.headers), "body": answer.body}


def _zone(name: Any) -> ZoneInfo:
    if not isinstance(name, str):
        raise TypeError('a time zone must be a name such as "Europe/Berlin"')
    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:
        raise ValueError(f'unknown time zone {name[:60]!r}; it must be a name such as "Europe/Berlin"') from error
    except KeyError as error:  # ZoneInfoNotFoundError
        raise ValueError(f'unknown time zone {name[:60]!r}; it must be a name such as "Europe/Berlin"') from error


def _headers(headers: Any) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, dict) or len(headers) > 50:
        raise TypeError("headers must be a dict of text")
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items()):
        raise TypeError("headers must be a dict of text")
    return dict(headers)


def _address(url: Any, params: Any) -> str:
    """The address with the parameters behind what is asked there already; those that are None are left out."""
    if not isinstance(url, str):
        raise TypeError("the address must be text")
    address: str = url
    if params:
        if not isinstance(params, dict):
            raise TypeError("params must be a dict")
        pairs = []
        for name, value in params.items():
            for one in value if isinstance(value, list | tuple) else [value]:
                if one is None:
                    continue
                if not isinstance(one, str | int | float):
                    raise TypeError("params must be a dict of text, numbers and lists of them")
                pairs.append((str(name), str(one).lower() if isinstance(one, bool) else str(one)))
        try:
            parts = urlsplit(address)
            query = "&".join(part for part in (parts.query, urlencode(pairs)) if part)
            address = urlunsplit(parts._replace(query=query))
        except ValueError as error:
            raise ValueError("the address is not valid") from error
    if len(address) > MAX_URL:
        raise ValueError(f"the address is longer than {MAX_URL:,} characters")
    return address
