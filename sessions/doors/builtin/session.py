"""Past conversations of the member who asks: read one, search all. Never another member's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from uuid import UUID

from django.db.models import Q, QuerySet
from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool
from sessions.models import KEPT, ChatSession, Turn

CATEGORY = CategorySpec(
    name="session",
    title="Sessions",
    description="Read and search what was said in earlier conversations.",
    keywords=(
        "remember",
        "session",
        "history",
        "last time",
        "what did we",
        "earlier",
        "yesterday",
        "last week",
        "previously",
    ),
)
#: Characters of one message that a listing shows.
EXCERPT = 400


@tool(category="session", effect="read", human_format="Asking: {question}")
def ask_user(
    context: ToolContext,
    question: Annotated[str, Field(description="One question", min_length=1, max_length=2_000)],
    choices: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]],
        Field(description="Answers to choose from, if there are few", max_length=10),
    ] = [],  # noqa: B006
) -> str:
    """Ask the user a question that you cannot answer yourself, and wait for the answer."""
    raise ToolError("Nobody can be asked here: ask in your answer instead, and end your turn with it.")


@tool(category="session", effect="read", human_format="Reading the conversation {session}")
def session_read(
    context: ToolContext,
    session: Annotated[str, Field(description="Session id; empty for the current one", max_length=36)] = "",
    last: Annotated[int, Field(description="How many of the latest turns", ge=1, le=50)] = 10,
) -> dict[str, Any]:
    """Read the latest turns of a conversation with this user."""
    found = _own_sessions(context).filter(pk=_session_id(context, session)).first()
    if found is None:
        raise ToolError("There is no such session; session_search lists them.")
    turns = list(_other_turns(context).filter(session=found).order_by("-seq")[:last])
    _pass_on_trust(context, turns)
    return {"session": str(found.pk), "title": str(found), "turns": [_shown(turn) for turn in reversed(turns)]}


@tool(category="session", effect="read", human_format="Searching conversations for {query}")
def session_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words that were said; all must occur", min_length=1, max_length=200)],
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> dict[str, Any]:
    """Find turns of this user's past conversations in which all these words occur, newest first."""
    turns = _other_turns(context)
    for word in query.split()[:10]:
        turns = turns.filter(Q(message__icontains=word) | Q(answer__icontains=word))
    found = list(turns.order_by("-created_at")[:limit])
    _pass_on_trust(context, found)
    return {"found": [{"session": str(turn.session_id), **_shown(turn)} for turn in found]}


def _pass_on_trust(context: ToolContext, turns: Iterable[Turn]) -> None:
    """Mark the call as untrusted where one of the turns had text from outside: its answer may repeat that text."""
    if any(turn.untrusted_since is not None for turn in turns):
        context.untrusted.set()


def _own_sessions(context: ToolContext) -> QuerySet[ChatSession]:
    return ChatSession.objects.filter(KEPT, membership=context.membership_id)


def _other_turns(context: ToolContext) -> QuerySet[Turn]:
    """The member's turns but the one that is running."""
    turns = Turn.objects.filter(membership=context.membership_id, session__deleted_at=None)
    return turns.exclude(pk=context.turn_id) if context.turn_id else turns


def _session_id(context: ToolContext, text: str) -> UUID:
    if not text and context.session_id is not None:
        return context.session_id
    try:
        return UUID(text)
    except ValueError:
        raise ToolError(f"{text} is no session id; session_search lists them.") from None


def _shown(turn: Turn) -> dict[str, Any]:
    return {
        "at": turn.created_at.isoformat(timespec="minutes"),
        "message": turn.message[:EXCERPT],
        "answer": turn.answer[:EXCERPT] or turn.status,
    }
