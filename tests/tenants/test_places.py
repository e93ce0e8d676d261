"""Where a list goes on: written by us alone, read back as it was, and telling nothing."""

from __future__ import annotations

import base64

import pytest
from django.test import override_settings

from toolhub.tenants.rows.cursors import opened_place, sealed_place


def test_a_place_comes_back_as_it_was() -> None:
    numbers, texts, rows = [0, 7, 2**62, -1], ["", "web_search", "é" * 64], [[], ["2026-01-01", "\U0001f600" * 200]]

    assert [opened_place(sealed_place(each), int) for each in numbers] == numbers
    assert [opened_place(sealed_place(each), str) for each in texts] == texts
    assert [opened_place(sealed_place(each), list) for each in rows] == rows


def test_nobody_reads_the_key_in_it() -> None:
    text = sealed_place(4711)

    assert b"4711" not in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert sealed_place(4711) != text


@pytest.mark.parametrize("text", ["", "x", "4711", "NDcxMQ", "é", "\x00", "a" * 100_000])
def test_a_cursor_that_was_not_sealed_here_is_invalid(text: str) -> None:
    assert opened_place(text, int) is None


def test_a_part_of_a_place_is_none() -> None:
    assert opened_place(sealed_place(1)[:-2], int) is None


def test_a_place_is_of_one_kind() -> None:
    assert (opened_place(sealed_place("7"), int), opened_place(sealed_place(7), str)) == (None, None)


def test_another_secret_key_reads_it_as_none() -> None:
    text = sealed_place(7)

    with override_settings(SECRET_KEY="another" * 10):
        assert opened_place(text, int) is None
