"""A tool as the loop works with it, frozen at its current version: the read behind every selection and every call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from capabilities.contract.envelope import NO_OVERRIDES, Envelope, Overrides
from capabilities.contract.loading import META_TOOLS
from capabilities.contract.wire import canonical_json
from capabilities.models import Tool, ToolKind
from capabilities.pipeline.memory import Memory
from capabilities.services.writes import acts_as_organisation, is_ready


@dataclass(frozen=True)
class ToolSpec:
    """One tool as the loop works with it: frozen at its current version."""

    tool_id: int
    version_id: int
    name: str
    kind: str
    category: str
    category_id: int
    is_enabled: bool
    wire: str
    sha256: str
    tokens: int
    effect: str
    #: Under `overrides`, where there are any.
    envelope: Envelope
    #: Name of the service that it needs, or empty; whether it can work, as far as that is set up.
    service: str = ""
    is_ready: bool = True
    #: What the model is told beside, while the tool is at hand.
    instructions: str = ""
    #: Whether it acts with a credential that the whole organisation shares.
    acts_as_organisation: bool = False
    #: What people call the category.
    category_title: str = ""
    #: What of the envelope is a toolkit's word, not the version's.
    overrides: Overrides = NO_OVERRIDES

    def overridden(self, overrides: Overrides) -> ToolSpec:
        """The same tool, as a toolkit wants it."""
        if overrides == NO_OVERRIDES:
            return self
        return replace(self, envelope=self.envelope.merged(overrides), overrides=overrides)

    def in_titles(self, source: str) -> str:
        """What brings the tool (a Candidate's source), for people: its category by the title."""
        if source in (f"core category {self.category}", f"loaded category {self.category}"):
            return source.removesuffix(self.category) + self.category_title
        return source

    @cached_property
    def is_meta(self) -> bool:
        """Whether it is one of the tools that load others."""
        return is_meta_tool(self.name, self.kind)

    @cached_property
    def parameters_text(self) -> str:
        """The JSON Schema of the arguments, as canonical text."""
        return canonical_json(json.loads(self.wire)["function"]["parameters"])

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI form."""
        definition: dict[str, Any] = json.loads(self.wire)
        return definition


#: The columns of an Envelope, in its order.
_ENVELOPE = ("current_version__on_crash", "current_version__timeout", "current_version__max_result_chars")
#: The columns of a ToolSpec, in its order; `spec_of` makes one of them.
SPEC = (
    "pk",
    "current_version_id",
    "name",
    "kind",
    "category__name",
    "category_id",
    "is_enabled",
    "current_version__wire",
    "current_version__sha256",
    "current_version__tokens",
    "current_version__effect",
    *_ENVELOPE,
    "service",
    "is_ready",
    "current_version__instructions",
    "acts_as_organisation",
    "category__title",
)


_BEGINS = SPEC.index(_ENVELOPE[0])
_ENDS = _BEGINS + len(_ENVELOPE)


def spec_of(row: Sequence[Any]) -> ToolSpec:
    """The ToolSpec of a row with the columns SPEC."""
    values = [*row[:_BEGINS], Envelope(*row[_BEGINS:_ENDS]), *row[_ENDS:]]
    return ToolSpec(*values)


def spec_annotations() -> dict[str, Any]:
    """What a query of tools is annotated with, so that it has the columns of a ToolSpec."""
    return {"is_ready": is_ready(), "acts_as_organisation": acts_as_organisation()}


_current: Memory[list[ToolSpec]] = Memory(64)


def current_specs(
    version_ids: Sequence[int], *, organisation_id: int | None = None, at: int | None = None
) -> list[ToolSpec]:
    """The tools that have one of these versions as their current one, as they are now. One query; none where they were
    read before `at` this registry version of the organisation."""

    def read() -> list[ToolSpec]:
        return specs(Tool.objects.filter(current_version__in=version_ids))

    return read() if at is None else _current.get((organisation_id, at, tuple(version_ids)), read)


def specs(tools: QuerySet[Tool]) -> list[ToolSpec]:
    """These tools as they are now. One query."""
    rows = tools.filter(current_version__isnull=False).annotate(**spec_annotations())
    return [spec_of(row) for row in rows.values_list(*SPEC)]


def is_meta_tool(name: str, kind: str) -> bool:
    """Whether a tool of this name is one of those that load others."""
    return name in META_TOOLS and kind == ToolKind.BUILTIN
