"""The world around the service under test, as two small ASGI apps that each run in a process of their own.

`counter` counts what tools did: it is the witness, and remembers every execution with its key. `model` is a provider
that speaks the OpenAI protocol and always does the same: two tool calls in two rounds, or in one where the environment
says BENCHMARK_CALLS_A_REPLY=2, then an answer. With BENCHMARK_DIALECT=responses the provider refuses as
OpenAI's reasoning models do: tools in chat completions, and calls that come back without the reasoning before them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tests.scripted_openai import Say, call, rendered
from tests.vendors import openai_with_reasoning

Json = dict[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Seconds that an execution takes after it happened, and a model call.
TOOL_SECONDS = 0.1
MODEL_SECONDS = float(os.environ.get("BENCHMARK_MODEL_SECONDS") or 0.1)
#: Tool calls of one turn, and of one reply.
CALLS = 2
CALLS_A_REPLY = int(os.environ.get("BENCHMARK_CALLS_A_REPLY") or 1)
#: In responses: what stands for the reasoning in front of each reply.
SEALED = "gAAAA" + 40 * "0123456789abcdef"

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
    if not body:
        await answer(send, b"{}", "application/json")
        return
    path, request = scope["path"].removeprefix("/v1"), json.loads(body)
    refused = openai_with_reasoning(path, request) if os.environ.get("BENCHMARK_DIALECT") == "responses" else None
    raw = refused or rendered(reply_to(request), path)
    await answer(send, raw.body, raw.headers["Content-Type"], raw.status)


def reply_to(request: Json) -> Say:
    """The next reply: what the turn has done so far is all in its messages, or in its items."""
    items = request["messages"] if "messages" in request else request["input"]
    last_user = max(index for index, item in enumerate(items) if item.get("role") == "user")
    done = sum(
        "tool" in item.get("role", "") or item.get("type") == "function_call_output" for item in items[last_user:]
    )
    if done >= CALLS:
        return Say("Both marks are left.", reasoning=SEALED)
    numbers = range(done + 1, min(done + CALLS_A_REPLY, CALLS) + 1)
    marks = [
        call("leave_mark", {"label": f"{items[last_user]['content']}/{each}"}, id=f"call_{each}") for each in numbers
    ]
    return Say(calls=marks, reasoning=SEALED)


async def answer(send: Send, body: bytes, content_type: str, status: int = 200) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
