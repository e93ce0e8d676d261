"""The editor of a Python tool, and the form of a saved test."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django import forms

from capabilities.catalogue.python_tools.checks import PythonContent
from capabilities.models import Category, Tool, ToolVersion
from capabilities.running.sandbox import MAX_CODE, RUNTIMES, isolation
from toolhub.bounded_json import load_json

_MONO = {"class": "mono", "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
_HELPER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s+v?(\d{1,6})\Z")
BEGIN = 'def run(text):\n    return {"transformed": text.upper()}\n'
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What to write in capitals"}},
    "required": ["text"],
}
RUNTIME_TITLES = {"monty": "A part of Python, started in milliseconds", "full": "Full Python"}


def _is_object(text: str) -> None:
    try:
        value = load_json(text)
    except ValueError as error:
        raise forms.ValidationError(f"This {str(error)[:200]}.") from error
    if not isinstance(value, dict):
        raise forms.ValidationError("Write one JSON object.")


class PythonToolForm(forms.Form):
    """Form of a Python tool. `tool` is the one that gets a version; None for a new one, which is named and put into a
    category here."""

    name = forms.CharField(max_length=64, help_text="Letters, digits, _ and -. The model calls it by this.")
    category = forms.ChoiceField()
    description = forms.CharField(
        label="Description for the model", max_length=8_000, widget=forms.Textarea(attrs={"rows": 3})
    )
    parameters = forms.CharField(
        label="Arguments, as JSON Schema",
        max_length=100_000,
        validators=[_is_object],
        widget=forms.Textarea(attrs=_MONO | {"rows": 9}),
    )
    code = forms.CharField(
        label="Code",
        max_length=MAX_CODE,
        strip=False,
        help_text="A function run, which takes the arguments by name and returns JSON.",
        widget=forms.Textarea(attrs=_MONO | {"rows": 18, "wrap": "off"}),
    )
    runtime = forms.ChoiceField()
    helpers = forms.CharField(
        label="Modules",
        required=False,
        help_text="Modules of the organisation that the code imports: one a line, with its version, such as prices 2.",
        widget=forms.Textarea(attrs=_MONO | {"rows": 2}),
    )
    human_format = forms.CharField(
        label="A call in one line",
        required=False,
        max_length=300,
        help_text="For people. Arguments stand in braces: Writing {text} in capitals",
    )
    instructions = forms.CharField(
        label="Instructions for the model", required=False, max_length=4_000, widget=forms.Textarea(attrs={"rows": 2})
    )
    effect = forms.ChoiceField(
        choices=[
            ("read", "Reads: changes nothing"),
            ("write", "Writes: changes data of this organisation"),
            ("external", "External: may change something elsewhere"),
        ]
    )
    timeout = forms.FloatField(label="Timeout in seconds", min_value=0.5, max_value=120)
    max_result_chars = forms.IntegerField(label="Longest result in characters", min_value=200, max_value=200_000)
    example = forms.CharField(
        label="Arguments of one call to try",
        required=False,
        max_length=20_000,
        help_text="One JSON object. Check runs the code with them; they are not saved.",
        widget=forms.Textarea(attrs=_MONO | {"rows": 3}),
    )

    def __init__(self, *args: Any, tool: Tool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ready = isolation()
        choices = [
            (each, f"{RUNTIME_TITLES[each]}{'' if ready.has(each) else ' (not available here)'}") for each in RUNTIMES
        ]
        self.fields["runtime"].choices = choices  # type: ignore[attr-defined]
        self.fields["runtime"].help_text = " ".join(ready.reason(each) for each in RUNTIMES if not ready.has(each))
        if tool is not None:
            del self.fields["name"], self.fields["category"]
        else:
            names = Category.objects.order_by("title", "name").values_list("name", "title")
            self.fields["category"].choices = list(names)  # type: ignore[attr-defined]

    def clean_helpers(self) -> dict[str, int]:
        found = {}
        for line in self.cleaned_data["helpers"].splitlines():
            if not line.strip():
                continue
            match = _HELPER.match(line.strip())
            if match is None:
                raise forms.ValidationError(f"“{line.strip()[:60]}” is no module with its version, such as prices 2.")
            found[match[1]] = int(match[2])
        return found

    def clean_example(self) -> dict[str, Any] | None:
        text = self.cleaned_data["example"].strip()
        if not text:
            return None
        _is_object(text)
        value: dict[str, Any] = load_json(text)
        return value

    def content(self, tool: Tool | None) -> PythonContent:
        """Return the content of the form, once it is valid."""
        data = self.cleaned_data
        return PythonContent(
            tool.name if tool else data["name"],
            data["description"],
            load_json(data["parameters"]),
            data["code"],
            data["runtime"],
            data["human_format"],
            data["instructions"],
            data["helpers"],
            data["effect"],
            data["timeout"],
            data["max_result_chars"],
        )


def initial_of(version: ToolVersion | None, modules: Mapping[str, int] = MappingProxyType({})) -> dict[str, Any]:
    """Return the values that the editor begins with; `modules`: versions of modules in place of those it imports."""
    if version is None:
        return {
            "parameters": json.dumps(SCHEMA, indent=2),
            "code": BEGIN,
            "runtime": "monty",
            "effect": "read",
            "timeout": 20,
            "max_result_chars": 40_000,
            "example": '{"text": "hello"}',
        }
    implementation = version.implementation
    helpers = {**(implementation.get("helpers") or {}), **modules}
    return {
        "description": version.description,
        "parameters": json.dumps(version.parameters, indent=2, ensure_ascii=False),
        "code": implementation.get("code", ""),
        "runtime": implementation.get("runtime", "monty"),
        "helpers": "\n".join(f"{name} {number}" for name, number in helpers.items()),
        "human_format": version.human_format,
        "instructions": version.instructions,
        "effect": version.effect,
        "timeout": version.timeout,
        "max_result_chars": version.max_result_chars,
    }


class ToolTestForm(forms.Form):
    """Form of a saved test: one call, and the result that it must have."""

    name = forms.CharField(label="Name of the test", max_length=100)
    arguments = forms.CharField(
        initial="{}", max_length=20_000, validators=[_is_object], widget=forms.Textarea(attrs=_MONO | {"rows": 2})
    )
    expected = forms.CharField(
        label="Expected",
        required=False,
        max_length=20_000,
        help_text="The result as JSON, or a part of the error. Empty: any.",
        widget=forms.Textarea(attrs=_MONO | {"rows": 2}),
    )
    expects_error = forms.ChoiceField(
        label="What comes of it", required=False, choices=[("", "a result"), ("1", "an error")]
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        text = data.get("expected", "").strip()
        if not data.get("expects_error") and text:
            try:
                data["expected"] = load_json(text)
            except ValueError:
                self.add_error("expected", "This is not valid JSON. A text stands in quotes.")
        else:
            data["expected"] = text or None
        return data
