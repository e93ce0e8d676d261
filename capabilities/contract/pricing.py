"""Cost of a model call by a list of prices. Pure: no Django, no lookup of which prices count.

Money is whole billionths of a US dollar; a call is rounded once, half to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

#: Billionths of a dollar for one token, of a dollar for a million tokens.
_NANO = 1_000


@dataclass(frozen=True)
class PricedUse:
    """Tokens of one model call, as the vendor bills them. Impossible parts count as the most that is possible."""

    input: int
    #: Parts of the input: read from the provider's cache, and written to it.
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    #: Part of the output: what the model thought.
    reasoning: int = 0

    @property
    def parts(self) -> tuple[int, int, int, int, int]:
        """Input that no cache had to do with, read from a cache, written to one, output that was said, and thought."""
        sent, received = max(self.input, 0), max(self.output, 0)
        cached = _within(self.cached, sent)
        written = _within(self.cache_written, sent - cached)
        thought = _within(self.reasoning, received)
        return sent - cached - written, cached, written, received - thought, thought


def _within(number: int, limit: int) -> int:
    return min(max(number, 0), limit)


@dataclass(frozen=True)
class Tier:
    """US dollars for a million tokens, for calls whose input has more than `above` tokens."""

    input: Decimal
    output: Decimal
    #: None: as other input, and for `reasoning` as other output.
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    above: int = -1

    @property
    def parts(self) -> tuple[Decimal, Decimal, Decimal, Decimal, Decimal]:
        """Prices in the order of `PricedUse.parts`."""
        return (
            self.input,
            self.input if self.cached is None else self.cached,
            self.input if self.cache_write is None else self.cache_write,
            self.output,
            self.output if self.reasoning is None else self.reasoning,
        )

    @property
    def highest(self) -> tuple[Decimal, Decimal]:
        """The dearest that a token of the input, and one of the output, can cost."""
        fresh, cached, written, answer, reasoning = self.parts
        return max(fresh, cached, written), max(answer, reasoning)


@dataclass(frozen=True)
class Prices:
    """The tiers of a model, lowest first; the first is for every call. A call pays one tier for all of its tokens."""

    tiers: Sequence[Tier]
    #: US dollars for each call by itself.
    call: Decimal = Decimal(0)

    def tier_of(self, tokens: int) -> Tier:
        """The one that a call with an input of so many tokens pays."""
        return next((tier for tier in reversed(self.tiers) if tokens > tier.above), self.tiers[0])

    def cost(self, use: PricedUse) -> int:
        """Billionths of a dollar."""
        tier = self.tier_of(use.input)
        return self._rounded(sum(Fraction(price) * tokens for price, tokens in zip(tier.parts, use.parts, strict=True)))

    def most(self, input_tokens: int, output_tokens: int) -> int:
        """The dearest that a call can cost whose input has at most so many tokens, and its output."""
        reached = [self.tiers[0], *(tier for tier in self.tiers[1:] if input_tokens > tier.above)]
        pairs = [tier.highest for tier in reached]
        return max(self._rounded(Fraction(sent) * input_tokens + Fraction(got) * output_tokens) for sent, got in pairs)

    def _rounded(self, of_tokens: Fraction | int) -> int:
        return round(of_tokens * _NANO + Fraction(self.call) * 1_000_000 * _NANO)
