"""Which tools an agent has at hand, and what its member may use: the reads behind every selection and every call.

Three queries, whatever the size of the catalogue: the candidates, the roles with their rules, the grants.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Now

from capabilities.contract.permission import Decision, Permission, Rights, RoleRules
from capabilities.contract.wire import canonical_json
from capabilities.models import Agent, AgentTool, Grant, RoleMembership, Tool
from toolhub.tenants.models import Membership


@dataclass(frozen=True)
class ToolSpec:
    """One tool as the loop works with it: frozen at its current version."""

    tool_id: int
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
    on_crash: str
    timeout: float
    max_result_chars: int

    @cached_property
    def parameters_text(self) -> str:
        """The JSON Schema of the arguments, as canonical text."""
        return canonical_json(json.loads(self.wire)["function"]["parameters"])

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI form."""
        definition: dict[str, Any] = json.loads(self.wire)
        return definition


@dataclass(frozen=True)
class Candidate:
    """A tool that something brought in, and what."""

    spec: ToolSpec
    source: str


def candidates_for(agent: Agent) -> list[Candidate]:
    """The agent's own tools and, where it starts with them, those of the core categories. One query.

    The agent's own come first, in the order they were given, then the core ones by category and name: an order that
    does not change when a tool is switched or re-worded.
    """
    own = AgentTool.objects.filter(agent=agent, tool=OuterRef("pk"))
    wanted = Q(is_own=True)
    if agent.starts_with_core:
        wanted |= Q(category__is_core=True)
    tools = (
        Tool.objects.annotate(is_own=Exists(own))
        .filter(wanted, current_version__isnull=False)
        .annotate(first=Case(When(is_own=True, then=Value(0)), default=Value(1), output_field=IntegerField()))
        .order_by("first", "category__name", "name")
    )
    return [Candidate(spec, "agent" if is_own else f"core category {spec.category}") for spec, is_own in _specs(tools)]


def current_specs(version_ids: Sequence[int]) -> list[ToolSpec]:
    """The tools that have one of these versions as their current one, as they are now. One query."""
    found = _specs(Tool.objects.annotate(is_own=Value(False)).filter(current_version__in=version_ids))
    return [spec for spec, _ in found]


def _specs(tools: QuerySet[Tool]) -> list[tuple[ToolSpec, bool]]:
    rows = tools.values_list(
        "pk",
        "current_version_id",
        "name",
        "kind",
        "category__name",
        "category_id",
        "is_enabled",
        "current_version__wire",
        "current_version__sha256",
        "current_version__tokens",
        "current_version__effect",
        "current_version__on_crash",
        "current_version__timeout",
        "current_version__max_result_chars",
        "is_own",
    )
    return [(ToolSpec(*row[:-1]), row[-1]) for row in rows]


def rights_of(membership: Membership | int) -> Rights:
    """What this member's roles and unexpired grants say, now. Two queries."""
    return Rights(_roles_of(membership), *_grants_of(membership))


def may_use(membership: Membership | int, spec: ToolSpec) -> Permission:
    """Whether the member may use the tool now. Asked again for every call. Two queries."""
    return rights_of(membership).decide(spec.tool_id, spec.category_id)


def _roles_of(membership: Membership | int) -> tuple[RoleRules, ...]:
    # From the rules' side of the join, so that a role without rules is still there.
    rows = (
        RoleMembership.objects.filter(membership=membership)
        .order_by("role__slug")
        .values_list(
            "role__slug", "role__mode", "role__rules__category_id", "role__rules__tool_id", "role__rules__effect"
        )
    )
    roles: dict[str, tuple[str, dict[int, Decision], dict[int, Decision]]] = {}
    for slug, mode, category_id, tool_id, effect in rows:
        _, categories, tools = roles.setdefault(slug, (mode, {}, {}))
        if category_id is not None:
            categories[category_id] = effect
        if tool_id is not None:
            tools[tool_id] = effect
    return tuple(RoleRules(slug, mode, categories, tools) for slug, (mode, categories, tools) in roles.items())


def _grants_of(membership: Membership | int) -> tuple[dict[int, Decision], dict[int, Decision]]:
    rows = (
        Grant.objects.filter(membership=membership)
        .filter(Q(expires_at=None) | Q(expires_at__gt=Now()))
        .values_list("category_id", "tool_id", "effect")
    )
    categories: dict[int, Decision] = {}
    tools: dict[int, Decision] = {}
    for category_id, tool_id, effect in rows:
        named, key = (categories, category_id) if category_id is not None else (tools, tool_id)
        if named.get(key) != "deny":
            named[key] = effect
    return categories, tools
