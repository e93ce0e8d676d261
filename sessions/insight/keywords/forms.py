"""Forms of the pages of keywords."""

from __future__ import annotations

from django import forms

from capabilities.catalogue.categories.writes import MAX_KEYWORDS, CategoryContent
from capabilities.models import Category, RoutingMode
from sessions.models import FindingKind
from toolhub.tenants.list_address import ListAddress

#: Characters of a message that is tried: it stands in the address.
MAX_TRIED = 2_000


class TryForm(forms.Form):
    """Message to try, and the member, agent and session that it is tried for."""

    message = forms.CharField(required=False, max_length=MAX_TRIED, strip=False)
    agent = forms.CharField(required=False, max_length=63)
    member = forms.EmailField(required=False, max_length=254)
    session = forms.UUIDField(required=False, error_messages={"invalid": "There is no such session."})
    mode = forms.ChoiceField(required=False, choices=[("", "As the agent is set"), *RoutingMode.choices])


class KeywordFilter(ListAddress):
    """The address of the table."""

    q = forms.CharField(required=False, max_length=100)


class FindingFilter(ListAddress):
    """The address of the list of findings."""

    kind = forms.ChoiceField(required=False, choices=[("", "All"), *FindingKind.choices])


class KeywordsForm(forms.Form):
    """The keywords of one category, one a line or parted by commas."""

    keywords = forms.CharField(
        required=False,
        max_length=MAX_KEYWORDS * 61,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "false"}),
        help_text="One a line, or with commas between. Whole words match, in any form: “light” finds “lights”, and not "
        "“highlight”.",
    )

    def content(self, category: Category) -> CategoryContent:
        """Return the category's content with these words, everything else as it is."""
        words = self.cleaned_data["keywords"].replace(",", "\n").splitlines()
        return CategoryContent(category.title, category.description, tuple(words), category.is_core)
