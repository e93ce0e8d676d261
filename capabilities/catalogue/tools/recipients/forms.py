"""The fields that ask who gets tools. A form that has them beside its own is a subclass."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from capabilities.catalogue.tools.recipients.writes import NOBODY, Recipients
from capabilities.models import Agent, Toolkit
from toolhub.tenants.models import Membership, Right

FIELDS = ("agents", "toolkit", "new_toolkit")


class RecipientsForm(forms.Form):
    """Form of who gets tools. Its choices are read when it is made, in the scope of its organisation."""

    agents = forms.ModelMultipleChoiceField(
        queryset=Agent.objects.none(),
        required=False,
        to_field_name="slug",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "There is no such agent.", "invalid_pk_value": "There is no such agent."},
    )
    toolkit = forms.ModelChoiceField(
        queryset=Toolkit.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="No toolkit",
        error_messages={"invalid_choice": "There is no such toolkit."},
    )
    new_toolkit = forms.CharField(required=False, max_length=64)

    def __init__(self, data: QueryDict | None = None, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        fields: dict[str, Any] = self.fields
        fields["agents"].queryset = Agent.objects.order_by("name", "pk")
        fields["toolkit"].queryset = Toolkit.objects.order_by("name")

    def recipients(self) -> Recipients:
        """Return the recipients that were chosen. For a form without errors."""
        data = self.cleaned_data
        return Recipients(
            tuple(agent.slug for agent in data["agents"]),
            data["toolkit"].name if data["toolkit"] else "",
            data["new_toolkit"].strip(),
        )


def recipients_sent(data: QueryDict) -> tuple[RecipientsForm, Recipients]:
    """Return the fields as they were sent beside another form, and the recipients that they name; nobody where they are
    wrong."""
    form = RecipientsForm(data)
    return form, form.recipients() if form.is_valid() else NOBODY


def recipient_choices(member: Membership, form: RecipientsForm | None = None) -> dict[str, Any]:
    """Return the context of `_recipients.html`: who may get tools from this member, and what is chosen. Two queries."""
    form = form or RecipientsForm()
    agents = list(Agent.objects.defer("prompt").order_by("name", "pk"))
    chosen = form.data.getlist("agents") if isinstance(form.data, QueryDict) else []
    return {
        "recipient_agents": [each for each in agents if not each.has_every_tool],
        "agents_with_every_tool": [each for each in agents if each.has_every_tool],
        "recipient_toolkits": list(Toolkit.objects.order_by("name").values_list("name", flat=True)),
        "chosen_agents": chosen,
        "chosen_toolkit": form.data.get("toolkit", ""),
        "chosen_new_toolkit": form.data.get("new_toolkit", ""),
        "may_choose_agents": member.has_right(Right.AGENTS),
        "may_choose_toolkits": member.has_right(Right.TOOLKITS),
        "recipient_errors": [text for name in FIELDS for text in form.errors.get(name, ())] if form.is_bound else [],
    }
