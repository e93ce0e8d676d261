"""Becoming a client of an authorization server: by a document of ours that it reads, or by registering there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from capabilities.running.credentials.oauth.requests import OAuthRefused, ask, host_of
from capabilities.running.egress import is_listed

NAME = "toolhub"
DOCUMENT, DYNAMIC, MANUAL = "metadata_document", "dynamic", "manual"


@dataclass(frozen=True)
class OAuthClient:
    """Our client at an authorization server, as the server knows it."""

    registration: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    client_auth: str = "none"


def client_document(url: str, redirect_uri: str) -> dict[str, Any]:
    """The Client ID Metadata Document at this address of ours: what an authorization server reads of us."""
    return {
        "client_id": url,
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }


def become_client(metadata: Mapping[str, Any], *, document_url: str, redirect_uri: str, scopes: str) -> OAuthClient:
    """The best way that this server offers: our document where it reads such, else registering now (RFC 7591).

    Raises OAuthRefused where it offers neither.
    """
    if metadata.get("client_id_metadata_document_supported") is True and _is_readable(document_url):
        return OAuthClient(DOCUMENT, document_url)
    endpoint = metadata.get("registration_endpoint")
    if not endpoint:
        raise OAuthRefused(
            f"{host_of(metadata['issuer'])} lets no client register by itself: an administrator must register one "
            "there, and type its id and secret into the credential."
        )
    return _registered(str(endpoint), redirect_uri, scopes)


def _is_readable(document_url: str) -> bool:
    """Return whether an authorization server may read our document: by https, or on a host that the operator listed."""
    return document_url.startswith("https://") or is_listed(document_url)


def _registered(endpoint: str, redirect_uri: str, scopes: str) -> OAuthClient:
    """Register the service as a client at this endpoint. Raises OAuthRefused."""
    from mcp.client.auth.exceptions import OAuthRegistrationError  # noqa: PLC0415 -- leaf
    from mcp.client.auth.oauth2 import check_registration_usable  # noqa: PLC0415 -- leaf
    from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415 -- leaf

    wanted = client_document("", redirect_uri)
    del wanted["client_id"]
    if scopes:
        wanted["scope"] = scopes
    status, _, body = ask(
        "POST", endpoint, headers={"Content-Type": "application/json"}, content=json.dumps(wanted).encode()
    )
    if status not in (200, 201) or not isinstance(body, dict):
        raise OAuthRefused(f"{host_of(endpoint)} did not register us as a client (status {status}).", is_lasting=False)
    try:
        client = OAuthClientInformationFull.model_validate({**body, "issuer": None})
        check_registration_usable(client)
    except (ValidationError, OAuthRegistrationError) as error:
        raise OAuthRefused(f"{host_of(endpoint)} registered us in a way that cannot be used.") from error
    secret = client.client_secret or ""
    method = client.token_endpoint_auth_method or ("client_secret_basic" if secret else "none")
    return OAuthClient(DYNAMIC, client.client_id[:500], secret, method)
