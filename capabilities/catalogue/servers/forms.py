"""The form of an MCP server, and the address of the list."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django import forms

from capabilities.catalogue.servers.queries import credentials_by_title
from capabilities.catalogue.servers.writes import MAX_URL, ServerContent, server_content
from capabilities.models import McpServer, StoredCredential, Transport
from capabilities.running.mcp_client.limits import CONNECT_SECONDS, MOST_CONNECT_SECONDS
from capabilities.running.mcp_client.protocol import VERSIONS
from toolhub.tenants.list_address import ListAddress

PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}


class ServersAddress(ListAddress):
    """Query of the list of servers: search words, and where the page begins."""

    q = forms.CharField(required=False, max_length=100)


class CredentialChoice(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, credential: StoredCredential) -> str:
        return f"{credential.title} ({credential.get_scope_display().lower()})"


class ServerForm(forms.Form):
    """A server. The choice of a process is only there where the installation has one for the organisation."""

    name = forms.CharField(
        max_length=32,
        label="Name",
        help_text="Its tools are called mcp__NAME__TOOL. Lower-case letters, digits, - and _.",
        widget=forms.TextInput(attrs=PLAIN | {"class": "mono"}),
    )
    title = forms.CharField(required=False, max_length=100, label="Title", help_text="Blank: the name.")
    transport = forms.ChoiceField(
        label="How it is reached",
        choices=Transport.choices,
        initial=Transport.HTTP,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    url = forms.CharField(
        required=False,
        max_length=MAX_URL,
        label="Address",
        help_text="Of a server over HTTP, such as https://mcp.example.org/mcp. Put no key here: choose a credential.",
        widget=forms.TextInput(attrs=PLAIN | {"inputmode": "url"}),
    )
    stdio_name = forms.ChoiceField(
        required=False,
        label="Process",
        help_text="Of a process of this installation. The operator lists them in TOOLHUB_MCP_STDIO.",
    )
    credential = CredentialChoice(
        StoredCredential.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="None: it asks for nothing",
        help_text="It is sent only to the origins that it is for.",
    )
    start_seconds = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_CONNECT_SECONDS,
        initial=CONNECT_SECONDS,
        label="Seconds to start",
        help_text="That it may take to connect, or a process to start, before it counts as not reached.",
    )
    pinned_protocol = forms.ChoiceField(
        required=False,
        label="Version of the protocol",
        choices=[("", "Agree on the newest that both speak"), *((each, each) for each in reversed(VERSIONS))],
        help_text="Pin one for a server that answers badly to newer ones.",
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="On: its tools can be used")

    def __init__(self, *args: Any, server: McpServer | None = None, processes: tuple[str, ...] = (), **kwargs: Any):
        if server is not None:
            kwargs["initial"] = asdict(server_content(server))
        super().__init__(*args, **kwargs)
        self.fields["credential"].queryset = credentials_by_title()  # type: ignore[attr-defined]
        names = dict.fromkeys((*processes, *([server.stdio_name] if server and server.stdio_name else ())))
        if names:
            self.fields["stdio_name"].choices = [("", "Choose one"), *((each, each) for each in names)]  # type: ignore[attr-defined]
        else:
            del self.fields["transport"], self.fields["stdio_name"]
            self.fields["url"].required = True

    def keep_name(self) -> None:
        """Show the name, and take no other: the server has tools, whose names begin with it."""
        self.fields["name"].disabled = True
        self.fields["name"].help_text = "The names of its tools begin with it, so it stays. Change the title."

    def content(self) -> ServerContent:
        data = self.cleaned_data
        transport = data.get("transport") or Transport.HTTP.value
        is_http = transport == Transport.HTTP
        return ServerContent(
            name=data["name"],
            title=data["title"],
            transport=transport,
            # What was typed into the fields of the other transport is left out.
            url=data["url"] if is_http else "",
            stdio_name="" if is_http else data.get("stdio_name", ""),
            credential=data["credential"].name if is_http and data["credential"] else "",
            start_seconds=data["start_seconds"] or CONNECT_SECONDS,
            pinned_protocol=data["pinned_protocol"],
            is_enabled=data["is_enabled"],
        )
