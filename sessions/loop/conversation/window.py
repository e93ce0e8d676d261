"""Cut of a conversation to the model's window: older turns left out, results and arguments of this turn shortened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from capabilities.common.tokens import O200K, count_each
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.clients.requests import TOOLS

#: Earlier turns that are sent, at most.
MAX_TURNS = 200
#: Tokens of a message beside its text.
FRAME = 4


#: Characters that are left of a result, and of a call's arguments, where the window is too small for them.
LEAST = 200


#: End of a message that was cut.
SHORTENED = re.compile(r"\n\[cut to fit the model's window: the first [\d,]+ of (?P<whole>[\d,]+) characters\]\Z")

Message = dict[str, Any]
Shorten = Callable[[Message], Message]


class TooLong(Exception):
    """Even the least of a turn does not fit into the model's window; the message is for people."""


@dataclass(frozen=True)
class Conversation:
    """The messages to send, and what was left out that was not before: how many older turns, and parts of this one."""

    messages: list[Message]
    turns_cut: int
    parts_cut: int = 0
    #: Tokens of the results of this turn's calls, and of all other messages.
    result_tokens: int = 0
    history_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.result_tokens + self.history_tokens


@dataclass(frozen=True)
class Block:
    """Messages that are sent together or not at all: a turn with those that go on from it, or a part of what a client
    sent in front of one. `first` is the number of its first turn."""

    first: int
    messages: list[Message]


def room_for_messages(model: ResolvedModel, tool_tokens: int) -> int:
    """Tokens, as we count them, that the messages of a request may take beside its tools and the answer: fewer where
    the provider was seen to count more than we do."""
    return int((model.context_window - model.answer_reserve) / max(1.0, model.token_factor)) - tool_tokens


def fit(
    head: list[Message],
    blocks: list[list[Message]],
    own: list[Message],
    room: int,
    sizes: Sequence[int] | None = None,
    encoding: str = O200K,
) -> Conversation:
    """The head, of the older turns all or the newest ones, and the turn's own messages, in `room` tokens.

    `sizes` are the tokens of the blocks, where they are known. Raises TooLong.
    """
    (of_head,) = tokens_of_blocks([head], encoding)
    fitted, own_sizes, parts_cut = _fitted(own, room - of_head, encoding)
    known = tokens_of_blocks(blocks, encoding) if sizes is None else sizes
    kept = 0 if parts_cut else _newest_that_fit(known, room - of_head - sum(own_sizes))
    of_results = sum(size for message, size in zip(fitted, own_sizes, strict=True) if message["role"] == "tool")
    return Conversation(
        [*head, *(message for block in blocks[len(blocks) - kept :] for message in block), *fitted],
        turns_cut=len(blocks) - kept,
        parts_cut=parts_cut,
        result_tokens=of_results,
        history_tokens=of_head + sum(known[len(known) - kept :]) + sum(own_sizes) - of_results,
    )


def _fitted(own: list[Message], room: int, encoding: str) -> tuple[list[Message], list[int], int]:
    """The turn's own messages in `room` tokens, the tokens of each, and how many parts were cut for that. Raises
    TooLong.

    Cut are, until it fits: the results of older rounds, the arguments and words of older rounds, the newest results,
    the newest arguments, and at last what would go back unread. A part of an older round is cut to the same beginning
    in each request that follows, so that the requests' common beginning stays long. Each call keeps its one result.
    """
    sizes = tokens_of_blocks([[message] for message in own], encoding)
    total, fitted, parts_cut = sum(sizes), list(own), 0
    if total <= room:
        return fitted, sizes, 0
    newest = max((index for index, message in enumerate(own) if message.get("tool_calls")), default=len(own))
    for index, shorten in _shortenings(own, newest):
        shorter = shorten(fitted[index])
        if shorter == fitted[index]:
            continue
        parts_cut += fitted[index] is own[index]
        fitted[index] = shorter
        (size,) = tokens_of_blocks([[shorter]], encoding)
        total, sizes[index] = total - sizes[index] + size, size
        if total <= room:
            return fitted, sizes, parts_cut
    raise TooLong(
        f"What this turn has to send takes {total:,} tokens at least, and the model's window leaves {max(0, room):,}: "
        "shorten the message or the prompt, send fewer tools, or choose a model with a larger window."
    )


def _shortenings(own: list[Message], newest: int) -> Iterator[tuple[int, Shorten]]:
    """Yield the possible cuts, in the order in which they are made: the place of a message, and the way to shorten
    it."""
    results = [index for index, message in enumerate(own) if message["role"] == "tool"]
    yield from ((index, _shortened(LEAST)) for index in results if index < newest)
    replies = [index for index, message in enumerate(own) if message["role"] == "assistant"]
    yield from ((index, _without_arguments) for index in replies if index < newest)
    yield from ((index, _shortened(LEAST)) for index in replies if index < newest)
    new_results = [index for index in results if index > newest]
    longest = max((len(own[index]["content"]) for index in new_results), default=0)
    while longest > LEAST:
        longest = max(LEAST, longest * 3 // 4)
        yield from ((index, _shortened(longest)) for index in new_results)
    if newest < len(own):
        yield newest, _without_arguments
        yield newest, _shortened(LEAST)
    yield from ((index, _without_extras) for index in replies)


def _shortened(chars: int) -> Shorten:
    def shorten(message: Message) -> Message:
        content = message["content"] or ""
        before = SHORTENED.search(content)
        whole = int(before["whole"].replace(",", "")) if before else len(content)
        text = content[: before.start()] if before else content
        if len(text) <= chars:
            return message
        note = f"\n[cut to fit the model's window: the first {chars:,} of {whole:,} characters]"
        return {**message, "content": text[:chars] + note}

    return shorten


def _without_arguments(message: Message) -> Message:
    if not any(len(call["function"]["arguments"]) > LEAST for call in message.get("tool_calls", ())):
        return message
    return {**message, "tool_calls": [_call_cut(call) for call in message["tool_calls"]]}


def _without_extras(message: Message) -> Message:
    if "extras" not in message:
        return message
    return {name: value for name, value in message.items() if name != "extras"}


def _call_cut(call: Message) -> Message:
    arguments = call["function"]["arguments"]
    if len(arguments) <= LEAST:
        return call
    cut = json.dumps({"cut_to_fit_the_window": f"{len(arguments):,} characters of arguments"})
    return {**call, "function": {**call["function"], "arguments": cut}}


def _newest_that_fit(sizes: Sequence[int], room: int) -> int:
    """Return the number of newest turns to send: all; or where that is too much, those that fill half of the room, so
    that the next turns fit too."""
    if len(sizes) <= MAX_TURNS and sum(sizes) <= room:
        return len(sizes)
    return _newest_in(sizes, room // 2, MAX_TURNS // 2) or _newest_in(sizes, room, 1)


def _newest_in(sizes: Sequence[int], room: int, most: int) -> int:
    """Return the number of newest sizes, at most `most`, that take no more than `room` together."""
    number = 0
    for size in list(reversed(sizes))[:most]:
        room -= size
        if room < 0:
            break
        number += 1
    return number


def tokens_of_blocks(blocks: list[list[Message]], encoding: str = O200K) -> list[int]:
    """Tokens of each block as it is sent, with FRAME more for each message, and those of its images."""
    counts = count_each(map(_text, blocks), encoding)
    return [count + sum(map(_beside, block)) if block else 0 for count, block in zip(counts, blocks, strict=True)]


def _beside(message: Message) -> int:
    """Return the tokens of a message beside its text."""
    images: Sequence[Message] = message.get("images", ())
    return FRAME + sum(int(image["tokens"]) for image in images)


def _text(block: list[Message]) -> str:
    """Return the block as JSON, without definitions of tools, which are counted as such, and without images."""
    return json.dumps([_without_unread(each) for each in block], ensure_ascii=False)


def _without_unread(message: Message) -> Message:
    if message["role"] == TOOLS:
        return {**message, "items": ""}
    if "images" in message:
        return {name: value for name, value in message.items() if name != "images"}
    return message
