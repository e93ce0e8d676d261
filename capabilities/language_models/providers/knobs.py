"""Settings of a model's calls, on the model and on an agent: the bounds, and the check of both."""

from __future__ import annotations

import re
from typing import Protocol

from capabilities.common.refused import ChangeRefused

#: Settings of a model's calls, on the model and on the agent: columns of both.
KNOBS = ("reasoning_effort", "max_output_tokens", "temperature", "parallel_tool_calls")
#: Efforts that vendors take; they add to them with each generation, so that any word goes.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_EFFORT = re.compile(r"[a-z]{1,20}")


class CallSettingsContent(Protocol):
    """The part of a model's and of an agent's content that says how the model is called; "" and None say nothing."""

    @property
    def reasoning_effort(self) -> str: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def parallel_tool_calls(self) -> bool | None: ...


def most_output(context_window: int) -> int:
    """Tokens that one reply may take at most: half the window, so that the conversation has room."""
    return context_window // 2


def check_knobs(content: CallSettingsContent, context_window: int) -> None:
    """Raise ChangeRefused for a value that no call of a model with this window could carry."""
    if content.reasoning_effort and not _EFFORT.fullmatch(content.reasoning_effort):
        raise ChangeRefused(
            "reasoning_effort", f"Give one word of lower-case letters, for example {', '.join(EFFORTS[2:5])}."
        )
    limit = most_output(context_window)
    if content.max_output_tokens is not None and not 1 <= content.max_output_tokens <= limit:
        raise ChangeRefused(
            "max_output_tokens",
            f"Give a whole number from 1 to {limit:,}. That is half of the model’s context window of "
            f"{context_window:,} tokens: the other half is for the conversation.",
        )
