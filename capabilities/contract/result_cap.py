"""How much of a tool's result the model gets to see.

In a long turn `sessions/loop/history` cuts older results again.
"""

from __future__ import annotations

#: Characters that one token is taken for.
CHARS_PER_TOKEN = 4


def result_cap(max_result_chars: int, context_window: int, *, share: float, minimum: int) -> int:
    """Characters of one result that go to the model.

    context_window is in tokens; `share` of it may go to one result. The share is clamped to
    [minimum, max_result_chars], and where those two cross, max_result_chars wins.
    Source of 0.22, 1,200 and 4 characters a token: docs/requirements.md, Result budgets.
    """
    return min(max_result_chars, max(minimum, int(share * context_window * CHARS_PER_TOKEN)))


def cut(result: str, cap: int) -> str:
    """The result, or its beginning and a sentence that says how much is missing; at most `cap` characters."""
    if len(result) <= cap:
        return result
    note = f"\n[cut: {len(result):,} characters in all, the first {{kept:,}} shown]"
    room = cap - len(note.format(kept=cap))
    if room <= 0:
        return result[:cap]
    return result[:room] + note.format(kept=room)
