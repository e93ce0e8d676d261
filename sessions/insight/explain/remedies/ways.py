"""Parts of a remedy: a change, the ways to make it, and the tool that it is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from capabilities.choosing.pipeline.candidates import Bundle
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.reasons import Reasons
from toolhub.tenants.models import Membership, Right

#: Roles, toolkits and loads that are tried for one tool, at most.
TRIED = 3
#: The changes that Explain does itself. Others are previewed, or ask for more, on a page of their own.
LABELS = {
    "switch_on": "Switch on",
    "load_toolkit": "Load",
    "load_tool": "Load",
    "unload": "Unload",
    "revoke_grant": "Revoke",
}

#: Does the change as this member, by the function that pages and routes call. Raises what that raises.
Write = Callable[[Membership], Any]


@dataclass(frozen=True)
class Page:
    """Page where the change is done: its name, its arguments after the organisation's, and its query."""

    view: str
    args: tuple[str | int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One thing to change: a word for programs, what to say after "Would be sent if", and the page where it is done."""

    code: str
    text: str
    view: str
    args: tuple[str | int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    #: The admin right that it takes, if one.
    right: Right | None = None
    #: Target of the change, where Explain can do it itself: kind and name of what is loaded.
    target: str = ""
    #: None where a page asks for more.
    write: Write | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """Words on a button that does it; empty for what is done on a page of its own."""
        return LABELS.get(self.code, "")


@dataclass(frozen=True)
class Way:
    """One way to make a change."""

    text: str
    page: Page
    #: Inputs that the selection would be read from; None where the change would be refused.
    inputs: Callable[[], Inputs | None]
    write: Write | None = None
    target: str = ""
    #: Key under which what was tried for one tool counts for the others of the page.
    key: object = None


@dataclass(frozen=True)
class Blocked:
    """Tool that one stage stops, for a member, in a session or for a new one: a remedy is looked for."""

    inputs: Inputs
    member: Membership
    tool: Reasons
    in_session: bool


@dataclass(frozen=True)
class Remedy:
    """One line of the table. `stage` is the one that stops the tool."""

    stage: str
    code: str
    right: Right | None
    ways: Callable[[Blocked], Iterator[Way]]


def bundles_with(blocked: Blocked) -> list[Bundle]:
    """The first ones that the agent may load, and that hold the tool."""
    reading = blocked.inputs.reading
    loadable = frozenset(reading.holdings.loadable)
    ways = [way.bundle for way in reading.offer.ways_to.get(blocked.tool.spec.tool_id, ())]
    return [each for each in ways if each is not None and each in loadable][:TRIED]
