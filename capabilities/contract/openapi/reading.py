"""The operations of a document, each as what a tool would be, or with the reason why it is none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from capabilities.contract.effects import guess_effect
from capabilities.contract.http_tool import METHODS, HttpImplementation, ImplementationRefused, check_http
from capabilities.contract.openapi.arguments import Arguments, add_body, add_parameters
from capabilities.contract.openapi.part import Part, tags_of
from capabilities.contract.openapi.references import Document, OperationRefused, entries, mapping, text
from capabilities.contract.openapi.schemas import Schemas
from capabilities.contract.openapi.servers import addresses, credentials, needed, secret_places
from capabilities.contract.schemas import SchemaRefused, check_schema
from capabilities.contract.warnings import DefinitionWarning

#: Operations of one document that are read; what is beyond is counted.
MAX_OPERATIONS = 2_000
#: Tags that are listed with their numbers of operations, the largest first.
MAX_TAGS_TOLD = 100
WHOLE = Part()
#: Characters of a description.
MAX_DESCRIPTION = 4_000
#: Every method that a path item may have.
ALL_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
#: Stands for the base address while there is none.
NO_BASE = "https://base.invalid"


class DocumentIsNone(ValueError):
    """Error: the text is no OpenAPI document; the message is one sentence."""


def read_openapi(root: Any, url: str = "", part: Part = WHOLE) -> dict[str, Any]:
    """Return `title`, `base_url`, `summary`, `found` and `beside` of a document; `url` is the address it came from.
    Raises DocumentIsNone.

    Of a part, `found` has its operations alone. `beside` are the names of the others, and of what is beyond the limit.

    An entry of `found` has the fields of `FoundTool`. The `url` of its implementation is a path where the call goes to
    the base address.
    """
    document = _document(root)
    info = mapping(document.root.get("info"))
    schemes = credentials(document)
    servers = addresses(document.root.get("servers") or [{"url": "/"}], url)
    base_url = servers[0]["url"] if servers else ""
    found: list[dict[str, Any]] = []
    left_out, number = 0, 0
    tags: Counter[str] = Counter()
    beside: list[str] = []
    for path, item, method, operation in _operations(document):
        number += 1
        tags.update(tags_of(operation)[:5])
        is_meant = part.has(path, method, operation)
        if not is_meant or len(found) >= MAX_OPERATIONS:
            left_out += is_meant
            beside.append(original_name(path, method))
            continue
        found.append(_Operation(document, schemes, url, base_url).read(path, item, method, operation))
    used = {name for each in found for name in each["annotations"].get("security", [])}
    summary: dict[str, Any] = {
        "format": f"OpenAPI {str(document.root.get('openapi'))[:20]}",
        "version": str(info.get("version", ""))[:100],
        "servers": servers,
        "credentials": [{"name": name} | schemes[name] for name in sorted(used) if name in schemes],
    }
    if mapping(document.root.get("webhooks")):
        summary["webhooks"] = len(mapping(document.root.get("webhooks")))
    if left_out:
        summary["beyond"] = left_out
    if left_out or not part.is_whole:
        summary |= {"operations": number, "tags": dict(tags.most_common(MAX_TAGS_TOLD)), "part": part.as_json()}
    title = " ".join(text(info.get("title")).split())[:200]
    return {"title": title, "base_url": base_url, "summary": summary, "found": found, "beside": beside}


def original_name(path: str, method: str) -> str:
    """Return the name of an operation in its document: method and path."""
    return f"{method.upper()} {path}"[:300]


def _document(root: Any) -> Document:
    if not isinstance(root, Mapping):
        raise DocumentIsNone("This is no OpenAPI document: it has no “openapi”.")
    if "swagger" in root:
        raise DocumentIsNone("This is Swagger 2.0: convert it to OpenAPI 3 first, such as with swagger2openapi.")
    version = str(root.get("openapi", ""))
    if not version:
        raise DocumentIsNone("This is no OpenAPI document: it has no “openapi”.")
    if not re.match(r"3\.[0-9]", version):
        raise DocumentIsNone(f"This is OpenAPI {version[:20]}: versions 3.0 and 3.1 are read.")
    if not mapping(root.get("paths")):
        raise DocumentIsNone("The document has no paths, so there is nothing to call.")
    return Document(root)


def _operations(document: Document) -> Iterator[tuple[str, Mapping[str, Any], str, Mapping[str, Any]]]:
    """Yield path, path item, method and operation of each operation of the document."""
    for path, written in mapping(document.root.get("paths")).items():
        if str(path).startswith("x-"):
            continue
        try:
            item = document.resolved(written)
            if isinstance(written, Mapping) and "$ref" in written:
                item = {**item, **{name: value for name, value in written.items() if name != "$ref"}}
        except OperationRefused as error:
            yield str(path), {}, "get", {"x-refused": str(error)}
            continue
        for method in ALL_METHODS:
            if isinstance(item.get(method), Mapping):
                yield str(path), item, method, item[method]


class _Operation:
    """Reads one operation."""

    def __init__(self, document: Document, schemes: dict[str, dict[str, str]], url: str, base_url: str) -> None:
        self._document = document
        self._schemes = schemes
        self._url = url
        self._base_url = base_url

    def read(self, path: str, item: Mapping[str, Any], method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Return the operation as an entry of the document's tools; `refused` says why it is none."""
        named = text(operation.get("operationId")) or f"{method} {path}"
        summary = " ".join(text(operation.get("summary")).split())
        effect = guess_effect(named, title=summary, path=path, method=method)
        security = operation.get("security", self._document.root.get("security"))
        entry: dict[str, Any] = {
            "original_name": original_name(path, method),
            "name": named[:300],
            "description": "",
            "parameters": {"type": "object", "properties": {}},
            "implementation": {},
            "group": next((each for each in entries(operation.get("tags")) if isinstance(each, str)), "")[:200],
            "effect": effect.effect,
            "is_destructive": effect.is_destructive,
            "annotations": self._annotations(operation, needed(security, self._schemes)),
            "warnings": [],
            "refused": text(operation.get("x-refused")),
        }
        entry["description"], cut = _description(summary, operation, item)
        if entry["refused"]:
            return entry
        try:
            remarks = self._request(entry, path, item, method.upper(), operation)
        except (OperationRefused, ImplementationRefused, SchemaRefused) as error:
            return entry | {"refused": str(error)}
        remarks = [*self._remarks(operation, entry["annotations"].get("security", [])), *remarks]
        if effect.why:
            remarks.insert(0, DefinitionWarning("effect_unclear", effect.why))
        if cut:
            remarks.append(
                DefinitionWarning("left_out", "Its description is cut: it is longer than a model should read.")
            )
        entry["warnings"] = [each.as_json() for each in remarks]
        return entry

    def _request(
        self, entry: dict[str, Any], path: str, item: Mapping[str, Any], method: str, operation: Mapping[str, Any]
    ) -> list[DefinitionWarning]:
        """Fill in arguments and implementation; return the warnings about them."""
        if method not in METHODS or method == "OPTIONS":
            raise OperationRefused(f"{method} requests are not made: they are not for calls.")
        schemas, arguments = Schemas(self._document), Arguments()
        plain, query = _path_and_query(path)
        add_parameters(
            arguments,
            self._document,
            schemas,
            shared=item.get("parameters"),
            own=operation.get("parameters"),
            path=plain,
            signed=secret_places(self._document, operation.get("security", self._document.root.get("security"))),
        )
        if arguments.signed_by and not entry["annotations"].get("security"):
            entry["annotations"]["security"] = arguments.signed_by[:1]
        add_body(arguments, self._document, schemas, body=operation.get("requestBody"), method=method)
        base = addresses(operation.get("servers") or item.get("servers"), self._url or self._base_url)
        elsewhere = base[0]["url"] if base and base[0]["url"] != self._base_url else ""
        implementation = HttpImplementation(
            method=method,
            url=elsewhere + plain,
            arguments=arguments.placed,
            query={name: value for name, value in query.items() if name not in _query_names(arguments)},
            media_type=arguments.media_type,
            body_argument=arguments.body_argument,
        )
        parameters = arguments.parameters
        check_schema(parameters)
        whole = HttpImplementation(**{**vars(implementation), "url": (elsewhere or self._base_url or NO_BASE) + plain})
        check_http(whole, parameters)
        entry["parameters"], entry["implementation"] = parameters, implementation.as_json()
        warnings = arguments.warnings_found()
        if schemas.is_cut:
            remark = "Its arguments are nested in themselves or very deep: where they were cut, any value is taken."
            warnings.append(DefinitionWarning("left_out", remark))
        if elsewhere and self._base_url:
            warnings.append(
                DefinitionWarning("other_server", f"It is called at {elsewhere[:300]}, not at the base address.")
            )
        return warnings

    def _remarks(self, operation: Mapping[str, Any], security: list[str]) -> Iterator[DefinitionWarning]:
        if operation.get("deprecated") is True:
            yield DefinitionWarning("deprecated", "Its document calls it deprecated.")
        if security:
            needs = " and ".join(self._schemes.get(name, {}).get("title") or name for name in security)
            yield DefinitionWarning("credential", f"It needs {needs}."[:500])

    def _annotations(self, operation: Mapping[str, Any], security: list[str]) -> dict[str, Any]:
        """Return notes that a reviewer may want to see; nothing decides by them."""
        found: dict[str, Any] = {}
        if security:
            found["security"] = security
        if operation.get("deprecated") is True:
            found["deprecated"] = True
        answers = self._answers(operation)
        return found | ({"answers": answers} if answers else {})

    def _answers(self, operation: Mapping[str, Any]) -> list[str]:
        """The media types of what comes back where all went well."""
        found: list[str] = []
        for status, each in mapping(operation.get("responses")).items():
            if not str(status).startswith("2"):
                continue
            try:
                response = self._document.resolved(each)
            except OperationRefused:
                continue  # only said, never needed
            found += [str(kind)[:100] for kind in mapping(response.get("content"))]
        return list(dict.fromkeys(found))[:10]


def _description(summary: str, operation: Mapping[str, Any], item: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the description that a model chooses the tool by, and whether it was cut."""
    description = text(operation.get("description")).strip() or text(item.get("description")).strip()
    summary = summary or " ".join(text(item.get("summary")).split())
    repeats = not summary or " ".join(description.split()).casefold().startswith(summary.rstrip(".").casefold())
    whole = description if repeats else f"{summary}\n\n{description}".strip()
    if len(whole) <= MAX_DESCRIPTION:
        return whole, False
    head = whole[: MAX_DESCRIPTION - 2]
    end = max(head.rfind("\n\n"), head.rfind(". ") + 1)
    return head[: end if end > MAX_DESCRIPTION // 2 else len(head)].rstrip() + " …", True


def _path_and_query(path: str) -> tuple[str, dict[str, str]]:
    """A path, and the fixed values of its query, which some documents write behind it."""
    plain, _, query = path.partition("#")[0].partition("?")
    pairs = [pair.partition("=") for pair in query.split("&") if pair and "{" not in pair]
    return plain if plain.startswith("/") else f"/{plain}", {name: value for name, _, value in pairs if name}


def _query_names(arguments: Arguments) -> set[str]:
    return {each.name for each in arguments.placed.values() if each.place == "query"}
