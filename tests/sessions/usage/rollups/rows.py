"""Ended turns with their steps, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from capabilities.choosing.pipeline.bringing import OWN
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Tool
from sessions.models import ChatSession, Step, ToolSet, Turn, VerdictSet
from toolhub.tenants.rows.scope import organisation_scope

#: The hour in which the rows' rounds begin.
HOUR = datetime(2026, 11, 3, 9, tzinfo=UTC)


def ended_turn(session: ChatSession, *, at: datetime = HOUR, **fields: Any) -> Turn:
    with organisation_scope(session.organisation_id):
        seq = Turn.objects.filter(session=session).count() + 1
        values = {"status": "done", "agent": session.agent, "message": "hello"} | fields
        return Turn.objects.create(
            organisation_id=session.organisation_id,
            session=session,
            membership=session.membership,
            seq=seq,
            deadline_at=at,
            ended_at=at + timedelta(minutes=20),
            **values,
        )


def add_round(turn: Turn, *, tools: Sequence[Tool] = (), at: datetime = HOUR, **fields: Any) -> Step:
    """A model call, by default 1,000 tokens in and 50 out, with these tools."""
    with organisation_scope(turn.organisation_id):
        number = Step.objects.filter(turn=turn, kind="model").count() + 1
        Turn.objects.filter(pk=turn.pk).update(rounds=number)
        values = {"input_tokens": 1_000, "output_tokens": 50, "origin": origin_of(turn)} | fields
        step = Step.objects.create(
            organisation_id=turn.organisation_id,
            turn=turn,
            index=next_index(turn),
            kind="model",
            status="done",
            round=number,
            tool_set=tool_set_of(turn, tools) if tools else None,
            **values,
        )
        Step.objects.filter(pk=step.pk).update(started_at=at)
        return step


def add_use(turn: Turn, tool: Tool, *, round: int = 1, **fields: Any) -> Step:
    """A call of the tool, by default answered with "found it"."""
    with organisation_scope(turn.organisation_id):
        place = Step.objects.filter(turn=turn, kind="tool", round=round).count()
        values = {"status": "done", "result_sent": "found it", "tool_version": tool.current_version} | fields
        return Step.objects.create(
            organisation_id=turn.organisation_id,
            turn=turn,
            index=next_index(turn),
            kind="tool",
            round=round,
            call_index=place,
            tool_name=tool.name,
            **values,
        )


def next_index(turn: Turn) -> int:
    return Step.objects.filter(turn=turn).count() + 1


def origin_of(turn: Turn) -> str:
    return resolve_model(turn.agent.model).origin


def tool_set_of(turn: Turn, tools: Sequence[Tool]) -> ToolSet:
    ids = [tool.current_version_id for tool in tools]
    return ToolSet.objects.get_or_create(
        organisation_id=turn.organisation_id,
        key=f"{ids}",
        defaults={"sha256": "s", "wire": "[]", "tokens": 100 * len(ids), "version_ids": ids},
    )[0]


def verdicts_of(turn: Turn, *, kept: Sequence[Tool] = (), stopped: Sequence[Tool] = ()) -> VerdictSet:
    """Of own tools of the agent, of which the role stopped some."""
    verdicts: list[dict[str, Any]] = [
        {"tool": tool.name, "stage": "gather", "kept": True, "reason": OWN} for tool in (*kept, *stopped)
    ]
    verdicts += [{"tool": tool.name, "stage": "role", "kept": False, "reason": ""} for tool in stopped]
    return VerdictSet.objects.create(organisation_id=turn.organisation_id, key=str(turn.pk), verdicts=verdicts)
