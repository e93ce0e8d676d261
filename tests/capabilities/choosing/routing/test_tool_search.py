"""What words find, best first, and the scores of MR-39, without a database."""

from __future__ import annotations

import pytest

from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import build_index
from capabilities.choosing.routing.tool_search import Searched, names_found, score_of, words_of
from tests.vectors import with_vectors

READ = Searched("file_read", "files", "Read a text of the workspace.", "file")
NOUNS = ("page", "ticket", "board", "user", "sprint", "comment", "label", "branch", "invoice", "order")
VERBS = ("list", "get", "create", "update", "delete", "search", "archive", "export", "assign", "close")
SYSTEMS = ("jira", "github", "gitlab", "asana", "linear", "trello", "shop", "crm", "wiki", "mail")
#: A thousand tools, of which one is meant.
THOUSAND = build_index(
    [
        Document(f"{system}_{verb}_{noun}", f"{verb.title()} a {noun} of {system.title()}.", toolkit=system)
        for system in SYSTEMS
        for verb in VERBS
        for noun in NOUNS
    ]
    + [
        Document("jira_create_issue", "Create a new issue in a Jira project.", "project summary", "Jira"),
        Document("issue_stamp", "Print a stamp; no issue of Jira is read or written."),
        Document("changelog", "Writes what changed since the last release."),
    ]
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("jira issue", "jira_create_issue"),
        ("issue jira", "jira_create_issue"),
        ("jira iss", "jira_create_issue"),
        ("create issues in jira", "jira_create_issue"),
        ("jira_create_issue", "jira_create_issue"),
        ("Jira Create Issue", "jira_create_issue"),
        ("changelog", "changelog"),
        ("ngelo", "changelog"),
        ("closing gitlab tickets", "gitlab_close_ticket"),
    ],
)
def test_the_best_of_a_thousand_tools_is_first(query: str, first: str) -> None:
    assert names_found(THOUSAND, query)[0] == first


@pytest.mark.parametrize("query", ["", "   ", "%", "zzz", "\x00", "\ud800"])
def test_what_no_tool_holds_finds_nothing(query: str) -> None:
    assert names_found(THOUSAND, query) == []


def test_a_name_is_found_before_all_that_only_hold_its_words() -> None:
    index = build_index([Document("read", "file_read file read " * 5, toolkit="file_read"), Document("file_read")])

    assert names_found(index, "file_read") == ["file_read"]
    assert names_found(index, "file_read", near=True) == ["file_read", "read"]
    assert names_found(index, "file read") == ["file_read", "read"]


def test_a_part_of_a_name_finds_the_names_that_hold_it() -> None:
    assert names_found(THOUSAND, "create_iss") == ["jira_create_issue"]
    assert sorted(names_found(THOUSAND, "wiki_LIST"))[:2] == ["wiki_list_board", "wiki_list_branch"]
    assert names_found(THOUSAND, "e-ticket")[0].endswith("_ticket"), "no name holds it: its words are looked for"


def test_what_has_every_word_in_its_name_comes_before_what_has_one() -> None:
    index = build_index(
        [
            Document("issue", "Print an issue."),
            Document("jira_close_issue", "close in the tracker."),
            Document("jira_search", "search in the tracker."),
            Document("changelog", "Writes of a jira issue."),
        ]
    )

    assert names_found(index, "jira issue")[0] == "jira_close_issue"
    assert names_found(index, "jira iss")[0] == "jira_close_issue"
    assert names_found(index, "issues of jira")[0] == "jira_close_issue"


def test_each_tool_is_found_once_however_it_is_found() -> None:
    found = names_found(THOUSAND, "jira")

    assert len(found) == len(set(found)) >= 100
    assert set(found[:100]) <= {name for name in THOUSAND.numbers if name.startswith("jira_")}


def test_a_very_long_query_is_read_in_part() -> None:
    assert names_found(THOUSAND, "jira issue " + "x" * 100_000)[0] == "jira_create_issue"


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
        ("a text", 40),
        ("reading", 10),
        ("rea", 10),
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


def test_what_ranks_far_below_the_best_is_left_out() -> None:
    found = names_found(THOUSAND, "jira issue")

    assert "shop_list_invoice" not in found
    assert len(found) < len(THOUSAND) / 2


@with_vectors
def test_a_word_that_no_tool_has_finds_what_is_near_in_meaning_for_models_alone() -> None:
    assert names_found(THOUSAND, "bookmark") == []
    assert len(names_found(THOUSAND, "bookmark", near=True)) > 0
