"""How large one tool's definition may be."""

from __future__ import annotations

import pytest

from capabilities.contract.knobs import KNOBS
from capabilities.contract.tool_size import DEFAULT, KNOB, LEAST, why_too_large


@pytest.mark.parametrize(("tokens", "most", "is_told"), [(100, 100, False), (101, 100, True), (29_162, DEFAULT, True)])
def test_a_definition_over_the_limit_says_both_numbers_and_what_to_do(tokens: int, most: int, *, is_told: bool) -> None:
    told = why_too_large(tokens, most)

    assert bool(told) is is_told
    for word in (f"{tokens:,}", f"{most:,}", "fewer arguments", "shorter descriptions", "search_tools", "call_tool"):
        assert (word in told) is is_told


def test_nobody_sets_the_limit_below_what_is_never_looked_at() -> None:
    assert KNOBS[KNOB].read(LEAST - 1).value == LEAST
    assert LEAST < DEFAULT
