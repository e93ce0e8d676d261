"""Changes of what the member may use: grants and roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from capabilities.access.grants.writes import GrantContent, give_grant, revoke_grant
from capabilities.access.roles.writes import Rule, rules_of, set_role_rules
from capabilities.contract.permission import Decision, Rights
from capabilities.models import Effect, Grant, Role, RoleMode
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.reasons import GrantLine, Reasons
from sessions.insight.explain.remedies.ways import TRIED, Blocked, Page, Way
from toolhub.tenants.models import Membership


def revoke(blocked: Blocked) -> Iterator[Way]:
    """Revoke the one grant that denies; where two do, to revoke one is not enough."""
    tool = blocked.tool
    denies = [each for each in tool.listed.grants if each.effect != Effect.ALLOW]
    if len(denies) != 1:
        return
    deny = denies[0]
    what = "it" if deny.tool_id is not None else f"the category {tool.spec.category_title}"
    yield Way(
        f"the grant that denies {what} to {blocked.member} is revoked",
        Page("grant_list", query={"q": tool.spec.name if deny.tool_id is not None else tool.spec.category}),
        partial(_with_rights, blocked, _without(blocked.inputs.permissions.rights, deny, tool), deny.category_id),
        lambda actor: revoke_grant(_grant(deny.id), actor=actor),
    )


def allow_in_role(blocked: Blocked) -> Iterator[Way]:
    """Allow it in one of the member's roles."""
    spec, rights = blocked.tool.spec, blocked.inputs.permissions.rights
    listed = [role for role in rights.roles if role.mode == RoleMode.LISTED] if _may_act(blocked.member) else []
    for role in listed[:TRIED]:
        opened = replace(role, tools={**role.tools, spec.tool_id: "allow"})
        roles = tuple(opened if each is role else each for each in rights.roles)
        yield Way(
            f"the role {role.slug} allows it",
            Page("role_detail", (role.slug,)),
            partial(_with_rights, blocked, replace(rights, roles=roles)),
            partial(_allow_in, role.slug, spec.name),
        )


def _allow_in(slug: str, name: str, actor: Membership) -> None:
    role = Role.objects.get(slug=slug)
    rules = [each for each in rules_of(role) if each.tool != name]
    set_role_rules(role, [*rules, Rule(Effect.ALLOW, tool=name)], actor=actor)


def give(blocked: Blocked) -> Iterator[Way]:
    """Give the member a grant."""
    spec, rights, member = blocked.tool.spec, blocked.inputs.permissions.rights, blocked.member
    grants: dict[int, Decision] = {**rights.tool_grants, spec.tool_id: "allow"}
    if _may_act(member):
        yield Way(
            f"a grant allows it to {member}",
            Page("grant_create", query={"tool": spec.name, "member": member.user.email}),
            partial(_with_rights, blocked, replace(rights, tool_grants=grants)),
            lambda actor: give_grant(GrantContent(member.public_id, Effect.ALLOW, tool=spec.name), actor=actor),
        )


def _may_act(member: Membership) -> bool:
    return member.user.is_active and member.ended_at is None


def _with_rights(blocked: Blocked, rights: Rights, category_id: int | None = None) -> Inputs | None:
    """Return the inputs with these rights; None where there is no room. `category_id`: the category whose other tools
    the change opens too. The first right of a member who had none opens the tools that load others."""
    inputs, spec = blocked.inputs, blocked.tool.spec
    if not inputs.has_room_for(spec):
        return None
    opened = (key for key, row in inputs.rows.items() if row.spec.category_id == category_id)
    return inputs.changed(frozenset({spec.tool_id, *opened}), permissions=replace(inputs.permissions, rights=rights))


def _without(rights: Rights, deny: GrantLine, tool: Reasons) -> Rights:
    """The rights without one grant; what another one says of the same thing stands."""
    rest = [each for each in tool.listed.grants if each != deny]
    if deny.tool_id is not None:
        allowed = any(each.tool_id == deny.tool_id for each in rest)
        return replace(rights, tool_grants=_decisions(rights.tool_grants, deny.tool_id, allowed))
    allowed = any(each.category_id == deny.category_id for each in rest)
    return replace(rights, category_grants=_decisions(rights.category_grants, deny.category_id, allowed))


def _decisions(grants: Mapping[int, Decision], key: int | None, allowed: bool) -> dict[int, Decision]:
    rest: dict[int, Decision] = {each: effect for each, effect in grants.items() if each != key}
    return {**rest, key: "allow"} if allowed and key is not None else rest


def _grant(key: int) -> Grant:
    return Grant.objects.select_related("tool__category", "category", "membership__user").get(pk=key)
