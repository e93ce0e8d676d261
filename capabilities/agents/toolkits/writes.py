"""The audited writes of toolkits, and the two rules that they share with agents: overrides and shared credentials."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from capabilities.choosing.pipeline.bringing import overrides_in
from capabilities.common.names import check_name_free
from capabilities.common.refused import RESERVED, ChangedMeanwhile, ChangeRefused, check_no_rule, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import ChangeForbidden, configuration_write, may_administer, require
from capabilities.common.short_names import CATEGORY_NAME
from capabilities.contract.envelope import NO_OVERRIDES, OWN_FIELDS, Overrides
from capabilities.contract.knobs import KNOBS, in_words, safety_knobs
from capabilities.contract.loading import META_CATEGORY, RESERVED_TOOLKITS, RESERVED_TOOLS
from capabilities.contract.names import name_key
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import (
    Agent,
    AgentScope,
    AgentTool,
    AgentToolkit,
    ApprovalRule,
    Category,
    Tool,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
)
from capabilities.running.services.writes import acts_as_organisation
from toolhub.durations import duration
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right

MAX_DESCRIPTION = 2_000
#: Tools that a toolkit names, and categories.
MAX_TOOLS = 1_000
MAX_CATEGORIES = 200
#: Bounds of an override: seconds, and characters of a result.
MIN_TIMEOUT, MAX_TIMEOUT = 1, 600
MIN_RESULT_CHARS, MAX_RESULT_CHARS = 200, 1_000_000
#: Names that a refusal lists.
NAMED = 5


@dataclass(frozen=True)
class ToolkitLine:
    """A tool of a toolkit; seconds and characters where the toolkit says something else than the tool, and further
    knobs by name."""

    tool: str
    timeout: float | None = None
    max_result_chars: int | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolkitContent:
    """Fields of a toolkit, as its form sends them. Tools stay in this order."""

    name: str
    description: str = ""
    tools: tuple[ToolkitLine, ...] = ()
    categories: tuple[str, ...] = ()


# -- The writes -------------------------------------------------------------------------------------------------------


@configuration_write()
def create_toolkit(content: ToolkitContent, *, actor: Membership) -> Toolkit:
    """Raises ChangeRefused for a name in use or that cannot be, and for what no toolkit may hold."""
    require(actor, Right.TOOLKITS)
    return _create(actor.organisation_id, content, actor)


@transaction.atomic
def install_toolkit(organisation: Organisation, content: ToolkitContent) -> Toolkit:
    """One that the service brings along."""
    return _create(organisation.pk, content, None)


def _create(organisation_id: int, content: ToolkitContent, actor: Membership | None) -> Toolkit:
    toolkit = Toolkit(organisation_id=organisation_id)
    _require_for_safety(actor, (), content.tools)
    _write(toolkit, content)
    record("toolkit.create", toolkit, actor=actor, after=audited(toolkit))
    touch_registry(organisation_id)
    return toolkit


@configuration_write()
def update_toolkit(
    toolkit: Toolkit, content: ToolkitContent, *, actor: Membership, stamp: str | None = None
) -> Toolkit:
    """Sessions that have it loaded follow with their next selection.

    Raises ChangeRefused too where an agent that uses it could not be saved as it is any more, and ChangedMeanwhile
    where the toolkit is not as `stamp` says.
    """
    require(actor, Right.TOOLKITS)
    if stamp is not None:
        list(Toolkit.objects.select_for_update().filter(pk=toolkit.pk).values_list("pk"))
        if toolkit_stamp(toolkit) != stamp:
            raise ChangedMeanwhile("The toolkit has been changed in the meantime.")
    before = audited(toolkit)
    _require_for_safety(actor, content_of(toolkit).tools, content.tools)
    _write(toolkit, content)
    after = audited(toolkit)
    if before != after:
        _check_agents(toolkit)
        record("toolkit.update", toolkit, actor=actor, before=before, after=after)
        touch_registry(toolkit.organisation_id)
    return toolkit


@configuration_write("toolkit")
def delete_toolkit(toolkit: Toolkit, *, actor: Membership) -> None:
    """Raises ChangeRefused while agents may load it. Sessions that have it loaded drop it."""
    require(actor, Right.TOOLKITS)
    agents = list(Agent.objects.filter(agent_toolkits__toolkit=toolkit).order_by("name", "pk"))
    if agents:
        names = listed([str(agent) for agent in agents])
        raise ChangeRefused("toolkit", f"Agents use {toolkit}: take it from {names} first.", code="in_use")
    check_no_rule("toolkit", ApprovalRule.objects.filter(toolkit=toolkit))
    record("toolkit.delete", toolkit, actor=actor, before=audited(toolkit))
    toolkit.delete()
    touch_registry(actor.organisation_id)


def _require_for_safety(actor: Membership | None, stored: Iterable[ToolkitLine], wanted: Iterable[ToolkitLine]) -> None:
    """Raise ChangeForbidden for a knob that decides what a call may do, unless the actor administers policies too."""

    def knobs(lines: Iterable[ToolkitLine]) -> dict[str, dict[str, Any]]:
        found = {line.tool: {name: line.knobs[name] for name in safety_knobs(line.knobs)} for line in lines}
        return {tool: values for tool, values in found.items() if values}

    before, after = knobs(stored), knobs(wanted)
    if before == after or actor is None or may_administer(actor, Right.POLICIES):
        return
    tool = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))[0]
    names = ", ".join(sorted({*before.get(tool, ()), *after.get(tool, ())}))
    raise ChangeForbidden("tools", f"{tool}: to change {names} needs the admin right policies too.")


def toolkit_stamp(toolkit: Toolkit) -> str:
    """Return a hash of the toolkit as it is stored; it differs after any change. Three queries."""
    stored = Toolkit.objects.filter(pk=toolkit.pk).first()
    return sha256_hex(canonical_json(audited(stored) if stored is not None else None))


def audited(toolkit: Toolkit) -> dict[str, Any]:
    """The toolkit as the audit keeps it. Two queries."""
    lines = ToolkitTool.objects.filter(toolkit=toolkit).order_by("position", "tool__name")
    categories = ToolkitCategory.objects.filter(toolkit=toolkit).order_by("category__name")
    return {
        "name": toolkit.name,
        "description": toolkit.description,
        "tools": [
            {"tool": name, "timeout": timeout, "max_result_chars": chars} | ({"knobs": knobs} if knobs else {})
            for name, timeout, chars, knobs in lines.values_list("tool__name", "timeout", "max_result_chars", "knobs")
        ],
        "categories": list(categories.values_list("category__name", flat=True)),
    }


def content_of(toolkit: Toolkit) -> ToolkitContent:
    """Return the stored content, as a form would send it. Two queries."""
    stored = audited(toolkit)
    lines = tuple(ToolkitLine(**line) for line in stored["tools"])
    return ToolkitContent(toolkit.name, toolkit.description, lines, tuple(stored["categories"]))


def _write(toolkit: Toolkit, content: ToolkitContent) -> None:
    """Write the toolkit with its lines and categories. Raises ChangeRefused for an unknown tool or category."""
    _check_words(toolkit, content)
    tools = _known_tools(content.tools)
    categories = _known_categories(content.categories)
    toolkit.name, toolkit.description = content.name, content.description
    toolkit.save()
    own: dict[str, Any] = {"organisation_id": toolkit.organisation_id, "toolkit": toolkit}
    ToolkitTool.objects.filter(toolkit=toolkit).delete()
    ToolkitTool.objects.bulk_create(
        ToolkitTool(
            **own,
            tool_id=tools[line.tool],
            position=number,
            timeout=line.timeout,
            max_result_chars=line.max_result_chars,
            knobs=dict(line.knobs),
        )
        for number, line in enumerate(content.tools, start=1)
    )
    ToolkitCategory.objects.filter(toolkit=toolkit).delete()
    ToolkitCategory.objects.bulk_create(ToolkitCategory(**own, category_id=key) for key in categories)


def _check_words(toolkit: Toolkit, content: ToolkitContent) -> None:
    name = content.name
    if not CATEGORY_NAME.match(name) or name in RESERVED:
        raise ChangeRefused("name", "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -; not “new”.")
    if name in RESERVED_TOOLKITS:
        raise ChangeRefused("name", f"The name {name} is taken by the service itself.")
    if name != toolkit.name or toolkit.pk is None:
        check_name_free(Toolkit.every.exclude(pk=toolkit.pk), "a toolkit", name)
        toolkit.name_key = name_key(name)
    if len(content.description) > MAX_DESCRIPTION:
        raise ChangeRefused("description", f"Keep the description under {MAX_DESCRIPTION:,} characters.")


def _known_tools(lines: Sequence[ToolkitLine]) -> dict[str, int]:
    """Keys by name. Raises ChangeRefused for the first line that cannot be."""
    if len(lines) > MAX_TOOLS:
        raise ChangeRefused("tools", f"A toolkit names at most {MAX_TOOLS:,} tools; a category brings all of its own.")
    names = [line.tool for line in lines]
    check_once("tools", names)
    keys = dict(Tool.objects.filter(name__in=names).values_list("name", "pk"))
    for line in lines:
        if line.tool in RESERVED_TOOLS:
            raise ChangeRefused("tools", f"{line.tool} cannot be in a toolkit: the service gives it where it belongs.")
        if line.tool not in keys:
            raise not_there("tools", "tool", line.tool)
        if line.timeout is not None and not MIN_TIMEOUT <= line.timeout <= MAX_TIMEOUT:
            raise ChangeRefused(
                "tools", f"{line.tool}: give a timeout from {MIN_TIMEOUT} to {MAX_TIMEOUT} seconds, or none."
            )
        if line.max_result_chars is not None and not MIN_RESULT_CHARS <= line.max_result_chars <= MAX_RESULT_CHARS:
            limits = f"{MIN_RESULT_CHARS:,} to {MAX_RESULT_CHARS:,}"
            raise ChangeRefused("tools", f"{line.tool}: give {limits} characters of a result, or none.")
        check_further(line)
    return keys


def check_further(line: ToolkitLine) -> None:
    """Raise ChangeRefused for a further knob that is none, that the tool does not have, or with a wrong value."""
    for name, value in line.knobs.items():
        knob = KNOBS.get(name)
        if knob is None or name in OWN_FIELDS:
            raise ChangeRefused("tools", f"{line.tool}: there is no further knob {str(name)[:60]}.")
        if not knob.is_of(line.tool, ""):
            raise ChangeRefused("tools", f"{line.tool} has no {name}.")
        read = knob.read(value)
        if read.note and read.kind != "repeated":
            raise ChangeRefused("tools", f"{line.tool}, {name}: {read.note}.")


def _known_categories(names: Sequence[str]) -> list[int]:
    """Return the keys of the categories by name. Raises ChangeRefused for one that is unknown, or that no toolkit may
    hold."""
    if len(names) > MAX_CATEGORIES:
        raise ChangeRefused("categories", f"A toolkit has at most {MAX_CATEGORIES:,} categories.")
    check_once("categories", names)
    keys = dict(Category.objects.filter(name__in=names).values_list("name", "pk"))
    for name in names:
        if name not in keys:
            raise not_there("categories", "category", name)
    reserved = Tool.objects.filter(name__in=RESERVED_TOOLS, category__in=keys.values())
    reserved_by_category = dict(reserved.order_by("-name").values_list("category__name", "name"))
    for name in names:
        if name == META_CATEGORY or name in reserved_by_category:
            reserved_tool = reserved_by_category.get(name, "what loads tools")
            raise ChangeRefused("categories", f"{name} cannot be in a toolkit: {reserved_tool} is in it.")
    return [keys[name] for name in names]


def check_once(field: str, names: Sequence[str]) -> None:
    """Raise ChangeRefused for a name that is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ChangeRefused(field, f"{name[:100]} is named twice.")
        seen.add(name)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


# -- What a toolkit's change may do to agents -------------------------------------------------------------------------


def _check_agents(toolkit: Toolkit) -> None:
    """Raise ChangeRefused where agents use the toolkit, and could not be saved with it as it is now."""
    users = list(Agent.objects.filter(agent_toolkits__toolkit=toolkit).order_by("name", "pk"))
    careful = [str(agent) for agent in users if agent.scope == AgentScope.MEMBER]
    if careful and (shared := shared_tools_in([toolkit.pk])):
        raise ChangeRefused(
            "tools",
            f"{listed(careful)} may load it, and act only with the member’s own credentials: it cannot hold "
            f"{listed(shared)}, which act with one that the organisation shares.",
        )
    initial = set(AgentToolkit.objects.filter(toolkit=toolkit, is_initial=True).values_list("agent_id", flat=True))
    for conflict in toolkit_conflicts([agent for agent in users if agent.pk in initial]):
        if toolkit.pk in (conflict.first.toolkit_id, conflict.second.toolkit_id):
            raise ChangeRefused("tools", f"{conflict.agent} begins with it: {conflict}.")


def shared_tools_in(toolkit_ids: Collection[int]) -> list[str]:
    """Names of the toolkits' tools that act with a credential the organisation shares. Three queries."""
    tool_ids = {tool for tools in overrides_in(toolkit_ids).values() for tool in tools}
    return shared_tools(Tool.objects.filter(pk__in=tool_ids))


def shared_tools(tools: QuerySet[Tool]) -> list[str]:
    """Names of those tools that act with a credential the organisation shares. One query."""
    return sorted(set(tools.filter(acts_as_organisation()).values_list("name", flat=True)))


# -- Overrides --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolOrigin:
    """Something that brings tools to an agent, and what it says of each: {key of a tool: overrides}."""

    title: str
    tools: Mapping[int, Overrides]
    toolkit_id: int | None = None


@dataclass(frozen=True)
class Conflict:
    """A tool that an agent would begin with from two sides that disagree on its overrides."""

    agent: Agent
    tool: str
    first: ToolOrigin
    second: ToolOrigin
    #: Overrides of the first and of the second.
    values: tuple[Overrides, Overrides]

    def __str__(self) -> str:
        ours, theirs = (overrides_in_words(each) for each in self.values)
        return f"{self.tool} comes from {self.first.title} ({ours}) and from {self.second.title} ({theirs})"


def overrides_in_words(overrides: Overrides) -> str:
    timeout, chars = overrides.timeout, overrides.max_result_chars
    words = [] if timeout is None else [f"timeout {duration(timeout)}"]
    words += [] if chars is None else [f"{chars:,} characters"]
    words += [f"{KNOBS[name].title.lower()} {in_words(value, KNOBS[name])}" for name, value in overrides.more]
    return ", ".join(words) or "as the tool says"


def toolkit_conflicts(agents: Sequence[Agent]) -> list[Conflict]:
    """Return the conflicts of these agents' initial toolkits with each other, or with own and core tools.

    The same overrides twice are no conflict. Six queries, whatever the number of agents.
    """
    if not agents:
        return []
    initial, own, core = _initial_origins(agents), _own_origins(agents), _core_origin()
    clashes = []
    for agent in agents:
        origins = [own[agent.pk], *([core] if agent.starts_with_core else []), *initial[agent.pk]]
        clashes += [(agent, *clash) for clash in _clashes(origins)]
    names = dict(Tool.objects.filter(pk__in={tool for _, tool, *_ in clashes}).values_list("pk", "name"))
    return [
        Conflict(agent, names[tool], first, second, (first.tools[tool], second.tools[tool]))
        for agent, tool, first, second in clashes
    ]


def _clashes(origins: Iterable[ToolOrigin]) -> list[tuple[int, ToolOrigin, ToolOrigin]]:
    """Tools that a side says something else of than the first one that brings them."""
    first_origins: dict[int, ToolOrigin] = {}
    found = []
    for origin in origins:
        for tool, overrides in origin.tools.items():
            first = first_origins.setdefault(tool, origin)
            if first.tools[tool] != overrides:
                found.append((tool, first, origin))
    return found


def _initial_origins(agents: Sequence[Agent]) -> dict[int, list[ToolOrigin]]:
    lines = AgentToolkit.objects.filter(agent__in=agents, is_initial=True).order_by("position", "toolkit__name")
    rows = list(lines.values_list("agent_id", "toolkit_id", "toolkit__name"))
    tools = overrides_in({key for _, key, _ in rows})
    origins: dict[int, list[ToolOrigin]] = {agent.pk: [] for agent in agents}
    for agent_id, key, name in rows:
        origins[agent_id].append(ToolOrigin(f"toolkit {name}", tools[key], key))
    return origins


def _own_origins(agents: Sequence[Agent]) -> dict[int, ToolOrigin]:
    tools: dict[int, dict[int, Overrides]] = {agent.pk: {} for agent in agents}
    for agent_id, tool in AgentTool.objects.filter(agent__in=agents).values_list("agent_id", "tool_id"):
        tools[agent_id][tool] = NO_OVERRIDES
    if any(agent.has_every_tool for agent in agents):
        every = dict.fromkeys(Tool.objects.values_list("pk", flat=True), NO_OVERRIDES)
        tools |= {agent.pk: every for agent in agents if agent.has_every_tool}
    return {key: ToolOrigin("its own tools", found) for key, found in tools.items()}


def _core_origin() -> ToolOrigin:
    keys = Tool.objects.filter(category__is_core=True).values_list("pk", flat=True)
    return ToolOrigin("the core categories", dict.fromkeys(keys, NO_OVERRIDES))
