"""The forms of runtime settings: one pattern of a layer, and what a layer says of all tools together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms

from capabilities.contract.knobs import ALL_KNOBS, KNOBS, PROGRAM_LIST, SHARED_KNOBS, Knob
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.contract.runtime import PROFILES

NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")
#: Names of fields begin with it, so that no knob's name is a form's own.
PREFIX = "knob_"
CHOICES = {"first_time": "The first time in a session", "allow-list": "Programs on the list", "off": "Never"}


def knob_field(knob: Knob) -> forms.Field:
    """A field for one knob; empty: the layer says nothing of it."""
    about: dict[str, Any] = {"required": False, "label": knob.title, "help_text": f"{knob.help} {_range(knob)}".strip()}
    if knob.type == "choice":
        options = [(each, CHOICES.get(each, each.replace("_", " ").capitalize())) for each in knob.choices]
        return forms.ChoiceField(choices=[("", "Not set"), *options], **about)
    if knob.type == "switch":
        return forms.ChoiceField(choices=[("", "Not set"), ("yes", "Yes"), ("no", "No")], **about)
    if knob.type == PROGRAM_LIST:
        return forms.CharField(max_length=7_000, widget=forms.Textarea(attrs={"rows": 2}), **about)
    return forms.CharField(max_length=30, widget=forms.TextInput(attrs={"inputmode": "decimal"}), **about)


def _range(knob: Knob) -> str:
    return f"From {knob.range_text}." if knob.minimum is not None else ""


def typed(knob: Knob, text: str) -> Any:
    """The value that a text stands for; the text itself where it stands for none: the write says what is wrong."""
    text = text.strip()
    if knob.type == "switch":
        return {"yes": True, "no": False}.get(text, text)
    if knob.type == PROGRAM_LIST:
        return [] if text == "none" else [each for each in re.split(r"[\s,]+", text) if each]
    if knob.type in ("number", "integer") and NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def as_typed(value: Any) -> str:
    """A stored value as its field shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "\n".join(map(str, value)) or "none"
    return "" if value is None else str(value)


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
        """What cannot be read is said beside its field."""
        for name, value in self.knobs().items():
            read = self.table[name].read(value)
            if read.kind in ("malformed", "dropped"):
                self.add_error(PREFIX + name, f"{read.note[0].upper()}{read.note[1:]}.")
        return self.cleaned_data

    def knobs(self) -> dict[str, Any]:
        """What was filled in, by the knobs' names."""
        filled = {name: self.cleaned_data.get(PREFIX + name, "") for name in self.table}
        return {name: typed(self.table[name], text) for name, text in filled.items() if text.strip()}


class PatternForm(KnobsForm):
    """One pattern of a layer."""

    pattern = forms.CharField(
        max_length=MAX_PATTERN,
        label="Tools",
        help_text="A tool’s name, a pattern such as mail_*, group: and a category, or * for all.",
    )

    def __init__(self, *args: Any, pattern: str = "", stored: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, table=KNOBS, stored=stored, initial={"pattern": pattern}, **kwargs)


class SharedForm(KnobsForm):
    """A layer's profile, and what it says of all tools together."""

    profile = forms.ChoiceField(
        required=False,
        choices=[("", "None"), *((name, name) for name in PROFILES)],
        help_text="Settings that come with toolhub; what is set here counts more. zeus: the shell runs any command.",
    )

    def __init__(self, *args: Any, stored: Mapping[str, Any], **kwargs: Any) -> None:
        initial = {"profile": stored.get("profile", "")}
        super().__init__(*args, table=SHARED_KNOBS, stored=stored, initial=initial, **kwargs)


def further_knobs(text: str) -> dict[str, Any]:
    """Knobs that were typed as lines of `name: value`. Raises ValueError with a sentence for the first that is none."""
    found: dict[str, Any] = {}
    for line in filter(None, (each.strip() for each in text.splitlines())):
        name, colon, value = (each.strip() for each in line.partition(":"))
        if not colon or name not in KNOBS:
            known = ", ".join(knob.name for knob in ALL_KNOBS)
            raise ValueError(f"“{line[:60]}” is no knob and value; write such as ask: always. Knobs: {known}.")
        found[name] = typed(KNOBS[name], value)
    return found


def as_lines(knobs: Mapping[str, Any]) -> str:
    """Further knobs as `further_knobs` reads them."""
    return "\n".join(f"{name}: {as_typed(value).replace(chr(10), ' ')}" for name, value in knobs.items())
