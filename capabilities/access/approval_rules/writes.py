"""The audited writes of approval rules. Running turns have a change from their next call on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from capabilities.common.refused import ChangeRefused, is_slug, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import ChangeForbidden, configuration_write, require
from capabilities.common.short_names import free_short_name
from capabilities.contract.approvals import MAX_HOURS, USUAL_HOURS
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.models import Agent, ApprovalRule, AskWhen, Role, Toolkit
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import ASK_AN_ADMIN
from toolhub.tenants.models import Access, Membership, Right

#: Rules that one organisation may have: each is looked at for each call.
MAX_RULES = 200
MAX_PRIORITY = 10_000
MAX_MESSAGE = 1_000
MAX_ARGUMENT, MAX_ARGUMENT_PATTERN = 64, 200


@dataclass(frozen=True)
class RuleContent:
    """Fields of an approval rule, as its form sends them. `toolkit` is a name, `role` and `agent` are short names;
    empty means every one.

    `name` is a short name; an empty one is made of the pattern. `expires_after` is in hours.
    """

    name: str = ""
    priority: int = 100
    tool_pattern: str = "*"
    toolkit: str = ""
    role: str = ""
    agent: str = ""
    argument: str = ""
    argument_pattern: str = ""
    when: str = AskWhen.ALWAYS
    expires_after: int = USUAL_HOURS
    needs_other_person: bool = False
    message: str = ""


#: Fields of the content that are the rule's own columns.
COLUMNS = (
    *("name", "priority", "tool_pattern", "argument", "argument_pattern", "when", "expires_after"),
    *("needs_other_person", "message"),
)


def rule_content(rule: ApprovalRule) -> RuleContent:
    """Return the rule's content as it is stored. Reads its toolkit, role and agent."""
    return RuleContent(**_audited(rule))


@configuration_write("name")
def create_rule(content: RuleContent, *, actor: Membership) -> ApprovalRule:
    """Raises ChangeRefused for what is malformed, a name in use, and rows that are not there; ChangeForbidden where it
    would stand in front of a rule that takes another person, and the actor is no admin."""
    require(actor, Right.POLICIES)
    if ApprovalRule.objects.count() >= MAX_RULES:
        raise ChangeRefused("name", f"An organisation has at most {MAX_RULES} approval rules.")
    rule = ApprovalRule(organisation_id=actor.organisation_id)
    _write(rule, content)
    _check_shadows_none(rule, actor)
    record("approval_rule.create", rule, actor=actor, after=_audited(rule))
    touch_registry(rule.organisation_id)
    return rule


@configuration_write("name")
def update_rule(rule: ApprovalRule, content: RuleContent, *, actor: Membership) -> ApprovalRule:
    """Raises as `create_rule` does; and ChangeForbidden for a rule that takes another person, but for its message."""
    require(actor, Right.POLICIES)
    before, was_strict = _audited(rule), _takes_another(rule)
    _write(rule, content)
    after = _audited(rule)
    if before == after:
        return rule
    if was_strict and any(before[name] != after[name] for name in before if name != "message"):
        _check_admin(actor)
    _check_shadows_none(rule, actor)
    record("approval_rule.update", rule, actor=actor, before=before, after=after)
    touch_registry(rule.organisation_id)
    return rule


@configuration_write("name")
def delete_rule(rule: ApprovalRule, *, actor: Membership) -> None:
    """Calls that it meant are asked for as the rules behind it say. Raises ChangeForbidden as `update_rule` does."""
    require(actor, Right.POLICIES)
    if _takes_another(rule):
        _check_admin(actor)
    record("approval_rule.delete", rule, actor=actor, before=_audited(rule))
    rule.delete()
    touch_registry(actor.organisation_id)


def _write(rule: ApprovalRule, content: RuleContent) -> None:
    """Check the content and write the rule. Raises ChangeRefused."""
    pattern = content.tool_pattern.strip() or "*"
    name = content.name or rule.name or free_short_name(ApprovalRule.objects.all(), "name", pattern)
    if not is_slug(name):
        raise ChangeRefused("name", "Use lower-case letters, digits and hyphens, at most 63 of them; not “new”.")
    if ApprovalRule.objects.filter(name=name).exclude(pk=rule.pk).exists():
        raise ChangeRefused("name", f"There is an approval rule {name} already.", code="taken")
    _check(content, pattern)
    for column in COLUMNS:
        setattr(rule, column, getattr(content, column))
    rule.name, rule.tool_pattern, rule.message = name, pattern, content.message.strip()
    rule.toolkit = _named(Toolkit, "toolkit", "name", content.toolkit)
    rule.role = _named(Role, "role", "slug", content.role)
    rule.agent = _named(Agent, "agent", "slug", content.agent)
    _check_says_more(rule)
    rule.save()


def _check_says_more(rule: ApprovalRule) -> None:
    """Raise ChangeRefused where another rule says the same of the same calls, at the same priority. One query."""
    columns = {column: getattr(rule, column) for column in (*COLUMNS, "toolkit", "role", "agent")}
    del columns["name"], columns["message"]
    pattern = columns.pop("tool_pattern")
    duplicate = ApprovalRule.objects.filter(tool_pattern__iexact=pattern, **columns).exclude(pk=rule.pk).first()
    if duplicate is not None:
        raise ChangeRefused(
            "tool_pattern", f"The rule {duplicate} says the same already: change that one.", code="taken"
        )


def _check(content: RuleContent, pattern: str) -> None:
    """Raise ChangeRefused for a field of a rule that is too long or out of range."""
    lengths = (
        ("tool_pattern", pattern, MAX_PATTERN),
        ("argument", content.argument, MAX_ARGUMENT),
        ("argument_pattern", content.argument_pattern, MAX_ARGUMENT_PATTERN),
        ("message", content.message, MAX_MESSAGE),
    )
    for field, text, limit in lengths:
        if len(text) > limit:
            raise ChangeRefused(field, f"Keep it under {limit:,} characters.")
    if content.when not in AskWhen.values:
        raise ChangeRefused("when", f"Choose one of {', '.join(AskWhen.values)}.")
    if not 0 <= content.priority <= MAX_PRIORITY:
        raise ChangeRefused("priority", f"Give a whole number from 0 to {MAX_PRIORITY:,}.")
    if not 1 <= content.expires_after <= MAX_HOURS:
        raise ChangeRefused("expires_after", f"Give 1 to {MAX_HOURS:,} hours.")
    if bool(content.argument) != bool(content.argument_pattern):
        empty = "argument_pattern" if content.argument else "argument"
        raise ChangeRefused(empty, "Give the argument's name and the pattern of its value, or neither.")


def _named(model: Any, field: str, column: str, name: str) -> Any:
    if not name:
        return None
    row = model.objects.filter(**{column: name}).first()
    if row is None:
        raise not_there(field, field, name)
    return row


def _takes_another(rule: ApprovalRule) -> bool:
    return rule.needs_other_person and rule.when != AskWhen.NEVER


def _check_shadows_none(rule: ApprovalRule, actor: Membership) -> None:
    """Below access `admin` nobody puts a rule that asks less in front of one that takes another person: that one may
    keep back the actor's own calls."""
    if rule.needs_other_person and rule.when == AskWhen.ALWAYS:
        return
    later_rules = Q(priority__gt=rule.priority) | Q(priority=rule.priority, name__gt=rule.name)
    strict = ApprovalRule.objects.filter(later_rules, needs_other_person=True).exclude(when=AskWhen.NEVER)
    found = strict.exclude(pk=rule.pk).order_by("priority", "name").first()
    if found is not None:
        _check_admin(actor, "priority", f"The rule {found} takes another person: put this one behind it.")


def _check_admin(actor: Membership, field: str = "name", reason: str = "This rule takes another person.") -> None:
    if not actor.has_access(Access.ADMIN):
        raise ChangeForbidden(field, f"{reason} Only an admin may ask less of anybody. {ASK_AN_ADMIN}")


def _audited(rule: ApprovalRule) -> dict[str, Any]:
    return {column: getattr(rule, column) for column in COLUMNS} | {
        "when": str(rule.when),
        "toolkit": rule.toolkit.name if rule.toolkit else "",
        "role": rule.role.slug if rule.role else "",
        "agent": rule.agent.slug if rule.agent else "",
    }
