"""What an agent's page shows: the tools that a member's new session with the agent would begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.agents.queries import deferred_tools_of
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent
from capabilities.pipeline.candidates import OWN
from capabilities.pipeline.stages import Verdict
from sessions.selection.queries import starting_selection
from toolhub.tenants.models import Membership


@dataclass(frozen=True)
class StartingTool:
    """A tool that is sent, and what brings it."""

    spec: ToolSpec
    source: str

    @property
    def because(self) -> str:
        """The source, for people: a category by its title."""
        if self.source == OWN:
            return "its own"
        return self.spec.in_titles(self.source)


@dataclass(frozen=True)
class Start:
    """The tools of a first turn: those that are sent, and for each of the others the verdict that keeps it back."""

    sent: Sequence[StartingTool]
    kept_back: Sequence[Verdict]
    tokens: int
    #: Names of the agent's own tools that are not sent before they are loaded.
    deferred: Sequence[str]


def start_of(agent: Agent, member: Membership) -> Start:
    """One query, and those of `select_tools`. `agent` comes with its model and provider at hand."""
    selection = starting_selection(member, agent)
    sources = {each.tool: each.reason for each in selection.verdicts if each.stage == "gather"}
    return Start(
        [StartingTool(spec, sources[spec.name]) for spec in selection.tools],
        [each for each in selection.verdicts if not each.kept],
        selection.tokens,
        deferred_tools_of(agent),
    )
