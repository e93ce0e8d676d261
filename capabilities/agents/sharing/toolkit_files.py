"""Reads toolkit files into review: what each tool is here, what it needs, and why it cannot be one.

The text is parsed in a child process. Code is checked in the sandbox and not run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from capabilities.agents.sharing.exports import address_of, bare_address
from capabilities.catalogue.imports.found import FoundTool, ReadSource, SourceRefused
from capabilities.catalogue.imports.matching import tools_of_server
from capabilities.catalogue.imports.names import mcp_tool_name
from capabilities.catalogue.python_tools.helper_modules.writes import check_name
from capabilities.common import confined
from capabilities.common.refused import ChangeRefused
from capabilities.contract.effects import READ, guess_effect
from capabilities.contract.knobs import KNOBS
from capabilities.contract.loading import RESERVED_TOOLS
from capabilities.contract.toolkit_file import BUILTIN, HTTP, MCP, PYTHON
from capabilities.contract.warnings import DefinitionWarning, warnings_of
from capabilities.contract.wire import sha256_hex
from capabilities.models import CredentialKind, McpServer, Tool, ToolImport, ToolKind, Transport
from capabilities.running.sandbox import RUNTIMES, check_python, isolation

#: Seconds that parsing may take, bytes of what comes of it, and seconds for checking the code of all tools.
SECONDS = 20.0
ANSWER_BYTES = 12_000_000
CHECK_SECONDS = 45.0
#: Problems of code that a refusal names.
NAMED = 3
NEEDS_SERVER = "Add the MCP server {address} first, then import the file again."
#: Fields of a tool that a row of an import keeps beside its own columns.
MORE = ("instructions", "human_format", "on_crash", "timeout", "max_result_chars", "effect")


def read(tool_import: ToolImport) -> ReadSource:
    """Raises SourceRefused and ConfinedError."""
    document = parsed(tool_import.document, tool_import.organisation_id)
    reader = _Reader(document, tool_import.organisation_id)
    toolkit = document["toolkit"]
    return ReadSource(
        tuple(map(reader.found, document["tools"])),
        title=toolkit["name"],
        summary={
            "format": "Toolkit file",
            "sha256": document["sha256"],
            "credentials": [_needed(each, document["tools"]) for each in document["credentials"]],
        },
        content={
            "sha256": document["sha256"],
            "toolkit": toolkit,
            "modules": list(reader.modules.values()),
            "credentials": document["credentials"],
            "left_out": document["left_out"],
        },
    )


def parsed(text: str, organisation_id: int) -> dict[str, Any]:
    """The document of a toolkit file, checked. Raises SourceRefused and ConfinedError."""
    found = confined.run("toolkit_file", {"text": text}, organisation_id, seconds=SECONDS, wait=60.0, most=ANSWER_BYTES)
    if "refused" in found:
        raise SourceRefused(found["refused"])
    document: dict[str, Any] = found["document"]
    return document


def _needed(credential: Mapping[str, Any], tools: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A credential that tools of the file ask for, as the review names it."""
    users = [each["name"] for each in tools if each.get("credential") == credential["name"]]
    kinds = dict(CredentialKind.choices)
    title = f"{credential['name']}: {kinds.get(credential['kind'], credential['kind'])}"
    sent = ", ".join(credential["origins"]) or "no address"
    return {
        "title": title[:200],
        "kind": credential["kind"][:20],
        "parameter": credential["parameter"][:100],
        "origins": credential["origins"][:20],
        "note": f"For {', '.join(users[:5])}{' and others' if len(users) > 5 else ''}; sent to {sent[:300]}.",
    }


def _contents(tools: QuerySet[Tool]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The key and the name of each of these tools, and what a reader of its definition is shown. One query."""
    shown = ("description", "parameters", "effect")
    for key, name, *values in tools.values_list("pk", "name", *(f"current_version__{each}" for each in shown)):
        yield key, name, {each: value for each, value in zip(shown, values, strict=True) if value is not None}


@dataclass
class _Reader:
    document: Mapping[str, Any]
    organisation_id: int
    #: Modules of the file by name and SHA-256: what it says, the runtimes that take it, and what is wrong.
    modules: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    #: Built-in tools that are here, by name, as they are here.
    builtin: Mapping[str, FoundTool] = field(default_factory=dict)
    servers: Mapping[str, McpServer] = field(default_factory=dict)
    _until: float = 0.0
    _of_servers: dict[int, Mapping[str, Tool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + CHECK_SECONDS
        names = [each["name"] for each in self.document["tools"] if each["kind"] == BUILTIN]
        rows = Tool.objects.filter(kind=ToolKind.BUILTIN, name__in=names).exclude(name__in=RESERVED_TOOLS)
        self.builtin = {
            name: FoundTool(name, name, kind=BUILTIN, tool_id=key, group="Built in", **content)
            for key, name, content in _contents(rows)
        }
        self.servers = _servers_here(self.document["servers"])
        codes = {(each["name"], sha256_hex(each["code"])): each for each in self.document["modules"]}
        self.modules = {key: self._module(key, each) for key, each in codes.items()}

    def found(self, tool: Mapping[str, Any]) -> FoundTool:
        """Return one tool of the file as it is reviewed, with its warnings; `refused` says why it cannot be added."""
        if tool["kind"] == BUILTIN:
            return self._builtin(tool["name"])
        more = {name: tool[name] for name in MORE}
        base: dict[str, Any] = {
            "original_name": tool["name"],
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["parameters"],
            "implementation": tool["implementation"],
            "effect": tool["effect"],
            "kind": tool["kind"],
            "refused": _out_of_range(tool),
            "group": _group(tool),
        }
        guess = _guess(tool)
        base["is_destructive"] = guess.is_destructive and tool["effect"] != READ
        warnings = list(_warnings(tool, guess.effect))
        if tool["kind"] == MCP:
            return self._of_server(tool, base, more)
        more["credential"] = tool["credential"]
        if tool["kind"] == PYTHON:
            more |= {"helpers": tool["helpers"], "tests": tool["tests"]}
            base["refused"] = base["refused"] or self._flaw(tool)
            if not base["refused"] and not self._check(tool, base):
                warnings.append(
                    DefinitionWarning("unchecked_code", "Its code was not checked: the file holds too much.")
                )
        return FoundTool(**base, more=more, warnings=tuple(warnings))

    def _builtin(self, name: str) -> FoundTool:
        if name in self.builtin:
            return self.builtin[name]
        return FoundTool(name, name, kind=BUILTIN, group="Built in", refused=f"There is no built-in tool {name} here.")

    def _of_server(self, tool: Mapping[str, Any], base: dict[str, Any], more: dict[str, Any]) -> FoundTool:
        """A tool of the server at the same address here: the one that is there already, or a new one."""
        server = self.servers.get(tool["server"])
        if server is None:
            named = next(each for each in self.document["servers"] if each["name"] == tool["server"])
            refused = NEEDS_SERVER.format(address=named["address"][:200])
            return FoundTool(**base | {"refused": refused}, more=more)
        known = self._of_servers.setdefault(server.pk, tools_of_server(server.pk))
        called = str(tool["implementation"].get("name", ""))
        if called in known:
            stored_tool = known[called]
            return FoundTool(**base | {"name": stored_tool.name}, more=more, tool_id=stored_tool.pk)
        return FoundTool(**base | {"name": mcp_tool_name(server.name, called)}, more=more, server_id=server.pk)

    # -- Code ---------------------------------------------------------------------------------------------------------

    def _module(self, key: tuple[str, str], sent: Mapping[str, Any]) -> dict[str, Any]:
        """Return one module of the file as it is reviewed, with the runtimes that can run it, or its problem."""
        name, digest = key
        others = {each["name"]: each["code"] for each in self.document["modules"] if each["name"] != name}
        runtimes, problem = [], ""
        try:
            check_name(name)
        except ChangeRefused as error:
            problem = str(error)
        else:
            ready = isolation()
            for runtime in RUNTIMES:
                if not ready.has(runtime):
                    continue
                flaw = self._problems(sent["code"], runtime, others, None)
                if flaw:
                    problem = problem or flaw
                else:
                    runtimes.append(runtime)
            problem = "" if runtimes else problem or "Nothing here can run Python."
        description = " ".join(sent["description"].split())[:300]
        return {
            "name": name,
            "sha256": digest,
            "description": description,
            "code": sent["code"],
            "runtimes": runtimes,
            "problem": problem,
        }

    def _flaw(self, tool: Mapping[str, Any]) -> str:
        for key in tool["helpers"].items():
            problem = self.modules[key]["problem"]
            if problem:
                return f"Its module {key[0]}: {problem}"[:500]
        return ""

    def _check(self, tool: Mapping[str, Any], base: dict[str, Any]) -> bool:
        """Refuse a tool whose code cannot run here. False where there was no time to look."""
        implementation = tool["implementation"]
        code, runtime = implementation.get("code"), implementation.get("runtime")
        if not isinstance(code, str) or runtime not in RUNTIMES or not isolation().has(runtime):
            return True  # its kind says why, when the row is written
        if time.monotonic() > self._until:
            return False
        helpers = {name: self.modules[name, digest]["code"] for name, digest in tool["helpers"].items()}
        base["refused"] = self._problems(code, runtime, helpers, tool["parameters"])
        return True

    def _problems(self, code: str, runtime: str, helpers: Mapping[str, str], parameters: Any) -> str:
        """Return the problems that keep the code from running in this runtime, by line; "" for none."""
        if time.monotonic() > self._until:
            return ""
        try:
            found = check_python(
                code, helpers=helpers, runtime=runtime, parameters=parameters, organisation_id=self.organisation_id
            )
        except confined.ConfinedError as error:
            return str(error)
        return " ".join([str(each) for each in found if each.blocks][:NAMED])


def _servers_here(named: list[Mapping[str, Any]]) -> dict[str, McpServer]:
    """The organisation's server at each address, by its name in the file; one of the same name where there are
    several. One query."""
    if not named:
        return {}
    by_address: dict[tuple[str, str], list[McpServer]] = {}
    for server in McpServer.objects.order_by("name"):
        by_address.setdefault((server.transport, address_of(server)), []).append(server)
    found = {}
    for each in named:
        address = each["address"] if each["transport"] == Transport.STDIO else bare_address(each["address"])
        matching = by_address.get((each["transport"], address), []) if address else []
        if matching:
            found[each["name"]] = next((server for server in matching if server.name == each["name"]), matching[0])
    return found


def _group(tool: Mapping[str, Any]) -> str:
    """Return the title of tools that a reviewer accepts together: of one kind, and with one credential or server."""
    kind = dict(ToolKind.choices)[tool["kind"]]
    signer = tool.get("credential") or tool.get("server")
    return f"{kind}, {signer}" if signer else str(kind)


def _out_of_range(tool: Mapping[str, Any]) -> str:
    for name, knob in (("timeout", KNOBS["timeout_sec"]), ("max_result_chars", KNOBS["max_result_chars"])):
        if knob.read(tool[name]).kind:
            return f"Its {name} is no number from {knob.range_text}."
    return ""


def _guess(tool: Mapping[str, Any]) -> Any:
    method = str(tool["implementation"].get("method", "")) if tool["kind"] == HTTP else ""
    return guess_effect(tool["name"], method=method)


def _warnings(tool: Mapping[str, Any], guess: str) -> Iterator[DefinitionWarning]:
    if tool["effect"] == READ and guess != READ:
        yield DefinitionWarning("effect_unclear", "The file says that it only reads; its name or its method says more.")
    code = tool["implementation"].get("code")
    if tool["kind"] != PYTHON or not isinstance(code, str):
        return
    for each in warnings_of(code, {}):
        if each.code in ("hidden_characters", "turned_text", "terminal_codes"):
            yield DefinitionWarning(
                each.code, "Its code holds characters that cannot be seen, or that show it otherwise."
            )
