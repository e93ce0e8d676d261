"""The thing that a deed is for: found in a listing by its number or words. Where several fit, none is taken."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from capabilities.choosing.routing.words import content_words, stem, words_of
from toolhub.embedded.offline_model.arguments import Filled
from toolhub.embedded.offline_model.tools import KINDS, Tool
from toolhub.embedded.offline_model.values import NUMBER

Row = Mapping[str, Any]
#: Days ahead in which a thing with a day is looked for.
DAYS_AHEAD = 180


def listing_for(tool: Tool, tools: Sequence[Tool]) -> Tool | None:
    """The tool that lists the things of this one: it reads, needs nothing, and is named after the same thing."""
    lists = [each for each in tools if each.kind == "read" and not any(field.is_required for field in each.fields)]
    shared = [(len(each.nouns & tool.nouns), "list" in words_of(each.name), each) for each in lists]
    best = max(shared, key=lambda one: one[:2], default=None)
    return best[2] if best and best[0] else None


def far_ahead(listing: Tool) -> dict[str, str]:
    """The arguments by which a listing of days shows the coming ones; {} for any other."""
    if not {"start", "end"} <= {field.name for field in listing.fields if listing.takes(field) == "date"}:
        return {}
    today = datetime.datetime.now().astimezone().date()
    return {"start": today.isoformat(), "end": (today + datetime.timedelta(days=DAYS_AHEAD)).isoformat()}


def fitting(filled: Filled, rows: Sequence[Row], picked: str, last: Row | None) -> list[Row]:
    """The rows that the message may mean: one, where it is clear; an empty one besides says that it is not. `picked`:
    what a question for one was answered with. `last`: the row that the message calls "it"."""
    assert filled.row is not None
    number = filled.arguments.get(filled.row.name) if last is None else number_of(filled, last)
    if isinstance(number, int):
        return [row for row in rows if number_of(filled, row) == number]
    words, found = filled.words, list({str(number_of(filled, row)): row for row in reversed(rows)}.values())[::-1]
    if picked:
        numbers = {int(match[0]) for match in NUMBER.finditer(picked) if "." not in match[0]}
        if numbers:
            return [row for row in rows if number_of(filled, row) in numbers]
        words |= {stem(word) for word in content_words(picked)} - {"one", "number"}
    for date in filled.dates:
        found = [row for row in found if date in json.dumps(row)]
    kinds = (filled.tool.words - filled.tool.own) & set(map(stem, words_of(filled.message.command))) - KINDS.keys()
    named = [row for row in found if kinds & _stems(row)]
    if words:
        exact = [row for row in found if words <= _stems(row)]
        found = exact or [row for row in found if words & _stems(row)]
        if exact and named and not any(row in named for row in exact):
            return [*exact, *named]  # "the meeting and the dentist"
        return found if exact or not found else [*found, {}]  # some of the words are no clear sign
    if kinds:  # "the meeting", of events
        found = named or [*found, *([{}] if found else [])]
    return found


def number_of(filled: Filled, row: Row) -> Any:
    """The number of a row, under the name of the field that takes it, or a usual one."""
    assert filled.row is not None
    return next((row[name] for name in (filled.row.name, "number", "id") if name in row), None)


def arguments_for(filled: Filled, row: Row) -> dict[str, Any]:
    """The arguments of the deed for this row. Of a moment of which half is said the other half stays."""
    assert filled.row is not None
    number = number_of(filled, row)
    arguments = {**filled.arguments, filled.row.name: [number] if filled.tool.takes(filled.row) == "rows" else number}
    if filled.needs_moment and filled.message.when is not None:
        day, clock = filled.message.when
        for field in filled.tool.fields:
            old = _moment(row.get(field.name)) if field.name in arguments else None
            if old is not None and filled.tool.takes(field) == "moment":
                moment = datetime.datetime.combine(day or old.date(), clock or old.time(), old.tzinfo)
                arguments[field.name] = moment.isoformat(timespec="seconds")
    return arguments


def _moment(value: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return None


def _stems(row: Row) -> set[str]:
    """Stems of the words that a row is called by."""
    texts = [str(value) for name, value in row.items() if isinstance(value, str) and name not in ("status", "due")]
    return {stem(word) for text in texts for word in words_of(text)}
