"""Tools that a member's new session with the agent would begin with, for the agent's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.choosing.pipeline.bringing import OWN
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.choosing.pipeline.stages import Verdict
from capabilities.contract.loading import SEARCH_TOOLS
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent
from sessions.selection.queries import Selection, starting_selection
from sessions.selection.round_costs import RoundCost, cost_of_round, example_for
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
    cost: RoundCost
    #: Where messages decide what is sent: one, and what it brings; None where it brings everything.
    message: str = ""
    needed: Needed | None = None


@dataclass(frozen=True)
class Needed:
    """Tools that one message brings, in the order in which they are sent, each with why, and their tokens."""

    tools: Sequence[tuple[ToolSpec, str]]
    tokens: int
    keywords: Sequence[tuple[str, Sequence[str]]]


def start_of(agent: Agent, member: Membership, message: str = "") -> Start:
    """Return the start with the tools that a message brings, by itself a message that suits the tools. One query, and
    those of `select_tools`; where messages decide, those twice. `agent` comes with its model and provider at hand."""
    selection, needed = starting_selection(member, agent), None
    carried = selection
    if is_routed(agent):
        message = message or example_for(selection.tools)
        carried = starting_selection(member, agent, message)
        needed = needed_of(carried)
    sources = {each.tool: each.reason for each in selection.verdicts if each.stage == "gather"}
    return Start(
        [StartingTool(spec, sources[spec.name]) for spec in selection.tools],
        [each for each in selection.verdicts if not each.kept and each.stage != "router"],
        selection.tokens,
        cost_of_round(agent, carried, message if needed is not None else ""),
        message,
        needed,
    )


def needed_of(selection: Selection) -> Needed:
    """Return the tools that a message brings, from its selection. No query."""
    why = {each.tool: each.reason for each in selection.verdicts if each.stage == "router" and each.kept}
    why |= {each.name: "finds what was left out" for each in selection.tools if each.name == SEARCH_TOOLS}
    keywords = selection.routing.get("categories", {})
    tools = [(tool, why.get(tool.name, "always sent")) for tool in selection.tools]
    return Needed(tools, selection.tokens, list(keywords.items()))
