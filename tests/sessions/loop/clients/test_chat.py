"""Replies made whole, piece by piece; what servers get wrong in whole turns is in test_malformed_model.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.loop.clients.chat import ChatReader
from sessions.loop.clients.replies import MAX_ARGUMENTS, MAX_CALLS, MAX_EXTRAS, MAX_TEXT, Call, Reply
from sessions.loop.clients.usage import Usage
from tests.scripted_openai import Json, Say, call, chunk
from tests.sessions.run_turns import check_text


def built(*chunks: Any) -> Reply:
    reader = ChatReader()
    for each in chunks:
        reader.add_event(each)
    return reader.build()


def pieces(*calls: Any) -> Json:
    return chunk({"tool_calls": list(calls)})


def test_a_streamed_reply_is_put_together() -> None:
    reply = built(*Say("Hello there", calls=[call("add", {"x": 1}, id="a"), call("sub", id="b")]).chunks())

    assert reply == Reply(
        "Hello there", (Call("a", "add", '{"x": 1}'), Call("b", "sub", "{}")), "tool_calls", Usage(100, 10, 60)
    )


def test_a_whole_completion_is_the_same_reply_as_its_stream() -> None:
    calls = [call("add", {"x": 1}, id="a"), call("sub", id="b")]
    said = Say("Hello there", calls=calls)
    reader = ChatReader()

    text = reader.add_whole(
        {
            "choices": [{"message": {"content": "Hello there", "tool_calls": calls}, "finish_reason": "tool_calls"}],
            "usage": said.usage,
        }
    )

    assert text == "Hello there"
    assert reader.build() == built(*said.chunks())


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        ([pieces({"index": 0, "id": "a", "function": {"name": "f"}})], [("a", "f", "")]),
        ([pieces({"index": 0, "function": {"arguments": "{}"}})], [("", "", "{}")]),
        ([pieces({"index": 0, "id": "a"})], []),
        (
            [pieces({"index": 2, "function": {"name": "f"}}), pieces({"index": 1, "function": {"name": "g"}})],
            [("", "g", ""), ("", "f", "")],
        ),
        (
            [pieces({"function": {"name": "f"}}, {"function": {"name": "f"}})],
            [("", "f", ""), ("", "f", "")],
        ),
        (
            [
                pieces({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}),
                pieces({"index": 0, "id": "b", "function": {"name": "g", "arguments": "{"}}),
                pieces({"index": 0, "function": {"arguments": "}"}}),
            ],
            [("a", "f", "{"), ("b", "g", "{}")],
        ),
        (
            [
                pieces({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}),
                pieces({"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}}),
            ],
            [("a", "f", "{}")],
        ),
        ([pieces({"index": 0, "function": {"name": "f", "arguments": {"x": 1}}})], [("", "f", '{"x": 1}')]),
    ],
)
def test_pieces_find_their_call(chunks: list[Json], calls: list[tuple[str, str, str]]) -> None:
    assert built(*chunks).calls == tuple(Call(*each) for each in calls)


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2, 0)),
        ({"prompt_tokens": 5, "completion_tokens": 0}, Usage(5, 0, 0)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}, Usage(5, 2, 3)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 2, 5)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(5, 2, 0)),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": 5}, None),
        ({"prompt_tokens": 5, "completion_tokens": 10**9}, None),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None),
        ([], None),
        (None, None),
    ],
)
def test_only_counts_that_can_be_are_kept(usage: Any, kept: Usage | None) -> None:
    assert built({"choices": [], "usage": usage}).usage == kept


def test_usage_in_a_choice_is_read_as_moonshot_sends_it() -> None:
    usage = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, "cached_tokens": 16}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]}

    found = built({"choices": [{"index": 0, "delta": {"content": "Hello."}}]}, last).usage

    assert found is not None
    assert (found.input, found.cached, found.output) == (19, 16, 13)


def test_a_reply_is_bounded() -> None:
    reply = built(
        chunk({"content": "x" * (MAX_TEXT + 5)}),
        chunk({"content": "y"}),
        *[pieces({"index": 0, "function": {"name": "f", "arguments": "z" * 150_000}})] * 2,
        *[pieces({"index": index, "function": {"name": "f"}}) for index in range(1, MAX_CALLS + 5)],
    )

    assert reply.text == "x" * MAX_TEXT
    assert len(reply.calls) == MAX_CALLS
    assert reply.calls[0].arguments == "z" * MAX_ARGUMENTS


def test_thoughts_that_are_too_long_are_not_kept_and_signatures_of_calls_are() -> None:
    reader = ChatReader()
    signed = {"index": 0, "id": "a", "function": {"name": "add"}, "extra_content": {"signature": "s"}}
    reader.add_event(pieces(signed))
    for _ in range(5):
        reader.add_event(chunk({"reasoning_content": "x" * MAX_EXTRAS}))

    assert reader.build().extras == {"calls": {"0": {"extra_content": {"signature": "s"}}}}
    assert len(reader._thoughts["reasoning_content"]) == 1
    assert len(reader.build().other_text) < MAX_TEXT + MAX_EXTRAS


WORDS = st.sampled_from(
    ["choices", "delta", "message", "content", "tool_calls", "index", "id", "function", "name", "arguments", "text"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800\x00")
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=30
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANYTHING, max_size=5))
def test_no_chunk_of_any_shape_raises(chunks: list[Any]) -> None:
    wrapped = [{"choices": [{"delta": each, "finish_reason": each}], "usage": each} for each in chunks]

    reply = built(*chunks, *wrapped)

    check_text([reply.text, reply.finish_reason])
    for each in chunks:
        ChatReader().add_whole(each)
