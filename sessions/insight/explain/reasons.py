"""The reasons for which a tool is, or is not, in what an agent sends for a member: a verdict of every stage.

No rule is written here a second time: verdicts come from the stages of `selection`, changes from `remedies`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from capabilities.choosing.pipeline import stages
from capabilities.choosing.pipeline.candidates import Candidate, Row
from capabilities.contract.permission import Decision, Rights
from capabilities.contract.spec import ToolSpec
from capabilities.running.services.writes import set_up_title
from sessions.insight.explain.inputs import Inputs

#: Tools of a page; for each that is kept back, each remedy is tried.
TOOLS_A_PAGE = 15
#: Toolkits that a reason names.
NAMED = 3
#: `stopped`: the agent has it or could load it, and something keeps it back; `not_offered`: it has no way to it.
STATES = ("sent", "loadable", "stopped", "not_offered")

#: The stages that ask each tool alone whether it may be sent, by the name of their verdicts; `permitted` is shown as
#: two, what grants say and what roles say, in the order in which they decide.
ALONE: Mapping[str, stages.Stage] = {
    "enabled": stages.enabled,
    "set-up": stages.ready,
    "scope": stages.in_scope,
    "delegation": stages.delegated,
}
#: Stages that are asked after what the member may use: policies, and who answers where a call asks.
POLICIES: Mapping[str, stages.Stage] = {
    "policy": stages.policy,
    "provider_policy": stages.provider_policy,
    "approval": stages.answerable,
}
#: Label of a tool that nothing brings to the agent.
NOT_OFFERED = "not offered"
#: Stages that keep a definition from going out: the model's provider refuses it, or it is too large.
SENDING: Mapping[str, stages.Stage] = {"refused": stages.taken, "size": stages.of_size}
STAGES = ("loaded", *ALONE, "grants", "role", *POLICIES, *SENDING, "router", "limit")


@dataclass(frozen=True)
class Asked:
    """Filter of the tools that are asked about: each word of `q` is looked for in names, descriptions and categories,
    `state` is one of STATES or empty for all, `tool` is a name; `message` is what would be said, empty for any;
    `client`: by a client of `/v1`.

    `after` and `before` are places, where a page begins or ends; `capabilities.catalogue.tools.search` says their form.
    """

    q: str = ""
    category: str = ""
    state: str = ""
    after: str = ""
    before: str = ""
    limit: int = TOOLS_A_PAGE
    tool: str = ""
    message: str = ""
    client: bool = False


@dataclass(frozen=True)
class Cell:
    """Answer of one stage for one tool, whatever the others say. `kept` is None where it says nothing of it."""

    stage: str
    kept: bool | None
    reason: str
    #: The reason in about three words.
    short: str
    #: True where it keeps the tool from being sent: a role that opens nothing does not, where a grant does.
    stops: bool = False
    #: Moment since when it does, what was done then and by which person, in words; where that is on record.
    since: datetime | None = None
    done: str = ""
    done_by: str = ""


@dataclass(frozen=True)
class GrantLine:
    """A grant in force of the member's, on a tool or a category."""

    id: int
    tool_id: int | None
    category_id: int | None
    effect: str


@dataclass(frozen=True)
class WaitingVersion:
    """The newest version of a tool that waits for approval."""

    id: int
    number: int
    since: datetime
    #: Name of its author, for people; and of who may not approve it for that, or empty.
    author: str
    not_by: str


@dataclass(frozen=True)
class Listed:
    """One tool of a page, before it is asked about."""

    spec: ToolSpec
    line: str
    #: Why its version is not used, beside what the spec says.
    waiting: WaitingVersion | None = None
    kept_back_at: datetime | None = None
    kept_back_by: str = ""
    #: True where its source offers the version in force.
    is_offered: bool = True
    #: Without a version in force: what the agent would have with one; None where it has no way to it.
    row_then: Row | None = None
    #: Names of the toolkits that hold it, whichever agent may load them.
    toolkits: tuple[str, ...] = ()
    grants: tuple[GrantLine, ...] = ()
    #: No agent begins with it or can load it.
    is_nobodys: bool = False


@dataclass(frozen=True)
class Reasons:
    """One tool with the verdicts of all stages, in order."""

    listed: Listed
    cells: tuple[Cell, ...]
    #: One of STATES.
    state: str

    @property
    def spec(self) -> ToolSpec:
        return self.listed.spec

    @property
    def is_sent(self) -> bool:
        return self.state == "sent"

    @cached_property
    def stops(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.stops)

    @property
    def first_stop(self) -> Cell | None:
        return next(iter(self.stops), None)


# -- Why --------------------------------------------------------------------------------------------------------------


def reasons_of(inputs: Inputs, listed: Listed) -> Reasons:
    """Collect the answer of every stage for the tool, and the state that follows."""
    spec = listed.spec
    row = inputs.rows.get(spec.tool_id)
    own = inputs.gathered.get(spec.name) or Candidate(row.spec if row else spec, "")
    alone = [_alone(inputs, stage, own) for stage in ALONE]
    policies = [_by_policy(inputs, stage, own) for stage in POLICIES]
    sending = [_by_sending(inputs, stage, own) for stage in SENDING]
    permitted, last = _permitted(inputs, spec), (_router(inputs, spec), _limit(inputs, spec))
    cells = (
        _loaded(inputs, listed, row),
        _with_record(alone[0], listed),
        *alone[1:],
        *permitted,
        *policies,
        *sending,
        *last,
    )
    would_have = () if listed.row_then is None else (spec.tool_id,)
    return Reasons(listed, cells, state_of(inputs, spec.tool_id, would_have))


def _with_record(enabled: Cell, listed: Listed) -> Cell:
    """The verdict of the catalogue, with what waits for a decision, and since when."""
    spec, waiting = listed.spec, listed.waiting
    if enabled.kept or not spec.is_enabled:
        return enabled
    if not spec.is_in_force and waiting is not None:
        return replace(
            enabled,
            reason=f"{enabled.reason}, version {waiting.number} waits for approval",
            short="waits for approval",
            since=waiting.since,
            done="Submitted",
            done_by=waiting.author,
        )
    if not spec.is_in_force:
        return replace(enabled, short="nothing in force")
    return replace(enabled, short="kept back", since=listed.kept_back_at, done="Kept back", done_by=listed.kept_back_by)


def state_of(inputs: Inputs, tool_id: int, would_have: Collection[int]) -> str:
    if tool_id in inputs.sent:
        return "sent"
    if tool_id in inputs.loadable:
        return "loadable"
    return "stopped" if tool_id in inputs.offered or tool_id in would_have else "not_offered"


def _loaded(inputs: Inputs, listed: Listed, row: Row | None) -> Cell:
    if not listed.spec.is_in_force:
        if listed.row_then is None:
            return Cell("loaded", None, "nothing brings it before a version is in force", "")
        return Cell("loaded", True, "the agent has it as soon as a version is in force", "its own")
    own = inputs.gathered.get(listed.spec.name)
    if own is not None:
        title = listed.spec.in_titles(own.source)
        shorts = {"agent": "its own", "meta-tool": "by itself"}
        reason = "it is one of the agent’s own" if own.source == "agent" else f"{title} brings it"
        if own.source == "meta-tool":
            reads = stages.is_reader(own.spec)
            reason = f"it comes by itself, {'to read on in results' if reads else 'as there is something to load'}"
        short = "core" if own.source.startswith("core category ") else shorts.get(own.source, title)
        return Cell("loaded", True, reason, short)
    reason, short = _why_nothing_brings(inputs, listed, row)
    return Cell("loaded", False, reason, short, stops=True)


def _why_nothing_brings(inputs: Inputs, listed: Listed, row: Row | None) -> tuple[str, str]:
    spec = listed.spec
    dropped = [each for each in inputs.selection.verdicts if each.tool == spec.name and each.stage == "gather"]
    if dropped:
        return dropped[0].reason, "nothing to read" if stages.is_reader(spec) else "in conflict"
    if spec.is_meta:
        return "it comes by itself where the agent has something to load", "nothing to load"
    ways = [way for way in inputs.reading.offer.ways_to.get(spec.tool_id, ()) if way.bundle is not None]
    if inputs.is_constant and ways:
        return "this agent only searches and calls what can be loaded, it is never sent", "searched, not sent"
    found = next(
        (each.reason for each in inputs.selection.verdicts if (each.tool, each.stage) == (spec.name, "search")), ""
    )
    if found:
        return f"{found}, and shows it to the model when it finds it", "searched"
    if row is not None and row.is_deferred:
        return f"it is deferred: sent once it is loaded as {spec.name}", "deferred"
    if ways:
        return f"{spec.in_titles(ways[0].source)} would bring it, and is not loaded", "not loaded"
    if listed.toolkits:
        names = ", ".join(listed.toolkits[:NAMED])
        return f"nothing offers it to this agent; it is in {names}, which the agent may not load", NOT_OFFERED
    return "nothing offers it to this agent", NOT_OFFERED


def _alone(inputs: Inputs, name: str, own: Candidate) -> Cell:
    verdict = next(iter(ALONE[name](inputs.situation, [own])), None)
    if verdict is None or verdict.kept:
        return Cell(name, True, "", "")
    shorts = {
        "enabled": "switched off",
        "set-up": f"needs {set_up_title(own.spec.service)}",
        "scope": "shared credential",
        "delegation": "not handed over",
    }
    return Cell(name, False, verdict.reason, shorts[name], stops=True)


def _by_policy(inputs: Inputs, name: str, own: Candidate) -> Cell:
    """Return the cell of a stage of policies; without a policy there is nothing to say."""
    verdict = next(iter(POLICIES[name](inputs.situation, [own])), None)
    if verdict is None:
        return Cell(name, True, "", "")
    short = "" if verdict.kept else "asks a person" if name == "approval" else "not let through"
    return Cell(name, verdict.kept, verdict.reason, short, stops=not verdict.kept)


def _by_sending(inputs: Inputs, name: str, own: Candidate) -> Cell:
    verdict = next(iter(SENDING[name](inputs.situation, [own])), None)
    if verdict is None:
        return Cell(name, True, "", "")
    return Cell(name, False, verdict.reason, {"refused": "refused by the model", "size": "too large"}[name], stops=True)


def _permitted(inputs: Inputs, spec: ToolSpec) -> tuple[Cell, Cell]:
    """Return the cells of grants, and of roles alone. What is denied is asked again without those denies: then it shows
    whether the roles stand in the way too."""
    permissions, rights = inputs.permissions, inputs.permissions.rights
    answer = permissions.decide(spec)
    grants, roles, is_open = Cell("grants", None, "no grant names it", ""), answer, answer.allowed
    if answer.stage == "grants":
        short = "grant allows" if answer.allowed else "grant denies"
        grants = Cell("grants", answer.allowed, answer.reason, short, stops=not answer.allowed)
        roles = replace(permissions, rights=replace(rights, tool_grants={}, category_grants={})).decide(spec)
        is_open = answer.allowed or replace(permissions, rights=_undenied(rights, spec)).decide(spec).allowed
    short = "" if roles.allowed else "no role" if not rights.roles else "no role opens"
    return grants, Cell("role", roles.allowed, roles.reason, short, stops=not is_open)


def _undenied(rights: Rights, spec: ToolSpec) -> Rights:
    def rest(effects: Mapping[int, Decision], own: int) -> dict[int, Decision]:
        return {key: effect for key, effect in effects.items() if key != own or effect == "allow"}

    return replace(
        rights,
        tool_grants=rest(rights.tool_grants, spec.tool_id),
        category_grants=rest(rights.category_grants, spec.category_id),
    )


def _router(inputs: Inputs, spec: ToolSpec) -> Cell:
    """Return the cell of routing by the message. Of what is loaded, and of what was stopped before, there is nothing to
    say."""
    verdict = inputs.by_router.get(spec.name)
    if verdict is None:
        return Cell("router", True, "", "")
    short = "needed" if verdict.kept else "not needed"
    return Cell("router", verdict.kept, verdict.reason, short, stops=not verdict.kept)


def _limit(inputs: Inputs, spec: ToolSpec) -> Cell:
    limit = inputs.situation.model.tool_limit
    if inputs.has_room_for(spec):
        return Cell("limit", True, "", "")
    return Cell("limit", False, f"over the limit of {limit:,} tools", f"over {limit:,}", stops=True)
