"""The durable turn: record, finish, cancel, and by the names of `leases` claim and release. The database is the queue;
Celery only rings.

A turn belongs to whoever claimed it last: the claim raises its epoch and takes a lease, and every write names the
epoch. A worker whose lease ran out finds that it owns nothing any more (LeaseLost) and stops at once. All times are
the database's, so that workers need not agree on the hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import BooleanField, Case, F, IntegerField, Value, When
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from capabilities.common.text import storable
from sessions.access import Ending, facts_of_turn, may_stop, turn_ending
from sessions.models import (
    CallWait,
    ChatSession,
    Step,
    StepFile,
    StepKind,
    StepStatus,
    ToolSet,
    Turn,
    TurnStatus,
)
from sessions.turns.asked import ApprovalNotUsable, mark_used
from sessions.turns.endings import AFTERMATH, ending_turn, follow_up, stop_turn
from sessions.turns.fencing import (
    COUNTERS,
    EVENT,
    NEXT_EVENT,
    NEXT_STEP,
    CancelRequested,
    Claim,
    Conflict,
    LeaseLost,
    LedgerError,
    NoRoom,
    QueueFull,
    add_event,
    check_may_start,
    fence,
    from_now,
    hold,
    insert_events,
    transition,
)
from sessions.turns.leases import (
    claim,
    claimable,
    due,
    first_open_seq,
    next_in_session,
    release,
    release_reservation,
    renew,
)
from sessions.turns.masking import mask_ended, masked_fields
from sessions.turns.new_steps import COLUMNS, calls_of, insert_steps, new_step
from sessions.turns.replies import Prompt, ReplyRecord
from sessions.turns.spending import HAS_RESERVATION, settle
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.statements import Param, Update, param

#: Names that others import from here, though they stand in the rooms behind it.
__all__ = [
    "ApprovalNotUsable",
    "CancelRequested",
    "Claim",
    "Conflict",
    "LeaseLost",
    "LedgerError",
    "NoRoom",
    "Prompt",
    "QueueFull",
    "claim",
    "claimable",
    "due",
    "first_open_seq",
    "from_now",
    "next_in_session",
    "release",
    "release_reservation",
    "renew",
]


# -- Record -----------------------------------------------------------------------------------------------------------

_DRAFT = transition(draft=None, draft_event=F("last_event"))
_RESTART = transition(last_event=NEXT_EVENT, draft="")
_MORE_CALLS = transition(last_step=F("last_step") + Param("calls", IntegerField()))
#: A finished step proves that the turn does not kill its worker: the count of attempts begins anew.
_DONE_AT_ONCE = transition(last_event=NEXT_EVENT, last_step=NEXT_STEP, attempts=1)
_DONE = transition(last_event=NEXT_EVENT, attempts=1)
_DONE_UNTRUSTED = transition(
    last_event=NEXT_EVENT,
    attempts=1,
    untrusted_since=Coalesce(F("untrusted_since"), Param("untrusted_step", IntegerField())),
)
#: Changes of a model's reply in its turn, whether the turn goes on or ends with it.
_REPLY: dict[str, Any] = {
    "last_step": NEXT_STEP + Param("calls", IntegerField()),
    "rounds": F("rounds") + 1,
    "input_tokens": F("input_tokens") + param(Turn, "input_tokens"),
    "cached_tokens": F("cached_tokens") + param(Turn, "cached_tokens"),
    "output_tokens": F("output_tokens") + param(Turn, "output_tokens"),
    "cache_write_tokens": F("cache_write_tokens") + param(Turn, "cache_write_tokens"),
    "reasoning_tokens": F("reasoning_tokens") + param(Turn, "reasoning_tokens"),
    "cost": F("cost") + param(Turn, "cost"),
    "has_unpriced_rounds": Case(
        When(has_unpriced_rounds=True, then=True), default=Param("is_unpriced", BooleanField())
    ),
    "usage_estimated": Case(When(usage_estimated=True, then=True), default=Param("usage_estimated", BooleanField())),
    "draft": "",
    "attempts": 1,
}
_MODEL = transition(last_event=NEXT_EVENT, **_REPLY)
_CLIENT_CALL = transition(last_event=NEXT_EVENT, last_step=NEXT_STEP + 1, attempts=1)

#: Columns of its model steps that a turn sums up.
_SUMMED = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost")
_STARTED = Update(
    lambda: Step.objects.filter(pk=param(Step, "id", "step"), status__in=(StepStatus.PENDING, StepStatus.WAITING)),
    dict.fromkeys(
        (
            "status",
            "epoch",
            "started_at",
            "tool_name",
            "arguments",
            "called_through",
            "tool_version",
            "display",
            "hooks",
        )
    ),
    ("id",),
)
_OUTCOME = Update(
    lambda: Step.objects.filter(pk=param(Step, "id", "step"), status__in=(StepStatus.STARTED, StepStatus.WAITING)),
    dict.fromkeys(
        (
            "status",
            "arguments",
            "display",
            "result",
            "result_sent",
            "is_malformed",
            "hooked_result",
            "hooks",
            "structured",
            "promised",
        )
    )
    | {"ended_at": Now()},
    ("id",),
)
_PROMPT = Update(
    lambda: ChatSession.objects.filter(pk=param(ChatSession, "id", "session")),
    dict.fromkeys(("last_prompt", "tool_order")),
)


def write_event(claim: Claim, type: str, payload: Mapping[str, Any]) -> None:
    with transaction.atomic():
        add_event(claim, fence(claim, EVENT), type, payload)


def keep_draft(claim: Claim, text: str) -> Mapping[str, Any]:
    """Store what the model has written so far of a reply, for whoever begins to watch, and return the turn's counters.

    `last_event` of these is the number of the event behind which it is written. Raises LeaseLost.
    """
    with transaction.atomic():
        return fence(claim, _DRAFT, draft=text)


def restart_draft(claim: Claim) -> None:
    """Drop what the model has written so far of a reply: it is asked again."""
    with transaction.atomic():
        add_event(claim, fence(claim, _RESTART), "attempt_restarted", {"epoch": claim.epoch})


def add_note(claim: Claim, text: str) -> Step:
    """Store what there is to know as the turn's next step, with its event, in one transaction."""
    with transaction.atomic():
        turn = fence(claim, _DONE_AT_ONCE)
        step = new_step(claim, index=turn["last_step"], kind=StepKind.NOTE, status=StepStatus.DONE, text=text)
        insert_steps([step])
        add_event(claim, turn, "note", {"step": step.index})
    return step


def add_tools(claim: Claim, payload: Mapping[str, Any], **fields: Any) -> Step:
    """Store tools that are added to the conversation as the turn's next step, with its event, in one transaction;
    `payload` is the event's content beside the step."""
    with transaction.atomic():
        turn = fence(claim, _DONE_AT_ONCE)
        step = new_step(claim, index=turn["last_step"], kind=StepKind.TOOLS, status=StepStatus.DONE, **fields)
        insert_steps([step])
        add_event(claim, turn, "tools_added", {"step": step.index, **payload})
    return step


def record_model_step(claim: Claim, reply: ReplyRecord) -> tuple[Step, list[Step], int]:
    """Store what the model said, before anything acts on it, with each call that it asks for as a pending step behind
    it, and add its tokens to the turn's and, in place of what was reserved, to those of its budgets.

    Returns the step, those of its calls, and the organisation's registry version at that moment.
    """
    with transaction.atomic():
        asked = len(reply.tool_calls)
        turn = fence(claim, _MODEL, **_of_turn(reply, calls=asked))
        index = turn["last_step"] - asked
        step = _step_of(claim, turn, reply, index)
        calls = calls_of(claim, step, range(asked), index + 1)
        insert_steps([step, *calls])
        add_event(claim, turn, "model", _of_reply(step))
        _insert_more_events(claim, turn["last_event"], _settled(reply))
    return step, calls, turn["registry"]


def record_client_call(claim: Claim, call: Mapping[str, str], tool_set: ToolSet | None) -> tuple[Step, list[Step], int]:
    """Store a call that a client made itself, where a model's reply would stand, and the same call as pending behind
    it. Returns the step, that of the call in a list, and the organisation's registry version at that moment."""
    with transaction.atomic():
        turn = fence(claim, _CLIENT_CALL)
        index = turn["last_step"] - 1
        made = {"kind": StepKind.CLIENT, "status": StepStatus.DONE, "tool_calls": [dict(call)]}
        step = new_step(claim, index=index, tool_set=tool_set, **made)
        calls = calls_of(claim, step, (0,), index + 1)
        insert_steps([step, *calls])
        add_event(claim, turn, "client_call", {"step": index})
    return step, calls, turn["registry"]


def _settled(reply: ReplyRecord) -> list[tuple[str, dict[str, Any]]]:
    """Count the reply's tokens and cost on the budgets; returns events."""
    return settle(reply.reserved, tokens=reply.input_tokens + reply.output_tokens, money=reply.cost)


def _insert_more_events(claim: Claim, last: int, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Events that the fence has not counted, behind number `last`. The turn is held. Two queries, none for none."""
    if events:
        Turn.objects.filter(pk=claim.turn_id).update(last_event=last + len(events))
        insert_events(claim.organisation_id, claim.turn_id, last + len(events), *events)


def add_calls(claim: Claim, reply: Step, places: Sequence[int]) -> list[Step]:
    """Store the calls at these places of a stored reply as pending: a release that stored none left the turn."""
    with transaction.atomic():
        turn = fence(claim, _MORE_CALLS, calls=len(places))
        calls = calls_of(claim, reply, places, turn["last_step"] - len(places) + 1)
        insert_steps(calls)
    return calls


def _of_turn(reply: ReplyRecord, *, calls: int) -> dict[str, Any]:
    """Return the amounts that a reply with so many calls adds to its turn's counts."""
    sums = {name: getattr(reply, name) or 0 for name in _SUMMED}
    return sums | {"is_unpriced": reply.cost is None, "usage_estimated": reply.usage_estimated, "calls": calls}


def _step_of(claim: Claim, turn: Mapping[str, Any], reply: ReplyRecord, index: int) -> Step:
    """The step of a reply, in front of those of its calls, to be inserted. One query for the prompt."""
    prompt = reply.prompt
    if prompt is not None:
        _PROMPT.rows(session=turn["session_id"], last_prompt=prompt.last_prompt, tool_order=prompt.tool_order)
    return new_step(claim, index=index, kind=StepKind.MODEL, round=turn["rounds"], **reply.columns)


def _of_reply(step: Step) -> dict[str, Any]:
    """The payload of the event that says that a reply is stored."""
    return {"step": step.index, "round": step.round, "chars": len(step.text)}


def start_step(claim: Claim, step: Step, *, approval_id: int | None = None, **fields: Any) -> None:
    """Write down that a pending call begins now, with what is known of it only now, or that one that waited goes on:
    from here on a crash leaves its outcome unknown. One transaction, in which the approval that lets it begin is used.

    Raises ApprovalNotUsable where that was used or is too old; and CancelRequested for a turn that was cancelled, or
    whose member or agent may not go on: what would begin after that never happens.
    """
    with transaction.atomic():
        turn = fence(claim, EVENT)
        check_may_start(turn)
        if approval_id is not None:
            mark_used(approval_id)
        begun = {"status": StepStatus.STARTED, "epoch": claim.epoch, "started_at": timezone.now(), **fields}
        columns = {name: begun.get(COLUMNS[name], getattr(step, COLUMNS[name])) for name in _STARTED.changes}
        if not _STARTED.rows(step=step.pk, **columns):
            raise LedgerError(f"Step {step.index} could not begin.")
        add_event(claim, turn, "tool_started", {"step": step.index})
    for name, value in begun.items():
        setattr(step, name, value)


def refuse_steps(claim: Claim, steps: Sequence[Step], result: str) -> None:
    """Answer pending calls that are not run, all with the same answer, in one transaction."""
    refused = {"status": StepStatus.REFUSED, "result": result, "result_sent": result, "ended_at": timezone.now()}
    with transaction.atomic():
        turn = fence(claim, EVENT)
        Step.objects.filter(pk__in=[step.pk for step in steps], status=StepStatus.PENDING).update(**refused)
        add_event(claim, turn, "tools_refused", {"step": steps[0].index, "calls": len(steps)})
    for step in steps:
        for name, value in refused.items():
            setattr(step, name, value)


def return_steps(claim: Claim, steps: Sequence[Step]) -> None:
    """Leave pending calls to the client that brought their tools, in one transaction: the turn ends with them. Those
    that were left to it before stay so."""
    steps = [step for step in steps if step.status == StepStatus.PENDING]
    if not steps:
        return
    returned = {"status": StepStatus.RETURNED, "ended_at": timezone.now()}
    with transaction.atomic():
        turn = fence(claim, EVENT)
        Step.objects.filter(pk__in=[step.pk for step in steps], status=StepStatus.PENDING).update(**returned)
        add_event(claim, turn, "tools_returned", {"step": steps[0].index, "calls": len(steps)})
    for step in steps:
        for name, value in returned.items():
            setattr(step, name, value)


def finish_step(
    claim: Claim,
    step: Step,
    status: StepStatus,
    *,
    result: str,
    result_sent: str,
    malformed: bool = False,
    untrusted: bool = False,
    hooked_result: str = "",
    hooks: Sequence[Mapping[str, Any]] = (),
    structured: Mapping[str, Any] | None = None,
    promised: Sequence[str] = (),
    files: Sequence[StepFile] = (),
    waited: bool = False,
    is_task_left: bool = False,
    secrets: Sequence[str] = (),
) -> Mapping[str, Any]:
    """Store the outcome of a step that was started, and return the turn's counters. The first outcome stays.

    `hooked_result` is the result as hooks changed it, `hooks` the effect of each of them, behind those that the step
    has already. `structured` and `files` came with the result, `promised` names tools that come with the next model
    call. `waited` says that the call waited for something meanwhile, and `is_task_left` that its far side still works
    on it: a sweep asks it to stop. `secrets` are masked in what the step keeps of the arguments. With the first
    `untrusted` one, text from outside, the turn and its session hold such text from here on.
    """
    outcome = {
        "status": status,
        **masked_fields(step.arguments, step.display, secrets),
        "result": result,
        "result_sent": result_sent,
        "is_malformed": malformed,
        "hooked_result": hooked_result,
        "hooks": [*step.hooks, *hooks],
        "structured": None if structured is None else dict(structured),
        "promised": list(promised),
    }
    with transaction.atomic():
        turn = fence(claim, _DONE_UNTRUSTED, untrusted_step=step.index) if untrusted else fence(claim, _DONE)
        is_first = bool(_OUTCOME.rows(step=step.pk, **outcome))
        if is_first and files:
            StepFile.objects.bulk_create(files)
        if is_task_left:
            CallWait.objects.filter(step=step).update(cancel_requested_at=Now(), poll_at=None)
        elif waited:
            CallWait.objects.filter(step=step).delete()
        payload: dict[str, Any] = {"step": step.index, "status": status}
        if untrusted and turn["untrusted_since"] == step.index:
            ChatSession.objects.filter(pk=turn["session_id"], is_untrusted=False).update(is_untrusted=True)
            payload["untrusted_since"] = step.index
        add_event(claim, turn, "tool_done", payload)
    if is_first:
        for name, value in outcome.items():
            setattr(step, name, value)
    else:
        step.refresh_from_db()
    return turn


# -- End --------------------------------------------------------------------------------------------------------------


_END: dict[str, Any] = {
    "status": None,
    "answer": None,
    "draft": "",
    "error_code": None,
    "error_message": None,
    "cut_by": None,
    "retry_after": None,
    "ended_at": Now(),
    "lease_until": Value(None),
    "owner": "",
}
_ENDED = Update(ending_turn, {"last_event": NEXT_EVENT} | _END, (*COUNTERS, *AFTERMATH))
_ENDED_WITH_REPLY = Update(ending_turn, {"last_event": F("last_event") + 2} | _REPLY | _END, (*COUNTERS, *AFTERMATH))


def finish(
    claim: Claim,
    status: TurnStatus,
    *,
    answer: str = "",
    error_code: str = "",
    error_message: str = "",
    cut_by: str = "",
    retry_after: int | None = None,
    reply: ReplyRecord | None = None,
) -> None:
    """End the turn, and let the one that waits for it go on. One transaction. The worker takes the next turn itself.

    `reply` is the reply that the turn ends with, whole or stopped in the middle, without calls: it is stored with what
    it cost. Without one, what is reserved for the turn's call is released.
    """
    end: dict[str, Any] = {
        "status": status,
        "answer": answer,
        "error_code": error_code,
        "error_message": storable(error_message),
    }
    end |= {"cut_by": cut_by, "retry_after": retry_after}
    payload = {"error_code": error_code} if error_code else {}
    with transaction.atomic():
        hold(claim.parent_id)
        events: list[tuple[str, Mapping[str, Any]]] = [(str(status), payload)]
        if reply is None:
            turn = fence(claim, _ENDED, **end)
            warnings = []
        else:
            turn = fence(claim, _ENDED_WITH_REPLY, **_of_turn(reply, calls=0), **end)
            step = _step_of(claim, turn, reply, turn["last_step"])
            insert_steps([step])
            warnings = _settled(reply)
            events = [("model", _of_reply(step)), *warnings, *events]
            if reply.reserved is not None:
                turn = {**turn, HAS_RESERVATION: False}
        last = turn["last_event"] + len(warnings)
        if warnings:
            Turn.objects.filter(pk=claim.turn_id).update(last_event=last)
        insert_events(claim.organisation_id, claim.turn_id, last, *events)
        follow_up(claim.turn_id, turn, claim.parent_id)
        if status != TurnStatus.DONE:
            mask_ended(claim.turn_id)


def finish_stopped(claim: Claim, *, half: ReplyRecord | None = None) -> None:
    """End a turn that was stopped, and say why: its member or agent may not go on, or somebody stopped it.

    `half` is the reply that was stopped in the middle, as in `finish`; its text is the turn's answer.
    """
    ending = ending_of(claim.turn_id)
    text = half.text if half else ""
    finish(claim, ending.status, answer=text, error_code=ending.code, error_message=ending.message, reply=half)


def ending_of(turn_id: UUID) -> Ending:
    """Return the ending of a stopped turn. One query."""
    return turn_ending(facts_of_turn(turn_id)) or Ending(TurnStatus.CANCELLED, "cancelled", "Stopped.")


def cancel(turn: Turn, *, actor: Membership) -> None:
    """Stop a turn and those that it gave to other agents: what nobody runs ends here, the others before their next
    effect. A second time changes nothing. Raises PermissionDenied for who may not, on every path."""
    if not may_stop(actor, turn.membership_id):
        raise PermissionDenied("Only its own member stops a turn, or somebody with the admin right sessions.")
    with transaction.atomic():
        if turn.parent_step is not None:
            hold(turn.parent_step.turn_id)
        stop_turn(turn.pk, Ending(TurnStatus.CANCELLED, "cancelled", f"Stopped by {actor}."))
    turn.refresh_from_db()
