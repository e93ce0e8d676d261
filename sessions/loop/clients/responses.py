"""Responses, without state at the provider: the request's bytes, and how a reply is read.

A reasoning model's thoughts come as items, encrypted, in front of the message or the calls that they led to; the next
request must hold them in the same place. `Reply.extras` keeps the order of all items of a reply: reasoning items whole,
messages and calls as places, whose text and arguments are those of the stored step.

A tool that stands in `tools` is in the default namespace. OpenAI gives a call of any other one a `namespace`, and
refuses the call without it in later requests ("Missing namespace for function_call"; pydantic-ai 2.68 found by asking
it that the namespace of a tool by itself is its name).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from capabilities.contract.wire import namespaces_in
from capabilities.models import Dialect
from sessions.loop.clients.finishing import FILTERED, LENGTH, finish_of
from sessions.loop.clients.replies import MAX_CALLS, Piece, ReplyReader, line
from sessions.loop.clients.requests import TOOLS, CallSettings, given, image_url, written

PATH = "/responses"
#: Where a request has its conversation.
CONVERSATION = "input"
#: Items of one reply that are kept at all.
MAX_ITEMS = 2 * MAX_CALLS
#: Items by which a provider says that it searched tools, and what it found: they go back unread, as reasoning does.
SEARCHED = ("tool_search_call", "tool_search_output")


@dataclass
class _Item:
    """One item of the output."""

    #: Its place in the output, and its id there.
    place: int
    type: str = ""
    id: str = ""
    phase: str = ""
    #: Namespace that declares a call's tool, if it is not the default one.
    namespace: str = ""
    #: Whole item of a search that the provider did.
    searched: Mapping[str, Any] | None = None
    #: Characters of a message, and whether any came: what holds a thought or a call is folded away.
    chars: int = 0
    has_text: bool = False
    call: Piece | None = None
    reasoning: Mapping[str, Any] | None = None
    #: Whether it was announced, its arguments came whole, and all of it did: pieces behind that change nothing.
    is_added: bool = False
    has_arguments: bool = False
    is_whole: bool = False


@dataclass
class ResponsesReader(ReplyReader):
    dialect = Dialect.RESPONSES

    _items: list[_Item] = field(default_factory=list)
    #: The item that each id, and each place, stands for now.
    _by_id: dict[str, _Item] = field(default_factory=dict)
    _at: dict[int, _Item] = field(default_factory=dict)
    #: Behind the last place so far.
    _next: int = 0

    def add_event(self, event: Any) -> str:
        if not isinstance(event, Mapping):
            return ""
        kind = line(event.get("type"))
        if kind.startswith("response."):
            self.events += 1
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                return self._add_to_message(self._item_of(event, "message"), line(event.get("delta")))
            case "response.output_text.done" | "response.refusal.done":
                item = self._item_of(event, "message")
                text = "" if item.has_text else line(event.get("text")) or line(event.get("refusal"))
                return self._add_to_message(item, text)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                self.add_thought(event.get("delta"))
            case "response.function_call_arguments.delta":
                item = self._item_of(event, "function_call")
                if not item.has_arguments:
                    self._call_of(item).add_arguments(event.get("delta"))
            case "response.function_call_arguments.done":
                self._end_call(self._item_of(event, "function_call"), event)
            case "response.output_item.added" | "response.output_item.done":
                raw = _mapping(event.get("item"))
                item = self._item_of({**event, "item_id": raw.get("id")}, line(raw.get("type")), kind)
                if (item.is_whole or kind.endswith("added")) and _is_other_call(item, raw):
                    item = self._new(item.type, item.id, item.place)
                return self._add_item(item, raw, is_whole=kind.endswith("done"))
            case "response.created" | "response.in_progress":
                self.add_usage(_mapping(event.get("response")).get("usage"))
            case "response.completed" | "response.incomplete":
                self.is_over = True
                return self._end(_mapping(event.get("response")), is_cut=kind.endswith("incomplete"))
        return ""

    def add_whole(self, answer: Any) -> str:
        if not isinstance(answer, Mapping):
            return ""
        self.events += isinstance(answer.get("output"), list)
        return self._end(answer)

    def end(self) -> str:
        """End the reply as its base does; the text that was held back belongs to the last message."""
        text = super().end()
        last = next((item for item in reversed(self._items) if item.has_text), None)
        if last is not None:
            last.chars += len(text)
        return text

    def extras(self, kept: list[Piece]) -> dict[str, Any]:
        items = sorted(self._items, key=lambda item: item.place)
        if sum(item.chars for item in items) != len("".join(self._text)):
            return {}  # a part of what was said was folded away as a thought
        if any(item.type == "reasoning" and item.reasoning is None for item in items):
            return {}  # ids are refused without the reasoning that they belong to
        places = {id(piece): place for place, piece in enumerate(kept)}
        entries: list[dict[str, Any]] = []
        for item in items:
            if item.reasoning is not None:
                entries.append({**item.reasoning, "type": "reasoning"})
            elif item.searched is not None:
                entries.append({**item.searched, "type": item.type})
            elif item.call is not None and id(item.call) in places:
                entries.append(_named("function_call", item, call=places[id(item.call)]))
            elif item.chars:
                entries.append(_named("message", item, chars=item.chars))
        return {"items": entries} if any(len(each) > 2 for each in entries) else {}

    def _item_of(self, event: Mapping[str, Any], type: str, kind: str = "") -> _Item:
        """The item that an event is about: the one at its place where that has no other id, else the one of its id.

        Some servers name an item differently in each event, some give each item the place 0, some neither place nor id:
        then it is the last one of the type.
        """
        id, place = line(event.get("item_id")), event.get("output_index")
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < 1_000_000:
            place = None
        found = self._at.get(place) if place is not None else None
        if found is not None and id and found.id and found.id != id:
            is_other = found.is_added if kind.endswith("added") else found.is_whole
            found = self._by_id.get(id) or (None if is_other else found)
        elif found is None and place is None:
            found = self._by_id.get(id) if id else self._last_of(type, kind)
        elif found is None and not kind.endswith("added"):
            found = self._by_id.get(id)
        if found is None or (type and found.type and found.type != type):
            found = self._new(type, id, self._next if place is None else place)
        if id:
            self._by_id.setdefault(id, found)
        return found

    def _last_of(self, type: str, kind: str) -> _Item | None:
        last = self._items[-1] if self._items else None
        if last is None or last.type != type or last.is_whole or kind.endswith("added"):
            return None
        return last

    def _new(self, type: str, id: str, place: int) -> _Item:
        item = _Item(place, type, id)
        self._next = max(self._next, place + 1)
        if len(self._items) < MAX_ITEMS:
            self._items.append(item)
            self._at[place] = item
            if id:
                self._by_id[id] = item
        return item

    def _add_item(self, item: _Item, raw: Mapping[str, Any], *, is_whole: bool) -> str:
        if item.is_whole:
            return ""
        item.type = item.type or line(raw.get("type"))
        item.id = line(raw.get("id")) or item.id
        item.phase = line(raw.get("phase")) or item.phase
        item.namespace = line(raw.get("namespace")) or item.namespace
        item.is_added = True
        added = ""
        if item.type == "function_call":
            call = self._call_of(item)
            call.id, call.name = call.id or line(raw.get("call_id")), call.name or line(raw.get("name"))
            if is_whole:
                self._end_call(item, raw)
        elif item.type == "reasoning" and is_whole and item.id == raw.get("id", ""):
            item.reasoning = raw if raw.get("encrypted_content") or raw.get("content") else None
        elif item.type in SEARCHED and is_whole:
            item.searched = raw
        elif item.type == "message" and is_whole and not item.has_text:
            added = self._add_to_message(item, "".join(_texts(raw)))
        item.is_whole = is_whole and bool(item.type)
        return added

    def _add_to_message(self, item: _Item, text: str) -> str:
        added = "" if item.is_whole else self.add_written(text)
        item.type = item.type or "message"
        item.has_text = item.has_text or bool(text)
        item.chars += len(added)
        return added

    def _call_of(self, item: _Item) -> Piece:
        if item.call is None:
            self.spoke = True
            item.type, item.call = "function_call", self.add_piece(item.place)
        return item.call

    def _end_call(self, item: _Item, raw: Mapping[str, Any]) -> None:
        """The whole arguments, which count more than their pieces."""
        call = self._call_of(item)
        call.name = call.name or line(raw.get("name"))
        if raw.get("arguments"):
            call.clear_arguments()
            call.add_arguments(raw["arguments"])
            item.has_arguments = True

    def _end(self, response: Mapping[str, Any], *, is_cut: bool = False) -> str:
        self.add_usage(response.get("usage"))
        self.add_model(response.get("model"))
        added = self._add_output([_mapping(each) for each in _list(response.get("output"))])
        if is_cut or response.get("status") == "incomplete":
            why = _mapping(response.get("incomplete_details")).get("reason")
            # Whatever else cut it off: as in chat completions, calls of a reply that is cut off are not run.
            self.add_finish(FILTERED if finish_of(why) == FILTERED else LENGTH)
        else:
            self.add_finish("tool_calls" if self.pieces else "stop")
        return added

    def _add_output(self, output: Sequence[Mapping[str, Any]]) -> str:
        """The items as the end of the response repeats them, or tells them for the first time; returns the new text.

        One that was streamed is known by its call_id or id. Else it is new where none of its type was streamed.
        """
        by_id, streamed = dict(self._by_id), {item.type for item in self._items}
        by_call = {item.call.id: item for item in self._items if item.call is not None and item.call.id}
        added = []
        for raw in output:
            type, id = line(raw.get("type")), line(raw.get("id"))
            item = by_call.get(line(raw.get("call_id"))) or by_id.get(id)
            if item is None and type in streamed:
                continue
            added.append(self._add_item(item or self._new(type, id, self._next), raw, is_whole=True))
        return "".join(added)


def _is_other_call(item: _Item, raw: Mapping[str, Any]) -> bool:
    known, raw_id = item.call.id if item.call is not None else "", line(raw.get("call_id"))
    return bool(known and raw_id) and known != raw_id


def _named(type: str, item: _Item, **more: int) -> dict[str, Any]:
    fields = {"id": item.id, "phase": item.phase, "namespace": item.namespace}
    return {"type": type, **more, **{name: value for name, value in fields.items() if value}}


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    for part in _list(message.get("content")):
        part = _mapping(part)
        yield line(part.get("text")) or line(part.get("refusal"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


READER: type[ReplyReader] = ResponsesReader


# -- The request ------------------------------------------------------------------------------------------------------


def parts(
    messages: Sequence[Mapping[str, Any]],
    filled: frozenset[str] = frozenset(),
    *,
    wants_namespaces: bool = False,
    tools: str = "[]",
    tools_key: int | None = None,
) -> list[str]:
    """The items of the input, as JSON, in order.

    A reply whose ids came before goes out without its extras: some servers name the items of each reply alike, and an
    id that comes twice is refused. `wants_namespaces`: a call of a tool that was added is given its namespace where
    its reply is repeated without. `tools` are the definitions that the request declares, of the row `tools_key`:
    what the provider found in those of another row is not repeated.
    """
    sent: list[str] = []
    seen: set[str] = set()
    outside = dict(namespaces_in(tools))
    for message in messages:
        if message["role"] == TOOLS:
            sent += message["items"].split("\n")
            outside |= {name: name if wants_namespaces else "" for name in names_added(message["items"])}
            continue
        items = list(_items(message, tools_key))
        ids = [id for item in items if (id := line(item.get("id")))]
        if len(set(ids)) < len(ids) or not seen.isdisjoint(ids):
            items, ids = list(_items({**message, "extras": {}}, tools_key)), []
        seen.update(ids)
        sent += (written(_in_namespace(item, outside)) for item in items)
    return sent


@lru_cache(maxsize=256)
def names_added(lines: str) -> tuple[str, ...]:
    """The names of the tools that these items add, a line each."""
    return tuple(tool["name"] for item in map(json.loads, lines.split("\n")) for tool in item.get("tools", ()))


def _in_namespace(item: dict[str, Any], outside: Mapping[str, str]) -> dict[str, Any]:
    """A call with the namespace of its tool, as the request declares that: none for one in the default namespace, and
    for others what the provider said, else what `outside` says, if anything."""
    if item.get("type") != "function_call":
        return item
    if item["name"] not in outside:
        return {name: value for name, value in item.items() if name != "namespace"}
    return {**given(namespace=outside[item["name"]]), **item}


def parameters(settings: CallSettings) -> dict[str, Any]:
    """Build the fields of a request beside its input and tools. Nothing is kept at the provider."""
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


#: Characters of definitions whose flat form is kept: a client may bring some megabytes of them.
MOST_KEPT = 200_000


def tools_of(wire: str) -> str:
    """Definitions stored for chat completions, in the flat form of this dialect. Without `strict` where none asks for
    it: it is the default here, and would refuse schemas with optional arguments."""
    return _kept_tools_of(wire) if len(wire) <= MOST_KEPT else _tools_of(wire)


def _tools_of(wire: str) -> str:
    return written([_flat(each) for each in json.loads(wire)])


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One entry of stored definitions. What stands in a namespace is not shown to the model before it is found."""
    if entry["type"] == "namespace":
        return {**entry, "tools": [{**_flat(each), "defer_loading": True} for each in entry["tools"]]}
    return {"type": "function", "strict": False, **entry["function"]} if entry["type"] == "function" else dict(entry)


_kept_tools_of = lru_cache(maxsize=64)(_tools_of)


def added_tools(wire: str) -> str:
    """The item of the input that adds these stored definitions to the conversation, as JSON."""
    return f'{{"type":"additional_tools","role":"developer","tools":{tools_of(wire)}}}'


def words_beside(text: str) -> str:
    """The item that says something of tools to the model, as JSON."""
    return written({"role": "developer", "content": text})


def found_in(extras: Mapping[str, Any]) -> list[str] | None:
    """Names that the provider says it found, as a reply's extras have them; None where it did not search."""
    items = [each for each in extras.get("items", ()) if each["type"] in SEARCHED]
    names = dict.fromkeys(name for each in items for name in _function_names(each))
    return list(names) if items else None


def _function_names(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the functions in this entry, in namespaces too. Anything else in it is left out: it came from
    outside."""
    for each in map(_mapping, _list(entry.get("tools"))):
        if each.get("type") == "namespace":
            yield from (name for tool in map(_mapping, _list(each.get("tools"))) if (name := line(tool.get("name"))))
        elif name := line(each.get("name")):
            yield name


def _items(message: Mapping[str, Any], tools_key: int | None) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
    elif role == "assistant":
        extras = message.get("extras", {})
        order = extras.get("items", ())
        if tools_key is None or extras.get("tools") != tools_key:
            order = [each for each in order if each["type"] not in SEARCHED]
        yield from _reply_items(content, message.get("tool_calls", ()), order)
    elif "images" in message:
        images = [{"type": "input_image", "image_url": image_url(each)} for each in message["images"]]
        yield {"role": role, "content": [{"type": "input_text", "text": content}, *images]}
    else:
        yield {"role": role, "content": content}


def _reply_items(
    text: str, calls: Sequence[Mapping[str, Any]], order: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A reply's items: those that `order` names in its order, then what it does not name. Reasoning that nothing
    follows is left out, for it is refused."""
    unsent, begin = dict(enumerate(calls)), 0
    reasoning: list[dict[str, Any]] = []
    for each in order:
        if each["type"] == "reasoning":
            reasoning.append(dict(each))
            continue
        if each["type"] in SEARCHED:
            led_to = [dict(each)]
        elif each["type"] == "message":
            end = begin + each["chars"]
            led_to = list(_message(text[begin:end], each))
            begin = end
        else:
            call = unsent.pop(each["call"], None)
            led_to = [_call(call, each)] if call is not None else []
        if led_to:
            yield from (*reasoning, *led_to)
            reasoning = []
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
        **given(namespace=named.get("namespace")),
    }
