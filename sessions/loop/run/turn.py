"""One turn from its claim to its end: select, ask the model, run what it calls for, ask again.

Everything that counts is read from stored steps and stored before it is acted on, so that any worker can go on with
the turn from any point.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.language_models.providers.learning import learn
from capabilities.language_models.providers.lessons import Lesson
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.running.kinds.lines import display
from sessions.loop.calls import tracing
from sessions.loop.calls.batch import answer_calls, can_read_on, mask_calls
from sessions.loop.clients.attempts import Asking, Question
from sessions.loop.clients.errors import CallStopped, ModelBusy, ModelError, SearchRefused, ToolsRefused
from sessions.loop.clients.finishing import CUT, FILTERED
from sessions.loop.clients.replies import Reply
from sessions.loop.conversation.added_tools import in_conversation
from sessions.loop.conversation.compacting import compact
from sessions.loop.conversation.history import Past
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.steps import read_steps, steps_of
from sessions.loop.conversation.window import Conversation, TooLong
from sessions.loop.hooks.phases import patch_prompt, resolve_by_hooks, settle_hooks
from sessions.loop.model_calls.admission import TurnFailed, admit_model_call
from sessions.loop.model_calls.client_requests import as_asked, asked_for
from sessions.loop.model_calls.drafts import Draft
from sessions.loop.model_calls.fallback import fall_back
from sessions.loop.model_calls.refused_tools import leave_out
from sessions.loop.model_calls.reply_records import record_of
from sessions.loop.model_calls.reserving import LENGTH, Admitted, clock_ahead, is_cut_short, reserve_call
from sessions.loop.model_calls.sent_tools import Carried, carried_by
from sessions.loop.run.parking import Parked, settle
from sessions.loop.run.single_calls import answer_single_call
from sessions.models import LoadedToolkit, Step, StepStatus, Turn, TurnEvent, TurnStatus
from sessions.turns import ledger
from sessions.turns.fencing import check_may_start, owned
from sessions.turns.held import Held
from sessions.turns.replies import ReplyRecord
from toolhub.durations import duration
from toolhub.tenants.rows.statements import Select

#: Seconds that a provider's wish to be left alone is passed on as, at most.
MAX_RETRY_AFTER = 86_400
ROUND_LIMIT = (
    "I stopped after {rounds} rounds without a final answer. What was done so far stands; write again to go on."
)


class HalfReply(CallStopped):
    """The turn was stopped while the model wrote; `reply` is what there is."""

    def __init__(self, reply: ReplyRecord) -> None:
        super().__init__()
        self.reply = reply


_CLAIMED = Select(
    lambda: (
        owned()
        .select_related("agent__model__provider", "session", "client_request")
        .annotate(has_loads=Exists(LoadedToolkit.objects.filter(session=OuterRef("session"))), database_now=Now())
    )
)


def claimed_turn(claim: ledger.Claim) -> Turn:
    """The row with its session, its agent and what its client sent. Raises LeaseLost. One query."""
    turns: list[Turn] = _CLAIMED.instances(turn=claim.turn_id, epoch=claim.epoch)
    if not turns:
        raise ledger.LeaseLost(str(claim.turn_id))
    return turns[0]


def begin(held: Held) -> RunningTurn:
    """The claimed turn with its model resolved. Raises LeaseLost. One query."""
    row = claimed_turn(held.claim)
    found, model = vars(row), resolve_model(row.agent.model, row.agent)
    return RunningTurn(
        row,
        held,
        model,
        prompt=row.agent.prompt,
        past=Past(row, model),
        registry_version=found["registry"],
        has_loads=found["has_loads"],
        clock_ahead=clock_ahead(found["database_now"]),
    )


def run_turn(held: Held) -> None:
    """Run a claimed turn to its end, or give it back. Raises ledger.LeaseLost where it is another worker's now."""
    turn = begin(held)
    with tracing.invoke_agent(turn) as span:
        span.fail(_run(turn))


def _run(turn: RunningTurn) -> str:
    """Run the turn as far as it goes; returns the code of what it ends with, or is given back for; "" for none."""
    try:
        check_may_start(vars(turn.row))
        resolve_by_hooks(turn)
        turn.go_on_with(as_asked(turn.model, turn.row))
        end = _answer(turn)
        ledger.finish(turn.claim, TurnStatus.DONE, **end)
        return str(end.get("error_code", ""))
    except Parked:
        return ""
    except TurnFailed as failed:
        ledger.finish(
            turn.claim, TurnStatus.FAILED, error_code=failed.code, error_message=str(failed), reply=failed.reply
        )
        return failed.code
    except ModelBusy as busy:
        ledger.write_event(turn.claim, "provider_busy", {"error_code": busy.code, "seconds": round(busy.wait)})
        ledger.release(turn.claim, wait=busy.wait)
        return busy.code
    except ModelError as error:
        ledger.finish(turn.claim, TurnStatus.FAILED, error_code=error.code, **_why_failed(error))
        return error.code
    except ledger.CancelRequested:
        turn.held.stop("cancelled")
        return _end_stopped(turn.held)
    except HalfReply as half:
        return _end_stopped(turn.held, half.reply)
    except CallStopped:
        return _end_stopped(turn.held)
    finally:
        settle_hooks(turn)


def _why_failed(error: ModelError) -> dict[str, Any]:
    """The words of an error that ends a turn, and when the provider says that another try is worth it."""
    if error.retry_after is None:
        return {"error_message": str(error)}
    seconds = min(math.ceil(error.retry_after), MAX_RETRY_AFTER)
    return {"error_message": f"{error} It asks to try again in {duration(seconds)}.", "retry_after": seconds}


def _answer(turn: RunningTurn) -> dict[str, Any]:
    """Go round until the model has an answer; returns the fields of the end."""
    if turn.row.asked is not None and turn.row.asked.call is not None:
        return answer_single_call(turn, turn.row.asked.call)
    most = 1 if turn.row.without_tools else turn.model.max_rounds
    turn.steps = steps_of(turn.row)
    while True:
        steps = turn.steps
        last = steps.replies[-1] if steps.replies else None
        if last is not None and not is_cut_short(last):
            if not last.tool_calls:
                return _final(last.text, last.finish_reason)
            at_limit = last.round >= most
            left = answer_calls(turn, last, at_limit=at_limit)
            if steps.waits:
                reads_on = steps.was_delegated and can_read_on(turn, last)
                settle(turn, was_asked=steps.was_asked, can_read_on=reads_on)
                turn.steps = read_steps(turn.row)
                if any(call.is_unanswered for call in turn.steps.calls):
                    continue  # a person answered meanwhile
            mask_calls(turn, last)
            if left:
                ledger.return_steps(turn.claim, left)
                return {"answer": last.text}
            if at_limit:
                return {"answer": ROUND_LIMIT.format(rounds=most), "error_code": "max_rounds"}
        carried = carried_by(turn)
        try:
            reply = _ask_model(turn, carried)
        except SearchRefused:
            continue  # the model is known by now not to be searched for
        except ToolsRefused as refused:
            leave_out(turn, refused, carried.tool_sets)
            continue
        except ModelError as error:
            if not compact(turn, error):
                fall_back(turn, error)
            continue
        if carried.is_pure_chat and reply.tool_calls:
            return _without_calls(reply)
        if not reply.tool_calls:
            return _final(reply.text, reply.finish_reason, reply)
        step, calls, turn.registry_version = ledger.record_model_step(turn.claim, reply)
        turn.steps.replies.append(step)
        turn.steps.calls += calls


def _final(text: str, finish_reason: str, reply: ReplyRecord | None = None) -> dict[str, Any]:
    """The end by a reply without calls, which is stored with it where it is not yet. Raises TurnFailed."""
    if text:
        return {"answer": text, "reply": reply, "cut_by": finish_reason if finish_reason in CUT else ""}
    if finish_reason == FILTERED:
        raise TurnFailed("content_filter", "The provider's content filter held the answer back.", reply)
    raise TurnFailed("empty_answer", "The model answered with nothing.", reply)


def _without_calls(reply: ReplyRecord) -> dict[str, Any]:
    """The end of a turn whose agent has no tools, by a reply that calls for some all the same: its words are the
    answer. Raises TurnFailed where there are none."""
    reply = replace(reply, tool_calls=[])
    if not reply.text:
        raise TurnFailed("empty_answer", "The model called a tool, and this agent has none.", reply)
    return _final(reply.text, reply.finish_reason, reply)


# -- The model --------------------------------------------------------------------------------------------------------


def _ask_model(turn: RunningTurn, carried: Carried) -> ReplyRecord:
    """Send the conversation; returns the reply.

    One that met the cap of the agent's usual answers is asked for once more, with the model's own cap, where the
    budgets have room for that.
    """
    patch_prompt(turn)
    try:
        talk, line = in_conversation(turn, carried.tool_set, carried.line)
    except TooLong as error:
        raise TurnFailed("context_length", turn.past.refusal or str(error)) from error
    admit_model_call(turn)
    steps = turn.steps
    carried = replace(carried, line=line)
    counted = talk.tokens + carried.tokens
    was_cut = bool(steps.replies) and is_cut_short(steps.replies[-1])
    admitted = reserve_call(turn, counted, with_whole_answer=was_cut)
    _note_cut(turn, talk)
    _note_unseen(turn)
    is_first = not steps.calls
    reply = _call_model(turn, carried, talk, admitted, is_first=is_first)
    if not admitted.is_capped or reply.finish_reason != LENGTH:
        return reply
    try:
        whole = reserve_call(turn, counted, with_whole_answer=True)
    except TurnFailed:  # a short answer is better than none
        return reply
    steps.replies.append(_record_cut_short(turn, reply, admitted, whole))
    return _call_model(turn, carried, talk, whole, is_first=is_first)


def _record_cut_short(turn: RunningTurn, reply: ReplyRecord, admitted: Admitted, whole: Admitted) -> Step:
    """Store a reply that met the cap of usual answers, with what it cost and without its words: it is asked for anew,
    and nobody goes on from half of it."""
    ledger.restart_draft(turn.claim)
    bare = replace(reply, text="", tool_calls=[], extras="", status=StepStatus.FAILED)
    step, _, turn.registry_version = ledger.record_model_step(turn.claim, bare)
    caps = {"tokens": admitted.model.max_output_tokens, "most": whole.model.max_output_tokens}
    ledger.write_event(turn.claim, "answer_cut_short", caps)
    return step


def _call_model(
    turn: RunningTurn, carried: Carried, talk: Conversation, admitted: Admitted, *, is_first: bool
) -> ReplyRecord:
    """Make the call that was let through. What is reserved for it is settled with the reply, and given back where there
    is none. `is_first` says that the turn has no reply with calls yet."""
    tool_set = carried.tool_set
    held = turn.held
    draft, started_at = Draft(held), timezone.now()
    asking = Asking(
        Question(
            model=admitted.model,
            messages=talk.messages,
            tools=carried.declared.wire,
            all_tools=tool_set.wire if carried.line is not None else "",
            tools_key=carried.declared.pk,
            cache_key=str(turn.row.session_id),
            asked_for=asked_for(turn.row, admitted.model.dialect, is_first=is_first),
            displays=displays_of(talk.messages) if turn.model.is_offline else {},
        ),
        stopped=held.stopped,
        deadline=held.deadline(turn.row.deadline_at),
        on_lesson=partial(_learn, turn),
        options={"on_text": draft.add, "on_wait": draft.pass_on, "on_restart": draft.restart},
    )

    def recorded(reply: Reply) -> ReplyRecord:
        return record_of(turn, carried, talk, admitted, asking.question, reply, started_at)

    try:
        return recorded(tracing.ask(turn, asking))
    except ModelError:
        if draft.text:
            draft.restart()
        if admitted.reserved is not None:
            ledger.release_reservation(turn.claim)
        raise
    except CallStopped as stopped:
        half = asking.half_reply()
        if half is None or held.reason in ("draining", "lost"):
            raise
        raise HalfReply(recorded(half)) from stopped


def _learn(turn: RunningTurn, lesson: Lesson) -> None:
    """Apply a refusal's lesson from this call on, and to all later ones."""
    turn.model = turn.model.with_lesson(lesson)
    learn(turn.model.public_id, lesson)
    ledger.write_event(turn.claim, "model_learned", {"model": turn.model.name, "learned": lesson.summary})


def displays_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each call since the user spoke as its tool's display line, by its id; without those whose tool has none."""
    spoken = max((index for index, each in enumerate(messages) if each["role"] == "user"), default=-1)
    calls = [call for each in messages[spoken + 1 :] for call in each.get("tool_calls", ())]
    lines = {call["id"]: _display_of(call["function"]) for call in calls}
    return {call_id: line for call_id, line in lines.items() if line}


def _display_of(function: Mapping[str, str]) -> str:
    """Empty where there is only the tool's name to show."""
    arguments = json.loads(function["arguments"] or "{}")
    line = display(function["name"], None, arguments if isinstance(arguments, dict) else {})
    return "" if line == function["name"] else line


def _note_cut(turn: RunningTurn, talk: Conversation) -> None:
    """Write an event on the parts that were left out of the request; none in a round that leaves out the same."""
    cut = {"turns": talk.turns_cut, "parts": talk.parts_cut}
    if not any(cut.values()):
        return
    known = TurnEvent.objects.filter(turn=turn.row, type="history_cut").order_by("-number")
    if known.values_list("payload", flat=True).first() != cut:
        ledger.write_event(turn.claim, "history_cut", cut)


def _note_unseen(turn: RunningTurn) -> None:
    """Write an event, once for each model, where the message has images and the model takes none. One query for a turn
    with files, else none."""
    row, model = turn.row, turn.model
    if not row.attached or model.takes_images or not turn.past.files.have_images(row.seq, range(row.attached)):
        return
    known = TurnEvent.objects.filter(turn=row, type="images_not_sent", payload__model=model.name)
    if not known.exists():
        ledger.write_event(turn.claim, "images_not_sent", {"model": model.name})


# -- Ends -------------------------------------------------------------------------------------------------------------


def _end_stopped(held: Held, half: ReplyRecord | None = None) -> str:
    """The turn was stopped from outside: cancelled, out of time, or this worker is going down, which is no fault of the
    turn. Returns the code of that."""
    if held.reason == "cancelled":
        ledger.finish_stopped(held.claim, half=half)
    elif half is None and held.is_given_back:
        ledger.release(held.claim)
        return ""
    elif held.reason == "lost":
        raise ledger.LeaseLost(str(held.claim.turn_id))
    else:
        why = "The turn ran out of time."
        text = half.text if half else ""
        ledger.finish(held.claim, TurnStatus.EXPIRED, answer=text, error_code="deadline", error_message=why, reply=half)
    return held.reason or "deadline"
