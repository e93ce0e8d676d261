"""Parameters and the request body of one operation, as arguments of a tool and where each goes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capabilities.contract.ascii_names import ascii_name
from capabilities.contract.http_tool import (
    JSON,
    MULTIPART,
    PLACES,
    URLENCODED,
    HttpArgument,
    is_json,
    is_own_header,
    placeholders,
)
from capabilities.contract.openapi.references import Document, OperationRefused, entries, mapping, text
from capabilities.contract.openapi.schemas import Schemas
from capabilities.contract.warnings import DefinitionWarning

#: Properties of a body that become arguments of their own; a body with more is one argument.
MAX_BODY_PROPERTIES = 60
MAX_NAME = 64
#: Keywords of a schema whose properties can be arguments of their own.
PLAIN_KEYS = frozenset({"type", "properties", "required", "description", "additionalProperties", "minProperties"})
#: Parameters that the specification says to leave out.
IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
FILE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Name of the file."},
        "media_type": {"type": "string", "description": "Such as text/csv."},
        "text": {"type": "string", "description": "Its content, where it is text."},
        "base64": {"type": "string", "description": "Its content in base64, where it is not."},
    },
    "additionalProperties": False,
}


@dataclass
class Arguments:
    """The arguments of one operation as they come together, with notes and warnings about them."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    placed: dict[str, HttpArgument] = field(default_factory=dict)
    media_type: str = ""
    body_argument: str = ""
    renamed: list[str] = field(default_factory=list)
    #: Names in another alphabet, and how they are written here.
    written: list[str] = field(default_factory=list)
    #: Schemes whose secret stood among the parameters.
    signed_by: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    warnings: list[DefinitionWarning] = field(default_factory=list)

    def add(self, argument: HttpArgument, schema: dict[str, Any], *, required: bool) -> str:
        """Take an argument in, under its own name where that is free. Returns the name that it has here."""
        wanted = _safe(argument.name)
        if not argument.name.isascii():
            self.written.append(f"{argument.name[:100]} as {wanted}")
        name = wanted
        if name in self.properties:
            name = _safe(f"{argument.place}_{wanted}")
            self.renamed.append(f"{argument.name} of the {_where(argument.place)} is {name}")
        number = 1
        while name in self.properties:
            number += 1
            name = f"{wanted[: MAX_NAME - 4]}_{number}"
        self.properties[name] = schema
        self.placed[name] = argument
        if required:
            self.required.append(name)
        return name

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of all."""
        required = {"required": self.required} if self.required else {}
        return {"type": "object", "properties": self.properties, **required, "additionalProperties": False}

    def warnings_found(self) -> list[DefinitionWarning]:
        found = list(self.warnings)
        if self.renamed:
            found.append(DefinitionWarning("arguments_renamed", f"Two have the same name: {'; '.join(self.renamed)}."))
        if self.written:
            text = f"Arguments in other letters than they are sent in: {', '.join(self.written[:10])}."
            found.append(DefinitionWarning("name_written", text))
        if self.left_out:
            found.append(DefinitionWarning("left_out", f"Left out: {', '.join(self.left_out[:10])}."))
        return found


def _safe(name: str) -> str:
    """A name that providers take as the name of an argument."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "_", ascii_name(name)).strip("_")[:MAX_NAME] or "value"


def _where(location: str) -> str:
    return {"body": "body", "form": "form", "file": "form"}.get(location, location)


# -- Parameters -------------------------------------------------------------------------------------------------------


def add_parameters(
    arguments: Arguments,
    document: Document,
    schemas: Schemas,
    *,
    shared: Any,
    own: Any,
    path: str,
    signed: Mapping[tuple[str, str], str],
) -> None:
    """Add the parameters of the path and those of the operation, which replace the path's of the same name. `signed`
    are the places and names that a credential fills, with its scheme. Raises OperationRefused."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in [*entries(shared), *entries(own)]:
        parameter = document.resolved(each)
        found[(text(parameter.get("in")), text(parameter.get("name")))] = parameter
    wanted = placeholders(path)
    # Those of the path first: they keep their names.
    for (location, name), parameter in sorted(found.items(), key=lambda each: each[0][0] != "path"):
        if name and (location != "path" or name in wanted):
            _add_parameter(arguments, schemas, location, name, parameter, signed)
    for name in dict.fromkeys(wanted):
        if ("path", name) not in found:
            arguments.add(HttpArgument("path", name), {"type": "string"}, required=True)


def _add_parameter(
    arguments: Arguments,
    schemas: Schemas,
    location: str,
    name: str,
    parameter: Mapping[str, Any],
    signed: Mapping[tuple[str, str], str],
) -> None:
    """Add one parameter, or note why it is left out. Raises OperationRefused for a required one that no tool can
    send."""
    required = parameter.get("required") is True or location == "path"
    if (location, name.lower()) in signed:
        arguments.left_out.append(f"{name}, which the credential fills")
        arguments.signed_by.append(signed[location, name.lower()])
        return
    if location == "header" and name.lower() in IGNORED_HEADERS:
        if name.lower() == "authorization":
            arguments.left_out.append(f"the header {name}, which a credential fills")
        return
    if location not in PLACES or location in ("body", "form", "file"):
        if required:
            raise OperationRefused(
                f"Its parameter {name[:100]} goes into {location[:50] or 'nowhere'}, which is not known."
            )
        arguments.left_out.append(f"{name[:100]} in {location[:50] or 'nowhere'}")
        return
    if location == "header" and is_own_header(name):
        if required:
            raise OperationRefused(f"It needs the header {name[:100]}, which no tool may set.")
        arguments.left_out.append(f"the header {name[:100]}")
        return
    content = mapping(parameter.get("content"))
    style, explode = text(parameter.get("style")), parameter.get("explode")
    source = parameter.get("schema", {})
    if content:
        source, style, explode = mapping(next(iter(content.values()))).get("schema", {}), "json", None
    elif "type" in parameter and not source:  # as Swagger 2.0 writes it
        source = parameter
    if style and style not in PLACES[location]:
        arguments.left_out.append(f"the style {style[:50]} of {name[:100]}")
        style = ""
    schema = schemas.read(source)
    description = " ".join(text(parameter.get("description")).split())
    if description and not (content and "description" in schema):
        schema = schema | {"description": description[:1_000]}
    usual = PLACES[location][0]
    argument = HttpArgument(
        location,
        name,
        style if style != usual else "",
        explode if isinstance(explode, bool) and explode != ((style or usual) == "form") else None,
    )
    arguments.add(argument, schema, required=required)


# -- The body ---------------------------------------------------------------------------------------------------------


def add_body(arguments: Arguments, document: Document, schemas: Schemas, *, body: Any, method: str) -> None:
    """Raises OperationRefused for a body that is needed and cannot be sent."""
    found = document.resolved(body)
    content = {str(kind): mapping(each) for kind, each in mapping(found.get("content")).items()}
    if not content:
        return
    required = found.get("required") is True
    if method in WITHOUT_BODY:
        if required:
            raise OperationRefused(f"It needs a body, which no {method} request has.")
        if any(mapping(each.get("schema")) for each in content.values()):
            arguments.left_out.append(f"its body, which a {method} request is not sent with")
        return
    chosen = min(content, key=_preference)
    kind = chosen.partition(";")[0].strip().lower()
    if len(content) > 1:
        others = ", ".join(each for each in content if each != chosen)[:200]
        warning = f"Its body is sent as {kind}; {others} would do as well."
        arguments.warnings.append(DefinitionWarning("media_type", warning))
    description = " ".join(text(found.get("description")).split())[:1_000]
    source = content[chosen].get("schema", {})
    if kind in (URLENCODED, MULTIPART):
        _add_form(arguments, document, schemas, source, mapping(content[chosen].get("encoding")), kind, required)
    elif is_json(kind) or kind in ("*/*", ""):
        _add_json(
            arguments,
            schemas,
            source,
            JSON if kind in ("*/*", "") else kind,
            required=required,
            description=description,
        )
    elif "/" not in kind or "*" in kind:
        raise OperationRefused(f"Its body is of the type {kind[:100]}, which says nothing of what is sent.")
    else:
        _add_whole(arguments, schemas.read(source), kind, required=required, description=description)


def _preference(kind: str) -> tuple[int, str]:
    """JSON first, then forms, then text; of equals the first by name, the same at each reading."""
    plain = kind.partition(";")[0].strip().lower()
    order = (
        plain == JSON,
        is_json(plain),
        plain == URLENCODED,
        plain == MULTIPART,
        plain in ("text/plain", "*/*"),
        plain.startswith("text/"),
        True,
    )
    return order.index(True), plain


def _add_json(
    arguments: Arguments, schemas: Schemas, source: Any, kind: str, *, required: bool, description: str
) -> None:
    schema = schemas.read(source)
    arguments.media_type = kind if kind != JSON else ""
    named = schema.get("properties")
    is_plain = schema.get("type") == "object" and not set(schema) - PLAIN_KEYS and named
    is_open = isinstance(schema.get("additionalProperties"), Mapping)
    if not is_plain or is_open or not isinstance(named, dict) or len(named) > MAX_BODY_PROPERTIES:
        if description and "description" not in schema:
            schema = {"description": description} | schema
        name = arguments.add(HttpArgument("body", "body"), schema, required=required)
        arguments.body_argument = name
        return
    needed = schema.get("required", []) if required else []
    for name, each in named.items():
        arguments.add(HttpArgument("body", name), each, required=name in needed)
    arguments.media_type = kind


def _add_form(
    arguments: Arguments,
    document: Document,
    schemas: Schemas,
    source: Any,
    encoding: Mapping[str, Any],
    kind: str,
    required: bool,
) -> None:
    """Add the fields of a form as arguments. Raises OperationRefused for a required one that cannot be sent."""
    schema = schemas.read(source)
    named = schema.get("properties")
    if not isinstance(named, dict) or not named:
        if required:
            raise OperationRefused("Its form names no fields.")
        arguments.left_out.append("its form, which names no fields")
        return
    arguments.media_type = kind
    needed = schema.get("required", []) if required else []
    for name, each in named.items():
        is_needed = name in needed
        field_encoding = mapping(encoding.get(name))
        if _is_file(each):
            if kind != MULTIPART:
                raise OperationRefused(f"Its form has a file ({name[:100]}), which only multipart/form-data carries.")
            described = {key: each[key] for key in ("description",) if key in each}
            arguments.add(HttpArgument("file", name), FILE_SCHEMA | described, required=is_needed)
        elif _is_file(mapping(each.get("items"))):
            if is_needed:
                raise OperationRefused(f"Its form needs several files as {name[:100]}, which cannot be sent.")
            arguments.left_out.append(f"the files {name[:100]}")
        else:
            style = _form_style(each, field_encoding, kind)
            explode = field_encoding.get("explode") if isinstance(field_encoding.get("explode"), bool) else None
            arguments.add(HttpArgument("form", name, style, explode), each, required=is_needed)


def _form_style(schema: Mapping[str, Any], field_encoding: Mapping[str, Any], kind: str) -> str:
    style = text(field_encoding.get("style"))
    if style in PLACES["form"] and style != "form":
        return style
    holds_object = schema.get("type") == "object" or mapping(schema.get("items")).get("type") == "object"
    return "json" if is_json(text(field_encoding.get("contentType"))) or (holds_object and kind == MULTIPART) else ""


def _is_file(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") in ("binary", "byte") or "contentMediaType" in schema or "contentEncoding" in schema


def _add_whole(arguments: Arguments, schema: dict[str, Any], kind: str, *, required: bool, description: str) -> None:
    """A body that is neither JSON nor a form: text, or a file."""
    is_text = kind.startswith("text/") or kind.endswith(("+xml", "/xml", "/yaml", "/x-ndjson", "/graphql"))
    described = description or schema.get("description") or f"The body, as {kind}."
    if is_text:
        argument, shape = HttpArgument("body", "body"), {"type": "string", "description": described}
    else:
        argument, shape = HttpArgument("file", "body"), FILE_SCHEMA | {"description": described}
    arguments.media_type = kind
    arguments.body_argument = arguments.add(argument, shape, required=required)
