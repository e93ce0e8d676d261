"""Discovery of a protected resource's authorization server and its metadata (RFC 9728, RFC 8414, OIDC)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from capabilities.running.credentials.challenges import challenge_value
from capabilities.running.credentials.oauth.requests import OAuthRefused, ask, check_endpoint, host_of

#: Fields of an authorization server's metadata that are kept.
KEPT = (
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
    "scopes_supported",
    "token_endpoint_auth_methods_supported",
    "revocation_endpoint_auth_methods_supported",
    "code_challenge_methods_supported",
    "client_id_metadata_document_supported",
    "authorization_response_iss_parameter_supported",
)
ENDPOINTS = {
    "authorization_endpoint": "The page to sign in",
    "token_endpoint": "The address for tokens",
    "registration_endpoint": "The address to register a client",
    "revocation_endpoint": "The address to revoke tokens",
}


@dataclass(frozen=True)
class Discovered:
    """An authorization server as it was found and checked, and what tokens for the resource are asked with."""

    issuer: str
    #: Its metadata, those of KEPT.
    metadata: Mapping[str, Any]
    #: RFC 8707; empty where no resource names itself.
    resource_indicator: str = ""
    #: Permissions that the resource wants, where an administrator names none.
    scopes: tuple[str, ...] = ()


def discover(resource: str, issuer: str) -> Discovered:
    """Find the authorization server of `resource`, or read that of `issuer`; at least one of them is given. With both,
    the resource must name that issuer.

    Raises OAuthRefused for whatever is missing or not as the standards have it: another issuer than was asked for, no
    PKCE with S256, an address that is not https, or is private.
    """
    found = _protected_resource(resource) if resource else None
    wanted = ""
    indicator, scopes = "", tuple[str, ...]()
    if found is not None:
        servers = [str(each) for each in found.authorization_servers]
        wanted = _chosen(servers, issuer, resource)
        indicator, scopes = str(found.resource), tuple(found.scopes_supported or ())
    metadata = _server_metadata(wanted or issuer, resource)
    if not indicator and resource:
        indicator = _canonical(resource)
    return Discovered(str(metadata["issuer"]), metadata, indicator, scopes)


def _chosen(servers: list[str], issuer: str, resource: str) -> str:
    """The first of the resource's authorization servers, or the one that was set, or found before."""
    from mcp.client.auth.utils import issuers_match  # noqa: PLC0415 -- leaf

    if not issuer:
        return servers[0]
    for each in servers:
        if issuers_match(each, issuer):
            return each
    raise OAuthRefused(
        f"{host_of(resource)} now names another authorization server, {servers[0][:200]}, than {issuer[:200]}: "
        "an administrator must check it and change the credential."
    )


# -- The protected resource -------------------------------------------------------------------------------------------


def _protected_resource(resource: str) -> Any | None:
    """Return the metadata that the resource publishes (ProtectedResourceMetadata), or None where it publishes none."""
    from mcp.client.auth.utils import (  # noqa: PLC0415 -- leaf
        build_protected_resource_metadata_discovery_urls,
    )
    from mcp.shared.auth import ProtectedResourceMetadata  # noqa: PLC0415 -- leaf
    from mcp.shared.auth_utils import check_resource_allowed  # noqa: PLC0415 -- leaf

    check_endpoint("The address of the service", resource)
    status, headers, _ = ask("GET", resource)
    challenge = headers.get("www-authenticate", "") if status in (401, 403) else ""
    named = challenge_value(challenge, "resource_metadata")
    for body in _documents(build_protected_resource_metadata_discovery_urls(named or None, resource)):
        try:
            found = ProtectedResourceMetadata.model_validate(body)
        except ValidationError:
            continue
        if not check_resource_allowed(resource, str(found.resource)):
            raise OAuthRefused(f"{host_of(resource)} describes another resource than itself, {found.resource}.")
        wanted = challenge_value(challenge, "scope").split()
        return found.model_copy(update={"scopes_supported": wanted}) if wanted else found
    return None


def _canonical(resource: str) -> str:
    from mcp.shared.auth_utils import resource_url_from_server_url  # noqa: PLC0415 -- leaf

    return resource_url_from_server_url(resource)


# -- The authorization server -----------------------------------------------------------------------------------------


def _server_metadata(issuer: str, resource: str) -> dict[str, Any]:
    """The metadata of this issuer, checked; of the resource's own host, where no issuer is known."""
    from mcp.client.auth.utils import (  # noqa: PLC0415 -- leaf
        build_oauth_authorization_server_metadata_discovery_urls,
        issuers_match,
    )
    from mcp.shared.auth import OAuthMetadata  # noqa: PLC0415 -- leaf

    asked = issuer or resource
    check_endpoint("The authorization server", asked)
    for body in _documents(build_oauth_authorization_server_metadata_discovery_urls(issuer or None, resource)):
        try:
            OAuthMetadata.model_validate(body)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise OAuthRefused(
                f"{host_of(asked)} describes its sign-in in a way that cannot be read ({where})."
            ) from error
        if issuer and not issuers_match(str(body["issuer"]), issuer):
            raise OAuthRefused(f"{host_of(asked)} says that it is another issuer, {str(body['issuer'])[:200]}.")
        if not issuer:
            check_endpoint("The issuer", str(body["issuer"]))
        return _checked(body, host_of(asked))
    raise OAuthRefused(f"{host_of(asked)} says nothing of how to sign in (RFC 8414).", is_lasting=False)


def _checked(body: Mapping[str, Any], host: str) -> dict[str, Any]:
    for name, title in ENDPOINTS.items():
        if body.get(name):
            check_endpoint(title, str(body[name]))
    if "S256" not in (body.get("code_challenge_methods_supported") or ()):
        raise OAuthRefused(f"{host} does not support PKCE with S256, without which a sign-in is not safe.")
    return {name: body[name] for name in KEPT if body.get(name) is not None}


def _documents(urls: Iterable[str]) -> Iterable[Any]:
    """The JSON objects at these addresses, one after the other. Raises the last reason where none could be asked."""
    failure: OAuthRefused | None = None
    has_answer = False
    for url in urls:
        try:
            status, _, body = ask("GET", url, headers={"MCP-Protocol-Version": "2025-11-25"})
        except OAuthRefused as error:
            failure = error
            continue
        has_answer = True
        if status == 200 and isinstance(body, dict):
            yield body
    if failure is not None and not has_answer:
        raise failure
