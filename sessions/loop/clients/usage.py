"""Tokens that a model call used, as the vendor bills them, read from whichever fields that vendor counts in.

genai-prices knows most vendors' fields; the rest stands here. Vendors differ in these ways that change a bill: the part
of the total beyond input and output was thought, and is output (Gemini); the cache stands in the input or beside it;
xAI counts reasoning beside the output and others within it; cached tokens stand in `prompt_tokens_details`, at the top
level (Anthropic's OpenAI endpoint), or as `prompt_cache_hit_tokens` (DeepSeek before its details); and tokens that were
written to a cache cost more than other input (OpenAI from gpt-5.6 on).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capabilities.common.text import storable_json
from capabilities.contract.pricing import PricedUse
from capabilities.language_models.providers.vendors import vendor_of
from capabilities.models import Dialect

#: Tokens that one model call can count; the largest windows hold 10 million.
MAX_TOKENS = 20_000_000
#: Characters of a provider's own usage object that are kept, as JSON.
MAX_RAW = 4_000
#: Where other vendors than genai-prices' own say how much of the input was cached, or written to a cache.
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens")
#: At the top level, these stand beside the input where they are more than it.
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
#: The names of input and output by dialect.
_NAMES = {Dialect.CHAT: ("prompt_tokens", "completion_tokens"), Dialect.RESPONSES: ("input_tokens", "output_tokens")}
#: The names of other dialects, by ours: Bedrock, Gemini, Ollama and llama.cpp in their own forms.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("inputTokens", "promptTokens", "promptTokenCount", "prompt_eval_count", "input_token_count"),
    "completion_tokens": (
        *("outputTokens", "completionTokens", "candidatesTokenCount", "eval_count", "output_token_count"),
    ),
    "total_tokens": ("totalTokens", "totalTokenCount", "total_token_count"),
    "cached_tokens": ("cacheReadInputTokens", "cachedContentTokenCount", "cacheReadInputTokenCount"),
    "cache_write_tokens": ("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    "reasoning_tokens": ("thoughtsTokenCount",),
}


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call. `input` holds what was cached and written too, `output` holds reasoning."""

    input: int
    output: int
    #: Parts of the input: read from the provider's cache, and written to it.
    cached: int = 0
    cache_written: int = 0
    #: Part of the output that the model thought and did not say.
    reasoning: int = 0
    #: Whether the numbers are ours, because the provider sent none, or none that are possible.
    is_estimated: bool = False
    #: The provider's own object; empty where there was none, or where it was longer than MAX_RAW.
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False)


def usage_of(reported: object, base_url: str, dialect: Dialect) -> Usage | None:
    """The usage object of a reply, or of a stream's last piece. None where it does not say input and output."""
    if not isinstance(reported, Mapping):
        return None
    counts = _named(_numbers(reported), dialect)
    extracted = _extracted(counts, base_url, dialect)
    if extracted is None:
        return None
    input_tokens, output_tokens = extracted.get("input_tokens", 0), extracted.get("output_tokens", 0)
    cached = extracted.get("cache_read_tokens") or _first(counts, _CACHED)
    written = extracted.get("cache_write_tokens") or _first(counts, _WRITTEN)
    reasoning = extracted.get("output_reasoning_tokens", 0) or _first(counts, _REASONING, _OUTPUT_DETAILS)
    total = counts.get("total_tokens", 0)
    input_tokens += _beside_input(input_tokens, counts, cached, written, total - input_tokens - output_tokens)
    if reasoning > output_tokens:  # it stands beside what was said
        output_tokens += reasoning
    if total > input_tokens + output_tokens:  # what nobody names was thought, and is billed as output (Gemini)
        reasoning = max(reasoning, total - input_tokens - output_tokens)
        output_tokens = total - input_tokens
    if not 0 < input_tokens <= MAX_TOKENS or output_tokens > MAX_TOKENS:
        return None
    cached = min(cached, input_tokens)
    raw = storable_json(reported, MAX_RAW) or {}
    return Usage(
        input_tokens, output_tokens, cached, min(written, input_tokens - cached), min(reasoning, output_tokens), raw=raw
    )


def _beside_input(input_tokens: int, counts: Mapping[str, Any], cached: int, written: int, unnamed: int) -> int:
    """Tokens of the cache that the input does not hold: just what the total says beyond, or more than the input has.
    Details of the input are part of it, whatever they say."""
    beside = cached + written
    if beside and unnamed == beside:
        return beside
    if beside > input_tokens and any(name in counts for name in _BESIDE):
        return beside
    return next((each for each in (cached, written) if each and unnamed == each), 0)


def priced_use(usage: Usage) -> PricedUse:
    """The part of it that has a price."""
    return PricedUse(usage.input, usage.cached, usage.cache_written, usage.output, usage.reasoning)


def says_cached(usage: Usage) -> bool:
    """Return whether the provider says how much of the input was cached, even if none was."""
    raw = usage.raw
    details = (raw, raw.get("prompt_tokens_details"), raw.get("input_tokens_details"))
    return any(each.get(name) is not None for each in details if isinstance(each, Mapping) for name in _CACHED)


def _extracted(counts: Mapping[str, Any], base_url: str, dialect: Dialect) -> dict[str, int] | None:
    """Return the counts that genai-prices reads by the vendor's own field map, by name; None where input or output is
    not said."""
    # It takes 30 MB, which only a process spends that asks a model.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 -- leaf

    snapshot = get_snapshot()
    for prices, flavour in ((vendor_of(base_url).prices, str(dialect)), ("openai", str(dialect))):
        provider = snapshot.find_provider(None, prices, None)
        known = {extractor.api_flavor for extractor in provider.extractors or ()}
        if not known & {flavour, "default"}:
            continue
        try:
            _, usage = provider.extract_usage(
                {"usage": counts, "model": ""}, api_flavor=flavour if flavour in known else "default"
            )
        except ValueError:  # a field is missing that it requires
            continue
        return {name: int(value) for name, value in vars(usage).items()}
    return None


def _numbers(reported: Mapping[str, Any]) -> dict[str, Any]:
    """The object without what is no count: null details (vLLM), negative or impossible numbers, words."""
    counts: dict[str, Any] = {}
    for name, value in reported.items():
        if isinstance(value, Mapping):
            counts[name] = {key: count for key, each in value.items() if (count := _count(each)) is not None}
        elif (count := _count(value)) is not None:
            counts[name] = count
    return counts


def _named(counts: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The object under the names of its dialect, where it has other ones; of input, output and total, one that is
    missing is what the others leave."""
    found = {name: next((counts[each] for each in others if each in counts), None) for name, others in _ALIASES.items()}
    known = {name: value for name, value in found.items() if value is not None} | counts
    (sent, output), *others = _NAMES[dialect], *(names for each, names in _NAMES.items() if each != dialect)
    for other_sent, other_output in others:
        for name, other in ((sent, other_sent), (output, other_output)):
            if other in known:
                known.setdefault(name, known[other])
    total = known.get("total_tokens", 0)
    if output not in known and total > known.get(sent, total):
        known[output] = total - known[sent]
    if not known.get(sent) and total > known.get(output, total):
        known[sent] = total - known[output]
    return known


def _count(value: object) -> int | None:
    """The number of tokens, also where it came as a text or with a fraction of zero; None for what is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}(?:\.0{1,9})?", value):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if is_count else None  # type: ignore[return-value]


def _first(counts: Mapping[str, Any], names: tuple[str, ...], details: tuple[str, ...] = _INPUT_DETAILS) -> int:
    """The first of these that is said, at the top level or in the details."""
    places = [counts, *(counts.get(name) for name in details)]
    found = (each.get(name) for name in names for each in places if isinstance(each, Mapping))
    return next((value for value in found if isinstance(value, int)), 0)
