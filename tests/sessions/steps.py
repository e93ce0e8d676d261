"""Turns and steps as tests of the ledger make them: real rows, with leases moved instead of waited for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from sessions.models import ChatSession, Step, StepStatus, Turn
from sessions.turns import accepting, ledger
from sessions.turns.ledger import Claim
from sessions.turns.replies import ReplyRecord
from toolhub.tenants.rows.scope import organisation_scope, system_scope


def accepted(session: ChatSession, message: str = "hello", key: str = "") -> Turn:
    with organisation_scope(session.organisation_id):
        return accepting.accept(session, message, member=session.membership, idempotency_key=key).turn


def claimed(turn: Turn, owner: str = "worker-1") -> Claim:
    claim = ledger.claim(turn.pk, owner)
    assert claim is not None
    return claim


def change(turn_id: UUID, **values: Any) -> None:
    """Set columns behind the ledger's back."""
    with system_scope():
        Turn.objects.filter(pk=turn_id).update(**values)


def expire_lease(turn_id: UUID) -> None:
    change(turn_id, lease_until=ledger.from_now(-1))


def reread(turn: Turn) -> Turn:
    with system_scope():
        return Turn.objects.get(pk=turn.pk)


def add_call(claim: Claim, *, round: int = 1, call_index: int = 0, name: str = "calculator") -> Step:
    """A pending call, as a reply of this round has it that is not on record."""
    call = {"id": f"call_{round}_{call_index}", "name": name, "arguments": "{}"}
    reply = Step(round=round, tool_calls=[call] * (call_index + 1))
    with organisation_scope(claim.organisation_id):
        (step,) = ledger.add_calls(claim, reply, [call_index])
    return step


def start_call(claim: Claim, *, round: int = 1, call_index: int = 0) -> Step:
    """A call that has begun: one that a reply left pending, else a new one; where it may not begin, none is stored."""
    with organisation_scope(claim.organisation_id), transaction.atomic():
        pending = Step.objects.filter(
            turn=claim.turn_id, round=round, call_index=call_index, status=StepStatus.PENDING
        ).first()
        step = pending or add_call(claim, round=round, call_index=call_index)
        ledger.start_step(claim, step)
    return step


def end_call(claim: Claim, step: Step) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.finish_step(claim, step, StepStatus.DONE, result="4", result_sent="4")


def record_model(claim: Claim, text: str = "hi", *, calls: int = 0, prompt: ledger.Prompt | None = None) -> Step:
    with organisation_scope(claim.organisation_id):
        reply = ReplyRecord(
            started_at=timezone.now(),
            prompt=prompt,
            text=text,
            tool_calls=[{"id": f"c{index}", "name": "calculator", "arguments": "{}"} for index in range(calls)],
            input_tokens=10,
            cached_tokens=4,
            output_tokens=2,
        )
        step, _, _ = ledger.record_model_step(claim, reply)
        return step
