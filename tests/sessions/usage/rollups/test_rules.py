"""What it saved to send fewer tools: the arithmetic of a provider's prompt cache, by examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.usage.rollups.rules import Before, InputUse, Rates, Saving, SentRound, savings

NO_DISCOUNT = Rates(10, 10, 10)
HALF = Rates(10, 5, 10)
TENTH = Rates(10, 1, 10)
WRITES_COST_MORE = Rates(100, 10, 125)


def turn(tools: int, sent: int, history: int, rounds: int) -> list[SentRound]:
    """A turn whose list of tools is new at its start: only its later rounds are read from the cache."""
    total = sent + history
    return [SentRound(InputUse(total, total if each else 0), sent, tools) for each in range(rounds)]


@pytest.mark.parametrize(
    ("rates", "history", "percent"),
    [(NO_DISCOUNT, 3_000, -70), (HALF, 3_000, -60), (TENTH, 3_000, 20), (TENTH, 10_000, 123)],
    ids=["no discount", "half", "a tenth: a loss", "a tenth, long history: a larger loss"],
)
def test_cx_42_a_list_that_changes_with_each_turn_may_cost_more_than_all_tools(
    rates: Rates, history: int, percent: int
) -> None:
    """9,000 tokens of tools, 600 of them sent, three rounds: all tools, cached, against a list that is new."""
    rounds = turn(9_000, 600, history, 3)

    found = savings(rounds, Before(9_000 + history), rates)

    as_sent = sum(each.use.price(rates) for each in rounds)
    with_all = sum(each.instead.price(rates) for each in found)
    assert round(100 * (as_sent - with_all) / with_all) == percent
    assert sum(each.tokens for each in found) == pytest.approx((with_all - as_sent) / rates.full, abs=2)


#: Name, rounds, call before, rates, tokens saved in each round.
EXAMPLES: list[tuple[str, list[SentRound], Before, Rates | None, list[int]]] = [
    ("nothing was left out", [SentRound(InputUse(5_000), 2_000, 2_000)], Before(4_000), TENTH, [0]),
    ("what was permitted is not known", [SentRound(InputUse(5_000), 2_000, 0)], Before(), TENTH, [0]),
    ("first prompt of a session: new either way", [SentRound(InputUse(3_600), 600, 9_000)], Before(), TENTH, [8_400]),
    (
        "second round of the first turn: both from the cache",
        [SentRound(InputUse(3_600), 600, 9_000), SentRound(InputUse(3_600, 3_600), 600, 9_000)],
        Before(),
        TENTH,
        [8_400, 840],
    ),
    (
        "the same small list as in the turn before: read from the cache in truth as well",
        [SentRound(InputUse(3_700, 3_600), 600, 9_000)],
        Before(12_000, had_all=False),
        TENTH,
        [840],
    ),
    (
        "a new list in a later turn: a loss",
        [SentRound(InputUse(20_000), 600, 1_600)],
        Before(20_900, had_all=False),
        TENTH,
        [-17_900 + -910 + 1_000],
    ),
    (
        "every tool again behind a turn with fewer: the list changed, and that cost",
        [SentRound(InputUse(12_000), 9_000, 9_000)],
        Before(12_000, had_all=False),
        TENTH,
        [-10_800],
    ),
    ("a provider without a cache", [SentRound(InputUse(3_600), 600, 9_000)], Before(12_000), NO_DISCOUNT, [8_400]),
    ("no price, no cache seen", [SentRound(InputUse(3_600), 600, 9_000)], Before(12_000), None, [8_400]),
    ("our own count", [SentRound(InputUse(3_600), 600, 9_000, True)], Before(12_000), TENTH, [8_400]),
    (
        "no price, a cache that answered: cached tokens count a tenth",
        [SentRound(InputUse(3_600), 600, 9_000), SentRound(InputUse(3_600, 3_600), 600, 9_000)],
        Before(12_000, had_all=False),
        None,
        [1_200 - 3_600, 840],
    ),
    ("free: counted as without a price", [SentRound(InputUse(3_600), 600, 9_000)], Before(), Rates(0, 0, 0), [8_400]),
    (
        "a prompt too short for any cache",
        [SentRound(InputUse(300), 100, 600), SentRound(InputUse(310), 100, 600)],
        Before(),
        TENTH,
        [500, 500],
    ),
    (
        "writes cost a quarter more: twelve stable rounds for one change",
        [SentRound(InputUse(26_000, 0, 26_000), 5_000, 6_000)],
        Before(27_000, had_all=False),
        WRITES_COST_MORE,
        [2_700 - 32_500],
    ),
    (
        "the first prompt is written either way",
        [SentRound(InputUse(4_000, 0, 4_000), 1_000, 9_000)],
        Before(),
        WRITES_COST_MORE,
        [10_000],
    ),
]


@pytest.mark.parametrize(
    ("rounds", "before", "rates", "tokens"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES]
)
def test_a_round_saves(rounds: list[SentRound], before: Before, rates: Rates | None, tokens: list[int]) -> None:
    assert [each.tokens for each in savings(rounds, before, rates)] == tokens


def test_a_round_with_every_tool_is_compared_with_itself() -> None:
    """A miss of the provider's cache is no loss of routing."""
    use = InputUse(12_000, 0)

    assert savings([SentRound(use, 9_000, 9_000)], Before(11_000), TENTH) == [Saving(use, 0)]


tokens = st.integers(0, 50_000)


@given(
    st.lists(st.builds(SentRound, st.builds(InputUse, tokens), tokens, tokens), max_size=5),
    st.builds(Before, tokens, st.booleans()),
    st.sampled_from([None, NO_DISCOUNT, HALF, TENTH, WRITES_COST_MORE]),
)
def test_with_every_tool_no_input_is_shorter_and_no_part_is_larger_than_the_whole(
    rounds: list[SentRound], before: Before, rates: Rates | None
) -> None:
    for sent, saved in zip(rounds, savings(rounds, before, rates), strict=True):
        assert saved.instead.input == sent.use.input + sent.left_out
        assert 0 <= saved.instead.cached + saved.instead.cache_written <= saved.instead.input
