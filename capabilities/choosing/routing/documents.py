"""Documents of tools, known before a message comes: their texts by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: Depth to which properties of a schema are read, and characters of their texts.
MAX_DEPTH = 4
MAX_PARAMETER_CHARACTERS = 4_000


@dataclass(frozen=True)
class Document:
    """A tool as it is searched. `toolkit` is what it came with (a server, a bundle), `category` where it lives,
    `triggers` the operator's keywords for it. `parameters` is the text of its parameters."""

    name: str
    description: str = ""
    parameters: str = ""
    toolkit: str = ""
    category: str = ""
    triggers: tuple[str, ...] = ()
    title: str = ""

    @cached_property
    def key(self) -> str:
        """A hash of the content: equal documents have equal keys in every process."""
        parts = [self.name, self.description, self.parameters, self.toolkit, self.category, self.title, *self.triggers]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def document_of(
    function: Mapping[str, Any], *, toolkit: str = "", category: str = "", triggers: Iterable[str] = (), title: str = ""
) -> Document:
    """Read a tool's definition as models get it: `{"name", "description", "parameters"}`."""
    return Document(
        name=str(function.get("name", "")),
        description=str(function.get("description") or ""),
        parameters=parameter_text(function.get("parameters")),
        toolkit=toolkit,
        category=category,
        triggers=tuple(triggers),
        title=title,
    )


def parameter_text(schema: object) -> str:
    """The names, descriptions and choices of the parameters of a JSON schema."""
    text = " ".join(filter(None, _texts(schema, MAX_DEPTH)))
    return text[:MAX_PARAMETER_CHARACTERS]


def _texts(schema: object, depth: int) -> Iterator[str]:
    """Yield names, descriptions and choices of a schema's properties."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            yield str(name)
            if isinstance(inner, Mapping):
                yield str(inner.get("description") or "")
                choices = inner.get("enum")
                if isinstance(choices, list):
                    yield from (choice for choice in choices[:20] if isinstance(choice, str))
            yield from _texts(inner, depth - 1)
    yield from _texts(schema.get("items"), depth - 1)
