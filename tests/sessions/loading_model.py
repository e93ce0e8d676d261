"""What the loading machine believes: an organisation's configuration as plain values, and what follows from it.

Written from the rules alone: it shares no code with the service, and asks no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from capabilities.contract.loading import CALL_TOOL, LOAD_CATEGORY, META_TOOLS

#: Built-in tools that run without arguments, and their categories; `utility` is core.
TOOLS = {
    "uuid": "utility",
    "current_time": "utility",
    "task_list": "tasks",
    "agent_notes_read": "notes",
    "scratch_read": "scratchpad",
    "grocery_list": "grocery",
    "list_show": "list",
    "calendar_list": "calendar",
    "food_log_list": "food",
    "recipe_search": "food",
    "people_search": "people",
    "location_list": "location",
}
CORE = "utility"
CATEGORIES = tuple(dict.fromkeys(TOOLS.values()))
KITS = ("first", "second", "third")
AGENTS = ("a", "b")

#: A tool or a category: ("tool", "uuid").
Thing = tuple[str, str]


def in_categories(names: Collection[str]) -> set[str]:
    return {tool for tool, category in TOOLS.items() if category in names}


@dataclass
class Kit:
    """Tools with their overrides (characters of a result; None: the tool's own), and whole categories."""

    tools: dict[str, int | None] = field(default_factory=dict)
    categories: set[str] = field(default_factory=set)

    @property
    def holds(self) -> dict[str, int | None]:
        return {**dict.fromkeys(in_categories(self.categories)), **self.tools}


@dataclass
class AgentConfig:
    own: list[str]
    with_core: bool
    deferred: set[str] = field(default_factory=set)
    allowed: list[str] = field(default_factory=list)
    initial: set[str] = field(default_factory=set)
    mode: str = "next_request"

    @property
    def at_once(self) -> set[str]:
        """What it has without loading anything."""
        core = in_categories({CORE}) if self.with_core else set()
        return (set(self.own) | core) - self.deferred


@dataclass(frozen=True)
class Row:
    """An active row of what is loaded: `thing` is a kit, a category or a deferred tool."""

    id: int
    agent: str
    thing: Thing
    loaded_by: str
    source: str


@dataclass
class Config:
    """Everything that decides what Bob's session may carry."""

    kits: dict[str, Kit]
    agents: dict[str, AgentConfig]
    #: Mode of Bob's only role; empty: he has none.
    role: str = "all"
    #: Lines of the role and grants: thing -> allow or deny; of a grant, both may be there.
    rules: dict[Thing, str] = field(default_factory=dict)
    grants: set[tuple[str, Thing]] = field(default_factory=set)
    #: Categories that Bob may load; "" is every one.
    may_load: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    limit: int = 128
    shared: bool = False

    # -- Rights

    def permits(self, tool: str) -> bool:
        """Whether Bob may use the tool, and it is switched on."""
        if tool in META_TOOLS:
            return self.is_somebody and (tool != LOAD_CATEGORY or bool(self.may_load))
        return tool in TOOLS and tool not in self.off and self._decides(tool)

    @property
    def is_somebody(self) -> bool:
        return bool(self.role or self.grants)

    def _decides(self, tool: str) -> bool:
        things = (("tool", tool), ("category", TOOLS[tool]))
        if any(("deny", thing) in self.grants for thing in things):
            return False
        if any(("allow", thing) in self.grants for thing in things) or self.role == "all":
            return True
        said = next((self.rules[thing] for thing in things if thing in self.rules), "deny")
        return self.role == "listed" and said == "allow"

    def may_load_category(self, who: str, category: str) -> bool:
        return who == "alice" or bool({"", category} & self.may_load)

    # -- What counts as loaded

    def counts(self, row: Row, agent: str) -> bool:
        """Whether the row brings something to the agent."""
        if row.agent != agent and not self.shared:
            return False
        kind, name = row.thing
        if kind == "kit":
            return name in self.agents[agent].allowed
        if kind == "category":
            return self.may_load_category(row.loaded_by, name)
        return name in self.agents[agent].deferred

    def brought(self, thing: Thing) -> dict[str, int | None]:
        kind, name = thing
        if kind == "kit":
            return self.kits[name].holds
        return dict.fromkeys(in_categories({name}) if kind == "category" else {name})

    def loaded(self, agent: str, rows: Iterable[Row]) -> list[Thing]:
        config = self.agents[agent]
        found = [row.thing for row in rows if self.counts(row, agent)]
        found += [("kit", name) for name in config.allowed if name in config.initial]
        if config.mode == "constant":
            found = [(kind, name) for kind, name in found if kind == "kit" and name in config.initial]
        return list(dict.fromkeys(found))

    # -- What may be sent, and what must be

    def expected(self, agent: str, rows: Collection[Row]) -> set[str] | None:
        """The tools that a selection carries, meta-tools and limit apart; None where overrides clash."""
        found: dict[str, int | None] = dict.fromkeys(self.agents[agent].at_once)
        for thing in self.loaded(agent, rows):
            for tool, chars in self.brought(thing).items():
                if found.setdefault(tool, chars) != chars:
                    return None
        return {tool for tool in found if self.permits(tool)}

    def reaches(self, agent: str, categories: Collection[str]) -> set[str]:
        """All that the agent could ever carry or call: its own, the core, its toolkits, and these loaded categories."""
        config = self.agents[agent]
        kits = (self.kits[name].holds for name in config.allowed)
        return {*config.own, *config.at_once, *in_categories(categories), *(tool for kit in kits for tool in kit)}

    def bound(self, agent: str, categories: Collection[str]) -> set[str]:
        """No request may carry more than this."""
        return {tool for tool in self.reaches(agent, categories) | META_TOOLS if self.permits(tool)}

    def may_run(self, tool: str, agent: str, sent: Collection[str], categories: Collection[str], through: str) -> bool:
        """Whether a call may be made: permitted now, and in the round's tools or reached by `call_tool`."""
        if through == CALL_TOOL:
            known = CALL_TOOL in sent and (tool in sent or tool in self.reaches(agent, categories))
        else:
            known = tool in sent
        return known and self.permits(tool)
