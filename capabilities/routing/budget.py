"""How many tools go: those that rank best, up to a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping

from capabilities.routing.requests import Kept, RouteRequest

BUDGET = 1_000
LARGE_BUDGET = 2_500
#: Above this many tools the large budget holds.
LARGE = 300
#: Ranked tools that go whatever they cost.
AT_LEAST = 3
#: Tokens of a definition that nobody counted.
UNCOUNTED = 100


def default_budget(tools: int) -> int:
    """Tokens for the definitions of a catalogue of so many tools."""
    return LARGE_BUDGET if tools > LARGE else BUDGET


def fill(
    chosen: Mapping[str, Kept], pinned: Mapping[str, Kept], request: RouteRequest, default: int
) -> dict[str, Kept]:
    """Those of `chosen`, in its order, that fit into the budget beside what is pinned; at least three."""
    budget = default if request.budget_tokens is None else request.budget_tokens
    used = sum(request.tokens.get(name, UNCOUNTED) for name in pinned)
    kept: dict[str, Kept] = {}
    for name, each in chosen.items():
        cost = request.tokens.get(name, UNCOUNTED)
        if used + cost > budget and len(kept) >= AT_LEAST:
            break
        kept[name] = each
        used += cost
    return kept
