"""Cap of a tool's result: the length that the model gets to see, the place of the cut, and the note on it. Pure.

In a long turn `sessions/loop/conversation/window.py` cuts older results again.
"""

from __future__ import annotations

import re

from capabilities.contract.json_cut import JsonCut, json_cut
from capabilities.contract.loading import READ_RESULT
from capabilities.contract.text_cut import soft_end, whole_characters

#: Characters that one token is taken for.
CHARS_PER_TOKEN = 4
#: One part in so many of what could be shown may be given up for a cut at a better place.
SLACK = 8
_NOTE_NAMES = re.compile('"(_++)cut"')


def result_cap(max_result_chars: int, context_window: int, *, share: float, minimum: int) -> int:
    """Characters of one result that go to the model.

    context_window is in tokens; `share` of it may go to one result. The share is clamped to
    [minimum, max_result_chars], and where those two cross, max_result_chars wins.
    Source of 0.22, 1,200 and 4 characters a token: docs/requirements.md, Result budgets.
    """
    return min(max_result_chars, max(minimum, int(share * context_window * CHARS_PER_TOKEN)))


def cut(result: str, cap: int, *, step: str = "") -> str:
    """The result, or its beginning and a note that says how much is missing; at most `cap` characters.

    JSON stays JSON: what is open is closed, and the note is the last member (`_cut`) of the outermost object or list.
    Other text ends behind a line or a word where one is near. With `step`, the note says how to read on: by
    `read_result`, from the character where the result was cut. Where the cap has no room for a note there is none.
    """
    if len(result) <= cap:
        return result
    for named in (step, "") if step else ("",):
        shown = _cut_json(result, cap, named) or _cut_text(result, cap, named)
        if shown is not None:
            return shown
    return result[: whole_characters(result, max(0, cap))]


def part(result: str, offset: int, cap: int) -> str:
    """Return the part of a result from `offset` on, as `read_result` answers: a line that says which part it is and
    where the next one begins, then the text itself; at most `cap` characters, at least one of the text."""
    whole = len(result)
    head = "[characters {first:,} to {end:,} of {whole:,}; {then}]\n"
    widest = head.format(first=offset, end=whole, whole=whole, then=f"the next part begins at offset {whole}")
    room = max(1, cap - len(widest))
    end = min(whole, offset + room)
    if end < whole:
        end = max(offset + 1, soft_end(result, end, room // SLACK, start=offset))
    then = f"the next part begins at offset {end}" if end < whole else "this is the end"
    return head.format(first=offset, end=end, whole=whole, then=then) + result[offset:end]


def _note(result: str, shown: int, step: str) -> str:
    note = f"{len(result):,} characters in all, the first {shown:,} shown"
    return f"{note}; read on with {READ_RESULT}, step {step}, offset {shown}" if step else note


def _cut_text(result: str, cap: int, step: str) -> str | None:
    room = cap - len(f"\n[cut: {_note(result, cap, step)}]")
    if room <= 0:
        return None
    end = soft_end(result, room, room // SLACK)
    line = "" if result.endswith("\n", 0, end) else "\n"
    return f"{result[:end]}{line}[cut: {_note(result, end, step)}]"


def _cut_json(result: str, cap: int, step: str) -> str | None:
    """Cut a JSON result; None where the result is not JSON, or the cap has no room for any of it."""
    name = "_" * (1 + max((len(each) for each in _NOTE_NAMES.findall(result, 0, max(0, cap))), default=0)) + "cut"
    room = cap - len(f',{{"{name}":"{_note(result, cap, step)}"}}]')
    found = json_cut(result, room, room // SLACK) if room > 0 else None
    return None if found is None else result[: found.end] + _ending(found, name, _note(result, found.end, step))


def _ending(found: JsonCut, name: str, note: str) -> str:
    if found.outermost == '"':
        return f' [cut: {note}]"'
    member = f'"{name}":"{note}"' if found.outermost == "}" else f'{{"{name}":"{note}"}}'
    return found.closing + ("," if found.has_members else "") + member + found.outermost
