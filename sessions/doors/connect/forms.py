"""Choice of client and target in the page's address, and the form of a client's token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import Http404, QueryDict

from sessions.doors.connect.clients import BY_KEY, CLAUDE_CODE, OPENAI_SDK, Client, Protocol
from sessions.doors.connect.queries import TOOLKIT, Target
from toolhub.tenants.tokens.forms import TokenForm


def client_asked_for(query: QueryDict) -> Client:
    """The client that an address names; without one the first that fits what it is to be connected to.

    Raises Http404 for one that is not known.
    """
    key = query.get("client", "")
    if not key:
        return CLAUDE_CODE if query.get("to", "").startswith(TOOLKIT) else OPENAI_SDK
    if key not in BY_KEY:
        raise Http404("No such client.")
    return BY_KEY[key]


class TargetForm(forms.Form):
    """Choice of the target to connect to: an agent, or for clients of MCP a toolkit."""

    to = forms.ChoiceField(label="Connect to", required=False)

    def __init__(self, query: QueryDict, client: Client, agents: Sequence[Target], toolkits: Sequence[Target]) -> None:
        self.targets = {each.address: each for each in [*agents, *toolkits]}
        wanted = query.get("to", "")
        if client.protocol is Protocol.OPENAI and wanted.startswith(TOOLKIT):
            wanted = ""
        self.target = self._target(wanted)
        super().__init__(initial={"to": self.target.address if self.target else ""})
        groups = [("Agents", agents), *([("Toolkits", toolkits)] if client.protocol is Protocol.MCP else [])]
        field: Any = self.fields["to"]
        field.choices = [(title, [(each.address, each.name) for each in group]) for title, group in groups if group]

    def _target(self, wanted: str) -> Target | None:
        """Return the wanted target; without a wish the first, None where there is none. Raises Http404 for one that is
        not there."""
        if wanted:
            if wanted not in self.targets:
                raise Http404("No such agent or toolkit.")
            return self.targets[wanted]
        return next(iter(self.targets.values()), None)


class ClientTokenForm(TokenForm):
    """A token's name and life; what it may be used for is known."""

    scopes = None  # type: ignore[assignment]
