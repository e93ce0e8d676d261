"""What a failed try of a model call means: whether another try makes sense, when, and in which words."""

from __future__ import annotations

import email.utils
import re
import time
from typing import Any

import httpx2
import openai

from capabilities.common.text import storable
from capabilities.egress import EgressRefused
from sessions.loop.models.refusals import REFUSED, Refusal

#: Characters of what a provider says of an error that are passed on.
MAX_SAID = 400
#: Characters of a refusal that are read for what it teaches.
MAX_REFUSAL = 2_000
#: How OpenAI, vLLM, Ollama and llama.cpp say that the messages do not fit the model's window.
TOO_LONG = re.compile(r"context.(length|size|window)", re.IGNORECASE)
#: How providers say that nobody pays any more, and that there is no such model: trying again changes neither.
NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|insufficient.balance", re.IGNORECASE)
NO_MODEL = re.compile(
    r"model_not_found|model_decommissioned|\bmodel\b.{0,120}(?:does not exist|not found|decommissioned|no longer)",
    re.IGNORECASE | re.DOTALL,
)
RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Failed(Exception):
    """One try failed: whether another one makes sense, and after how many seconds if the provider said; or that the
    request has to be another one."""

    def __init__(
        self, code: str, message: str, *, again: bool, wait: float | None = None, refusal: Refusal | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.again, self.wait, self.refusal = code, message, again, wait, refusal


def raise_error_object(answer: Any) -> None:
    """An error that came with status 200, alone or in the middle of a stream."""
    if not isinstance(answer, dict):
        return
    response = answer.get("response")
    error = answer if answer.get("type") == "error" else answer.get("error")
    if answer.get("type") == "response.failed":
        error = (response.get("error") if isinstance(response, dict) else None) or "it failed"
    if not error:
        return
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    message = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    again = not (isinstance(code, int) and 400 <= code < 500 and code not in RETRIED_STATUSES)
    if isinstance(code, str) and TOO_LONG.search(code):
        raise Failed("context_length", f"The provider reported: {message}", again=False)
    raise Failed("provider_error", f"The provider reported: {message}", again=again)


def failure(error: Exception) -> Failed:
    """What a raised error means for the turn."""
    if isinstance(error, openai.APIStatusError):
        return _status_failure(error)
    refusal = _cause(error, EgressRefused)
    if refusal is not None:
        return Failed("provider_refused", f"The provider's address is not allowed: {refusal}", again=False)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return Failed("provider_timeout", "The provider did not answer in time.", again=True)
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError | OSError):
        return Failed("provider_unreachable", "The provider cannot be reached, or broke off.", again=True)
    return Failed("provider_invalid", f"The provider's answer cannot be read ({type(error).__name__}).", again=True)


def _status_failure(error: openai.APIStatusError) -> Failed:
    status, said = error.status_code, _words_of(error)
    if status in (401, 403):
        return Failed("provider_auth", f"The provider refused the key ({status}): {said}", again=False)
    if status == 402 or (status < 500 and NO_CREDIT.search(f"{error.code} {said}")):
        return Failed("provider_credit", f"The provider says that there is no credit left: {said}", again=False)
    if status == 429:
        wait = retry_after(error.response.headers)
        return Failed("provider_rate_limit", f"The provider is at its limit: {said}", again=True, wait=wait)
    if status in RETRIED_STATUSES or status >= 500:
        wait = retry_after(error.response.headers)
        return Failed("provider_error", f"The provider failed ({status}): {said}", again=True, wait=wait)
    told = f"The provider rejected the request ({status}): {said}"
    if TOO_LONG.search(f"{error.code} {said}"):
        return Failed("context_length", told, again=False)
    if NO_MODEL.search(f"{error.code} {said}"):
        return Failed("model_gone", f"The provider does not have the model any more: {said}", again=False)
    refusal = Refusal(status, _all_words_of(error), str(error.param or ""), str(error.code or ""))
    return Failed("provider_rejected", told, again=False, refusal=refusal if status in REFUSED else None)


def _words_of(error: openai.APIStatusError) -> str:
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return (message if isinstance(message, str) else str(error.message))[:MAX_REFUSAL]


def _all_words_of(error: openai.APIStatusError) -> str:
    """The whole of what was answered: some servers say which parameter they refuse beside the message only."""
    words = _words_of(error)
    details = error.body if isinstance(error.body, dict | list) else ""
    return words if words and isinstance(details, dict) and "message" in details else f"{words} {details}"


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that the provider asks to wait, of any of the ways to say so; None if it does not, or not sensibly."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def _cause(error: BaseException | None, kind: type[Exception]) -> BaseException | None:
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, kind):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


def without_key(words: str, key: str, most: int) -> str:
    return storable(words.replace(key, "***") if len(key) >= 8 else words, most)
