"""The forms of credentials and of accounts. What is stored of a secret is never in one."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.models import CredentialKind, CredentialScope, StoredCredential
from capabilities.running.credentials.writes import LABELS, MAX_SECRET, VALUES, CredentialContent
from toolhub.tenants.list_address import ListAddress

PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
HIDDEN = {**PLAIN, "autocomplete": "new-password"}
#: Use of each kind, shown where one is chosen.
ABOUT = {
    CredentialKind.BEARER: "The header Authorization with a token: most web services.",
    CredentialKind.HEADER: "A header of another name, such as X-Api-Key.",
    CredentialKind.QUERY: "A parameter in the address, such as ?api_key=.",
    CredentialKind.BASIC: "HTTP basic authentication.",
    CredentialKind.OAUTH: "People sign in at the service, and agree there. For MCP servers and others with OAuth.",
}


class CredentialFilter(ListAddress):
    """The address of the list."""

    q = forms.CharField(required=False, max_length=100)


def secret_field(name: str, *, required: bool, help_text: str = "") -> forms.CharField:
    is_hidden = name != "user"
    widget = forms.PasswordInput(attrs=HIDDEN) if is_hidden else forms.TextInput(attrs=PLAIN)
    label = LABELS[name]
    return forms.CharField(required=required, max_length=MAX_SECRET, label=label, help_text=help_text, widget=widget)


class CredentialForm(forms.Form):
    """Form of a credential of one kind, chosen before; its name and scope are asked for once, when it is made."""

    title = forms.CharField(max_length=100, help_text="Members read it where they connect an account.")
    name = forms.CharField(
        max_length=63,
        label="Short name",
        help_text="Lower-case letters, digits and hyphens. It cannot be changed later.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    scope = forms.ChoiceField(
        choices=[
            (CredentialScope.ORGANISATION, "One secret for the organisation: every call uses it"),
            (CredentialScope.MEMBER, "Each member connects an own account: a call uses its member’s"),
        ],
        initial=CredentialScope.ORGANISATION,
        label="Whose account",
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )

    def __init__(self, data: Any, kind: CredentialKind, *, credential: StoredCredential | None = None) -> None:
        self.kind, self.credential = kind, credential
        super().__init__(data, initial=self._stored() if credential is not None else None)
        if credential is not None:
            del self.fields["name"], self.fields["scope"]
        is_oauth = kind == CredentialKind.OAUTH
        for name, field in (self._oauth_fields() if is_oauth else self._plain_fields()).items():
            self.fields[name] = field

    def _stored(self) -> dict[str, Any]:
        row = self.credential
        assert row is not None
        lines = {"origins": "\n".join(row.origins), "scopes": " ".join(row.scopes)}
        client_id = row.client_id if row.registration == "manual" else ""
        names = ("title", "parameter", "prefix", "resource", "issuer")
        return {**{name: getattr(row, name) for name in names}, **lines, "client_id": client_id}

    def _plain_fields(self) -> dict[str, forms.Field]:
        fields: dict[str, forms.Field] = {}
        if self.kind in (CredentialKind.HEADER, CredentialKind.QUERY):
            is_header = self.kind == CredentialKind.HEADER
            fields["parameter"] = forms.CharField(
                max_length=100,
                label="Name of the header" if is_header else "Name of the parameter",
                widget=forms.TextInput(attrs={**PLAIN, "placeholder": "X-Api-Key" if is_header else "api_key"}),
            )
        if self.kind != CredentialKind.BASIC:
            fields["prefix"] = forms.CharField(
                required=False,
                max_length=40,
                strip=False,
                label="Text before the secret",
                help_text="Blank: “Bearer ”." if self.kind == CredentialKind.BEARER else "Such as “Token ”.",
                widget=forms.TextInput(attrs=PLAIN),
            )
        fields["origins"] = self._origins(is_required=True)
        is_shared = self.credential is None or self.credential.scope == CredentialScope.ORGANISATION
        for name in VALUES[self.kind] if is_shared else ():
            fields[name] = secret_field(name, required=False, help_text=self._about_secret(name))
        return fields

    def _oauth_fields(self) -> dict[str, forms.Field]:
        has_secret = self.credential is not None and self.credential.registration == "manual"
        return {
            "resource": forms.URLField(
                required=False,
                max_length=500,
                assume_scheme="https",
                label="Address of the service",
                help_text="Of an MCP server, for example: where to sign in is read from there.",
            ),
            "issuer": forms.URLField(
                required=False,
                max_length=500,
                assume_scheme="https",
                label="Authorization server",
                help_text="Blank: the one that the service names. With it, no other one is accepted.",
            ),
            "scopes": forms.CharField(
                required=False,
                max_length=5_000,
                label="Permissions",
                help_text="OAuth scopes, with spaces between. Blank: those that the service asks for.",
                widget=forms.TextInput(attrs=PLAIN),
            ),
            "origins": self._origins(is_required=False),
            "client_id": forms.CharField(
                required=False,
                max_length=500,
                label="Client id",
                help_text="Only where the authorization server lets no client register by itself.",
                widget=forms.TextInput(attrs=PLAIN),
            ),
            "client_secret": forms.CharField(
                required=False,
                max_length=MAX_SECRET,
                label="Client secret",
                help_text="Stored. Leave blank to keep it." if has_secret else "Encrypted when stored.",
                widget=forms.PasswordInput(attrs=HIDDEN),
            ),
        }

    def _origins(self, *, is_required: bool) -> forms.Field:
        help_text = "Scheme and host, one a line: https://api.example.org. It is sent nowhere else."
        return forms.CharField(
            required=is_required,
            max_length=6_000,
            label="Where it may be sent",
            help_text=help_text if is_required else f"{help_text} Blank: the host of the service.",
            widget=forms.Textarea(attrs={"rows": 2, **PLAIN}),
        )

    def _about_secret(self, name: str) -> str:
        if name == "user":
            return ""
        if self.credential is None:
            return "Only for one secret of the organisation. Encrypted when stored."
        if getattr(self.credential, "shared_status", None) is None:
            return "Encrypted when stored."
        return "Stored. Leave blank to keep it. It has to be typed again with another address."

    def content(self) -> CredentialContent:
        data = self.cleaned_data
        names = ("title", "parameter", "prefix", "resource", "issuer", "client_id", "client_secret")
        return CredentialContent(
            kind=self.kind,
            scope=data.get("scope", CredentialScope.ORGANISATION),
            origins=[line.strip() for line in data.get("origins", "").splitlines() if line.strip()],
            scopes=data.get("scopes", "").split(),
            **{name: data[name] for name in names if name in data},
        )

    def secret(self) -> dict[str, str]:
        """Return the typed values of the organisation's secret, by name."""
        return {name: self.cleaned_data[name] for name in VALUES[self.kind] if self.cleaned_data.get(name)}


class AccountForm(forms.Form):
    """A member's own secret, typed."""

    def __init__(self, data: Any, *, credential: StoredCredential) -> None:
        super().__init__(data)
        for name in VALUES[credential.kind]:
            help_text = "Encrypted when stored, and shown to nobody." if name != "user" else ""
            self.fields[name] = secret_field(name, required=True, help_text=help_text)

    def values(self) -> dict[str, str]:
        return {name: self.cleaned_data[name] for name in self.fields}
