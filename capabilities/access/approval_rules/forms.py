"""The form of an approval rule."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.access.approval_rules.writes import (
    MAX_ARGUMENT,
    MAX_ARGUMENT_PATTERN,
    MAX_MESSAGE,
    MAX_PRIORITY,
    RuleContent,
)
from capabilities.contract.approvals import MAX_HOURS, USUAL_HOURS
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.models import Agent, AskWhen, Role, Toolkit

PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class RuleForm(forms.Form):
    """Form of an approval rule. A field that is left blank means every one."""

    tool_pattern = forms.CharField(
        label="Tools",
        max_length=MAX_PATTERN,
        initial="*",
        help_text="The name of a tool, a pattern such as memory_*, a category such as group:web, or * for all tools.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    when = forms.ChoiceField(
        label="Ask",
        choices=[
            (AskWhen.ALWAYS, "Always"),
            (AskWhen.FIRST_IN_SESSION, "The first time in a session"),
            (AskWhen.NEVER, "Never"),
        ],
        initial=AskWhen.ALWAYS,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    needs_other_person = forms.BooleanField(
        required=False, label="Another person than the requester must answer", widget=forms.CheckboxInput()
    )
    message = forms.CharField(
        required=False,
        max_length=MAX_MESSAGE,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Why somebody is asked: whoever answers reads it.",
    )
    argument = forms.CharField(
        required=False,
        max_length=MAX_ARGUMENT,
        help_text="Name of an argument: the rule is only about calls where its value matches the pattern.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    argument_pattern = forms.CharField(
        required=False,
        max_length=MAX_ARGUMENT_PATTERN,
        label="Pattern of its value",
        help_text="With * for any text and ? for one character.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    agent = forms.ModelChoiceField(
        Agent.objects.none(), required=False, to_field_name="slug", empty_label="Every agent"
    )
    role = forms.ModelChoiceField(Role.objects.none(), required=False, to_field_name="slug", empty_label="Every member")
    toolkit = forms.ModelChoiceField(
        Toolkit.objects.none(), required=False, to_field_name="name", empty_label="In any toolkit, or in none"
    )
    expires_after = forms.IntegerField(label="Hours to answer", min_value=1, max_value=MAX_HOURS, initial=USUAL_HOURS)
    priority = forms.IntegerField(
        min_value=0,
        max_value=MAX_PRIORITY,
        initial=100,
        help_text="The lowest comes first. The first rule that is about a call counts, and no other.",
    )
    name = forms.CharField(
        required=False,
        max_length=63,
        label="Short name",
        help_text="Blank: it is made from the tools.",
        widget=forms.TextInput(attrs=PLAIN),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows: dict[str, Any] = {
            "agent": Agent.objects.order_by("name"),
            "role": Role.objects.order_by("name"),
            "toolkit": Toolkit.objects.order_by("name"),
        }
        for name, found in rows.items():
            self.fields[name].queryset = found  # type: ignore[attr-defined]

    def content(self) -> RuleContent:
        data = self.cleaned_data
        named = {
            "agent": data["agent"].slug if data["agent"] else "",
            "role": data["role"].slug if data["role"] else "",
            "toolkit": data["toolkit"].name if data["toolkit"] else "",
        }
        return RuleContent(**(data | named))
