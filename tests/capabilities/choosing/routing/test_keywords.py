"""Keywords of categories: whole words, any inflection, both spellings, no accidents inside of words."""

from __future__ import annotations

import pytest

from capabilities.choosing.routing.keywords import Keywords

KEYWORDS = Keywords.of(
    {
        "web": ["search", "look up", "what is", "weather"],
        "file": ["read file", "list file", "directory", "diff"],
        "git": ["git", "commit", "branch", "pulled", "merge"],
        "system": ["status", "logs", "health", "run command"],
        "tasks": ["task", "todo", "to-do", "what's on my list"],
        "reminders": ["remind", "don't forget"],
        "ha": ["light", "turn off", "kitchen"],
        "aether": ["journal", "search journals", "ae_"],
        "aether_db": ["db", "table", "query"],
        "ae_tasks": ["board", "ae task"],
    }
)


def categories(text: str) -> list[str]:
    return [category for category, _ in KEYWORDS.matches(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Here is my feedback on the draft.",
        "I like digital art.",
        "Multitasking makes me tired.",
        "That was the highlight of my day.",
        "A tomato is no vegetable.",
        "My keyboard is old.",
        "How do I establish a healthy habit?",
        "Such emotional commitment!",
        "goodbye",
        "Reforms are hard.",
    ],
)
def test_cx_24_words_that_only_hold_a_keyword_match_nothing(text: str) -> None:
    assert KEYWORDS.matches(text) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Show me the commits", ["git"]),
        ("show me the latest commit", ["git"]),
        ("we merged it yesterday", ["git"]),
        ("I pull from upstream", ["git"]),
        ("list files in my home", ["file"]),
        ("please list file names", ["file"]),
        ("list the files", []),
        ("TURN OFF KITCHEN LIGHTS", ["ha"]),
        ("Check the log", ["system"]),
        ("run commands for me", ["system"]),
        ("add it to my to-do list", ["tasks"]),
        ("What’s on my list?", ["tasks"]),
        ("don't forget the milk", ["reminders"]),
        ("query the tables of the DB", ["aether_db"]),
    ],
)
def test_cx_24_both_spellings_and_inflections_match(text: str, expected: list[str]) -> None:
    assert categories(text) == expected


def test_cx_16_the_case_of_letters_does_not_matter() -> None:
    assert KEYWORDS.matches("WEATHER") == KEYWORDS.matches("weather") == (("web", ("weather",)),)


def test_cx_18_cx_21_every_matched_category_is_named_with_all_its_phrases() -> None:
    assert KEYWORDS.matches("search journals for the branch") == (
        ("web", ("search",)),
        ("git", ("branch",)),
        ("aether", ("journal", "search journals")),
    )


@pytest.mark.parametrize("text", ["good morning", "test", "what do you think?", "Hey can you check something", ""])
def test_cx_14_cx_20_small_talk_names_no_category(text: str) -> None:
    assert KEYWORDS.matches(text) == ()


def test_keywords_of_other_languages_match_their_own_inflections() -> None:
    keywords = Keywords.of({"licht": ["lampe"], "notas": ["nota"]}, languages=("english", "german", "spanish"))

    assert [category for category, _ in keywords.matches("Schalte die Lampen aus")] == ["licht"]
    assert [category for category, _ in keywords.matches("enséñame mis notas")] == ["notas"]


def test_an_empty_keyword_matches_nothing() -> None:
    assert Keywords.of({"a": ["", "  ", "-", "?"]}).matches("anything - at all?") == ()


def test_equal_lists_are_equal_values() -> None:
    assert Keywords.of({"a": ["b", "b", "c"]}) == Keywords.of({"a": ("b", "c")})
