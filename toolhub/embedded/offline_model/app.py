"""The chat-completions protocol over plain ASGI: requests in, JSON or a stream of events out.

Knows HTTP and the shape of the messages, and nothing of how a reply is found.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from itertools import takewhile
from typing import Any

from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model.replies import Reply, reply

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MODEL = "offline"
MOST_BODY = 16_000_000
STARTED = int(time.time())
#: Seconds between two words of a streamed answer.
WORD_SECONDS = float(os.environ.get("TOOLHUB_OFFLINE_WORD_SECONDS") or 0.02)
#: An answer of more words than this is written faster, so that it takes no longer than one of this many.
MOST_WORDS = 150
#: Prompts seen of late, by how they begin: stands in for a provider's prompt cache.
PROMPTS_KEPT = 64


class Refusal(Exception):
    """An answer in the protocol's error shape."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http":
        try:
            await _route(scope, receive, send)
        except Refusal as refusal:
            await _send_json(send, refusal.status, refusal.body)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


async def _route(scope: Scope, receive: Receive, send: Send) -> None:
    method, path = scope["method"], scope["path"].rstrip("/")
    routes = {"/healthz": "GET", "/v1/models": "GET", "/v1/chat/completions": "POST"}
    if path not in routes:
        raise Refusal(404, f"Unknown request URL: {method} {scope['path']}.", code="unknown_url")
    if routes[path] != method:
        raise Refusal(405, f"Not allowed to {method} on {path}.", code="method_not_allowed")
    if path == "/healthz":
        await _send_json(send, 200, {"status": "ok"})
    elif path == "/v1/models":
        model = {"id": MODEL, "object": "model", "created": STARTED, "owned_by": "toolhub"}
        await _send_json(send, 200, {"object": "list", "data": [model]})
    else:
        await _complete(_checked(await _body(receive)), send)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > MOST_BODY:
            raise Refusal(413, f"The request is larger than {MOST_BODY} bytes.")
        if not event.get("more_body"):
            return bytes(body)


def _checked(body: bytes) -> dict[str, Any]:
    """The request. Raises Refusal where it is none that the protocol knows."""
    try:
        request = load_json(body)
    except ValueError:
        raise Refusal(400, "We could not parse the JSON body of your request.") from None
    if not isinstance(request, dict):
        raise Refusal(400, "The body must be a JSON object.")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refusal(400, "Missing required parameter: 'messages', a list of messages.", param="messages")
    for name, kind in (("tools", list), ("stream_options", dict)):
        if not isinstance(request.get(name), kind | None):
            raise Refusal(400, f"Invalid type for '{name}'.", param=name)
    return request


async def _complete(request: Mapping[str, Any], send: Send) -> None:
    answer = reply(request)
    message = _message(answer)
    usage = _usage(request, message)
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": request["model"] if isinstance(request.get("model"), str) else MODEL,
    }
    finish = "tool_calls" if answer.calls else "stop"
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        await _send_json(send, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        return
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    pause = _pause(message["content"] or "")
    for chunk in _chunks(message, finish, usage if wants_usage else None):
        await _send_event(send, json.dumps({**head, "object": "chat.completion.chunk", **chunk}, ensure_ascii=False))
        if pause and chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
            await asyncio.sleep(pause)
    await _send_event(send, "[DONE]")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _message(answer: Reply) -> dict[str, Any]:
    if not answer.calls:
        return {"role": "assistant", "content": answer.text, "refusal": None}
    calls = [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in answer.calls
    ]
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}


# -- Streaming -------------------------------------------------------------------------------------------------------


def _chunks(message: Mapping[str, Any], finish: str, usage: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The role, the pieces, the reason of the end, and the usage where it was asked for."""
    extra: dict[str, Any] = {} if usage is None else {"usage": None}
    for delta in _deltas(message):
        yield {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], **extra}
    yield {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}], **extra}
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


async def _send_event(send: Send, data: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


async def _send_json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


# -- Usage -----------------------------------------------------------------------------------------------------------

_prompts: OrderedDict[str, str] = OrderedDict()


def _usage(request: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens, roughly: four characters each."""
    prompt = json.dumps([request.get("tools"), request["messages"]], ensure_ascii=False)
    spoken = (message["content"] or "") + "".join(
        call["function"]["name"] + call["function"]["arguments"] for call in message.get("tool_calls", [])
    )
    prompt_tokens, completion_tokens = _tokens(prompt), _tokens(spoken)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": min(_cached(prompt), prompt_tokens)},
    }


def _tokens(text: str) -> int:
    return (len(text) + 3) // 4


def _cached(prompt: str) -> int:
    """Tokens of the prefix shared with the last prompt that began like this one, in steps of 128 as providers count.

    Below 1,024 tokens nothing is cached, which is also what providers do.
    """
    key = prompt[:256]
    last = _prompts.pop(key, "")
    _prompts[key] = prompt
    if len(_prompts) > PROMPTS_KEPT:
        _prompts.popitem(last=False)
    steps = takewhile(lambda at: last[at : at + 512] == prompt[at : at + 512], range(0, len(prompt) - 511, 512))
    tokens = 128 * len(list(steps))
    return tokens if tokens >= 1_024 else 0
