from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.common.visible import Part, in_reading_order, is_unseen, unseen_count, visible_parts


@pytest.mark.parametrize(
    ("character", "escape", "name"),
    [
        ("\u202e", "\\u202E", "RIGHT-TO-LEFT OVERRIDE"),
        ("\u2066", "\\u2066", "LEFT-TO-RIGHT ISOLATE"),
        ("\u200b", "\\u200B", "ZERO WIDTH SPACE"),
        ("\u200f", "\\u200F", "RIGHT-TO-LEFT MARK"),
        ("\ufeff", "\\uFEFF", "ZERO WIDTH NO-BREAK SPACE"),
        ("\u00ad", "\\u00AD", "SOFT HYPHEN"),
        ("\u00a0", "\\u00A0", "NO-BREAK SPACE"),
        ("\u2028", "\\u2028", "LINE SEPARATOR"),
        ("\u3164", "\\u3164", "HANGUL FILLER"),
        ("\u2800", "\\u2800", "BRAILLE PATTERN BLANK"),
        ("\ufe0f", "\\uFE0F", "VARIATION SELECTOR-16"),
        ("\U000e0041", "\\U000E0041", "TAG LATIN CAPITAL LETTER A"),
        ("\U000e0100", "\\U000E0100", "VARIATION SELECTOR-17"),
        ("\ue000", "\\uE000", "CHARACTER WITHOUT A NAME"),
        ("\r", "\\u000D", "CONTROL CHARACTER"),
        ("\x1b", "\\u001B", "CONTROL CHARACTER"),
    ],
)
def test_what_cannot_be_seen_stands_there_as_its_escape_and_name(character: str, escape: str, name: str) -> None:
    assert list(visible_parts(f"pay {character}100")) == [Part("pay "), Part(escape, name), Part("100")]


@pytest.mark.parametrize(
    "text", ["", "plain", "two\nlines\tand a tab", "Grüße", "日本語", "שלום", "🎉", "á", "a\u0301"]
)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert "".join(part.text for part in visible_parts(text)) == text
    assert unseen_count(text) == 0


def test_tags_that_spell_an_order_are_all_counted() -> None:
    hidden = "".join(chr(0xE0000 + ord(each)) for each in "ignore that")

    assert unseen_count(f"Hello{hidden}") == 11


@given(st.text())
def test_no_character_is_lost_and_none_that_is_left_is_unseen(text: str) -> None:
    parts = list(visible_parts(text))

    read = "".join(chr(int(part.text[2:], 16)) if part.name else part.text for part in parts)
    assert read == text
    assert not any(is_unseen(each) for part in parts for each in part.text)


def test_a_line_is_shown_in_the_order_in_which_it_is_written() -> None:
    assert in_reading_order("Asking: \u202epay\u2066 nobody\u061c\u200f.") == "Asking: pay nobody."
    assert in_reading_order("\u2764\ufe0f שלום") == "\u2764\ufe0f שלום"
