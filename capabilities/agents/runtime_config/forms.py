"""The forms of runtime settings: one pattern of a layer, and what a layer says of all tools together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from capabilities.agents.typed_knobs import as_typed, typed
from capabilities.contract.knobs import KNOBS, PROGRAM_LIST, SHARED_KNOBS, Knob
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.contract.runtime import PROFILES

#: Names of fields begin with it, so that no knob's name is a form's own.
PREFIX = "knob_"


def knob_field(knob: Knob) -> forms.Field:
    """A field for one knob; empty: the layer says nothing of it."""
    about: dict[str, Any] = {"required": False, "label": knob.title, "help_text": f"{knob.help} {_range(knob)}".strip()}
    if knob.type == "choice":
        options = [(each, words[0].upper() + words[1:]) for each, words in knob.choice_words.items()]
        return forms.ChoiceField(choices=[("", "Not set"), *options], **about)
    if knob.type == "switch":
        return forms.ChoiceField(choices=[("", "Not set"), ("yes", "Yes"), ("no", "No")], **about)
    if knob.type == PROGRAM_LIST:
        return forms.CharField(max_length=7_000, widget=forms.Textarea(attrs={"rows": 2}), **about)
    return forms.CharField(max_length=30, widget=forms.TextInput(attrs={"inputmode": "decimal"}), **about)


def _range(knob: Knob) -> str:
    return f"From {knob.range_text}." if knob.minimum is not None else ""


class KnobsForm(forms.Form):
    """Fields of a table of knobs."""

    def __init__(self, *args: Any, table: Mapping[str, Knob], stored: Mapping[str, Any], **kwargs: Any) -> None:
        kwargs["initial"] = {
            **{PREFIX + name: as_typed(stored[name]) for name in table if name in stored},
            **(kwargs.get("initial") or {}),
        }
        super().__init__(*args, **kwargs)
        self.table = table
        for name, knob in table.items():
            self.fields[PREFIX + name] = knob_field(knob)

    def clean(self) -> dict[str, Any]:
        """Add an error beside each field that cannot be read."""
        for name, value in self.knobs().items():
            read = self.table[name].read(value)
            if read.kind in ("malformed", "dropped"):
                self.add_error(PREFIX + name, f"{read.note[0].upper()}{read.note[1:]}.")
        return self.cleaned_data

    def knobs(self) -> dict[str, Any]:
        """Return the values that were filled in, by the knobs' names."""
        filled = {name: self.cleaned_data.get(PREFIX + name, "") for name in self.table}
        return {name: typed(self.table[name], text) for name, text in filled.items() if text.strip()}


class PatternForm(KnobsForm):
    """One pattern of a layer."""

    pattern = forms.CharField(
        max_length=MAX_PATTERN,
        label="Tools",
        help_text="The name of a tool, a pattern such as mail_*, a category such as group:web, or * for all tools.",
    )

    def __init__(self, *args: Any, pattern: str = "", stored: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, table=KNOBS, stored=stored, initial={"pattern": pattern}, **kwargs)


class SharedForm(KnobsForm):
    """A layer's profile, and what it says of all tools together."""

    profile = forms.ChoiceField(
        required=False,
        choices=[("", "None"), *((name, name) for name in PROFILES)],
        help_text="Settings that come with toolhub. What is set here counts more. zeus: the shell runs any command.",
    )

    def __init__(self, *args: Any, stored: Mapping[str, Any], **kwargs: Any) -> None:
        initial = {"profile": stored.get("profile", "")}
        super().__init__(*args, table=SHARED_KNOBS, stored=stored, initial=initial, **kwargs)
