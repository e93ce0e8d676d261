"""A provider that answers at once: it speaks the OpenAI protocol from a script, in a process of its own.

    python benchmarks/instant_model.py PORT

A request whose last message is a tool's result, or that wants no call (`tool_choice`), gets an answer, any other one
call of the first tool that it carries.
GET /tools/N is the `tools` array of the last request with N tools, byte for byte. It imports nothing but the standard
library and costs about half a millisecond a request, so that it takes little from those who are measured beside it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

Json = dict[str, Any]

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
ANSWER = "The sum is 42 euros."
ARGUMENTS = json.dumps({"amount": 42})


class Provider(asyncio.Protocol):
    """One connection, kept open as long as the other side likes."""

    #: Of the last request with so many tools.
    tools: dict[int, bytes] = {}  # noqa: RUF012 -- one for all connections
    calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.read = transport, b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        while (end := self.read.find(b"\r\n\r\n")) >= 0:
            head = self.read[:end].decode("latin-1")
            lines = [line.partition(":") for line in head.split("\r\n")[1:]]
            length = next((int(value) for name, _, value in lines if name.lower() == "content-length"), 0)
            if len(self.read) < end + 4 + length:
                return
            body, self.read = self.read[end + 4 : end + 4 + length], self.read[end + 4 + length :]
            content_type, content = answer(head.split(" ", 2)[1], body)
            self.transport.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
                + content
            )


def answer(path: str, body: bytes) -> tuple[str, bytes]:
    """Content type and content."""
    if not body:
        return "application/json", Provider.tools.get(int(path.rpartition("/")[2] or 0), b"[]")
    request = json.loads(body)
    tools = request.get("tools", [])
    if request.get("stream"):
        Provider.tools[len(tools)] = json.dumps(tools).encode()
    Provider.calls += 1
    message: Json = {"role": "assistant", "content": ANSWER}
    if tools and request["messages"][-1]["role"] != "tool" and request.get("tool_choice") != "none":
        function = {"name": tools[0]["function"]["name"], "arguments": ARGUMENTS}
        call = {"id": f"call_{Provider.calls}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    if request.get("stream"):
        return "text/event-stream", streamed(message)
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return "application/json", json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    ).encode()


def streamed(message: Json) -> bytes:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    delta = {"role": "assistant", "tool_calls": calls} if calls else message
    chunks: list[Json] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]},
        {"choices": [], "usage": USAGE},
    ]
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = "".join(f"data: {json.dumps({**frame, **chunk})}\n\n" for chunk in chunks)
    return f"{events}data: [DONE]\n\n".encode()


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
