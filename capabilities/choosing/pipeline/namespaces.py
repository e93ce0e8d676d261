"""Namespaces of tools that could be loaded, which a provider searches itself (hosted tool search of Responses).

A model sees the name and the description of a namespace; the provider shows it the definitions that it finds. Rights
and policies have their say before: only what they let through comes here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from capabilities.choosing.pipeline.candidates import Bundle, Candidate
from capabilities.common.tokens import count_tokens
from capabilities.contract.spec import ToolSpec
from capabilities.contract.wire import canonical_json, namespace_wire

#: The namespace of the agent's own tools that are not sent at first: no toolkit can have this name.
OWN = "_own_tools"
#: Names of tools that stand in place of a description.
NAMED = 20


@dataclass(frozen=True)
class Namespace:
    """A toolkit, or the agent's own deferred tools, in the form for a provider that searches."""

    name: str
    description: str
    tools: tuple[ToolSpec, ...]
    #: Tokens of its name and description, as the model's family counts them.
    tokens: int

    @cached_property
    def wire(self) -> str:
        """Entry of the namespace in a `tools` array."""
        return namespace_wire(self.name, self.description, [definition_of(tool) for tool in self.tools])


def definition_of(tool: ToolSpec) -> str:
    """The tool's definition as it goes out, with its instructions behind the description: a model reads both when it is
    found."""
    if not tool.instructions.strip():
        return tool.sent
    definition = json.loads(tool.sent)
    function = definition["function"]
    function["description"] = f"{function['description']}\n\n{tool.instructions.strip()}"
    return canonical_json(definition)


def namespaces_of(candidates: Sequence[Candidate], encoding: str) -> tuple[Namespace, ...]:
    """The namespaces of these tools, one for each toolkit, in the order in which they come; those of the agent's own
    tools are in one. Each tool is there once."""
    by_bundle: dict[Bundle | None, list[ToolSpec]] = defaultdict(list)
    for each in candidates:
        is_toolkit = each.bundle is not None and each.bundle.kind == "toolkit"
        by_bundle[each.bundle if is_toolkit else None].append(each.spec)
    return tuple(_namespace(bundle, tools, encoding) for bundle, tools in by_bundle.items())


def _namespace(bundle: Bundle | None, tools: Sequence[ToolSpec], encoding: str) -> Namespace:
    name, description = (OWN, "") if bundle is None else (bundle.name, bundle.description.strip())
    description = description or f"Tools: {', '.join(tool.name for tool in tools[:NAMED])}"
    tokens = count_tokens(canonical_json({"description": description, "name": name}), encoding)
    return Namespace(name, description, tuple(tools), tokens)
