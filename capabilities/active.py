"""A tool as the loop works with it, and what a member may use: the reads behind every selection and every call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import IntegerField, Q, QuerySet, Value
from django.db.models.functions import Cast, Now

from capabilities.contract.loading import LOAD_CATEGORY, META_TOOLS
from capabilities.contract.permission import Decision, Permission, Rights, RoleRules
from capabilities.contract.wire import canonical_json
from capabilities.models import Effect, Grant, RoleMembership, Tool, ToolKind
from capabilities.services import is_ready
from toolhub.tenants.models import EVERYWHERE, NOWHERE, Access, AdminRight, Membership, Reach, Right

#: What a toolkit says of a tool in place of its own version: seconds, and characters of a result; None: its own.
Overrides = tuple[float | None, int | None]
NO_OVERRIDES: Overrides = (None, None)


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
    #: What the model is told beside, while the tool is at hand (MR-41).
    instructions: str = ""
    #: What of `timeout` and `max_result_chars` is a toolkit's word, not the version's.
    overrides: Overrides = NO_OVERRIDES

    def overridden(self, overrides: Overrides) -> ToolSpec:
        """The same tool, as a toolkit wants it."""
        if overrides == NO_OVERRIDES:
            return self
        timeout, chars = overrides
        return replace(
            self,
            timeout=self.timeout if timeout is None else timeout,
            max_result_chars=self.max_result_chars if chars is None else chars,
            overrides=overrides,
        )

    @property
    def is_meta(self) -> bool:
        """Whether it is one of the tools that load others."""
        return self.name in META_TOOLS and self.kind == ToolKind.BUILTIN

    @cached_property
    def parameters_text(self) -> str:
        """The JSON Schema of the arguments, as canonical text."""
        return canonical_json(json.loads(self.wire)["function"]["parameters"])

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI form."""
        definition: dict[str, Any] = json.loads(self.wire)
        return definition


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
    "current_version__instructions",
)


def current_specs(version_ids: Sequence[int]) -> list[ToolSpec]:
    """The tools that have one of these versions as their current one, as they are now. One query."""
    return specs(Tool.objects.filter(current_version__in=version_ids))


def specs(tools: QuerySet[Tool]) -> list[ToolSpec]:
    """These tools as they are now. One query."""
    rows = tools.filter(current_version__isnull=False).annotate(is_ready=is_ready())
    return [ToolSpec(*row) for row in rows.values_list(*SPEC)]


# -- What a member may use --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Who asks: what the member may use, and the categories that the member may load."""

    rights: Rights
    loads: Reach

    def decide(self, spec: ToolSpec) -> Permission:
        """Whether the member may use the tool. A meta-tool needs no role that names it, but some right to use tools."""
        if not spec.is_meta or self.rights.opens_nothing:
            return self.rights.decide(spec.tool_id, spec.category_id)
        if self.rights.denies(spec.tool_id, spec.category_id):
            return self.rights.decide(spec.tool_id, spec.category_id)
        if spec.name == LOAD_CATEGORY and not self.loads:
            return Permission(False, "role", "it needs the admin right load_categories")
        return Permission(True, "role", "it gives nothing that the member may not use")


def standing_of(membership: Membership | int) -> Standing:
    """What this member's roles, unexpired grants and admin rights say, now. One query.

    Nothing for one who was removed or may not sign in.
    """
    member = membership.pk if isinstance(membership, Membership) else membership
    active = Q(membership__user__is_active=True, membership__ended_at=None)
    # From the rules' side of the join, so that a role without rules is still there.
    roles = RoleMembership.objects.filter(active, membership=member).values_list(
        Value("role"),
        "role__slug",
        "role__mode",
        "role__rules__category_id",
        "role__rules__tool_id",
        "role__rules__effect",
    )
    unexpired = Q(expires_at=None) | Q(expires_at__gt=Now())
    grants = Grant.objects.filter(active, unexpired, membership=member).values_list(
        Value("grant"), Value(""), Value(""), "category_id", "tool_id", "effect"
    )
    nothing = Cast(Value(None), IntegerField())  # with its type: PostgreSQL guesses the one of a bare NULL as text
    delegated = AdminRight.objects.filter(active, membership=member, right=Right.LOAD_CATEGORIES).values_list(
        Value("right"), "category", Value(""), nothing, nothing, Value("")
    )
    access = Membership.objects.filter(pk=member, user__is_active=True, ended_at=None).values_list(
        Value("access"), "access", Value(""), nothing, nothing, Value("")
    )
    return _standing(roles.union(grants, delegated, access, all=True))


def rights_of(membership: Membership | int) -> Rights:
    """What this member may use, now. One query."""
    return standing_of(membership).rights


def may_use(membership: Membership | int, spec: ToolSpec) -> Permission:
    """Whether the member may use the tool now. Asked again for every call. One query."""
    return standing_of(membership).decide(spec)


def _standing(rows: Iterable[Any]) -> Standing:
    roles: dict[str, tuple[str, dict[int, Decision], dict[int, Decision]]] = {}
    categories: dict[int, Decision] = {}
    tools: dict[int, Decision] = {}
    loads = NOWHERE
    for kind, name, mode, category_id, tool_id, effect in rows:
        if kind == "role":
            _, of_categories, of_tools = roles.setdefault(name, (mode, {}, {}))
            _note(of_categories, category_id, effect)
            _note(of_tools, tool_id, effect)
        elif kind == "grant":
            _note(categories, category_id, effect)
            _note(tools, tool_id, effect)
        elif kind == "right":
            loads = Reach(loads.categories | {name})
        elif name in (Access.ADMIN, Access.OPERATOR):
            loads = EVERYWHERE
    rules = (RoleRules(slug, mode, in_, of) for slug, (mode, in_, of) in sorted(roles.items()))
    return Standing(Rights(tuple(rules), categories, tools), loads)


def _note(said: dict[int, Decision], key: int | None, effect: str) -> None:
    """Where the same thing is named twice, the deny is kept; anything but an allow counts as one."""
    if key is not None and said.get(key) != "deny":
        said[key] = "allow" if effect == Effect.ALLOW else "deny"
