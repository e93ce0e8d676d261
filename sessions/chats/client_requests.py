"""What a client of the gateway sent beside the message of a turn, as a page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions.models import ClientRequest
from sessions.models.gateway import name_of

#: Characters of one text, and earlier messages and tools, that the page shows.
SHOWN_CHARS, MESSAGES_SHOWN, TOOLS_SHOWN = 4_000, 100, 200
#: Characters of a tool's description.
LINE_CHARS = 160


@dataclass(frozen=True)
class SentMessage:
    role: str
    text: str


@dataclass(frozen=True)
class Sent:
    """A request with its texts cut: the last messages in front of the turn's own, and its tools by name and
    description."""

    instructions: str
    messages: Sequence[SentMessage]
    left_out: int
    tools: Sequence[tuple[str, str]]
    parameters: str
    is_cut: bool
    most: int = SHOWN_CHARS


def sent_with(asked: ClientRequest) -> Sent:
    """No query."""
    earlier = asked.earlier or []
    texts = [_text(message) for message in earlier[-MESSAGES_SHOWN:]]
    shown = earlier[-MESSAGES_SHOWN:]
    messages = [
        SentMessage(str(message["role"]), text[:SHOWN_CHARS]) for message, text in zip(shown, texts, strict=True)
    ]
    tools = [(name_of(tool), str(tool["function"].get("description", ""))) for tool in asked.tools[:TOOLS_SHOWN]]
    return Sent(
        instructions=asked.instructions[:SHOWN_CHARS],
        messages=messages,
        left_out=len(earlier) - len(shown),
        tools=[(name, description[:LINE_CHARS]) for name, description in tools],
        parameters=json.dumps(asked.parameters, ensure_ascii=False)[:SHOWN_CHARS],
        is_cut=any(len(text) > SHOWN_CHARS for text in [asked.instructions, *texts]),
    )


def _text(message: Mapping[str, Any]) -> str:
    """Its words, and the calls that it makes, each in a line."""
    calls = [f"{call['name']} {call['arguments']}" for call in map(_call, message.get("tool_calls", ()))]
    return "\n".join(part for part in [str(message.get("content") or ""), *calls] if part)


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function: Mapping[str, Any] = call.get("function", call)
    return function
