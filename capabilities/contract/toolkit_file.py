"""A toolkit as one file: the form of the document, its hash, and what a reader of it refuses. Pure.

    {"format": "toolhub-toolkit", "version": 1, "sha256": "...",
     "toolkit": {"name", "description", "tools": [{"tool", "timeout", "max_result_chars", "knobs"}]},
     "tools": [{"name", "kind", ...}], "modules": [{"name", "description", "code"}],
     "credentials": [{"name", "kind", "parameter", "prefix", "origins"}],
     "servers": [{"name", "transport", "address"}], "left_out": [{"tool", "because"}]}

It is canonical JSON, so that equal toolkits are equal bytes, and `sha256` is of all the rest: a file of which one byte
was changed is refused. A tool names helper modules by the SHA-256 of their code: numbers of versions are each
organisation's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from capabilities.contract.wire import TOOL_NAME, canonical_json, is_whole, sha256_hex
from toolhub.bounded_json import JsonRefused, TooMuchJson, load_json

FORMAT = "toolhub-toolkit"
VERSION = 1
#: Credentials, and servers, of one file.
MAX_NAMED = 200
#: Tools, and modules, of one file; how deep its values stand in each other; saved tests of one tool.
MAX_TOOLS, MAX_MODULES, MAX_DEPTH, MAX_TESTS = 2_000, 500, 60, 30
#: Bytes and values of one file; a child process reads it.
MAX_BYTES, MAX_VALUES = 64_000_000, 2_000_000
BUILTIN, HTTP, MCP, PYTHON = "builtin", "http", "mcp", "python"
KINDS = (BUILTIN, HTTP, MCP, PYTHON)
EFFECTS = ("read", "write", "external")
ON_CRASH = ("never", "retry", "retry_with_key")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Number = (int, float)
_CONTENT = {
    "format": str, "version": int, "sha256": str, "toolkit": dict, "tools": list, "modules": list,
    "credentials": list, "servers": list, "left_out": list,
}  # fmt: skip
_TOOLKIT = {"name": str, "description": str, "tools": list}
_LINE = {"tool": str, "timeout": (*Number, None), "max_result_chars": (int, None), "knobs": dict}
_TOOL = {
    "name": str, "kind": str, "description": str, "parameters": dict, "instructions": str, "human_format": str,
    "effect": str, "on_crash": str, "timeout": Number, "max_result_chars": int, "implementation": dict,
}  # fmt: skip
#: Further keys of the tools of each kind.
_OF_KIND: dict[str, dict[str, Any]] = {
    HTTP: {"credential": str},
    MCP: {"server": str},
    PYTHON: {"credential": str, "helpers": dict, "tests": list},
}
_TEST = {"name": str, "arguments": dict, "expected": object, "expects_error": bool}
_MODULE_FIELDS = {"name": str, "description": str, "code": str}
_CREDENTIAL = {"name": str, "kind": str, "parameter": str, "prefix": str, "origins": list}
_SERVER = {"name": str, "transport": str, "address": str}
_LEFT_OUT = {"tool": str, "because": str}
_WORDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object", list: "a list",
    None: "null",
}  # fmt: skip


class ToolkitFileRefused(ValueError):
    """The text is no toolkit file that can be trusted; the message is one sentence."""


def with_hash(content: Mapping[str, Any]) -> dict[str, Any]:
    """The document of this content: with its format, and with the hash of all of it. A file is its canonical JSON."""
    whole = {**content, "format": FORMAT, "version": VERSION}
    return {**whole, "sha256": content_hash(whole)}


def content_hash(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document's canonical form without the field `sha256`."""
    return sha256_hex(canonical_json({name: each for name, each in document.items() if name != "sha256"}))


def read_toolkit_file(text: str) -> dict[str, Any]:
    """The document of a file, complete and of the right types. Raises ToolkitFileRefused."""
    document = _parsed(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ToolkitFileRefused(f"This is no toolkit file: it does not say “format”: “{FORMAT}”.")
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise ToolkitFileRefused(
            f"This service reads version {VERSION} of toolkit files, and this is another one: export it again."
        )
    _check_hash(document, text)
    if not is_whole(document):
        raise ToolkitFileRefused("A text of the file holds half a character, or one that databases refuse (U+0000).")
    _check_fields(document, _CONTENT, "The file")
    _check_toolkit(document["toolkit"])
    _check_parts(document)
    _check_names(document)
    return document


def _parsed(text: str) -> Any:
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise ToolkitFileRefused("The file is empty.")
    try:
        return load_json(text, most_bytes=MAX_BYTES, most_values=MAX_VALUES, most_depth=MAX_DEPTH)
    except TooMuchJson as error:
        raise ToolkitFileRefused(f"The file {error}.") from error
    except JsonRefused as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            broken = error.__cause__
            raise ToolkitFileRefused(f"The JSON is broken in line {broken.lineno}: {broken.msg}.") from error
        raise ToolkitFileRefused(f"The file {str(error)[:200]}.") from error


def _check_hash(document: dict[str, Any], text: str) -> None:
    """The bytes are those that were hashed: canonical, and with their own hash."""
    try:
        is_same = canonical_json(document) == text.removeprefix("\ufeff").strip()
        is_hashed = document.get("sha256") == content_hash(document)
    except ValueError:  # half a character, or a number beyond those of JSON
        is_same = is_hashed = False
    if not is_same or not is_hashed:
        raise ToolkitFileRefused(
            "The file was changed after it was exported: its content and its SHA-256 do not fit. Export it again."
        )


def _check_fields(value: Any, fields: Mapping[str, Any], where: str) -> None:
    """Raise ToolkitFileRefused unless this is an object with exactly these fields, each of its type."""
    if not isinstance(value, dict):
        raise ToolkitFileRefused(f"{where} is no object.")
    missing, unknown = sorted(set(fields) - set(value)), sorted(set(value) - set(fields))
    if missing:
        raise ToolkitFileRefused(f"{where} has no “{missing[0]}”.")
    if unknown:
        raise ToolkitFileRefused(f"{where} has a field that is not known, “{unknown[0][:60]}”.")
    for name, kinds in fields.items():
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if object not in wanted and not any(_is_of(value[name], each) for each in wanted):
            words = " or ".join(_WORDS[each] for each in wanted)
            raise ToolkitFileRefused(f"{where}: “{name}” must be {words}.")


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether the value is of exactly this type: true is no number here."""
    return value is None if kind is None else type(value) is kind


def _check_toolkit(toolkit: Any) -> None:
    _check_fields(toolkit, _TOOLKIT, "The toolkit")
    if not toolkit["name"] or len(toolkit["name"]) > 64:
        raise ToolkitFileRefused("The toolkit's name has 1 to 64 characters.")
    if len(toolkit["tools"]) > MAX_TOOLS:
        raise ToolkitFileRefused(f"The toolkit names {len(toolkit['tools']):,} tools; {MAX_TOOLS:,} are the most.")
    for number, line in enumerate(toolkit["tools"], start=1):
        _check_fields(line, _LINE, f"Line {number} of the toolkit")


def _check_parts(document: Mapping[str, Any]) -> None:
    """Raise ToolkitFileRefused for a tool, module, credential or server of the file that is malformed."""
    tools, modules = document["tools"], document["modules"]
    if len(tools) > MAX_TOOLS:
        raise ToolkitFileRefused(f"The file holds {len(tools):,} tools; {MAX_TOOLS:,} are the most.")
    if len(modules) > MAX_MODULES:
        raise ToolkitFileRefused(f"The file holds {len(modules):,} modules; {MAX_MODULES:,} are the most.")
    for number, tool in enumerate(tools, start=1):
        _check_tool(tool, number)
    for name in ("credentials", "servers"):
        if len(document[name]) > MAX_NAMED:
            raise ToolkitFileRefused(f"The file names more than {MAX_NAMED} {name}.")
    for fields, name, word in (
        (_MODULE_FIELDS, "modules", "Module"),
        (_CREDENTIAL, "credentials", "Credential"),
        (_SERVER, "servers", "Server"),
        (_LEFT_OUT, "left_out", "Entry of “left_out”"),
    ):
        for number, each in enumerate(document[name], start=1):
            _check_fields(each, fields, f"{word} {number}")
    for module in modules:
        if not _MODULE.fullmatch(module["name"]):
            raise ToolkitFileRefused("A module is named as Python names one, such as prices.")
    for credential in document["credentials"]:
        if not all(isinstance(each, str) for each in credential["origins"]):
            raise ToolkitFileRefused("The origins of a credential are addresses.")


def _check_tool(tool: Any, number: int) -> None:
    """Raise ToolkitFileRefused for a tool of the file that is malformed."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not TOOL_NAME.match(name):
        raise ToolkitFileRefused(
            f"Tool {number} has no name that can be: it has 1 to 64 characters of a-z, A-Z, 0-9, _ and -."
        )
    kind = tool.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ToolkitFileRefused(f"{name}: “kind” must be one of {', '.join(KINDS)}.")
    if kind == BUILTIN:
        _check_fields(tool, {"name": str, "kind": str}, name)
        return
    _check_fields(tool, {**_TOOL, **_OF_KIND[kind]}, name)
    for field, known in (("effect", EFFECTS), ("on_crash", ON_CRASH)):
        if tool[field] not in known:
            raise ToolkitFileRefused(f"{name}: “{field}” must be one of {', '.join(known)}.")
    if kind == PYTHON:
        _check_python(tool, name)


def _check_python(tool: Mapping[str, Any], name: str) -> None:
    for module, digest in tool["helpers"].items():
        if not _MODULE.fullmatch(module) or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ToolkitFileRefused(f"{name}: “helpers” names modules by the SHA-256 of their code.")
    if len(tool["tests"]) > MAX_TESTS:
        raise ToolkitFileRefused(f"{name}: a tool has at most {MAX_TESTS} saved tests.")
    for number, test in enumerate(tool["tests"], start=1):
        _check_fields(test, _TEST, f"{name}, test {number}")
        if not 1 <= len(test["name"]) <= 100:
            raise ToolkitFileRefused(f"{name}, test {number}: a test's name has 1 to 100 characters.")
    if len({test["name"] for test in tool["tests"]}) != len(tool["tests"]):
        raise ToolkitFileRefused(f"{name}: two of its tests have the same name.")


def _check_names(document: Mapping[str, Any]) -> None:
    """Nothing is there twice, and what is named is there."""
    tools = _once("tool", [each["name"] for each in document["tools"]])
    modules = _once("module", [(each["name"], sha256_hex(each["code"])) for each in document["modules"]])
    credentials = _once("credential", [each["name"] for each in document["credentials"]])
    servers = _once("server", [each["name"] for each in document["servers"]])
    lines = _once("tool of the toolkit", [each["tool"] for each in document["toolkit"]["tools"]])
    left_out = {each["tool"] for each in document["left_out"]}
    for name in sorted(lines - tools - left_out):
        raise ToolkitFileRefused(f"The toolkit names the tool {name[:64]}, which is not in the file.")
    for tool in document["tools"]:
        name = tool["name"]
        if tool.get("credential") and tool["credential"] not in credentials:
            raise ToolkitFileRefused(f"{name} names a credential that is not in the file.")
        if "server" in tool and tool["server"] not in servers:
            raise ToolkitFileRefused(f"{name} names a server that is not in the file.")
        for module, digest in tool.get("helpers", {}).items():
            if (module, digest) not in modules:
                raise ToolkitFileRefused(f"{name} uses a module {module} that is not in the file.")


def _once(title: str, names: list[Any]) -> set[Any]:
    if len(set(names)) != len(names):
        raise ToolkitFileRefused(f"The file names a {title} twice.")
    return set(names)
