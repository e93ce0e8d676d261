"""A session's conversation as messages for a model, made from stored steps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from django.db.models import QuerySet

from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.clients.requests import TOOLS
from sessions.loop.conversation.message_files import MessageFiles, have_files, with_files
from sessions.loop.conversation.window import (
    MAX_TURNS,
    Block,
    Message,
    tokens_of_blocks,
)
from sessions.models import ClientRequest, Door, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns.endings import NOT_RUN
from toolhub.tenants.rows.statements import Select, param

#: Note for the model behind an answer that was stopped in the middle.
CUT_OFF = "(This answer was stopped before its end.)"
#: Result of a call that was left to the client that brought its tool, and that the client never answered.
NOT_BROUGHT = json.dumps({"error": "no_result", "detail": "the client that runs this tool sent no result"})
#: Result of a call that a crash, or the end of its turn, cut off between its start and its result.
OUTCOME_UNKNOWN = json.dumps(
    {"error": "outcome_unknown", "detail": "interrupted; it may have happened; do not repeat without checking"}
)


#: In the order of the models' own columns, as `from_db` takes them.
_OF_TURN = ("message", "attached", "status", "answer", "error_code", "door", "is_continuation")
_OF_STEP = ("id", "kind", "status", "round", "text", "tool_calls", "origin", "extras", "call_index", "result_sent")


def _steps_of(**turns: Any) -> QuerySet[Turn, Any]:
    """A row for each step of each turn, and one for a turn without steps."""
    rows = Turn.objects.filter(**turns).order_by("seq", "steps__index")
    return rows.values_list("seq", *_OF_TURN, *(f"steps__{name}" for name in _OF_STEP))


_PAST = Select(
    lambda: _steps_of(
        session=param(Turn, "session"), seq__gte=param(Turn, "seq", "first"), seq__lt=param(Turn, "seq", "before")
    )
)


def first_turn(turn: Turn) -> int:
    """The number of the oldest turn that the agent's last call in this session carried; 1 where there was none."""
    stored = turn.session.last_prompt
    marks = stored.get(str(turn.agent_id)) if isinstance(stored, dict) else None
    number = marks.get("first_turn") if isinstance(marks, dict) else None
    return number if isinstance(number, int) and number > 0 else 1


@dataclass(frozen=True)
class Stored:
    """Ended turns and their steps by number, and the last request of a client that held the conversation."""

    turns: Mapping[int, Turn]
    steps: Mapping[int, list[Step]]
    request: ClientRequest | None = None


class Past:
    """The session's ended turns in front of one, as blocks of messages for its model. While that turn runs, they do not
    change.

    Where a client of the gateway holds the conversation, what it sent in front of a turn stands there in place of the
    session's earlier turns.
    """

    def __init__(self, turn: Turn, model: ResolvedModel) -> None:
        self.turn, self.model = turn, model
        #: The number of the turn that they begin with: what an earlier call left out stays out.
        first = first_turn(turn)
        front = turn.in_front(1 if turn.passes_over(first) else first)
        self.first = front[0].start if front else turn.seq
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
    def files(self) -> MessageFiles:
        """Files of all messages, the turn's own among them. No query where none has one."""
        stored, asked = self._stored, self.turn.asked
        numbers = [seq for seq, each in stored.turns.items() if each.attached]
        if stored.request is not None and have_files(stored.request.earlier):
            numbers.append(stored.request.turn.seq)
        if self.turn.attached or (asked is not None and have_files(asked.earlier)):
            numbers.append(self.turn.seq)
        return MessageFiles(self.turn.session_id, numbers, takes_images=self.model.takes_images)

    @cached_property
    def _stored(self) -> Stored:
        """The turns in front. One query, and one more for a session of the gateway; none where nothing is there, or a
        client holds the conversation."""
        asked = self.turn.asked
        if (asked is not None and asked.earlier is not None) or self.turn.seq == self.first:
            return Stored({}, {})
        turns, steps = self._read()
        return Stored(turns, steps, self._begin(turns))

    @cached_property
    def _found(self) -> list[Block]:
        asked = self.turn.asked
        if asked is not None and asked.earlier is not None:
            self.first = self.turn.seq
            return self._sent_before(asked)
        if self.turn.seq == self.first:
            return []
        turns, steps, request = self._stored.turns, self._stored.steps, self._stored.request
        found = self._sent_before(request) if request is not None else []
        begin = request.turn.seq if request is not None else 0
        self.first = max(self.first, begin)
        following = [*list(turns.values())[1:], self.turn]
        for (seq, each), after in zip(turns.items(), following, strict=True):
            if seq < begin or each.door == Door.MCP:  # a single call is no part of a conversation
                continue
            messages = turn_messages(each, steps[seq], self.model, self.files, goes_on=after.is_continuation)
            if each.is_continuation and found:
                found[-1].messages.extend(messages)
            else:
                found.append(Block(seq, messages))
        return found

    def _sent_before(self, request: ClientRequest) -> list[Block]:
        """The messages that a client sent in front of its turn."""
        seq = request.turn.seq
        return earlier_blocks(with_files(request.earlier or (), seq, self.files), seq)

    def _read(self) -> tuple[dict[int, Turn], dict[int, list[Step]]]:
        """The turns in front, one more than are ever sent, and their steps, by number. One query."""
        turns: dict[int, Turn] = {}
        steps: dict[int, list[Step]] = defaultdict(list)
        for seq, *row in self._rows():
            of_turn, of_step = row[: len(_OF_TURN)], row[len(_OF_TURN) :]
            if seq not in turns:
                turns[seq] = Turn.from_db(self.turn._state.db, _OF_TURN, of_turn)
                turns[seq].seq = seq
            key, kind, *_ = of_step
            if key is not None and kind != StepKind.NOTE:
                steps[seq].append(Step.from_db(self.turn._state.db, _OF_STEP, of_step))
        return turns, steps

    @property
    def _front(self) -> list[range]:
        return self.turn.in_front(self.first)

    def _rows(self) -> Iterable[Sequence[Any]]:
        ranges = last_numbers(self._front)
        if len(ranges) == 1:
            return _PAST.rows(session=self.turn.session_id, first=ranges[0].start, before=ranges[0].stop)
        return _steps_of(session=self.turn.session_id, seq__in=list(chain.from_iterable(ranges)))

    def _begin(self, turns: Mapping[int, Turn]) -> ClientRequest | None:
        """The last request among these turns whose client held the conversation. One query for a session of the
        gateway, else none."""
        numbers = [seq for seq, each in turns.items() if each.door]
        if not numbers:
            return None
        requests = ClientRequest.objects.filter(turn__session=self.turn.session_id, earlier__isnull=False)
        requests = requests.filter(turn__seq__in=numbers)
        return requests.select_related("turn").only("earlier", "turn__seq").order_by("-turn__seq").first()

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each block."""
        return tokens_of_blocks([block.messages for block in self.blocks], self.encoding)

    @property
    def encoding(self) -> str:
        """Encoding that the model counts tokens by."""
        return self.model.tokenizer.encoding

    def keep(self, count: int) -> int:
        """Leave out all but the newest so many, from now on. Returns how many are left out that were not before."""
        over = len(self.blocks) - count
        own = self._found[-1].first if self.goes_on_from else self.turn.seq
        first = self.blocks[over].first if count else own
        left_out = sum(min(each.stop, first) - each.start for each in self._front if each.start < first)
        left_out, self.first = max(over, left_out), first
        if over:
            self.sizes = self.sizes[over:]
            self.blocks = self.blocks[over:]
        return left_out

    def compact(self, refusal: str) -> int:
        """Send at most half as much as last, from now on. Returns the tokens that were sent."""
        tokens = sum(tokens_of_blocks([[message] for message in self.sent], self.encoding))
        self.most_sent, self.refusal = tokens // 2, refusal
        return tokens


def last_numbers(ranges: Sequence[range], most: int = MAX_TURNS + 1) -> list[range]:
    """Return the last `most` numbers of ranges in order, as ranges in order."""
    found: list[range] = []
    for numbers in reversed(ranges):
        if most > 0:
            found.append(numbers[-most:])
        most -= len(numbers)
    return found[::-1]


def earlier_blocks(messages: Sequence[Message], first: int) -> list[Block]:
    """Return the messages that a client sent in front of the turn of this number, in blocks that begin with a user
    message."""
    found: list[Block] = []
    for message in messages:
        if message["role"] == "user" or not found:
            found.append(Block(first, []))
        found[-1].messages.append(message)
    return found


def turn_messages(
    turn: Turn, steps: Sequence[Step], model: ResolvedModel, files: MessageFiles, *, goes_on: bool = False
) -> list[Message]:
    """Return the messages of an ended turn: the user's, those of its steps, and its answer where no step holds it.

    The assistant has the last word: some providers take no user message behind a user's or a tool's. Where the next
    turn goes on from this one (`goes_on`), it has not: an answer that was stopped in the middle is left out then.
    """
    messages = messages_of(turn, steps, model, files)
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


def messages_of(turn: Turn, steps: Sequence[Step], model: ResolvedModel, files: MessageFiles) -> list[Message]:
    """Return the user's message with its files, where the turn has one, and the messages of its steps so far. Tools
    that were loaded before the turn stand in front."""
    first = [step for step in steps if step.kind == StepKind.TOOLS and step.round == 0]
    own = [] if turn.is_continuation else [files.message(turn.seq, range(turn.attached), turn.message)]
    return [
        *map(_tools_message, first),
        *own,
        *step_messages([each for each in steps if each not in first], model),
    ]


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
