"""Lessons of a provider's refusals about one model, as they are stored with it: applied to each request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from capabilities.models import Dialect

#: Lessons that one model can hold; more would mean that it cannot be spoken to.
MAX_LESSONS = 12
#: Name in a lesson of the items of a conversation that add tools to it.
ADDED_TOOLS = "additional_tools"
#: Name in a lesson of the entries of `tools` that the provider searches itself.
TOOL_SEARCH = "tool_search"
#: Characters of the provider's words that are kept.
MAX_BECAUSE = 400


#: Meaning of each rule of the conversation, in words for people.
HISTORY_WORDS = {
    "call_ids": "Ids of calls are sent in the length that the model takes.",
    "no_empty_text": "Empty messages are sent with a word in them.",
    "no_null_text": "Replies that are all calls are sent with an empty text.",
    "no_system": "What stands for the system is sent with the user’s first message.",
    "system_first": "What stands for the system is sent in front.",
    "alternate": "Messages of one role in a row are sent as one.",
    "user_first": "The conversation is sent with a user’s message in front.",
    "answered_results": "A reply is sent behind the results of calls.",
}


class Teaches(StrEnum):
    #: The model is spoken to in the dialect `value`.
    DIALECT = "dialect"
    #: The parameter `name` is not sent.
    OMIT = "omit"
    #: The parameter `name` is called `value`.
    RENAME = "rename"
    #: The number in the parameter `name` is `value` at most.
    AT_MOST = "at_most"
    #: Replies of other models are sent with the field `name`, which this one always wants.
    FILL = "fill"
    #: Definitions of tools are sent under the rules `name` of `capabilities/contract/rendering`.
    RENDER = "render"
    #: The conversation is sent under the rule `name` of `sessions/loop/clients/fitting`, with the number `value`.
    HISTORY = "history"


@dataclass(frozen=True)
class Lesson:
    """One thing learned. `because` are the provider's words, text from outside; `at` is a moment as ISO 8601."""

    teaches: Teaches
    name: str
    value: str = ""
    because: str = ""
    at: str = ""

    @property
    def key(self) -> str:
        return f"{self.teaches}:{self.name}"

    @property
    def summary(self) -> str:
        """Lesson in words for people."""
        match self.teaches:
            case Teaches.DIALECT:
                return f"It is called with {Dialect(self.value).label}."
            case Teaches.OMIT:
                return f"{self.name} is not sent."
            case Teaches.RENAME:
                return f"{self.name} is sent as {self.value}."
            case Teaches.AT_MOST:
                return f"{self.name} is {int(self.value):,} at most."
            case Teaches.FILL:
                return f"Replies of other models are sent with {self.name}."
            case Teaches.RENDER:
                return f"Definitions of tools are sent in the form {self.name}."
            case Teaches.HISTORY:
                return HISTORY_WORDS.get(self.name, f"The conversation is sent under the rule {self.name}.")

    def as_json(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


def lessons_of(stored: object) -> tuple[Lesson, ...]:
    """Return the lessons that are stored, without rows that are none."""
    rows = stored if isinstance(stored, list) else []
    lessons = [_lesson(row) for row in rows if isinstance(row, Mapping)]
    return tuple(lesson for lesson in lessons if lesson is not None)


def _lesson(row: Mapping[str, Any]) -> Lesson | None:
    fields = {name: row[name] for name in ("name", "value", "because", "at") if isinstance(row.get(name), str)}
    if row.get("teaches") not in list(Teaches) or not fields.get("name"):
        return None
    lesson = Lesson(Teaches(row["teaches"]), **fields)
    if lesson.teaches is Teaches.DIALECT and lesson.value not in Dialect.values:
        return None
    has_number = lesson.teaches is Teaches.AT_MOST or (lesson.teaches is Teaches.HISTORY and lesson.value)
    return None if has_number and not lesson.value.isdecimal() else lesson


def with_lesson(lessons: Iterable[Lesson], new: Lesson) -> tuple[Lesson, ...]:
    """A newer one takes the place of one of the same key; the oldest fall where there are too many."""
    return (*(each for each in lessons if each.key != new.key), new)[-MAX_LESSONS:]


def learned_dialect(lessons: Iterable[Lesson]) -> str:
    """The dialect that a refusal named, or ""."""
    return next((each.value for each in lessons if each.teaches is Teaches.DIALECT), "")


def fills(lessons: Iterable[Lesson]) -> frozenset[str]:
    return frozenset(each.name for each in lessons if each.teaches is Teaches.FILL)


def learned_rules(lessons: Iterable[Lesson]) -> str:
    """The rules that definitions of tools are rendered by, which a refusal taught last; or ""."""
    return next((each.name for each in reversed(tuple(lessons)) if each.teaches is Teaches.RENDER), "")


def history_rules(lessons: Iterable[Lesson]) -> dict[str, int]:
    """The rules that the conversation is sent under, each with its number, 0 for none."""
    return {each.name: int(each.value or 0) for each in lessons if each.teaches is Teaches.HISTORY}


def refuses_added_tools(lessons: Iterable[Lesson]) -> bool:
    """Return whether the model takes no tools in the middle of a conversation."""
    return _omits(lessons, ADDED_TOOLS)


def refuses_tool_search(lessons: Iterable[Lesson]) -> bool:
    """Return whether the model's provider does not search tools itself."""
    return _omits(lessons, TOOL_SEARCH)


def _omits(lessons: Iterable[Lesson], name: str) -> bool:
    return any(each.teaches is Teaches.OMIT and each.name == name for each in lessons)


def corrected(
    parameters: Mapping[str, Any], lessons: Iterable[Lesson], *, chosen: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The parameters of a request as the model takes them. What a person chose keeps its value, whatever was learned
    before it was chosen."""
    sent = dict(parameters)
    for lesson in lessons:
        if lesson.name not in sent:
            continue
        if lesson.teaches is Teaches.RENAME:
            sent[lesson.value] = sent.pop(lesson.name)
        elif lesson.name in chosen:
            continue
        elif lesson.teaches is Teaches.OMIT:
            del sent[lesson.name]
        elif lesson.teaches is Teaches.AT_MOST:
            sent[lesson.name] = min(sent[lesson.name], int(lesson.value))
    return sent
