"""The chat-completions protocol over plain ASGI: HTTP and the shape of messages, not how a reply is found."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from itertools import takewhile
from typing import Any

from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model.replies import Reply, reply

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MODEL = "offline"
DOCUMENTS: dict[str, dict[str, Any]] = {
    "/healthz": {"status": "ok"},
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "toolhub"}]},
}
MOST_BODY = 16_000_000
#: Seconds between two words of a streamed answer.
WORD_SECONDS = float(os.environ.get("TOOLHUB_OFFLINE_WORD_SECONDS") or 0.02)
#: An answer of more words than this is written faster, so that it takes no longer than one of this many.
MOST_WORDS = 150
#: Stands in for a provider's prompt cache.
LAST_PROMPT = [""]


class Refusal(Exception):
    """Status, message, code and parameter of an answer in the protocol's error shape."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":  # nothing is to be started or ended
        return
    try:
        await _route(scope, receive, send)
    except Refusal as refusal:
        status, message, code, param = refusal.args
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        await _send_json(send, status, {"error": error})


async def _route(scope: Scope, receive: Receive, send: Send) -> None:
    method, path = scope["method"], scope["path"].rstrip("/")
    if path not in (*DOCUMENTS, "/v1/chat/completions"):
        raise Refusal(404, f"Unknown request URL: {method} {scope['path']}.", "unknown_url", None)
    if method != ("GET" if path in DOCUMENTS else "POST"):
        raise Refusal(405, f"Not allowed to {method} on {path}.", "method_not_allowed", None)
    if path in DOCUMENTS:
        await _send_json(send, 200, DOCUMENTS[path])
    else:
        await _complete(_checked(await _body(receive)), send)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > MOST_BODY:
            raise Refusal(413, f"The request is larger than {MOST_BODY} bytes.", None, None)
        if not event.get("more_body"):
            return bytes(body)


def _checked(body: bytes) -> dict[str, Any]:
    """The request. Raises Refusal where it is none that the protocol knows."""
    try:
        request = load_json(body)
    except ValueError:
        raise Refusal(400, "We could not parse the JSON body of your request.", None, None) from None
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refusal(400, "Missing required parameter: 'messages', a list of messages.", None, "messages")
    for name, kind in (("tools", list), ("stream_options", dict)):
        if not isinstance(request.get(name), kind | None):
            raise Refusal(400, f"Invalid type for '{name}'.", None, name)
    return dict(request)


async def _complete(request: Mapping[str, Any], send: Send) -> None:
    """Answer a request for a chat completion, streamed where it asks for that."""
    message = _message(reply(request))
    usage = _usage(request, message)
    model = request["model"] if isinstance(request.get("model"), str) else MODEL
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        await _send_json(send, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        return
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    pause = _pause(message["content"] or "")
    for chunk in _chunks(message, finish, usage if wants_usage else None):
        data = json.dumps({**head, "object": "chat.completion.chunk", **chunk}, ensure_ascii=False)
        await _send_piece(send, f"data: {data}\n\n")
        if pause and chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
            await asyncio.sleep(pause)
    await _send_piece(send, "data: [DONE]\n\n", more=False)


def _message(answer: Reply) -> dict[str, Any]:
    functions = [{"name": name, "arguments": json.dumps(each, ensure_ascii=False)} for name, each in answer.calls]
    calls = [{"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": each} for each in functions]
    message = {"role": "assistant", "content": answer.text or None, "refusal": None}
    return {**message, "tool_calls": calls} if calls else message


def _chunks(message: Mapping[str, Any], finish: str, usage: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The role, the pieces, the reason of the end, and the usage where it was asked for."""
    extra: dict[str, Any] = {} if usage is None else {"usage": None}
    for delta, end in [*((each, None) for each in _deltas(message)), ({}, finish)]:
        yield {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}], **extra}
    if usage is not None:
        yield {"choices": [], "usage": usage}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if "tool_calls" in message else "", "refusal": None}
    for word in _words(message["content"] or ""):
        yield {"content": word}
    for index, call in enumerate(message.get("tool_calls", [])):
        arguments = call["function"]["arguments"]
        yield {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
        for start in range(0, len(arguments), 24):
            yield {"tool_calls": [{"index": index, "function": {"arguments": arguments[start : start + 24]}}]}


def _words(text: str) -> list[str]:
    """The text in words, each with the space behind it; joined, they are the text."""
    return re.findall(r"\s*\S+\s*", text)


def _pause(text: str) -> float:
    """Seconds between two words of this text."""
    return WORD_SECONDS * min(1.0, MOST_WORDS / max(1, len(_words(text))))


async def _send_piece(send: Send, text: str, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": more})


async def _send_json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await _send_piece(send, json.dumps(body, ensure_ascii=False), more=False)


def _usage(request: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens, roughly: four characters each."""
    prompt = json.dumps([request.get("tools"), request["messages"]], ensure_ascii=False)
    functions = [call["function"] for call in message.get("tool_calls", [])]
    written = (message["content"] or "") + "".join(each["name"] + each["arguments"] for each in functions)
    prompt_tokens, completion_tokens = -(-len(prompt) // 4), -(-len(written) // 4)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": min(_cached(prompt), prompt_tokens)},
    }


def _cached(prompt: str) -> int:
    """Tokens of the beginning shared with the last prompt; as with providers, in steps of 128 and from 1,024 on."""
    steps = takewhile(
        lambda at: LAST_PROMPT[0][at : at + 512] == prompt[at : at + 512], range(0, len(prompt) - 511, 512)
    )
    tokens = 128 * len(list(steps))
    LAST_PROMPT[0] = prompt
    return tokens if tokens >= 1_024 else 0
