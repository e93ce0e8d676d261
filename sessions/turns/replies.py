"""A model's reply as its turn stores it: one value, from the moment that it is whole or was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from sessions.models import StepStatus, ToolSet, VerdictSet
from sessions.turns.spending import Reserved


@dataclass(frozen=True)
class Prompt:
    """Marks of a model call that a session keeps for the same agent's next one: columns of ChatSession."""

    last_prompt: Mapping[str, Any]
    tool_order: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReplyRecord:
    """A model's reply, whole or stopped in the middle, with what its call was made of and what it cost.

    All fields but `prompt` and `reserved` are columns of its step: `Step` says what each means.
    """

    started_at: datetime
    status: StepStatus = StepStatus.DONE
    text: str = ""
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    finish_reason: str = ""
    origin: str = ""
    extras: str = ""
    structured: dict[str, Any] | None = None

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    usage_estimated: bool = False
    raw_usage: dict[str, Any] = field(default_factory=dict)
    cost: int | None = None
    price_source: str = ""

    tool_tokens: int = 0
    result_tokens: int = 0
    history_tokens: int = 0
    answer_tokens: int = 0
    all_tool_tokens: int = 0

    tool_set: ToolSet | None = None
    declared_set: ToolSet | None = None
    verdict_set: VerdictSet | None = None
    load_count: int = 0
    routing: dict[str, Any] = field(default_factory=dict)
    prompt_bytes: int = 0
    prefix_bytes: int = 0

    #: What its session keeps of the call; None leaves that as it is.
    prompt: Prompt | None = None
    #: What was reserved for the call: it is settled with the reply.
    reserved: Reserved | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its step, by the names of their fields."""
        return {each: getattr(self, each) for each in _COLUMNS}


_COLUMNS = tuple(each.name for each in fields(ReplyRecord) if each.name not in ("prompt", "reserved"))
