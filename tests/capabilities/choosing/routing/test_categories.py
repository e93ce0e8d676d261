"""Categories of a message, best first: keywords decide, other words help, and a general one answers the rest."""

from __future__ import annotations

import pytest

from capabilities.choosing.routing.categories import category_index, rank_categories
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.keywords import Keywords
from tests.vectors import with_vectors

KEYWORDS = Keywords.of(
    {
        "web": ["search", "what is", "weather"],
        "git": ["git", "commit", "repository"],
        "reminders": ["remind", "reminder", "don't forget"],
        "ha": ["light", "thermostat", "turn off", "kitchen"],
        "notifications": ["email", "send email"],
    }
)
INDEX = category_index(KEYWORDS, [Document("email_send", "Send an e-mail", category="notifications")])


def names(message: str) -> list[str]:
    return [each.name for each in rank_categories(INDEX, KEYWORDS, message)]


@pytest.mark.parametrize(
    ("message", "first"),
    [
        ("turn off the kitchen lights", "ha"),
        ("show the commits of the repository", "git"),
        ("remind me at five", "reminders"),
    ],
)
def test_the_category_of_a_keyword_is_first(message: str, first: str) -> None:
    assert names(message)[0] == first


def test_a_word_near_to_a_keyword_finds_its_category_too() -> None:
    assert "ha" in names("switch the lamp in the bathroom on")


@with_vectors
def test_what_no_category_knows_goes_to_the_one_that_searches_in_general() -> None:
    assert "web" in names("how much is a flight to Lisbon")


@pytest.mark.parametrize("message", ["hello", "who are you", "thanks a lot", "tell me a joke", ""])
def test_cx_14_small_talk_has_no_category(message: str) -> None:
    assert names(message) == []


def test_matched_phrases_are_told_and_the_limit_holds() -> None:
    found = rank_categories(INDEX, KEYWORDS, "turn off the light", 1)

    assert [(each.name, each.matched) for each in found] == [("ha", ("light", "turn off"))]


def test_no_categories_rank_to_nothing() -> None:
    assert rank_categories(category_index(Keywords()), Keywords(), "turn off the light") == ()
