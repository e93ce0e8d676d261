"""A call of an MCP client becomes a turn without a model, in the session that is kept for its token and address."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from sessions.loading.addresses import offered_to
from sessions.mcp_server.callers import Caller
from sessions.models import ChatSession, ClientRequest, ClientSession, Door, SessionClient, Turn
from sessions.turns import ledger
from sessions.turns.accepting import ClientAsks, accept

#: A session goes on for as long as this lies between two of its calls; then the next one begins another.
QUIET_AT_MOST = timedelta(days=1)
#: Times that a session is looked for, when other requests make or replace it first.
TRIES = 5


class NoSuchTool(Exception):
    """The address has no tool of that name, for whomever."""


def begin_call(caller: Caller, name: str, arguments: Mapping[str, Any]) -> Turn:
    """Put the call on record, for a worker to make. The same call that was left waiting for a person is taken up again:
    what was allowed is allowed once.

    Raises NoSuchTool, and as `accept`: Conflict and NoRoom. Queries of `offered_to`, one or two for the session, one
    for a call that was left, and those of `accept`.
    """
    address = caller.address
    if not offered_to(caller.member.pk, address.agent, address.toolkit).has(name):
        raise NoSuchTool(name)
    text = json.dumps(arguments)
    digest = digest_of(caller, name, arguments)
    if (left := left_calls(caller).filter(client_request__digest=digest).order_by("-seq").first()) is not None:
        return left
    call = {"name": name, "arguments": text, "toolkit": address.toolkit}
    asks = ClientAsks(Door.MCP, caller.token, digest, call=call)
    return accept(session_of(caller), "", member=caller.member, agent=address.agent, asks=asks).turn


def digest_of(caller: Caller, name: str, arguments: Mapping[str, Any]) -> str:
    """What makes two calls at one address the same."""
    told = json.dumps([caller.address.name, name, arguments], sort_keys=True)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def left_calls(caller: Caller) -> QuerySet[Turn]:
    """The token's calls that were left waiting for a person, and whose result nobody has had yet."""
    return Turn.objects.filter(
        membership=caller.member,
        client_request__token=caller.token,
        client_request__waits_for_client=True,
        session__deleted_at=None,
    )


def leave_waiting(turn_id: UUID) -> None:
    """The client is told that a person must answer first."""
    ClientRequest.objects.filter(turn=turn_id).update(waits_for_client=True)


def hand_over(turn_id: UUID) -> None:
    """The client has the result: the same call again is another one."""
    ClientRequest.objects.filter(turn=turn_id, waits_for_client=True).update(waits_for_client=False)


def resumed_call(caller: Caller, turn_id: str, name: str, arguments: Mapping[str, Any]) -> Turn:
    """The call that a client comes back for, by the state that it was given. Raises NoSuchTool where it is not this
    token's, or another one."""
    try:
        wanted = UUID(turn_id)
    except ValueError:
        raise NoSuchTool(name) from None
    digest = digest_of(caller, name, arguments)
    turn = left_calls(caller).filter(pk=wanted, client_request__digest=digest).first()
    if turn is None:
        raise NoSuchTool(name)
    return turn


def session_of(caller: Caller) -> ChatSession:
    """The session that this token's calls at this address belong to; another one after a day without any. What one of
    them brought in from outside counts for the next one, and `read_result` reads in the results of all of them."""
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


def _open(caller: Caller) -> ChatSession:
    return ChatSession.objects.create(
        organisation_id=caller.organisation_id,
        membership=caller.member,
        agent=caller.address.agent,
        title=f"MCP: {caller.address.name}"[:200],
        client=SessionClient.MCP,
        is_throwaway=True,
    )


def stop_call(caller: Caller, turn_id: UUID) -> None:
    """The client has gone, or wants the answer no more: what the call has not done yet is not done."""
    turn = Turn.objects.select_related("parent_step").filter(pk=turn_id).first()
    if turn is not None and turn.is_open:
        ledger.cancel(turn, actor=caller.member)
