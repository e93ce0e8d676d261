"""Permissions: tools that a member may use, members who may use a tool. Every selection, call and page asks here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db import connection
from django.db.models import Case, CharField, Exists, IntegerField, OuterRef, Prefetch, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Now

from capabilities.common.memory import Memory
from capabilities.contract.loading import LOAD_CATEGORY
from capabilities.contract.permission import OPENING, Decision, Permission, Permittable, Rights, RoleRules, ToolKey
from capabilities.contract.spec import is_meta_tool
from capabilities.models import Effect, Grant, Policy, Role, RoleMembership, RoleRule, Tool
from toolhub.tenants.models import EVERYWHERE, NOWHERE, Access, AdminRight, Membership, Reach, Right
from toolhub.tenants.rows.statements import Select, param


@dataclass(frozen=True)
class MemberPermissions:
    """Permissions of a member: the rights to use tools, and the categories that the member may load."""

    rights: Rights
    loads: Reach
    #: Whether the organisation has a policy: without one, none is read.
    has_policies: bool = False

    @cached_property
    def _decided(self) -> dict[tuple[int, int, bool], Permission]:
        return {}

    def decide(self, tool: Permittable) -> Permission:
        """Decide whether the member may use the tool. Every page, every selection and every call asks here.

        A tool is decided once: Explain asks a hundred times, with one thing changed each time.
        """
        key = (tool.tool_id, tool.category_id, tool.is_meta)
        known = self._decided.get(key)
        if known is None:
            known = self._decided[key] = self._decide(tool)
        return known

    def _decide(self, tool: Permittable) -> Permission:
        answer = self.rights.decide(tool.tool_id, tool.category_id, is_meta=tool.is_meta)
        if answer.allowed and tool.is_meta and tool.name == LOAD_CATEGORY and not self.loads:
            return Permission(False, "role", "it needs the admin right load_categories")
        return answer


def permissions_of(membership: Membership | int) -> MemberPermissions:
    """Return the permissions by this member's roles, unexpired grants and admin rights, now. One query.

    Nothing for one who was removed or may not sign in.
    """
    return _permissions(row[:-1] for row in _RIGHTS.rows(member=_key(membership)))


_rules: Memory[tuple[RoleRules, ...]] = Memory(256)


def permissions_at_version(membership: Membership | int) -> tuple[MemberPermissions, int | None]:
    """Return the member's permissions and the organisation's registry version, for frequent use: turns, calls, pages.

    The member's roles, grants and rights are read each time, in one query and with them the version; the rules of these
    roles, which may be thousands, once at each version. In a transaction all of it is read, and the version is None:
    what the transaction wrote may be undone, and its version become another change's.
    """
    if connection.in_atomic_block:
        return permissions_of(membership), None
    rows = [row[:-1] for row in _OWN_RIGHTS.rows(member=_key(membership))]
    own = _permissions(row for row in rows if row[0] != "role")
    roles = sorted(row[3] for row in rows if row[0] == "role")
    version, organisation = next(((row[3], row[4]) for row in rows if row[0] == "access"), (None, None))
    if version is None or not roles:
        return own, version
    rules = _rules.get((organisation, version, *roles), lambda: permissions_with_roles(roles).rights.roles)
    return replace(own, rights=replace(own.rights, roles=rules)), version


def _key(membership: Membership | int) -> int:
    return membership.pk if isinstance(membership, Membership) else membership


def permissions_of_each(members: Collection[int]) -> dict[int, MemberPermissions]:
    """Return the permissions of several members, by key. One query."""
    if len(members) == 1:
        return {member: permissions_of(member) for member in members}
    rows: dict[int, list[Any]] = {member: [] for member in members}
    for *row, member in _rights(_with_rules("__in", members), "__in", members):
        rows[member].append(row)
    return {member: _permissions(of_member) for member, of_member in rows.items()}


#: Says in a member's row that the organisation has a policy.
POLICIES = "policies"
#: In a union with its type: PostgreSQL guesses the one of a bare NULL as text.
_NOTHING = Cast(Value(None), IntegerField())


def _rights(roles: QuerySet[Any, Any], lookup: str, members: Any) -> QuerySet[Any, Any]:
    """These rows of roles, and one for each grant and right of these members, who are found by this lookup of their
    keys; and one with their access, whether there is a policy, the registry version and the organisation."""
    theirs = _of_members(lookup, members)
    unexpired = Q(expires_at=None) | Q(expires_at__gt=Now())
    grants = Grant.objects.filter(theirs, unexpired).values_list(
        Value("grant"), Value(""), Value(""), "category_id", "tool_id", "effect", "membership_id"
    )
    delegated = AdminRight.objects.filter(theirs, right=Right.LOAD_CATEGORIES).values_list(
        Value("right"), "category", Value(""), _NOTHING, _NOTHING, Value(""), "membership_id"
    )
    access = Membership.objects.filter(**{f"pk{lookup}": members}, user__is_active=True, ended_at=None).values_list(
        Value("access"),
        "access",
        Case(When(Exists(Policy.objects.all()), then=Value(POLICIES)), default=Value(""), output_field=CharField()),
        "organisation__registry_version",
        "organisation_id",
        Value(""),
        "pk",
    )
    return roles.union(grants, delegated, access, all=True)


def _of_members(lookup: str, members: Any) -> Q:
    return Q(**{f"membership{lookup}": members}, membership__user__is_active=True, membership__ended_at=None)


def _with_rules(lookup: str, members: Any) -> QuerySet[Any, Any]:
    """A row for each rule of their roles, and one for a role without rules."""
    return RoleMembership.objects.filter(_of_members(lookup, members)).values_list(
        Value("role"),
        "role__slug",
        "role__mode",
        "role__rules__category_id",
        "role__rules__tool_id",
        "role__rules__effect",
        "membership_id",
    )


def _without_rules(lookup: str, members: Any) -> QuerySet[Any, Any]:
    """A row for each of their roles, by key."""
    return RoleMembership.objects.filter(_of_members(lookup, members)).values_list(
        Value("role"), Value(""), Value(""), "role_id", _NOTHING, Value(""), "membership_id"
    )


def _one() -> tuple[str, Any]:
    return "", param(Membership, "id", "member")


_RIGHTS = Select(lambda: _rights(_with_rules(*_one()), *_one()))
_OWN_RIGHTS = Select(lambda: _rights(_without_rules(*_one()), *_one()))


def permissions_with_roles(roles: Iterable[int]) -> MemberPermissions:
    """Return the permissions of somebody with these roles, by key, and nothing else. One query."""
    columns = ("slug", "mode", "rules__category_id", "rules__tool_id", "rules__effect")
    rows = Role.objects.filter(pk__in=list(roles)).values_list(*columns)
    return _permissions(("role", *row) for row in rows)


def may_use(membership: Membership | int, tool: Permittable) -> Permission:
    """Return whether the member may use the tool now. Asked again for every call. One query, or two, as
    `permissions_at_version` says."""
    return permissions_at_version(membership)[0].decide(tool)


def may_use_nothing(membership: Membership | int) -> bool:
    """Return whether no role and no grant allows the member anything now. One query."""
    return permissions_of(membership).rights.allows_nothing


def permission_for(membership: Membership | int, tool: Tool) -> Permission:
    """Return the member's permission for the tool of this row, now. One query."""
    return permissions_of(membership).decide(key_of(tool))


def key_of(tool: Tool) -> ToolKey:
    return tool_key(tool.pk, tool.category_id, tool.name, tool.kind)


def tool_key(tool_id: int, category_id: int, name: str, kind: str) -> ToolKey:
    """Build a ToolKey from a tool's columns."""
    return ToolKey(tool_id, category_id, name, is_meta_tool(name, kind))


def with_grants(
    permissions: MemberPermissions, grants: Iterable[tuple[int | None, int | None, str]]
) -> MemberPermissions:
    """Return these permissions with these grants and no others: each a category or a tool, by key, and an effect."""
    categories: dict[int, Decision] = {}
    tools: dict[int, Decision] = {}
    for category_id, tool_id, effect in grants:
        _note(categories, category_id, effect)
        _note(tools, tool_id, effect)
    return replace(permissions, rights=replace(permissions.rights, category_grants=categories, tool_grants=tools))


# -- Which members may use a tool -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PermittedMembers:
    """The members who may use one tool, as `MemberPermissions.decide` would decide on each."""

    members: QuerySet[Membership]
    #: Names of the roles that open the tool, by key.
    opening: Mapping[int, str]

    def reason(self, member: Membership) -> str:
        """Return the reason why one of `members` may use it, whose `role_memberships` are fetched, those of `opening`
        alone."""
        if member.is_granted:  # type: ignore[attr-defined]
            return "a grant of their own"
        role = next((self.opening[each.role_id] for each in member.role_memberships.all()), None)
        return "it gives nothing that the member may not use" if role is None else f"role {role}"


def members_permitted(tool: Tool) -> PermittedMembers:
    """Return the members who may use the tool now, of those who may sign in. Two queries, and the members' own."""
    key = key_of(tool)
    rules = _rules_of_roles(tool)
    opening = {role.pk: role.name for role, permissions in rules if permissions.opens(key.tool_id, key.category_id)}
    now = Q(expires_at=None) | Q(expires_at__gt=Now())
    own = Grant.objects.filter(now, membership=OuterRef("pk"))
    grants = own.filter(Q(tool=tool) | Q(category=tool.category_id))
    members = Membership.objects.filter(ended_at=None, user__is_active=True).annotate(
        is_granted=Exists(grants.filter(effect=Effect.ALLOW))
    )
    opened = Q(is_granted=True) | Q(_has_role(opening))
    if key.is_meta:
        denying = [role.pk for role, permissions in rules if permissions.denies(key.tool_id, key.category_id)]
        some = [role.pk for role, permissions in rules if permissions.mode in OPENING]
        same = Q(tool=OuterRef("tool")) | Q(category=OuterRef("category"))
        denies = Grant.objects.filter(now, same, membership=OuterRef("membership")).exclude(effect=Effect.ALLOW)
        allows = own.filter(~Q(Exists(denies)), effect=Effect.ALLOW)
        opened |= (Q(_has_role(some)) | Q(Exists(allows))) & ~Q(_has_role(denying))
        if key.name == LOAD_CATEGORY:
            delegated = AdminRight.objects.filter(membership=OuterRef("pk"), right=Right.LOAD_CATEGORIES)
            opened &= Q(access__in=[Access.ADMIN, Access.OPERATOR]) | Q(Exists(delegated))
    return PermittedMembers(members.filter(opened, ~Q(Exists(grants.exclude(effect=Effect.ALLOW)))), opening)


def _has_role(roles: Iterable[int]) -> Exists:
    return Exists(RoleMembership.objects.filter(membership=OuterRef("pk"), role__in=list(roles)))


def _rules_of_roles(tool: Tool) -> list[tuple[Role, RoleRules]]:
    """Every role, with its rules on this tool and its category. Two queries."""
    rules = RoleRule.objects.filter(Q(tool=tool) | Q(category=tool.category_id))
    found = []
    for role in Role.objects.prefetch_related(Prefetch("rules", rules)):
        categories: dict[int, Decision] = {}
        tools: dict[int, Decision] = {}
        for rule in role.rules.all():
            _note(categories, rule.category_id, rule.effect)
            _note(tools, rule.tool_id, rule.effect)
        found.append((role, RoleRules(role.slug, role.mode, categories, tools)))
    return found


def _permissions(rows: Iterable[Any]) -> MemberPermissions:
    """Build a member's usage rules from rows of their roles, grants and rights."""
    roles: dict[str, tuple[str, dict[int, Decision], dict[int, Decision]]] = {}
    categories: dict[int, Decision] = {}
    tools: dict[int, Decision] = {}
    loads, has_policies = NOWHERE, False
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
        else:
            has_policies = mode == POLICIES
            if name in (Access.ADMIN, Access.OPERATOR):
                loads = EVERYWHERE
    rules = (RoleRules(slug, mode, in_, tools_of_role) for slug, (mode, in_, tools_of_role) in sorted(roles.items()))
    return MemberPermissions(Rights(tuple(rules), categories, tools), loads, has_policies)


def _note(effects: dict[int, Decision], key: int | None, effect: str) -> None:
    """Note an effect under its key. Of two for one key the deny is kept; anything but an allow counts as one."""
    if key is not None and effects.get(key) != "deny":
        effects[key] = "allow" if effect == Effect.ALLOW else "deny"
