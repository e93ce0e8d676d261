"""The forms of a chat: which agent to begin with, what to say to which, and what to load."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django import forms
from django.template.defaultfilters import filesizeformat

from capabilities.contract.attachments import MAX_ATTACHED, MOST_ATTACHED, TEXTS
from capabilities.models import Agent
from sessions.doors.chats.queries import MAX_SEARCH, agents_to_talk_to
from sessions.models import StepFile
from sessions.turns.accepting import MAX_MESSAGE
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership


class WhoseAddress(ListAddress):
    """Address of a list with a choice of one's own rows, or everybody's."""

    whose = forms.ChoiceField(required=False, choices=[("", "Yours"), ("all", "Everybody's")])

    @property
    def everyone(self) -> bool:
        return self.filters["whose"] == "all"


#: Kinds of files that a browser offers to choose from; which are taken, the bytes say.
ACCEPTED = ",".join(("image/png", "image/jpeg", "image/gif", "image/webp", ".pdf", *(f".{each}" for each in TEXTS)))

#: Which sessions a list shows, by who opened them.
CLIENTS = [("", "Conversations"), ("openai", "Clients of OpenAI’s API"), ("mcp", "MCP clients")]


class SessionsAddress(WhoseAddress):
    q = forms.CharField(required=False)
    client = forms.ChoiceField(required=False, choices=CLIENTS)

    def clean_q(self) -> str:
        """Return the words of the search, cut to MAX_SEARCH characters."""
        return str(self.cleaned_data["q"])[:MAX_SEARCH]


class NewSessionForm(forms.Form):
    """Choices are read when the form is made, in the scope of its organisation."""

    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        empty_label=None,
        error_messages={"invalid_choice": "There is no such agent.", "required": "Choose an agent."},
    )
    #: Name of a toolkit that is loaded at once, where it was asked for on its page.
    toolkit = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, member: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].queryset = agents_to_talk_to(member)  # type: ignore[attr-defined]


class SessionForm(forms.Form):
    """Title of a session."""

    title = forms.CharField(
        label="Title",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        error_messages={"required": "Give it a title."},
    )


class FilesInput(forms.FileInput):
    """Input of several files."""

    allow_multiple_selected = True


class MessageForm(forms.Form):
    """Message of the member with its files, and the agent that gets it. `key` tells a second click from a second
    message."""

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
    #: The new files are those of the request: `attached`. A field of Django's has one.
    files_sent = forms.Field(
        required=False,
        widget=FilesInput(
            attrs={"id": "id_files", "accept": ACCEPTED, "data-most": MAX_ATTACHED, "aria-label": "Attach files"}
        ),
    )
    #: Files of the message whose place this one takes, that go with it again.
    again = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "One of these files is not there any more."},
    )
    #: Value of the button "Quick question".
    without_tools = forms.BooleanField(required=False)
    #: The turn whose place the message takes, or the one behind which it goes on, by its key.
    replaces = forms.UUIDField(required=False, widget=forms.HiddenInput(attrs={"id": False}))
    follows = forms.UUIDField(required=False, widget=forms.HiddenInput(attrs={"id": False}))
    key = forms.UUIDField(required=False, widget=forms.HiddenInput(attrs={"id": False}))

    def __init__(
        self,
        *args: Any,
        member: Membership,
        agents: Sequence[tuple[str, str]] | None = None,
        before: Sequence[StepFile] = (),
        **kwargs: Any,
    ) -> None:
        """`agents`: those to choose from, as (slug, name), where they are read already; `before`: the files of the
        message whose place this one takes."""
        super().__init__(*args, **kwargs)
        field: Any = self.fields["agent"]
        field.queryset = agents_to_talk_to(member)
        field.choices = agents or [(agent.slug, str(agent)) for agent in field.queryset]
        self.initial.setdefault("key", uuid.uuid4())
        again: Any = self.fields["again"]
        again.choices = [(str(each.public_id), f"{each.name}, {filesizeformat(each.size)}") for each in before]
        self.initial.setdefault("again", [value for value, _ in again.choices])

    def attached(self) -> list[tuple[str, bytes]]:
        """Return the new files, as (name, content), one more than are taken at most."""
        sent = self.files.getlist("files_sent") if self.files else []
        return [(each.name or "", each.read()) for each in sent[: MOST_ATTACHED + 1]]

    def again_ids(self) -> list[uuid.UUID]:
        return [uuid.UUID(each) for each in self.cleaned_data["again"]]

    def clean_message(self) -> str:
        message: str = self.cleaned_data["message"].replace("\r\n", "\n").strip("\n")
        if not message.strip():
            raise forms.ValidationError("Write a message first.")
        return message

    def offers_agents(self) -> bool:
        """Return whether there is more than one agent to choose from."""
        choices: Any = self.fields["agent"]
        return len(choices.choices) > 1

    def idempotency_key(self) -> str:
        key = self.cleaned_data.get("key")
        return f"page-{key}" if key else ""
