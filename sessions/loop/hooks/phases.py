"""The hooks of a claimed turn at their four phases, and what is put on record of them.

What a hook did at a call stands in the call's step; what it did to the model or the prompt is an event of the turn. A
failure is an event `hook_warning`, and is counted with the hook. Nothing here lets a call run that something else keeps
back.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
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
from sessions.loop.hooks.python_hooks import python_of
from sessions.loop.model_calls.admission import TurnFailed
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, StepStatus, Turn
from sessions.turns import ledger
from sessions.turns.held import Held
from toolhub.tenants.models import Access, Membership

logger = logging.getLogger(__name__)

#: The event of what hooks did at a phase that is about no call.
EVENTS = {Phase.BEFORE_MODEL_RESOLVE: "model_forced", Phase.BEFORE_PROMPT_BUILD: "prompt_patched"}
#: In place of a result of which hooks left nothing.
EMPTY = "(empty)"


class TurnHooks:
    """The hooks of one turn, while a worker holds it. Calls run side by side, so several threads may use it."""

    def __init__(self, turn: Turn, held: Held) -> None:
        self.turn, self.held = turn, held
        self._fired: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._has_patched = False

    # -- The turn -----------------------------------------------------------------------------------------------------

    def resolve_model(self) -> None:
        """Let the hooks set the turn's model, the same way at every claim. Raises TurnFailed."""
        hooks = self._of(Phase.BEFORE_MODEL_RESOLVE)
        if not hooks:
            return
        turn = self.turn

        def force(model: ResolvedModel, to: Forced) -> tuple[ResolvedModel, str]:
            made = forced_model(turn, model, to)
            return made, f"{made.name} of {made.provider.name}"

        result = run_resolve(hooks, turn.model, self._facts_with, force, self._outside(hooks))
        turn.model = result.value
        self._keep_turn(Phase.BEFORE_MODEL_RESOLVE, result)

    def patch_prompt(self) -> None:
        """Let the hooks patch the agent's prompt, once for all rounds that this worker runs. Raises TurnFailed."""
        if self._has_patched:
            return
        self._has_patched = True
        hooks = self._of(Phase.BEFORE_PROMPT_BUILD)
        if not hooks:
            return
        facts = self._facts_with(self.turn.model)
        result = run_prompt(hooks, self.turn.agent.prompt, facts, self._outside(hooks))
        self.turn.prompt = storable(result.value)
        self._keep_turn(Phase.BEFORE_PROMPT_BUILD, result)

    def settle(self) -> None:
        """Count what the hooks did, outside the turn's transactions. No query where none did anything."""
        with self._lock:
            fired, self._fired = self._fired, Counter()
        if fired:
            try:
                count_fired(fired)
            except DatabaseError:
                logger.exception("What the hooks of turn %s did is not counted", self.turn.pk)

    def _keep_turn(self, phase: Phase, result: PhaseResult[Any]) -> None:
        self._count(result.traces)
        if result.done:
            lines = [each.as_json for each in result.done]
            ledger.write_event(self.held.claim, EVENTS[phase], {"hooks": lines})
        self._warn(phase, [*result.failed, *result.beyond])
        if result.stopped_by is not None:
            raise TurnFailed("hook_failed", FAILED_TURN.format(hook=result.stopped_by.hook.name))

    # -- A call -------------------------------------------------------------------------------------------------------

    def before_call(
        self, spec: ToolSpec, call: Call, step: Step, arguments: dict[str, Any]
    ) -> tuple[HookedCall, tuple[Mapping[str, Any], ...]]:
        """The call as the hooks leave it, and what they did, for its step. No query without hooks of this phase."""
        hooks = self._of(Phase.BEFORE_TOOL_CALL)
        if not hooks:
            return HookedCall(arguments), ()

        def check(changed: Mapping[str, Any]) -> str:
            return complaint_about(spec, call, changed, self.turn.organisation_id)

        result = run_before_call(
            hooks, arguments, self._facts_of(spec), check, self._outside(hooks), partial(effective_arguments, spec)
        )
        self._keep_call(Phase.BEFORE_TOOL_CALL, step, result)
        hooked = replace(result.value, arguments=storable_value(dict(result.value.arguments)))
        return hooked, tuple(each.as_json for each in result.traces)

    def after_call(self, spec: ToolSpec, step: Step, arguments: Mapping[str, Any], outcome: Outcome) -> Outcome:
        """The outcome with what the hooks made of its result, and what they did. No query without hooks of this phase.

        A call that was not made has no result to change.
        """
        hooks = self._of(Phase.AFTER_TOOL_CALL)
        if not hooks or outcome.status not in (StepStatus.DONE, StepStatus.FAILED):
            return outcome
        facts = self._facts_of(spec)
        result = run_after_call(
            hooks,
            outcome.result,
            facts,
            arguments,
            self._outside(hooks),
            status=str(outcome.status),
            effective=partial(effective_arguments, spec),
        )
        self._keep_call(Phase.AFTER_TOOL_CALL, step, result)
        made = storable(result.value, execution.MAX_RESULT) or EMPTY
        hooked = "" if made == outcome.result else made
        return replace(outcome, hooked_result=hooked, hooks=tuple(each.as_json for each in result.traces))

    def _keep_call(self, phase: Phase, step: Step, result: PhaseResult[Any]) -> None:
        self._count(result.traces)
        self._warn(phase, [*result.failed, *result.beyond], step=step.index)

    # -- All phases ---------------------------------------------------------------------------------------------------

    def _of(self, phase: Phase) -> list[HookSpec]:
        return of_phase(active_hooks(self.turn.organisation_id, self.turn.registry_version), phase)

    def _facts_with(self, model: ResolvedModel) -> Facts:
        turn = self.turn
        return Facts(
            rank=self._rank,
            turn=str(turn.pk),
            agent=str(turn.agent.public_id),
            provider=str(model.provider.public_id),
            member=str(turn.membership_id),
        )

    @cached_property
    def _rank(self) -> int:
        """Rank of the member's access. No query while every hook was written, or saved, by an admin."""
        hooks = active_hooks(self.turn.organisation_id, self.turn.registry_version)
        if all(hook.reach >= Access.ADMIN.rank for hook in hooks):
            return 0
        return Access(Membership.objects.values_list("access", flat=True).get(pk=self.turn.membership_id)).rank

    def _facts_of(self, spec: ToolSpec) -> Facts:
        return replace(self._facts_with(self.turn.model), tool=spec.name, category=spec.category)

    def _outside(self, hooks: Iterable[HookSpec]) -> Outside:
        """One query where there is a Python hook, for the member's public id."""
        turn = self.turn
        if not any(hook.action == PYTHON for hook in hooks):
            return Outside()
        member = Membership.objects.values_list("public_id", flat=True).get(pk=turn.membership_id)
        about = {
            "turn": str(turn.pk),
            "session": str(turn.session_id),
            "member": str(member),
            "agent": turn.agent.slug,
            "provider": turn.model.provider.slug,
            "model": turn.model.name,
        }
        return Outside(python_of(turn.organisation_id, self.held.stopped), about)

    def _count(self, traces: Iterable[Trace]) -> None:
        for each in traces:
            if each.is_beyond:
                continue
            if each.failure is None:
                with self._lock:
                    self._fired[each.hook.public_id] += 1
            else:
                logger.warning("Hook %s failed (%s): %s", each.hook.name, each.failure, each.error)
                count_failure(each.hook.public_id, f"{each.failure}: {each.error}")

    def _warn(self, phase: Phase, failed: Iterable[Trace], **more: Any) -> None:
        lines = [each.as_json for each in failed]
        if lines:
            ledger.write_event(self.held.claim, "hook_warning", {"phase": str(phase), **more, "hooks": lines})


def hooked_call(
    turn: Turn, spec: ToolSpec, call: Call, step: Step, arguments: dict[str, Any]
) -> tuple[HookedCall, tuple[Mapping[str, Any], ...]]:
    """Apply `TurnHooks.before_call`; a turn that no worker holds has no hooks."""
    hooks: TurnHooks | None = turn.hooks
    return (HookedCall(arguments), ()) if hooks is None else hooks.before_call(spec, call, step, arguments)


def hooked_outcome(turn: Turn, spec: ToolSpec, step: Step, arguments: Mapping[str, Any], outcome: Outcome) -> Outcome:
    """Apply `TurnHooks.after_call`; a turn that no worker holds has no hooks."""
    hooks: TurnHooks | None = turn.hooks
    return outcome if hooks is None else hooks.after_call(spec, step, arguments, outcome)


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
