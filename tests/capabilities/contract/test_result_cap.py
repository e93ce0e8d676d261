from __future__ import annotations

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.result_cap import cut, result_cap


def test_zs51_zs52_the_defaults_are_the_documents() -> None:
    assert (settings.TOOLHUB_RESULT_SHARE, settings.TOOLHUB_MIN_RESULT_CHARS) == (0.22, 1_200)


@pytest.mark.parametrize(
    ("hard", "window", "cap"),
    [
        (40_000, 128_000, 40_000),  # ZS-50: the share of 112,640 is over the hard cap
        (200_000, 128_000, 112_640),  # ZS-54: tokens times 4 characters
        (40_000, 8_192, 7_208),
        (40_000, 1_000, 1_200),  # ZS-52: never under the minimum
        (40_000, 1, 1_200),
        (40_000, 0, 1_200),
        (800, 128_000, 800),  # ZS-55: the hard cap wins over the minimum
        (800, 1, 800),
        (0, 128_000, 0),
    ],
)
def test_zs49_to_zs55_the_cap_is_the_share_between_minimum_and_hard_cap(hard: int, window: int, cap: int) -> None:
    assert result_cap(hard, window, share=0.22, minimum=1_200) == cap


@pytest.mark.parametrize("window", [1_000, 8_192, 32_000, 128_000, 1_000_000])
def test_zs53_a_result_of_200_000_characters_stays_under_the_cap_of_any_model(window: int) -> None:
    cap = result_cap(40_000, window, share=0.22, minimum=1_200)

    assert len(cut("x" * 200_000, cap)) <= cap <= 40_000


@pytest.mark.parametrize(
    ("length", "cap", "shown"),
    [
        (10, 10, "x" * 10),
        (0, 0, ""),
        (2_000, 100, "x" * 48 + "\n[cut: 2,000 characters in all, the first 48 shown]"),
        (20, 10, "x" * 10),
    ],
)
def test_zs56_the_model_reads_that_and_how_much_was_cut(length: int, cap: int, shown: str) -> None:
    assert cut("x" * length, cap) == shown


@given(st.text(max_size=400), st.integers(0, 300))
def test_a_cut_is_the_beginning_and_within_the_cap(result: str, cap: int) -> None:
    shown = cut(result, cap)

    assert len(shown) <= max(cap, 0)
    assert result.startswith(shown.rsplit("\n[cut: ", 1)[0])
    assert (shown == result) is (len(result) <= cap)
