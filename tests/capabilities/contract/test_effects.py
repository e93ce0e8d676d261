from __future__ import annotations

import pytest

from capabilities.contract.effects import effect_of_name, effect_of_request


@pytest.mark.parametrize(
    ("method", "texts", "effect", "destructive"),
    [
        ("GET", ("/pets", "listPets", "List pets"), "read", False),
        ("HEAD", ("/pets",), "read", False),
        ("GET", ("/cookies/delete",), "external", True),
        ("GET", ("/x", "sendMail"), "external", False),
        ("GET", ("/x", "x", "Cancels nothing: the word stands in no list"), "read", False),
        ("POST", ("/pets",), "external", False),
        ("POST", ("/pets/purge",), "external", True),
        ("PUT", ("/pets",), "external", False),
        ("DELETE", ("/pets",), "external", True),
        ("delete", ("/pets",), "external", True),
    ],
)
def test_a_request_is_guessed_by_its_method_and_its_words(
    method: str, texts: tuple[str, ...], effect: str, destructive: bool
) -> None:
    guess = effect_of_request(method, *texts)

    assert (guess.effect, guess.is_destructive) == (effect, destructive)


def test_why_a_get_is_not_taken_for_reading_is_said() -> None:
    guess = effect_of_request("GET", "/cookies/delete")

    assert guess.why == "It is a GET, which should only read, but its words speak of more: delete."


@pytest.mark.parametrize(
    ("name", "effect", "destructive"),
    [
        ("list_issues", "read", False),
        ("getIssue", "read", False),
        ("git_log", "read", False),
        ("create_issue", "external", False),
        ("read_and_delete", "external", True),
        ("get_and_send", "external", False),
        ("delete_file", "external", True),
        ("frobnicate", "external", False),
        ("", "external", False),
    ],
)
def test_a_tool_is_guessed_by_its_name(name: str, effect: str, destructive: bool) -> None:
    guess = effect_of_name(name)

    assert (guess.effect, guess.is_destructive) == (effect, destructive)
