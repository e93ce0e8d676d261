"""Usage as each vendor reports it, and the numbers that their billing pages count."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.models import Dialect
from sessions.loop.clients.usage import MAX_RAW, MAX_TOKENS, Usage, usage_of

#: Vendor: its address, the dialect, the usage object as its API sends it, and what is counted of it: input, cached,
#: written, output, reasoning.
REPORTED: dict[str, tuple[str, Dialect, dict[str, Any], tuple[int, int, int, int, int]]] = {
    "openai_chat": (
        "https://api.openai.com/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 192,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        (2006, 1920, 0, 300, 192),
    ),
    "openai_responses": (
        "https://api.openai.com/v1",
        Dialect.RESPONSES,
        {
            "input_tokens": 5000,
            "input_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 1500},
            "output_tokens": 700,
            "output_tokens_details": {"reasoning_tokens": 512},
            "total_tokens": 5700,
        },
        (5000, 3000, 1500, 700, 512),
    ),
    # What was cached stands beside the counts; in a stream all of it is in the last choice.
    "moonshot": (
        "https://api.moonshot.ai/v1",
        Dialect.CHAT,
        {"prompt_tokens": 1310, "completion_tokens": 94, "total_tokens": 1404, "cached_tokens": 1280},
        (1310, 1280, 0, 94, 0),
    ),
    "azure": (
        "https://acme.openai.azure.com/openai/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 1200,
            "completion_tokens": 80,
            "total_tokens": 1280,
            "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 128, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 64},
        },
        (1200, 1024, 128, 80, 64),
    ),
    "anthropic": (
        "https://api.anthropic.com/v1",
        Dialect.CHAT,
        {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020, "cached_tokens": 640},
        (900, 640, 0, 120, 0),
    ),
    "google": (
        "https://generativelanguage.googleapis.com/v1beta/openai",
        Dialect.CHAT,
        {
            "prompt_tokens": 1500,
            "completion_tokens": 420,
            "total_tokens": 1920,
            "prompt_tokens_details": {"cached_tokens": 1024},
            "completion_tokens_details": {"reasoning_tokens": 320},
        },
        (1500, 1024, 0, 420, 320),
    ),
    # Reasoning stands beside the output: 9 said and 310 thought are 319 billed.
    "xai": (
        "https://api.x.ai/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 351,
            "prompt_tokens_details": {"text_tokens": 32, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 6},
            "completion_tokens_details": {"reasoning_tokens": 310, "audio_tokens": 0},
            "num_sources_used": 0,
        },
        (32, 6, 0, 319, 310),
    ),
    "deepseek": (
        "https://api.deepseek.com/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 800,
            "completion_tokens": 210,
            "total_tokens": 1010,
            "prompt_tokens_details": {"cached_tokens": 768},
            "completion_tokens_details": {"reasoning_tokens": 150},
            "prompt_cache_hit_tokens": 768,
            "prompt_cache_miss_tokens": 32,
        },
        (800, 768, 0, 210, 150),
    ),
    "deepseek_before_details": (
        "https://api.deepseek.com",
        Dialect.CHAT,
        {
            "prompt_tokens": 800,
            "completion_tokens": 60,
            "total_tokens": 860,
            "prompt_cache_hit_tokens": 640,
            "prompt_cache_miss_tokens": 160,
        },
        (800, 640, 0, 60, 0),
    ),
    "openrouter": (
        "https://openrouter.ai/api/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 194,
            "completion_tokens": 12,
            "total_tokens": 206,
            "cost": 0.00095,
            "cost_details": {"upstream_inference_cost": None},
            "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 50, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
        (194, 100, 50, 12, 4),
    ),
    "mistral": (
        "https://api.mistral.ai/v1",
        Dialect.CHAT,
        {"prompt_tokens": 64, "completion_tokens": 15, "total_tokens": 79, "prompt_tokens_details": None},
        (64, 0, 0, 15, 0),
    ),
    "groq": (
        "https://api.groq.com/openai/v1",
        Dialect.CHAT,
        {
            "queue_time": 0.03,
            "prompt_tokens": 220,
            "prompt_time": 0.01,
            "completion_tokens": 90,
            "completion_time": 0.2,
            "total_tokens": 310,
            "total_time": 0.21,
            "prompt_tokens_details": {"cached_tokens": 128},
            "completion_tokens_details": {"reasoning_tokens": 70},
        },
        (220, 128, 0, 90, 70),
    ),
    "vllm_with_null_details": (
        "http://localhost:8000/v1",
        Dialect.CHAT,
        {"prompt_tokens": 50, "total_tokens": 57, "completion_tokens": 7, "prompt_tokens_details": None},
        (50, 0, 0, 7, 0),
    ),
    "vllm_responses": (
        "http://localhost:8000/v1",
        Dialect.RESPONSES,
        {
            "input_tokens": 50,
            "input_tokens_details": {"cached_tokens": 16, "input_tokens_per_turn": [], "cached_tokens_per_turn": []},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 12, "tool_output_tokens": 0},
            "total_tokens": 80,
        },
        (50, 16, 0, 30, 12),
    ),
    "ollama": (
        "http://localhost:11434/v1",
        Dialect.CHAT,
        {"prompt_tokens": 26, "completion_tokens": 4, "total_tokens": 30},
        (26, 0, 0, 4, 0),
    ),
    "lm_studio": (
        "http://localhost:1234/v1",
        Dialect.CHAT,
        {
            "prompt_tokens": 40,
            "completion_tokens": 22,
            "total_tokens": 62,
            "completion_tokens_details": {"reasoning_tokens": 18},
        },
        (40, 0, 0, 22, 18),
    ),
    "llama_cpp": (
        "http://localhost:8080/v1",
        Dialect.CHAT,
        {
            "completion_tokens": 11,
            "prompt_tokens": 33,
            "total_tokens": 44,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
        (33, 32, 0, 11, 0),
    ),
}


@pytest.mark.parametrize("vendor", REPORTED)
def test_each_vendors_usage_is_read_as_it_is_billed(vendor: str) -> None:
    base_url, dialect, reported, counted = REPORTED[vendor]

    usage = usage_of(reported, base_url, dialect)

    assert usage is not None
    assert (usage.input, usage.cached, usage.cache_written, usage.output, usage.reasoning) == counted
    assert usage.raw == reported
    assert not usage.is_estimated


@pytest.mark.parametrize(
    "reported",
    [
        None,
        [],
        "100",
        {},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": 10},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": 10**12, "completion_tokens": 1},
        {"prompt_tokens": "ten", "completion_tokens": "3"},
        {"prompt_tokens": 10.5, "completion_tokens": 3},
        {"total_tokens": 13},
        {"prompt_tokens": float("nan"), "completion_tokens": 3},
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_no_count_is_no_usage(reported: Any, dialect: Dialect) -> None:
    assert usage_of(reported, "https://api.openai.com/v1", dialect) is None


def test_parts_are_never_more_than_their_whole() -> None:
    reported = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 90},
        "completion_tokens_details": {"reasoning_tokens": 70},
    }

    usage = usage_of(reported, "https://api.openai.com/v1", Dialect.CHAT)

    assert usage == Usage(10, 75, 8, 2, 70, raw=reported)  # reasoning above the output stands beside it


@pytest.mark.parametrize(
    ("said", "cached"), [(8, 8), (90, 10), (-5, 0), (True, 0), (10**12, 0), ("8", 8), ("eight", 0), (None, 0)]
)
def test_cached_tokens_are_a_part_of_the_input(said: Any, cached: int) -> None:
    reported = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": said}}

    assert usage_of(reported, "https://api.openai.com/v1", Dialect.CHAT) == Usage(10, 5, cached)


@pytest.mark.parametrize(
    ("reported", "base_url", "dialect"),
    [
        (
            {"input_tokens": MAX_TOKENS, "cache_read_input_tokens": 1, "output_tokens": 1},
            "https://api.anthropic.com/v1",
            Dialect.RESPONSES,
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": MAX_TOKENS,
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            "https://api.x.ai/v1",
            Dialect.CHAT,
        ),
    ],
    ids=["input", "output"],
)
def test_a_sum_that_cannot_be_is_no_usage(reported: Any, base_url: str, dialect: Dialect) -> None:
    assert usage_of(reported, base_url, dialect) is None


def test_an_object_that_is_too_long_is_counted_and_not_kept() -> None:
    reported = {"prompt_tokens": 10, "completion_tokens": 5, "note": "x" * MAX_RAW}

    usage = usage_of(reported, "https://example.com/v1", Dialect.CHAT)

    assert usage is not None
    assert (usage.input, usage.raw) == (10, {})
