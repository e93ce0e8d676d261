from __future__ import annotations

from typing import Any

import pytest

from capabilities.contract.effects import BY_SOURCE, SERVER_SAYS, guess_effect


@pytest.mark.parametrize(
    ("method", "path", "name", "effect", "destructive"),
    [
        ("GET", "/pets", "listPets", "read", False),
        ("HEAD", "/pets", "", "read", False),
        ("GET", "/cookies/delete", "", "external", True),
        ("GET", "/x", "sendMail", "external", False),
        ("GET", "/orders/{id}", "acme_order", "read", False),
        ("GET", "/pulls/merge", "pulls/check-if-merged", "read", False),
        ("POST", "/pets", "", "external", False),
        ("POST", "/pets", "search_pets", "external", False),
        ("POST", "/pets/purge", "", "external", True),
        ("PUT", "/pets", "", "external", False),
        ("DELETE", "/pets", "", "external", True),
        ("delete", "/pets", "", "external", True),
    ],
)
def test_a_request_is_guessed_by_its_method_and_its_words(
    method: str, path: str, name: str, effect: str, destructive: bool
) -> None:
    guess = guess_effect(name, path=path, method=method)

    assert (guess.effect, guess.is_destructive) == (effect, destructive)


def test_why_a_get_is_not_taken_for_reading_is_given() -> None:
    assert "delete" in guess_effect("", path="/cookies/delete", method="GET").why


@pytest.mark.parametrize(
    "name",
    [
        "list_issues", "getIssue", "git_log", "acme_get_order", "acme-getOrder", "ACME_GET_ORDER",
        "crm.contacts.search", "monitor_list", "get_comment", "shop_find_copy", "crm_v2_get_post",
        "listPullRequestComments",
    ],
)  # fmt: skip
def test_a_verb_that_reads_counts_anywhere_in_a_name(name: str) -> None:
    guess = guess_effect(name)

    assert (guess.effect, guess.is_destructive) == ("read", False)


@pytest.mark.parametrize(
    "name",
    [
        "create_issue", "get_and_send", "acme_get_or_create_order", "search_and_replace", "mark_as_read",
        "todo_list_mark",
        "acme_order_get_and_pay", "issue_search_update", "updates_list", "sendmail", "set_last_read", "fetch_then_post",
        "order_list", "saved_search_run", "monitor_run", "reorder_list", "frobnicate", "",
    ],
)  # fmt: skip
def test_a_verb_that_writes_wins_over_one_that_reads(name: str) -> None:
    guess = guess_effect(name)

    assert (guess.effect, guess.is_destructive) == ("external", False)


@pytest.mark.parametrize("name", ["delete_file", "read_and_delete", "get_purge", "deletefile", "wiping_get"])
def test_a_verb_that_destroys_wins_over_all(name: str) -> None:
    guess = guess_effect(name, hints={"readOnlyHint": True})

    assert (guess.effect, guess.is_destructive) == ("external", True)
    assert guess.why


@pytest.mark.parametrize(
    ("name", "description"),
    [("render_chart", ""), ("open_nodes", "Opens nodes"), ("日本語ツール", ""), ("acme_weather", "Gives the weather")],
)
def test_a_server_that_says_reading_counts_where_nothing_contradicts_it(name: str, description: str) -> None:
    guess = guess_effect(name, description=description, hints={"readOnlyHint": True})

    assert (guess.effect, guess.by, guess.why) == ("read", BY_SOURCE, SERVER_SAYS)


@pytest.mark.parametrize(
    ("name", "title", "description"),
    [
        ("create_chart", "", ""),
        ("acme_order", "Cancel an order", ""),
        ("housekeeping", "", "Deletes what is old."),
        ("acme_post_message", "", ""),
        ("mailbox", "", "Sends a mail"),
    ],
)
def test_words_contradict_a_server_that_says_reading(name: str, title: str, description: str) -> None:
    guess = guess_effect(name, title=title, description=description, hints={"readOnlyHint": True})

    assert guess.effect == "external"
    assert "does not count" in guess.why


@pytest.mark.parametrize("hint", [True, "true", 1])
@pytest.mark.parametrize("name", ["get_order", "frobnicate"])
def test_a_server_that_says_destroying_always_counts(name: str, hint: Any) -> None:
    guess = guess_effect(name, hints={"readOnlyHint": True, "destructiveHint": hint})

    assert (guess.effect, guess.is_destructive) == ("external", True)


@pytest.mark.parametrize("hint", [False, "true", 1, "yes"])
def test_only_a_plain_true_makes_a_tool_one_that_reads(hint: Any) -> None:
    assert guess_effect("get_order", hints={"readOnlyHint": hint}).effect == "external"
