"""A tool as the loop works with it, frozen at its current version. No Django: whoever runs a tool gets one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from capabilities.contract.envelope import NO_OVERRIDES, Envelope, Overrides
from capabilities.contract.loading import META_TOOLS
from capabilities.contract.wire import canonical_json

#: In place of the key of a version.
NOT_IN_FORCE = 0
#: The kind of this service's own tools.
BUILTIN = "builtin"


@dataclass(frozen=True)
class ToolSpec:
    """One tool as the loop works with it: frozen at its current version."""

    tool_id: int
    #: NOT_IN_FORCE where no version of it is: no turn ever gets such a one, only who explains why.
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
    #: Instructions that the model gets besides, while the tool is at hand.
    instructions: str = ""
    #: Whether it acts with a credential that the whole organisation shares.
    acts_as_organisation: bool = False
    #: Name of the category for people.
    category_title: str = ""
    #: While it is switched off: what whoever stopped it tells models and users.
    off_message: str = ""
    #: Why it is kept back until somebody decides, or empty.
    quarantine: str = ""
    #: Key of the stored credential that signs its calls, its server's for one of kind MCP.
    credential_id: int | None = None
    #: A call in one line for people, a format string over the arguments.
    human_format: str = ""
    #: Part of the envelope that a toolkit sets, not the version.
    overrides: Overrides = NO_OVERRIDES
    #: Envelope of the version, where `envelope` is another.
    version_envelope: Envelope | None = None
    #: The definition as the vendor of the model takes it, where that is another one than `wire`.
    rendered: str = ""

    @property
    def is_in_force(self) -> bool:
        """True where a version of the tool is in force."""
        return self.version_id != NOT_IN_FORCE

    @property
    def sent(self) -> str:
        """The definition as it goes out."""
        return self.rendered or self.wire

    @property
    def own_envelope(self) -> Envelope:
        """Envelope of the version itself."""
        return self.version_envelope or self.envelope

    def overridden(self, overrides: Overrides) -> ToolSpec:
        """Return this tool with the overrides of a toolkit."""
        if overrides == NO_OVERRIDES:
            return self
        return replace(self.under(self.own_envelope.merged(overrides)), overrides=overrides)

    def under(self, envelope: Envelope) -> ToolSpec:
        """Return this tool with this envelope in force."""
        return replace(self, envelope=envelope, version_envelope=self.own_envelope)

    def in_titles(self, source: str) -> str:
        """Return the source of the tool (a Candidate's source) for people: its category by the title."""
        if source in (f"core category {self.category}", f"loaded category {self.category}"):
            return source.removesuffix(self.category) + self.category_title
        return source

    @property
    def off_because(self) -> str:
        """The end of a sentence that says that it is switched off: the message, where there is one."""
        return f": {self.off_message.rstrip('.')}" if self.off_message else ""

    @cached_property
    def is_meta(self) -> bool:
        """True for the tools that load others."""
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


def is_meta_tool(name: str, kind: str) -> bool:
    """Return whether a tool of this name is one of those that load others."""
    return name in META_TOOLS and kind == BUILTIN
