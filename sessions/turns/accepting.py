"""Acceptance of a message as a turn: it is on record before the sender is answered that it was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import (
    Count,
    DurationField,
    Exists,
    F,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Coalesce, Now

from capabilities.common.text import storable
from capabilities.contract.results import ResultFile
from capabilities.models import Agent, ClientApprovals, is_offered
from sessions.access import takes_calls_alone
from sessions.models import (
    KEPT,
    Budget,
    ChatSession,
    ClientRequest,
    Door,
    Turn,
    TurnStatus,
)
from sessions.turns import files as attached_files
from sessions.turns.bell import ring_after_commit
from sessions.turns.budget_states import budgets_of, charged_for
from sessions.turns.fencing import (
    Conflict,
    NoRoom,
    QueueFull,
    from_now,
    insert_event,
)
from sessions.turns.spending import check_room
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.statements import Insert, Param, Select, Update, param

#: Characters of a message.
MAX_MESSAGE = 100_000


#: Times that accept tries for the session's next number, when others take it first.
ACCEPT_TRIES = 20


@dataclass(frozen=True)
class Accepted:
    """A turn that is on record, and whether this request put it there."""

    turn: Turn
    created: bool


@dataclass(frozen=True)
class ClientAsks:
    """Parts of a gateway client's request beside the message: the fields of ClientRequest, where each is explained."""

    door: Door
    token: ApiToken
    digest: str
    earlier: Sequence[Mapping[str, Any]] | None = None
    instructions: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_stored: bool = True
    call: Mapping[str, Any] | None = None
    #: Files of the earlier messages: their `files` are places behind those of the turn's own message.
    files: Sequence[ResultFile] = ()

    def row(self, turn: Turn) -> ClientRequest:
        """Return the row that is stored beside the turn."""
        return ClientRequest(
            organisation_id=turn.organisation_id,
            turn=turn,
            token=self.token,
            digest=self.digest,
            earlier=None if self.earlier is None else list(self.earlier),
            instructions=self.instructions,
            tools=list(self.tools),
            parameters=dict(self.parameters),
            is_stored=self.is_stored,
            call=self.call,
        )


@dataclass(frozen=True)
class Branch:
    """Where a turn leaves the conversation: in the place of an ended turn of the session, or behind one that is not in
    the conversation any more. All turns from there on stay on record, and none of them is in the conversation."""

    turn: Turn
    is_behind: bool = False

    def passed_over(self, last: int) -> list[list[int]]:
        """Return the ranges of a turn behind the `last` that leaves the conversation here."""
        return self.turn.passing_over(self.turn.seq + self.is_behind, last)


def accept(
    session: ChatSession,
    message: str,
    *,
    member: Membership,
    agent: Agent | None = None,
    idempotency_key: str = "",
    origin_key: str = "",
    without_tools: bool = False,
    branch: Branch | None = None,
    asks: ClientAsks | None = None,
    files: Sequence[ResultFile] = (),
) -> Accepted:
    """Put a turn on record; when this returns, it is never lost. Without an agent, it is the session's first.
    `without_tools`: a quick question, answered by one model call that carries no tools; so is what a person writes
    in a session whose tools are off. `asks` comes with a turn of the gateway's; without a message it goes on from what
    stands in front of it. `files` are attached to the message, as `files.attachable` checked them.

    The same key with the same message to the same agent in the same session gives the same turn again: a client's
    `idempotency_key`, or the `origin_key` of what the service submits itself, which no client can write. Raises
    Conflict `idempotency_key_reused` where the key came with something else, `agent_disabled`, `agent_not_offered`,
    `child_session`, `client_session`, `turn_open` (the one of the `branch`), `no_room_for_files`, and `deleted`; NoRoom
    where too many turns of the member or of the organisation wait already, a budget that stops turns has nothing left,
    or as many turns run as may at once.
    """
    agent = agent or session.agent
    message = storable(message)
    keys = {"idempotency_key": idempotency_key, "origin_key": origin_key}
    tools_off = session.tools_off and not without_tools and asks is None and not origin_key
    new = Turn(
        organisation_id=session.organisation_id,
        session=session,
        membership=member,
        agent=agent,
        message=message,
        without_tools=without_tools or tools_off,
        tools_off=tools_off,
        door=asks.door if asks else "",
        is_continuation=asks is not None and not message and asks.call is None,
        is_unattended=asks is not None and is_unattended(asks.door, agent),
        attached=len(files),
        **keys,
    )
    if session.parent_turn_id is not None:
        raise Conflict("child_session", "An agent opened this session for a part of its work; nobody else writes here.")
    if takes_calls_alone(session) and (asks is None or asks.call is None):
        raise Conflict("client_session", "Calls of an MCP client stand in this session: write in one of your own.")
    if branch is not None and branch.turn.is_open:
        raise Conflict("turn_open", "That turn has not ended yet: stop it first.")
    for _ in range(ACCEPT_TRIES):
        full = None
        refusal = _why_not(agent, member)
        if refusal is None:
            try:
                with transaction.atomic():
                    return Accepted(_insert(new, asks, branch, files), created=True)
            except NoRoom as error:
                full = error
            except ChatSession.DoesNotExist as gone:
                raise Conflict("deleted", "This session was deleted.") from gone
            except IntegrityError:
                pass
        # The key is taken, or (then once more) another request took the number between our look and our insert.
        for name, key in keys.items():
            known = Turn.objects.filter(membership=member, **{name: key}).first() if key else None
            if known is not None:
                return Accepted(_same_request(known, new, asks, branch, files), created=False)
        if refusal is not None:
            raise refusal
        if full is not None:
            raise full
    raise Conflict("busy", "Too many messages at once for this session: try again.")


def _why_not(agent: Agent, member: Membership) -> Conflict | None:
    """One query for an agent that is offered to roles."""
    if not agent.is_enabled:
        return Conflict("agent_disabled", f"The agent {agent.name} is switched off.")
    if not is_offered(agent, member):
        return Conflict("agent_not_offered", f"The agent {agent.name} is not offered to you any more: choose another.")
    return None


def is_unattended(door: str, agent: Agent) -> bool:
    """Return whether nobody answers the questions that calls of the agent's turns ask a person, where they come by this
    door. Clients of MCP have ways of their own to show their user such questions."""
    return door in (Door.CHAT, Door.RESPONSES) and agent.client_approvals == ClientApprovals.HIDE


def _kept() -> QuerySet[ChatSession, Any]:
    """The session with this key, unless it was deleted."""
    return ChatSession.objects.filter(KEPT, pk=param(ChatSession, "id", "session"))


def _places() -> QuerySet[ChatSession, Any]:
    """The session's last number, the turns that are not in its conversation, how many turns of the organisation and of
    the member wait, whether the organisation has budgets, its registry version, and the moment by the database's
    clock."""
    last = Turn.objects.filter(session=OuterRef("pk")).order_by("-seq")
    seq, passed_over = (Subquery(last.values(name)[:1]) for name in ("seq", "passed_over"))
    queued = Turn.objects.filter(organisation=OuterRef("organisation"), status=TurnStatus.QUEUED).order_by()
    waiting = queued.values("organisation").annotate(count=Count("pk")).values("count")
    of_member = queued.filter(membership=param(Turn, "membership", "member"))
    mine = of_member.values("membership").annotate(count=Count("pk")).values("count")
    budgets = Budget.objects.filter(organisation=OuterRef("organisation"), is_enabled=True)
    counts = (Coalesce(Subquery(each), 0) for each in (waiting, mine))
    return _kept().values_list(
        Coalesce(seq, 0), passed_over, *counts, Exists(budgets), F("organisation__registry_version"), Now()
    )


_PLACES = Select(_places)
_WRITTEN_TO = Update(_kept, {"active_at": Now(), "title": None}, ("id",))


def admit_turn(waiting: int, mine: int) -> None:
    """Let one more turn in, where `waiting` turns of the organisation and `mine` of the member wait already. Inside the
    transaction that stores it; requests side by side may pass the limit by a few. Raises QueueFull."""
    if waiting >= settings.TOOLHUB_QUEUED_PER_ORGANISATION:
        text = f"{waiting:,} messages of your organisation wait for an answer: try again when some have theirs."
        raise QueueFull(text)
    if mine >= settings.TOOLHUB_QUEUED_PER_MEMBER:
        raise QueueFull(f"{mine:,} of your messages wait for an answer: try again when some have theirs.")


def _insert(turn: Turn, asks: ClientAsks | None, branch: Branch | None, files: Sequence[ResultFile]) -> Turn:
    session = turn.session
    places = _PLACES.rows(session=session.pk, member=turn.membership_id)
    if not places:
        raise ChatSession.DoesNotExist
    last, passed_over, waiting, mine, has_budgets, version, now = places[0]
    admit_turn(waiting, mine)
    if has_budgets:
        charged = charged_for(session, turn.membership_id, turn.agent_id, version)
        check_room(budgets_of(turn.organisation_id, version), charged, now)
    turn.seq = last + 1
    turn.passed_over = branch.passed_over(last) if branch else passed_over or []
    stored = [*files, *asks.files] if asks else files
    if stored and not attached_files.has_room(stored):
        raise Conflict("no_room_for_files", attached_files.NO_ROOM.format(most=attached_files.MAX_OF_ORGANISATION))
    insert_turn(turn)
    attached_files.store(turn, stored)
    if asks is not None:
        _REQUEST.add(asks.row(turn))
    if not _WRITTEN_TO.rows(session=session.pk, title=session.title or title_of(turn.message)):
        raise ChatSession.DoesNotExist  # deleted between our look and our insert
    return turn


_TURN = Insert.whole(Turn, deadline_at=from_now(Param("longest", DurationField())), rang_at=Now())
_REQUEST = Insert.whole(ClientRequest)


def insert_turn(turn: Turn) -> None:
    """Store a new turn as queued, with its first event, and call for a worker once it is committed."""
    turn.last_event = 1
    _TURN.add(turn, longest=timedelta(seconds=settings.TOOLHUB_QUEUE_SECONDS))
    insert_event(turn.organisation_id, turn.pk, 1, "accepted", {"seq": turn.seq})
    ring_after_commit(turn.pk)


def title_of(message: str) -> str:
    """Return the title of a session that begins with this message."""
    return message.strip().splitlines()[0][:80] if message.strip() else ""


#: Columns that two requests of one key have in common; those of one client of the gateway have the same body, whatever
#: session was made for each.
_SAME = ("session_id", "agent_id", "message", "is_quick_question", "door")


def _same_request(
    known: Turn, new: Turn, asks: ClientAsks | None, branch: Branch | None, files: Sequence[ResultFile]
) -> Turn:
    if asks is not None and known.asked is not None:
        is_same = known.asked.digest == asks.digest
    else:
        is_same = all(getattr(known, name) == getattr(new, name) for name in _SAME)
        is_same = is_same and (
            known.passed_over == branch.passed_over(known.seq - 1) if branch else known.replaces is None
        )
        is_same = is_same and attached_files.are_same(known, files)
    if not is_same:
        raise Conflict(
            "idempotency_key_reused", "This Idempotency-Key came with another message, or for another agent, before."
        )
    return known
