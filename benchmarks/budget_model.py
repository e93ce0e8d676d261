"""A provider for budget_race.py, as an ASGI app in a process of its own: what it does, the user's message says.

hold      answers after some seconds, so that what is reserved for its calls is held meanwhile
stream    writes for a long time, but for a second try, which it answers at once
late      writes some words and falls over, answers the second try with a 500, and the third with an answer
broken    answers every try with a 500
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from benchmarks.world import Json, Receive, Send, answer
from tests.scripted_openai import Say, chunk, rendered, sse

#: Seconds that `hold` takes, and `stream`.
HOLD_SECONDS = 8.0
STREAM_SECONDS = 120.0
#: Seconds between two pieces of a stream.
PIECE_EVERY = 0.1
#: Times that each message came.
_tries: Counter[str] = Counter()


async def model(scope: Json, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if not body:
        await answer(send, b"{}", "application/json")
        return
    request = json.loads(body)
    items = request["messages"] if "messages" in request else request["input"]
    said = next(item["content"] for item in reversed(items) if item.get("role") == "user")
    what, tries = said.partition(" ")[0], _tries[said]
    _tries[said] += 1
    if what == "broken" or (what == "late" and tries == 1):
        await answer(send, b'{"error": {"message": "Broken."}}', "application/json", 500)
    elif what == "late" and tries == 0:
        error = {"error": {"message": "Overloaded.", "type": "server_error", "code": None}}
        await answer(send, sse(chunk({"content": "Some words"}), error, done=False), "text/event-stream")
    elif what == "stream" and tries == 0:
        await stream(send)
    else:
        if what == "hold":
            await asyncio.sleep(HOLD_SECONDS)
        raw = rendered(Say("Done."), scope["path"].removeprefix("/v1"))
        await answer(send, raw.body, raw.headers["Content-Type"], raw.status)


async def stream(send: Send) -> None:
    """Words in chat completions, until nobody listens or the time is up."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(int(STREAM_SECONDS / PIECE_EVERY)):
        await send(
            {"type": "http.response.body", "body": sse(chunk({"content": "word "}), done=False), "more_body": True}
        )
        await asyncio.sleep(PIECE_EVERY)
    await send({"type": "http.response.body", "body": sse(done=True)})
