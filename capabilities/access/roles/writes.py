"""The audited writes of roles: what one opens, and who has it. Each is one transaction and a new registry version.

What was previewed is saved with the stamp of the roles that it was previewed for: a change in between refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet

from capabilities.common.names import check_name_imitates
from capabilities.common.refused import ChangeRefused, check_no_rule, check_slug, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.common.short_names import MATRIX, free_short_name
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import ApprovalRule, Category, Effect, Role, RoleMembership, RoleMode, RoleRule, Tool
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Lines of one role.
MAX_RULES = 5_000


@dataclass(frozen=True, order=True)
class Rule:
    """One line of a `listed` role: it names a category or a tool."""

    effect: str
    category: str = ""
    tool: str = ""


@dataclass(frozen=True)
class RoleContent:
    """Fields of a role, as its form sends them. `rules` is None to leave the stored ones."""

    slug: str
    name: str
    description: str = ""
    mode: str = RoleMode.NONE
    rules: tuple[Rule, ...] | None = None


class RolesChanged(Exception):
    """A role is not any more what the change was made for."""


@configuration_write("rules")
def create_role(content: RoleContent, *, actor: Membership, given: Collection[Membership] = ()) -> Role:
    """Add a role, and give it to these members.

    Raises ChangeRefused for a short name in use, and for rules that name what is not there.
    """
    require(actor, Right.ROLES)
    role = Role(organisation_id=actor.organisation_id)
    _write(role, content)
    rules = _write_rules(role, content.rules or ())
    record("role.create", role, actor=actor, after=_audited(role) | {"rules": _lines(rules)})
    touch_registry(role.organisation_id)
    if given:
        assign_role(role, given, actor=actor)
    return role


@configuration_write("rules")
def update_role(
    role: Role,
    content: RoleContent,
    *,
    actor: Membership,
    stamp: str | None = None,
    given: Collection[Membership] = (),
    taken: Collection[Membership] = (),
) -> Role:
    """Change what the role says of itself, its rules where the content has them, and who has it.

    Raises RolesChanged where the role is not as `stamp` says.
    """
    require(actor, Right.ROLES)
    hold_roles([role], stamp)
    before = _audited(role)
    _write(role, content)
    after = _audited(role)
    if content.rules is not None:
        before["rules"] = rules_as_text(role)
        after["rules"] = _lines(_write_rules(role, content.rules))
    if before != after:
        record("role.update", role, actor=actor, before=before, after=after)
        touch_registry(role.organisation_id)
    if given:
        assign_role(role, given, actor=actor)
    if taken:
        unassign_role(role, taken, actor=actor)
    return role


@configuration_write("rules")
def set_role_rules(role: Role, rules: Iterable[Rule], *, actor: Membership | None, stamp: str | None = None) -> None:
    """Give the role these rules and no others. A right limited to a category is enough, if only its lines differ.

    Raises RolesChanged where the role is not as `stamp` says.
    """
    hold_roles([role], stamp)
    before = rules_of(role)
    after = _write_rules(role, tuple(rules))
    if before == after:
        return
    require(actor, Right.ROLES, _categories_of(set(before) ^ set(after)))
    record("role.update", role, actor=actor, before={"rules": _lines(before)}, after={"rules": _lines(after)})
    touch_registry(role.organisation_id)


@configuration_write("rules")
def set_rules_of_roles(rules: Mapping[Role, Iterable[Rule]], *, actor: Membership, stamp: str | None = None) -> None:
    """Give each of these roles its rules: all or none. Raises RolesChanged where they are not as `stamp` says."""
    hold_roles(rules, stamp)
    for role, lines in rules.items():
        set_role_rules(role, lines, actor=actor)


@configuration_write("rules")
def set_role_rule(role: Role, rule: Rule, *, was: str, actor: Membership) -> None:
    """Set the effect of one category or tool in the role, "" for none, where it is `was` ("" for none) until now.

    A right limited to its category is enough. The audit has this rule alone, however many the role has. Raises
    RolesChanged where it is something else by now; ChangeRefused for one rule too many, and for a name that is not
    there.
    """
    require(actor, Right.ROLES, _categories_of([rule]))
    hold_roles([role], None)
    name = {"tool__name": rule.tool} if rule.tool else {"category__name": rule.category}
    line = RoleRule.objects.filter(role=role, **name).first()
    if (line.effect if line else "") != was:
        raise RolesChanged("This rule has been changed in the meantime.")
    if rule.effect == was:
        return
    if line:
        line.delete()
    elif RoleRule.objects.filter(role=role).count() >= MAX_RULES:
        raise ChangeRefused("rules", f"A role has at most {MAX_RULES:,} rules.")
    if rule.effect:
        [((category_id, tool_id), effect)] = _resolved([rule]).items()
        RoleRule.objects.create(
            organisation_id=role.organisation_id, role=role, category_id=category_id, tool_id=tool_id, effect=effect
        )
    before, after = (_lines([replace(rule, effect=effect)] if effect else []) for effect in (was, rule.effect))
    record("role.update", role, actor=actor, before={"rules": before}, after={"rules": after})
    touch_registry(role.organisation_id)


@configuration_write()
def delete_role(role: Role, *, actor: Membership) -> int:
    """Members who have it lose what only it opened; returns how many they are. Raises PermissionDenied without the
    right `roles`; ChangeForbidden where a member of higher access has it; ChangeRefused where an approval rule names
    it."""
    require(actor, Right.ROLES)
    check_rank(actor, Membership.objects.filter(role_memberships__role=role))
    check_no_rule("role", ApprovalRule.objects.filter(role=role))
    members = RoleMembership.objects.filter(role=role).count()
    before = _audited(role) | {"rules": rules_as_text(role), "members": members}
    record("role.delete", role, actor=actor, before=before)
    role.delete()
    touch_registry(actor.organisation_id)
    return members


@configuration_write("members")
def assign_role(role: Role, members: Iterable[Membership], *, actor: Membership) -> int:
    """Give the role to members who do not have it yet; returns how many they are. One audit row each. Raises
    PermissionDenied without the right `roles`; ChangeForbidden for a member of higher access."""
    require(actor, Right.ROLES)
    holders = set(RoleMembership.objects.filter(role=role).values_list("membership_id", flat=True))
    wanted = [member for member in members if member.pk not in holders]
    check_rank(actor, _members(wanted), "members")
    RoleMembership.objects.bulk_create(
        RoleMembership(organisation_id=role.organisation_id, role=role, membership=member) for member in wanted
    )
    for member in wanted:
        record("role.assign", member, actor=actor, after={"role": role.slug})
    if wanted:
        touch_registry(role.organisation_id)
    return len(wanted)


@configuration_write("members")
def unassign_role(role: Role, members: Iterable[Membership], *, actor: Membership) -> int:
    """Take the role from members who have it; returns how many they are. One audit row each. Raises PermissionDenied
    without the right `roles`; ChangeForbidden for a member of higher access."""
    require(actor, Right.ROLES)
    lines = RoleMembership.objects.filter(role=role, membership__in=[member.pk for member in members])
    losing = list(lines.select_related("membership__user"))
    check_rank(actor, _members(line.membership for line in losing), "members")
    RoleMembership.objects.filter(pk__in=[line.pk for line in losing]).delete()
    for line in losing:
        record("role.unassign", line.membership, actor=actor, before={"role": role.slug})
    if losing:
        touch_registry(role.organisation_id)
    return len(losing)


@configuration_write("roles")
def set_roles_of(member: Membership, slugs: Collection[str], *, actor: Membership) -> list[str]:
    """Give the member these roles and no others; returns their short names, sorted. Raises PermissionDenied without the
    right `roles`; ChangeForbidden for a member of higher access; ChangeRefused for an unknown role."""
    require(actor, Right.ROLES)
    check_rank(actor, _members([member]), "roles")
    roles = roles_named(slugs)
    current = Role.objects.filter(role_memberships__membership=member)
    for role in current.exclude(slug__in=slugs):
        unassign_role(role, [member], actor=actor)
    for role in roles.values():
        assign_role(role, [member], actor=actor)
    return sorted(roles)


def roles_named(slugs: Collection[str]) -> dict[str, Role]:
    """Return the roles by short name. One query. Raises ChangeRefused, for `roles`, where there is none of a name."""
    roles = {role.slug: role for role in Role.objects.filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in roles:
            raise not_there("roles", "role", slug)
    return roles


def stamp_of(roles: Iterable[Role]) -> str:
    """Return a hash of these roles with their rules, as they are stored; it differs after any change. Two queries."""
    keys = [role.pk for role in roles]
    fields = ("pk", "slug", "name", "description", "mode")
    rules = RoleRule.objects.filter(role__in=keys).order_by("pk")
    content = [
        list(Role.objects.filter(pk__in=keys).order_by("pk").values_list(*fields)),
        list(rules.values_list("role_id", "category_id", "tool_id", "effect")),
    ]
    return sha256_hex(canonical_json(content))


def hold_roles(roles: Iterable[Role], stamp: str | None) -> None:
    """Nobody else writes to these roles until the transaction ends. Raises RolesChanged unless they are as stamped."""
    keys = [role.pk for role in roles]
    list(Role.objects.select_for_update().filter(pk__in=keys).order_by("pk").values_list("pk"))
    if stamp is not None and stamp_of(roles) != stamp:
        raise RolesChanged("A role has been changed in the meantime.")


def rules_as_text(role: Role) -> list[str]:
    """The stored rules as the audit tells them. One query."""
    return _lines(rules_of(role))


def rules_of(role: Role) -> list[Rule]:
    """The stored rules, sorted. One query."""
    lines = RoleRule.objects.filter(role=role).values_list("effect", "category__name", "tool__name")
    return sorted(Rule(effect, category or "", tool or "") for effect, category, tool in lines)


def check_rules(rules: Sequence[Rule]) -> None:
    """Raises ChangeRefused for rules that cannot be a role's. Two queries."""
    if len(rules) > MAX_RULES:
        raise ChangeRefused("rules", f"A role has at most {MAX_RULES:,} rules.")
    _resolved(rules)


def require_for_rules(actor: Membership, rules: Mapping[Role, tuple[Iterable[Rule], Iterable[Rule]]]) -> None:
    """Raise PermissionDenied unless the actor may change each role's rules from the first to the second. One query."""
    differ = {rule for before, after in rules.values() for rule in set(before) ^ set(after)}
    if differ:
        require(actor, Right.ROLES, _categories_of(differ))


def _members(members: Iterable[Membership]) -> QuerySet[Membership]:
    return Membership.objects.filter(pk__in=[member.pk for member in members])


def _write(role: Role, content: RoleContent) -> None:
    """Check the content and write the role, without its rules. Raises ChangeRefused."""
    slug = content.slug or role.slug or free_short_name(Role.objects.all(), "slug", content.name)
    check_slug(slug)
    if slug == MATRIX and role.slug != MATRIX:
        raise ChangeRefused("slug", f"The short name {MATRIX} stands for the page of all roles; choose another.")
    if content.mode not in RoleMode.values:
        raise ChangeRefused("mode", f"The mode is one of {', '.join(RoleMode.values)}.")
    if Role.objects.filter(slug=slug).exclude(pk=role.pk).exists():
        raise ChangeRefused("slug", f"There is a role {slug} already.", code="taken")
    if content.name != role.name:
        check_name_imitates(Role.objects.exclude(pk=role.pk), "the role", content.name)
    role.slug, role.name = slug, content.name
    role.description, role.mode = content.description, content.mode
    role.save()


def _write_rules(role: Role, rules: Sequence[Rule]) -> list[Rule]:
    """Replace the role's rules; what does not change keeps its row. Returns them, sorted, each once."""
    if len(rules) > MAX_RULES:
        raise ChangeRefused("rules", f"A role has at most {MAX_RULES:,} rules.")
    found = _resolved(rules)
    kept = {(line.category_id, line.tool_id): line for line in RoleRule.objects.filter(role=role)}
    removed = [line.pk for key, line in kept.items() if found.get(key) != line.effect]
    RoleRule.objects.filter(pk__in=removed).delete()
    RoleRule.objects.bulk_create(
        RoleRule(
            organisation_id=role.organisation_id, role=role, category_id=category_id, tool_id=tool_id, effect=effect
        )
        for (category_id, tool_id), effect in found.items()
        if (category_id, tool_id) not in kept or kept[category_id, tool_id].effect != effect
    )
    return sorted(set(rules))


def _resolved(rules: Sequence[Rule]) -> dict[tuple[int | None, int | None], str]:
    """Effects by the keys of category and tool. Raises ChangeRefused where a rule cannot be. Two queries."""
    categories = _keys(Category, [rule.category for rule in rules if rule.category])
    tools = _keys(Tool, [rule.tool for rule in rules if rule.tool])
    found: dict[tuple[int | None, int | None], str] = {}
    for rule in rules:
        if rule.effect not in Effect.values:
            raise ChangeRefused("rules", f"The effect of a rule is one of {', '.join(Effect.values)}.")
        if bool(rule.category) == bool(rule.tool):
            raise ChangeRefused("rules", "A rule names a category or a tool, one of the two.")
        if rule.category and rule.category not in categories:
            raise not_there("rules", "category", rule.category)
        if rule.tool and rule.tool not in tools:
            raise not_there("rules", "tool", rule.tool)
        key = (categories.get(rule.category), tools.get(rule.tool))
        if found.setdefault(key, rule.effect) != rule.effect:
            raise ChangeRefused("rules", f"Two rules on {rule.category or rule.tool} say different things.")
    return found


def _keys(model: type[Category] | type[Tool], names: Collection[str]) -> dict[str, int]:
    return dict(model.objects.filter(name__in=set(names)).values_list("name", "pk"))


def _lines(rules: Iterable[Rule]) -> list[str]:
    """Return the rules as the audit shows them: `allow category web`, `deny tool file_write`; sorted."""
    return sorted(
        f"{rule.effect} tool {rule.tool}" if rule.tool else f"{rule.effect} category {rule.category}" for rule in rules
    )


def _categories_of(rules: Iterable[Rule]) -> set[str]:
    """The categories that these rules are about; a tool's is the one it is in."""
    rules = list(rules)
    tools = [rule.tool for rule in rules if rule.tool]
    found = set(Tool.objects.filter(name__in=tools).values_list("category__name", flat=True))
    return found | {rule.category for rule in rules if rule.category}


def _audited(role: Role) -> dict[str, Any]:
    return {"slug": role.slug, "name": role.name, "description": role.description, "mode": role.mode}
