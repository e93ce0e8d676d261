"""Forms of requests for a grant: to ask, and to decide."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.grant_requests import MAX_HOURS, USUAL_HOURS, RequestContent
from capabilities.grants import MAX_REASON
from capabilities.models import Category, GrantRequest
from toolhub.tenants.places import MAX_PLACE


class RequestsAddress(forms.Form):
    """The address of the requests: what the form begins with, and where the page does. A value that cannot be is left
    out."""

    tool = forms.CharField(required=False, max_length=64)
    category = forms.CharField(required=False, max_length=64)
    before = forms.CharField(required=False, max_length=MAX_PLACE)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name) or "" for name in self.fields}


class RequestForm(forms.Form):
    """What a member asks for, for how long, and why."""

    tool = forms.CharField(
        required=False,
        max_length=64,
        help_text="The name of one tool. Leave it blank to choose a category.",
        widget=forms.TextInput(attrs={"list": "tools", "autocomplete": "off", "spellcheck": "false"}),
    )
    category = forms.ModelChoiceField(
        queryset=Category.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="",
        error_messages={"invalid_choice": "There is no such category."},
    )
    reason = forms.CharField(
        max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 3}), help_text="Shown to the person who decides."
    )
    hours = forms.IntegerField(
        min_value=1, max_value=MAX_HOURS, initial=USUAL_HOURS, help_text="Starting when the request is granted."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["category"].queryset = Category.objects.order_by("title")  # type: ignore[attr-defined]

    def content(self) -> RequestContent:
        data = self.cleaned_data
        category = data["category"].name if data["category"] else ""
        return RequestContent(data["tool"], category, data["reason"], data["hours"])


class DecisionForm(forms.Form):
    """The word on one request: hours to grant it for, and an answer, which a refusal needs."""

    hours = forms.IntegerField(min_value=1, max_value=MAX_HOURS)
    answer = forms.CharField(
        required=False,
        max_length=MAX_REASON,
        widget=forms.TextInput(attrs={"placeholder": "Required to refuse", "autocomplete": "off"}),
    )

    def __init__(self, data: Any = None, *, request: GrantRequest) -> None:
        super().__init__(data, auto_id=f"decide-{request.public_id}-%s", initial={"hours": request.hours})
