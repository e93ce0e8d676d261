from __future__ import annotations

import json
import re
import time
import unicodedata
from typing import Any

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.result_cap import cut, part, result_cap

#: Tokens of the context windows that a result is cut for.
WINDOWS = (1_000, 8_192, 32_000, 128_000, 1_000_000)
#: Characters of each result below, at least.
LARGE = 200_000
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd"
FLAGS = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"
SHOWN = re.compile(r"(?P<all>[\d,]+) characters in all, the first (?P<shown>[\d,]+) shown")


def grown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def nested(depth: int) -> str:
    return '{"a": [' * depth + "1" + "]}" * depth


JSON_RESULTS = {
    "an array of objects": grown([{"id": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(5_000)]),
    "the same, for people": json.dumps([{"id": n, "name": f"row {n}"} for n in range(5_000)], indent=2),
    "one object with one huge string": grown({"path": "notes.md", "text": "line of text\n" * 16_000, "ok": True}),
    "an array of numbers": grown(list(range(40_000))),
    "deeply nested": nested(25_000),
    "one huge string": grown("word " * 40_000),
    "many members": grown({f"member {n}": n for n in range(12_000)}),
    "escapes only": json.dumps({"text": "\U0001f600\u00e9\n" * 10_000}),
    "CJK": grown([{"标题": "工具的结果", "正文": "结果太长" * 40} for _ in range(1_200)]),
    "emoji": grown({"all": (FAMILY + FLAGS) * 20_000}),
    "a long name": grown({"x" * LARGE: 1}),
    "its own note": grown({"_cut": "mine", "__cut": "x" * LARGE}),
}
TEXTS = {
    "lines": "src/main.py:12: found the word here\n" * 6_000,
    "words": "word " * 45_000,
    "one word": "x" * LARGE,
    "CJK": "结果太长。" * 40_000,
    "emoji": (FAMILY + FLAGS) * 20_000,
    "marks": "e\u0301" * 100_000,
    "what looks like JSON": '{"level": "info"}\n' * 12_000,
    "a list that is none": "[INFO] " * 30_000,
}


def cap_for(window: int, hard: int = 40_000) -> int:
    return result_cap(hard, window, share=0.22, minimum=1_200)


def prefix_of(result: str, shown: str) -> str:
    """The beginning of the result that a cut shows, as its note counts it."""
    note = SHOWN.search(shown)
    assert note is not None, shown[-300:]
    assert int(note["all"].replace(",", "")) == len(result)
    return result[: int(note["shown"].replace(",", ""))]


def test_zs_51_zs_52_the_defaults_are_the_documents() -> None:
    assert (settings.TOOLHUB_RESULT_SHARE, settings.TOOLHUB_MIN_RESULT_CHARS) == (0.22, 1_200)


@pytest.mark.parametrize(
    ("hard", "window", "cap"),
    [
        (40_000, 128_000, 40_000),  # ZS-50: the share of 112,640 is over the hard cap
        (200_000, 128_000, 112_640),  # ZS-54: tokens times 4 characters
        (40_000, 8_192, 7_208),
        (40_000, 1_000, 1_200),  # ZS-52: never under the minimum
        (40_000, 1, 1_200),
        (40_000, 0, 1_200),
        (800, 128_000, 800),  # ZS-55: the hard cap wins over the minimum
        (800, 1, 800),
        (0, 128_000, 0),
    ],
)
def test_zs_49_zs_50_zs_52_zs_54_zs_55_the_cap_is_the_share_between_minimum_and_hard_cap(
    hard: int, window: int, cap: int
) -> None:
    assert result_cap(hard, window, share=0.22, minimum=1_200) == cap


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", JSON_RESULTS)
def test_zs_53_json_of_200_000_characters_stays_json_and_under_the_cap_of_any_model(kind: str, window: int) -> None:
    result, cap = JSON_RESULTS[kind], cap_for(window)
    assert len(result) > 110_000

    shown = cut(result, cap, step="3-5")

    assert len(shown) <= cap
    assert shown.startswith(prefix_of(result, shown))
    assert type(_parsed(shown)) is type(_parsed(result))
    shown.encode()


def _parsed(text: str) -> Any:
    """What the JSON is, without a limit of depth: nothing is built of what is nested deep."""
    try:
        return json.loads(text)
    except RecursionError:
        inner = re.fullmatch(r'((?:\{"a": \[)*)1?((?:\]\})*)((?:\]?)(?:,"_cut":"[^"]*")?)\}*', text)
        assert inner is not None
        assert text.count("{") == text.count("}")
        assert text.count("[") == text.count("]")
        return {}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", TEXTS)
def test_zs_53_a_text_of_200_000_characters_stays_under_the_cap_of_any_model(kind: str, window: int) -> None:
    result, cap = TEXTS[kind], cap_for(window)
    assert len(result) > 190_000

    shown = cut(result, cap, step="3-5")

    kept = prefix_of(result, shown)
    assert cap * 3 // 4 < len(shown) <= cap
    assert shown.startswith(kept)
    assert unicodedata.category(result[len(kept)]) not in ("Mn", "Me")
    assert "\u200d" not in (result[len(kept)], kept[-1])
    if kind in ("lines", "what looks like JSON"):
        assert kept.endswith("\n")
    if kind == "words":
        assert kept.endswith(" ")


@pytest.mark.parametrize("kind", ["an array of objects", "the same, for people", "CJK"])
def test_a_list_is_cut_behind_a_whole_item(kind: str) -> None:
    *items, note = json.loads(cut(JSON_RESULTS[kind], 7_208))

    assert items == json.loads(JSON_RESULTS[kind])[: len(items)]
    assert set(note) == {"_cut"}
    assert len(items) > 10


def test_a_long_string_in_an_object_is_cut_inside() -> None:
    shown = cut(JSON_RESULTS["one object with one huge string"], 7_208, step="3-5")

    read = json.loads(shown)
    assert read["path"] == "notes.md"
    assert len(read["text"]) > 6_000
    assert read["text"].endswith("text\n")
    assert read["_cut"].endswith(
        f"step 3-5, offset {len(prefix_of(JSON_RESULTS['one object with one huge string'], shown))}"
    )


def test_the_note_takes_a_name_that_the_object_does_not_have() -> None:
    read = json.loads(cut(JSON_RESULTS["its own note"], 2_000))

    assert list(read) == ["_cut", "__cut", "___cut"]


@pytest.mark.parametrize(
    ("length", "cap", "shown"),
    [
        (10, 10, "x" * 10),
        (0, 0, ""),
        (2_000, 100, "x" * 48 + "\n[cut: 2,000 characters in all, the first 48 shown]"),
        (20, 10, "x" * 10),
        (20, 0, ""),
    ],
)
def test_zs_56_the_model_reads_that_and_how_much_was_cut(length: int, cap: int, shown: str) -> None:
    assert cut("x" * length, cap) == shown


def test_zs_56_the_note_says_how_to_read_the_rest_where_it_has_room() -> None:
    shown = cut("x" * 2_000, 150, step="3-5")

    assert shown.startswith("x" * 50 + "\n[cut: 2,000 characters in all")
    assert shown.endswith("with read_result, step 3-5, offset 50]")
    assert cut("x" * 2_000, 100, step="3-5") == cut("x" * 2_000, 100)


HUGE = {
    "one word": "x" * 1_000_000,
    "spaces": " " * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "marks": "\u0301" * 1_000_000,
    "open lists": "[" * 1_000_000,
    "open objects": '{"a":' * 200_000,
    "a string of escapes": '"' + r"\n" * 500_000 + '"',
    "strings": '["' * 500_000,
    "names like the note's": '["' + '"_' * 500_000,
}


@pytest.mark.parametrize("result", HUGE.values(), ids=HUGE)
def test_zs_61_a_million_characters_of_anything_take_no_longer_than_their_number(result: str) -> None:
    started = time.perf_counter()

    assert len(cut(result, 900_000, step="3-5")) <= 900_000

    assert time.perf_counter() - started < 30  # what grows with the square takes hours


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(st.text(max_size=400), st.integers(-1, 300), st.sampled_from(["", "12-34"]))
def test_a_cut_is_the_beginning_and_within_the_cap(result: str, cap: int, step: str) -> None:
    shown = cut(result, cap, step=step)

    assert len(shown) <= max(cap, 0)
    if "characters in all" not in shown:
        assert result.startswith(shown)
    assert (shown == result) is (len(result) <= max(cap, 0))


@given(
    st.lists(json_values) | st.dictionaries(st.text(), json_values) | st.text(),
    st.integers(100, 600),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_a_cut_of_json_is_json_and_its_beginning(value: Any, cap: int, ascii_only: bool, indent: int | None) -> None:
    result = json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    shown = cut(result, cap)

    assert len(shown) <= cap
    if shown != result:
        assert shown.startswith(prefix_of(result, shown))
    assert type(json.loads(shown)) is type(value)
    json.dumps(json.loads(shown), ensure_ascii=False).encode()


@given(st.text(max_size=600) | json_values.map(json.dumps), st.integers(110, 300))
def test_the_parts_of_a_result_are_the_whole_of_it(result: str, cap: int) -> None:
    read, offset = "", 0
    while True:
        shown = part(result, offset, cap)
        assert len(shown) <= cap
        head, text = shown.split("\n", 1)
        read += text
        found = re.search(r"offset (\d+)\]$", head)
        if found is None:
            break
        assert int(found[1]) > offset
        offset = int(found[1])

    assert read == result
    assert head.endswith("; this is the end]")


def test_a_part_says_which_it_is() -> None:
    head, text = part("word " * 100, 0, 110).split("\n")
    assert head.startswith("[characters 0 to 45 of 500; ")
    assert head.endswith(" at offset 45]")
    assert text == "word " * 9
    head, text = part("word " * 100, 480, 110).split("\n")
    assert head.startswith("[characters 480 to 500 of 500; ")
    assert head.endswith("this is the end]")
    assert text == "word " * 4
