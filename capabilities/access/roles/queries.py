"""Roles, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q
from django.http import Http404

from capabilities.access.roles.writes import Rule
from capabilities.models import Category, Role, RoleMembership, Tool
from toolhub.tenants.authority import why_not_to
from toolhub.tenants.models import Membership

#: With more tools than this in the catalogue, those of a category are fetched when it is opened.
TOOLS_INLINE = 300
#: Tools of one category that a role's page shows, at most.
TOOLS_OF_CATEGORY = 300
MEMBERS_SHOWN = 100


def roles_shown() -> Sequence[Role]:
    """With how many members and rules each has. One query."""
    active = Q(role_memberships__membership__ended_at=None)
    return list(
        Role.objects.annotate(
            member_count=Count("role_memberships", filter=active, distinct=True),
            rule_count=Count("rules", distinct=True),
        ).order_by("name", "pk")
    )


def role_or_404(slug: str) -> Role:
    role = Role.objects.filter(slug=slug).first()
    if role is None:
        raise Http404("No such role.")
    return role


# -- The matrix of one role -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolLine:
    """A tool under its category; `said` is allow, deny or, where the category's word counts, empty."""

    name: str
    said: str


@dataclass(frozen=True)
class CategoryLine:
    """A category of a role's matrix. Without `is_whole` only the tools that differ are in it."""

    name: str
    title: str
    count: int
    said: str
    tools: Sequence[ToolLine] = field(default_factory=tuple)
    is_whole: bool = True

    @property
    def is_listed(self) -> bool:
        """Whether a rule names the category or one of its tools."""
        return bool(self.said) or any(tool.said for tool in self.tools)


def role_matrix(rules: Iterable[Rule]) -> list[CategoryLine]:
    """Every category with what the rules say of it and of its tools. Two queries."""
    said = {("tool", rule.tool) if rule.tool else ("category", rule.category): rule.effect for rule in rules}
    categories = list(Category.objects.annotate(tool_count=Count("tools")).order_by("title", "name"))
    is_whole = sum(each.tool_count for each in categories) <= TOOLS_INLINE
    shown = Tool.objects.order_by("name")
    if not is_whole:
        shown = shown.filter(name__in=[name for kind, name in said if kind == "tool"])
    tools: dict[int, list[ToolLine]] = {}
    for name, category_id in shown.values_list("name", "category_id"):
        tools.setdefault(category_id, []).append(ToolLine(name, said.get(("tool", name), "")))
    return [
        CategoryLine(
            each.name,
            each.title,
            each.tool_count,
            said.get(("category", each.name), ""),
            tools.get(each.pk, ()),
            is_whole or len(tools.get(each.pk, ())) == each.tool_count,
        )
        for each in categories
    ]


def role_category(rules: Iterable[Rule], name: str) -> CategoryLine:
    """One category with its first tools, for a catalogue that is too long to show whole. Two queries."""
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise Http404("No such category.")
    said = {("tool", rule.tool) if rule.tool else ("category", rule.category): rule.effect for rule in rules}
    names = list(Tool.objects.filter(category=category).order_by("name").values_list("name", flat=True))
    first = [ToolLine(each, said.get(("tool", each), "")) for each in names[:TOOLS_OF_CATEGORY]]
    differ = [ToolLine(each, said["tool", each]) for each in names[TOOLS_OF_CATEGORY:] if ("tool", each) in said]
    return CategoryLine(category.name, category.title, len(names), said.get(("category", name), ""), first + differ)


@dataclass(frozen=True)
class RoleMembers:
    """The members that a role's form shows, each with whether it `has` the role in the form.

    `why_locked` of each: why the actor may not give it the role or take it; "" where they may.
    """

    shown: Sequence[Membership] = ()
    has_more: bool = False
    #: Public ids of those who are not shown and whom the form gives the role to, or takes it from.
    hidden: Mapping[UUID, bool] = field(default_factory=dict)
    #: Those who do not have it and would get it, and those who have it and would lose it.
    given: Sequence[Membership] = ()
    taken: Sequence[Membership] = ()


def role_members(role: Role | None, ticks: Mapping[UUID, bool], q: str = "", *, actor: Membership) -> RoleMembers:
    """`ticks`: by public id whether the form says that the member has the role. Two queries, one without ticks."""
    has = Exists(RoleMembership.objects.filter(role=role.pk if role else None, membership=OuterRef("pk")))
    members = Membership.objects.select_related("user").filter(ended_at=None).annotate(has=has)
    changed: list[Any] = []
    if ticks:
        named = members.filter(public_id__in=list(ticks)).order_by("user__email")
        changed = [each for each in named if ticks[each.public_id] != each.has]
    found = members
    for word in q.split():
        found = found.filter(
            Q(user__email__icontains=word) | Q(user__first_name__icontains=word) | Q(user__last_name__icontains=word)
        )
    shown: list[Any] = list(found.order_by("-has", "user__email")[: MEMBERS_SHOWN + 1])
    page = shown[:MEMBERS_SHOWN]
    there = {each.public_id for each in page}
    for each in page:
        each.has = ticks.get(each.public_id, each.has)
        each.why_locked = "has more access than you" if why_not_to(actor, each) else ""
    return RoleMembers(
        page,
        len(shown) > MEMBERS_SHOWN,
        {each.public_id: ticks[each.public_id] for each in changed if each.public_id not in there},
        [each for each in changed if ticks[each.public_id]],
        [each for each in changed if not ticks[each.public_id]],
    )


# -- Grants -----------------------------------------------------------------------------------------------------------


# -- Who may use a tool -----------------------------------------------------------------------------------------------
