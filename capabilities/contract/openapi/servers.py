"""Addresses that a document names for its calls, and what signs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from capabilities.contract.openapi.references import Document, entries, mapping, text

MAX_SERVERS = 20
_VARIABLE = re.compile(r"\{([^{}]*)\}")


def addresses(servers: Any, document_url: str) -> list[dict[str, str]]:
    """The addresses of a `servers` list, variables at their default, relative ones against the document's own address.
    One that stays relative, because the document came as a file, is left out."""
    found: list[dict[str, str]] = []
    for each in entries(servers)[:MAX_SERVERS]:
        server = mapping(each)
        url = _absolute(_filled(text(server.get("url")), mapping(server.get("variables"))), document_url)
        if url and url not in [known["url"] for known in found]:
            found.append({"url": url, "description": " ".join(text(server.get("description")).split())[:200]})
    return found


def _filled(url: str, variables: Mapping[str, Any]) -> str:
    """Return the URL with each variable at its default, or at the first of its values."""

    def value(found: re.Match[str]) -> str:
        variable = mapping(variables.get(found[1]))
        values = [each for each in entries(variable.get("enum")) if isinstance(each, str | int)]
        default = variable.get("default", values[0] if values else None)
        return str(default) if isinstance(default, str | int) else found[0]

    return _VARIABLE.sub(value, url)


def _absolute(url: str, document_url: str) -> str:
    try:
        whole = urljoin(document_url, url.strip()) if document_url else url.strip()
        parts = urlsplit(whole)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or _VARIABLE.search(whole):
        return ""
    return whole.partition("?")[0].partition("#")[0].rstrip("/")[:1_000]


# -- What signs calls -------------------------------------------------------------------------------------------------


def credentials(document: Document) -> dict[str, dict[str, str]]:
    """The security schemes that a stored credential can stand for, by name, in the words of stored credentials:
    kind, parameter, prefix; and `title` for people. What none can stand for has the kind "" and says so."""
    components = mapping(document.root.get("components"))
    return {
        str(name): _credential(str(name), document.component("securitySchemes", str(name)))
        for name in mapping(components.get("securitySchemes"))
    }


def _credential(name: str, scheme: Mapping[str, Any]) -> dict[str, str]:
    """Return how a security scheme signs, as fields of a stored credential; `kind` is empty for one that cannot be
    stored."""
    kind, location = text(scheme.get("type")), text(scheme.get("in"))
    parameter = text(scheme.get("name"))[:100]
    description = " ".join(text(scheme.get("description")).split())[:300]
    found = {
        "kind": "",
        "parameter": "",
        "prefix": "",
        "title": f"{name}: nothing that can be stored",
        "note": description,
    }
    if kind == "http" and text(scheme.get("scheme")).lower() == "bearer":
        found |= {"kind": "bearer", "title": f"{name}: a bearer token"}
    elif kind == "http" and text(scheme.get("scheme")).lower() == "basic":
        found |= {"kind": "basic", "title": f"{name}: a user name and a password"}
    elif kind == "apiKey" and location in ("header", "query") and parameter:
        where = "header" if location == "header" else "query parameter"
        found |= {"kind": location, "parameter": parameter, "title": f"{name}: the {where} {parameter}"}
    elif kind == "apiKey" and location == "cookie":
        found |= {"title": f"{name}: a cookie, which cannot be stored"}
    elif kind in ("oauth2", "openIdConnect"):
        found |= {"kind": "oauth", "title": f"{name}: an OAuth sign-in"}
    return found


def secret_places(document: Document, security: Any) -> dict[tuple[str, str], str]:
    """Return the places of credentials in the requests of an operation with this `security`: the scheme by place and
    lower-case name. No argument goes there. Empty where the document says that nothing signs it (`[]`)."""
    if isinstance(security, list) and not any(map(mapping, security)):
        return {}
    found: dict[tuple[str, str], str] = {}
    for name in mapping(mapping(document.root.get("components")).get("securitySchemes")):
        scheme = document.component("securitySchemes", str(name))
        if text(scheme.get("type")) == "apiKey" and text(scheme.get("name")):
            found[text(scheme.get("in")), text(scheme.get("name")).lower()] = str(name)
    return found


def needed(security: Any, schemes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Names of the schemes that one alternative of a `security` list asks for: the first that can be stored whole.
    Empty where none is needed."""
    alternatives = [[str(name) for name in mapping(each)] for each in entries(security)]
    if not alternatives or any(not each for each in alternatives):
        return []
    storable = [each for each in alternatives if len(each) == 1 and schemes.get(each[0], {}).get("kind")]
    return (storable or alternatives)[0]
