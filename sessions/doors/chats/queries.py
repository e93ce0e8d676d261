"""Reads of sessions and turns for pages, each in a fixed number of queries. Every read begins at a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, Exists, F, IntegerField, OuterRef, Prefetch, QuerySet, Subquery, Value, When
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Left, Length
from django.db.models.lookups import GreaterThan
from django.http import Http404

from capabilities.models import Agent, Tool
from capabilities.running.records.queries import MOST_WORDS, holds_word
from sessions.access import visible_sessions, visible_to
from sessions.doors.chats.files import share_files
from sessions.doors.chats.markdown import share_markdown
from sessions.doors.chats.timelines import Span
from sessions.models import (
    BY_CLIENTS,
    BY_MEMBERS,
    KEPT,
    Approval,
    CallWait,
    ChatSession,
    ClientRequest,
    Notice,
    Step,
    StepFile,
    StepKind,
    StepStatus,
    Turn,
    TurnEvent,
)
from sessions.turns.accepting import Branch
from sessions.turns.leases import first_open_seq
from toolhub.tenants.models import ApiToken, Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: Characters of a call's arguments or result that a page shows before "Show all".
SHOWN_CHARS = 1_500
#: Characters that "Show all" shows, at most.
ALL_CHARS = 200_000
TURNS_A_PAGE = 20
#: Characters of a search.
MAX_SEARCH = 100
NOTICES_SHOWN = 10
SESSIONS_A_PAGE = 30
#: Calls that a tool's page shows.
CALLS_SHOWN = 20


def turn_or_404(member: Membership, turn_id: UUID) -> Turn:
    """Return a turn with its session and its steps as pages show them. Two or three queries. Raises Http404."""
    turn = shown_turns().filter(visible_to(member, "session__"), pk=turn_id).first()
    if turn is None:
        raise Http404("No such turn.")
    share_markdown([turn])
    share_files([turn])
    return turn


def step_or_404(member: Membership, turn_id: UUID, index: int) -> Step:
    """One step with all that it keeps."""
    step = (
        Step.objects.select_related("turn__session")
        .filter(visible_to(member, "turn__session__"), turn=turn_id, index=index)
        .first()
    )
    if step is None:
        raise Http404("No such step.")
    return step


def steps_with_times(member: Membership, turn_id: UUID) -> tuple[Turn, list[Step], dict[int, list[Span]]]:
    """Return a turn, its steps without what was said and called, and by key of a step when its call waited for a
    person. Three queries. Raises Http404."""
    turns = Turn.objects.select_related("session", "agent").defer("agent__prompt")
    turn = turns.filter(visible_to(member, "session__"), pk=turn_id).first()
    if turn is None:
        raise Http404("No such turn.")
    found = Step.objects.filter(turn=turn).defer(
        "text", "tool_calls", "arguments", "result", "result_sent", "hooked_result", "extras", "raw_usage", "routing"
    )
    steps = list(found.order_by("index"))
    asked: dict[int, list[Span]] = {}
    waits = Step.objects.filter(turn=turn, approvals__isnull=False).order_by()
    for step, start, end in waits.values_list("pk", "approvals__created_at", "approvals__decided_at"):
        asked.setdefault(step, []).append((start, end))
    return turn, steps, asked


def client_request_or_404(member: Membership, turn_id: UUID) -> ClientRequest:
    """Return the request that a client sent beside the message of a turn, with the turn, its session and the token. One
    query."""
    requests = ClientRequest.objects.select_related("turn__session", "turn__agent", "token")
    found = requests.filter(visible_to(member, "turn__session__"), turn=turn_id).first()
    if found is None:
        raise Http404("No client sent this turn.")
    return found


def client_token(session: ChatSession) -> ApiToken | None:
    """The token of the client that asked last in this session, revoked or not; None where no client did, or where it is
    removed. One query, and none for a session that no client opened."""
    if not session.client:
        return None
    requests = ClientRequest.objects.filter(turn__session=session).select_related("token")
    last = requests.order_by("-turn__seq").first()
    return last.token if last else None


def shown_turns() -> QuerySet[Turn]:
    """Turns with their session, agent, and steps with their child turns. Long arguments and results are cut in the
    database."""
    steps = (
        Step.objects.defer("arguments", "result", "result_sent", "hooked_result", "extras", "raw_usage")
        .annotate(
            arguments_shown=Left("arguments", SHOWN_CHARS),
            arguments_length=Length("arguments"),
            result_shown=Left("result", SHOWN_CHARS),
            hooked_shown=Left("hooked_result", SHOWN_CHARS),
            result_length=Length("result"),
            still_running=Case(When(status=StepStatus.STARTED, then=Exists(_progress())), default=False),
            task_message=Case(When(status__in=WORKED_ON, then=Subquery(_task_message())), default=Value("")),
        )
        .select_related("tool_set", "child_turn__agent")
        .defer(
            "tool_set__wire",
            "tool_set__instructions",
            "child_turn__message",
            "child_turn__answer",
            "child_turn__agent__prompt",
        )
        .order_by("index")
    )
    others = Turn.objects.filter(session=OuterRef("session")).exclude(agent=OuterRef("agent"))
    return (
        Turn.objects.select_related("session", "agent")
        .annotate(
            waits_for_another=GreaterThan(F("seq"), first_open_seq()),
            has_other_agents=Exists(others),
            has_files=Exists(StepFile.objects.filter(turn=OuterRef("pk"))),
            has_asked=Exists(Approval.objects.filter(turn=OuterRef("pk"))),
            loads_dropped=Subquery(_last_event("loads_dropped")),
            tools_over_limit=Subquery(_last_event("tools_over_limit")),
            tools_too_large=Subquery(_last_event("tools_too_large")),
            tools_over_budget=Subquery(_last_event("tools_over_budget")),
            tools_declared_anew=Subquery(_last_event("tools_declared_anew")),
            native_unavailable=Subquery(_last_event("native_unavailable")),
            search_unavailable=Subquery(_last_event("search_unavailable")),
            model_forced=Subquery(_last_event("model_forced")),
            prompt_patched=Subquery(_last_event("prompt_patched")),
            images_not_sent=Subquery(_last_event("images_not_sent")),
            hook_warning=Subquery(_last_event("hook_warning")),
            budget_warning=Subquery(_last_event("budget_warning")),
        )
        .prefetch_related(Prefetch("steps", steps))
    )


def _progress() -> QuerySet[TurnEvent]:
    """The events that say of a step that its call is still running."""
    events = TurnEvent.objects.filter(turn=OuterRef("turn"), type="tool_progress")
    return events.annotate(step=Cast(KeyTextTransform("step", "payload"), IntegerField())).filter(
        step=OuterRef("index")
    )


#: States of a call that a far side may work on: it waits, or the far side is being asked how far it is.
WORKED_ON = (StepStatus.WAITING, StepStatus.STARTED)


def _task_message() -> QuerySet[CallWait, Any]:
    """Build a subquery for an annotation: the far side's last message on the long task that a step's call is."""
    tasks = CallWait.objects.filter(step=OuterRef("pk"), is_task=True, asked=None)
    return tasks.annotate(shown=Left("message", SHOWN_CHARS)).values("shown")[:1]


def _last_event(kind: str) -> QuerySet[TurnEvent, Any]:
    """The payload of a turn's last event of a kind, for an annotation."""
    return TurnEvent.objects.filter(turn=OuterRef("pk"), type=kind).order_by("-number").values("payload")[:1]


@dataclass(frozen=True)
class TurnsPage:
    """Some turns in the order they were written, and where the ones before them begin (None: there are none)."""

    turns: Sequence[Turn]
    earlier: int | None


def turns_page(session: ChatSession, *, before: int | None = None, limit: int = TURNS_A_PAGE) -> TurnsPage:
    """The session's last turns, or the last ones before a number. Two queries, or three."""
    turns = shown_turns().filter(session=session).order_by("-seq")
    if before is not None:
        turns = turns.filter(seq__lt=before)
    found = list(turns[: limit + 1])
    page = found[:limit][::-1]
    _mark_replaced(page, page[-1] if page and before is None else None)
    share_markdown(page)
    share_files(page)
    return TurnsPage(page, page[0].seq if len(found) > limit else None)


def _mark_replaced(turns: Sequence[Turn], last: Turn | None) -> None:
    """Mark the turns that the session's last one passes over. One query where that one is not given."""
    if last is None and turns:
        last = Turn.objects.filter(session=turns[0].session_id).order_by("-seq").only("passed_over").first()
    for turn in turns:
        turn.is_replaced = last is not None and last.passes_over(turn.seq)  # type: ignore[attr-defined]


def exported_turns(session: ChatSession, most: int) -> list[Turn]:
    """Return the session's last turns, in order, with their steps, cut as pages cut them, and whether they were
    replaced. Two queries."""
    steps = (
        Step.objects.only("organisation", "turn", "index", "kind", "status", "tool_name")
        .annotate(arguments_shown=Left("arguments", SHOWN_CHARS), result_shown=Left("result", SHOWN_CHARS))
        .order_by("index")
    )
    turns = Turn.objects.filter(session=session).select_related("agent", "membership__user").order_by("-seq")
    found = list(turns.prefetch_related(Prefetch("steps", steps))[:most])[::-1]
    _mark_replaced(found, found[-1] if found else None)
    return found


def branch_at(session: ChatSession, *, replaces: UUID | None = None, follows: UUID | None = None) -> Branch | None:
    """Return where a message leaves the session's conversation: in the place of a turn, or behind one; None where it
    goes on from the end. One query. Raises Http404."""
    turn_id = replaces or follows
    if turn_id is None:
        return None
    turn = Turn.objects.select_related("agent").filter(session=session, pk=turn_id).first()
    if turn is None:
        raise Http404("No such turn.")
    return Branch(turn, is_behind=replaces is None)


def turns_after(session: ChatSession, seq: int) -> Sequence[Turn]:
    """The session's turns behind a number, in order, as pages show them. One query where there are none, else two."""
    turns = list(shown_turns().filter(session=session, seq__gt=seq).order_by("seq")[:TURNS_A_PAGE])
    share_markdown(turns)
    share_files(turns)
    return turns


def notices_of(session: ChatSession) -> Sequence[Notice]:
    """Return the latest notices of the service in a session, in order. One query; none where it is known that there are
    none."""
    if not getattr(session, "has_notices", True):
        return []
    return list(Notice.objects.filter(session=session).order_by("-pk")[:NOTICES_SHOWN])[::-1]


def turn_count(session: ChatSession) -> int:
    return Turn.objects.filter(session=session).count()


def sessions_page(
    member: Membership,
    *,
    everyone: bool = False,
    client: str = "",
    q: str = "",
    after: str = "",
    before: str = "",
    limit: int = SESSIONS_A_PAGE,
) -> Page[ChatSession]:
    """The member's sessions, or (`everyone`, for who has the right `sessions`) the organisation's.

    Without a `client` (one of SessionClient), those of one request of a client are left out; with one, all that such
    clients opened are there. `q`: each of its words occurs in the title, in a message or in an answer. Those that an
    agent opened are found at the call that opened them. One query.
    """
    sessions = visible_sessions(member) if everyone else ChatSession.objects.filter(KEPT, membership=member)
    sessions = sessions.filter(BY_CLIENTS, client=client) if client else sessions.filter(BY_MEMBERS)
    for word in q.split()[:MOST_WORDS]:
        turns = Turn.objects.filter(holds_word(("message", "answer"), word), session=OuterRef("pk"))
        sessions = sessions.filter(holds_word(("title",), word) | Exists(turns))
    last = Turn.objects.filter(session=OuterRef("pk")).order_by("-seq")
    rows = sessions.select_related("agent", "membership__user").annotate(
        turn_count=Subquery(last.values("seq")[:1]), last_status=Subquery(last.values("status")[:1])
    )
    return Keyset(rows, ("-active_at", "-pk")).page(after, before, limit=limit)


def agents_to_talk_to(member: Membership | Combinable) -> QuerySet[Agent]:
    """Return the agents that are switched on and offered to the member, in the order they were made: the first one is
    what a newcomer meets. `member` may be a parameter of a statement."""
    return Agent.objects.offered_to(member).filter(is_enabled=True).order_by("pk")


def by_last_call(member: Membership) -> Combinable:
    """An order of tools: the last called first, by calls that the member may see; those without one at the end."""
    calls = Step.objects.filter(kind=StepKind.TOOL, organisation_id=member.organisation_id, tool_name=OuterRef("name"))
    if not member.has_right(Right.SESSIONS):
        calls = calls.filter(turn__membership=member)
    return Value(0) - Coalesce(Subquery(calls.order_by("-pk").values("pk")[:1]), Value(0))


@dataclass(frozen=True)
class VersionCalls:
    """Calls of one version of a tool among the last of the tool."""

    number: int
    calls: int
    failed: int
    last_at: datetime


#: The last calls of a tool that are counted by version.
CALLS_COUNTED = 1_000


def calls_by_version(member: Membership, tool: Tool) -> list[VersionCalls]:
    """Count calls and failures by version, of the last CALLS_COUNTED calls in sessions that the member may see, the
    newest version first. One query, or two."""
    calls = Step.objects.filter(
        visible_to(member, "turn__session__"), kind=StepKind.TOOL, tool_name=tool.name, tool_version__tool=tool
    )
    rows = calls.order_by("-pk").values_list("tool_version__number", "status", "started_at")[:CALLS_COUNTED]
    found: dict[int, VersionCalls] = {}
    for number, status, started_at in rows:
        known = found.get(number) or VersionCalls(number, 0, 0, started_at)
        failed = known.failed + (status in (StepStatus.FAILED, StepStatus.UNKNOWN))
        found[number] = replace(known, calls=known.calls + 1, failed=failed)
    return sorted(found.values(), key=lambda each: -each.number)


def calls_of_tool(member: Membership, name: str) -> list[Step]:
    """The last calls of a tool in sessions that the member may see. One query, or two."""
    calls = (
        Step.objects.filter(visible_to(member, "turn__session__"), kind=StepKind.TOOL, tool_name=name)
        .select_related("turn__membership__user", "turn__session")
        .only(
            "organisation_id",
            "index",
            "status",
            "started_at",
            "ended_at",
            "display",
            "turn__organisation_id",
            "turn__seq",
            "turn__membership__organisation_id",
            "turn__membership__user__email",
            "turn__membership__user__first_name",
            "turn__membership__user__last_name",
            "turn__session__organisation_id",
            "turn__session__title",
        )
    )
    return list(calls.order_by("-pk")[:CALLS_SHOWN])
