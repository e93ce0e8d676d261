"""A client follows its turn: what the model says as it says it, a person who must answer, and the end.

Holds no thread and no database connection between two looks. A client that leaves stops its turn, unless it said that
the turn goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied

from sessions.doors.chats.readers import Reader, open_readers
from sessions.doors.gateway.asked_people import sentence_for
from sessions.loop.clients.finishing import CUT, LENGTH, STOP, finish_of
from sessions.models import (
    Step,
    StepKind,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns import ledger
from sessions.turns.events import Delta, Event, watch
from toolhub.tenants.access import usable_tokens
from toolhub.tenants.models import ApiToken
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import organisation_scope, system_scope
from toolhub.tenants.rows.statements import Select, param

logger = logging.getLogger(__name__)

#: Between the words of two replies of one turn.
BETWEEN = "\n\n"
#: Events behind which another text begins: a reply is whole, or is void and asked for anew.
WHOLE, VOID = "model", "attempt_restarted"
#: Error code of a turn that ends at its limit of rounds; its answer says so, and is no reply of the model.
MAX_ROUNDS = "max_rounds"
#: A turn in one of these goes on when a person has answered.
FOR_PEOPLE = (TurnStatus.WAITING_APPROVAL, TurnStatus.WAITING_INPUT)


@dataclass(frozen=True)
class Text:
    """A piece of what the model says."""

    text: str


@dataclass(frozen=True)
class Break:
    """End of the text of one reply: all of it was sent; or it is void, and the model is asked anew."""

    is_void: bool = False


@dataclass(frozen=True)
class Quiet:
    """Sign that nothing happened for a while."""


@dataclass(frozen=True)
class Outcome:
    """State of a turn that its client need not follow any more: it has ended, or it waits for a person."""

    turn: Turn
    finish_reason: str = "stop"
    #: The calls that are left to the client.
    calls: Sequence[Step] = ()

    @property
    def is_success(self) -> bool:
        """True where the text until then is an answer; else the turn ended without one."""
        return self.turn.status in (TurnStatus.DONE, *FOR_PEOPLE)


@dataclass(frozen=True)
class Followed:
    """Turn that a client follows, and the client's token: without it there is nothing more to read."""

    turn_id: UUID
    session_id: UUID
    organisation_id: int
    token: ApiToken
    #: Where this service is reached, as the client called it.
    origin: str
    goes_on_alone: bool = False


async def follow(followed: Followed) -> AsyncGenerator[Text | Break | Quiet | Outcome]:
    """Yield the turn's text, or that it waits for a person, and where; and at last its outcome. Whoever stops reading
    before stops the turn, and so does a token that was revoked: then there is no outcome."""
    is_over = False
    try:
        async with aclosing(_heard(followed)) as heard:
            async for item in heard:
                is_over = isinstance(item, Outcome)
                yield item
    finally:
        if not is_over and not followed.goes_on_alone:
            await stop(followed)


async def _heard(followed: Followed) -> AsyncGenerator[Text | Break | Quiet | Outcome]:
    readers, is_writing = open_readers(), False
    reader = Reader(followed.token.membership_id, followed.session_id, token_id=followed.token.pk)
    with readers.reading(reader):
        async with aclosing(watch(followed.turn_id, followed.organisation_id, whole=True)) as watched:  # type: ignore[type-var]
            async for item in watched:
                if await readers.must_ask(reader) and not await _may_read(followed):
                    return
                if isinstance(item, Delta):
                    yield Text(item.text)
                    is_writing = True
                elif isinstance(item, Event) and item.type in (WHOLE, VOID) and is_writing:
                    yield Break(is_void=item.type == VOID)
                    is_writing = False
                elif isinstance(item, Event) and item.type in FOR_PEOPLE:
                    outcome = await outcome_of(followed)
                    if outcome.turn.status in FOR_PEOPLE:
                        yield Text(await asked_of(followed))
                        yield outcome
                        return
                elif item is None:
                    yield Quiet()
    outcome = await outcome_of(followed)
    if outcome.turn.error_code == MAX_ROUNDS:
        yield Text(outcome.turn.answer)
    yield outcome


_TURN = Select(lambda: Turn.objects.filter(pk=param(Turn, "id", "turn")))
_FINISH_REASON = Select(
    lambda: (
        Step.objects.filter(turn=param(Turn, "id", "turn"), kind=StepKind.MODEL)
        .order_by("-index")
        .values_list("finish_reason")[:1]
    )
)
_LEFT = Select(
    lambda: Step.objects.filter(
        turn=param(Turn, "id", "turn"), kind=StepKind.TOOL, status=StepStatus.RETURNED
    ).order_by("index")
)


@sync_to_async
def outcome_of(followed: Followed) -> Outcome:
    """Return how far the turn is. Three queries at most."""
    try:
        with organisation_scope(followed.organisation_id):
            (turn,) = _TURN.instances(turn=followed.turn_id)
            if turn.is_waiting:
                return Outcome(turn)
            last = "".join(reason for (reason,) in _FINISH_REASON.rows(turn=turn.pk))
            calls = _LEFT.instances(turn=turn.pk)
            return Outcome(turn, _finish_reason(turn, last, calls), calls)
    finally:
        give_back_connection()


@sync_to_async
def asked_of(followed: Followed) -> str:
    """Return the sentence that a client reads of a turn that waits for people. One query."""
    try:
        with organisation_scope(followed.organisation_id):
            return sentence_for(followed.turn_id, followed.session_id, followed.token.membership, followed.origin)
    finally:
        give_back_connection()


def _finish_reason(turn: Turn, last: str, calls: Sequence[Step]) -> str:
    """Return the reason why the turn finished, as OpenAI names them. A turn at its limit of rounds was cut short,
    too."""
    if calls:
        return "tool_calls"
    cut = turn.cut_by or finish_of(last)  # a turn of before this was stored
    if turn.error_code == MAX_ROUNDS:
        return LENGTH
    return cut if cut in CUT else STOP


async def stop(followed: Followed) -> None:
    """Stop the turn: nobody waits for it any more. One that has ended stays as it is."""
    await sync_to_async(_stop)(followed)


def _stop(followed: Followed) -> None:
    try:
        with organisation_scope(followed.organisation_id), suppress(Turn.DoesNotExist, PermissionDenied):
            turn = Turn.objects.select_related("parent_step").get(pk=followed.turn_id)
            if turn.is_open:
                ledger.cancel(turn, actor=followed.token.membership)
    except Exception:
        logger.exception("The turn %s of a client that left goes on", followed.turn_id)
    finally:
        give_back_connection()


@sync_to_async
def _may_read(followed: Followed) -> bool:
    """Return whether the token is as good as it was."""
    try:
        with system_scope():
            return usable_tokens().filter(pk=followed.token.pk).exists()
    finally:
        give_back_connection()
