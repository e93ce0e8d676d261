"""Meaning of a failed try of a model call: whether another try makes sense, when, and in which words."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from capabilities.common.text import storable
from capabilities.running.egress import EgressRefused
from sessions.loop.clients.error_bodies import is_odd, read_body
from sessions.loop.clients.finishing import ERROR
from sessions.loop.clients.refusals import Refusal
from sessions.loop.clients.replies import ReplyReader

#: Characters of what a provider says of an error that are passed on.
MAX_SAID = 400
#: Characters of a refusal that are read for what it teaches.
MAX_REFUSAL = 2_000
#: Words of providers where the messages do not fit the model's window: OpenAI, vLLM, Mistral, DeepSeek and
#: llama.cpp; Anthropic; Gemini; xAI; Bedrock; Cohere; Moonshot; Zhipu; Alibaba.
TOO_LONG = re.compile(
    r"context.(?:length|size|window|limit)|prompt (?:is )?too long|request_too_large|input (?:is )?too (?:long|large)"
    r"|input token count.{0,60}exceeds|maximum (?:prompt|model|input) length|too many (?:input )?tokens|max_model_len"
    r"|(?:exceed\w*|longer than|over) (?:the )?(?:model'?s? )?(?:max\w* )?(?:input |prompt )?(?:token limit|context)"
    r"|(?:prompt|input|messages?).{0,40}exceeds? (?:the )?max|reduce (?:the )?(?:length|size) of (?:the |your )?"
    r"(?:messages|prompt|input)|range of input length",
    re.IGNORECASE,
)
#: Words of providers where nobody pays any more, the key is no good, there is no such model (trying again changes none
#: of these), and where they are asked too often.
NO_CREDIT = re.compile(
    r"insufficient[ _.](?:\w+[ _])?(?:quota|balance|credits?|funds)|credit balance is too low|billing_hard_limit"
    r"|billing hard limit|(?:out of|no|any|more|enough|remaining) credits?\b|used (?:up )?all .{0,30}credits?"
    r"|payment required|arrear|exceeded_current_quota",
    re.IGNORECASE,
)
NO_KEY = re.compile(
    r"api[ _-]?key.{0,20}(?:not valid|invalid|incorrect|expired|not found|missing)"
    r"|(?:invalid|incorrect|wrong|missing|no|expired|unknown)[ _](?:\w+[ _])?(?:x-)?api[ _-]?key"
    r"|authentication_error|authentication (?:failed|required)|unauthenticated|\bunauthorized\b",
    re.IGNORECASE,
)
NO_MODEL = re.compile(
    r"model_not_found|model_not_available|model_decommissioned|unknown model|no such model|not a valid model"
    r"|\bmodels?\b.{0,120}(?:does not exist|doesn't exist|not found|decommissioned|no longer|retired|discontinued)"
    r"|(?:not found|no|find)\W+(?:the )?model\b",
    re.IGNORECASE | re.DOTALL,
)
TOO_OFTEN = re.compile(
    r"rate[ _-]?limit|too many requests|throttl|resource_exhausted|requests? per (?:minute|day)|tokens per minute",
    re.IGNORECASE,
)
#: Words of servers that cannot make a grammar of a tool's schema, or a prompt of the conversation (llama.cpp, also with
#: status 500): the same request fails each time. A model's output that does not fit the grammar is no such thing.
NO_GRAMMAR = re.compile(
    r"(?:fail\w*|unable|error|could not|cannot)\W+(?:\w+\W+){0,3}(?:pars|compil|build|convert|initiali[sz]|generat)\w*"
    r"\W+(?:\w+\W+){0,5}(?:grammar|json.?schema)|(?:json.?)?schema conversion failed|unrecognized schema"
    r"|invalid (?:json.?schema|grammar)|invalid schema for (?:function|tool)|jinja|chat.?template|template.?error",
    re.IGNORECASE,
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
#: Names under which an answer that is no part of a reply says an error.
_SAYS_ERROR = frozenset(
    {"error", "errors", "detail", "message", "msg", "err", "error_msg", "error_message", "errormessage", "fault"}
    | {"error_description", "status_msg", "reason"}
)
#: Meaning of a status, for people; the provider's words follow.
_SENTENCES = {
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


def raise_error_object(answer: Any, *, is_error: bool = False) -> None:
    """Raise Failed for an error that came with status 200, alone or in the middle of a stream. `is_error`: the event
    around it says that it is one."""
    error = _error_in(answer) or (answer if is_error else None)
    if not error:
        return
    read = read_body(error)
    innermost = next(iter(error), None) if isinstance(error, list) else error
    while isinstance(innermost, Mapping) and isinstance(innermost.get("error"), Mapping):
        innermost = innermost["error"]
    fields = innermost if isinstance(innermost, Mapping) else {}
    code, again = _code_of(_status_of(fields), read.all[:MAX_REFUSAL])
    raise Failed(code, f"The provider reported: {read.words}", again=again, wait=read.wait if again else None)


def no_reply(body: bytes, what: str) -> Failed:
    """The failure of an answer with status 200 that is no reply and no error object: `what` it is, and its words."""
    words = read_body(body).words
    code, again = _code_of(200, words[:MAX_REFUSAL])
    if code == "provider_rejected":
        code, again = "provider_invalid", True
    return Failed(code, f"{what}: {words}" if words else f"{what}.", again=again)


def raise_bad_end(reader: ReplyReader) -> None:
    """A reply that its provider ended with an error."""
    if reader.finish_reason == ERROR:
        raise Failed("provider_error", "The provider broke the reply off with an error.", again=True)


def _error_in(answer: Any) -> Any:
    """Return the error in a provider's answer, in whichever form it has there; None where the answer is part of a
    reply."""
    if isinstance(answer, list):
        found = [error for each in answer[:20] if (error := _error_in(each))]
        return found or None
    if not isinstance(answer, Mapping):
        return None
    if answer.get("type") == "response.failed":
        return _inside(answer, "response", "error") or "it failed"
    if answer.get("status") == "failed" and isinstance(answer.get("output"), list):
        return answer.get("error") or "it failed"
    if answer.get("type") == "error" or answer.get("object") == "error":
        return answer
    if answer.get("error"):
        return answer["error"]
    choices = answer.get("choices")
    if isinstance(choices, list) and choices:
        return next((each["error"] for each in choices if isinstance(each, Mapping) and each.get("error")), None)
    is_reply = any(name in answer for name in ("output", "type", "delta", "usage"))
    if is_reply or isinstance(answer.get("message"), Mapping):
        return None
    base = answer.get("base_resp")
    if isinstance(base, Mapping) and base.get("status_code"):
        return base
    if answer.get("success") is True or answer.get("code") in (0, 200, "0", "200"):
        return None
    return answer if any(str(name).casefold() in _SAYS_ERROR and value for name, value in answer.items()) else None


def _inside(answer: Mapping[str, Any], *names: str) -> Any:
    value: Any = answer
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def failure(error: Exception) -> Failed:
    """Return the failure that a raised error means for the turn."""
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
    status, body = error.status_code, _body_of(error)
    read = read_body(body)
    reason = read.words[:MAX_REFUSAL] or str(error.message)
    code, again = _code_of(status, f"{error.code or ''} {read.all[:MAX_REFUSAL]}")
    message = f"{_SENTENCES[code].format(status=status)}: {reason}"
    asked_wait = retry_after(error.response.headers)
    wait = (read.wait if asked_wait is None else asked_wait) if again else None
    refusal = None
    if code == "provider_rejected":
        has_message = isinstance(error.body, Mapping) and isinstance(error.body.get("message"), str)
        # Some say beside the message only which parameter they refuse.
        words = reason if has_message else f"{reason} {body}"[: 2 * MAX_REFUSAL]
        name = error.code or next(iter(read.names), "")
        refusal = Refusal(400 if status == 500 else status, words, str(error.param or read.parameter), str(name))
    return Failed(code, message, again=again, wait=wait, refusal=refusal)


def _code_of(status: int, words: str) -> tuple[str, bool]:
    """The error code for the turn, and whether another try makes sense, of a status and the provider's words."""
    if status == 402 or (status < 500 and NO_CREDIT.search(words)):
        return "provider_credit", False
    if status in (401, 403) and not (status == 403 and TOO_OFTEN.search(words)):
        return "provider_auth", False
    if status == 413 or (status != 429 and TOO_LONG.search(words)):
        return "context_length", False
    if status == 429 or TOO_OFTEN.search(words):
        return "provider_rate_limit", True
    if status in (500, 501) and NO_GRAMMAR.search(words):
        return "provider_rejected", False
    if status in RETRIED_STATUSES or status >= 500:
        return "provider_error", True
    if NO_KEY.search(words):
        return "provider_auth", False
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
        if TOO_OFTEN.search(name):
            return 429
    return 500


def _body_of(error: openai.APIStatusError) -> object:
    try:
        body = error.response.content
        return body if is_odd(body) else error.response.text or error.body
    except (httpx2.StreamError, ValueError):
        return error.body


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
