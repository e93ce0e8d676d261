"""Forms of requests for a grant: to ask, and to decide."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.access.grants.writes import MAX_REASON
from capabilities.access.requests.writes import MAX_HOURS, RequestContent
from capabilities.access.until import CHOICES, UntilForm, hours_until
from capabilities.models import Category, GrantRequest
from toolhub.tenants.list_address import ListAddress


class RequestsAddress(ListAddress):
    """The address of the requests: what the form begins with, and where the page does. A value that cannot be is left
    out."""

    tool = forms.CharField(required=False, max_length=64)
    category = forms.CharField(required=False, max_length=64)


class HoursForm(UntilForm):
    """Fields for an end that is at most so far away as a request may be for. `cleaned_data["hours"]`: until then."""

    def clean(self) -> dict[str, Any] | None:
        data = super().clean() or {}
        if data.get("expires_at") is not None:
            data["hours"] = hours_until(data["expires_at"])
            if data["hours"] > MAX_HOURS:
                self.add_error("until_date", f"Choose a date within {MAX_HOURS // 24} days.")
        return data


class RequestForm(HoursForm):
    """Form in which a member asks for a tool or a category, for how long, and why."""

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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["until"].help_text = "The time starts when the request is granted."
        self.fields["category"].queryset = Category.objects.order_by("title")  # type: ignore[attr-defined]

    def content(self) -> RequestContent:
        data = self.cleaned_data
        category = data["category"].name if data["category"] else ""
        return RequestContent(data["tool"], category, data["reason"], data["hours"])


#: The choice to grant for as long as was asked for.
AS_ASKED = "asked"


class DecisionForm(HoursForm):
    """The word on one request: for how long to grant it, and an answer, which a refusal needs."""

    answer = forms.CharField(
        required=False,
        max_length=MAX_REASON,
        widget=forms.TextInput(attrs={"placeholder": "Required to refuse", "autocomplete": "off"}),
    )

    def __init__(self, data: Any = None, *, request: GrantRequest) -> None:
        super().__init__(data, auto_id=f"decide-{request.public_id}-%s", initial={"until": AS_ASKED})
        self.hours = request.hours
        asked = f"{request.hours:,} hour{'' if request.hours == 1 else 's'}, as requested"
        self.fields["until"].choices = [(AS_ASKED, asked), *CHOICES]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        data = super().clean() or {}
        if data.get("until") == AS_ASKED:
            data["hours"] = self.hours
        return data
