"""Runner of tools that are one HTTP request: builds it, sends it by the way out, and reads the answer for the model.

What a request is made of is in `capabilities.contract.http_tool`, where it may go in `capabilities.running.egress`.
"""

from __future__ import annotations

import ipaddress
import mimetypes
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import is_unseen
from capabilities.contract.context import Credential, ToolContext, ToolError
from capabilities.contract.http_request import build_request
from capabilities.contract.http_tool import (
    PLACEHOLDER,
    HttpImplementation,
    HttpRequest,
    HttpResponse,
    ImplementationRefused,
    NotInAnswer,
    check_http,
    is_json,
    mapped,
    read_implementation,
)
from capabilities.contract.masking import masked_in
from capabilities.contract.results import ResultFile, ToolResult
from capabilities.contract.spec import ToolSpec
from capabilities.models import ToolVersion
from capabilities.running.credentials.signing import after_refusal
from capabilities.running.egress import EgressError, EgressRefused, Fetched, Guard, Purpose, check_url, fetch
from capabilities.running.egress.answers import is_text, media_type, readable
from capabilities.running.kinds.checks import Content
from toolhub.bounded_json import MAX_VALUES, JsonRefused, TooMuchJson, load_json
from toolhub.durations import duration

#: Bytes of an answer, as sent and as decompressed.
MAX_BYTES = 2_000_000
#: Commas and brackets of an answer that is taken apart as JSON: 50 MB in memory at worst.
#: Characters of an error's body that the model reads.
ERROR_CHARS = 300
PAGES = ("text/html", "application/xhtml+xml")
#: Share of the call's time that the request may take; the rest is for reading the answer.
SHARE = 0.9


def run(
    *,
    spec: ToolSpec,
    version: ToolVersion,
    credential: Credential,
    context: ToolContext,
    arguments: Mapping[str, Any],
) -> Any:
    """Send the request of this call. Returns the part of the answer that the version says, as JSON, text, or a
    ToolResult with a file; raises ToolError for a status of 400 and more, and where nothing came."""
    until = time.monotonic() + context.timeout * SHARE
    try:
        implementation = read_implementation(version.implementation)
    except ImplementationRefused as error:
        raise ToolError(f"{spec.name} cannot run: {error}", nothing_came=True) from error
    request = _with_key(build_request(implementation, arguments), context)
    reads = spec.effect == "read"
    try:
        answer = _sent(request, credential, context, until)
    except EgressError as error:
        doubt = "" if reads else error.doubt(request.method)
        raise ToolError(f"{error}{doubt}", nothing_came=not error.is_after_redirect) from error
    if answer.status >= 400:
        failure = _failure(answer, credential, context, until)
        raise ToolError(failure + _unsigned(answer, request, credential) + ("" if reads else answer.doubt))
    return _result(answer, implementation, context, until)


def _with_key(request: HttpRequest, context: ToolContext) -> HttpRequest:
    """Return the request with the call's own key, where a crashed call is sent again under it."""
    if context.idempotency_key and context.envelope is not None and context.envelope.on_crash == "retry_with_key":
        headers = {**request.headers, "idempotency-key": context.idempotency_key}
        return HttpRequest(request.method, request.url, headers, request.content)
    return request


def _sent(request: HttpRequest, credential: Credential, context: ToolContext, until: float) -> Fetched:
    """The answer; the request is sent once more where the credential was refused and there is a newer one."""
    answer = _fetched(request, credential, context, until)
    if answer.status in (401, 403) and credential.secret_id is not None:
        challenge = answer.headers.get("www-authenticate", "")
        newer = after_refusal(
            credential,
            answer.status,
            challenge,
            membership_id=context.membership_id,
            at_most=max(0.0, until - time.monotonic()),
        )
        if newer is not None:
            return _fetched(request, newer, context, until)
    return answer


def _fetched(request: HttpRequest, credential: Credential, context: ToolContext, until: float) -> Fetched:
    return fetch(
        request.method,
        request.url,
        headers=request.headers,
        content=request.content,
        timeout=max(0.001, until - time.monotonic()),
        max_bytes=MAX_BYTES,
        max_redirects=context.envelope.max_redirects if context.envelope else 0,
        credential=credential,
    )


# -- What the model reads ----------------------------------------------------------------------------------------------


def _result(answer: Fetched, implementation: HttpImplementation, context: ToolContext, until: float) -> Any:
    """Return the result of an answer: JSON, text, or a file."""
    if not answer.body:
        return _empty(answer)
    kind = media_type(answer)
    response = implementation.response
    if response.text:
        return _cut(answer, answer.text)
    if is_json(kind) and not answer.truncated:
        try:
            value = load_json(answer.body, constant=float)
        except TooMuchJson:
            return _too_intricate(answer, response)
        except JsonRefused:
            return answer.text
        return _mapped(value, response, answer)
    if response.pointer or response.fields:
        raise ToolError(f"{_host(answer)} answered with {kind or 'a body of no named type'} instead of JSON.")
    if kind in PAGES:
        title, text, whole = readable(context, answer.text, main=True, until=until)
        return _cut(answer, f"{title}\n\n{text}".strip(), whole=whole)
    if is_text(kind) or (not kind and b"\0" not in answer.body):
        return _cut(answer, answer.text)
    return _file(answer, kind)


def _too_intricate(answer: Fetched, response: HttpResponse) -> str:
    """Return the text of an answer with too many values as it came: it is cut to what a model reads in any case."""
    if response.pointer or response.fields:
        raise ToolError(f"The answer of {_host(answer)} has more than {MAX_VALUES:,} values: ask for less of it.")
    return answer.text


def _empty(answer: Fetched) -> dict[str, Any]:
    shown = {name: answer.headers[name] for name in ("location", "content-type", "content-length", "etag")
             if name in answer.headers}  # fmt: skip
    return {"status": answer.status} | ({"headers": shown} if shown else {})


def _mapped(value: Any, response: HttpResponse, answer: Fetched) -> Any:
    try:
        return mapped(value, response)
    except NotInAnswer:
        keys = ", ".join(list(value)[:20]) if isinstance(value, dict) else f"a {type(value).__name__}"
        raise ToolError(
            f"The answer of {_host(answer)} has nothing at {response.pointer}. It has: {_one_line(keys)}."
        ) from None


def _cut(answer: Fetched, text: str, *, whole: bool = True) -> str:
    return text if whole and not answer.truncated else f"{text}\n\n(The answer was longer; the rest is left out.)"


def _file(answer: Fetched, kind: str) -> ToolResult:
    if answer.truncated:
        raise ToolError(f"{_host(answer)} answered with a file of more than {MAX_BYTES:,} bytes, which is not taken.")
    name = _file_name(answer, kind)
    line = f"A file came back: {name}, {kind or 'of no named type'}, {len(answer.body):,} bytes. It is kept for people."
    return ToolResult(line, files=(ResultFile(name, kind or "application/octet-stream", answer.body),))


def _file_name(answer: Fetched, kind: str) -> str:
    """Return the name that the far side gives the file, or the end of the address, in plain characters."""
    disposition = answer.headers.get("content-disposition", "")
    found = re.search(r'filename="?([^";]+)', disposition)
    name = found[1] if found else answer.url.partition("?")[0].rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[-100:]
    if "." not in name:
        name = (name or "file") + (mimetypes.guess_extension(kind) or "")
    return name


def _failure(answer: Fetched, credential: Credential, context: ToolContext, until: float) -> str:
    """Return one sentence: the status, when to try again, and the beginning of the far side's words on it."""
    try:
        status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
    except ValueError:
        status = str(answer.status)
    wait = _one_line(answer.headers.get("retry-after", ""))[:40]
    wait_text = duration(float(wait)) if wait.isdecimal() else wait
    again = f" It asks to wait: {wait_text}." if wait else ""
    error_text = _error_text(answer, credential, context, until)
    return f"{_host(answer)} answered with status {status}.{again}" + (f" It says: {error_text}" if error_text else "")


def _unsigned(answer: Fetched, request: HttpRequest, credential: Credential) -> str:
    """Return a sentence that no credential is set, where the far side asks who calls and nothing says it; else ""."""
    is_signed = credential.headers or credential.query or "authorization" in {name.lower() for name in request.headers}
    if answer.status != HTTPStatus.UNAUTHORIZED or is_signed:
        return ""
    return " No credential is set for it: an administrator chooses one on the tool's page."


def _error_text(answer: Fetched, credential: Credential, context: ToolContext, until: float) -> str:
    kind, text = media_type(answer), answer.text
    if kind and not is_text(kind):
        return ""
    text = masked_in(text, credential.secrets)  # before it is cut, or half a secret would be known by nobody as one
    if kind in PAGES:
        try:
            title, text, _ = readable(context, text, main=True, until=until, limit=ERROR_CHARS)
        except ToolError:
            return ""
        text = f"{title} {text}"
    return _one_line(text)


def _one_line(text: str) -> str:
    """The beginning of a text in one line, without what nobody sees."""
    seen = "".join(" " if is_unseen(each) else each for each in text[: ERROR_CHARS * 4])
    line = " ".join(seen.split())
    return line if len(line) <= ERROR_CHARS else f"{line[:ERROR_CHARS]}…"


def _host(answer: Fetched) -> str:
    return check_url(answer.url).host


# -- What may be saved -------------------------------------------------------------------------------------------------


def check_implementation(content: Content) -> None:
    """Raise ChangeRefused unless this can be a tool of kind HTTP; `field` says which part is at fault, such as
    `implementation.arguments.id`."""
    try:
        implementation = read_implementation(content.implementation)
        check_http(implementation, content.parameters)
    except ImplementationRefused as error:
        field = error.field if error.field == "implementation" else f"implementation.{error.field}"
        raise ChangeRefused(field, str(error)) from error
    check_address("implementation.url", PLACEHOLDER.sub("x", implementation.url))


def check_address(field: str, url: str) -> None:
    """Raise ChangeRefused for an address that no call would get through to, as far as it says so itself: names are
    looked up at each call."""
    try:
        parsed = check_url(url)
        try:
            ipaddress.ip_address(parsed.host)
        except ValueError:
            return
        Guard(purposes=(Purpose.TOOL,)).check(
            parsed.host, parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80)
        )
    except EgressRefused as error:
        raise ChangeRefused(field, str(error)) from error
