"""A session's conversation as messages for a model, made from stored steps, and cut to the model's window."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from capabilities.common.tokens import O200K, count_each
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.clients.requests import TOOLS
from sessions.models import ClientRequest, Door, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns.endings import NOT_RUN
from toolhub.tenants.rows.statements import Select, param

#: Earlier turns that are sent, at most.
MAX_TURNS = 200
#: Tokens of a message beside its text.
FRAME = 4
#: Note for the model behind an answer that was stopped in the middle.
CUT_OFF = "(This answer was stopped before its end.)"
#: Characters that are left of a result, and of a call's arguments, where the window is too small for them.
LEAST = 200
#: End of a message that was cut.
SHORTENED = re.compile(r"\n\[cut to fit the model's window: the first [\d,]+ of (?P<whole>[\d,]+) characters\]\Z")
#: Result of a call that was left to the client that brought its tool, and that the client never answered.
NOT_BROUGHT = json.dumps({"error": "no_result", "detail": "the client that runs this tool sent no result"})
#: Result of a call that a crash, or the end of its turn, cut off between its start and its result.
OUTCOME_UNKNOWN = json.dumps(
    {"error": "outcome_unknown", "detail": "interrupted; it may have happened; do not repeat without checking"}
)

Message = dict[str, Any]


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


#: In the order of the models' own columns, as `from_db` takes them.
_OF_TURN = ("message", "status", "answer", "error_code", "door", "is_continuation")
_OF_STEP = ("id", "kind", "status", "round", "text", "tool_calls", "origin", "extras", "call_index", "result_sent")
#: A row for each step of each turn, and one for a turn without steps.
_PAST = Select(
    lambda: (
        Turn.objects.filter(
            session=param(Turn, "session"), seq__gte=param(Turn, "seq", "first"), seq__lt=param(Turn, "seq", "before")
        )
        .order_by("seq", "steps__index")
        .values_list("seq", *_OF_TURN, *(f"steps__{name}" for name in _OF_STEP))
    )
)


def first_turn(turn: Turn) -> int:
    """The number of the oldest turn that the agent's last call in this session carried; 1 where there was none."""
    stored = turn.session.last_prompt
    marks = stored.get(str(turn.agent_id)) if isinstance(stored, dict) else None
    number = marks.get("first_turn") if isinstance(marks, dict) else None
    return number if isinstance(number, int) and number > 0 else 1


@dataclass(frozen=True)
class Block:
    """Messages that are sent together or not at all: a turn with those that go on from it, or a part of what a client
    sent in front of one. `first` is the number of its first turn."""

    first: int
    messages: list[Message]


class Past:
    """The session's ended turns in front of one, as blocks of messages. While that turn runs, they do not change.

    Where a client of the gateway holds the conversation, what it sent in front of a turn stands there in place of the
    session's earlier turns.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        #: The number of the turn that they begin with: what an earlier call left out stays out.
        self.first = min(first_turn(turn), turn.seq)
        #: The messages of the turn's last request.
        self.sent: Sequence[Message] = ()
        #: Tokens that the messages of a request may take since the provider found one too long; and what it said then.
        self.most_sent: int | None = None
        self.refusal = ""

    @cached_property
    def blocks(self) -> list[Block]:
        """Oldest first, of one turn more than are ever sent; without what the turn itself goes on from. One query, none
        where nothing is there, and one more for a session of the gateway."""
        found = self._found
        return found[:-1] if self.turn.is_continuation else found

    @cached_property
    def goes_on_from(self) -> list[Message]:
        """Messages that a turn without a message goes on from, back to the last message of the user; empty for other
        turns."""
        if not self.turn.is_continuation or not self._found:
            return []
        return self._found[-1].messages

    @cached_property
    def _found(self) -> list[Block]:
        asked = self.turn.asked
        if asked is not None and asked.earlier is not None:
            self.first = self.turn.seq
            return earlier_blocks(asked.earlier, self.turn.seq)
        if self.turn.seq == self.first:
            return []
        turns, steps = self._read(max(self.first, self.turn.seq - MAX_TURNS - 1))
        request = self._begin(turns)
        found = earlier_blocks(request.earlier or (), request.turn.seq) if request is not None else []
        begin = request.turn.seq if request is not None else 0
        self.first = max(self.first, begin)
        following = [*list(turns.values())[1:], self.turn]
        for (seq, each), after in zip(turns.items(), following, strict=True):
            if seq < begin or each.door == Door.MCP:  # a single call is no part of a conversation
                continue
            messages = turn_messages(each, steps[seq], self.turn.model, goes_on=after.is_continuation)
            if each.is_continuation and found:
                found[-1].messages.extend(messages)
            else:
                found.append(Block(seq, messages))
        return found

    def _read(self, first: int) -> tuple[dict[int, Turn], dict[int, list[Step]]]:
        """The turns from this number on, and their steps, by number. One query."""
        turns: dict[int, Turn] = {}
        steps: dict[int, list[Step]] = defaultdict(list)
        for seq, *row in _PAST.rows(session=self.turn.session_id, first=first, before=self.turn.seq):
            of_turn, of_step = row[: len(_OF_TURN)], row[len(_OF_TURN) :]
            if seq not in turns:
                turns[seq] = Turn.from_db(self.turn._state.db, _OF_TURN, of_turn)
            key, kind, *_ = of_step
            if key is not None and kind != StepKind.NOTE:
                steps[seq].append(Step.from_db(self.turn._state.db, _OF_STEP, of_step))
        return turns, steps

    def _begin(self, turns: Mapping[int, Turn]) -> ClientRequest | None:
        """The last request among these turns whose client held the conversation. One query for a session of the
        gateway, else none."""
        numbers = [seq for seq, each in turns.items() if each.door]
        if not numbers:
            return None
        requests = ClientRequest.objects.filter(turn__session=self.turn.session_id, earlier__isnull=False)
        requests = requests.filter(turn__seq__gte=numbers[0], turn__seq__lt=self.turn.seq)
        return requests.select_related("turn").only("earlier", "turn__seq").order_by("-turn__seq").first()

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each block."""
        return _tokens([block.messages for block in self.blocks], self.encoding)

    @property
    def encoding(self) -> str:
        """Encoding that the turn's model counts tokens by."""
        return self.turn.model.tokenizer.encoding

    def keep(self, count: int) -> int:
        """Leave out all but the newest so many, from now on. Returns how many are left out that were not before."""
        over = len(self.blocks) - count
        own = self._found[-1].first if self.goes_on_from else self.turn.seq
        first = self.blocks[over].first if count else own
        left_out, self.first = max(over, first - self.first), first
        if over:
            self.sizes = self.sizes[over:]
            self.blocks = self.blocks[over:]
        return left_out

    def compact(self, refusal: str) -> int:
        """Send at most half as much as last, from now on. Returns the tokens that were sent."""
        tokens = sum(_tokens([[message] for message in self.sent], self.encoding))
        self.most_sent, self.refusal = tokens // 2, refusal
        return tokens


def earlier_blocks(messages: Sequence[Message], first: int) -> list[Block]:
    """Return the messages that a client sent in front of the turn of this number, in blocks that begin with a user
    message."""
    found: list[Block] = []
    for message in messages:
        if message["role"] == "user" or not found:
            found.append(Block(first, []))
        found[-1].messages.append(message)
    return found


def conversation(
    turn: Turn,
    past: Past,
    steps: Sequence[Step],
    *,
    tool_tokens: int,
    instructions: str = "",
    added: Collection[int] = (),
) -> Conversation:
    """The session's messages up to this turn with these steps, cut to the model's window less a reserve for the answer.

    Where not all of it fits, the oldest turns are left out, from then on, and half of the room is free again, so that
    the same turns stand in front for many turns to come. Where that is not enough, this turn's results are cut, the
    oldest first.
    `instructions` are those of the tools at hand; they stand behind the agent's prompt, and behind what a client of the
    gateway says. Of the steps that add tools to the conversation, those with the keys `added` do; their tokens are
    among `tool_tokens`. Raises TooLong.
    """
    own = [*past.goes_on_from, *_of_turn(turn, steps, turn.model)]
    of_agent = turn.agent.prompt if turn.prompt is None else turn.prompt
    of_client = turn.asked.instructions if turn.asked is not None else ""
    prompt = "\n\n".join(text for text in (of_agent, of_client, instructions) if text)
    head: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
    room = room_for_messages(turn.model, tool_tokens)
    if past.most_sent is not None:
        room = min(room, past.most_sent)
    talk = fit(head, [block.messages for block in past.blocks], own, room, past.sizes, past.encoding)
    talk = replace(talk, messages=[each for each in talk.messages if each["role"] != TOOLS or each["step"] in added])
    past.sent = talk.messages
    if talk.parts_cut:  # all of them are out, for this once
        return talk
    return replace(talk, turns_cut=past.keep(len(past.blocks) - talk.turns_cut))


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
    (of_head,) = _tokens([head], encoding)
    fitted, own_sizes, parts_cut = _fitted(own, room - of_head, encoding)
    known = _tokens(blocks, encoding) if sizes is None else sizes
    kept = 0 if parts_cut else _newest_that_fit(known, room - of_head - sum(own_sizes))
    of_results = sum(size for message, size in zip(fitted, own_sizes, strict=True) if message["role"] == "tool")
    return Conversation(
        [*head, *(message for block in blocks[len(blocks) - kept :] for message in block), *fitted],
        turns_cut=len(blocks) - kept,
        parts_cut=parts_cut,
        result_tokens=of_results,
        history_tokens=of_head + sum(known[len(known) - kept :]) + sum(own_sizes) - of_results,
    )


def turn_messages(turn: Turn, steps: Sequence[Step], model: ResolvedModel, *, goes_on: bool = False) -> list[Message]:
    """Return the messages of an ended turn: the user's, those of its steps, and its answer where no step holds it.

    The assistant has the last word: some providers take no user message behind a user's or a tool's. Where the next
    turn goes on from this one (`goes_on`), it has not: an answer that was stopped in the middle is left out then.
    """
    messages = _of_turn(turn, steps, model)
    last = messages[-1] if messages else {"role": "user", "content": None}
    if goes_on:
        return messages[:-1] if last["role"] == "assistant" and not last.get("tool_calls") else messages
    if turn.answer and turn.status in (TurnStatus.CANCELLED, TurnStatus.EXPIRED, TurnStatus.FAILED):
        if last["role"] == "assistant" and last["content"] == turn.answer:
            messages.pop()
        messages.append({"role": "assistant", "content": f"{turn.answer}\n\n{CUT_OFF}"})
    elif turn.answer and not (last["role"] == "assistant" and last["content"] == turn.answer):
        messages.append({"role": "assistant", "content": turn.answer})
    elif last["role"] != "assistant":
        why = turn.error_code or turn.status
        messages.append({"role": "assistant", "content": f"(This turn ended without an answer: {why}.)"})
    return messages


def _of_turn(turn: Turn, steps: Sequence[Step], model: ResolvedModel) -> list[Message]:
    """Return the user's message, where the turn has one, and the messages of its steps so far. Tools that were loaded
    before the turn stand in front."""
    first = [step for step in steps if step.kind == StepKind.TOOLS and step.round == 0]
    said = [] if turn.is_continuation else [{"role": "user", "content": turn.message}]
    return [*map(_tools_message, first), *said, *step_messages([each for each in steps if each not in first], model)]


def _tools_message(step: Step) -> Message:
    """A step that adds tools to the conversation; its content is the words beside them."""
    return {"role": TOOLS, "step": step.pk, "items": step.extras, "content": step.text}


def step_messages(steps: Sequence[Step], model: ResolvedModel) -> list[Message]:
    """Model calls and tool results, each call answered exactly once and right behind the message that asked for it.

    What came unread with a reply (`extras`) goes back to the model that it came from, and to no other.
    """
    answers = {(step.round, step.call_index): step for step in steps if step.kind == StepKind.TOOL}
    messages: list[Message] = []
    for step in steps:
        if step.kind == StepKind.TOOLS:
            messages.append(_tools_message(step))
        if step.kind != StepKind.MODEL or not (step.text or step.tool_calls):
            continue
        message = step.as_message()
        if step.extras and model.takes_extras_of(step.origin):
            message["extras"] = json.loads(step.extras)
        messages.append(message)
        for index, call in enumerate(step.tool_calls):
            content = _result_sent(answers.get((step.round, index)))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return messages


def _result_sent(step: Step | None) -> str:
    if step is None or step.status == StepStatus.PENDING:
        return NOT_RUN
    if step.status in (StepStatus.STARTED, StepStatus.UNKNOWN):
        return step.result_sent or OUTCOME_UNKNOWN
    if step.status == StepStatus.RETURNED:
        return step.result_sent or NOT_BROUGHT
    return step.result_sent


# -- The turn's own messages ------------------------------------------------------------------------------------------


def _fitted(own: list[Message], room: int, encoding: str) -> tuple[list[Message], list[int], int]:
    """The turn's own messages in `room` tokens, the tokens of each, and how many parts were cut for that. Raises
    TooLong.

    Cut are, until it fits: the results of older rounds, the arguments and words of older rounds, the newest results,
    the newest arguments, and at last what would go back unread. A part of an older round is cut to the same beginning
    in each request that follows, so that the requests' common beginning stays long. Each call keeps its one result.
    """
    sizes = _tokens([[message] for message in own], encoding)
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
        (size,) = _tokens([[shorter]], encoding)
        total, sizes[index] = total - sizes[index] + size, size
        if total <= room:
            return fitted, sizes, parts_cut
    raise TooLong(
        f"What this turn has to send takes {total:,} tokens at least, and the model's window leaves {max(0, room):,}: "
        "shorten the message or the prompt, send fewer tools, or choose a model with a larger window."
    )


Shorten = Callable[[Message], Message]


def _shortenings(own: list[Message], newest: int) -> Iterator[tuple[int, Shorten]]:
    """Yield the possible cuts, in the order in which they are made: the place of a message, and the way to shorten
    it."""
    results = [index for index, message in enumerate(own) if message["role"] == "tool"]
    yield from ((index, _shortened(LEAST)) for index in results if index < newest)
    said = [index for index, message in enumerate(own) if message["role"] == "assistant"]
    yield from ((index, _without_arguments) for index in said if index < newest)
    yield from ((index, _shortened(LEAST)) for index in said if index < newest)
    fresh = [index for index in results if index > newest]
    longest = max((len(own[index]["content"]) for index in fresh), default=0)
    while longest > LEAST:
        longest = max(LEAST, longest * 3 // 4)
        yield from ((index, _shortened(longest)) for index in fresh)
    if newest < len(own):
        yield newest, _without_arguments
        yield newest, _shortened(LEAST)
    yield from ((index, _without_extras) for index in said)


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


# -- Older turns ------------------------------------------------------------------------------------------------------


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


def _tokens(blocks: list[list[Message]], encoding: str = O200K) -> list[int]:
    """Tokens of each block as it is sent, with FRAME more for each message."""
    counts = count_each(map(_text, blocks), encoding)
    return [count + FRAME * len(block) if block else 0 for count, block in zip(counts, blocks, strict=True)]


def _text(block: list[Message]) -> str:
    """Return the block as JSON, without definitions of tools, which are counted as such."""
    told = [{**each, "items": ""} if each["role"] == TOOLS else each for each in block]
    return json.dumps(told, ensure_ascii=False)
