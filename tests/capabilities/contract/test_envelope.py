"""Envelopes: layer by layer, a layer that says nothing changes nothing, and what is stored is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.envelope import NO_OVERRIDES, Envelope, Overrides, overrides_from

OVERRIDES = st.builds(
    Overrides,
    st.none() | st.floats(0.1, 3_600, allow_nan=False),
    st.none() | st.integers(0, 10**6),
    st.sampled_from([(), (("ask", "always"),), (("readability", False), ("safe_bins", ("ls", "cat")))]),
)
TOOLS_OWN = Envelope("never", 20.0, 40_000)


@pytest.mark.parametrize(
    ("overrides", "merged"),
    [
        (NO_OVERRIDES, TOOLS_OWN),
        (Overrides(timeout=5.0), Envelope("never", 5.0, 40_000)),
        (Overrides(max_result_chars=0), Envelope("never", 20.0, 0)),
        (Overrides(5.0, 900), Envelope("never", 5.0, 900)),
        (Overrides(more=(("safe_bins", ("ls",)),)), Envelope("never", 20.0, 40_000, safe_bins=("ls",))),
    ],
)
def test_what_a_layer_says_counts_and_the_rest_stays(overrides: Overrides, merged: Envelope) -> None:
    assert TOOLS_OWN.merged(overrides) == merged
    assert Envelope("never", 20.0, 40_000) == TOOLS_OWN


@given(OVERRIDES, OVERRIDES)
def test_layers_merge_one_after_the_other(first: Overrides, second: Overrides) -> None:
    both = overrides_from(first.values | second.values)

    assert TOOLS_OWN.merged(first).merged(second) == TOOLS_OWN.merged(both)
    assert TOOLS_OWN.merged(first).merged(first) == TOOLS_OWN.merged(first)


@given(OVERRIDES)
def test_what_is_stored_is_read_again(overrides: Overrides) -> None:
    assert overrides_from(json.loads(json.dumps(overrides.values))) == overrides


@pytest.mark.parametrize(
    ("stored", "overrides"),
    [
        (None, NO_OVERRIDES),
        ({}, NO_OVERRIDES),
        ([5.0, None], Overrides(timeout=5.0)),  # as an earlier release wrote them
        ([None, 900], Overrides(max_result_chars=900)),
        ({"timeout": 5.0, "of_a_later_release": 1}, Overrides(timeout=5.0)),
        ({"timeout": "5", "max_result_chars": [1], "ask": "offf", "security": None}, NO_OVERRIDES),
        ({"yield_ms": 5, "ask": "always"}, Overrides(more=(("ask", "always"), ("yield_ms", 1_000)))),
    ],
)
def test_every_stored_form_is_known(stored: Any, overrides: Overrides) -> None:
    assert overrides_from(stored) == overrides


@pytest.mark.parametrize(("on_crash", "may"), [("never", False), ("retry", True), ("retry_with_key", True)])
def test_only_a_call_that_is_never_repeated_may_not(on_crash: str, may: bool) -> None:
    assert Envelope(on_crash, 1.0, 1).may_repeat is may
