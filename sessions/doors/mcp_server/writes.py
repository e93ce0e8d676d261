"""A call of an MCP client becomes a turn without a model, in the session that is kept for its token and address."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Case, QuerySet, When
from django.db.models.functions import Now

from sessions.doors.mcp_server.callers import McpCaller
from sessions.models import (
    OPEN_STATUSES,
    ChatSession,
    ClientRequest,
    ClientSession,
    Door,
    SessionClient,
    Turn,
)
from sessions.selection.loading.offered import offered_to
from sessions.turns import ledger
from sessions.turns.accepting import ClientAsks, accept

#: A session goes on for as long as this lies between two of its calls; then the next one begins another.
QUIET_AT_MOST = timedelta(days=1)
#: Times that a session is looked for, when other requests make or replace it first.
TRIES = 5


class NoSuchTool(Exception):
    """The address has no tool of that name, for whomever."""


class NothingWaits(Exception):
    """Error where no call of this token's waits for the client that comes back: it was another one, or its result was
    fetched."""


@dataclass(frozen=True)
class Taken:
    """Call that is on record, and whether its client has read before that it waits for a person."""

    turn: Turn
    was_left: bool = False


def begin_call(caller: McpCaller, name: str, arguments: Mapping[str, Any]) -> Taken:
    """Put the call on record, for a worker to make. The same call that was left waiting for a person is taken up again,
    of several the first that waits no more: what was allowed is allowed once.

    Raises NoSuchTool, and as `accept`: Conflict and NoRoom. One query for a call that was left, else those of
    `offered_to`, one or two for the session, and those of `accept`.
    """
    address = caller.address
    digest = digest_of(caller, name, arguments)
    waits = Case(When(status__in=OPEN_STATUSES, then=1), default=0)
    left = left_calls(caller).filter(client_request__digest=digest).order_by(waits, "created_at", "pk").first()
    if left is not None:
        return Taken(left, was_left=True)
    if not offered_to(caller.member.pk, address.agent, address.toolkit).has(name):
        raise NoSuchTool(name)
    call = {"name": name, "arguments": json.dumps(arguments), "toolkit": address.toolkit}
    asks = ClientAsks(Door.MCP, caller.token, digest, call=call)
    return Taken(accept(session_of(caller), "", member=caller.member, agent=address.agent, asks=asks).turn)


def digest_of(caller: McpCaller, name: str, arguments: Mapping[str, Any]) -> str:
    """Hash of a call at the caller's address: equal for two calls with the same tool and arguments."""
    text = json.dumps([caller.address.name, name, arguments], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def left_calls(caller: McpCaller) -> QuerySet[Turn]:
    """The token's calls that were left waiting for a person, and whose result nobody has had yet."""
    return Turn.objects.filter(
        membership=caller.member,
        client_request__token=caller.token,
        client_request__waits_for_client=True,
        session__deleted_at=None,
    )


def leave_waiting(turn_id: UUID) -> None:
    """Record that the client was referred to a person, who must answer first."""
    ClientRequest.objects.filter(turn=turn_id).update(waits_for_client=True)


def hand_over(turn_id: UUID) -> bool:
    """Return whether the client gets the result of a call that was left: the first that asks. The same call again is
    another one."""
    left = ClientRequest.objects.filter(turn=turn_id, waits_for_client=True)
    return left.update(waits_for_client=False) == 1


def resumed_call(caller: McpCaller, turn_id: str, name: str, arguments: Mapping[str, Any]) -> Taken:
    """The call that a client comes back for, by the state that it was given. Raises NothingWaits where it is not this
    token's, another one, or had its result already. One query."""
    try:
        wanted = UUID(turn_id)
    except ValueError:
        raise NothingWaits from None
    digest = digest_of(caller, name, arguments)
    turn = left_calls(caller).filter(pk=wanted, client_request__digest=digest).first()
    if turn is None:
        raise NothingWaits
    return Taken(turn, was_left=True)


def session_of(caller: McpCaller) -> ChatSession:
    """The session that this token's calls at this address belong to; another one after a day without any. What one of
    them brought in from outside counts for the next one, and `read_result` reads in the results of all of them. Raises
    RuntimeError where others kept changing it at the same time."""
    key = f"mcp:{caller.address.name}"
    for _ in range(TRIES):
        known = ClientSession.objects.filter(token=caller.token, key=key).select_related("session").first()
        if known is not None and _goes_on(known.session):
            return known.session
        try:
            with transaction.atomic():
                session = _open(caller)
                if known is None:
                    ClientSession.objects.create(
                        organisation_id=caller.organisation_id, token=caller.token, key=key, session=session
                    )
                    return session
                replaced = ClientSession.objects.filter(pk=known.pk, session=known.session_id).update(session=session)
                if replaced:
                    return session
                session.delete()
        except IntegrityError:
            continue
    raise RuntimeError(f"no session could be kept for {key}")


def _goes_on(session: ChatSession) -> bool:
    recent = ChatSession.objects.filter(pk=session.pk, active_at__gt=Now() - QUIET_AT_MOST, deleted_at=None)
    return recent.exists()


def _open(caller: McpCaller) -> ChatSession:
    return ChatSession.objects.create(
        organisation_id=caller.organisation_id,
        membership=caller.member,
        agent=caller.address.agent,
        title=f"MCP: {caller.address.name}"[:200],
        client=SessionClient.MCP,
        is_throwaway=True,
    )


def stop_call(caller: McpCaller, turn_id: UUID) -> None:
    """The client has gone, or wants the answer no more: what the call has not done yet is not done."""
    turn = Turn.objects.select_related("parent_step").filter(pk=turn_id).first()
    if turn is not None and turn.is_open:
        ledger.cancel(turn, actor=caller.member)
