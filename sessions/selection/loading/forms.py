"""The forms of loading and unloading in a session."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.models import Agent
from sessions.models import ChatSession
from sessions.selection.loading.writes import KINDS
from toolhub.tenants.models import Membership


class PlaceForm(forms.Form):
    """Form that names one of a session's agents: its first, where none is named."""

    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        required=False,
        error_messages={"invalid_choice": "There is no such agent."},
    )

    def __init__(self, *args: Any, member: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = Agent.objects.seen_by(member).select_related("model__provider").defer("model__provider__api_key")
        self.fields["agent"].queryset = agents  # type: ignore[attr-defined]

    def agent_of(self, session: ChatSession) -> Agent:
        agent: Agent = self.cleaned_data["agent"] or session.agent
        return session.agent if agent.pk == session.agent_id else agent

    @property
    def problem(self) -> str:
        """The first thing that is wrong, as a sentence."""
        return next((str(errors[0]) for errors in self.errors.values()), "")


class LoadForm(PlaceForm):
    """A toolkit (or a deferred tool) by its name, or a whole category."""

    toolkit = forms.CharField(max_length=64, required=False)
    category = forms.CharField(max_length=64, required=False)

    def clean(self) -> dict[str, Any]:
        wanted: dict[str, Any] = super().clean() or {}
        if not self.errors and bool(wanted["toolkit"]) == bool(wanted["category"]):
            raise forms.ValidationError("Choose what to load.")
        return wanted


class UnloadForm(PlaceForm):
    name = forms.CharField(max_length=64, error_messages={"required": "Name what to unload."})
    kind = forms.ChoiceField(choices=[(each, each) for each in KINDS], required=False)


class ShareForm(PlaceForm):
    shares = forms.ChoiceField(choices=[("1", "Yes"), ("0", "No")], error_messages={"required": "Say on or off."})
