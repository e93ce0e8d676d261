"""Approval rules, as pages and the API show them, and as a worker asks them: read once for each registry version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404

from capabilities.access.approval_rules.writes import RuleContent
from capabilities.choosing.pipeline.bringing import overrides_in
from capabilities.common.memory import Memory
from capabilities.contract.approvals import AskedCall, AskRule
from capabilities.contract.spec import ToolSpec
from capabilities.models import ApprovalRule, RoleMembership, Tool, Toolkit
from capabilities.running.kinds.effective import effective_arguments
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import Keyset, Page

#: In this order they are asked; the first that means a call counts.
ORDER = ("priority", "name")
_rules: Memory[tuple[AskRule, ...]] = Memory(256)


def rules_in_order() -> QuerySet[ApprovalRule]:
    return ApprovalRule.objects.select_related("toolkit", "role", "agent").order_by(*ORDER)


def rules_page(*, after: str = "", before: str = "") -> Page[ApprovalRule]:
    """Return a page of rules, in the order in which they are asked. One query."""
    return Keyset(rules_in_order(), ORDER).page(after, before)


def rule_or_404(member: Membership, rule_id: UUID) -> ApprovalRule:
    """Return the rule of this id. Raises Http404 where the organisation has none."""
    rule = rules_in_order().filter(public_id=rule_id, organisation_id=member.organisation_id).first()
    if rule is None:
        raise Http404("No such approval rule.")
    return rule


def ask_rules(organisation_id: int, version: int | None) -> tuple[AskRule, ...]:
    """The organisation's rules in their order, as they are at this registry version. No query where they are known;
    else one, and two more where a rule names a toolkit. Without a version they are read."""
    if version is None:
        return read_ask_rules()
    return _rules.get((organisation_id, version), read_ask_rules)


def read_ask_rules() -> tuple[AskRule, ...]:
    """Read the organisation's rules in their order. One query, and two more where a rule names a toolkit."""
    rules = list(ApprovalRule.objects.order_by(*ORDER))
    tools = overrides_in({rule.toolkit_id for rule in rules if rule.toolkit_id is not None})
    return tuple(
        AskRule(
            name=rule.name,
            when=str(rule.when),
            tool_pattern=rule.tool_pattern,
            toolkit_tools=None if rule.toolkit_id is None else frozenset(tools[rule.toolkit_id]),
            role_id=rule.role_id,
            agent_id=rule.agent_id,
            argument=rule.argument,
            argument_pattern=rule.argument_pattern,
            expires_after=rule.expires_after,
            needs_other_person=rule.needs_other_person,
            message=rule.message,
        )
        for rule in rules
    )


def asked_call(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    membership_id: int,
    agent_id: int | None,
    read_roles: Callable[[], Collection[int]] | None = None,
) -> AskedCall:
    """A call as rules look at it: its arguments as they take effect. The member's roles are read where a
    rule names one, unless `read_roles` has them."""
    return AskedCall(
        tool_id=spec.tool_id,
        name=spec.name,
        category=spec.category,
        agent_id=agent_id,
        read_arguments=lambda: effective_arguments(spec, arguments),
        read_roles=read_roles or (lambda: role_ids(membership_id)),
    )


def role_ids(membership_id: int) -> set[int]:
    """Keys of the member's roles. One query."""
    return set(RoleMembership.objects.filter(membership=membership_id).values_list("role_id", flat=True))


def would_ask(content: RuleContent) -> AskRule:
    """A rule of this content, which need not be stored, as tools are looked for. Up to three queries for a toolkit."""
    key = Toolkit.objects.filter(name=content.toolkit).values_list("pk", flat=True).first() if content.toolkit else None
    tools = None if key is None else frozenset(overrides_in({key})[key])
    return AskRule(content.name, content.when, content.tool_pattern, toolkit_tools=tools)


def tools_matched_by(rule: AskRule) -> list[str]:
    """Names of the organisation's tools of which the rule means a call, whatever its arguments, agent and member. One
    query."""
    rows = Tool.objects.order_by("name").values_list("pk", "name", "category__name")
    return [name for key, name, category in rows if rule.means_tool(key, name, category)]
