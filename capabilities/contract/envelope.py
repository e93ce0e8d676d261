"""What one call of a tool may take: its envelope, and what a layer around the tool says in place of it.

Pure values: whoever has layers merges them here, from the outermost to the innermost, and nothing else decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Overrides:
    """What one layer, such as a toolkit, says in place of the layer below; None where it says nothing."""

    #: Seconds.
    timeout: float | None = None
    #: Characters of a result.
    max_result_chars: int | None = None

    @property
    def values(self) -> dict[str, Any]:
        """What it says, by name. As JSON it is read again by `overrides_from`."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in named.items() if value is not None}


#: A layer that says nothing.
NO_OVERRIDES = Overrides()


def overrides_from(stored: Mapping[str, Any] | Sequence[Any] | None) -> Overrides:
    """Overrides as they were stored: `values`, or (by an earlier release) the pair of both in order."""
    if not stored:
        return NO_OVERRIDES
    if isinstance(stored, Mapping):
        known = {each.name for each in fields(Overrides)}
        return Overrides(**{name: value for name, value in stored.items() if name in known})
    return Overrides(*stored)


@dataclass(frozen=True)
class Envelope:
    """The knobs in force for a call of one tool."""

    #: `retry`, `retry_with_key` or `never`: what may follow a crash between the call's start and its result.
    on_crash: str
    #: Seconds until nobody waits for it any more.
    timeout: float
    #: Characters of its result that a model gets to see, at most.
    max_result_chars: int

    def merged(self, overrides: Overrides) -> Envelope:
        """The same under one more layer: what that says counts, for the rest what stands here."""
        said = overrides.values
        return replace(self, **said) if said else self

    @property
    def may_repeat(self) -> bool:
        """Whether a call that a crash cut off may be run again."""
        return self.on_crash != "never"
