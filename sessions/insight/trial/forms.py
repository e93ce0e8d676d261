"""The form that a tool's JSON Schema makes, for running the tool by hand. The schema itself has the last word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from capabilities.contract.argument_fields import ArgumentField, argument_fields
from toolhub.bounded_json import load_json

MAX_TEXT = 100_000


class TrialForm(forms.Form):
    """A field for each argument, or one for all of them as JSON. Names of arguments stand behind a prefix."""

    confirm = forms.BooleanField(
        label="It may change something: run it all the same",
        error_messages={"required": "Tick this: the call is not a rehearsal."},
    )

    def __init__(
        self, *args: Any, schema: dict[str, Any], effect: str, given: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """`given` are arguments that the fields begin with."""
        super().__init__(*args, **kwargs)
        self.arguments = argument_fields(schema)
        if given is not None:
            self.initial = _initial(self.arguments, given)
        if effect == "read":
            del self.fields["confirm"]
        if self.arguments is None:
            self.fields["arg-"] = _json_field("Arguments", "One JSON object.", is_required=True)
        for argument in self.arguments or ():
            self.fields[f"arg-{argument.name}"] = _field(argument)
        if "confirm" in self.fields:
            self.order_fields([name for name in self.fields if name != "confirm"] + ["confirm"])

    def argument_rows(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name != "confirm"]

    def arguments_text(self) -> str:
        """The arguments as a model would send them. What was left empty is not given."""
        if self.arguments is None:
            return str(self.cleaned_data["arg-"])
        found = {}
        for argument in self.arguments:
            value = self.cleaned_data.get(f"arg-{argument.name}")
            if value not in (None, "") or (argument.is_required and argument.kind in ("string", "text")):
                found[argument.name] = _value(argument, value)
        return json.dumps(found, ensure_ascii=False)


def _initial(arguments: list[ArgumentField] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the fields show them; `_value` is the way back."""
    if arguments is None:
        return {"arg-": json.dumps(given, indent=2, ensure_ascii=False)}
    return {f"arg-{each.name}": _shown(each, given[each.name]) for each in arguments if each.name in given}


def _shown(argument: ArgumentField, value: Any) -> Any:
    match argument.kind:
        case "boolean" | "choice" | "json":
            return json.dumps(value, ensure_ascii=False)
        case "lines" if isinstance(value, list):
            return "\n".join(map(str, value))
    return value


def _field(argument: ArgumentField) -> forms.Field:
    help_text = argument.description
    if argument.default:
        help_text = f"{help_text} If not given: {argument.default}".strip()
    shared: dict[str, Any] = {
        "label": argument.name,
        "required": argument.is_required,
        "help_text": help_text,
    }
    plain = {"autocomplete": "off", "spellcheck": "false"}
    match argument.kind:
        case "integer":
            return forms.IntegerField(min_value=_whole(argument.minimum), max_value=_whole(argument.maximum), **shared)
        case "number":
            return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any"}), **shared)
        case "boolean":
            return forms.ChoiceField(choices=[("", "not given"), ("true", "yes"), ("false", "no")], **shared)
        case "choice":
            choices = [("", "not given")] + [(each, json.loads(each)) for each in argument.choices]
            return forms.ChoiceField(choices=choices, **shared)
        case "lines":
            shared["help_text"] = f"{help_text} One a line.".strip()
            return forms.CharField(max_length=MAX_TEXT, widget=forms.Textarea(attrs=plain | {"rows": 3}), **shared)
        case "json":
            return _json_field(argument.name, f"{help_text} As JSON.".strip(), is_required=argument.is_required)
        case "text":
            length = min(argument.max_length or MAX_TEXT, MAX_TEXT)
            return forms.CharField(
                max_length=length, strip=False, widget=forms.Textarea(attrs=plain | {"rows": 2}), **shared
            )
    return forms.CharField(max_length=argument.max_length, strip=False, widget=forms.TextInput(attrs=plain), **shared)


def _json_field(label: str, help_text: str, *, is_required: bool) -> forms.Field:
    widget = forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"})
    return forms.CharField(
        max_length=MAX_TEXT,
        label=label,
        required=is_required,
        help_text=help_text,
        widget=widget,
        validators=[_is_json],
        initial="{}" if label == "Arguments" else None,
    )


def _is_json(text: str) -> None:
    try:
        load_json(text)
    except ValueError as error:
        raise forms.ValidationError("This is not valid JSON.") from error


def _value(argument: ArgumentField, value: Any) -> Any:
    match argument.kind:
        case "boolean" | "choice" | "json":
            return load_json(value)
        case "lines":
            return [line.strip() for line in value.splitlines() if line.strip()]
        case "string" | "text":
            return value.replace("\r\n", "\n")
    return value


def _whole(bound: float | None) -> int | None:
    return int(bound) if bound is not None else None
