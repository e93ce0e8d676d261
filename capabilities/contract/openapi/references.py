"""References inside one document. What stands outside of it is never read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

#: References that lead from one to the next.
MAX_CHAIN = 20


class OperationRefused(ValueError):
    """The operation cannot become a tool; the message is one sentence that a person can act on."""


class Document:
    """A document, and what its references lead to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        version = str(root.get("openapi", ""))
        #: Whether schemas are those of 3.0, which are not yet JSON Schema.
        self.is_3_0 = version.startswith("3.0")

    def at(self, reference: Any) -> Any:
        """Return the node that a reference leads to, which may be a reference again. Raises OperationRefused."""
        if not isinstance(reference, str):
            raise OperationRefused("A reference of it is no text.")
        if not reference.startswith("#"):
            raise OperationRefused(
                f"It refers to {reference[:200]}, outside of the document, which is not read: write that into the "
                "document."
            )
        node: Any = self.root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key[:9]) < len(node):
                node = node[int(key[:9])]
            else:
                raise OperationRefused(f"It refers to {reference[:200]}, which is not in the document.")
        return node

    def resolved(self, node: Any) -> Mapping[str, Any]:
        """The object itself where it is a reference; an empty one for what is no object. Raises OperationRefused."""
        for _ in range(MAX_CHAIN):
            if not isinstance(node, Mapping):
                return {}
            if "$ref" not in node:
                return node
            node = self.at(node["$ref"])
        raise OperationRefused("It has a reference that leads round in a circle.")

    def component(self, kind: str, name: str) -> Mapping[str, Any]:
        """An object of the document's components; an empty one where it is none, or a reference leads nowhere."""
        found = mapping(mapping(self.root.get("components")).get(kind)).get(name)
        try:
            return self.resolved(found)
        except OperationRefused:
            return {}


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one: documents are written by hand."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""
