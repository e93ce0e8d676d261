"""What is read out of a provider's refusal, in the words of many of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.language_models.providers.lessons import Lesson, Teaches, corrected
from capabilities.models import Dialect
from sessions.loop.clients.refusals import Refusal, lesson_of, refused_parameter
from tests.scripted_openai import Json

CHAT: Json = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 9_000,
    "parallel_tool_calls": True,
    "prompt_cache_key": "k",
}
RESPONSES: Json = {"model": "m", "stream": True, "store": False, "include": [], "max_output_tokens": 9_000}


def taught(
    words: str, *, status: int = 400, parameter: str = "", code: str = "", chosen: str = "", by_client: str = ""
) -> str:
    """What a refusal of a chat completion teaches, as "key=value"."""
    set_by = {"chosen": frozenset(chosen.split()), "by_client": frozenset(by_client.split())}
    lesson = lesson_of(Refusal(status, words, parameter, code), Dialect.CHAT, CHAT, **set_by)
    return f"{lesson.key}={lesson.value}" if lesson else ""


@pytest.mark.parametrize(
    ("words", "lesson"),
    [
        ("To use function tools, use /v1/responses or set reasoning_effort to 'none'.", "dialect:dialect=responses"),
        ("This model is only supported in the Responses API.", "dialect:dialect=responses"),
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "rename:max_tokens=max_completion_tokens",
        ),
        (
            "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
            "at_most:max_tokens=4096",
        ),
        ("max_tokens must be between 1 and 8192 [400]", "at_most:max_tokens=8192"),
        ("max_tokens: at most 255", "omit:max_tokens="),
        ("max_tokens: at most 256", "at_most:max_tokens=256"),
        ("max_tokens: at most 9000", "omit:max_tokens="),
        ("max_tokens is unknown here", "omit:max_tokens="),
        ("{'type': 'extra_forbidden', 'loc': ['body', 'stream_options']}", "omit:stream_options="),
        ("Unrecognized request argument supplied: parallel_tool_calls", "omit:parallel_tool_calls="),
        ("prompt_cache_key: unknown field", "omit:prompt_cache_key="),
        ("a_max_tokens_b is unknown", ""),
        ("The model is stupid, and the stream too.", ""),
        ("The `reasoning_content` in the thinking mode must be passed back.", "fill:reasoning_content="),
        ("Function call is missing a thought_signature.", "fill:thought_signature="),
        ("messages.2.reasoning_content: Extra inputs are not permitted", ""),
        ("Unknown field: reasoning_content", ""),
        ("", ""),
    ],
)
def test_what_a_refusal_teaches(words: str, lesson: str) -> None:
    assert taught(words) == lesson


@pytest.mark.parametrize("parameter", ["model", "stream"])
def test_what_a_request_cannot_do_without_is_not_left_out(parameter: str) -> None:
    assert taught("no", parameter=parameter) == ""


@pytest.mark.parametrize("status", [200, 401, 403, 409, 429, 500, 503])
def test_other_failures_teach_nothing(status: int) -> None:
    assert taught("Use /v1/responses.", status=status) == ""


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("Use /v1/responses.", "dialect"),
        ("max_tokens: at most 4096", "max_tokens"),
        ("max_tokens is unknown", "max_tokens"),
        ("parallel_tool_calls is unknown", "parallel_tool_calls"),
    ],
)
def test_what_a_person_chose_is_not_unlearned(words: str, chosen: str) -> None:
    assert taught(words) != ""
    assert taught(words, chosen=chosen) == ""


@pytest.mark.parametrize(
    ("words", "lesson"),
    [
        ("max_tokens: expected at least 16", ""),
        ("max_tokens: at most 4096", "at_most:max_tokens=4096"),
        ("max_tokens: use max_completion_tokens", "rename:max_tokens=max_completion_tokens"),
    ],
)
def test_a_number_of_a_client_s_own_teaches_no_more_than_a_lower_limit(words: str, lesson: str) -> None:
    assert taught(words, by_client="max_tokens") == lesson


def test_a_limit_that_a_person_chose_may_have_another_name() -> None:
    words = "Use 'max_completion_tokens' instead."

    assert taught(words, parameter="max_tokens", chosen="max_tokens") == "rename:max_tokens=max_completion_tokens"


@pytest.mark.parametrize(
    ("words", "status", "code", "learned"),
    [
        ("Not found.", 404, "", True),
        ("Method not allowed", 405, "", True),
        ("Not implemented", 501, "", True),
        ("Use /v1/chat/completions.", 400, "", True),
        ("Not found.", 400, "", False),
        ("The model gpt-9 does not exist.", 404, "", False),
        ("Not found.", 404, "model_not_found", False),
    ],
)
def test_where_there_are_no_responses_chat_is_spoken(words: str, status: int, code: str, learned: bool) -> None:
    lesson = lesson_of(Refusal(status, words, "", code), Dialect.RESPONSES, RESPONSES)

    assert lesson == (Lesson(Teaches.DIALECT, "dialect", "chat", words) if learned else None)


def test_thoughts_are_filled_in_chat_only() -> None:
    words = "reasoning_content must be passed back"

    assert lesson_of(Refusal(400, words), Dialect.RESPONSES, RESPONSES) is None


@pytest.mark.parametrize(
    ("refusal", "name"),
    [
        (Refusal(400, "no", "max_tokens"), "max_tokens"),
        (Refusal(400, "no", "stream_options.include_usage"), "stream_options"),
        (Refusal(400, "stream_options", "odd"), "stream_options"),
        (Refusal(400, "max_tokens and stream_options"), "stream_options"),
        (Refusal(400, "model, stream"), ""),
        (Refusal(400, "", "model"), "model"),
    ],
)
def test_the_parameter_that_a_refusal_names(refusal: Refusal, name: str) -> None:
    assert refused_parameter(refusal, CHAT) == name


WORDS = st.lists(
    st.sampled_from(
        ["max_tokens", "max_output_tokens", "use", "instead", "/v1/responses", "store", "reasoning_content"]
    )
    | st.sampled_from(["4096", "999999999", "00300", "\u0663\u0664\u0665", "chat completions", "model"])
    | st.text(max_size=5),
    max_size=6,
).map(" ".join)


@given(WORDS, WORDS, st.sampled_from([400, 404, 422]))
def test_no_words_raise_and_every_lesson_can_be_applied(words: str, parameter: str, status: int) -> None:
    for dialect, sent in ((Dialect.CHAT, CHAT), (Dialect.RESPONSES, RESPONSES)):
        lesson = lesson_of(Refusal(status, words, parameter), dialect, sent)
        if lesson is not None:
            assert lesson.summary
            corrected(sent, [lesson])
