"""Limit of the tokens of one tool's definition, and the ways to shrink one that takes more. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from capabilities.contract.knobs import KNOBS
from capabilities.contract.runtime import Layer, knob_for
from capabilities.contract.warnings import DefinitionWarning

#: The knob, and what nobody can set it below: a definition up to this size is never looked at.
KNOB = "max_definition_tokens"
LEAST = int(KNOBS[KNOB].minimum or 0)
DEFAULT: int = KNOBS[KNOB].default
#: Ways to make a definition smaller, or to do without sending it.
ADVICE = (
    "give it fewer arguments or shorter descriptions, raise the setting for this tool, or let an agent of loading mode "
    "“Never: search and call” reach it by search_tools and call_tool"
)


def why_too_large(tokens: int, limit: int = DEFAULT) -> str:
    """Why a definition of so many tokens is not sent, and what to do; empty where it is."""
    if tokens <= limit:
        return ""
    return f"its definition takes {tokens:,} tokens, and one tool may take {limit:,}: {ADVICE}"


def size_warnings(tokens: int, name: str, category: str, layers: Sequence[Layer]) -> list[DefinitionWarning]:
    """Return the warnings about a definition that is no tool yet and would take so many tokens, under these layers."""
    if tokens <= LEAST:
        return []
    reason = why_too_large(tokens, knob_for(KNOB, name, category, layers))
    return [DefinitionWarning("too_large", f"It would not be sent: {reason}.")] if reason else []
