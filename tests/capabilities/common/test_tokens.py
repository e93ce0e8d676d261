from __future__ import annotations

import time
from typing import Any

import pytest
import toktok

from capabilities.common import tokens
from tests.threads import at_once


def test_a_token_of_openai_s_current_models_is_counted_as_one() -> None:
    assert tokens.count_each(["", "hello world", "\ud800"]) == [0, 2, 1]


def test_of_threads_that_count_at_once_one_makes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 60 MB, and twice that where two make it."""
    made: list[str] = []

    def batch_count(texts: list[str], *_: Any, **__: Any) -> list[int]:
        if texts == [""]:
            time.sleep(0.02)
            made.append("made")
        else:
            assert made == ["made"]
        return [1 for _ in texts]

    monkeypatch.setattr("capabilities.common.tokens.toktok.batch_count", batch_count)
    monkeypatch.setattr("capabilities.common.tokens._made", set())

    assert at_once([lambda: tokens.count_tokens("a")] * 4) == [1] * 4
    assert made == ["made"]


@pytest.mark.parametrize(
    ("model", "encoding", "is_own"),
    [
        ("gpt-6-astra", tokens.O200K, True),
        ("gpt-4o-2024-08-06", tokens.O200K, True),
        ("gpt-4.1-mini", tokens.O200K, True),
        ("chatgpt-4o-latest", tokens.O200K, True),
        ("o3-mini", tokens.O200K, True),
        ("openai/gpt-oss-120b", tokens.O200K, True),
        ("gpt-4", tokens.CL100K, True),
        ("gpt-4-turbo-2024-04-09", tokens.CL100K, True),
        ("gpt-35-turbo", tokens.CL100K, True),
        ("ft:gpt-3.5-turbo:acme", tokens.CL100K, True),
        ("Qwen/Qwen3-32B", tokens.QWEN, True),
        ("qwq-32b", tokens.QWEN, True),
        ("claude-opus-5", tokens.O200K, False),
        ("gemini-3-pro", tokens.O200K, False),
        ("my-deployment", tokens.O200K, False),
        ("", tokens.O200K, False),
    ],
)
def test_a_model_is_counted_by_the_tokenizer_of_its_family(model: str, encoding: str, is_own: bool) -> None:
    found = tokens.tokenizer_of(model)

    assert (found.encoding, found.is_own) == (encoding, is_own)


def test_the_tokenizers_differ_where_the_families_do() -> None:
    text = '{"type":"function","function":{"name":"git_log","description":"Die letzten Änderungen 你好世界"}}'

    counts = [tokens.count_tokens(text, encoding) for encoding in (tokens.O200K, tokens.CL100K, tokens.QWEN)]

    assert counts == [21, 26, 21]


def test_gpt_oss_counts_text_as_o200k_does() -> None:
    text = "def f(x):\n    return x  # <|start|>assistant<|channel|>final 你好"

    assert toktok.batch_count([text], "o200k_harmony", threads=1) == [tokens.count_tokens(text)]
