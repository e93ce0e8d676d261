"""Amounts of a budget as people and programs write them: dollars as decimals, tokens and turns as whole numbers."""

from __future__ import annotations

import re

from capabilities.common.refused import ChangeRefused
from sessions.models import Measure
from toolhub.tenants.rows.money import dollars, nano_of, rounded_dollars

#: The highest limit of each measure, and what one window may come to with all that is added to it.
HIGHEST = {Measure.TOKENS: 10**15, Measure.MONEY: 10**18, Measure.TURNS: 100_000}
MOST_IN_A_WINDOW = 4 * 10**18
WHOLE = re.compile(r"\d{1,3}(?:[, _]?\d{3})*|\d+", re.ASCII)
UNITS = {Measure.TOKENS: "tokens", Measure.TURNS: "turns"}


def amount_of(text: str, measure: str, field: str) -> int:
    """Tokens, turns or billionths of a dollar. Raises ChangeRefused, beside this field, with what is wrong with it."""
    try:
        amount = nano_of(text) if measure == Measure.MONEY else _whole(text, UNITS[Measure(measure)])
    except ValueError as error:
        raise ChangeRefused(field, str(error)) from error
    check_amount(amount, measure, field)
    return amount


def check_amount(amount: int, measure: str, field: str) -> None:
    highest = HIGHEST[Measure(measure)]
    if not 0 < amount <= highest:
        raise ChangeRefused(field, f"Give more than 0, and at most {amount_shown(highest, measure)}.")


def _whole(text: str, unit: str) -> int:
    text = text.strip()
    if not WHOLE.fullmatch(text) or len(text) > 30:
        raise ValueError(f"Give a whole number of {unit}.")
    return int(re.sub("[, _]", "", text))


def amount_text(amount: int, measure: str) -> str:
    """Return the amount for programs, exact: "12.50" dollars, "100000" tokens."""
    return dollars(amount) if measure == Measure.MONEY else str(amount)


def amount_shown(amount: int, measure: str) -> str:
    """Return the amount for people: $12.50; 100,000 tok; 3 turns."""
    if measure == Measure.MONEY:
        return rounded_dollars(amount)
    if measure == Measure.TOKENS:
        return f"{amount:,} tok"
    return f"{amount:,} turn{'' if amount == 1 else 's'}"
