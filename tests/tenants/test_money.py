from __future__ import annotations

import pytest

from toolhub.tenants.rows.money import dollars, nano_of, rounded_dollars


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("12", 12_000_000_000),
        ("12.50", 12_500_000_000),
        (" 0.000000001 ", 1),
        ("0", 0),
        ("1.5000000000", 1_500_000_000),
    ],
)
def test_a_text_is_read_as_billionths(text: str, nano: int) -> None:
    assert nano_of(text) == nano


@pytest.mark.parametrize(
    "text", ["", "-1", "1,50", "1e3", "NaN", "$5", "1.", ".5", "1234567890", "\u0663", "1.0000000001"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Give "):
        nano_of(text)


@pytest.mark.parametrize(
    ("nano", "exact", "rounded"),
    [
        (0, "0.00", "$0.00"),
        (12_500_000_000, "12.50", "$12.50"),
        (270_000, "0.00027", "$0.00027"),
        (2_718_281, "0.002718281", "$0.0027"),
        (1, "0.000000001", "$0.000000001"),
        (-1_000_000_000, "-1.00", "-$1.00"),
        (150_000_000, "0.15", "$0.15"),
        (123_456_000_000_000, "123456.00", "$123,456.00"),
    ],
)
def test_an_amount_is_exact_for_programs_and_rounded_on_pages(nano: int, exact: str, rounded: str) -> None:
    assert (dollars(nano), rounded_dollars(nano)) == (exact, rounded)
    assert nano < 0 or nano_of(dollars(nano)) == nano
