"""Definitions that a source offers, before any of them is a row, and what there is to say of the whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from capabilities.contract.warnings import DefinitionWarning


class SourceRefused(ValueError):
    """The source cannot be read; the message is one sentence for a person, and says what to do."""


@dataclass(frozen=True)
class FoundTool:
    """One definition as its source has it.

    `original_name` is what the source knows it by, the same at each reading. `name` is what the tool would be called
    here; empty: it is made of the original one. `implementation` is what its kind runs, but that the `url` of an HTTP
    request may begin with / : then it goes to the import's base address. `refused` says why it cannot become a tool.
    `kind` is empty where the source says that of all.
    """

    original_name: str
    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    implementation: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    effect: str = "external"
    is_destructive: bool = False
    #: Reason for the guess of its effect beside its own words: see `Effect.why`.
    effect_why: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[DefinitionWarning, ...] = ()
    refused: str = ""
    kind: str = ""
    #: Rest of the tool's content that the source says: see `ImportedTool.more`.
    more: Mapping[str, Any] = field(default_factory=dict)
    #: The tool of the catalogue that it is already, as it is there; and the server that would run it. Keys.
    tool_id: int | None = None
    server_id: int | None = None


@dataclass(frozen=True)
class ReadSource:
    """All that was found, in the source's order, and what to say of the source itself.

    `summary` goes to the import as it is: facts for people and programs. `base_url` is where its calls go unless a
    reviewer picks another address.
    """

    found: tuple[FoundTool, ...] = ()
    _: KW_ONLY
    title: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    #: Part of a toolkit file about the toolkit and helper modules: see `ToolImport.content`.
    content: Mapping[str, Any] = field(default_factory=dict)
    #: Names that the source has as well, though they are not among what was found: of a part of a document, the rest.
    beside: frozenset[str] = frozenset()
    base_url: str = ""
