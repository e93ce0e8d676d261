"""Forms of grants."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from capabilities.access.grants.writes import MAX_REASON, GrantContent
from capabilities.access.until import CHOICES, NEVER, UntilForm
from capabilities.models import Category, Effect
from toolhub.tenants.list_address import ListAddress


class GrantFilter(ListAddress):
    """The address of the grants: a value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    effect = forms.ChoiceField(required=False, choices=[("", "Allow or deny"), *Effect.choices])
    state = forms.ChoiceField(
        required=False, choices=[("", "In force or expired"), ("in_force", "In force"), ("expired", "Expired")]
    )


class ToolGrantForm(UntilForm):
    """One member's own allow or deny of the tool that it stands beside."""

    tool = forms.CharField(max_length=64, widget=forms.HiddenInput())
    effect = forms.ChoiceField(choices=Effect.choices, widget=forms.HiddenInput())
    until = forms.ChoiceField(label="For how long", choices=[*CHOICES, (NEVER, "No end")], initial="8h")
    reason = forms.CharField(
        required=False, max_length=MAX_REASON, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def content(self, member: UUID) -> GrantContent:
        data = self.cleaned_data
        return GrantContent(member, data["effect"], data["tool"], reason=data["reason"], expires_at=data["expires_at"])


class GrantForm(UntilForm):
    """One member's own allow or deny. Names are typed, with the organisation's own as suggestions."""

    member = forms.EmailField(
        max_length=254,
        help_text="The member's e-mail address.",
        widget=forms.EmailInput(attrs={"list": "members", "autocomplete": "off"}),
    )
    effect = forms.ChoiceField(
        choices=[(Effect.ALLOW, "Allow, in addition to the roles"), (Effect.DENY, "Deny, whatever the roles allow")],
        initial=Effect.ALLOW,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
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
        max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2}), help_text="It is shown in the audit log."
    )
    until = forms.ChoiceField(label="For how long", choices=[*CHOICES, (NEVER, "No end")], initial=NEVER)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["category"].queryset = Category.objects.order_by("title")  # type: ignore[attr-defined]

    def content(self, member: UUID) -> GrantContent:
        data = self.cleaned_data
        return GrantContent(
            member=member,
            effect=data["effect"],
            tool=data["tool"],
            category=data["category"].name if data["category"] else "",
            reason=data["reason"],
            expires_at=data["expires_at"],
        )
