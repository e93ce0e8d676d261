"""The form of an agent. Its own tools come beside it: a checkbox and a place for each that is shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from capabilities.agents import MAX_OWN_TOOLS, MAX_PROMPT, AgentContent
from capabilities.models import Agent, LanguageModel
from capabilities.providers import MAX_ROUNDS
from capabilities.queries.agents import models_by_name
from toolhub.tenants.models import slug_validator


class AgentForm(forms.Form):
    """Choices are read when the form is made, in the scope of its organisation."""

    name = forms.CharField(max_length=100)
    slug = forms.CharField(
        max_length=63,
        validators=[slug_validator],
        label="Short name",
        help_text="For addresses and the API: lower-case letters, digits and hyphens.",
    )
    description = forms.CharField(
        required=False, max_length=2_000, help_text="For people who choose an agent to talk to."
    )
    prompt = forms.CharField(
        required=False,
        max_length=MAX_PROMPT,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="What the model is told before each turn.",
    )
    model = forms.ModelChoiceField(
        queryset=LanguageModel.objects.none(),
        empty_label=None,
        error_messages={"invalid_choice": "There is no such model.", "required": "Choose a model."},
    )
    max_rounds = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_ROUNDS,
        label="Rounds at most",
        help_text="Model calls that a turn may take. The model's own number beats it; blank: the service's.",
    )
    starts_with_core = forms.BooleanField(
        required=False, initial=True, label="Starts with the tools of the core categories"
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="Switched on")

    def __init__(self, *args: Any, agent: Agent | None = None, **kwargs: Any) -> None:
        if agent is not None:
            fields = ("name", "slug", "description", "prompt", "model", "max_rounds", "starts_with_core", "is_enabled")
            kwargs["initial"] = {field: getattr(agent, field) for field in fields}
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = models_by_name()  # type: ignore[attr-defined]

    def content(self, tools: tuple[str, ...]) -> AgentContent:
        data = self.cleaned_data
        return AgentContent(
            slug=data["slug"],
            name=data["name"],
            description=data["description"],
            prompt=data["prompt"].replace("\r\n", "\n"),
            model=data["model"],
            starts_with_core=data["starts_with_core"],
            tools=tools,
            max_rounds=data["max_rounds"],
            is_enabled=data["is_enabled"],
        )


def posted_tools(data: QueryDict) -> tuple[str, ...]:
    """The ticked names in the order of their places; those without one, or with the same, as they stand."""
    names = data.getlist("tools")[: MAX_OWN_TOOLS + 1]

    def place(name: str) -> int:
        text = data.get(f"place-{name}", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 10**6

    return tuple(dict.fromkeys(sorted(names, key=place)))
