"""What a model said, made whole from whatever a provider sent: pieces, parts, gaps, nonsense. Knows no HTTP.

Nothing here raises on odd input: what cannot be used is left out, and the rest is made valid, so that the stored
history can always be sent again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capabilities.common.text import storable

#: Characters of an answer, and of one call's arguments, that are kept.
MAX_TEXT = 400_000
MAX_ARGUMENTS = 200_000
#: Calls of one reply that are kept at all; all of them are answered.
MAX_CALLS = 2_000
CALL_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")
#: Tokens that one model call can count; the largest windows hold 10 million.
MAX_TOKENS = 20_000_000


@dataclass(frozen=True)
class Call:
    """One tool call as the model asked for it: the name and the arguments are text from outside."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call, as the provider counted them; None where it did not, or not possibly."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Reply:
    text: str
    calls: tuple[Call, ...]
    finish_reason: str
    usage: Usage | None


@dataclass
class _Piece:
    order: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class ReplyBuilder:
    """Collects a reply from stream chunks (`add_chunk`) or from a whole completion (`add_completion`)."""

    _text: list[str] = field(default_factory=list)
    _length: int = 0
    _pieces: list[_Piece] = field(default_factory=list)
    #: The call that each index stands for now, and the one that came last.
    _by_index: dict[int, _Piece] = field(default_factory=dict)
    _last: _Piece | None = None
    #: The choice that is read, the first one that came.
    _choice: object = None
    finish_reason: str = ""
    usage: Usage | None = None
    #: Whether anything of use has come.
    spoke: bool = False
    chunks: int = 0

    def add_chunk(self, chunk: Any) -> str:
        """Take in one chunk; returns the text that it added."""
        self.chunks += 1
        if not isinstance(chunk, Mapping):
            return ""
        self._add_usage(chunk.get("usage"))
        choice = _first_choice(chunk)
        if not choice or not self._is_same(choice.get("index")):
            return ""
        delta = choice.get("delta")
        added = self._add_message(delta) if isinstance(delta, Mapping) else ""
        self._add_finish(choice)
        return added

    def add_completion(self, completion: Any) -> str:
        """Take in a reply that came whole, from a provider that does not stream; returns its text."""
        if not isinstance(completion, Mapping):
            return ""
        self._add_usage(completion.get("usage"))
        choice = _first_choice(completion)
        message = choice.get("message")
        added = self._add_message(message) if isinstance(message, Mapping) else ""
        self._add_finish(choice)
        return added

    def build(self) -> Reply:
        calls = tuple(
            Call(piece.id, piece.name, piece.arguments)
            for piece in sorted(self._pieces, key=lambda piece: piece.order)
            if piece.name or piece.arguments
        )
        return Reply(storable("".join(self._text)), calls[:MAX_CALLS], self.finish_reason, self.usage)

    def _add_message(self, message: Mapping[str, Any]) -> str:
        text = _text_of(message.get("content")) or _text_of(message.get("refusal"))
        if text:
            self.spoke = True
            text = text[: max(0, MAX_TEXT - self._length)]
            self._length += len(text)
            self._text.append(text)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            self._add_call(call)
        return text

    def _is_same(self, index: object) -> bool:
        if self._choice is None:
            self._choice = index
        return index is None or index == self._choice

    def _add_call(self, call: Any) -> None:
        if not isinstance(call, Mapping):
            return
        self.spoke = True
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        id, name = _line(call.get("id")), _line(function.get("name"))
        piece = self._last = self._piece_of(call.get("index"), id, name)
        piece.id = piece.id or id
        piece.name = piece.name or name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):  # as some local servers send them
            arguments = json.dumps(arguments)
        if isinstance(arguments, str):
            piece.arguments = (piece.arguments + arguments)[:MAX_ARGUMENTS]

    def _piece_of(self, index: Any, id: str, name: str) -> _Piece:
        """Which call this goes on with: by its index, else a new one where a name comes, else the last one.

        Some servers give every call the index 0: there, a name with another id begins another call.
        """
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 1_000_000:
            return self._last if self._last and not name else self._begin(len(self._pieces))
        known = self._by_index.get(index)
        if known is None or (name and known.name and id and known.id and id != known.id):
            known = self._by_index[index] = self._begin(index)
        return known

    def _begin(self, order: int) -> _Piece:
        piece = _Piece(order)
        self._pieces.append(piece)
        return piece

    def _add_finish(self, choice: Mapping[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = storable(reason, 40)

    def _add_usage(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
        sent, said = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if sent is not None and said is not None and sent > 0:
            self.usage = Usage(sent, min(cached or 0, sent), said)


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    return {}


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text_of(part.get("text")) for part in content if isinstance(part, Mapping))
    return ""


def _line(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
        return value
    return None
