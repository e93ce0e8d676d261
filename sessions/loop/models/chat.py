"""Chat completions: the request's bytes, and how a reply is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capabilities.models import Dialect
from sessions.loop.models.replies import MAX_EXTRAS, Piece, ReplyReader, line, text_of
from sessions.loop.models.requests import CallSettings, given, written

PATH = "/chat/completions"
#: Where a request has its conversation.
CONVERSATION = "messages"
#: Fields of a message that only its own vendor can read, and wants back: DeepSeek's and other local servers' thoughts,
#: OpenRouter's, and Gemini's signatures, which stand in each call too.
THOUGHTS = ("reasoning_content", "reasoning_details", "extra_content")
OF_CALL = "extra_content"
#: What Gemini takes in place of the signature of a call that it did not make (its guide to thought signatures).
NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
#: Entries of `reasoning_details` come in pieces, of which these fields are put together.
_JOINED = ("text", "summary", "data", "signature")


@dataclass
class ChatReader(ReplyReader):
    dialect = Dialect.CHAT

    #: The call that each index stands for now, and the one that came last.
    _by_index: dict[int, Piece] = field(default_factory=dict)
    _last: Piece | None = None
    #: The choice that is read, the first one that came.
    _choice: object = None
    #: Thoughts as they came, and how much of them is kept at most: they are of use whole or not at all.
    _thoughts: dict[str, list[Any]] = field(default_factory=dict)
    _room: int = MAX_EXTRAS

    def add_event(self, event: Any) -> str:
        self.events += 1
        if not isinstance(event, Mapping):
            return ""
        self.add_usage(event.get("usage"))
        self.add_model(event.get("model"))
        choice = _first_choice(event)
        if not choice or not self._is_same(choice.get("index")):
            return ""
        delta = choice.get("delta")
        added = self._add_message(delta) if isinstance(delta, Mapping) else ""
        self.add_finish(choice.get("finish_reason"))
        return added

    def add_whole(self, answer: Any) -> str:
        if not isinstance(answer, Mapping):
            return ""
        self.events += "choices" in answer
        self.add_usage(answer.get("usage"))
        self.add_model(answer.get("model"))
        choice = _first_choice(answer)
        message = choice.get("message")
        added = self._add_message(message) if isinstance(message, Mapping) else ""
        self.add_finish(choice.get("finish_reason"))
        return added

    def extras(self, kept: list[Piece]) -> dict[str, Any]:
        thoughts = {name: _joined(pieces) for name, pieces in self._thoughts.items()} if self._room else {}
        calls = {str(place): piece.extras for place, piece in enumerate(kept) if piece.extras}
        return {name: value for name, value in (("message", thoughts), ("calls", calls)) if value}

    def _add_message(self, message: Mapping[str, Any]) -> str:
        added = self.add_text(text_of(message.get("content")) or text_of(message.get("refusal")))
        self.add_thought(message.get("reasoning_content") or message.get("reasoning"))
        for name in THOUGHTS:
            if message.get(name) and self._room:
                self._room = max(0, self._room - _length(message[name]))
                self._thoughts.setdefault(name, []).append(message[name])
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            self._add_call(call)
        return added

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
        id, name = line(call.get("id")), line(function.get("name"))
        piece = self._last = self._piece_of(call.get("index"), id, name)
        piece.id = piece.id or id
        piece.name = piece.name or name
        piece.add_arguments(function.get("arguments"))
        if call.get(OF_CALL):
            piece.extras[OF_CALL] = call[OF_CALL]

    def _piece_of(self, index: Any, id: str, name: str) -> Piece:
        """Which call this goes on with: by its index, else a new one where a name comes, else the last one.

        Some servers give every call the index 0: there, a name with another id begins another call.
        """
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 1_000_000:
            return self._last if self._last and not name else self.add_piece(len(self.pieces))
        known = self._by_index.get(index)
        if known is None or (name and known.name and id and known.id and id != known.id):
            known = self._by_index[index] = self.add_piece(index)
        return known


def _length(value: Any) -> int:
    """Characters that it takes as JSON, about."""
    return len(value) if isinstance(value, str) else len(json.dumps(value))


def _joined(pieces: list[Any]) -> Any:
    """Thoughts that came in pieces: strings are put together, entries of lists by their index; of others the last
    counts."""
    if all(isinstance(each, str) for each in pieces):
        return "".join(pieces)
    if all(isinstance(each, list) for each in pieces):
        return _joined_entries([entry for each in pieces for entry in each])
    return pieces[-1]


def _joined_entries(pieces: list[Any]) -> list[Any]:
    entries: list[Any] = []
    for entry in pieces:
        last = entries[-1] if entries else None
        if last is None or not _is_more_of(last, entry):
            entries.append(entry)
            continue
        whole = {**last, **{name: value for name, value in entry.items() if value is not None}}
        for name in _JOINED:
            if isinstance(last.get(name), str) and isinstance(entry.get(name), str):
                whole[name] = last[name] + entry[name]
        entries[-1] = whole
    return entries


def _is_more_of(last: Any, entry: Any) -> bool:
    if not isinstance(last, Mapping) or not isinstance(entry, Mapping) or "index" not in entry:
        return False
    return all(last.get(name) == entry.get(name) for name in ("index", "type"))


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    return {}


READER: type[ReplyReader] = ChatReader


# -- The request ------------------------------------------------------------------------------------------------------


def parts(
    messages: Sequence[Mapping[str, Any]], filled: frozenset[str] = frozenset(), **of_responses: Any
) -> list[str]:
    """Each message as it goes out, as JSON: the neutral ones are chat messages but for their `extras`.

    `filled` names what replies must have that this model did not give itself.
    """
    whole = (_with_extras(each, filled) if each["role"] == "assistant" else each for each in messages)
    return [written(message) for message in whole]


def parameters(settings: CallSettings) -> dict[str, Any]:
    """What a request says beside its messages and tools, under the names that are documented."""
    return {
        "model": settings.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        settings.vendor.output_limit: settings.max_output_tokens,
        **given(
            reasoning_effort=settings.reasoning_effort,
            temperature=settings.temperature,
            parallel_tool_calls=settings.parallel_tool_calls,
            prompt_cache_key=settings.cache_key,
        ),
    }


def tools_of(wire: str) -> str:
    """Definitions are stored in this dialect."""
    return wire


def _with_extras(message: Mapping[str, Any], filled: frozenset[str]) -> Mapping[str, Any]:
    extras = message.get("extras", {})
    if not extras and not filled:
        return message
    whole: dict[str, Any] = {name: value for name, value in message.items() if name != "extras"}
    whole |= extras.get("message", {})
    calls = extras.get("calls", {})
    if "reasoning_content" in filled:
        whole.setdefault("reasoning_content", "")
    if "thought_signature" in filled and not calls:
        calls = {"0": {OF_CALL: NO_SIGNATURE}}
    if calls and whole.get("tool_calls"):
        whole["tool_calls"] = [{**call, **calls.get(str(place), {})} for place, call in enumerate(whole["tool_calls"])]
    return whole
