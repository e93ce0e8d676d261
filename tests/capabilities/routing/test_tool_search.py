"""The scores of MR-39, without a database."""

from __future__ import annotations

import pytest

from capabilities.routing.tool_search import Found, Searched, score_of, search, words_of

READ = Searched("file_read", "files", "Read a text of the workspace.", "file")
FETCH = Searched("web_read", "web", "Fetch the text of a page.", "web")
SENT = Searched("email_send", "mail", "Send a letter.", "communication")


@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("file_read", 100),
        ("FILE_READ", 100),
        ("  file_read ", 100),
        ("file", 80),
        ("read", 80),
        ("files", 60),
        ("workspace", 40),
        ("Workspace!", 40),
        ("file workspace", 80),
        ("file file", 80),
        ("a text", 40),
        ("mail", 0),
        ("rea", 0),
        ("", 0),
        ("_-!", 0),
    ],
)
def test_mr_39_the_best_place_of_any_word_counts(query: str, score: int) -> None:
    assert score_of(query, READ) == score


@pytest.mark.parametrize(
    ("query", "score"), [("uuid", 100), ("title", 60), ("makes", 40), ("utility", 20), ("utility makes", 40)]
)
def test_mr_39_the_scores_are_100_80_60_40_and_20(query: str, score: int) -> None:
    assert score_of(query, Searched("uuid", "title", "Makes one.", "utility")) == score
    assert score_of("part", Searched("part_one", "", "", "")) == 80


def test_mr_39_a_query_that_is_the_name_beats_any_that_only_holds_its_words() -> None:
    long = Searched("read", "file_read", "file_read file read", "file")

    assert [each.name for each in search("file_read", [long, READ], 5)] == ["file_read", "read"]


def test_mr_39_the_best_match_is_first_then_what_more_words_name_then_the_name() -> None:
    assert search("read text", [FETCH, SENT, READ], 5) == [Found("file_read", 80), Found("web_read", 80)]
    assert search("web text", [READ, FETCH], 5) == [Found("web_read", 80), Found("file_read", 40)]
    issues = [Searched(f"jira_{verb}_issue", "", "", "") for verb in ("create", "delete")]
    others = [Searched("jira_search", "", "", ""), Searched("create_page", "", "", "")]
    assert [each.name for each in search("create jira issue", [*others, *issues], 5)] == [
        "jira_create_issue",
        "jira_delete_issue",
        "create_page",
        "jira_search",
    ]


def test_mr_39_no_more_than_asked_for() -> None:
    tools = [Searched(f"part_{number:02}", "", "", "") for number in range(30)]

    assert [each.name for each in search("part", tools, 3)] == ["part_00", "part_01", "part_02"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file_read", ["file", "read"]),
        ("fileRead", ["file", "read"]),
        ("kg-add.entity2", ["kg", "add", "entity2"]),
        ("Größe ÄNDERN", ["grösse", "ändern"]),
        ("", []),
    ],
)
def test_names_are_parted_into_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words
