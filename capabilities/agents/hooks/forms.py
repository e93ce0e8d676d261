"""The form of a hook: the fields of its one action, its conditions, and what happens when it fails."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from capabilities.agents.hooks.installed import installed_hooks
from capabilities.agents.hooks.writes import MAX_DESCRIPTION, HookContent
from capabilities.contract.hooks import (
    ACTIONS,
    DISABLE_AFTER,
    MAX_NAME,
    MAX_TEXT,
    ON_ERROR_TITLES,
    PRIORITIES,
    PYTHON,
    STOPS,
    TIMEOUTS,
    TOOL_PHASES,
    OnError,
    Phase,
    Setting,
    default_on_error,
)
from capabilities.models import Agent, Hook, LanguageModel, Provider
from toolhub.bounded_json import load_json
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership

PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
#: Names of models that the form suggests.
SUGGESTED = 200


class HookFilter(ListAddress):
    """The address of the list."""

    phase = forms.ChoiceField(required=False, choices=[("", ""), *((str(each), "") for each in Phase)])


class LinesField(forms.CharField):
    """Short texts, one a line, as a list."""

    widget = forms.Textarea

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.Textarea(attrs={"rows": 2, **PLAIN}))
        super().__init__(required=False, max_length=10_000, **kwargs)

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class JsonField(forms.CharField):
    """A JSON value. Raises ValidationError for what is none, and where `is_object` says so for all but an object."""

    def __init__(self, *, is_object: bool, **kwargs: Any) -> None:
        self.is_object = is_object
        super().__init__(max_length=MAX_TEXT, widget=forms.Textarea(attrs={"rows": 3, **PLAIN}), **kwargs)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return {}
        try:
            found = load_json(text)
        except ValueError as error:
            raise ValidationError(f"This {str(error)[:200]}") from error
        if self.is_object and not isinstance(found, dict):
            raise ValidationError("Give a JSON object, in braces.")
        return found


class HookForm(forms.Form):
    """Form of a hook, whose phase and action are chosen before. Fields of the action's settings are called
    `settings.NAME`."""

    name = forms.CharField(max_length=MAX_NAME, help_text="The model reads it where the hook fails.")
    description = forms.CharField(
        required=False, max_length=MAX_DESCRIPTION, label="Why it is there", widget=forms.Textarea(attrs={"rows": 2})
    )
    agents = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        help_text="None ticked: all agents.",
    )
    providers = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        help_text="None ticked: all providers.",
    )
    members = LinesField(help_text="E-mail addresses, one a line. Blank: all members.")
    tools = LinesField(
        help_text="Names or patterns, one a line: shell_exec, web_*, group:file. Blank: all tools.",
    )
    arguments = LinesField(
        label="Argument patterns",
        help_text="One a line, the argument’s name and a pattern of its text: command = *rm -rf*. All must match.",
    )
    share = forms.IntegerField(
        min_value=1,
        max_value=100,
        initial=100,
        label="Percent of the turns",
        help_text="For trials. All calls of one turn are treated alike.",
    )
    priority = forms.IntegerField(
        min_value=PRIORITIES[0],
        max_value=PRIORITIES[1],
        initial=PRIORITIES[2],
        help_text="Hooks with a lower number run first; a later one sees what an earlier one made.",
    )
    timeout = forms.FloatField(
        min_value=TIMEOUTS[0],
        max_value=TIMEOUTS[1],
        initial=TIMEOUTS[2],
        label="Seconds",
        help_text="A Python hook that takes longer has failed.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    on_error = forms.ChoiceField(
        label="When it fails",
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    disable_after = forms.IntegerField(
        required=False,
        min_value=DISABLE_AFTER[0],
        max_value=DISABLE_AFTER[1],
        initial=DISABLE_AFTER[2],
        label="Failures in a row",
        help_text="Only where it is to be switched off.",
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="On")

    def __init__(self, data: Any, phase: Phase, action: str, *, hook: Hook | None = None) -> None:
        """Three queries, and one more for members that it names."""
        self.phase, self.action = phase, ACTIONS[action]
        super().__init__(data, initial=self._initial(hook))
        kinds: tuple[tuple[str, Any], ...] = (("agents", Agent.objects), ("providers", Provider.objects))
        for name, manager in kinds:
            columns = manager.order_by("name", "pk").values_list("public_id", "name")
            self.fields[name].choices = [(str(key), label) for key, label in columns]  # type: ignore[attr-defined]
        for setting in self.action.settings:
            self.fields[f"settings.{setting.name}"] = self._field_of(setting, self.fields["providers"])
        titles = ON_ERROR_TITLES | {OnError.DENY: f"Stop: {STOPS[phase]}"}
        self.fields["on_error"].choices = [(str(each), titles[each]) for each in OnError]  # type: ignore[attr-defined]
        if phase not in TOOL_PHASES:
            del self.fields["tools"], self.fields["arguments"]
        if action != PYTHON:
            del self.fields["timeout"]

    @property
    def settings(self) -> list[forms.BoundField]:
        return [self[f"settings.{each.name}"] for each in self.action.settings]

    @property
    def shows_conditions(self) -> bool:
        """True where the fields that are folded away are shown: something is set, or wrong."""
        names = ("agents", "providers", "members")
        return any(name in self.errors or self[name].value() for name in names)

    def content(self) -> HookContent:
        data = self.cleaned_data
        when = {name: data.get(name) or [] for name in ("agents", "providers", "tools")}
        when |= {"members": self._member_ids(data["members"]), "share": data["share"]}
        when["arguments"] = [_argument_pattern(line) for line in data.get("arguments", ())]
        entry = {name: data[name] for name in ("name", "priority", "on_error")}
        entry |= {"phase": str(self.phase), "action": self.action.name, "when": when}
        entry |= {"timeout": data.get("timeout"), "disable_after": data["disable_after"]}
        entry["settings"] = {each.name: data[f"settings.{each.name}"] for each in self.action.settings}
        return HookContent(entry, data["description"], data["is_enabled"])

    def _initial(self, hook: Hook | None) -> dict[str, Any]:
        if hook is None:
            return {"on_error": str(default_on_error(self.phase, self.action.name))}
        names = ("name", "description", "priority", "timeout", "on_error", "disable_after", "is_enabled")
        initial = {name: getattr(hook, name) for name in names}
        when = hook.when if isinstance(hook.when, dict) else {}
        settings = hook.settings if isinstance(hook.settings, dict) else {}
        arguments = [f"{each['name']} = {each['pattern']}" for each in when.get("arguments", ())]
        initial |= {name: when.get(name, []) for name in ("agents", "providers")} | {"share": when.get("share", 100)}
        initial |= {"tools": "\n".join(when.get("tools", ())), "arguments": "\n".join(arguments)}
        initial["members"] = "\n".join(_emails(when.get("members", ())))
        for setting in self.action.settings:
            if setting.name in settings:
                initial[f"settings.{setting.name}"] = _as_typed(setting, settings[setting.name])
        return initial

    def _field_of(self, setting: Setting, providers: Any) -> forms.Field:
        common: dict[str, Any] = {"label": setting.title, "help_text": setting.help, "required": setting.is_required}
        if setting.kind == "text":
            return forms.CharField(max_length=MAX_TEXT, strip=False, widget=forms.Textarea(attrs={"rows": 4}), **common)
        if setting.kind == "number":
            return forms.IntegerField(min_value=setting.minimum, max_value=setting.maximum, **common)
        if setting.kind in ("value", "object"):
            return JsonField(is_object=setting.kind == "object", **common)
        if setting.kind == "choice":
            return forms.ChoiceField(choices=setting.choices, **common)
        if setting.kind == "provider":
            return forms.ChoiceField(choices=[("", ""), *providers.choices], **common)
        if setting.kind == "entry_point":
            stored = self.initial.get(f"settings.{setting.name}", "")
            names = sorted({*installed_hooks(), *([stored] if stored else [])})
            return forms.ChoiceField(choices=[("", ""), *((name, name) for name in names)], **common)
        if setting.kind == "model":
            widget = forms.TextInput(attrs={"list": "models", **PLAIN})
            return forms.CharField(max_length=200, widget=widget, **common)
        return forms.CharField(max_length=200, widget=forms.TextInput(attrs=PLAIN), **common)

    def _member_ids(self, emails: list[str]) -> list[str]:
        """An address that nobody here has is handed on: the write says that there is no such member."""
        lower = [each.lower() for each in emails]
        rows = Membership.objects.filter(user__email__in=lower, ended_at=None)
        known = {email: str(key) for email, key in rows.values_list("user__email", "public_id")}
        return [known.get(each, each) for each in lower]


def model_names() -> list[str]:
    """Return the names of models that the form suggests. One query."""
    return list(LanguageModel.objects.order_by("name").values_list("name", flat=True).distinct()[:SUGGESTED])


def _argument_pattern(line: str) -> Mapping[str, str]:
    name, _, pattern = line.partition("=")
    return {"name": name.strip(), "pattern": pattern.strip()}


def _emails(ids: Iterable[str]) -> list[str]:
    wanted = list(ids)
    if not wanted:
        return []
    rows = Membership.objects.filter(public_id__in=wanted).values_list("public_id", "user__email")
    known = {str(key): email for key, email in rows}
    return [known.get(each, each) for each in wanted]


def _as_typed(setting: Setting, value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if setting.kind in ("value", "object") else value
