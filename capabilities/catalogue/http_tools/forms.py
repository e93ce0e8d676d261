"""The form of an HTTP tool: the request, a row for each argument, what of the answer the model reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict

from capabilities.catalogue.categories.queries import category_names
from capabilities.catalogue.http_tools.queries import credential_choices
from capabilities.catalogue.http_tools.writes import EFFECTS, ON_CRASH, USUAL, HttpToolContent
from capabilities.catalogue.tools.writes import MAX_DESCRIPTION, MAX_HUMAN_FORMAT, Definition
from capabilities.common.refused import ChangeRefused
from capabilities.contract.http_tool import MAX_ARGUMENTS, METHODS, PLACES
from capabilities.contract.knobs import KNOBS
from capabilities.contract.trust import IN_UNTRUSTED
from capabilities.models import Tool
from toolhub.bounded_json import load_json

PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
#: Empty rows for arguments that a page has beside the filled ones, and that "Add rows" adds.
EMPTY_ROWS = 3
TYPES = (
    ("string", "Text"),
    ("integer", "Whole number"),
    ("number", "Number"),
    ("boolean", "Yes or no"),
    ("array", "List of texts"),
    ("object", "Object"),
    ("", "As the schema says"),
)
WHOLE = "whole"
PLACE_TITLES = {
    "path": "Path",
    "query": "Query",
    "header": "Header",
    "cookie": "Cookie",
    "body": "JSON body",
    WHOLE: "Whole body",
    "form": "Form",
    "file": "File",
}
STYLES = sorted({style for styles in PLACES.values() for style in styles if style})
EFFECT_TITLES = {
    "read": "It only reads",
    "write": "It changes data of this organisation",
    "external": "It changes something outside",
}
ON_CRASH_TITLES = {
    "never": "Never send it again",
    "retry": "Send it again",
    "retry_with_key": "Send it again, with the same Idempotency-Key",
}
IN_UNTRUSTED_TITLES = {"allow": "It runs", "ask": "It runs when a person approves it", "refuse": "It is refused"}
#: Fields of the form that show what a refusal says of a part of the request.
PARTS = {
    "implementation.method": "method",
    "implementation.url": "url",
    "implementation.headers": "headers",
    "implementation.query": "query",
    "implementation.body": "media_type",
    "implementation.response.pointer": "pointer",
    "implementation.response.fields": "kept",
    "implementation.response.text": "as_text",
}


class PairsField(forms.CharField):
    """Names and values, one pair a line, as an object. `mark` stands between both."""

    def __init__(self, mark: str, **kwargs: Any) -> None:
        self.mark = mark
        widget = forms.Textarea(attrs={"rows": 2, **PLAIN})
        super().__init__(required=False, max_length=20_000, widget=widget, **kwargs)

    def clean(self, value: Any) -> Any:
        found: dict[str, str] = {}
        for line in super().clean(value).splitlines():
            if not line.strip():
                continue
            name, mark, text = line.partition(self.mark)
            if not mark or not name.strip():
                raise ValidationError(f"Each line is a name, {self.mark} and a value: {line.strip()[:80]}")
            if name.strip() in found:
                raise ValidationError(f"{name.strip()[:80]} stands there twice.")
            found[name.strip()] = text.strip()
        return found


class ObjectField(forms.CharField):
    """A JSON object; blank is an empty one."""

    def __init__(self, rows: int, **kwargs: Any) -> None:
        widget = forms.Textarea(attrs={"rows": rows, **PLAIN})
        super().__init__(required=False, max_length=100_000, widget=widget, **kwargs)

    def clean(self, value: Any) -> Any:
        text = super().clean(value).strip()
        try:
            found = load_json(text or "{}")
        except ValueError as error:
            raise ValidationError(f"This {str(error)[:200]}") from error
        if not isinstance(found, dict):
            raise ValidationError("Give a JSON object, in braces.")
        return found


class HttpToolForm(forms.Form):
    """Form of all but the arguments, which are ArgumentForms."""

    name = forms.CharField(
        max_length=64,
        help_text="What models call it: letters, digits, _ and -. It stays.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    category = forms.ChoiceField(help_text="Its rules and grants decide who may use the tool.")
    description = forms.CharField(
        max_length=MAX_DESCRIPTION,
        label="Description for the model",
        help_text="What it does, and when to use it. The model chooses by this text.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    method = forms.ChoiceField(choices=[(each, each) for each in METHODS])
    url = forms.CharField(
        max_length=2_000,
        label="Address",
        help_text="Such as https://api.example.org/users/{id}: each {name} is an argument of the path. The host stays.",
        widget=forms.TextInput(attrs={"inputmode": "url", **PLAIN}),
    )
    credential = forms.ChoiceField(required=False, help_text="It signs each call. Models never see it.")
    headers = PairsField(":", label="Fixed headers", help_text="One a line, such as Accept-Language: en.")
    query = PairsField("=", label="Fixed values of the query", help_text="One a line, such as version=2.")
    media_type = forms.CharField(
        required=False,
        max_length=200,
        label="Media type of the body",
        help_text="Blank: application/json, or what forms and files need.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    pointer = forms.CharField(
        required=False,
        max_length=200,
        label="Part of the answer",
        help_text="A JSON pointer to what the model reads, such as /data/items. Blank: the whole answer.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    kept = forms.CharField(
        required=False,
        max_length=5_000,
        label="Fields of the answer",
        help_text="Only these are kept, of an object or of each object of a list. One a line, such as owner.name.",
        widget=forms.Textarea(attrs={"rows": 2, **PLAIN}),
    )
    as_text = forms.BooleanField(required=False, label="Read the answer as it is, as text")
    human_format = forms.CharField(
        required=False,
        max_length=MAX_HUMAN_FORMAT,
        label="A call in one line for people",
        help_text="Such as Reading user {id}: {names} are arguments.",
    )
    effect = forms.ChoiceField(choices=[(each, EFFECT_TITLES[each]) for each in EFFECTS])
    on_crash = forms.ChoiceField(
        choices=[(each, ON_CRASH_TITLES[each]) for each in ON_CRASH],
        label="After a crash in the middle of a call",
    )
    untrusted_output = forms.BooleanField(
        required=False, label="Its results are text from outside", initial=USUAL.untrusted_output
    )
    in_untrusted = forms.ChoiceField(
        choices=[(each, IN_UNTRUSTED_TITLES[each]) for each in IN_UNTRUSTED], label="After text from outside"
    )
    timeout = forms.FloatField(
        min_value=KNOBS["timeout_sec"].minimum,
        max_value=KNOBS["timeout_sec"].maximum,
        initial=USUAL.timeout,
        label="Seconds for a call",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    max_result_chars = forms.IntegerField(
        min_value=200,
        max_value=1_000_000,
        initial=USUAL.max_result_chars,
        label="Characters of a result",
    )
    sample = ObjectField(
        3, label="Arguments of the preview", help_text="A JSON object. Blank: some that fit are made up."
    )

    def __init__(self, data: Any = None, *, tool: Tool | None = None, initial: Any = None) -> None:
        """Make the form. One query, and one for the categories of a new tool."""
        super().__init__(data, initial=initial)
        self.tool = tool
        self.fields["credential"].choices = [("", "None"), *credential_choices()]  # type: ignore[attr-defined]
        if tool is None:
            self.fields["category"].choices = category_names()  # type: ignore[attr-defined]
        else:
            del self.fields["name"], self.fields["category"]

    def sample_given(self) -> Mapping[str, Any] | None:
        return self.cleaned_data["sample"] if self.data.get("sample", "").strip() else None


class ArgumentForm(forms.Form):
    """One argument: what the model reads of it, and where it goes. A row without a name is left out."""

    name = forms.CharField(required=False, max_length=64, widget=forms.TextInput(attrs=PLAIN))
    type = forms.ChoiceField(required=False, choices=TYPES, initial="string")
    place = forms.ChoiceField(required=False, choices=list(PLACE_TITLES.items()), initial="query", label="Goes into")
    is_required = forms.BooleanField(required=False, label="Required")
    description = forms.CharField(required=False, max_length=2_000, label="Meaning, for the model")
    sent_as = forms.CharField(
        required=False,
        max_length=200,
        label="Name in the request",
        help_text="Blank: the same name.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    style = forms.ChoiceField(
        required=False,
        choices=[("", "The usual one"), *((each, each) for each in STYLES)],
        label="Style of lists and objects",
    )
    explode = forms.ChoiceField(
        required=False,
        choices=[("", "As usual"), ("yes", "Yes"), ("no", "No")],
        label="A value of its own for each item",
    )
    schema = ObjectField(2, label="More of its JSON Schema", help_text='Such as {"enum": ["open", "closed"]}.')

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"].strip()
        filled = any(self.data.get(self.add_prefix(each), "").strip() for each in ("description", "sent_as", "schema"))
        if not name and filled:
            raise ValidationError("Give the argument a name, or empty its row.")
        return name

    def property(self) -> dict[str, Any]:
        """The argument in the schema."""
        kind, found = self.cleaned_data["type"], {}
        if kind:
            found["type"] = kind
        if kind == "array":
            found["items"] = {"type": "string"}
        found |= self.cleaned_data["schema"]
        if text := self.cleaned_data["description"].strip():
            found["description"] = text
        return found

    def place_json(self) -> dict[str, Any]:
        """The argument in the implementation."""
        data = self.cleaned_data
        location = "body" if data["place"] == WHOLE else data["place"] or "query"
        found = {"in": location, "name": data["sent_as"].strip() or data["name"], "style": data["style"]}
        return found | ({"explode": data["explode"] == "yes"} if data["explode"] else {})


if TYPE_CHECKING:
    BaseRows = forms.BaseFormSet[ArgumentForm]
else:
    BaseRows = forms.BaseFormSet


class ArgumentRows(BaseRows):
    """The rows, as part of one content."""

    def filled(self) -> Iterator[ArgumentForm]:
        return (form for form in self.forms if form.cleaned_data.get("name"))

    def clean(self) -> None:
        seen: set[str] = set()
        for form in self.forms:
            name = form.cleaned_data.get("name", "") if hasattr(form, "cleaned_data") else ""
            if name in seen:
                form.add_error("name", f"There is an argument {name} already.")
            if name:
                seen.add(name)


ArgumentFormSet = forms.formset_factory(
    ArgumentForm, formset=ArgumentRows, extra=EMPTY_ROWS, max_num=MAX_ARGUMENTS, absolute_max=MAX_ARGUMENTS + EMPTY_ROWS
)


def argument_rows(data: Any = None, initial: Sequence[Mapping[str, Any]] = ()) -> ArgumentRows:
    """The rows as they were sent, or as stored with some empty ones."""
    rows: Any = ArgumentFormSet(data, initial=list(initial), prefix="arguments")
    found: ArgumentRows = rows
    return found


# -- What is stored, as fields -----------------------------------------------------------------------------------------


def content_of_forms(form: HttpToolForm, rows: ArgumentRows, tool: Tool | None, before: Mapping[str, Any]) -> Any:
    """The content that both forms say. `before` is the schema of the arguments that is stored: what of it no row shows,
    such as $defs, stays."""
    data = form.cleaned_data
    arguments = list(rows.filled())
    parameters = {name: value for name, value in before.items() if name not in ("properties", "required")}
    parameters |= {"type": "object", "properties": {each.cleaned_data["name"]: each.property() for each in arguments}}
    if not before:
        parameters["additionalProperties"] = False
    if required := [each.cleaned_data["name"] for each in arguments if each.cleaned_data["is_required"]]:
        parameters["required"] = required
    whole = [each.cleaned_data["name"] for each in arguments if each.cleaned_data["place"] == WHOLE]
    implementation = {
        "method": data["method"],
        "url": data["url"].strip(),
        "arguments": {each.cleaned_data["name"]: each.place_json() for each in arguments},
        "headers": data["headers"],
        "query": data["query"],
        "body": {"media_type": data["media_type"].strip(), "argument": whole[0] if whole else ""},
        "response": {
            "pointer": data["pointer"].strip(),
            "fields": [line.strip() for line in data["kept"].splitlines() if line.strip()],
            "text": data["as_text"],
        },
    }
    definition = Definition(
        tool.name if tool else data["name"].strip(),
        data["description"].replace("\r\n", "\n"),
        parameters,
        effect=data["effect"],
        on_crash=data["on_crash"],
        timeout=data["timeout"],
        max_result_chars=data["max_result_chars"],
        untrusted_output=data["untrusted_output"],
        in_untrusted=data["in_untrusted"],
        implementation=implementation,
        human_format=data["human_format"].strip(),
    )
    return HttpToolContent(definition, data["credential"], data.get("category", ""))


def initial_of(content: HttpToolContent) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The fields of the form and of its rows that say this content."""
    definition = content.definition
    request = definition.implementation
    body, response = request.get("body") or {}, request.get("response") or {}
    names = ("description", "human_format", "effect", "on_crash", "untrusted_output", "in_untrusted", "timeout")
    initial = {name: getattr(definition, name) for name in (*names, "max_result_chars")}
    initial |= {
        "method": request.get("method"),
        "url": request.get("url"),
        "credential": content.credential,
        "headers": "\n".join(f"{name}: {value}" for name, value in (request.get("headers") or {}).items()),
        "query": "\n".join(f"{name}={value}" for name, value in (request.get("query") or {}).items()),
        "media_type": body.get("media_type", ""),
        "pointer": response.get("pointer", ""),
        "kept": "\n".join(response.get("fields") or ()),
        "as_text": response.get("text", False),
    }
    required = definition.parameters.get("required") or []
    rows = [
        _row(str(name), each, (request.get("arguments") or {}).get(name) or {}, name in required)
        | ({"place": WHOLE} if name == body.get("argument") else {})
        for name, each in (definition.parameters.get("properties") or {}).items()
    ]
    return initial, rows


def _row(name: str, schema: Any, location: Mapping[str, Any], is_required: bool) -> dict[str, Any]:
    more = dict(schema) if isinstance(schema, Mapping) else {}
    kind = more.get("type")
    known = isinstance(kind, str) and kind in dict(TYPES) and (kind != "array" or "items" in more)
    description = more.pop("description", "") if isinstance(more.get("description", ""), str) else ""
    if known:
        del more["type"]
    if kind == "array" and more.get("items") == {"type": "string"}:
        del more["items"]
    explode = location.get("explode")
    return {
        "name": name,
        "type": kind if known else "",
        "place": location.get("in", "query"),
        "is_required": is_required,
        "description": description,
        "sent_as": "" if location.get("name") == name else location.get("name", ""),
        "style": location.get("style", ""),
        "explode": "" if explode is None else ("yes" if explode else "no"),
        "schema": json.dumps(more, ensure_ascii=False) if more else "",
    }


def typed(data: QueryDict, tool: Tool | None) -> tuple[HttpToolForm, ArgumentRows]:
    """The forms with what was typed, unchecked, and more empty rows."""
    names = [name for name in HttpToolForm.base_fields if tool is None or name not in ("name", "category")]
    checks = {name for name, field in HttpToolForm.base_fields.items() if isinstance(field, forms.BooleanField)}
    initial = {name: name in data if name in checks else data.get(name, "") for name in names}
    try:
        count = min(int(data.get("arguments-TOTAL_FORMS", "0")), MAX_ARGUMENTS)
    except ValueError:
        count = 0
    rows = [
        {
            name: f"arguments-{number}-{name}" in data
            if name == "is_required"
            else data.get(f"arguments-{number}-{name}", "")
            for name in ArgumentForm.base_fields
        }
        for number in range(count)
    ]
    return HttpToolForm(tool=tool, initial=initial), argument_rows(initial=[row for row in rows if row["name"]])


def show_http_refusal(form: HttpToolForm, rows: ArgumentRows, error: ChangeRefused) -> None:
    """Put a refusal beside its field: those of an argument beside its row."""
    argument = error.field.removeprefix("implementation.arguments.")
    if argument != error.field:
        for row in rows.filled():
            if row.cleaned_data["name"] == argument:
                row.add_error("name", str(error))
                return
    part = next((name for prefix, name in PARTS.items() if error.field.startswith(prefix)), error.field)
    form.add_error(part if part in form.fields else None, str(error))
