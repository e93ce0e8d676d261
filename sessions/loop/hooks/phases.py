"""The hooks of a claimed turn at their four phases, and what is put on record of them.

What a hook did at a call stands in the call's step; what it did to the model or the prompt is an event of the turn. A
failure is an event `hook_warning`, and is counted with the hook. Nothing here lets a call run that something else keeps
back.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from capabilities.agents.hooks.queries import active_hooks
from capabilities.agents.hooks.writes import count_failure, count_fired
from capabilities.common.secrets import SecretUnreadable
from capabilities.common.text import storable, storable_value
from capabilities.contract.hook_phases import (
    FAILED_TURN,
    Forced,
    HookedCall,
    Outside,
    PhaseResult,
    Trace,
    of_phase,
    run_after_call,
    run_before_call,
    run_prompt,
    run_resolve,
)
from capabilities.contract.hooks import PYTHON, Facts, Failure, HookFailed, HookSpec, Phase
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import LanguageModel
from capabilities.running.kinds.effective import effective_arguments
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.hooks.python_hooks import python_of
from sessions.loop.model_calls.admission import TurnFailed
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, StepStatus, Turn
from sessions.turns import ledger
from toolhub.tenants.models import Access, Membership

logger = logging.getLogger(__name__)

#: The event of what hooks did at a phase that is about no call.
EVENTS = {Phase.BEFORE_MODEL_RESOLVE: "model_forced", Phase.BEFORE_PROMPT_BUILD: "prompt_patched"}
#: In place of a result of which hooks left nothing.
EMPTY = "(empty)"


# -- The turn ---------------------------------------------------------------------------------------------------------


def resolve_by_hooks(turn: RunningTurn) -> None:
    """Let the hooks set the turn's model, the same way at every claim. Raises TurnFailed."""
    hooks = _of(turn, Phase.BEFORE_MODEL_RESOLVE)
    if not hooks:
        return

    def force(model: ResolvedModel, to: Forced) -> tuple[ResolvedModel, str]:
        made = forced_model(turn.row, model, to)
        return made, f"{made.name} of {made.provider.name}"

    result = run_resolve(hooks, turn.model, partial(_facts_with, turn), force, _outside(turn, hooks))
    turn.go_on_with(result.value)
    _keep_turn(turn, Phase.BEFORE_MODEL_RESOLVE, result)


def patch_prompt(turn: RunningTurn) -> None:
    """Let the hooks patch the agent's prompt, once for all rounds that this worker runs. Raises TurnFailed."""
    if turn.hooks.has_patched:
        return
    turn.hooks.has_patched = True
    hooks = _of(turn, Phase.BEFORE_PROMPT_BUILD)
    if not hooks:
        return
    result = run_prompt(hooks, turn.prompt, _facts_with(turn, turn.model), _outside(turn, hooks))
    turn.prompt = storable(result.value)
    _keep_turn(turn, Phase.BEFORE_PROMPT_BUILD, result)


def settle_hooks(turn: RunningTurn) -> None:
    """Count what the hooks did, outside the turn's transactions. No query where none did anything."""
    with turn.hooks.lock:
        fired, turn.hooks.fired = turn.hooks.fired, Counter()
    if fired:
        try:
            count_fired(fired)
        except DatabaseError:
            logger.exception("What the hooks of turn %s did is not counted", turn.row.pk)


def _keep_turn(turn: RunningTurn, phase: Phase, result: PhaseResult[Any]) -> None:
    _count(turn, result.traces)
    if result.done:
        lines = [each.as_json for each in result.done]
        ledger.write_event(turn.claim, EVENTS[phase], {"hooks": lines})
    _warn(turn, phase, [*result.failed, *result.beyond])
    if result.stopped_by is not None:
        raise TurnFailed("hook_failed", FAILED_TURN.format(hook=result.stopped_by.hook.name))


# -- A call -----------------------------------------------------------------------------------------------------------


def hooked_call(
    turn: RunningTurn, spec: ToolSpec, call: Call, step: Step, arguments: dict[str, Any]
) -> tuple[HookedCall, tuple[Mapping[str, Any], ...]]:
    """The call as the hooks leave it, and what they did, for its step. No query without hooks of this phase."""
    hooks = _of(turn, Phase.BEFORE_TOOL_CALL)
    if not hooks:
        return HookedCall(arguments), ()

    def check(changed: Mapping[str, Any]) -> str:
        return complaint_about(spec, call, changed, turn.row.organisation_id)

    result = run_before_call(
        hooks, arguments, _facts_of(turn, spec), check, _outside(turn, hooks), partial(effective_arguments, spec)
    )
    _keep_call(turn, Phase.BEFORE_TOOL_CALL, step, result)
    hooked = replace(result.value, arguments=storable_value(dict(result.value.arguments)))
    return hooked, tuple(each.as_json for each in result.traces)


def hooked_outcome(
    turn: RunningTurn, spec: ToolSpec, step: Step, arguments: Mapping[str, Any], outcome: Outcome
) -> Outcome:
    """The outcome with what the hooks made of its result, and what they did. No query without hooks of this phase.

    A call that was not made has no result to change.
    """
    hooks = _of(turn, Phase.AFTER_TOOL_CALL)
    if not hooks or outcome.status not in (StepStatus.DONE, StepStatus.FAILED):
        return outcome
    result = run_after_call(
        hooks,
        outcome.result,
        _facts_of(turn, spec),
        arguments,
        _outside(turn, hooks),
        status=str(outcome.status),
        effective=partial(effective_arguments, spec),
    )
    _keep_call(turn, Phase.AFTER_TOOL_CALL, step, result)
    made = storable(result.value, execution.MAX_RESULT) or EMPTY
    hooked = "" if made == outcome.result else made
    return replace(outcome, hooked_result=hooked, hooks=tuple(each.as_json for each in result.traces))


def _keep_call(turn: RunningTurn, phase: Phase, step: Step, result: PhaseResult[Any]) -> None:
    _count(turn, result.traces)
    _warn(turn, phase, [*result.failed, *result.beyond], step=step.index)


# -- All phases -------------------------------------------------------------------------------------------------------


def _of(turn: RunningTurn, phase: Phase) -> list[HookSpec]:
    return of_phase(active_hooks(turn.row.organisation_id, turn.registry_version), phase)


def _facts_with(turn: RunningTurn, model: ResolvedModel) -> Facts:
    return Facts(
        rank=_rank(turn),
        turn=str(turn.row.pk),
        agent=str(turn.row.agent.public_id),
        provider=str(model.provider.public_id),
        member=str(turn.row.membership_id),
    )


def _rank(turn: RunningTurn) -> int:
    """Rank of the member's access, read once. No query while every hook was written, or saved, by an admin."""
    if turn.hooks.rank is None:
        hooks = active_hooks(turn.row.organisation_id, turn.registry_version)
        turn.hooks.rank = 0
        if any(hook.reach < Access.ADMIN.rank for hook in hooks):
            access = Membership.objects.values_list("access", flat=True).get(pk=turn.row.membership_id)
            turn.hooks.rank = Access(access).rank
    return turn.hooks.rank


def _facts_of(turn: RunningTurn, spec: ToolSpec) -> Facts:
    return replace(_facts_with(turn, turn.model), tool=spec.name, category=spec.category)


def _outside(turn: RunningTurn, hooks: Iterable[HookSpec]) -> Outside:
    """One query where there is a Python hook, for the member's public id."""
    row = turn.row
    if not any(hook.action == PYTHON for hook in hooks):
        return Outside()
    member = Membership.objects.values_list("public_id", flat=True).get(pk=row.membership_id)
    about = {
        "turn": str(row.pk),
        "session": str(row.session_id),
        "member": str(member),
        "agent": row.agent.slug,
        "provider": turn.model.provider.slug,
        "model": turn.model.name,
    }
    return Outside(python_of(row.organisation_id, turn.held.stopped), about)


def _count(turn: RunningTurn, traces: Iterable[Trace]) -> None:
    for each in traces:
        if each.is_beyond:
            continue
        if each.failure is None:
            with turn.hooks.lock:
                turn.hooks.fired[each.hook.public_id] += 1
        else:
            logger.warning("Hook %s failed (%s): %s", each.hook.name, each.failure, each.error)
            count_failure(each.hook.public_id, f"{each.failure}: {each.error}")


def _warn(turn: RunningTurn, phase: Phase, failed: Iterable[Trace], **more: Any) -> None:
    lines = [each.as_json for each in failed]
    if lines:
        ledger.write_event(turn.claim, "hook_warning", {"phase": str(phase), **more, "hooks": lines})


# -- The model, and arguments, that hooks name ------------------------------------------------------------------------


def forced_model(turn: Turn, model: ResolvedModel, to: Forced, *, with_key: bool = True) -> ResolvedModel:
    """The model that is asked for, as the turn's agent calls it; one that is only shown needs no key. One query.

    Another provider without a model's name: its model of the same name, else the only one that it has. Raises
    HookFailed where it is not there or switched off.
    """
    models = LanguageModel.objects.select_related("provider")
    if not with_key:
        models = models.defer("provider__api_key")
    if to.provider is None:
        models = models.filter(provider__public_id=model.provider.public_id)
    elif (key := _uuid(to.provider)) is not None:
        models = models.filter(provider__public_id=key)
    else:
        models = models.filter(provider__slug=to.provider)
    name = to.model or model.name
    try:
        found = {each.name: each for each in models}
        row = found.get(name) or (next(iter(found.values())) if to.model is None and len(found) == 1 else None)
        if row is None:
            raise HookFailed(Failure.MISSING, f"There is no model {name[:200]} at that provider.")
        if not row.provider.is_enabled:
            raise HookFailed(Failure.MISSING, f"The provider {row.provider.name} is switched off.")
        return resolve_model(row, turn.agent)
    except SecretUnreadable as error:
        raise HookFailed(Failure.MISSING, "The key of that provider cannot be read.") from error


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def complaint_about(spec: ToolSpec, call: Call, arguments: Mapping[str, Any], organisation_id: int) -> str:
    """Return the complaint about these arguments of the tool, or ""."""
    text = json.dumps(arguments, ensure_ascii=False)
    read = execution.read_arguments(spec, Call(call.id, call.name, text), organisation_id)
    return str(json.loads(read.result)["error"]) if isinstance(read, Outcome) else ""
