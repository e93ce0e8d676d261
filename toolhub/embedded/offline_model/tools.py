"""Tools of a request as the offline model reads them: words, what they do, parameters. A malformed schema has none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from capabilities.choosing.routing.documents import Document, document_of
from capabilities.choosing.routing.words import STOP_WORDS, content_words, stem, words_of
from capabilities.contract.argument_fields import ArgumentField, argument_fields
from capabilities.contract.effects import CHANGING, DESTROYING, READING
from capabilities.contract.parameters import resolved

#: Words that stand for each other, a row for each thing.
_ALIKE = (
    "task todo chore, grocery shopping, memory remember fact note, calendar event meeting appointment schedule, remind,"
    " weather rain, complete finish done, time day date weekday, web online"
)
ALIKE = [frozenset(map(stem, row.split())) for row in _ALIKE.split(",")]
#: Words of messages that say nothing of what is meant.
FILLERS = frozenset(
    map(stem, ["left", "remaining", "now", "currently", "still", "there", "one", "ones", "thing", "please", "today's"])
)
#: Verbs by which a thing gets another time.
RESCHEDULING = frozenset(map(stem, ["move", "reschedule", "postpone", "shift", "delay", "push"]))
#: Verbs of one deed, a row each: a tool that has one of a row serves no verb of another row.
ADDING, ALTERING, ENDING = (
    frozenset(map(stem, row.split()))
    for row in (
        "add create schedule put book plan insert append new reserve",
        "move reschedule postpone change update edit rename shift push delay",
        "complete finish mark check tick done",
    )
)
CHANGING_TOO = "change remember remind keep note finish reschedule postpone rename shift delay plan tick"
#: What a verb does, by its stem: the words by which the catalogue guesses effects, and more of those of messages.
KINDS = {
    **dict.fromkeys(map(stem, (*READING, "tell", "give", "recall", "convert")), "read"),
    **dict.fromkeys(map(stem, (*CHANGING, *CHANGING_TOO.split())), "change"),
    **dict.fromkeys(map(stem, (*DESTROYING, "cancel")), "destroy"),
}


class Tool(NamedTuple):
    """One definition. `verbs`: stems of its name and of its description's first word; `kind`: what they do. `words`:
    stems of its name and summary, and their like; `own`: without their like."""

    name: str
    description: str
    document: Document
    kind: str
    verbs: list[str]
    words: set[str]
    schema: Mapping[str, Any]
    fields: list[ArgumentField]
    own: set[str]

    def unnamed(self, text: str) -> set[str]:
        """The stems of the text's words of substance that are not the tool's."""
        return {*map(stem, content_words(text))} - self.words - FILLERS

    @property
    def alters(self) -> bool:
        """True where it changes a thing that is there."""
        return self.kind == "change" and not ALTERING.isdisjoint(self.verbs)

    @property
    def nouns(self) -> set[str]:
        """Stems of its name that say what it is about."""
        roots = {*map(stem, words_of(self.name))}
        return {root for root in roots if KINDS.get(root) not in ("read", "destroy")} - ADDING - ALTERING - ENDING

    def does(self, deed: str) -> bool:
        """Return whether the verb of this stem is no other deed than its own."""
        rows = [row for row in (ADDING, ALTERING, ENDING) if not row.isdisjoint(self.verbs)]
        return (
            not rows or not any(deed in row for row in (ADDING, ALTERING, ENDING)) or any(deed in row for row in rows)
        )

    def takes(self, field: ArgumentField) -> str:
        """Return the kind of value of a field: a text may be a sum, a date, a moment, a time zone or a unit, an integer
        the number of a row, by its name and schema."""
        if field.is_required and self.kind in ("change", "destroy"):
            items = resolved(self.schema["properties"][field.name], self.schema).get("items")
            if isinstance(items, dict) and items.get("type") == "integer":
                return "rows"
            if field.kind == "integer" and re.search(r"(?:^|_)(?:number|id)$", field.name):
                return "row"
        if field.kind not in ("string", "text"):
            return field.kind
        if re.fullmatch("time_?zone", field.name):
            return "zone" if "time" in words_of(self.name) else "text"
        if re.fullmatch("(?:from|to)_unit", field.name):
            return "unit"
        schema = json.dumps(self.schema["properties"][field.name])
        is_dated = re.match("when|date|due|start|end", field.name) and re.search("[Dd]ay|date|YYYY", schema)
        if is_dated or '"format": "date' in schema:
            return "moment" if re.search(r"date-time|\btime\b|HH", schema) else "date"
        return "sum" if field.name == "expression" else "text"


def related_words(words: set[str]) -> set[str]:
    """The stems that stand for one of these, themselves among them."""
    return {other for row in ALIKE if row & words for other in row}


def read_tools(definitions: object) -> list[Tool]:
    """The tools of a request; what is not a function with a name is left out."""
    listed = definitions if isinstance(definitions, list) else []
    functions = [each.get("function") for each in listed if isinstance(each, dict)]
    named = [each for each in functions if isinstance(each, dict) and isinstance(each.get("name"), str)]
    return [_tool(json.dumps(each, sort_keys=True)) for each in named if each["name"]]


@lru_cache(maxsize=2_000)
def _tool(source: str) -> Tool:
    function = json.loads(source)
    name, text, schema = function["name"], function.get("description"), function.get("parameters")
    description = text if isinstance(text, str) else ""
    summary = re.sub(r"\bthe (?:user|member)\b", "", description.partition(". ")[0])
    begins = words_of(summary)[:1]
    verbs = [stem(word) for word in (*begins, *words_of(name))]
    kind = next((KINDS[verb] for verb in verbs if verb in KINDS), "read" if STOP_WORDS.issuperset(begins) else "")
    words = {*map(stem, content_words(f"{name} {summary}"))}
    schema = schema if isinstance(schema, dict) else {}
    fields = argument_fields(schema) or []
    return Tool(
        name, description, document_of(function), kind, verbs, words | related_words(words), schema, fields, words
    )
