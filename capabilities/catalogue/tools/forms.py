"""Forms of tools, categories and services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.validators import RegexValidator

from capabilities.catalogue.categories.writes import CATEGORY_NAME, MAX_KEYWORDS, CategoryContent
from capabilities.catalogue.tools.writes import MAX_INSTRUCTIONS
from capabilities.common.names_field import ShortNameField
from capabilities.models import Category
from capabilities.registry import ServiceField
from capabilities.services.writes import MAX_VALUE, ShownService, binding_fields


class CatalogueFilter(forms.Form):
    """The catalogue's address: what is looked for, and where the page begins. A value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    state = forms.ChoiceField(
        required=False, choices=[("", "Any state"), ("on", "On"), ("off", "Off"), ("set-up", "Needs set-up")]
    )
    agent = forms.CharField(required=False, max_length=63)
    sort = forms.ChoiceField(
        required=False, choices=[("", "By name"), ("tokens", "Most tokens first"), ("used", "Last used first")]
    )
    after = forms.CharField(required=False, max_length=80)
    before = forms.CharField(required=False, max_length=80)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name, "") for name in self.fields}


class InstructionsForm(forms.Form):
    """Instructions of one tool. Their length is checked as it is stored: a browser counts line ends twice."""

    instructions = forms.CharField(
        required=False,
        label="Instructions for the model",
        help_text="Sent only while the tool is. Saving another text makes a new version of the tool.",
        widget=forms.Textarea(attrs={"rows": 4, "maxlength": MAX_INSTRUCTIONS}),
    )


class CategoryForm(forms.Form):
    """A category; its name is asked for once."""

    title = forms.CharField(max_length=100)
    name = ShortNameField(
        "title",
        max_length=64,
        validators=[RegexValidator(CATEGORY_NAME, "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -.")],
        help_text="For rules and the API: letters, digits, _ and -. It cannot be changed later.",
        widget=forms.TextInput(attrs={"data-short-name-separator": "_"}),
    )
    description = forms.CharField(
        required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2}), help_text="For people."
    )
    keywords = forms.CharField(
        required=False,
        max_length=MAX_KEYWORDS * 61,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "false"}),
        help_text="Words that call for this category, one a line.",
    )
    is_core = forms.BooleanField(required=False, label="Core: every agent that starts with the core has its tools")

    def __init__(self, *args: Any, category: Category | None = None, **kwargs: Any) -> None:
        if category is not None:
            kwargs["initial"] = {
                "title": category.title,
                "description": category.description,
                "keywords": "\n".join(category.keywords),
                "is_core": category.is_core,
            }
        super().__init__(*args, **kwargs)
        if category is not None:
            del self.fields["name"]

    def content(self) -> CategoryContent:
        data = self.cleaned_data
        return CategoryContent(
            data["title"], data["description"], tuple(data["keywords"].splitlines()), data["is_core"]
        )


class ServiceForm(forms.Form):
    """The fields that a service declares. What is stored of a secret is never in it, only the mask beside the field."""

    def __init__(self, *args: Any, service: ShownService, **kwargs: Any) -> None:
        kwargs["initial"] = {each.field.name: each.value for each in service.fields if not each.field.is_secret}
        super().__init__(*args, **kwargs)
        bound = [field.label for field in binding_fields(service.spec)]
        for each in service.fields:
            self.fields[each.field.name] = _service_field(each.field, each.value, bound)

    def values(self) -> dict[str, str]:
        return {name: self.cleaned_data.get(name, "") for name in self.fields}


def _service_field(field: ServiceField, value: str, bound: Sequence[str]) -> forms.Field:
    """`bound`: the labels of the fields that a stored secret is for."""
    attrs = {"autocomplete": "off", "spellcheck": "false"}
    notes: Sequence[str] = [field.help]
    if field.is_secret:
        attrs["autocomplete"] = "new-password"
        kept = f"Stored: {value}. Leave blank to keep it."
        if bound:
            kept += f" It has to be typed again with another {' or '.join(bound)}."
        notes = [field.help, kept if value else "Encrypted when stored."]
    elif field.default:
        attrs["placeholder"] = field.default
    return forms.CharField(
        # A stored secret or a default stands in for an empty field.
        required=field.is_required and not field.default and not (field.is_secret and value),
        max_length=MAX_VALUE,
        label=field.label,
        help_text=" ".join(note for note in notes if note),
        widget=(forms.PasswordInput if field.is_secret else forms.TextInput)(attrs=attrs),
    )
