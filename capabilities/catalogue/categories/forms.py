"""Forms of categories."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.validators import RegexValidator

from capabilities.catalogue.categories.writes import MAX_KEYWORDS, CategoryContent
from capabilities.common.names_field import ShortNameField
from capabilities.common.short_names import CATEGORY_NAME
from capabilities.models import Category
from toolhub.tenants.list_address import ListAddress


class CategoryFilter(ListAddress):
    """The address of the list."""

    q = forms.CharField(required=False, max_length=100)


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
