"""Totals of all time: what one ended turn adds to them, and how that is written. No name that a tenant chose is
kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from capabilities.language_models.providers.prices import public_name
from capabilities.language_models.providers.resolve import ResolvedModel
from capabilities.models import ToolKind
from capabilities.running.registry import registry
from sessions.models import BUCKETS, ModelTotal, Step, StepStatus, ToolTotal, Turn, TurnTotal
from sessions.usage.rollups.reading import SentTool
from toolhub.tenants.rows.sums import add_to_sums

#: In place of a name that somebody chose, or that nobody knows any more.
OTHER = "other"
UNKNOWN = "unknown"
#: A code of ours: it is a label, and no text of a tenant's may become one.
CODE = re.compile(r"[a-z][a-z0-9_]{0,39}")
#: Ends of calls that were made and answered: how long others took says nothing of their tool.
TIMED = (StepStatus.DONE, StepStatus.FAILED)

_TIMES = ("calls", "timed_calls", "milliseconds", *BUCKETS)
_TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True, order=True)
class TurnKey:
    """The row of `TurnTotal` that is added to."""

    status: str
    error_code: str


@dataclass(frozen=True, order=True)
class ModelKey:
    """The row of `ModelTotal` that is added to."""

    vendor: str
    model_name: str


@dataclass(frozen=True, order=True)
class CallKey:
    """The row of `ToolTotal` that is added to."""

    kind: str
    tool_name: str
    outcome: str


@dataclass
class Totals:
    """Amounts that some turns add to the totals."""

    turns: Counter[TurnKey] = field(default_factory=Counter)
    models: dict[ModelKey, Counter[str]] = field(default_factory=dict)
    tools: dict[CallKey, Counter[str]] = field(default_factory=dict)

    def add_turn(self, turn: Turn) -> None:
        code = turn.error_code if not turn.error_code or CODE.fullmatch(turn.error_code) else OTHER
        self.turns[TurnKey(turn.status, code)] += 1

    def add_call(self, call: Step, model: ResolvedModel | None) -> None:
        """A model call. `model` is None where that is gone."""
        amounts = self.models.setdefault(_key_of(model), Counter())
        amounts.update({name: getattr(call, name) for name in _TOKENS})
        amounts.update(calls=1, cost=call.cost or 0, unpriced_calls=int(call.cost is None), **_time_of(call))

    def add_use(self, use: Step, tool: SentTool | None) -> None:
        """A tool call. `tool` is None where it is gone, or never was there."""
        key = CallKey(tool.kind if tool else UNKNOWN, name_of(tool), use.status)
        times = _time_of(use) if use.status in TIMED else {}
        self.tools.setdefault(key, Counter()).update(calls=1, **times)

    def add(self, others: Iterable[Totals]) -> None:
        for other in others:
            self.turns.update(other.turns)
            for model, amounts in other.models.items():
                self.models.setdefault(model, Counter()).update(amounts)
            for tool, amounts in other.tools.items():
                self.tools.setdefault(tool, Counter()).update(amounts)

    def write(self) -> None:
        """Add them to the rows of the organisation in scope, in the caller's transaction. At most three statements."""
        turns = [{**vars(key), "turns": count} for key, count in self.turns.items()]
        add_to_sums(TurnTotal, turns, found_by=("status", "error_code"), sums=("turns",))
        sums = (*_TIMES, "unpriced_calls", "cost", *_TOKENS)
        add_to_sums(ModelTotal, _rows(self.models, sums), found_by=("vendor", "model_name"), sums=sums)
        add_to_sums(ToolTotal, _rows(self.tools, _TIMES), found_by=("kind", "tool_name", "outcome"), sums=_TIMES)


def _rows(totals: dict[Any, Counter[str]], sums: Sequence[str]) -> list[dict[str, Any]]:
    return [{**vars(key), **{name: amounts[name] for name in sums}} for key, amounts in totals.items()]


def _key_of(model: ResolvedModel | None) -> ModelKey:
    if model is None:
        return ModelKey(OTHER, OTHER)
    if model.is_offline:
        return ModelKey("offline", "offline")
    return ModelKey(model.vendor.key, public_name(model) or OTHER)


def name_of(tool: SentTool | None) -> str:
    """The name of a tool that comes with the service; "other" for those that tenants named."""
    is_ours = tool is not None and tool.kind == ToolKind.BUILTIN and tool.name in registry.tools
    return tool.name if tool is not None and is_ours else OTHER


def _time_of(step: Step) -> dict[str, int]:
    """Return the time that the step took, from the clocks of the worker and, for a tool, of the database; nothing where
    it has no end."""
    seconds = step.seconds
    if seconds is None:
        return {}
    seconds = max(0.0, seconds)
    within = {name: int(seconds <= most) for name, most in BUCKETS.items()}
    return {"timed_calls": 1, "milliseconds": round(seconds * 1000), **within}
