"""The world around the service under test, as two small ASGI apps that each run in a process of their own.

`counter` counts what tools did: it is the witness, and remembers every execution with its key. `model` is a provider
that speaks the OpenAI protocol and always does the same: two tool calls in two rounds, then an answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Json = dict[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Seconds that an execution takes after it happened, and a model call.
TOOL_SECONDS = 0.1
MODEL_SECONDS = 0.1
#: Tool calls of one turn.
CALLS = 2

marks: list[Json] = []


async def counter(scope: Json, receive: Receive, send: Send) -> None:
    """POST /marks/<label> happens at once and answers late; GET /marks tells all that happened, in order."""
    if scope["type"] != "http":
        return
    if scope["method"] == "POST":
        headers = dict(scope["headers"])
        label = scope["path"].removeprefix("/marks/")
        marks.append({"key": headers[b"idempotency-key"].decode(), "label": label, "at": time.time()})
        await asyncio.sleep(TOOL_SECONDS)
        await answer(send, b"{}", "application/json")
    else:
        await answer(send, json.dumps(marks).encode(), "application/json")


async def model(scope: Json, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await asyncio.sleep(MODEL_SECONDS)
    chunks = [chunk(delta) for delta in reply_to(json.loads(body)["messages"])] if body else []
    events = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)
    await answer(send, f"{events}data: [DONE]\n\n".encode(), "text/event-stream")


def reply_to(messages: list[Json]) -> list[Json]:
    """The deltas of the next reply: what the turn has done so far is all in its messages."""
    last_user = max(index for index, message in enumerate(messages) if message["role"] == "user")
    done = sum(message["role"] == "tool" for message in messages[last_user:])
    if done >= CALLS:
        return [{"content": "Both marks are "}, {"content": "left."}, {}]
    arguments = json.dumps({"label": f"{messages[last_user]['content']}/{done + 1}"})
    function = {"name": "leave_mark", "arguments": arguments}
    return [{"tool_calls": [{"index": 0, "id": f"call_{done + 1}", "type": "function", "function": function}]}, {}]


def chunk(delta: Json) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}} if not delta else {}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **usage}


async def answer(send: Send, body: bytes, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
