"""An agent as its form has it, saved or not: what its page and the cost of its rounds are drawn from."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from capabilities.agents.agents.writes import OwnLine, own_lines
from capabilities.models import Agent, Offer


@dataclass(frozen=True)
class AgentDraft:
    """An agent with its model and provider at hand, and its lists by name; nothing of it needs to be stored."""

    agent: Agent
    own: dict[str, OwnLine]
    #: Names of the toolkits that it may load, in its order, and whether each is initial.
    toolkits: dict[str, bool]
    #: Names of the roles that it is offered to, for people.
    rooms: tuple[str, ...] = ()

    @property
    def deferred(self) -> list[str]:
        """Names of its own tools that are not sent before they are loaded."""
        return [name for name, line in self.own.items() if line.is_deferred]

    @property
    def pinned(self) -> list[str]:
        return [name for name, line in self.own.items() if line.is_pinned]

    @property
    def initial(self) -> list[str]:
        return [name for name, is_initial in self.toolkits.items() if is_initial]

    @property
    def loads(self) -> bool:
        """True where there is something that the agent's model could load."""
        return bool(self.toolkits or self.deferred)


def stored_draft(agent: Agent, toolkits: dict[str, bool]) -> AgentDraft:
    """Return the agent as it is stored, with these toolkits. Two queries at most; `agent` comes with its model and
    provider at hand."""
    rooms = (
        tuple(agent.rooms.order_by("name").values_list("name", flat=True)) if agent.offered_to == Offer.ROLES else ()
    )
    return AgentDraft(agent, own_lines(agent), toolkits, rooms)


def changed_copy(agent: Agent | None, organisation_id: int, columns: dict[str, object]) -> Agent:
    """Return another instance of the agent, or a new one, with these columns. It is not to be saved."""
    changed = copy(agent) if agent is not None else Agent(organisation_id=organisation_id)
    for name, value in columns.items():
        setattr(changed, name, value)
    return changed
