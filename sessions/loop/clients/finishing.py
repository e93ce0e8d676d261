"""Reason why a reply ended, in one spelling, whatever the vendor's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

STOP, CALLS, LENGTH, FILTERED, ERROR = "stop", "tool_calls", "length", "content_filter", "error"
#: The answer behind one of these is not all that the model had to say.
CUT = (LENGTH, FILTERED)
_SPELLINGS = {
    STOP: "stop end_turn stop_sequence eos eos_token eos_id complete completed finished done",
    CALLS: "tool_calls tool_call tool_use function_call function_calls",
    LENGTH: "length max_tokens max_output_tokens max_completion_tokens max_length max_new_tokens model_length"
    " token_limit max_tokens_reached hit_max_tokens length_limit context_length model_context_window_exceeded truncated"
    " error_limit incomplete timeout time_limit repetition_truncation",
    FILTERED: "content_filter content_filtered content_filter_stop safety image_safety prohibited_content blocklist"
    " content_policy_violation recitation spii refusal sensitive blocked flagged moderation language"
    " guardrail_intervened error_toxic",
    ERROR: "error failed network_error server_error internal_error malformed_function_call malformed_response"
    " unexpected_tool_call too_many_tool_calls missing_thought_signature insufficient_system_resource engine_overloaded"
    " abort aborted cancelled canceled interrupted terminated",
    "": "null none unspecified",
}
_MEANINGS = {spelling: meaning for meaning, spellings in _SPELLINGS.items() for spelling in spellings.split()}
#: Reasons that say no more than that the reply ended.
_SAYS_LITTLE = ("", STOP, "unknown", "other")
_WORD_BEGINS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def finish_of(reason: object, native: object = None) -> str:
    """The reason as it is kept: in our spelling where it is known, else as it came; "" where none came. `native` is
    what a vendor behind a router said: it counts where it says more than that the reply ended."""
    meaning, behind = _meaning(reason), _meaning(native)
    if meaning.casefold() in _SAYS_LITTLE and behind in (*CUT, ERROR):
        return behind
    return meaning or behind


def stronger(known: str, new: str) -> str:
    """The reason that counts of two that came one after the other: a word that says little takes none back."""
    return known if known in (*CUT, ERROR) and new.casefold() in _SAYS_LITTLE else new


def _meaning(reason: object) -> str:
    if isinstance(reason, list) and reason:
        reason = reason[0]
    if isinstance(reason, Mapping):
        reason = reason.get("type") or reason.get("reason")
    if not isinstance(reason, str):
        return ""
    folded = _WORD_BEGINS.sub("_", reason.strip()).casefold().replace("-", "_").replace(" ", "_")
    folded = folded.removeprefix("finish_reason_")
    return _MEANINGS.get(folded, reason.strip())
