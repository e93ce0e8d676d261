"""Changes to many tools at once: effect, category, and when their calls ask a person. All of them, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capabilities.catalogue.tools.writes import MAX_BULK, Definition, definition_of, set_tools_enabled, write_versions
from capabilities.catalogue.versions.rules import status_of_new
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.contract.effects import READ
from capabilities.contract.trust import ALLOW, ASK
from capabilities.models import Category, Tool, ToolKind, VersionStatus
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.provided import Provided

EFFECTS = ("read", "write", "external")
#: Values of the knobs `ask` and `in_untrusted`: when a call asks a person, and what becomes of it after text from
#: outside.
ASKS = ("always", "first_time", "off")
IN_UNTRUSTED = ("refuse", "ask", "allow")


@Provided
def set_knobs_of(names: Collection[str], knobs: Mapping[str, Any], *, actor: Membership) -> object:
    """Set the organisation's runtime settings of these tools. Needs the right `policies`."""
    raise NotImplementedError


@dataclass(frozen=True)
class ToolsChange:
    """Change to many tools; empty and None leave each tool as it is. `category` is a name."""

    is_enabled: bool | None = None
    off_message: str = ""
    effect: str = ""
    category: str = ""
    ask: str = ""
    in_untrusted: str = ""

    @property
    def knobs(self) -> Mapping[str, str]:
        return {name: value for name, value in (("ask", self.ask), ("in_untrusted", self.in_untrusted)) if value}

    @property
    def is_nothing(self) -> bool:
        return self.is_enabled is None and not (self.effect or self.category or self.knobs)


@dataclass(frozen=True)
class ToolsChanged:
    """Names of the tools of which anything changed, and of those whose new version waits for approval."""

    changed: Sequence[str] = ()
    waiting: Sequence[str] = ()


@configuration_write("names")
def change_tools(names: Collection[str], change: ToolsChange, *, actor: Membership) -> ToolsChanged:
    """Set the same for all of these tools, with one audit row for each thing that is set. All or none.

    Needs the right `catalogue` for each tool's category and the new one, and `policies` for what asks a person. Another
    effect is a new version: it is in force at once where the actor may approve it, else it waits. Raises ChangeRefused,
    with the tool's name in its message. A fixed number of queries.
    """
    if len(names) > MAX_BULK:
        raise ChangeRefused("names", f"Name at most {MAX_BULK:,} tools at a time.")
    if change.is_nothing:
        raise ChangeRefused("names", "Choose what to set: effect, category, or when a person is asked.")
    tools = _tools_named(names)
    require(actor, Right.CATALOGUE, {tool.category.name for tool in tools})
    changed: set[str] = set()
    waiting: list[str] = []
    if change.effect:
        done = _set_effect(tools, change.effect, actor)
        changed |= done.keys()
        waiting = [name for name, status in done.items() if status == VersionStatus.PENDING]
    if change.category:
        changed |= _move(tools, change.category, actor)
    if change.knobs:
        set_knobs_of([tool.name for tool in tools], change.knobs, actor=actor)
        changed |= {tool.name for tool in tools}
    if change.is_enabled is not None:
        before = {tool.name for tool in tools if tool.is_enabled != change.is_enabled}
        set_tools_enabled([*before], change.is_enabled, actor=actor, message=change.off_message)
        changed |= before
    return ToolsChanged(sorted(changed), waiting)


def _tools_named(names: Collection[str]) -> list[Tool]:
    """Return the tools by name. Raises ChangeRefused for one that is not there. One query."""
    rows = Tool.objects.select_related("category", "current_version").filter(name__in=names).order_by("name")
    tools = list(rows)
    found = {tool.name for tool in tools}
    for name in names:
        if name not in found:
            raise not_there("names", "tool", name)
    return tools


def _set_effect(tools: Sequence[Tool], effect: str, actor: Membership) -> dict[str, VersionStatus]:
    """Set the effect; return the status of each new version, by the tool's name."""
    if effect not in EFFECTS:
        raise ChangeRefused("effect", f"It is one of {', '.join(EFFECTS)}.")
    pairs: dict[VersionStatus, list[tuple[Tool, Definition]]] = {}
    effects_before: dict[str, str] = {}
    for tool in tools:
        if tool.kind == ToolKind.BUILTIN:
            raise ChangeRefused("effect", f"{tool} is built in: what it does is known. Leave it out.")
        if tool.current_version is None:
            raise ChangeRefused("effect", f"{tool} has no version in force: decide on the one that waits.")
        before = definition_of(tool, tool.current_version)
        if before.effect != effect:
            status = status_of_new(tool.kind, actor, author=None, changes_code=True, category=tool.category.name)
            pairs.setdefault(status, []).append((tool, with_effect(before, effect)))
            effects_before[tool.name] = str(before.effect)
    statuses: dict[str, VersionStatus] = {}
    for status, of_status in pairs.items():
        write_versions(of_status, actor=actor, status=status)
        statuses |= {tool.name: status for tool, _ in of_status}
    if statuses:
        waits = [name for name, status in statuses.items() if status == VersionStatus.PENDING]
        after = {"tools": list(effects_before), "effect": effect} | ({"waiting": waits} if waits else {})
        record(
            "tool.update", _several(effects_before, actor), actor=actor, before={"effects": effects_before}, after=after
        )
        touch_registry(actor.organisation_id)
    return statuses


def with_effect(content: Definition, effect: str) -> Definition:
    """The definition with another effect. What follows from the effect, and nobody set otherwise, follows this one."""
    changes: dict[str, Any] = {"effect": effect}
    if content.in_untrusted == _usual_in_untrusted(content.effect):
        changes["in_untrusted"] = _usual_in_untrusted(effect)
    if content.on_crash in ("retry", "never") and content.on_crash == _usual_on_crash(content.effect):
        changes["on_crash"] = _usual_on_crash(effect)
    return replace(content, **changes)


def _usual_in_untrusted(effect: str) -> str:
    return ALLOW if effect == READ else ASK


def _usual_on_crash(effect: str) -> str:
    return "retry" if effect == READ else "never"


def _move(tools: Sequence[Tool], name: str, actor: Membership) -> set[str]:
    """Move the tools; return the names of those that were in other categories."""
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise not_there("category", "category", name)
    require(actor, Right.CATALOGUE, [category.name])
    before = {tool.name: tool.category.name for tool in tools if tool.category_id != category.pk}
    if before:
        Tool.objects.filter(name__in=before).update(category=category)
        after = {"tools": list(before), "category": category.name}
        record("tool.move", _several(before, actor), actor=actor, before={"categories": before}, after=after)
        touch_registry(actor.organisation_id)
    return set(before)


def _several(names: Collection[str], actor: Membership) -> Tool:
    """Return a target for the audit whose label names the tools: no one row is it."""
    return Tool(organisation_id=actor.organisation_id, name=", ".join(names))
