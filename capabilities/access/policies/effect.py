"""Effect of policies on some tools: those kept and dropped, rule by rule, as a policy's page shows it before saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.access.policies.catalogue import CatalogueTool
from capabilities.access.policies.writes import PolicyContent
from capabilities.choosing.pipeline.candidates import reach_of, toolkits_of
from capabilities.contract.policy import PolicyLayer, PolicyTool, ToolRuling, filtered, unknown_patterns
from capabilities.models import Agent

#: Tools that are named of all that are kept, and of all that are dropped.
TOOLS_SHOWN = 50
#: Rules that are shown, and tools that each names.
RULES_SHOWN, NAMED = 40, 5


@dataclass(frozen=True)
class RuleLine:
    """One rule with the tools that it kept or dropped: how many, and the first by name."""

    layer: str
    reason: str
    kept: bool
    count: int
    names: Sequence[str]

    @property
    def others(self) -> int:
        return self.count - len(self.names)


@dataclass(frozen=True)
class PolicyEffect:
    """Effect of policies on some tools: how many of how many are kept, rule by rule, and the first of them by name."""

    count: int
    kept: int
    rules: Sequence[RuleLine]
    other_rules: int
    kept_names: Sequence[str]
    dropped: Sequence[ToolRuling]
    #: By list, the patterns that name no tool of the catalogue.
    unknown: Sequence[tuple[str, str]]

    @property
    def dropped_count(self) -> int:
        return self.count - self.kept


def tools_of_agent(agent: Agent, at: int | None) -> list[CatalogueTool]:
    """All that the agent has or could load, by name. Two queries; one where they were read before `at` this registry
    version."""
    rows = reach_of(agent, toolkits_of(agent), at=at).rows.values()
    found = (CatalogueTool(row.spec.name, row.spec.category, row.spec.effect) for row in rows)
    return sorted(found, key=lambda tool: tool.name)


def effect_of(
    tools: Sequence[PolicyTool], layers: Sequence[PolicyLayer], content: PolicyContent, catalogue: Sequence[PolicyTool]
) -> PolicyEffect:
    """Build the effect of `layers` on `tools`. No query. `content` is the layer that is being written: its patterns
    that name no tool of the catalogue are listed."""
    found = filtered(tools, layers)
    last = {each.tool: each for each in found.rulings}
    by_rule: dict[tuple[str, str, bool], list[str]] = {}
    for each in found.rulings:
        by_rule.setdefault((each.layer, each.ruling.reason, each.ruling.kept), []).append(each.tool)
    order = {layer.title: number for number, layer in enumerate(layers)}
    lines = [
        RuleLine(layer, reason, kept, len(names), sorted(names)[:NAMED])
        for (layer, reason, kept), names in by_rule.items()
    ]
    lines.sort(key=lambda line: (order[line.layer], not line.kept, -line.count, line.reason))
    names = sorted(tool.name for tool in found.tools)
    dropped = sorted((each for each in last.values() if not each.ruling.kept), key=lambda each: each.tool)
    words = (("Allow only", content.allow), ("Also allow", content.also_allow), ("Deny", content.deny))
    return PolicyEffect(
        len(tools),
        len(names),
        lines[:RULES_SHOWN],
        len(lines[RULES_SHOWN:]),
        names[:TOOLS_SHOWN],
        dropped[:TOOLS_SHOWN],
        [
            (label, ", ".join(unknown))
            for label, patterns in words
            if (unknown := unknown_patterns(patterns, catalogue))
        ],
    )
