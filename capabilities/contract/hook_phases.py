"""The hooks of one phase, one after the other: a later one sees what an earlier one made.

Pure but for what `Outside` brings: Python hooks, models, schemas and the clock. A hook that fails never ends the run of
a phase with an exception: what becomes of it is in the `PhaseResult`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from capabilities.contract.decisions import Decision, Verb
from capabilities.contract.effective import Effective, restored
from capabilities.contract.hooks import PHASE_SECONDS, PYTHON, Facts, Failure, HookFailed, HookSpec, Phase
from capabilities.contract.result_cap import cut
from capabilities.contract.result_edits import set_field, with_note
from capabilities.contract.wire import canonical_json
from toolhub.durations import duration

T = TypeVar("T")
NO_ARGUMENTS = Effective({})
#: Text that the model reads in place of a result that a failed hook keeps from it.
WITHHELD = "The tool ran, but its result is withheld: the hook {hook} failed."
FAILED_CALL = "Not run: the hook {hook} failed, and calls do not run while it fails."
BEYOND = "left out: this member has higher access than whoever wrote the hook, and no admin has saved it since"
FAILED_TURN = "The hook {hook} failed, and turns do not run while it fails."


class NotRun(Exception):
    """A dry run leaves this Python hook out."""


@dataclass(frozen=True)
class Trace:
    """Record of one hook: what it did, in a line for people without anybody's texts and values; or how it failed."""

    hook: HookSpec
    did: str = ""
    failure: Failure | None = None
    error: str = ""
    #: Whether the call, the result or the turn went no further for it.
    stopped: bool = False
    #: Whether a dry run left it out.
    was_left_out: bool = False
    #: Whether it did not act, or not fully, because the member has higher access than whoever wrote it.
    is_beyond: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        """Trace as JSON for people who see the turn: the error itself is for operators."""
        line: dict[str, Any] = {"hook": self.hook.name, "action": self.hook.action}
        if self.failure is None:
            return line | {"did": self.did}
        return line | {"failure": str(self.failure), "stopped": self.stopped}


@dataclass(frozen=True)
class PhaseResult(Generic[T]):
    """Result of a phase: the value as the hooks left it, and the trace of each of them."""

    value: T
    traces: tuple[Trace, ...] = ()

    @property
    def done(self) -> list[Trace]:
        return [each for each in self.traces if each.failure is None and not each.is_beyond]

    @property
    def beyond(self) -> list[Trace]:
        return [each for each in self.traces if each.is_beyond]

    @property
    def failed(self) -> list[Trace]:
        return [each for each in self.traces if each.failure is not None]

    @property
    def stopped_by(self) -> Trace | None:
        """The failed hook behind which the phase went no further."""
        return next((each for each in self.traces if each.stopped), None)


#: Calls a Python hook with its input, for at most so many seconds. Raises HookFailed, or NotRun.
CallPython = Callable[[HookSpec, Mapping[str, Any], float], Any]


def no_python(hook: HookSpec, given: Mapping[str, Any], seconds: float) -> Any:
    """Refuse the call of a Python hook, for a dry run. Raises NotRun."""
    raise NotRun


@dataclass(frozen=True)
class Outside:
    """Things outside of their values that the phases need."""

    python: CallPython = no_python
    #: Further input of a Python hook: who talks to what.
    about: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    #: Seconds that the Python hooks of the phase may take together.
    seconds: float = PHASE_SECONDS


#: One hook on a value: the value behind it, and what it did; "" where it did nothing.
Act = Callable[[HookSpec, T], tuple[T, str]]


@dataclass
class _Python:
    """Calls Python hooks until the time of the phase is up."""

    outside: Outside
    started: float

    def __call__(self, hook: HookSpec, **given: Any) -> dict[str, Any]:
        """The answer as an object. Raises HookFailed and NotRun."""
        remaining = self.outside.seconds - (self.outside.clock() - self.started)
        if remaining <= 0:
            why = f"Not called: the hooks before it took the {duration(self.outside.seconds)} of the phase."
            raise HookFailed(Failure.TIMEOUT, why)
        config = dict(hook.settings.get("config") or {})
        whole = {"phase": str(hook.phase), "hook": hook.name, "config": config, **self.outside.about, **given}
        answer = self.outside.python(hook, whole, min(hook.timeout, remaining))
        if answer is None:
            return {}
        if not isinstance(answer, Mapping) or not all(isinstance(name, str) for name in answer):
            raise HookFailed(Failure.MALFORMED, "It must return an object with texts as keys, or None.")
        return dict(answer)


def _run(
    hooks: Sequence[HookSpec],
    value: T,
    matches: Callable[[HookSpec, T], bool],
    action: Act[T],
    is_over: Callable[[T], bool] = lambda value: False,
    *,
    is_beyond: Callable[[HookSpec, T], bool],
) -> PhaseResult[T]:
    """Each hook that matches what there is by then. Nothing runs behind one that stops the phase."""
    traces = []
    for hook in hooks:
        if is_over(value):
            break
        if not matches(hook, value):
            continue
        if is_beyond(hook, value) and not hook.blocks:
            traces.append(Trace(hook, BEYOND, is_beyond=True))
            continue
        try:
            if hook.broken:
                raise HookFailed(Failure.MALFORMED, hook.broken)
            value, summary = _acted(action, hook, value)
        except NotRun:
            traces.append(Trace(hook, "would be called", was_left_out=True))
            continue
        except HookFailed as failed:
            traces.append(Trace(hook, failure=failed.failure, error=str(failed), stopped=hook.denies))
            if hook.denies:
                break
            continue
        if summary:
            traces.append(Trace(hook, summary, is_beyond=summary.endswith(BEYOND)))
    return PhaseResult(value, tuple(traces))


def _acted(action: Act[T], hook: HookSpec, value: T) -> tuple[T, str]:
    """Run one action of a hook. Raises HookFailed where texts of people or models are deeper, or their numbers longer,
    than Python takes."""
    try:
        return action(hook, value)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise HookFailed(Failure.MALFORMED, f"{type(error).__name__}: {str(error)[:200]}") from error


def of_phase(hooks: Sequence[HookSpec], phase: Phase) -> list[HookSpec]:
    return [each for each in hooks if each.phase == phase]


def _only(answer: Mapping[str, Any], **kinds: type) -> None:
    """Raise HookFailed unless the answer holds nothing but these, of these types."""
    for name, value in answer.items():
        if name not in kinds:
            raise HookFailed(Failure.MALFORMED, f"Its answer has {name[:64]}, which this phase does not know.")
        if not isinstance(value, kinds[name]):
            raise HookFailed(Failure.MALFORMED, f"{name} of its answer must be of type {kinds[name].__name__}.")


# -- before_model_resolve ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forced:
    """Provider and model that a hook asks for; None leaves what is there. A provider by the key that names its row, or
    by its short name."""

    provider: str | None = None
    model: str | None = None


def run_resolve(
    hooks: Sequence[HookSpec],
    model: T,
    facts_of: Callable[[T], Facts],
    force: Callable[[T, Forced], tuple[T, str]],
    outside: Outside,
) -> PhaseResult[T]:
    """Run the hooks of `before_model_resolve`. `force` returns the model that is asked for in place of one, with its
    name for people. It raises HookFailed."""
    python = _Python(outside, outside.clock())

    def action(hook: HookSpec, value: T) -> tuple[T, str]:
        wanted = hook.settings
        if hook.action == PYTHON:
            wanted = python(hook)
            _only(wanted, provider=str, model=str)
        if not wanted:
            return value, ""
        forced, name = force(value, Forced(wanted.get("provider"), wanted.get("model")))
        return forced, f"set the model {name}"

    def matches(hook: HookSpec, value: T) -> bool:
        return hook.when.hold(facts_of(value), NO_ARGUMENTS, hook.public_id)

    return _run(
        of_phase(hooks, Phase.BEFORE_MODEL_RESOLVE),
        model,
        matches,
        action,
        is_beyond=lambda hook, value: hook.is_beyond(facts_of(value)),
    )


# -- before_prompt_build ----------------------------------------------------------------------------------------------


def run_prompt(hooks: Sequence[HookSpec], prompt: str, facts: Facts, outside: Outside) -> PhaseResult[str]:
    """The system prompt as the hooks patch it."""
    python = _Python(outside, outside.clock())

    def action(hook: HookSpec, value: str) -> tuple[str, str]:
        text = hook.settings.get("text", "")
        if hook.action == "prepend_prompt":
            return _joined(text, value), f"put {len(text):,} characters before the prompt"
        if hook.action == "append_prompt":
            return _joined(value, text), f"put {len(text):,} characters behind the prompt"
        if hook.action == "replace_in_prompt":
            found = value.count(hook.settings["find"])
            times = f"{found} place{'s' if found != 1 else ''}"
            return value.replace(hook.settings["find"], text), f"replaced {times} in the prompt" if found else ""
        answer = python(hook, prompt=value)
        _only(answer, prompt=str)
        made = answer.get("prompt", value)
        return made, "" if made == value else f"made a prompt of {len(made):,} characters"

    hooks = of_phase(hooks, Phase.BEFORE_PROMPT_BUILD)
    return _run(
        hooks,
        prompt,
        lambda hook, value: hook.when.hold(facts, NO_ARGUMENTS, hook.public_id),
        action,
        is_beyond=lambda hook, value: hook.is_beyond(facts),
    )


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


# -- before_tool_call -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HookedCall:
    """A call's arguments as hooks left them, their decisions, and the texts that the model reads with its result."""

    arguments: Mapping[str, Any]
    decisions: tuple[Decision, ...] = ()
    context: tuple[str, ...] = ()

    @property
    def is_denied(self) -> bool:
        return any(each.verb == Verb.DENY for each in self.decisions)


#: Check of arguments that a hook made: a sentence with the error; "" where there is none.
Check = Callable[[Mapping[str, Any]], str]
#: A call's arguments as they take effect.
TakeEffect = Callable[[Mapping[str, Any]], Effective]


def as_written(arguments: Mapping[str, Any]) -> Effective:
    """Return the effective arguments of a call whose tool is not known: as they are written."""
    return Effective(arguments)


def run_before_call(
    hooks: Sequence[HookSpec],
    arguments: Mapping[str, Any],
    facts: Facts,
    check: Check,
    outside: Outside,
    effective: TakeEffect = as_written,
) -> PhaseResult[HookedCall]:
    """Run the hooks of `before_tool_call`. One whose arguments do not fit the tool's schema has failed, and they do not
    count: HookFailed, which it raises itself, becomes a trace.

    Conditions and Python hooks look at the arguments as they take effect; a hook that can keep the call back matches an
    argument of which nobody knows it. A hook that failed and must not let the call through denies it.
    """
    python = _Python(outside, outside.clock())

    def action(hook: HookSpec, call: HookedCall) -> tuple[HookedCall, str]:
        changed, summary = _before_call(hook, call, effective, lambda **given: python(hook, **given, **_tool(facts)))
        if hook.is_beyond(facts) and (changed.arguments is not call.arguments or changed.context != call.context):
            changed = replace(call, decisions=changed.decisions)
            summary = f"its change {BEYOND}"
        if changed.arguments is not call.arguments:
            complaint = check(changed.arguments)
            if complaint:
                raise HookFailed(Failure.MALFORMED, f"Its arguments do not fit the tool: {complaint}")
        return changed, summary

    result = _run(
        of_phase(hooks, Phase.BEFORE_TOOL_CALL),
        HookedCall(arguments),
        lambda hook, call: hook.when.hold(
            facts,
            effective(call.arguments) if hook.when.arguments else NO_ARGUMENTS,
            hook.public_id,
            if_unknown=hook.blocks,
        ),
        action,
        lambda call: call.is_denied,
        is_beyond=lambda hook, call: hook.is_beyond(facts),
    )
    stopped = result.stopped_by
    if stopped is None:
        return result
    failed = Decision(
        Verb.DENY,
        f"hook {stopped.hook.name}",
        for_model=FAILED_CALL.format(hook=stopped.hook.name),
        for_people=FAILED_CALL.format(hook=stopped.hook.name),
        for_log=f"{stopped.failure}: {stopped.error}",
    )
    return replace(result, value=replace(result.value, decisions=(*result.value.decisions, failed)))


def _before_call(
    hook: HookSpec, call: HookedCall, effective: TakeEffect, python: Callable[..., dict[str, Any]]
) -> tuple[HookedCall, str]:
    """Return the call as this hook leaves it, and what the hook did. Raises HookFailed."""
    settings = hook.settings
    if hook.action in ("block_tool", "ask"):
        verb, summary = (Verb.DENY, "blocked the call") if hook.action == "block_tool" else (Verb.ASK, "asks somebody")
        message = settings["message"]
        decision = Decision(verb, f"hook {hook.name}", for_model=message, for_people=message, for_log=message)
        return replace(call, decisions=(*call.decisions, decision)), summary
    if hook.action == "merge_input":
        merge = deep_merged if settings["mode"] == "deep" else _set_merged
        return _with_arguments(call, merge(call.arguments, settings["values"]))
    if hook.action == "inject_context":
        return replace(call, context=(*call.context, settings["text"])), "gave the model a text with the result"
    shown = dict(effective(call.arguments).values)
    answer = python(arguments=dict(shown))
    if isinstance(answer.get("arguments"), Mapping):
        answer = {**answer, "arguments": restored(answer["arguments"], call.arguments, shown)}
    return _answered(hook, call, answer)


VERBS = {"allow": Verb.ALLOW, "modify": Verb.ALLOW, "ask": Verb.ASK, "deny": Verb.DENY}
_REASONS = ("reason_for_model", "reason_for_people", "reason_for_log")


def _answered(hook: HookSpec, call: HookedCall, answer: Mapping[str, Any]) -> tuple[HookedCall, str]:
    """Return the call as a Python hook's answer changes it, and what the hook did, in words."""
    _only(answer, decision=str, arguments=dict, context=str, **dict.fromkeys(_REASONS, str))
    word = answer.get("decision", "modify" if "arguments" in answer else "allow")
    if word not in VERBS:
        raise HookFailed(Failure.MALFORMED, "decision of its answer must be allow, ask, deny or modify.")
    changes = []
    if "arguments" in answer:
        call, changed = _with_arguments(call, answer["arguments"])
        changes.append(changed)
    if answer.get("context"):
        call = replace(call, context=(*call.context, answer["context"]))
        changes.append("gave the model a text with the result")
    if VERBS[word] > Verb.ALLOW:
        for_model, for_people, for_log = (answer.get(name, "") for name in _REASONS)
        for_model = for_model or for_people or f"The hook {hook.name} says so."
        people = for_people or for_model
        source = f"hook {hook.name}"
        decision = Decision(VERBS[word], source, for_model=for_model, for_people=people, for_log=for_log or people)
        call = replace(call, decisions=(*call.decisions, decision))
        changes.append("blocked the call" if word == "deny" else "asks somebody")
    return call, ", ".join(filter(None, changes))


def _with_arguments(call: HookedCall, arguments: Mapping[str, Any]) -> tuple[HookedCall, str]:
    names = [*arguments, *(name for name in call.arguments if name not in arguments)]
    changed = [name for name in names if not _is_same(name, arguments, call.arguments)]
    if not changed:
        return call, ""
    return replace(call, arguments=dict(arguments)), f"changed {', '.join(changed)[:200]}"


def _is_same(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether both have the same JSON under this name: true is not 1 there, however deep it stands."""
    if name not in one or name not in other:
        return False
    return one[name] is other[name] or canonical_json(one[name]) == canonical_json(other[name])


def deep_merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `above` on `below`: objects are merged, anything else is replaced. Neither is changed."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        both = isinstance(value, Mapping) and isinstance(known, Mapping)
        merged[name] = deep_merged(known, value) if both else value  # type: ignore[arg-type]
    return merged


def _set_merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    return {**below, **above}


def _tool(facts: Facts) -> dict[str, str]:
    return {"tool": facts.tool, "category": facts.category}


# -- after_tool_call --------------------------------------------------------------------------------------------------


def run_after_call(
    hooks: Sequence[HookSpec],
    result: str,
    facts: Facts,
    arguments: Mapping[str, Any],
    outside: Outside,
    *,
    status: str = "done",
    effective: TakeEffect = as_written,
) -> PhaseResult[str]:
    """The result that goes on to the model. One behind a failed hook that must not let it through is withheld."""
    python, taken = _Python(outside, outside.clock()), effective(arguments)

    def action(hook: HookSpec, value: str) -> tuple[str, str]:
        settings = hook.settings
        if hook.action == "append_note":
            return with_note(value, settings["text"]), "put a note behind the result"
        if hook.action == "set_field":
            return set_field(value, settings["field"], settings["value"]), f"set {settings['field']} of the result"
        if hook.action == "truncate":
            shorter = cut(value, settings["chars"])
            return shorter, "" if shorter == value else f"cut the result to {settings['chars']:,} characters"
        answer = python(hook, result=value, status=status, arguments=dict(taken.values), **_tool(facts))
        _only(answer, result=str)
        made = answer.get("result", value)
        return made, "" if made == value else f"made a result of {len(made):,} characters"

    done = _run(
        of_phase(hooks, Phase.AFTER_TOOL_CALL),
        result,
        lambda hook, value: hook.when.hold(facts, taken, hook.public_id),
        action,
        is_beyond=lambda hook, value: hook.is_beyond(facts),
    )
    stopped = done.stopped_by
    if stopped is None:
        return done
    withheld = {"success": False, "error": WITHHELD.format(hook=stopped.hook.name)}
    return replace(done, value=json.dumps(withheld, ensure_ascii=False))
