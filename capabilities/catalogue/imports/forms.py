"""Forms of imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from capabilities.catalogue.imports.queries import FoundFilter
from capabilities.catalogue.imports.writes.decide import EFFECTS
from capabilities.catalogue.imports.writes.start import MAX_FILE
from capabilities.catalogue.tools.bulk.writes import ASKS, IN_UNTRUSTED
from capabilities.catalogue.tools.recipients.forms import RecipientsForm
from capabilities.contract.openapi.part import MAX_TEXT, Part
from capabilities.contract.warnings import TITLES
from capabilities.models import Category, ImportedStatus, ImportSource, ImportStatus, StoredCredential
from toolhub.tenants.list_address import ListAddress

STATUSES = [("waiting", "Waiting for a decision"), *ImportedStatus.choices, ("collision", "Name was taken")]
EFFECT_TITLES = {
    "read": "Reads only",
    "write": "Changes this organisation’s own data",
    "external": "Sends or changes something outside",
}


class ImportsAddress(ListAddress):
    """The address of the list of imports."""

    q = forms.CharField(required=False, max_length=100)
    status = forms.ChoiceField(required=False, choices=[("", "Any status"), *ImportStatus.choices])


class FoundAddress(ListAddress):
    """The address of a review."""

    q = forms.CharField(required=False, max_length=100)
    status = forms.ChoiceField(required=False, choices=[("", "Any status"), *STATUSES])
    warning = forms.ChoiceField(required=False, choices=[("", "Any warning"), *TITLES.items()])
    group = forms.CharField(required=False, max_length=200)

    def wanted(self) -> FoundFilter:
        return FoundFilter(**self.filters)


class StartForm(forms.Form):
    """Form that starts an import: from a file, or from the document at an address."""

    source = forms.ChoiceField(
        label="What is it?",
        choices=[
            (ImportSource.OPENAPI, "An OpenAPI document, 3.0 or 3.1: its operations become HTTP tools"),
            (ImportSource.TOOLKIT, "A toolkit file, which another toolhub exported: its tools, and their toolkit"),
            (ImportSource.DEFINITIONS, "A list of MCP tools (tools/list): to look at, without a server to call"),
        ],
        initial=ImportSource.OPENAPI,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    url = forms.CharField(
        label="Address of the document",
        required=False,
        max_length=1_000,
        help_text="Such as https://api.example.org/openapi.json. A worker reads it, and nothing that it refers to.",
        widget=forms.URLInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    file = forms.FileField(
        label="Or a file", required=False, allow_empty_file=True, help_text=f"JSON or YAML, at most {MAX_FILE:,} bytes."
    )
    title = forms.CharField(
        required=False,
        max_length=200,
        help_text="Blank: what the document calls itself. Tools say that they come from it.",
    )

    tags = forms.CharField(
        required=False,
        max_length=2_000,
        label="Only with these tags",
        help_text="Of an OpenAPI document, with commas between them.",
    )
    path = forms.CharField(
        required=False, max_length=MAX_TEXT, label="Only below this path", help_text="Such as /repos, or /*/issues*."
    )
    words = forms.CharField(
        required=False, max_length=MAX_TEXT, label="Only with these words", help_text="In name, path or description."
    )
    category = forms.ModelChoiceField(
        queryset=Category.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="Whoever administers the whole catalogue",
        label="Who decides on what is found",
        help_text="Administrators of this category decide. Where accepted tools go is chosen then.",
        error_messages={"invalid_choice": "There is no such category."},
    )

    def __init__(self, *args: Any, categories: Sequence[Category], has_all: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["category"]
        field.queryset = Category.objects.filter(pk__in=[each.pk for each in categories]).order_by("title", "name")
        if not has_all:
            field.required, field.empty_label = True, None if len(categories) == 1 else "Choose a category"

    def part(self) -> Part:
        """Return the part of the document that was asked for. For a form without errors."""
        data = self.cleaned_data
        tags = tuple(dict.fromkeys(tag.strip() for tag in data["tags"].split(",") if tag.strip()))
        return Part(tags, data["path"].strip(), " ".join(data["words"].split()))

    def clean_file(self) -> str:
        """The text of the file."""
        file: Any = self.cleaned_data.get("file")
        if not file:
            return ""
        if file.size > MAX_FILE:
            raise forms.ValidationError(f"The file has more than {MAX_FILE:,} bytes: give the document’s address.")
        try:
            text: str = file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise forms.ValidationError("The file is no text (UTF-8): export it as JSON or YAML.") from None
        return text


class DecideForm(RecipientsForm):
    """Form that decides where accepted tools go, what signs them, and who gets them."""

    category = forms.ModelChoiceField(
        queryset=Category.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="Choose a category",
        error_messages={"invalid_choice": "There is no such category."},
    )
    new_category = forms.CharField(label="Or a new category", required=False, max_length=100)
    credential = forms.ModelChoiceField(
        label="Signed with",
        queryset=StoredCredential.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="Nothing",
        error_messages={"invalid_choice": "There is no such credential."},
    )

    ask = forms.ChoiceField(required=False, choices=[("", ""), *((each, each) for each in ASKS)])
    in_untrusted = forms.ChoiceField(required=False, choices=[("", ""), *((each, each) for each in IN_UNTRUSTED)])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["category"].queryset = Category.objects.order_by("title", "name")  # type: ignore[attr-defined]
        self.fields["credential"].queryset = StoredCredential.objects.order_by("title", "pk")  # type: ignore[attr-defined]


class BaseUrlForm(forms.Form):
    """Form of the base address for calls whose document gives only their path."""

    base_url = forms.CharField(
        label="Base address",
        max_length=1_000,
        widget=forms.URLInput(attrs={"list": "addresses", "autocomplete": "off", "spellcheck": "false"}),
    )


class ChangeForm(forms.Form):
    """Form for the name and the effect of a found tool."""

    name = forms.CharField(max_length=64, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    effect = forms.ChoiceField(label="What it does", choices=[(each, EFFECT_TITLES[each]) for each in EFFECTS])
    is_destructive = forms.BooleanField(label="It can destroy something, or cannot be undone", required=False)
