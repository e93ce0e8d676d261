"""The form of a toolkit. Its tools come beside it: a checkbox, a place and the overrides of each that is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from capabilities.agents.toolkits.writes import (
    MAX_CATEGORIES,
    MAX_DESCRIPTION,
    MAX_TOOLS,
    ToolkitContent,
    ToolkitLine,
    content_of,
)
from capabilities.agents.typed_knobs import as_lines, further_knobs
from capabilities.common.names_field import NamesField, in_places
from capabilities.common.picker import Fields, with_kept
from capabilities.common.short_names import CATEGORY_NAME
from capabilities.models import Toolkit

SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
CHARS = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True)
class ToolRow:
    """A tool of the toolkit as the form shows it: what was typed beside it, and what the tool itself says."""

    name: str
    position: int
    timeout: str
    chars: str
    knobs: str = ""
    own_timeout: float | None = None
    own_chars: int | None = None

    def fields(self) -> Fields:
        typed = [
            (f"timeout-{self.name}", self.timeout),
            (f"chars-{self.name}", self.chars),
            (f"knobs-{self.name}", self.knobs),
        ]
        return [("tools", self.name), (f"place-{self.name}", str(self.position)), *(pair for pair in typed if pair[1])]


class ToolkitForm(forms.Form):
    """Names are looked up where they are written, in the scope of the organisation."""

    name = forms.RegexField(
        CATEGORY_NAME,
        max_length=64,
        help_text="For agents, models and the API: letters, digits, _ and -.",
        error_messages={"invalid": "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -."},
    )
    description = forms.CharField(
        required=False,
        max_length=MAX_DESCRIPTION,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="What it is for. The model chooses by this text what to load.",
    )
    tools = NamesField("tool", MAX_TOOLS)
    categories = NamesField("category", MAX_CATEGORIES, label="Whole categories")

    def __init__(self, data: QueryDict | None = None, *, toolkit: Toolkit | None = None) -> None:
        if data is not None:
            data = with_kept(data, "tools", "categories")
        stored = content_of(toolkit) if toolkit is not None else ToolkitContent("")
        super().__init__(data, initial={"name": stored.name, "description": stored.description})
        #: As posted, else as stored.
        self.lines = posted_lines(data) if data is not None else tuple(_typed(line) for line in stored.tools)
        self.chosen_categories = data.getlist("categories") if data is not None else list(stored.categories)

    def clean_tools(self) -> tuple[str, ...]:
        """The first value beside a tool that is no number is said with its tool."""
        for name, timeout, chars, knobs in self.lines:
            try:
                further_knobs(knobs)
            except ValueError as error:
                raise forms.ValidationError(f"{name}: {error}") from error
            if timeout and not SECONDS.fullmatch(timeout):
                raise forms.ValidationError(f"{name}: give the timeout as seconds, such as 60, or leave it blank.")
            if chars and not CHARS.fullmatch(chars):
                raise forms.ValidationError(f"{name}: give the characters as a whole number, such as 20000, or none.")
        names: tuple[str, ...] = self.cleaned_data["tools"]
        return names

    def content(self) -> ToolkitContent:
        data = self.cleaned_data
        lines = tuple(
            ToolkitLine(name, float(timeout) if timeout else None, int(chars) if chars else None, further_knobs(knobs))
            for name, timeout, chars, knobs in self.lines
        )
        return ToolkitContent(data["name"], data["description"].replace("\r\n", "\n"), lines, data["categories"])

    def rows(self) -> Sequence[ToolRow]:
        return [
            ToolRow(name, number, timeout, chars, knobs)
            for number, (name, timeout, chars, knobs) in enumerate(self.lines, start=1)
        ]


def posted_lines(data: QueryDict) -> tuple[tuple[str, str, str, str], ...]:
    """(name, timeout, characters, further knobs) as typed, in the order of the places."""
    return tuple(
        (
            name,
            data.get(f"timeout-{name}", "").strip(),
            data.get(f"chars-{name}", "").strip(),
            data.get(f"knobs-{name}", "").strip(),
        )
        for name in in_places(data, "tools", MAX_TOOLS)
    )


def _typed(line: ToolkitLine) -> tuple[str, str, str, str]:
    def text(value: Any) -> str:
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    return line.tool, text(line.timeout), text(line.max_result_chars), as_lines(line.knobs)
