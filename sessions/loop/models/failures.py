"""What a failed try of a model call means: whether another try makes sense, when, and in which words."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from capabilities.common.text import storable
from capabilities.egress import EgressRefused
from sessions.loop.models.refusals import Refusal

#: Characters of what a provider says of an error that are passed on.
MAX_SAID = 400
#: Characters of a refusal that are read for what it teaches.
MAX_REFUSAL = 2_000
#: How providers say that the messages do not fit the model's window: OpenAI, vLLM, Mistral, DeepSeek and llama.cpp;
#: Anthropic; Gemini; xAI; Bedrock; Cohere.
TOO_LONG = re.compile(
    r"context.(?:length|size|window|limit)|prompt is too long|request_too_large|input is too long"
    r"|input token count.{0,60}exceeds|maximum (?:prompt|model|input) length|too many tokens:",
    re.IGNORECASE,
)
#: How providers say that nobody pays any more, and that there is no such model: trying again changes neither.
NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|insufficient.balance", re.IGNORECASE)
NO_MODEL = re.compile(
    r"model_not_found|model_decommissioned|\bmodel\b.{0,120}(?:does not exist|not found|decommissioned|no longer)",
    re.IGNORECASE | re.DOTALL,
)
RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
#: The status that the code or the type of an error object stands for, where the object came with status 200.
_STATUSES = {
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "permission_error": 403,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "overloaded_error": 529,
}
#: What a status means, for people; the provider's words follow.
_TOLD = {
    "provider_auth": "The provider refused the key ({status})",
    "provider_credit": "The provider says that there is no credit left",
    "provider_rate_limit": "The provider is at its limit",
    "provider_error": "The provider failed ({status})",
    "context_length": "The provider rejected the request ({status})",
    "model_gone": "The provider does not have the model any more",
    "provider_rejected": "The provider rejected the request ({status})",
}


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
    told = error if isinstance(error, dict) else {"message": error}
    said, name = told.get("message"), f"{told.get('code')} {told.get('type')}"
    code, again = _code_of(_status_of(told), f"{name} {said}"[:MAX_REFUSAL])
    raise Failed(code, f"The provider reported: {said}", again=again)


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
    code, again = _code_of(status, f"{error.code} {said}")
    told = f"{_TOLD[code].format(status=status)}: {said}"
    wait = retry_after(error.response.headers) if again else None
    refusal = None
    if code == "provider_rejected":
        refusal = Refusal(status, _all_words_of(error), str(error.param or ""), str(error.code or ""))
    return Failed(code, told, again=again, wait=wait, refusal=refusal)


def _code_of(status: int, words: str) -> tuple[str, bool]:
    """The error code for the turn, and whether another try makes sense, of a status and the provider's words."""
    if status in (401, 403):
        return "provider_auth", False
    if status == 402 or (status < 500 and NO_CREDIT.search(words)):
        return "provider_credit", False
    if status == 429:
        return "provider_rate_limit", True
    if status in RETRIED_STATUSES or status >= 500:
        return "provider_error", True
    if status == 413 or TOO_LONG.search(words):
        return "context_length", False
    return ("model_gone" if NO_MODEL.search(words) else "provider_rejected"), False


def _status_of(error: Mapping[str, Any]) -> int:
    """The status that an error object stands for, by its code or else its type; 500 where neither is known."""
    for name in (error.get("code"), error.get("type")):
        if isinstance(name, int) and 400 <= name < 600:
            return name
        if not isinstance(name, str):
            continue
        if re.fullmatch("[45][0-9][0-9]", name):
            return int(name)
        if name in _STATUSES:
            return _STATUSES[name]
        if any(known.search(name) for known in (NO_CREDIT, TOO_LONG, NO_MODEL)):
            return 400
    return 500


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
