"""A dry run of hooks against a stored turn: what they would have done at its model and tool calls. Nothing is changed.

The same pure phases that a turn runs, on what is on record of one: the model as the agent has it now, its prompt as it
is now, the arguments that the model wrote, and the results that came.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.http import Http404

from capabilities.agents.hooks.queries import active_hooks, spec_with_keys
from capabilities.choosing.pipeline.specs import specs
from capabilities.contract.hook_phases import (
    CallPython,
    Forced,
    NotRun,
    Outside,
    PhaseResult,
    Trace,
    as_written,
    no_python,
    run_after_call,
    run_before_call,
    run_prompt,
    run_resolve,
)
from capabilities.contract.hooks import PHASE_TITLES, Facts, HookSpec, Phase, in_order
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Hook, Tool
from capabilities.running.kinds.effective import effective_arguments
from sessions.access import visible_to
from sessions.loop.clients.replies import Call
from sessions.loop.hooks.phases import complaint_about, forced_model
from sessions.loop.hooks.python_hooks import python_of
from sessions.models import OPEN_STATUSES, Step, StepKind, StepStatus, Turn
from toolhub.bounded_json import load_json
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: Calls of one turn that are looked at, and characters of a text that are shown.
MAX_CALLS = 50
MAX_SHOWN = 2_000
#: Seconds that the Python hooks of one dry run may take together.
PYTHON_SECONDS = 20.0
TURNS_A_PAGE = 20


@dataclass(frozen=True)
class HookedValue:
    """A value before and after the hooks, cut for a page; `after` is empty where they left it as it is."""

    before: str
    after: str = ""


@dataclass(frozen=True)
class Moment:
    """Effect that the hooks of one phase would have had at one place of the turn."""

    title: str
    phase: str
    traces: Sequence[Trace]
    change: HookedValue | None = None
    #: Sentence where the call would not have run, somebody would have been asked, or the turn would have failed.
    verdict: str = ""


@dataclass(frozen=True)
class DryRun:
    """Moments at which a hook would have done something or failed, and how many were looked at."""

    moments: Sequence[Moment]
    looked_at: int
    #: True where a Python hook was left out.
    left_out: bool
    is_cut: bool


def turns_to_try(member: Membership, *, after: str = "", before: str = "") -> Page[Turn]:
    """Ended turns that the member may see, the one that ran last first; those of deleted sessions are left out of the
    page that they would stand on. Five queries: in one, a database would read every session of the organisation."""
    own = {} if member.has_right(Right.SESSIONS) else {"membership": member}
    turns = Turn.objects.filter(claimed_at__isnull=False, **own).exclude(status__in=OPEN_STATUSES)
    rows = turns.prefetch_related("agent", "session__membership__user")
    page = Keyset(rows, ("-claimed_at", "-pk")).page(after, before, limit=TURNS_A_PAGE)
    return replace(page, rows=[turn for turn in page.rows if turn.session.deleted_at is None])


def turn_to_try_or_404(member: Membership, turn_id: UUID) -> Turn:
    turns = Turn.objects.filter(visible_to(member, "session__")).exclude(status__in=OPEN_STATUSES)
    turn = (
        turns.select_related("agent__model__provider", "session")
        .defer("agent__model__provider__api_key")
        .filter(pk=turn_id)
        .first()
    )
    if turn is None:
        raise Http404("No such turn.")
    return turn


def dry_run(turn: Turn, *, hook: Hook | None = None, with_python: bool = False) -> DryRun:
    """Return what hooks would have done in this turn: all that are on, or `hook` alone, whether it is on or not. Python
    hooks are run only `with_python`."""
    hooks = active_hooks(turn.organisation_id, None) if hook is None else in_order([spec_with_keys(hook)])
    outside = _outside(turn, with_python)
    model = resolve_model(turn.agent.model, turn.agent)
    moments, model = _at_start(turn, hooks, model, outside)
    steps = list(
        Step.objects.filter(turn=turn, kind=StepKind.TOOL)
        .select_related("tool_version")
        .order_by("index")[: MAX_CALLS + 1]
    )
    by_tool = _specs_of(steps)
    replies = {
        each.round: each.tool_calls for each in Step.objects.filter(turn=turn, kind=StepKind.MODEL).order_by("index")
    }
    for step in steps[:MAX_CALLS]:
        spec = by_tool.get(step.tool_version.tool_id) if step.tool_version else None
        moments += _at_call(turn, hooks, model, step, spec, _proposed(step, replies), outside)
    return DryRun(
        [each for each in moments if each.traces],
        looked_at=min(len(steps), MAX_CALLS),
        left_out=any(trace.was_left_out for each in moments for trace in each.traces),
        is_cut=len(steps) > MAX_CALLS,
    )


def _outside(turn: Turn, with_python: bool) -> Outside:
    if not with_python:
        return Outside(no_python)
    about = {
        "turn": str(turn.pk),
        "session": str(turn.session_id),
        "member": str(Membership.objects.values_list("public_id", flat=True).get(pk=turn.membership_id)),
        "agent": turn.agent.slug,
        "provider": turn.agent.model.provider.slug,
        "model": turn.agent.model.name,
    }
    return Outside(_within(python_of(turn.organisation_id, threading.Event()), PYTHON_SECONDS), about)


def _within(python: CallPython, seconds: float) -> CallPython:
    """Return a caller of Python hooks that runs them until the time of the dry run is up, then raises NotRun."""
    until = time.monotonic() + seconds

    def call(hook: HookSpec, given: Mapping[str, Any], most: float) -> Any:
        left = until - time.monotonic()
        if left <= 0:
            raise NotRun
        return python(hook, given, min(most, left))

    return call


def _facts(turn: Turn, model: ResolvedModel, tool: str = "", category: str = "") -> Facts:
    return Facts(
        rank=Access(Membership.objects.values_list("access", flat=True).get(pk=turn.membership_id)).rank,
        turn=str(turn.pk),
        agent=str(turn.agent.public_id),
        provider=str(model.provider.public_id),
        member=str(turn.membership_id),
        tool=tool,
        category=category,
    )


def _at_start(
    turn: Turn, hooks: Sequence[HookSpec], model: ResolvedModel, outside: Outside
) -> tuple[list[Moment], ResolvedModel]:
    """Return what hooks do to the model and the prompt, and the resulting model."""

    def force(known: ResolvedModel, to: Forced) -> tuple[ResolvedModel, str]:
        made = forced_model(turn, known, to, with_key=False)
        return made, f"{made.name} of {made.provider.name}"

    resolved = run_resolve(hooks, model, lambda each: _facts(turn, each), force, outside)
    before, after = (f"{each.name} of {each.provider.name}" for each in (model, resolved.value))
    prompt = run_prompt(hooks, turn.agent.prompt, _facts(turn, resolved.value), outside)
    patched = _change(turn.agent.prompt, prompt.value)
    of_model, of_prompt = (PHASE_TITLES[each] for each in (Phase.BEFORE_MODEL_RESOLVE, Phase.BEFORE_PROMPT_BUILD))
    moments = [
        Moment("The model", of_model, resolved.traces, _change(before, after), _end(resolved)),
        Moment("The system prompt", of_prompt, prompt.traces, patched, _end(prompt)),
    ]
    return moments, resolved.value


def _at_call(
    turn: Turn,
    hooks: Sequence[HookSpec],
    model: ResolvedModel,
    step: Step,
    spec: ToolSpec | None,
    proposed: str,
    outside: Outside,
) -> list[Moment]:
    arguments = _arguments(proposed)
    facts = _facts(turn, model, step.tool_name, spec.category if spec else "")
    title = f"Step {step.index}: {step.tool_name}"

    def check(changed: Mapping[str, Any]) -> str:
        call = Call(step.tool_call_id, step.tool_name, proposed)
        return complaint_about(spec, call, changed, turn.organisation_id) if spec else ""

    effective = partial(effective_arguments, spec) if spec else as_written
    before = run_before_call(hooks, arguments, facts, check, outside, effective)
    strictest = max((each.verb.name.lower() for each in before.value.decisions), default="", key=_strength)
    moments = [
        Moment(
            title,
            PHASE_TITLES[Phase.BEFORE_TOOL_CALL],
            before.traces,
            _change(_json(arguments), _json(before.value.arguments)),
            {"deny": "The call would not have run.", "ask": "Somebody would have been asked."}.get(strictest, ""),
        )
    ]
    if step.status in (StepStatus.DONE, StepStatus.FAILED):
        after = run_after_call(
            hooks, step.result, facts, before.value.arguments, outside, status=step.status, effective=effective
        )
        withheld = "The result would have been withheld." if after.stopped_by else ""
        change = _change(step.result, after.value)
        moments.append(Moment(title, PHASE_TITLES[Phase.AFTER_TOOL_CALL], after.traces, change, withheld))
    return moments


def _strength(word: str) -> int:
    return ["", "allow", "ask", "deny"].index(word)


def _end(result: PhaseResult[Any]) -> str:
    return "The turn would have failed." if result.stopped_by else ""


def _change(before: str, after: str) -> HookedValue | None:
    return None if before == after else HookedValue(_shown(before), _shown(after))


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _proposed(step: Step, replies: Mapping[int, Sequence[Mapping[str, str]]]) -> str:
    """Return the arguments that the model wrote: the step's own arguments are those that hooks left."""
    calls = replies.get(step.round, ())
    if step.called_through or step.call_index >= len(calls):
        return step.arguments
    call = calls[step.call_index]
    return call.get("raw_arguments", call["arguments"])


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = load_json(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _specs_of(steps: Sequence[Step]) -> dict[int, ToolSpec]:
    """The tools as they are now, by key. One query."""
    keys = {each.tool_version.tool_id for each in steps if each.tool_version is not None}
    return {each.tool_id: each for each in specs(Tool.objects.filter(pk__in=keys))} if keys else {}
