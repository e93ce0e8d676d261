"""Request of a client, whatever its protocol: checked, and in the form in which turns keep it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from capabilities.common.text import storable
from sessions.doors.gateway.errors import Invalid
from sessions.turns.accepting import MAX_MESSAGE

#: Characters of one text that is no message of the turn: an earlier message, a result, the instructions.
MAX_TEXT = 1_000_000
#: Messages, and tools, of one request.
MAX_MESSAGES = 2_000
MAX_TOOLS = 512
#: Characters of a tool's description.
MAX_DESCRIPTION = 20_000
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

Json = Mapping[str, Any]
Message = dict[str, Any]


@dataclass(frozen=True)
class GatewayRequest:
    """A request in the words of the house.

    `messages` are neutral, as `sessions/loop/conversation/history.py` makes them, without the system's; the last one is
    of the user, or a tool's result. Those of the user have the bytes of their images as `sent_images`.
    """

    agent: str
    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[Json] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    streams: bool = False
    #: True where later requests may name the answer's parts by their ids.
    is_stored: bool = True
    #: The turn that it goes on from, where the client names it.
    follows: UUID | None = None

    @property
    def images(self) -> list[bytes]:
        """Images of the user behind the last reply of the assistant."""
        return images_in(message for message in self._tail if message["role"] == "user")

    @property
    def results(self) -> Sequence[Message]:
        """The results behind the last reply of the assistant, where the client brings some."""
        return [message for message in self._tail if message["role"] == "tool"]

    @property
    def message(self) -> str:
        """Text of the user behind that reply; "" where there are results alone."""
        return "\n\n".join(message["content"] for message in self._tail if message["role"] == "user")

    @property
    def _tail(self) -> Sequence[Message]:
        replies = [place for place, message in enumerate(self.messages) if message["role"] == "assistant"]
        return self.messages[replies[-1] + 1 :] if replies else self.messages

    @property
    def has_results(self) -> bool:
        return any(message["role"] == "tool" for message in self.messages)


def images_in(messages: Iterable[Message]) -> list[bytes]:
    """Return the bytes of the images of these messages, in their order."""
    return [content for message in messages for content in message.get("sent_images", ())]


# -- Checks of single values -------------------------------------------------------------------------------------------


def text_of(value: Any, param: str, *, most: int = MAX_TEXT) -> str:
    """A text that can be stored. Raises Invalid."""
    if not isinstance(value, str):
        raise Invalid("This must be a text.", param, "invalid_type")
    if len(value) > most:
        raise Invalid(f"This is {len(value):,} characters long; at most {most:,} are taken.", param, "too_long")
    return storable(value)


def list_of(value: Any, param: str, *, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise Invalid("This must be a list.", param, "invalid_type")
    if len(value) > most:
        raise Invalid(f"This has {len(value):,} entries; at most {most:,} are taken.", param, "too_long")
    return value


def object_of(value: Any, param: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid("This must be an object.", param, "invalid_type")
    return value


def flag_of(body: Json, name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Invalid("This must be true or false.", name, "invalid_type")
    return bool(value)


def number_of(body: Json, name: str, least: float, most: float, *, whole: bool = False) -> float | int | None:
    """A number within its bounds; None where the request says none. Raises Invalid."""
    value = body.get(name)
    if value is None:
        return None
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise Invalid(f"This must be a {'whole ' if whole else ''}number.", name, "invalid_type")
    if not least <= value <= most:
        raise Invalid(f"This must be from {least:,} to {most:,}.", name, "invalid_value")
    return value


def plain_text(content: Any, param: str, kinds: Sequence[str], *, most: int = MAX_TEXT) -> str:
    """The text of a message's content: a text, or a list of parts of these types. Raises Invalid, in words for images
    and other parts that are no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return text_of(content, param, most=most)
    found = []
    for place, part in enumerate(list_of(content, param, most=MAX_MESSAGES)):
        kind = object_of(part, f"{param}.{place}").get("type")
        if kind not in kinds:
            raise Invalid(
                f"A part of the type {str(kind)[:40]!r} cannot be taken here, but text, and images in messages of the "
                "user: no audio or files.",
                f"{param}.{place}",
                "unsupported_content",
            )
        found.append(text_of(part.get("refusal" if kind == "refusal" else "text"), f"{param}.{place}", most=most))
    return text_of("\n".join(found), param, most=most)


def effort_of(value: Any, param: str) -> str:
    if value not in EFFORTS:
        raise Invalid(f"This must be one of {', '.join(EFFORTS)}.", param)
    return str(value)


# -- Tools -------------------------------------------------------------------------------------------------------------


def tool_of(function: Any, param: str) -> dict[str, Any]:
    """A definition as chat completions have it, of what both protocols call a function. Raises Invalid."""
    definition = object_of(function, param)
    name = definition.get("name")
    if not isinstance(name, str) or not TOOL_NAME.match(name):
        raise Invalid("A tool's name is 1 to 64 letters, digits, _ and -.", f"{param}.name")
    found: dict[str, Any] = {"name": name}
    if definition.get("description") is not None:
        found["description"] = text_of(definition["description"], f"{param}.description", most=MAX_DESCRIPTION)
    found["parameters"] = {"type": "object", "properties": {}}
    if definition.get("parameters") is not None:
        found["parameters"] = object_of(definition["parameters"], f"{param}.parameters")
    if isinstance(definition.get("strict"), bool):
        found["strict"] = definition["strict"]
    return {"type": "function", "function": found}


def check_names(tools: Sequence[Json]) -> None:
    """Raise Invalid where two tools have one name."""
    names = [tool["function"]["name"] for tool in tools]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise Invalid(f"Two tools are called {name}.", f"tools.{place}", "duplicate_tool")


# -- The whole ---------------------------------------------------------------------------------------------------------


def check_order(messages: Sequence[Message], param: str) -> None:
    """Raise Invalid where a call has no result, a result no call, or the last word is the assistant's."""
    if not messages:
        raise Invalid("Send at least one message of the user.", param)
    open_ids: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                raise Invalid(
                    f"This result answers the call {message['tool_call_id'][:80]}, and no message in front of it makes "
                    "that call.",
                    f"{param}.{place}",
                )
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            raise Invalid(f"The call {open_ids[0][:80]} has no result in front of this message.", f"{param}.{place}")
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
    if open_ids:
        raise Invalid(f"The call {open_ids[0][:80]} has no result.", param)
    if messages[-1]["role"] == "assistant":
        raise Invalid("The last message must be of the user or of a tool.", param)
    last = messages[-1]
    if last["role"] == "user":
        if not last["content"].strip():
            raise Invalid("The last message is empty.", param)
        text_of(last["content"], param, most=MAX_MESSAGE)
