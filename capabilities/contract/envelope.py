"""Envelope of a tool: the limits of one call, and the values that a toolkit sets in their place.

How the layers around a tool are merged into an envelope is in `runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capabilities.contract.knobs import KNOBS, SHARED_KNOBS, plain

#: Knobs whose field of an Envelope and of Overrides has a name of its own.
FIELDS = {"timeout_sec": "timeout"}
#: Those that Overrides has a field for.
OWN_FIELDS = ("timeout_sec", "max_result_chars")


@dataclass(frozen=True)
class Overrides:
    """Values that a toolkit sets for a tool in place of the layers around it; None where it sets none."""

    #: Seconds.
    timeout: float | None = None
    #: Characters of a result.
    max_result_chars: int | None = None
    #: Further knobs by name, each with what it says, in the order of their names.
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """Values that are set, by name. As JSON they are read again by `overrides_from`."""
        named = {"timeout": self.timeout, "max_result_chars": self.max_result_chars}
        return {name: value for name, value in named.items() if value is not None} | self.further

    @property
    def further(self) -> dict[str, Any]:
        """The further knobs that it sets, as JSON has them."""
        return {name: plain(value) for name, value in self.more}

    @property
    def knobs(self) -> dict[str, Any]:
        """Values that are set, like `values`, by the names of the knobs."""
        names = {field: knob for knob, field in FIELDS.items()}
        return {names.get(name, name): value for name, value in self.values.items()}


#: A layer that says nothing.
NO_OVERRIDES = Overrides()


def overrides_of(timeout: float | None, max_result_chars: int | None, further: Any) -> Overrides:
    """Overrides of the columns of a toolkit's line. What cannot be read says nothing."""
    seconds = None if KNOBS["timeout_sec"].read(timeout).is_malformed else timeout
    chars = None if KNOBS["max_result_chars"].read(max_result_chars).is_malformed else max_result_chars
    return Overrides(seconds, chars, _readable(further))


def overrides_from(stored: Mapping[str, Any] | Sequence[Any] | None) -> Overrides:
    """Overrides as they were stored: `values`, or (by an earlier release) the pair of both in order."""
    if not stored:
        return NO_OVERRIDES
    if isinstance(stored, Mapping):
        return overrides_of(stored.get("timeout"), stored.get("max_result_chars"), stored)
    timeout, chars = [*stored, None, None][:2]
    return overrides_of(timeout, chars, None)


def _readable(further: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(further, Mapping):
        return ()
    found = {
        name: KNOBS[name].read(value)
        for name, value in further.items()
        if name in KNOBS and name not in OWN_FIELDS and value is not None
    }
    return tuple((name, found[name].value) for name in sorted(found) if not found[name].is_malformed)


@dataclass(frozen=True)
class Envelope:
    """The knobs in force for a call of one tool. What each of them does is in `knobs`."""

    #: `retry`, `retry_with_key` or `never`: what may follow a crash between the call's start and its result.
    on_crash: str
    #: Seconds until nobody waits for it any more.
    timeout: float
    #: Characters of its result that a model gets to see, at most.
    max_result_chars: int
    untrusted_output: bool = KNOBS["untrusted_output"].default
    #: `refuse`, `ask` or `allow`.
    in_untrusted: str = KNOBS["in_untrusted"].default
    yield_ms: int = KNOBS["yield_ms"].default
    max_input_chars: int = KNOBS["max_input_chars"].default
    #: Tokens of its definition in a request, at most.
    max_definition_tokens: int = KNOBS["max_definition_tokens"].default
    #: `off`, `first_time` or `always`.
    ask: str = KNOBS["ask"].default
    #: `deny`, `allow-list` or `full`, with the programs of the list: of a tool that runs commands.
    security: str = KNOBS["security"].default
    safe_bins: tuple[str, ...] = KNOBS["safe_bins"].default
    #: For a tool that fetches addresses.
    max_redirects: int = KNOBS["max_redirects"].default
    cache_ttl_sec: int = KNOBS["cache_ttl_sec"].default
    readability: bool = KNOBS["readability"].default
    #: Equal for all tools: what one result may take of the context window, and what it may take in any case.
    result_context_share_ratio: float = SHARED_KNOBS["result_context_share_ratio"].default
    result_min_chars: int = SHARED_KNOBS["result_min_chars"].default

    def merged(self, overrides: Overrides) -> Envelope:
        """Return this envelope under one more layer: the layer's values count, for the rest the values of this one."""
        changes = {FIELDS.get(name, name): value for name, value in overrides.knobs.items()}
        return replace(self, **{**changes, **_as_tuples(changes)}) if changes else self

    def knob(self, name: str) -> Any:
        """Value in force of the knob of this name."""
        return getattr(self, FIELDS.get(name, name))

    @property
    def may_repeat(self) -> bool:
        """True where a call that a crash cut off may be run again."""
        return self.on_crash != "never"


def _as_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
