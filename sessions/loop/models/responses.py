"""Responses, without state at the provider: the request's bytes, and how a reply is read.

A reasoning model's thoughts come as items, encrypted, in front of the message or the calls that they led to; the next
request must hold them in the same place. `Reply.extras` keeps the order of all items of a reply: reasoning items whole,
messages and calls as places, whose text and arguments are those of the stored step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from capabilities.models import Dialect
from sessions.loop.models.replies import Piece, ReplyReader, line
from sessions.loop.models.requests import CallSettings, given

PATH = "/responses"
#: How a response ends, as the reason to finish that chat completions name.
_INCOMPLETE = {"max_output_tokens": "length", "max_tokens": "length"}


@dataclass
class _Item:
    """One item of the output."""

    type: str = ""
    id: str = ""
    phase: str = ""
    #: Characters of a message.
    chars: int = 0
    call: Piece | None = None
    reasoning: Mapping[str, Any] | None = None


@dataclass
class ResponsesReader(ReplyReader):
    dialect = Dialect.RESPONSES

    _items: dict[int, _Item] = field(default_factory=dict)
    #: The place of an item whose events name it by its id alone.
    _places: dict[str, int] = field(default_factory=dict)

    def add_event(self, event: Any) -> str:
        if not isinstance(event, Mapping):
            return ""
        kind = line(event.get("type"))
        if kind.startswith("response."):
            self.events += 1
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                return self._add_to_message(self._item_of(event), line(event.get("delta")))
            case "response.function_call_arguments.delta":
                self._call_of(self._item_of(event)).add_arguments(event.get("delta"))
            case "response.function_call_arguments.done":
                self._end_call(self._item_of(event), event)
            case "response.output_item.added" | "response.output_item.done":
                return self._add_item(self._item_of(event), event.get("item"), is_whole=kind.endswith("done"))
            case "response.completed" | "response.incomplete":
                return self._end(event.get("response"))
        return ""

    def add_whole(self, answer: Any) -> str:
        if not isinstance(answer, Mapping):
            return ""
        self.events += isinstance(answer.get("output"), list)
        return self._end(answer)

    def extras(self, kept: list[Piece]) -> dict[str, Any]:
        places = {id(piece): place for place, piece in enumerate(kept)}
        items: list[dict[str, Any]] = []
        for _, item in sorted(self._items.items()):
            if item.reasoning is not None:
                items.append(dict(item.reasoning))
            elif item.type == "message" and item.chars:
                items.append(_named("message", item, chars=item.chars))
            elif item.call is not None and id(item.call) in places:
                items.append(_named("function_call", item, call=places[id(item.call)]))
        return {"items": items} if any(len(each) > 2 for each in items) else {}

    def _item_of(self, event: Mapping[str, Any]) -> _Item:
        """The item that an event is about, by its place in the output, else by its id."""
        id = line(event.get("item_id")) or line(_mapping(event.get("item")).get("id"))
        place = event.get("output_index")
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < 1_000_000:
            place = self._places.get(id, max(self._items, default=-1) + (not id or id not in self._places))
        if id:
            self._places[id] = place
        return self._items.setdefault(place, _Item())

    def _add_item(self, item: _Item, told: object, *, is_whole: bool) -> str:
        told = _mapping(told)
        item.type = line(told.get("type")) or item.type
        item.id = line(told.get("id")) or item.id
        item.phase = line(told.get("phase")) or item.phase
        if item.type == "function_call":
            call = self._call_of(item)
            call.id, call.name = line(told.get("call_id")) or call.id, line(told.get("name")) or call.name
            if is_whole:
                self._end_call(item, told)
        elif item.type == "reasoning" and is_whole and (told.get("encrypted_content") or told.get("content")):
            item.reasoning = told
        elif item.type == "message" and is_whole and not item.chars:
            return self._add_to_message(item, "".join(_texts(told)))
        return ""

    def _add_to_message(self, item: _Item, text: str) -> str:
        item.type = "message"
        added = self.add_text(text)
        item.chars += len(added)
        return added

    def _call_of(self, item: _Item) -> Piece:
        if item.call is None:
            self.spoke = True
            item.type, item.call = "function_call", self.add_piece(len(self.pieces))
        return item.call

    def _end_call(self, item: _Item, told: Mapping[str, Any]) -> None:
        """The whole arguments, which count more than their pieces."""
        if told.get("arguments"):
            call = self._call_of(item)
            call.arguments = ""
            call.add_arguments(told["arguments"])

    def _end(self, told: object) -> str:
        response = _mapping(told)
        self.add_usage(response.get("usage"))
        output = response.get("output")
        added = [
            self._add_item(self._item_of({"output_index": place, "item": each}), each, is_whole=True)
            for place, each in enumerate(output if isinstance(output, list) else [])
        ]
        if response.get("status") == "incomplete":
            reason = line(_mapping(response.get("incomplete_details")).get("reason")) or "incomplete"
            self.add_finish(_INCOMPLETE.get(reason, reason))
        else:
            self.add_finish("tool_calls" if self.pieces else "stop")
        return "".join(added)


def _named(type: str, item: _Item, **more: int) -> dict[str, Any]:
    told = {"id": item.id, "phase": item.phase}
    return {"type": type, **more, **{name: value for name, value in told.items() if value}}


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        part = _mapping(part)
        yield line(part.get("text")) or line(part.get("refusal"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- The request ------------------------------------------------------------------------------------------------------


def parts(messages: Sequence[Mapping[str, Any]], filled: frozenset[str] = frozenset()) -> list[str]:
    """The items of the input, as JSON, in order."""
    return [_written(item) for message in messages for item in _items(message)]


def body(parts: Sequence[str], tools: str, parameters: Mapping[str, Any]) -> bytes:
    """The request. `tools` is the JSON array of definitions, "[]" for none."""
    head = _written(parameters)[1:-1]
    sent = f'{{{head},"input":[{",".join(parts)}]'
    return (sent + (f',"tools":{tools}}}' if tools != "[]" else "}")).encode()


def parameters(settings: CallSettings) -> dict[str, Any]:
    """What a request says beside its input and tools. Nothing is kept at the provider."""
    return {
        "model": settings.model,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": settings.max_output_tokens,
        **given(
            reasoning={"effort": settings.reasoning_effort} if settings.reasoning_effort else None,
            temperature=settings.temperature,
            parallel_tool_calls=settings.parallel_tool_calls,
            prompt_cache_key=settings.cache_key,
        ),
    }


@lru_cache(maxsize=64)
def tools_of(wire: str) -> str:
    """Definitions stored for chat completions, in the flat form of this dialect. Without `strict`, which is the default
    here and would refuse schemas with optional arguments."""
    flat = [{"type": "function", **each["function"], "strict": False} for each in json.loads(wire)]
    return json.dumps(flat, ensure_ascii=False, separators=(",", ":"))


def _items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
    elif role == "assistant":
        yield from _reply_items(content, message.get("tool_calls", ()), message.get("extras", {}).get("items", ()))
    else:
        yield {"role": role, "content": content}


def _reply_items(
    text: str, calls: Sequence[Mapping[str, Any]], order: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A reply's items: those that `order` names in its order, then what it does not name."""
    unsent, begin = dict(enumerate(calls)), 0
    for each in order:
        if each["type"] == "message":
            end = begin + each["chars"]
            yield from _message(text[begin:end], each)
            begin = end
        elif each["type"] == "function_call":
            call = unsent.pop(each["call"], None)
            if call is not None:
                yield _call(call, each)
        else:
            yield dict(each)
    yield from _message(text[begin:], {})
    for call in unsent.values():
        yield _call(call, {})


def _message(text: str, named: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not text:
        return
    if "id" not in named:
        yield {"role": "assistant", "content": text, **given(phase=named.get("phase"))}
        return
    content = [{"type": "output_text", "text": text, "annotations": []}]
    yield {
        "type": "message",
        "id": named["id"],
        "role": "assistant",
        "status": "completed",
        "content": content,
        **given(phase=named.get("phase")),
    }


def _call(call: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "function_call",
        **given(id=named.get("id")),
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _written(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
