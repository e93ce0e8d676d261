"""The router's one entry: a part of what is allowed, in a stable order."""

from __future__ import annotations

from capabilities.routing.documents import Document
from capabilities.routing.index import build_index
from capabilities.routing.keywords import Keywords
from capabilities.routing.requests import Context, Route, RouteRequest
from capabilities.routing.router import rank_names, route

INDEX = build_index(
    [
        Document("jira_create_issue", "Create an issue in Jira", "project summary", "jira", "jira"),
        Document("jira_search", "Search issues with JQL", "jql", "jira", "jira"),
        Document("email_send", "Send an e-mail to people", "to subject body", "mail", "notifications"),
        Document("git_log", "Show the latest commits", "repository limit", "git", "git"),
    ]
)
NAMES = tuple(document.name for document in INDEX.documents)
KEYWORDS = Keywords.of({"git": ["git", "commit"], "notifications": ["email", "send email"]})


def ask(message: str, **fields: object) -> Route:
    values = {"allowed": NAMES, "keywords": KEYWORDS} | fields
    return route(INDEX, RouteRequest(message, **values))  # type: ignore[arg-type]


def test_cx_15_only_allowed_tools_are_kept_however_well_another_ranks() -> None:
    found = ask("Create an issue in Jira", allowed=("git_log", "jira_search"))

    assert found.names[0] == "jira_search"
    assert set(found.names) <= {"git_log", "jira_search"}


def test_cx_18_the_categories_of_several_keywords_are_united_in_keywords_mode() -> None:
    found = ask("Email me the commits", mode="keywords")

    assert found.categories == (("git", ("commit",)), ("notifications", ("email",)))
    assert found.names == ("email_send", "git_log")


def test_cx_14_no_keyword_sends_no_tools_in_keywords_mode() -> None:
    found = ask("Create an issue in Jira", mode="keywords")

    assert (found.names, found.is_empty) == ((), True)


def test_cx_26_a_follow_up_keeps_what_was_sent_for_the_last_turn() -> None:
    for mode in ("keywords", "hybrid"):
        found = ask("yes, go ahead", mode=mode, context=Context(sent_before=("git_log", "jira_search", "gone")))

        assert (found.names, found.is_follow_up, found.is_empty) == (("git_log", "jira_search"), True, False)


def test_what_was_sent_before_stays_first_in_its_old_order() -> None:
    context = Context(sent_before=("git_log", "email_send", "jira_search"))

    found = ask("Search Jira issues, then send the commits", context=context)

    assert found.names[:3] == ("git_log", "email_send", "jira_search")


def test_what_is_pinned_goes_whatever_the_message_says() -> None:
    assert ask("good morning", pinned=("git_log",)).names == ("git_log",)


def test_a_search_box_finds_by_words_and_by_the_beginning_of_the_last() -> None:
    assert rank_names(INDEX, "jira issue", 5)[0][0] == "jira_create_issue"
    assert [name for name, _ in rank_names(INDEX, "ema", 5)] == ["email_send"]
