"""Savings from sending fewer tools than were permitted, with the provider's prompt cache in the account. Pure.

A provider reads the part of a prompt that it saw before from its cache, for a fraction of the price. Tools stand at the
front of a prompt, so a list that changes makes everything behind it new: fewer tools may cost more than all of them.
Each round is compared with the same round carrying every permitted tool, in a list that never changes: its first prompt
in a session is new, and later ones are read from the cache as far as the prompt before them reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: A shorter prompt is not kept by any provider's cache.
SHORTEST_CACHED = 1_024


@dataclass(frozen=True)
class Rates:
    """Price of a token of input, in any unit: one that is new, one read from the cache, one written to it."""

    full: int
    cached: int
    written: int

    @property
    def has_discount(self) -> bool:
        """True where the provider has a cache that makes a difference to the price."""
        return self.cached < self.full or self.written > self.full


#: For a model without a price: cached input costs a tenth, as with the newest public models.
UNPRICED = Rates(10, 1, 10)


@dataclass(frozen=True)
class InputUse:
    """Tokens of one input: all of them, and of these what was read from the cache and what was written to it."""

    input: int
    cached: int = 0
    cache_written: int = 0

    def price(self, rates: Rates) -> int:
        """Return the price of the input, in the unit of the rates."""
        plain = max(0, self.input - self.cached - self.cache_written)
        return plain * rates.full + self.cached * rates.cached + self.cache_written * rates.written


@dataclass(frozen=True)
class SentRound:
    """One model call as it was: its input, the tokens of the definitions in it, and those of all permitted tools."""

    use: InputUse
    tool_tokens: int
    #: 0 where it is not known.
    all_tool_tokens: int
    #: Whether the tokens are our own count: then nothing is known of the cache.
    is_estimated: bool = False

    @property
    def left_out(self) -> int:
        """Tokens of definitions that were permitted and not sent."""
        return max(0, self.all_tool_tokens - self.tool_tokens)


@dataclass(frozen=True)
class Before:
    """The call before in the same session, with the same agent and model, while a cache may still know it."""

    #: Tokens of its input with every permitted tool; 0 where there was none.
    input: int = 0
    #: Whether it carried every permitted tool.
    had_all: bool = True


@dataclass(frozen=True)
class Saving:
    """One round: what its input would have been with every permitted tool, and the tokens that were saved, counted as
    new input. Below zero it is a loss."""

    instead: InputUse
    tokens: int


def savings(rounds: Sequence[SentRound], before: Before, rates: Rates | None) -> list[Saving]:
    """Return the saving of each round of one turn, in their order. A model without `rates`, or that is free, is taken
    to have a cache where its provider said so in one of these rounds."""
    uses = [each.use for each in rounds]
    if rates is not None and rates.full:
        caches, of = rates.has_discount, rates
    else:
        caches, of = any(use.cached or use.cache_written for use in uses), UNPRICED
    written, fresh = sum(use.cache_written for use in uses), sum(use.input - use.cached for use in uses)
    found = []
    for each in rounds:
        if before.had_all and not each.left_out:
            instead = each.use
        elif not caches or each.is_estimated:
            instead = InputUse(each.use.input + each.left_out, each.use.cached, each.use.cache_written)
        else:
            instead = _with_all(each, before.input, written / fresh if fresh > 0 else 0.0)
        found.append(Saving(instead, round((instead.price(of) - each.use.price(of)) / of.full)))
        before = Before(instead.input, had_all=not each.left_out)
    return found


def _with_all(sent: SentRound, known: int, written_share: float) -> InputUse:
    """The round with every permitted tool: the cache knows the prompt before it, and what it knew of the real one."""
    total = sent.use.input + sent.left_out
    cached = min(known, total) if known >= SHORTEST_CACHED else 0
    if sent.use.cached:
        cached = max(cached, min(total, sent.use.cached + sent.left_out))
    return InputUse(total, cached, round((total - cached) * written_share))
