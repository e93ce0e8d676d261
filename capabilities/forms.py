"""The forms of catalogue and providers: they shape and check, the domain functions write."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.models import Agent, LanguageModel, Provider
from capabilities.providers import ProviderContent, ProviderRefused, check_base_url
from capabilities.queries import agents_by_name
from toolhub.tenants.models import slug_validator


class CatalogueFilter(forms.Form):
    """The catalogue's address: what is looked for, and where the page begins. A value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    state = forms.ChoiceField(
        required=False, choices=[("", "Any state"), ("on", "On"), ("off", "Off"), ("set-up", "Needs set-up")]
    )
    after = forms.CharField(required=False, max_length=64)
    before = forms.CharField(required=False, max_length=64)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name, "") for name in self.fields}


class AgentChoices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, agent: Agent) -> str:
        return f"{agent} (now {agent.model})"


class ProviderForm(forms.Form):
    """A provider and its first model. The stored key is never in it, only the mask beside the field."""

    name = forms.CharField(max_length=100)
    slug = forms.CharField(
        max_length=63,
        validators=[slug_validator],
        label="Short name",
        help_text="For addresses and the API: lower-case letters, digits and hyphens.",
    )
    base_url = forms.CharField(
        required=False,
        max_length=500,
        label="Base URL",
        help_text="Any OpenAI-compatible address, up to the version: https://api.openai.com/v1. "
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
    model_name = forms.CharField(
        max_length=200,
        label="Default model",
        help_text="As the provider spells it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    context_window = forms.IntegerField(
        min_value=1_000, max_value=100_000_000, initial=128_000, label="Context window", help_text="In tokens."
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
        model: LanguageModel | None = None,
        mask: str = "",
        **kwargs: Any,
    ) -> None:
        if provider is not None:
            kwargs["initial"] = {
                "name": provider.name,
                "slug": provider.slug,
                "base_url": provider.base_url,
                "is_enabled": provider.is_enabled,
                "model_name": model.name if model else "",
                "context_window": model.context_window if model else 128_000,
            }
        super().__init__(*args, **kwargs)
        self.fields["api_key"].help_text = (
            f"Stored: {mask}. Leave blank to keep it." if mask else "Encrypted when stored, and never shown again."
        )
        if not mask:
            del self.fields["remove_key"]
        others = agents_by_name()
        self.fields["agents"].queryset = others.exclude(model=model) if model else others  # type: ignore[attr-defined]

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
            slug=data["slug"],
            name=data["name"],
            base_url=data["base_url"],
            model_name=data["model_name"],
            context_window=data["context_window"],
            is_enabled=data["is_enabled"],
            api_key=key,
        )
