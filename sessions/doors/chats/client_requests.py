"""Content that a client of the gateway sent beside the message of a turn, as a page and REST show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions.models import ClientRequest
from sessions.models.gateway import name_of


@dataclass(frozen=True)
class ShownLimits:
    """Limits of what is shown: characters of one text, the last earlier messages, tools, and characters of a
    description; None for all."""

    chars: int | None = None
    messages: int | None = None
    tools: int | None = None
    line: int | None = None


ON_PAGE, WHOLE = ShownLimits(4_000, 100, 200, 160), ShownLimits()


@dataclass(frozen=True)
class SentMessage:
    role: str
    text: str


@dataclass(frozen=True)
class SentTool:
    name: str
    description: str


@dataclass(frozen=True)
class Sent:
    """A request with its texts cut: the last messages in front of the turn's own, and its tools."""

    instructions: str
    #: None where the session's stored turns stand in front.
    messages: Sequence[SentMessage] | None
    left_out: int
    tools: Sequence[SentTool]
    parameters: str
    is_cut: bool
    shown: ShownLimits


def sent_with(asked: ClientRequest, shown: ShownLimits = ON_PAGE) -> Sent:
    """Cut a request to the limits of `shown`. No query."""
    earlier = asked.earlier or []
    last = earlier[-shown.messages :] if shown.messages else earlier
    texts = [_text(message) for message in last]
    messages = [
        SentMessage(str(message["role"]), text[: shown.chars]) for message, text in zip(last, texts, strict=True)
    ]
    tools = [(name_of(tool), str(tool["function"].get("description", ""))) for tool in asked.tools[: shown.tools]]
    return Sent(
        instructions=asked.instructions[: shown.chars],
        messages=None if asked.earlier is None else messages,
        left_out=len(earlier) - len(last),
        tools=[SentTool(name, description[: shown.line]) for name, description in tools],
        parameters=json.dumps(asked.parameters, ensure_ascii=False)[: shown.chars],
        is_cut=any(len(text) > shown.chars for text in [asked.instructions, *texts]) if shown.chars else False,
        shown=shown,
    )


def _text(message: Mapping[str, Any]) -> str:
    """Return the words of a message, how many images it has, and the calls that it makes, each in a line."""
    calls = [f"{call['name']} {call['arguments']}" for call in map(_call, message.get("tool_calls", ()))]
    images = [f"[images: {len(message['files'])}]"] if message.get("files") else []
    return "\n".join(part for part in [str(message.get("content") or ""), *images, *calls] if part)


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function: Mapping[str, Any] = call.get("function", call)
    return function
