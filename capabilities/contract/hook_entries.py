"""Hooks as people write them and rows store them: read, checked, put right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from capabilities.contract.hooks import (
    _CONDITIONS,
    _LISTS,
    ACTIONS,
    DISABLE_AFTER,
    FIELDS,
    MAX_LISTED,
    MAX_NAME,
    MAX_TEXT,
    PRIORITIES,
    TIMEOUTS,
    TOOL_PHASES,
    Action,
    ArgumentPattern,
    Conditions,
    HookSpec,
    OnError,
    Phase,
    Setting,
    default_on_error,
)
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.contract.wire import canonical_json, is_whole


class MalformedHook(ValueError):
    """An entry is no hook; `field` is at fault, the message says what to do about it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def normalised(entry: Any) -> dict[str, Any]:
    """An entry with every one of `FIELDS`; a number that is out of its bounds is moved to the next one within.

    A bare text is the name of an action that needs no more. Normalising twice is the same as once. Raises
    MalformedHook.
    """
    if isinstance(entry, str):
        entry = {"action": entry}
    if not isinstance(entry, Mapping):
        raise MalformedHook("", "A hook is an object with a phase and an action.")
    for name in entry:
        if name not in FIELDS:
            raise MalformedHook(str(name)[:64], "A hook has no such field.")
    action = _action(entry.get("action"))
    phase = _phase(entry.get("phase"), action)
    on_error = entry.get("on_error") or default_on_error(phase, action.name).value
    if on_error not in set(OnError):
        raise MalformedHook("on_error", f"Choose one of {', '.join(OnError)}.")
    return {
        "name": _line("name", entry.get("name", action.name), MAX_NAME),
        "phase": phase.value,
        "action": action.name,
        "settings": _settings(action, entry.get("settings", {})),
        "when": _conditions(phase, entry.get("when", {})),
        "priority": int(_number("priority", entry.get("priority"), PRIORITIES, int)),
        "timeout": _number("timeout", entry.get("timeout"), TIMEOUTS, float),
        "on_error": str(on_error),
        "disable_after": int(_number("disable_after", entry.get("disable_after"), DISABLE_AFTER, int)),
    }


def conditions_from(stored: Mapping[str, Any]) -> Conditions:
    """Build the conditions from a normalised entry's `when`."""
    lists = {name: tuple(stored.get(name, ())) for name in _LISTS}
    patterns = tuple(ArgumentPattern(each["name"], each["pattern"]) for each in stored.get("arguments", ()))
    return Conditions(**lists, arguments=patterns, share=stored.get("share", 100))


def hook_from(public_id: str, entry: Any) -> HookSpec:
    """The hook of a stored entry. One that cannot be read any more fails each time it could run."""
    try:
        known = normalised(entry)
    except MalformedHook as error:
        return _broken(public_id, entry, str(error))
    names = ("name", "action", "settings", "priority", "timeout")
    return HookSpec(
        public_id,
        phase=Phase(known["phase"]),
        when=conditions_from(known["when"]),
        on_error=OnError(known["on_error"]),
        **{name: known[name] for name in names},
    )


def _broken(public_id: str, entry: Mapping[str, Any], why: str) -> HookSpec:
    phase, action = Phase(entry["phase"]), str(entry.get("action", ""))
    stored = entry.get("on_error")
    on_error = OnError(stored) if stored in set(OnError) else default_on_error(phase, action)
    return HookSpec(public_id, str(entry.get("name", "")), phase, action, on_error=on_error, broken=why)


def _action(value: Any) -> Action:
    if not isinstance(value, str) or value not in ACTIONS:
        raise MalformedHook("action", f"Choose one of {', '.join(ACTIONS)}.")
    return ACTIONS[value]


def _phase(value: Any, action: Action) -> Phase:
    """Return the phase; where none is given, the action's only one. Raises MalformedHook."""
    if value in (None, "") and len(action.phases) == 1:
        return action.phases[0]
    if value not in set(Phase):
        raise MalformedHook("phase", f"Choose one of {', '.join(Phase)}.")
    if value not in action.phases:
        raise MalformedHook("action", f"{action.name} is no action of {value}.")
    return Phase(value)


def _settings(action: Action, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise MalformedHook("settings", "The settings of an action are an object.")
    known = {each.name: each for each in action.settings}
    for name in given:
        if name not in known:
            raise MalformedHook(f"settings.{str(name)[:64]}", f"{action.name} has no such setting.")
    return {each.name: _setting(each, given) for each in action.settings}


def _setting(setting: Setting, given: Mapping[str, Any]) -> Any:
    """Return one setting of a hook as it is stored. Raises MalformedHook."""
    name, value = f"settings.{setting.name}", given.get(setting.name)
    if setting.kind == "value":
        if setting.name not in given:
            raise MalformedHook(name, "Give a value; null is one too.")
        return _small(name, value)
    if setting.kind == "object":
        value = {} if value is None else value
        if not isinstance(value, Mapping) or (setting.is_required and not value):
            raise MalformedHook(name, "Give a JSON object.")
        return _small(name, dict(value))
    if setting.kind == "number":
        if value is None:
            raise MalformedHook(name, "Give a whole number.")
        return int(_number(name, value, (setting.minimum, setting.maximum, setting.minimum), int))
    if setting.kind == "choice":
        names = [each for each, _ in setting.choices]
        value = names[0] if value in (None, "") else value
        if value not in names:
            raise MalformedHook(name, f"Choose one of {', '.join(names)}.")
        return value
    if setting.kind == "text":
        if not isinstance(value, str | None) or len(value or "") > MAX_TEXT or not is_whole(value):
            raise MalformedHook(name, f"Give a text of at most {MAX_TEXT:,} characters.")
        if setting.is_required and not (value or "").strip():
            raise MalformedHook(name, "Give a text.")
        return value or ""
    return _line(name, value, 200)


def _conditions(phase: Phase, given: Any) -> dict[str, Any]:
    """Return the normalised conditions, without empty ones. Raises MalformedHook."""
    if not isinstance(given, Mapping):
        raise MalformedHook("when", "The conditions are an object.")
    for name in given:
        if name not in _CONDITIONS:
            raise MalformedHook(f"when.{str(name)[:64]}", "There is no such condition.")
    if phase not in TOOL_PHASES:
        for name in ("tools", "arguments"):
            if given.get(name):
                raise MalformedHook(f"when.{name}", f"{phase} is about no tool: leave it empty.")
    found: dict[str, Any] = {name: _names(f"when.{name}", given.get(name)) for name in _LISTS}
    found["arguments"] = _argument_patterns(given.get("arguments"))
    share = int(_number("when.share", given.get("share"), (1, 100, 100), int))
    return {name: value for name, value in found.items() if value} | ({"share": share} if share < 100 else {})


def _names(field: str, value: Any) -> list[str]:
    """Each once, in their order; a bare text is a list of one."""
    values = [value] if isinstance(value, str) else value or []
    if not isinstance(values, list | tuple) or len(values) > MAX_LISTED:
        raise MalformedHook(field, f"Give a list of at most {MAX_LISTED}.")
    lines = [_line(field, each, MAX_PATTERN) for each in values if not (isinstance(each, str) and not each.strip())]
    return list(dict.fromkeys(lines))


def _argument_patterns(value: Any) -> list[dict[str, str]]:
    values = value or []
    if not isinstance(values, list | tuple) or len(values) > MAX_LISTED:
        raise MalformedHook("when.arguments", f"Give a list of at most {MAX_LISTED}.")
    found = []
    for each in values:
        if not isinstance(each, Mapping) or set(each) != {"name", "pattern"}:
            raise MalformedHook("when.arguments", "An argument’s condition is an object with a name and a pattern.")
        found.append({name: _line("when.arguments", each[name], MAX_PATTERN) for name in ("name", "pattern")})
    return [each for index, each in enumerate(found) if each not in found[:index]]


def _line(field: str, value: Any, limit: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value.strip()) > limit or not value.strip().isprintable():
        raise MalformedHook(field, f"Give a line of at most {limit} characters.")
    return value.strip()


def _number(field: str, value: Any, bounds: tuple[float, float, float], kind: type[int] | type[float]) -> float:
    """Within the bounds; the default where nothing is said."""
    least, most, default = bounds
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise MalformedHook(field, "Give a number.")
    if kind is int and isinstance(value, float) and not value.is_integer() and abs(value) != float("inf"):
        raise MalformedHook(field, "Give a whole number.")
    return float(kind(min(max(value, least), most)))


def _small(field: str, value: Any) -> Any:
    try:
        text = canonical_json(value)
    except (TypeError, ValueError, RecursionError):
        raise MalformedHook(field, "Give JSON.") from None
    if len(text) > MAX_TEXT or not is_whole(value):
        raise MalformedHook(field, f"Keep it under {MAX_TEXT:,} characters.")
    return value
