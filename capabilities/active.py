"""Which tools an agent has at hand, and what its member may use: the reads behind every selection and every call.

Three queries, whatever the size of the catalogue: the candidates, the roles with their rules, the grants.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import F, OuterRef, Q, Subquery
from django.db.models.functions import Now

from capabilities.contract.permission import Decision, Permission, Rights, RoleRules
from capabilities.contract.wire import canonical_json
from capabilities.models import Agent, AgentTool, Effect, Grant, RoleMembership, Tool
from capabilities.services import is_ready
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
    #: Name of the service that it needs, or empty; whether it can work, as far as that is set up.
    service: str = ""
    is_ready: bool = True

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


#: The columns of a ToolSpec, in its order.
SPEC = (
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
    "service",
    "is_ready",
)


def candidates_for(agent: Agent) -> list[Candidate]:
    """The agent's own tools and, where it starts with them, those of the core categories. One query.

    Its own come first in their order, then the others by category and name: an order that does not change when a tool
    is switched or re-worded.
    """
    place = Subquery(AgentTool.objects.filter(agent=agent, tool=OuterRef("pk")).values("position")[:1])
    tools = Tool.objects.filter(current_version__isnull=False).annotate(place=place, is_ready=is_ready())
    own = Q(place__isnull=False)
    tools = tools.filter(own | Q(category__is_core=True) if agent.starts_with_core else own)
    rows = tools.order_by(F("place").asc(nulls_last=True), "category__name", "name").values_list(*SPEC, "place")
    return [_candidate(ToolSpec(*row[:-1]), is_own=row[-1] is not None) for row in rows]


def current_specs(version_ids: Sequence[int]) -> list[ToolSpec]:
    """The tools that have one of these versions as their current one, as they are now. One query."""
    ready = Tool.objects.filter(current_version__in=version_ids).annotate(is_ready=is_ready())
    return [ToolSpec(*row) for row in ready.values_list(*SPEC)]


def _candidate(spec: ToolSpec, *, is_own: bool) -> Candidate:
    return Candidate(spec, "agent" if is_own else f"core category {spec.category}")


def rights_of(membership: Membership | int) -> Rights:
    """What this member's roles and unexpired grants say, now; nothing for a user who may not sign in. Two queries."""
    return Rights(_roles_of(membership), *_grants_of(membership))


def may_use(membership: Membership | int, spec: ToolSpec) -> Permission:
    """Whether the member may use the tool now. Asked again for every call. Two queries."""
    return rights_of(membership).decide(spec.tool_id, spec.category_id)


def _roles_of(membership: Membership | int) -> tuple[RoleRules, ...]:
    # From the rules' side of the join, so that a role without rules is still there.
    rows = (
        RoleMembership.objects.filter(membership=membership)
        .filter(membership__user__is_active=True, membership__ended_at=None)
        .order_by("role__slug")
        .values_list(
            "role__slug", "role__mode", "role__rules__category_id", "role__rules__tool_id", "role__rules__effect"
        )
    )
    roles: dict[str, tuple[str, dict[int, Decision], dict[int, Decision]]] = {}
    for slug, mode, category_id, tool_id, effect in rows:
        _, categories, tools = roles.setdefault(slug, (mode, {}, {}))
        if category_id is not None:
            categories[category_id] = _decision(effect)
        if tool_id is not None:
            tools[tool_id] = _decision(effect)
    return tuple(RoleRules(slug, mode, categories, tools) for slug, (mode, categories, tools) in roles.items())


def _grants_of(membership: Membership | int) -> tuple[dict[int, Decision], dict[int, Decision]]:
    rows = (
        Grant.objects.filter(membership=membership, membership__user__is_active=True, membership__ended_at=None)
        .filter(Q(expires_at=None) | Q(expires_at__gt=Now()))
        .values_list("category_id", "tool_id", "effect")
    )
    categories: dict[int, Decision] = {}
    tools: dict[int, Decision] = {}
    for category_id, tool_id, effect in rows:
        named, key = (categories, category_id) if category_id is not None else (tools, tool_id)
        if named.get(key) != "deny":
            named[key] = _decision(effect)
    return categories, tools


def _decision(effect: str) -> Decision:
    """An effect as stored; anything but an allow counts as a deny."""
    return "allow" if effect == Effect.ALLOW else "deny"
