"""The web for code in the sandbox: the guarded way out, signed behind everything that the code wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from capabilities.contract.context import Credential
from capabilities.contract.masking import masked_in
from capabilities.running.egress import EgressError, Fetched, fetch
from capabilities.running.sandbox.values import HostError, Http, HttpAnswer

#: Bytes of one answer.
MAX_ANSWER = 2_000_000
#: Headers of an answer that the code has no business with.
HIDDEN = frozenset({"set-cookie", "set-cookie2"})

#: Asked with an answer of status 401 or 403 and the seconds left: a newer credential to send once more with, or None.
Refused = Callable[[Fetched, float], Credential | None]


def guarded_http(credential: Credential | None = None, *, refused: Refused | None = None) -> Http:
    """Return a function that asks through the guard. The credential goes to its own origins only; what comes back of it
    is masked, so that the code never sees it. It raises HostError."""
    first = credential or Credential()

    def ask(method: str, url: str, *, headers: Mapping[str, str], content: bytes | None, timeout: float) -> HttpAnswer:
        until = time.monotonic() + timeout
        signing = first
        answer = _fetched(method, url, headers, content, timeout, signing)
        if answer.status in (401, 403) and refused is not None:
            newer = refused(answer, until - time.monotonic())
            if newer is not None:
                signing = newer
                answer = _fetched(method, url, headers, content, max(0.001, until - time.monotonic()), signing)
        if answer.truncated:
            raise HostError(f"The answer is longer than {MAX_ANSWER:,} bytes: ask for less of it.")
        secrets = (*first.secrets, *signing.secrets)
        return HttpAnswer(
            status=answer.status,
            headers={name: masked_in(value, secrets) for name, value in answer.headers.items() if name not in HIDDEN},
            body=masked_in(answer.text, secrets),
        )

    return ask


def _fetched(
    method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeout: float, credential: Credential
) -> Fetched:
    try:
        return fetch(
            method,
            url,
            headers=headers,
            content=content,
            timeout=timeout,
            max_bytes=MAX_ANSWER,
            credential=credential,
        )
    except EgressError as error:
        raise HostError(masked_in(str(error), credential.secrets)) from None
