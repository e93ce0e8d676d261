from __future__ import annotations

import time
from typing import Any

import pytest

from capabilities.common import tokens
from tests.threads import at_once


def test_a_token_of_openai_s_current_models_is_counted_as_one() -> None:
    assert tokens.count_each(["", "hello world", "\ud800"]) == [0, 2, 1]


def test_of_threads_that_count_at_once_one_makes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 60 MB, and twice that where two make it."""
    inside, most = 0, 0

    def batch_count(texts: list[str], *_: Any, **__: Any) -> list[int]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)
        inside -= 1
        return [1 for _ in texts]

    monkeypatch.setattr("capabilities.common.tokens.toktok.batch_count", batch_count)

    assert at_once([lambda: tokens.count_tokens("a")] * 4) == [1] * 4
    assert most == 1
