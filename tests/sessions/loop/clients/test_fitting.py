"""A conversation made fit for the model that reads it next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.language_models.providers.lessons import HISTORY_WORDS
from capabilities.language_models.providers.vendors import VENDORS
from sessions.loop.clients.fitting import fitted, rule_of, sent_id
from sessions.loop.clients.refusals import Refusal

Message = dict[str, Any]
LONG = "call_17957598781646542950"


def user(text: str = "one") -> Message:
    return {"role": "user", "content": text}


def reply(text: str | None = "yes", *ids: str) -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def result(id: str, text: str = "done") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def system(text: str = "Be brief.") -> Message:
    return {"role": "system", "content": text}


def roles(messages: list[Message]) -> str:
    """The first letter of each role."""
    return "".join(each["role"][0] for each in messages)


def ids(messages: list[Message]) -> list[tuple[list[str], list[str]]]:
    """Of each reply with calls: the ids of its calls, and of the results behind it."""
    found: list[tuple[list[str], list[str]]] = []
    for each in messages:
        if each.get("tool_calls"):
            found.append(([call["id"] for call in each["tool_calls"]], []))
        elif each["role"] == "tool":
            found[-1][1].append(each["tool_call_id"])
    return found


def test_what_is_fit_already_goes_out_as_it_is() -> None:
    talk = [system(), user(), reply(None, "a", "b"), result("a"), result("b"), reply(), user("two")]

    assert fitted(talk, {}) == talk


@pytest.mark.parametrize("nothing", ["", None, "  \n"])
def test_a_reply_without_words_and_calls_is_left_out(nothing: str | None) -> None:
    assert fitted([user(), reply(nothing), user("two")], {}) == [user(), user("two")]


def test_a_result_without_its_call_is_left_out_and_a_call_without_result_gets_one() -> None:
    found = fitted([user(), result("x"), reply(None, "a", "b"), result("a"), user("two"), result("b")], {})

    assert roles(found) == "uattu"
    assert ids(found) == [(["a", "b"], ["a", "b"])]


def test_an_id_that_comes_twice_becomes_another_one_in_call_and_result() -> None:
    found = fitted([reply(None, "a"), result("a", "1"), reply(None, "a"), result("a", "2")], {})

    (first, first_results), (second, second_results) = ids(found)
    assert (first, second) == (first_results, second_results)
    assert first != second
    assert [each["content"] for each in found if each["role"] == "tool"] == ["1", "2"]


def test_two_calls_of_one_reply_with_one_id_keep_their_results() -> None:
    found = fitted([user(), reply(None, "a", "a"), result("a", "1"), result("a", "2")], {})

    ((calls, results),) = ids(found)
    assert (calls, len(set(calls))) == (results, 2)
    assert [each["content"] for each in found if each["role"] == "tool"] == ["1", "2"]


def test_a_result_without_content_is_an_empty_text() -> None:
    found = fitted([user(), reply(None, "a"), {"role": "tool", "tool_call_id": "a", "content": None}], {})

    assert found[-1]["content"] == ""


@pytest.mark.parametrize("id", ["functions.get:0", "a b", "é", ""])
def test_an_id_of_other_letters_becomes_one_of_letters_that_are_taken(id: str) -> None:
    assert sent_id(id, 40).removeprefix("call_").isalnum()
    assert sent_id(id, 40) == sent_id(id, 40) != sent_id(id + "x", 40)


def test_a_model_without_a_system_reads_it_in_front_of_the_users_words() -> None:
    found = fitted([system("Be brief."), user("one"), reply(), system("Later."), user("two")], {"no_system": 0})

    assert [each["content"] for each in found] == ["Be brief.\n\nLater.\n\none", "yes", "two"]
    assert fitted([system("Be brief.")], {"no_system": 0}) == [user("Be brief.")]


@pytest.mark.parametrize("length", [9, 40, 64])
@pytest.mark.parametrize("id", [LONG, "call_" + "a" * 59, "a-b_c", "abcdefgh1"])
def test_ids_fit_the_length_in_call_and_result_and_never_change(id: str, length: int) -> None:
    talk = [user(), reply(None, id), result(id)]
    found = fitted(talk, {"call_ids": length})

    ((sent,), (answered,)) = ids(found)[0]
    assert sent == answered == sent_id(id, length)
    assert (len(sent) == 9 and sent.isalnum()) if length == 9 else len(sent) <= length
    assert ids(fitted([*talk, reply(), user()], {"call_ids": length}))[0] == ids(found)[0]


def test_an_id_that_fits_stays() -> None:
    assert sent_id("abcdefgh1", 9) == "abcdefgh1"
    assert sent_id(LONG, 40) == LONG


@pytest.mark.parametrize(
    ("rule", "talk", "right"),
    [
        ("system_first", [user(), system("Later."), reply(), system("Last."), user()], "suau"),
        ("alternate", [user(), user("two"), reply(), reply("more"), user("three")], "uau"),
        ("alternate", [reply(), user()], "uau"),
        ("user_first", [system(), reply(None, "a"), result("a"), user()], "suatu"),
        ("answered_results", [user(), reply(None, "a"), result("a"), user("two")], "uatau"),
    ],
)
def test_the_order_of_roles_is_what_the_model_takes(rule: str, talk: list[Message], right: str) -> None:
    assert roles(fitted(talk, {rule: 0})) == right


def test_no_words_are_lost_where_messages_become_one() -> None:
    (found,) = fitted([user("one"), user("two")], {"alternate": 0})

    assert found["content"] == "one\n\ntwo"


def test_no_message_is_empty_for_who_takes_none() -> None:
    found = fitted([user(""), reply(None, "a"), result("a", " ")], {"no_empty_text": 0})

    assert all(each["content"] and each["content"].strip() for each in found if each["role"] != "assistant")


def test_a_reply_that_is_all_calls_has_a_text_for_who_takes_no_null() -> None:
    assert fitted([reply(None, "a"), result("a")], {"no_null_text": 0})[0]["content"] == ""


ROLES = st.sampled_from(
    [system(), user(), user(""), reply(), reply(""), reply(None, "a"), reply("x", "a", "b"), result("a")]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROLES, max_size=12), st.sets(st.sampled_from(sorted(HISTORY_WORDS))))
def test_any_conversation_comes_out_whole(talk: list[Message], rules: set[str]) -> None:
    named = {rule: 9 if rule == "call_ids" else 0 for rule in rules}
    found = fitted(talk, named)

    assert all(calls == results for calls, results in ids(found))
    sent = [id for calls, _ in ids(found) for id in calls]
    assert len(sent) == len(set(sent))
    assert fitted(found, named) == found


# -- Refusals ---------------------------------------------------------------------------------------------------------

REFUSALS = [
    (f"Tool call id was {LONG} but must be a-z, A-Z, 0-9, with a length of 9.", ("call_ids", 9)),
    (
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
        ("call_ids", 40),
    ),
    ("Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64", ("call_ids", 64)),
    ("messages: text content blocks must be non-empty", ("no_empty_text", 0)),
    ("Assistant message must have either content or tool_calls, but not none.", ("no_empty_text", 0)),
    ("Invalid value for 'content': expected a string, got null.", ("no_null_text", 0)),
    ("Unexpected role 'user' after role 'tool'", ("answered_results", 0)),
    ("Unexpected role 'system' after role 'user'", ("system_first", 0)),
    ("System message must be at the beginning.", ("system_first", 0)),
    ("Conversation roles must alternate user/assistant/user/assistant/...", ("alternate", 0)),
    ("Please ensure that function call turn comes immediately after a user turn.", ("user_first", 0)),
    ("messages: first message must use the user role", ("user_first", 0)),
    ("messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", ("call_ids", 40)),
    ("Invalid 'messages[2].tool_calls[0].id': string does not match pattern.", ("call_ids", 40)),
    ("tool_call_id should be a 9 character alphanumeric string", ("call_ids", 9)),
    ("tool_call_id must be alphanumeric", ("call_ids", 16)),
    ("None is not of type 'string' - 'messages.1.content'", ("no_null_text", 0)),
    ("Input should be a valid string [type=string_type, input_value=None] messages.2.content", ("no_null_text", 0)),
    ("The text field in the ContentBlock object at messages.1.content.0 is blank.", ("no_empty_text", 0)),
    ("'messages.3.content' : minimum number of items is 1", ("no_empty_text", 0)),
    ("'' is too short - 'messages.1.content'", ("no_empty_text", 0)),
    ("Jinja Exception: System role not supported", ("no_system", 0)),
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", ("no_system", 0)),
    ("Developer instruction is not enabled for models/gemma-3", ("no_system", 0)),
    ("Only the first message can have role system", ("system_first", 0)),
    ("No user query found in messages.", ("user_first", 0)),
    ("This model is overloaded.", None),
    ("Tool call id was a but must be a-z, with a length of 3.", None),
]


@pytest.mark.parametrize(("words", "rule"), REFUSALS)
def test_what_a_refusal_of_the_conversation_teaches(words: str, rule: tuple[str, int] | None) -> None:
    assert rule_of(Refusal(400, words), {}) == rule
    assert rule_of(Refusal(400, words), dict([rule]) if rule else {}) is None
    assert rule_of(Refusal(401, words), {}) is None


def test_every_rule_has_its_words_and_every_vendor_names_rules_that_there_are() -> None:
    named = {rule for vendor in VENDORS for rule, _ in vendor.history_rules}

    assert named | {rule[0] for _, rule in REFUSALS if rule} <= HISTORY_WORDS.keys()
