"""Part of a model call that repeats, from its front, the same agent's last one: a provider's cache can know it.

Counted in the order in which providers render a request: tools, then messages. Of the messages only a hash is kept, so
one that differs counts as new from its first byte. Another model, and another dialect, know nothing of the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capabilities.contract.wire import sha256_hex
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.conversation.running import RunningTurn
from sessions.models import ToolSet, Turn
from sessions.selection.tool_sets import wire_of
from sessions.turns.replies import Prompt

#: Marks that the session keeps of an agent's added tools: model, set in `tools`, steps with their sets, and names.
LINE_MARKS = {"model", "base", "added", "unavailable"}


@dataclass(frozen=True)
class Prefix:
    """Bytes of a model call's tools and messages, how many of them the last call began with, and its own marks."""

    prompt_bytes: int
    prefix_bytes: int
    marks: dict[str, Any]


def prefix_of(
    turn: RunningTurn, tool_set: ToolSet, messages: Sequence[str], *, tools_of: Callable[[str], str]
) -> Prefix:
    """Measure how much of a model call repeats the agent's last one, from its front.

    `messages` are as they went out, each as JSON; `tools_of` makes stored definitions as they go out. One query where
    the tools changed and this process does not know the last ones, else none.
    """
    sizes = [len(text.encode()) for text in messages]
    hashes = [sha256_hex(text)[:16] for text in messages]
    sent_tools = tools_of(tool_set.wire)
    tools = len(sent_tools.encode())
    model = model_mark(turn.model)
    last_model, last_set, last_hashes = _last(turn.row)
    if last_model != model:
        same = 0
    elif last_set == tool_set.pk:
        same = tools + _same_messages(sizes, hashes, last_hashes)
    else:
        last = wire_of(last_set, turn.row.organisation_id) if last_set else None
        same = _common_bytes(tools_of(last), sent_tools) if last else 0
    marks = {"model": model, "tool_set": tool_set.pk, "messages": hashes, "first_turn": turn.past.first}
    return Prefix(tools + sum(sizes), same, marks)


def model_mark(model: ResolvedModel) -> str:
    """Return a hash of the model and the dialect that it is spoken to in."""
    return sha256_hex(f"{model.origin} {model.dialect}")[:16]


def line_marks(turn: Turn) -> dict[str, Any]:
    """Return the marks, kept by the session, of the tools that were added to the agent's conversation, as `remembered`
    got them last; empty for nothing."""
    stored = _as_dict(_as_dict(turn.session.last_prompt).get(str(turn.agent_id)))
    line = _as_dict(stored.get("line"))
    return line if line.keys() == LINE_MARKS else {}


def remembered(
    turn: Turn,
    prefix: Prefix,
    tool_ids: Sequence[int] | None,
    routing: Mapping[str, Any] | None = None,
    line: Mapping[str, Any] | None = None,
) -> Prompt:
    """Return the marks of this call that the session keeps for the agent's next one: its prefix, the order of new
    tools, what the next turn is routed by, and the line of added tools, which stays as it was where this call had none.
    They are stored with the reply; the turn's own session in memory has them at once."""
    session, agent = turn.session, str(turn.agent_id)
    more = {"routing": routing, "line": line or line_marks(turn)}
    marks = prefix.marks | {name: dict(value) for name, value in more.items() if value}
    session.last_prompt = {**_as_dict(session.last_prompt), agent: marks}
    if tool_ids is not None:
        session.tool_order = {**_as_dict(session.tool_order), agent: list(tool_ids)}
    return Prompt(session.last_prompt, session.tool_order)


def _last(turn: Turn) -> tuple[str, int | None, list[str]]:
    """The marks of the last call; a value that is none of ours counts as no call."""
    stored = _as_dict(_as_dict(turn.session.last_prompt).get(str(turn.agent_id)))
    key, hashes = stored.get("tool_set"), stored.get("messages")
    if not isinstance(key, int) or not isinstance(hashes, list):
        return "", None, []
    return str(stored.get("model", "")), key, hashes


def _same_messages(sizes: Sequence[int], hashes: Sequence[str], last: Sequence[str]) -> int:
    same = 0
    for size, now, before in zip(sizes, hashes, last, strict=False):
        if now != before:
            break
        same += size
    return same


def _common_bytes(one: str, other: str) -> int:
    same, most = 0, min(len(one), len(other))
    while same < most:
        half = (same + most + 1) // 2
        same, most = (half, most) if one[same:half] == other[same:half] else (same, half - 1)
    return len(one[:same].encode())


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
