"""HTTP tools of tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capabilities.catalogue.http_tools.writes import HttpToolContent, create_http_tool
from capabilities.catalogue.tools.writes import Definition
from capabilities.models import StoredCredential, StoredSecret, Tool
from tests.cast import make_category
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

URL = "https://api.example.org"
REQUEST: dict[str, Any] = {
    "method": "GET",
    "url": f"{URL}/users/{{id}}",
    "arguments": {"id": {"in": "path"}, "verbose": {"in": "query"}},
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer", "description": "Whose."}, "verbose": {"type": "boolean"}},
    "required": ["id"],
    "additionalProperties": False,
}
READ_USER = Definition(
    "read_user", "Reads a user.", PARAMETERS, effect="read", implementation=REQUEST, untrusted_output=True
)


def content(**changes: Any) -> HttpToolContent:
    more = {name: changes.pop(name) for name in ("credential", "category") if name in changes}
    return HttpToolContent(replace(READ_USER, **changes), **{"category": "utility", **more})


def make_http_tool(actor: Membership, **changes: Any) -> Tool:
    make_category(actor.organisation)
    with organisation_scope(actor.organisation_id):
        return create_http_tool(content(**changes), actor=actor)


def make_credential(member: Membership, name: str = "api", **columns: Any) -> StoredCredential:
    """With the organisation's secret."""
    secret = columns.pop("secret", '{"token": "s3cret-of-acme"}')
    with organisation_scope(member.organisation_id):
        credential = StoredCredential.objects.create(
            organisation_id=member.organisation_id,
            name=name,
            **{"title": "The API", "kind": "bearer", "origins": [URL]} | columns,
        )
        StoredSecret.objects.create(organisation_id=member.organisation_id, credential=credential, values_json=secret)
        return credential
