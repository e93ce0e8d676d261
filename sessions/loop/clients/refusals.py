"""Lessons from a provider's refusal of a request: the other dialect, a parameter's name, a limit. Pure.

The words are those that vendors answer with: OpenAI's unsupported_parameter and unsupported_value, FastAPI's
extra_forbidden (Mistral, vLLM), "at most N completion tokens", and the demand for thoughts that another model's replies
lack (DeepSeek, Gemini). A person's choice is never changed for them: then the refusal names it. A number of a client's
own teaches no more than a lower limit: too low a one is refused, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.language_models.providers.lessons import ADDED_TOOLS, TOOL_SEARCH, Lesson, Teaches
from capabilities.models import Dialect

#: A request that could be mended is refused with one of these.
REFUSED = frozenset({400, 404, 405, 422, 501})
#: A request says these for our sake: without them the model answers all the same.
_OURS = ("stream_options", "prompt_cache_key", "include", "store", "parallel_tool_calls")
#: The names of the output limit.
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_INSTEAD = re.compile(r"""(?:use|instead)\W+(max_completion_tokens|max_tokens)""", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])\d{2,9}(?![\w.]\d|\w)")
_RESPONSES = re.compile(r"/responses\b|responses (?:api|endpoint)", re.IGNORECASE)
#: Fewer tokens are no limit of a model, but another number of the answer.
_LEAST_LIMIT = 256
#: A refusal of what is there, and not of what is missing.
_TOO_MUCH = re.compile(
    r"not (?:permitted|allowed|supported|accepted)|unsupported|unexpected|unknown|extra[ _](?:inputs|fields|forbidden)",
    re.IGNORECASE,
)
_CHAT = re.compile(r"chat[/ ._]completions", re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """An answer that is no reply: its status, the provider's words, the parameter that it names (or ""), its code."""

    status: int
    words: str
    parameter: str = ""
    code: str = ""


def lesson_of(
    refusal: Refusal,
    dialect: Dialect,
    sent: Mapping[str, Any],
    *,
    chosen: frozenset[str] = frozenset(),
    by_client: frozenset[str] = frozenset(),
) -> Lesson | None:
    """Return the lesson of the refusal; None where it names no remedy, or where that would change what a person chose.
    `by_client` is what the client of this call chose."""
    if refusal.status not in REFUSED:
        return None
    other = _other_dialect(refusal, dialect)
    if other is not None:
        return None if "dialect" in chosen else Lesson(Teaches.DIALECT, "dialect", other, refusal.words)
    fill = next((name for name in ("reasoning_content", "thought_signature") if name in refusal.words), None)
    if fill is not None and dialect is Dialect.CHAT and not _TOO_MUCH.search(refusal.words):
        return Lesson(Teaches.FILL, fill, "", refusal.words)
    name = refused_parameter(refusal, sent)
    if name in _LIMITS:
        lesson = _of_limit(refusal, name, sent[name], is_chosen=name in chosen)
        is_too_low = lesson is not None and lesson.teaches is Teaches.OMIT and name in by_client
        return None if is_too_low else lesson
    if not name or name in chosen:
        return None
    return Lesson(Teaches.OMIT, name, "", refusal.words) if name in _OURS else None


def refuses_added(refusal: Refusal) -> bool:
    """Return whether the refusal names the items that add tools to a conversation."""
    return refusal.status in REFUSED and ADDED_TOOLS in refusal.words


def refuses_search(refusal: Refusal) -> bool:
    """Return whether the refusal names the entries of `tools` that the provider searches."""
    names = (TOOL_SEARCH, "defer_loading", "'namespace'")
    return refusal.status in REFUSED and any(name in refusal.words for name in names)


def refused_parameter(refusal: Refusal, sent: Mapping[str, Any]) -> str:
    """The sent parameter that a refusal names, or ""."""
    head = refusal.parameter.split(".")[0]
    if head in sent:
        return head
    names = sorted((name for name in sent if name not in ("model", "stream")), key=len, reverse=True)
    return next((name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", refusal.words)), "")


def _other_dialect(refusal: Refusal, dialect: Dialect) -> Dialect | None:
    if dialect is Dialect.CHAT:
        return Dialect.RESPONSES if _RESPONSES.search(refusal.words) else None
    if _CHAT.search(refusal.words):
        return Dialect.CHAT
    is_about_model = "model" in f"{refusal.code} {refusal.words}".lower()
    return Dialect.CHAT if refusal.status in (404, 405, 501) and not is_about_model else None


def _of_limit(refusal: Refusal, name: str, sent: int, *, is_chosen: bool) -> Lesson | None:
    instead = _INSTEAD.search(refusal.words)
    if instead is not None and instead[1].lower() != name:
        return Lesson(Teaches.RENAME, name, instead[1].lower(), refusal.words)
    if is_chosen:
        return None
    smaller = [int(each) for each in _NUMBER.findall(refusal.words) if _LEAST_LIMIT <= int(each) < sent]
    if smaller:
        return Lesson(Teaches.AT_MOST, name, str(max(smaller)), refusal.words)
    return Lesson(Teaches.OMIT, name, "", refusal.words)
