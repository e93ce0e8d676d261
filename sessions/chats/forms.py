"""The forms of a chat: which agent to begin with, what to say to which, and what to load."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django import forms

from capabilities.models import Agent
from sessions.chats.queries import agents_to_talk_to
from sessions.loading.writes import KINDS
from sessions.models import ChatSession
from sessions.turns.ledger import MAX_MESSAGE


class NewSessionForm(forms.Form):
    """Choices are read when the form is made, in the scope of its organisation."""

    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        empty_label=None,
        error_messages={"invalid_choice": "There is no such agent.", "required": "Choose an agent."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].queryset = agents_to_talk_to()  # type: ignore[attr-defined]


class SessionForm(forms.Form):
    """What a session is called."""

    title = forms.CharField(
        label="Title",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": "Give it a title."},
    )


class MessageForm(forms.Form):
    """What the member says, and to which agent. `key` tells a second click from a second message."""

    message = forms.CharField(
        max_length=MAX_MESSAGE,
        strip=False,
        error_messages={"required": "Write a message first."},
        widget=forms.Textarea(
            attrs={"rows": 1, "placeholder": "Message", "aria-label": "Message", "autocomplete": "off"}
        ),
    )
    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        required=False,
        empty_label=None,
        error_messages={"invalid_choice": "There is no such agent, or it is switched off."},
        widget=forms.Select(attrs={"aria-label": "Agent"}),
    )
    key = forms.UUIDField(required=False, widget=forms.HiddenInput(attrs={"id": None}))

    def __init__(self, *args: Any, agents: Sequence[tuple[str, str]] | None = None, **kwargs: Any) -> None:
        """`agents`: those to choose from, as (slug, name), where they are read already."""
        super().__init__(*args, **kwargs)
        field: Any = self.fields["agent"]
        field.queryset = agents_to_talk_to()
        field.choices = agents or [(agent.slug, str(agent)) for agent in field.queryset]
        self.initial.setdefault("key", uuid.uuid4())

    def clean_message(self) -> str:
        message: str = self.cleaned_data["message"].replace("\r\n", "\n").strip("\n")
        if not message.strip():
            raise forms.ValidationError("Write a message first.")
        return message

    def offers_agents(self) -> bool:
        """Whether there is more than one to choose from."""
        choices: Any = self.fields["agent"]
        return len(choices.choices) > 1

    def idempotency_key(self) -> str:
        key = self.cleaned_data.get("key")
        return f"page-{key}" if key else ""


class PlaceForm(forms.Form):
    """Which of a session's agents is meant: its first, where none is named."""

    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        required=False,
        error_messages={"invalid_choice": "There is no such agent."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = Agent.objects.select_related("model__provider").defer("model__provider__api_key")
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
