"""The forms of providers and their models: they shape and check, the domain functions write."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.common.columns import ColumnsForm, default_of, form_field
from capabilities.common.names_field import ShortNameField
from capabilities.language_models.providers.knobs import EFFORTS, KNOBS
from capabilities.language_models.providers.resolve import ResolvedModel, default_output
from capabilities.language_models.providers.seeing import is_known_to_see
from capabilities.language_models.providers.vendors import OFFLINE, OTHER, Vendor
from capabilities.language_models.providers.writes import (
    MODEL_COLUMNS,
    PROVIDER_COLUMNS,
    ModelContent,
    ProviderContent,
    ProviderRefused,
    check_base_url,
)
from capabilities.models import DIALECT_SETTINGS, MAX_CONTEXT_WINDOW, MAX_TEMPERATURE, Agent, LanguageModel, Provider

DIALECT_HELP = "Automatic: chosen by what is known of the vendor and the model, and by what its refusals say."


#: Settings that are true, false, or not set: their forms have a choice of these.
CHOSEN = ("parallel_tool_calls", "takes_images")


class AgentChoices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, agent: Agent) -> str:
        return f"{agent} (now {agent.model})"


class CallsForm(ColumnsForm):
    """Settings of a model's calls, as they are set on the model or on an agent; all of them may be left blank."""

    reasoning_effort = forms.CharField(
        required=False,
        max_length=20,
        label="Reasoning effort",
        widget=forms.TextInput(
            attrs={"list": "efforts", "autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
        ),
    )
    parallel_tool_calls = forms.TypedChoiceField(
        required=False,
        choices=[("", ""), ("true", "Several in one reply"), ("false", "One in a reply")],
        coerce=lambda value: value == "true",
        empty_value=None,
        label="Tool calls",
    )
    efforts = EFFORTS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        initial = kwargs.get("initial") or {}
        chosen = {name: str(value).lower() for name, value in initial.items() if name in CHOSEN and value is not None}
        kwargs["initial"] = initial | chosen
        super().__init__(*args, **kwargs)

    def clean_reasoning_effort(self) -> str:
        return str(self.cleaned_data["reasoning_effort"]).strip().lower()

    def explain_blank_fields(self, source: str, model: ResolvedModel | None) -> None:
        """Beside each field what counts where it is blank; `model` is what that is now."""
        effort = (model.reasoning_effort or "not sent") if model else ""
        temperature = ("not sent" if model.temperature is None else f"{model.temperature:g}") if model else ""
        tokens = f"{model.max_output_tokens:,}" if model else ""
        self.fields[
            "reasoning_effort"
        ].help_text = f"For models that reason: how much they think, for example low or high. {_blank(source, effort)}"
        self.fields[
            "max_output_tokens"
        ].help_text = f"What the model thinks counts too. At most half of the context window. {_blank(source, tokens)}"
        self.fields[
            "temperature"
        ].help_text = f"0 to {MAX_TEMPERATURE:g}. Many models that reason take none. {_blank(source, temperature)}"
        several = {None: "not sent", True: "several in one reply", False: "one in a reply"}
        field = self.fields["parallel_tool_calls"]
        blank = _blank(source, several[model.parallel_tool_calls] if model else "").removeprefix("Blank: ").rstrip(".")
        field.choices = [("", blank[0].upper() + blank[1:]), *list(field.choices)[1:]]  # type: ignore[attr-defined]

    @property
    def shows_calls(self) -> bool:
        """True where the fields that are folded away are shown: something is set, or wrong."""
        return any(name in self.errors or self[name].value() not in (None, "") for name in self.folded)

    folded: tuple[str, ...] = KNOBS


def _blank(source: str, current: str) -> str:
    return f"Blank: {source}, now {current}." if current else f"Blank: {source}."


#: Where the page says it in other words than the column.
PROVIDER_HELP = {
    "tool_limit": "OpenAI allows 128.",
    "dialect": f"{DIALECT_HELP} A model can have its own.",
    "keeps_routed_tools": "",
    "takes_added_tools": "For agents that add what they load to the conversation. OpenAI’s own address does, "
    "also without this; switch it on for another one only if its documentation says so.",
    "takes_tool_search": "For agents whose tools the provider searches. OpenAI’s own address does with gpt-5.4 "
    "and later, also without this; switch it on for another one only if its documentation says so.",
}


class ProviderForm(ColumnsForm):
    """A provider and, if new, its first model. The stored key is never in it, only the mask beside the field."""

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
    model_name = forms.CharField(
        max_length=200,
        required=False,
        label="First model",
        help_text="The name that the provider uses. Leave it blank to choose from the provider’s list on the next "
        "page.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    context_window = forms.IntegerField(
        required=False,
        min_value=1_000,
        max_value=MAX_CONTEXT_WINDOW,
        initial=default_of(LanguageModel, "context_window"),
        label="Context window",
        help_text="Of the first model, in tokens.",
    )
    agents = AgentChoices(
        queryset=Agent.objects.none(),
        required=False,
        to_field_name="slug",
        label="Use this model for agents",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"invalid_choice": "There is no such agent."},
    )

    class Meta:
        model = Provider
        fields = PROVIDER_COLUMNS
        formfield_callback = form_field
        help_texts = PROVIDER_HELP

    def __init__(
        self,
        *args: Any,
        provider: Provider | None = None,
        mask: str = "",
        vendor: Vendor = OTHER,
        **kwargs: Any,
    ) -> None:
        if provider is not None:
            kwargs["initial"] = {name: getattr(provider, name) for name in PROVIDER_COLUMNS}
        elif vendor is not OTHER:
            kwargs["initial"] = {"name": vendor.name, "base_url": vendor.base_url}
        if vendor is OFFLINE:
            kwargs["initial"]["model_name"] = OFFLINE.key
        super().__init__(*args, **kwargs)
        self.fields["dialect"].required = False
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

    @property
    def shows_more(self) -> bool:
        """True where the fields that are folded away are shown: one is not as usual, or wrong."""
        names = set(PROVIDER_COLUMNS) - {"slug", "name", "base_url", "is_enabled"}
        return any(name in self.errors or str(self[name].value()) != str(default_of(Provider, name)) for name in names)

    def clean_base_url(self) -> str:
        url: str = self.cleaned_data["base_url"].strip().rstrip("/")
        try:
            check_base_url(url)
        except ProviderRefused as error:
            raise forms.ValidationError(str(error)) from error
        return url

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("agents") and not data.get("model_name") and "model_name" not in self.errors:
            self.add_error("model_name", "Name the model that these agents would use.")
        return data

    def content(self) -> ProviderContent:
        data = self.cleaned_data
        key: str | None = data["api_key"].strip() or None
        if key is None and data.get("remove_key"):
            key = ""
        columns = self.columns(PROVIDER_COLUMNS) | {"slug": data["slug"] or self.initial.get("slug", "")}
        return ProviderContent(
            **columns,
            api_key=key,
            model_name=data.get("model_name", ""),
            context_window=data.get("context_window") or default_of(LanguageModel, "context_window"),
        )


#: Where the page says it in other words than the column.
MODEL_HELP = {
    "context_window": "In tokens.",
    "tool_limit": "Leave blank for the limit of the provider.",
    "max_rounds": "Most model calls in one turn. Leave blank for the limit of the agent, which this one overrides.",
    "dialect": DIALECT_HELP,
}


class ModelForm(CallsForm):
    """One model of a provider."""

    name = forms.CharField(
        max_length=200,
        help_text="The name that the provider uses, for example gpt-4o.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    takes_images = forms.TypedChoiceField(
        required=False,
        choices=[("", "As is known of the model"), ("true", "Yes"), ("false", "No")],
        coerce=lambda value: value == "true",
        empty_value=None,
        label="Takes images",
        help_text="Whether images in messages are sent to it. Where they are not, it reads their names.",
    )
    agents = AgentChoices(
        queryset=Agent.objects.none(),
        required=False,
        to_field_name="slug",
        label="Use this model for agents",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        error_messages={"invalid_choice": "There is no such agent."},
    )
    folded = ("dialect", *KNOBS)

    class Meta:
        model = LanguageModel
        fields = MODEL_COLUMNS
        formfield_callback = form_field
        help_texts = MODEL_HELP

    def __init__(self, *args: Any, provider: Provider, model: LanguageModel | None = None, **kwargs: Any) -> None:
        if model is not None:
            kwargs["initial"] = {name: getattr(model, name) for name in MODEL_COLUMNS}
        super().__init__(*args, **kwargs)
        of_provider = dict(DIALECT_SETTINGS)[provider.dialect].lower()
        self.fields["dialect"].choices = [  # type: ignore[attr-defined]
            ("", f"As the provider says, now {of_provider}"),
            *DIALECT_SETTINGS,
        ]
        if model is not None:
            now = "yes" if is_known_to_see(model.name) else "no"
            own: Any = self.fields["takes_images"]
            own.choices = [("", f"As is known of the model, now {now}"), *list(own.choices)[1:]]
        self._show_defaults(model)
        others = Agent.objects.for_display()
        self.fields["agents"].queryset = others.exclude(model=model) if model else others  # type: ignore[attr-defined]

    def content(self) -> ModelContent:
        return ModelContent(**self.columns(MODEL_COLUMNS))

    def _show_defaults(self, model: LanguageModel | None) -> None:
        self.explain_blank_fields("not sent; the vendor’s default applies", None)
        now = f"{default_output(model.context_window):,}" if model else ""
        self.fields["max_output_tokens"].help_text = (
            "What the model thinks counts too. At most half of the context window. "
            + _blank("a share of the context window", now)
        )
