"""HTTP tools as pages and programs read them: one with its content, and what one would be before it is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404

from capabilities.catalogue.http_tools.rules import sample_arguments
from capabilities.catalogue.http_tools.writes import (
    HttpToolContent,
    category_for,
    checked,
    content_of,
    credential_named,
)
from capabilities.catalogue.tools.writes import Definition
from capabilities.catalogue.versions.rules import changes_code, status_of_new
from capabilities.choosing.pipeline.runtime_layers import layers_for
from capabilities.common.tokens import count_each
from capabilities.contract.context import Credential, ToolError
from capabilities.contract.http_request import build_request
from capabilities.contract.http_tool import HttpRequest, read_implementation
from capabilities.contract.masking import MASK
from capabilities.contract.tool_size import LEAST, size_warnings
from capabilities.contract.warnings import DefinitionWarning, warnings_of
from capabilities.contract.wire import tool_wire
from capabilities.models import CredentialKind, StoredCredential, Tool, ToolKind, ToolVersion, VersionStatus
from capabilities.running.credentials.signing import added_by
from capabilities.running.egress import origin_of, place
from toolhub.tenants.models import Membership

#: Stands for a secret until the request is written down.
MARK = "SECRETOFTHECREDENTIAL"
#: Characters of a body that a preview shows.
BODY_CHARS = 4_000


def http_tool_or_404(name: str) -> Tool:
    """Return the HTTP tool of this name. Raises Http404. One query."""
    rows = Tool.objects.select_related("category", "credential", "current_version")
    tool = rows.filter(name=name, kind=ToolKind.HTTP).first()
    if tool is None:
        raise Http404("No such HTTP tool.")
    return tool


def version_at_hand(tool: Tool) -> ToolVersion | None:
    """Return the version that an edit begins with: that in force, else the newest, which takes one query."""
    return tool.current_version or tool.versions.order_by("-number").first()


def waiting_version(tool: Tool) -> ToolVersion | None:
    """The newest version that waits for approval. One query."""
    rows = tool.versions.filter(status=VersionStatus.PENDING).defer("wire", "parameters")
    return rows.order_by("-number").first()


def stored_content(tool: Tool) -> HttpToolContent | None:
    """Return the content that an edit begins with; None for a tool without any version."""
    version = version_at_hand(tool)
    return content_of(tool, version) if version else None


def credential_choices() -> Sequence[tuple[str, str]]:
    """Return name and title of credentials, with where each may be sent. One query."""
    rows = StoredCredential.objects.order_by("title", "name").only("organisation_id", "name", "title", "origins")
    return [(each.name, f"{each.title} ({', '.join(each.origins) or 'nowhere'})") for each in rows]


@dataclass(frozen=True)
class HttpPreview:
    """Preview of a tool, before it is saved."""

    #: Definition as the model is sent it, and its tokens.
    wire: str
    tokens: int
    #: The request of a call with `arguments`, its secret as dots; or why such a call would not be sent.
    arguments: Mapping[str, Any]
    request: str
    problem: str
    warnings: Sequence[DefinitionWarning]
    #: Status that says whether it would be in force at once, or wait.
    status: VersionStatus


def preview_of(
    content: HttpToolContent, arguments: Mapping[str, Any] | None, *, member: Membership, tool: Tool | None = None
) -> HttpPreview:
    """Raises what saving would raise. Without `arguments` some are made up. At most four
    queries, and one more for a large
    definition."""
    category = tool.category if tool else category_for(content, member)
    definition = checked(content.definition)
    credential = credential_named(content.credential, definition)
    wire = tool_wire(definition.name, definition.description, definition.parameters)
    sample = sample_arguments(definition.parameters) if arguments is None else arguments
    request, problem = "", ""
    try:
        built = build_request(read_implementation(definition.implementation), sample)
        request = request_text(_keyed(built, definition), credential)
    except ToolError as error:
        problem = str(error)
    tokens = count_each([wire])[0]
    layers = layers_for(category.organisation_id) if tokens > LEAST else ()
    return HttpPreview(
        wire=wire,
        tokens=tokens,
        arguments=sample,
        request=request,
        problem=problem,
        warnings=[
            *warnings_of(content.definition.description, content.definition.parameters),
            *size_warnings(tokens, definition.name, category.name, layers),
        ],
        status=status_of_new(
            ToolKind.HTTP,
            member,
            author=None,
            changes_code=tool is None or changes_code(tool, definition),
            category=category.name,
        ),
    )


def _keyed(request: HttpRequest, definition: Definition) -> HttpRequest:
    if definition.on_crash != "retry_with_key":
        return request
    headers = {**request.headers, "idempotency-key": "(a key of the call)"}
    return HttpRequest(request.method, request.url, headers, request.content)


def request_text(request: HttpRequest, credential: StoredCredential | None) -> str:
    """A request as it would go out, with the credential's secret as dots."""
    url, headers = request.url, dict(request.headers)
    if credential is not None:
        values = dict.fromkeys(("token", "user", "password", "access_token"), MARK)
        added, query = added_by(credential, values)
        if credential.kind == CredentialKind.BASIC:
            added = {"Authorization": f"Basic {MARK}"}
        signing = Credential(headers=added, query=query, origins=(origin_of(url),))
        url, headers = place(signing, url, headers)
    lines = [f"{request.method} {url}", *(f"{name.lower()}: {value}" for name, value in headers.items())]
    if request.content is not None:
        body = request.content.decode("utf-8", "replace")
        lines += ["", body if len(body) <= BODY_CHARS else f"{body[:BODY_CHARS]}…"]
    return "\n".join(lines).replace(MARK, MASK)
