"""The router's one entry: a part of what is allowed, in a stable order, within a budget; nothing for small talk."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capabilities.choosing.routing import embedding, ranking
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import Index, build_index
from capabilities.choosing.routing.keywords import Keywords
from capabilities.choosing.routing.requests import Context, Route, RouteRequest
from capabilities.choosing.routing.router import rank_names, route
from tests.vectors import with_vectors

TOOLS = [
    Document("jira_create_issue", "Create an issue in a Jira project", "project summary", "jira", "jira"),
    Document("jira_search", "Search issues with JQL", "jql", "jira", "jira"),
    Document("jira_add_comment", "Add a comment to an issue", "issue text", "jira", "jira"),
    Document("email_send", "Send an e-mail to people", "to subject body", "mail", "notifications"),
    Document("git_log", "Show the latest commits of a repository", "repository limit", "git", "git"),
    Document("weather_forecast", "Get the weather forecast of a city", "city days", "weather", "web"),
    Document("currency_convert", "Convert an amount of money to another currency", "amount from to", "money", "web"),
    Document("music_play", "Play a song or an artist", "title artist", "music", "music"),
    Document(
        "calendar_add_event", "Put a meeting or an appointment on the calendar", "title date", "calendar", "calendar"
    ),
    Document("file_delete", "Remove a file from the disk", "path", "files", "file"),
]
INDEX = build_index(TOOLS)
BY_WORDS_ALONE = build_index(TOOLS, embedding=False)
NAMES = tuple(document.name for document in INDEX.documents)
KEYWORDS = Keywords.of({"git": ["git", "commit"], "notifications": ["email", "send email"], "calendar": ["remember"]})


def ask(message: str, index: Index = INDEX, **fields: object) -> Route:
    values = {"allowed": NAMES, "keywords": KEYWORDS} | fields
    return route(index, RouteRequest(message, **values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "best"),
    [
        ("Create a Jira issue for this bug", "jira_create_issue"),
        pytest.param("how many dollars are 20 euros", "currency_convert", marks=with_vectors),
        pytest.param("will it rain in Berlin tomorrow?", "weather_forecast", marks=with_vectors),
        pytest.param("erase the old document", "file_delete", marks=with_vectors),
        ("schedule an appointment with the doctor", "calendar_add_event"),
        ("show me the commits", "git_log"),
    ],
)
def test_the_tool_that_is_meant_ranks_first_even_by_other_words(message: str, best: str) -> None:
    assert ask(message).ranked[0][0] == best


def test_an_earlier_text_that_is_near_to_no_tool_outweighs_nothing() -> None:
    """After "yes, do it", one tool had a cosine of 0.0001, and all others large figures below 0."""
    nothing = np.zeros((1, 3), dtype=np.float32)
    cosine = np.array([[0.0001, -0.1, -0.05]], dtype=np.float32)

    scores = ranking.Fields(nothing, cosine, nothing, nothing).scores(None)

    assert float(np.abs(scores).max()) <= float(ranking.SEMANTIC)


def test_cx_13_cx_15_only_allowed_tools_are_kept_however_well_another_ranks() -> None:
    found = ask("Create an issue in Jira", allowed=("git_log", "jira_search"))

    assert found.names[0] == "jira_search"
    assert {name for name, _ in found.ranked} | set(found.names) <= {"git_log", "jira_search"}


def test_cx_12_cx_22_a_message_about_one_thing_sends_few_tools() -> None:
    assert len(ask("Play a song of Nina Simone", budget_tokens=400).names) <= 4


def test_cx_18_the_categories_of_several_keywords_are_united_in_keywords_mode() -> None:
    found = ask("Email me the commits", mode="keywords")

    assert found.categories == (("git", ("commit",)), ("notifications", ("email",)))
    assert found.names == ("email_send", "git_log")


def test_cx_14_cx_19_no_keyword_sends_no_tools_in_keywords_mode() -> None:
    found = ask("Create an issue in Jira", mode="keywords")

    assert (found.names, found.is_empty, found.dropped) == ((), True, len(NAMES))


def test_keywords_never_empty_the_set_in_hybrid_mode() -> None:
    found = ask("Send me the commits of the repository by email and play a song")

    assert {"git_log", "email_send", "music_play"} <= set(found.names)


@pytest.mark.parametrize("index", [INDEX, BY_WORDS_ALONE])
@pytest.mark.parametrize(
    "message",
    [
        "good morning",
        "test",
        "what do you think?",
        "Hey can you check something",
        "thanks, that was great!",
        "Hello",
        "who made you?",
        "wie geht es dir?",
        "¿cómo estás?",
        "tu es un robot ?",
        "do you have a favourite colour",
    ],
)
def test_cx_14_cx_20_small_talk_sends_no_tools(message: str, index: Index) -> None:
    found = ask(message, index)

    assert (found.names, found.is_empty) == ((), True)


@pytest.mark.parametrize("word", ["feedback", "digital", "multitasking", "highlight", "vegetable", "keyboard"])
def test_cx_24_a_word_that_only_holds_a_keyword_names_no_category(word: str) -> None:
    keywords = Keywords.of({"db": ["db"], "git": ["git"], "tasks": ["task"], "ha": ["light"], "ae_tasks": ["board"]})

    assert ask(f"That was a {word}.", keywords=keywords).categories == ()


@pytest.mark.parametrize("mode", ["keywords", "hybrid"])
@pytest.mark.parametrize(
    "message", ["yes, go ahead", "do it", "ok", "and the second one?", "Ja, bitte", "sí, adelante"]
)
def test_cx_26_a_follow_up_keeps_what_was_sent_for_the_last_turn(message: str, mode: str) -> None:
    found = ask(message, mode=mode, context=Context(sent_before=("git_log", "jira_search", "gone")))

    assert (found.names, found.is_follow_up, found.is_empty) == (("git_log", "jira_search"), True, False)


def test_cx_26_a_follow_up_after_nothing_keeps_nothing() -> None:
    found = ask("yes, go ahead")

    assert (found.names, found.is_follow_up) == ((), False)


@pytest.mark.parametrize(
    ("asked", "is_empty"),
    [
        ("Which city do you mean?", False),
        ("Please provide the name of the city.", False),
        ("I sent it. Is there anything else I can help you with?", True),
        ("I sent it.", True),
    ],
)
def test_an_open_question_of_the_assistant_is_never_answered_without_tools(asked: str, is_empty: bool) -> None:
    context = Context(("What will the weather be?",), asked)

    assert ask("Thank you", context=context).is_empty is is_empty


@with_vectors
def test_an_unfinished_task_keeps_its_tools_whatever_is_said() -> None:
    assert not ask("good morning", context=Context(is_unfinished=True)).is_empty


def test_an_answer_to_a_question_ranks_by_what_was_asked_before() -> None:
    context = Context(("Put an appointment on my calendar",), "On which date shall I put it?")

    assert ask("On the 5th of May", context=context).ranked[0][0] == "calendar_add_event"


def test_each_step_of_a_message_finds_its_tool() -> None:
    found = ask("Convert 20 euros to dollars. Then play a song of Queen and after that delete the file a.txt")

    assert {name for name, _ in found.ranked[:3]} == {"currency_convert", "music_play", "file_delete"}


def test_what_was_sent_before_stays_first_in_its_old_order() -> None:
    context = Context(sent_before=("git_log", "email_send", "jira_search"))

    found = ask("Search the issues of Jira, then send the commits by mail and play a song", context=context)

    old = [name for name in found.names if name in context.sent_before]
    assert old == ["git_log", "email_send", "jira_search"]
    assert found.names[: len(old)] == tuple(old)


def test_what_is_pinned_goes_whatever_the_message_says() -> None:
    found = ask("good morning", pinned=("git_log", "not_allowed"))

    assert [(each.name, each.why) for each in found.kept] == [("git_log", "pinned")]
    assert found.is_empty


def test_a_message_whose_only_tool_is_pinned_is_not_empty() -> None:
    found = ask("show the commits", allowed=("git_log",), pinned=("git_log",))

    assert (found.names, found.is_empty) == (("git_log",), False)


def test_the_budget_holds_always_the_pinned_in_front() -> None:
    tokens = dict.fromkeys(NAMES, 100)
    message = "Search Jira issues, create an issue, add a comment, send an e-mail, show the commits of a repository"

    assert len(ask(message, tokens=tokens, budget_tokens=500).names) == 5
    assert len(ask(message, tokens=tokens, budget_tokens=500, pinned=("music_play", "file_delete")).names) == 5
    assert len(ask(message, tokens=tokens, budget_tokens=150).names) == 1
    assert ask(message, tokens=tokens, budget_tokens=100, pinned=("music_play",)).names == ("music_play",)


def test_one_tool_that_is_larger_than_the_budget_stays_out_and_is_told() -> None:
    tokens = {**dict.fromkeys(NAMES, 100), "jira_add_comment": 29_162}

    found = ask("Add a comment to a Jira issue", tokens=tokens, budget_tokens=500)

    assert found.too_large == ("jira_add_comment",)
    assert "jira_add_comment" not in found.names
    assert found.names
    assert sum(tokens[name] for name in found.names) <= 500


def test_the_rest_of_a_small_toolkit_goes_where_two_of_it_rank_high() -> None:
    found = ask("Create a Jira issue and search Jira issues with JQL", budget_tokens=600)

    assert {"jira_create_issue", "jira_search", "jira_add_comment"} <= set(found.names)


def test_a_name_that_the_index_does_not_have_goes_only_where_it_is_pinned() -> None:
    assert "search_tools" not in ask("show commits", allowed=(*NAMES, "search_tools")).names
    assert "search_tools" in ask("hi", allowed=(*NAMES, "search_tools"), pinned=("search_tools",)).names


def test_without_a_table_of_vectors_words_alone_still_rank() -> None:
    assert ask("Create a Jira issue", BY_WORDS_ALONE).ranked[0][0] == "jira_create_issue"


def test_a_search_box_finds_by_words_and_by_the_beginning_of_the_last() -> None:
    assert rank_names(INDEX, "jira issue", 5)[0][0] == "jira_create_issue"
    assert rank_names(INDEX, "ema", 5)[0][0] == "email_send"
    assert rank_names(INDEX, "git_log", 5)[0][0] == "git_log"
    assert rank_names(INDEX, "", 5) == rank_names(INDEX, "?!", 5) == []
    assert rank_names(INDEX, "issue", 5, allowed=("git_log",)) == []


# -- Whatever the text -------------------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)
SOME_NAMES = st.lists(st.sampled_from([*NAMES, "unknown"]), max_size=12).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    message=ANY_TEXT,
    answer=ANY_TEXT,
    before=SOME_NAMES,
    allowed=SOME_NAMES.map(lambda names: tuple(dict.fromkeys(names))),
    pinned=SOME_NAMES,
    mode=st.sampled_from(["keywords", "hybrid"]),
    budget=st.none() | st.integers(-5, 2_000),
)
@example("\ud800 jira \udfff", "?", ("git_log",), NAMES, (), "hybrid", None)
@example("🦜" * 50 + " delete the file", "", (), NAMES, (), "hybrid", 0)
@example("天気予報を教えて", "", (), NAMES, (), "hybrid", 500)
def test_the_result_is_a_part_of_what_is_allowed_in_the_old_order(
    message: str,
    answer: str,
    before: tuple[str, ...],
    allowed: tuple[str, ...],
    pinned: tuple[str, ...],
    mode: str,
    budget: int | None,
) -> None:
    context = Context((message, answer), answer, before)

    found = ask(message, context=context, allowed=allowed, pinned=pinned, mode=mode, budget_tokens=budget)

    assert set(found.names) <= set(allowed)
    assert {name for name, _ in found.ranked} <= set(allowed)
    assert len(set(found.names)) == len(found.names)
    assert set(pinned) & set(allowed) <= set(found.names)
    old = [name for name in dict.fromkeys(before) if name in found.names]
    assert list(found.names[: len(old)]) == old
    assert found == ask(message, context=context, allowed=allowed, pinned=pinned, mode=mode, budget_tokens=budget)
    assert found.dropped == len(set(allowed)) - len(found.names)


@pytest.mark.parametrize("documents", [[], TOOLS[:1], [Document("")], [Document("x", "\ud800", "\x00")]])
@pytest.mark.parametrize("message", ["", "jira", "good morning", "issue " * 20_000, "x" * 100_000, "a. " * 40_000])
def test_small_catalogues_and_huge_messages_raise_nothing(documents: list[Document], message: str) -> None:
    index = build_index(documents)
    names = tuple(document.name for document in documents)

    found = ask(message, index, allowed=names, context=Context((message,), message))

    assert set(found.names) <= set(names)
    assert {name for name, _ in rank_names(index, message, 5)} <= set(names)


def test_what_is_read_of_a_huge_message_is_bounded() -> None:
    long = "Create an issue in Jira. " * 4_000

    assert ask(long).ranked == ask(long + "Play a song. " * 1_000).ranked


def test_a_request_says_by_itself_what_is_optional() -> None:
    request = RouteRequest("hello", ())

    assert dataclasses.asdict(request.context) == dataclasses.asdict(Context())
    assert route(INDEX, request) == Route((), is_empty=True)


def test_threads_that_route_at_once_answer_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share what is known of words, and it is emptied under their hands."""
    monkeypatch.setattr(ranking, "KEPT_NEAR", 5)
    monkeypatch.setattr(embedding, "KEPT_WORDS", 5)
    messages = [
        f"create an issue in jira about {word}" for word in ["cars", "boats", "trains", "bridges", "roads", "rivers"]
    ] * 30
    alone = [ask(message) for message in messages]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, messages))

    assert together == alone
