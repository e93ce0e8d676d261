"""The forms of providers and their models: they shape and check, the domain functions write."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.common.names_field import ShortNameField
from capabilities.models import Agent, LanguageModel, Provider
from capabilities.providers.writes import (
    MAX_CONTEXT_WINDOW,
    MAX_ROUNDS,
    MAX_TOOL_LIMIT,
    ModelContent,
    ProviderContent,
    ProviderRefused,
    check_base_url,
)


class AgentChoices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, agent: Agent) -> str:
        return f"{agent} (now {agent.model})"


class ProviderForm(forms.Form):
    """A provider and, if new, its first model. The stored key is never in it, only the mask beside the field."""

    name = forms.CharField(max_length=100)
    slug = ShortNameField()
    base_url = forms.CharField(
        required=False,
        max_length=500,
        label="Base URL",
        help_text="The address of an OpenAI-compatible API with its version, for example https://api.openai.com/v1. "
        "Blank: the built-in offline model.",
        widget=forms.TextInput(attrs={"inputmode": "url", "autocomplete": "off", "spellcheck": "false"}),
    )
    api_key = forms.CharField(
        required=False,
        max_length=1000,
        label="API key",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    remove_key = forms.BooleanField(required=False, label="Remove the stored key")
    tool_limit = forms.IntegerField(
        min_value=0,
        max_value=MAX_TOOL_LIMIT,
        initial=128,
        label="Most tools in one request",
        help_text="OpenAI allows 128.",
    )
    model_name = forms.CharField(
        max_length=200,
        label="First model",
        help_text="The name that the provider uses, for example gpt-4o.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    context_window = forms.IntegerField(
        min_value=1_000, max_value=MAX_CONTEXT_WINDOW, initial=128_000, label="Context window", help_text="In tokens."
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="Switched on")
    agents = AgentChoices(
        queryset=Agent.objects.none(),
        required=False,
        to_field_name="slug",
        label="Use this model for agents",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"invalid_choice": "There is no such agent."},
    )

    def __init__(
        self,
        *args: Any,
        provider: Provider | None = None,
        mask: str = "",
        **kwargs: Any,
    ) -> None:
        if provider is not None:
            kwargs["initial"] = {
                "name": provider.name,
                "slug": provider.slug,
                "base_url": provider.base_url,
                "tool_limit": provider.tool_limit,
                "is_enabled": provider.is_enabled,
            }
        super().__init__(*args, **kwargs)
        self.fields["api_key"].help_text = (
            f"Stored: {mask}. Leave blank to keep it. It has to be typed again with an address on another host."
            if mask
            else "Encrypted when stored, and never shown again."
        )
        if not mask:
            del self.fields["remove_key"]
        if provider is None:
            self.fields["agents"].queryset = Agent.objects.for_display()  # type: ignore[attr-defined]
        else:  # its models have forms of their own
            for name in ("model_name", "context_window", "agents"):
                del self.fields[name]

    def clean_base_url(self) -> str:
        url: str = self.cleaned_data["base_url"].strip().rstrip("/")
        try:
            check_base_url(url)
        except ProviderRefused as error:
            raise forms.ValidationError(str(error)) from error
        return url

    def content(self) -> ProviderContent:
        data = self.cleaned_data
        key: str | None = data["api_key"].strip() or None
        if key is None and data.get("remove_key"):
            key = ""
        return ProviderContent(
            slug=data["slug"] or self.initial.get("slug", ""),
            name=data["name"],
            base_url=data["base_url"],
            model_name=data.get("model_name", ""),
            context_window=data.get("context_window", 128_000),
            tool_limit=data["tool_limit"],
            is_enabled=data["is_enabled"],
            api_key=key,
        )


class ModelForm(forms.Form):
    """One model of a provider."""

    name = forms.CharField(
        max_length=200,
        help_text="The name that the provider uses, for example gpt-4o.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    context_window = forms.IntegerField(
        min_value=1_000, max_value=MAX_CONTEXT_WINDOW, initial=128_000, label="Context window", help_text="In tokens."
    )
    tool_limit = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_TOOL_LIMIT,
        label="Most tools in one request",
        help_text="Leave blank for the limit of the provider.",
    )
    max_rounds = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_ROUNDS,
        label="Most rounds",
        help_text="Most model calls in one turn. Leave blank for the limit of the agent, which this one overrides.",
    )
    agents = AgentChoices(
        queryset=Agent.objects.none(),
        required=False,
        to_field_name="slug",
        label="Use this model for agents",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"invalid_choice": "There is no such agent."},
    )

    def __init__(self, *args: Any, model: LanguageModel | None = None, **kwargs: Any) -> None:
        if model is not None:
            fields = ("name", "context_window", "tool_limit", "max_rounds")
            kwargs["initial"] = {field: getattr(model, field) for field in fields}
        super().__init__(*args, **kwargs)
        others = Agent.objects.for_display()
        self.fields["agents"].queryset = others.exclude(model=model) if model else others  # type: ignore[attr-defined]

    def content(self) -> ModelContent:
        data = self.cleaned_data
        return ModelContent(data["name"], data["context_window"], data["tool_limit"], data["max_rounds"])
