"""Chat completions: the request's bytes, and how a reply is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capabilities.models import Dialect
from sessions.loop.clients.finishing import finish_of, stronger
from sessions.loop.clients.replies import MAX_EXTRAS, Piece, ReplyReader, line, text_of
from sessions.loop.clients.requests import CallSettings, given, image_url, written

PATH = "/chat/completions"
#: Where a request has its conversation.
CONVERSATION = "messages"
#: Fields of a message that only its own vendor can read, and wants back: DeepSeek's and other local servers' thoughts,
#: OpenRouter's, and Gemini's signatures, which stand in each call too.
THOUGHTS = ("reasoning_content", "reasoning_details", "extra_content")
OF_CALL = "extra_content"
#: Value that Gemini takes in place of the signature of a call that it did not make (its guide to thought signatures).
NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
#: Entries of `reasoning_details` come in pieces, of which these fields are put together.
_JOINED = ("text", "summary", "data", "signature")


@dataclass
class ChatReader(ReplyReader):
    dialect = Dialect.CHAT

    #: The call that each id and each index stands for now, and the one that came last.
    _by_id: dict[str, Piece] = field(default_factory=dict)
    _by_index: dict[int, Piece] = field(default_factory=dict)
    _last: Piece | None = None
    #: The choices that words and calls are read of, the first ones that had any, and why each choice ended.
    _speaks: int | None = None
    _calls: int | None = None
    _ends: dict[int, str] = field(default_factory=dict)
    #: The words as they came, thoughts and calls in them too; and whether they came in messages, and not in pieces.
    _whole: list[str] = field(default_factory=list)
    _is_of_messages: bool = False
    #: Thoughts as they came, and how much of them is kept at most: they are of use whole or not at all.
    _thoughts: dict[str, list[Any]] = field(default_factory=dict)
    _room: int = MAX_EXTRAS

    def add_event(self, event: Any) -> str:
        self.events += 1
        return self._add_answer(event)

    def add_whole(self, answer: Any) -> str:
        answer = _unwrapped(answer)
        self.events += isinstance(answer, Mapping) and (
            "choices" in answer or isinstance(answer.get("message"), Mapping)
        )
        return self._add_answer(answer)

    def _add_answer(self, answer: Any) -> str:
        """Either form: some providers send a whole message in a stream."""
        answer = _unwrapped(answer)
        if not isinstance(answer, Mapping):
            return ""
        for counted in (answer.get("x_groq"), answer):
            self.add_usage(counted.get("usage") if isinstance(counted, Mapping) else None)
        self.add_model(answer.get("model"))
        choices = _choices(answer)
        added = "".join([self._add_choice(place, each) for place, each in enumerate(choices)])
        if not choices:
            self.add_finish(answer.get("finish_reason"))
        return added

    def _add_choice(self, place: int, choice: Mapping[str, Any]) -> str:
        """Some providers split a reply into choices: words are read of the first that has any, and calls likewise."""
        number = choice.get("index")
        number = number if isinstance(number, int) else place
        self.add_usage(choice.get("usage"))
        delta, message = choice.get("delta"), choice.get("message")
        added = self._add_message(delta, number) if isinstance(delta, Mapping) and delta else ""
        if isinstance(message, Mapping):
            added += self._add_message(self._rest_of(message), number, is_whole=True)
            self._is_of_messages = self._is_of_messages or not isinstance(delta, Mapping)
        elif isinstance(choice.get("text"), str):
            added += self._add_message({"content": choice["text"]}, number)
        new = finish_of(*_reasons(choice))
        self._ends[number] = stronger(self._ends.get(number, ""), new) if new else self._ends.get(number, "")
        read = self._speaks if self._calls is None else self._calls
        end = self._ends[number if read is None else read] if read in (None, *self._ends) else ""
        self.finish_reason = ""
        self.add_finish(end or next(filter(None, self._ends.values()), ""))
        return added

    def _rest_of(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A whole message without what came before it, in pieces or in a message that goes on in this one."""
        if not self.spoke:
            return message
        content = text_of(message.get("content"))
        before = "".join(self._whole)
        if content.startswith(before):
            content = content[len(before) :]
        elif not self._is_of_messages:
            content = ""
        return {"content": content, "tool_calls": message.get("tool_calls") if not self.pieces else None}

    def extras(self, kept: list[Piece]) -> dict[str, Any]:
        thoughts = {name: _joined(pieces) for name, pieces in self._thoughts.items()} if self._room else {}
        calls = {str(place): piece.extras for place, piece in enumerate(kept) if piece.extras}
        return {name: value for name, value in (("message", thoughts), ("calls", calls)) if value}

    def _add_message(self, message: Mapping[str, Any], choice: int, *, is_whole: bool = False) -> str:
        added, text = "", text_of(message.get("content")) or text_of(message.get("refusal"))
        if text and self._speaks is None:
            self._speaks = choice
        if self._speaks in (None, choice):
            added = self.add_written(text)
            self._whole.append(text)
        self.add_thought(message.get("reasoning_content") or message.get("reasoning"))
        for name in THOUGHTS:
            if message.get(name) and self._room:
                self._room = max(0, self._room - _length(message[name]))
                self._thoughts.setdefault(name, []).append(message[name])
        calls = message.get("tool_calls")
        if isinstance(message.get("function_call"), Mapping) and not calls:
            calls = [{"index": 0, "function": message["function_call"]}]
        if isinstance(calls, list) and calls and self._calls is None:
            self._calls = choice
        own_calls = calls if isinstance(calls, list) and self._calls == choice else []
        for place, call in enumerate(own_calls):
            if is_whole:  # each is a call by itself, whatever it is numbered
                self._last, self._by_id, self._by_index = None, {}, {}
            self._add_call(call, place if len(own_calls) > 1 else None)
        return added

    def _add_call(self, call: Any, place: int | None) -> None:
        """`place` stands for an index that is missing, where an event has several."""
        if not isinstance(call, Mapping):
            return
        self.spoke = True
        function = call.get("function")
        function = function if isinstance(function, Mapping) else call
        id, name = line(call.get("id")), line(function.get("name"))
        arguments = next((function[each] for each in ("arguments", "parameters", "input") if function.get(each)), None)
        piece = self._last = self._piece_of(call.get("index", place), id, name, arguments)
        piece.id = piece.id or id
        piece.name = self._name_of(piece, name)
        if id:
            self._by_id.setdefault(id, piece)
        piece.add_arguments(arguments)
        if call.get(OF_CALL):
            piece.extras[OF_CALL] = call[OF_CALL]

    def _name_of(self, piece: Piece, name: str) -> str:
        """The name that a call has by now: some servers send it in pieces, too, or longer each time."""
        if not piece.name or piece.name in self.names():
            return piece.name or name
        longer = next((each for each in (name, piece.name + name) if self._begins_name(each)), "")
        return longer if longer.startswith(piece.name) else piece.name

    def _begins_name(self, name: str) -> bool:
        return any(each.startswith(name) for each in self.names())

    def _piece_of(self, index: Any, id: str, name: str, arguments: Any) -> Piece:
        """Return the call that this fragment goes on with: by its id, else its index, else its name, else the last one.

        Some servers give every call the index 0, some the same id, some number fragments in place of calls, and some
        repeat the name in each: what follows a whole call under a name is another call.
        """
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 1_000_000:
            index = None
        known = self._by_id.get(id) if id else None
        if known is not None and not self._is_next(known, index, name, arguments):
            return known
        if index is not None:
            at = self._by_index.get(index)
            if at is None or self._is_other(at, id, name, arguments):
                at = self._by_index[index] = self.add_piece(index)
            return at
        if known is not None or (id and name) or self._last is None:
            return self.add_piece(len(self.pieces))
        if name and (name != self._last.name or not arguments or self._last.is_complete):
            return self.add_piece(len(self.pieces))
        return self._last

    def _is_next(self, known: Piece, index: int | None, name: str, arguments: Any) -> bool:
        """Return whether a fragment under the id of a call begins another one all the same."""
        at = self._by_index.get(index) if index is not None else None
        if index is None or at is known:
            is_same = name == known.name and arguments in (None, "", known.arguments)
            return bool(name) and not is_same and known.is_complete
        if at is not None:
            return at.id in ("", known.id)
        return bool(name) and (not known.arguments or known.is_complete)

    def _is_other(self, known: Piece, id: str, name: str, arguments: Any) -> bool:
        """Return whether a fragment at the index of a call begins another one."""
        if not name or not known.name:
            return False
        if id and known.id and id != known.id:  # some give each fragment an id of its own
            goes_on = isinstance(arguments, str) and arguments and arguments.lstrip()[:1] != "{"
            return not (goes_on and known.arguments and name == known.name and not known.is_complete)
        if id and known.id:
            return False
        longer = name if name.startswith(known.name) else known.name + name
        is_more = not known.arguments and known.name not in self.names() and self._begins_name(longer)
        return known.is_complete if name == known.name else not is_more


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


def _choices(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the choices of an answer; an answer without any, but with a message (Ollama's own form), is read as
    one."""
    choices = answer.get("choices")
    if isinstance(choices, list):
        return [each for each in choices if isinstance(each, Mapping)]
    ended = answer.get("done_reason") or ("stop" if answer.get("done") is True else None)
    if isinstance(answer.get("message"), Mapping):
        return [{"delta": answer["message"], "finish_reason": ended}]
    return [{"finish_reason": ended}] if ended else []


def _unwrapped(answer: Any) -> Any:
    """Some proxies put the answer into another object."""
    for name in ("data", "result"):
        inner = answer.get(name) if isinstance(answer, Mapping) and "choices" not in answer else None
        if isinstance(inner, Mapping) and "choices" in inner:
            return inner
    return answer


def _reasons(choice: Mapping[str, Any]) -> tuple[Any, Any]:
    """Why a choice ended, and what else says so: some servers say it in the delta, or by another name."""
    delta = choice.get("delta")
    places = [choice, delta] if isinstance(delta, Mapping) else [choice]
    found = [each[name] for each in places for name in ("finish_reason", "finishReason") if each.get(name)]
    return found[0] if found else None, choice.get("native_finish_reason") or choice.get("stop_reason")


READER: type[ReplyReader] = ChatReader


# -- The request ------------------------------------------------------------------------------------------------------


def parts(
    messages: Sequence[Mapping[str, Any]], filled: frozenset[str] = frozenset(), **of_responses: Any
) -> list[str]:
    """Each message as it goes out, as JSON: the neutral ones are chat messages but for their `extras`.

    `filled` names what replies must have that this model did not give itself.
    """
    whole = (_with_extras(each, filled) if each["role"] == "assistant" else each for each in messages)
    return [written(_with_images(message) if "images" in message else message) for message in whole]


def _with_images(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its text and its images as parts."""
    images = [{"type": "image_url", "image_url": {"url": image_url(each)}} for each in message["images"]]
    return {"role": message["role"], "content": [{"type": "text", "text": message["content"]}, *images]}


def parameters(settings: CallSettings) -> dict[str, Any]:
    """Build the fields of a request beside its messages and tools, under the names that are documented."""
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
