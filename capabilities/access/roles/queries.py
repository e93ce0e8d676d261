"""Roles, as pages show them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
#: Tools of a category in the page of such a catalogue, of those that differ from their category.
TOOLS_AT_FIRST = 30
#: Categories with a rule, and without one, that a role's page shows; all are in the matrix.
LISTED_SHOWN = 60
UNLISTED_SHOWN = 40
MEMBERS_SHOWN = 100


def roles_shown() -> Sequence[Role]:
    """Return the roles, each with the numbers of its members and rules. One query."""
    active = Q(role_memberships__membership__ended_at=None)
    return list(
        Role.objects.annotate(
            member_count=Count("role_memberships", filter=active, distinct=True),
            rule_count=Count("rules", distinct=True),
        ).order_by("name", "pk")
    )


def role_or_404(slug: str) -> Role:
    """Return the role of this short name. Raises Http404 where there is none."""
    role = Role.objects.filter(slug=slug).first()
    if role is None:
        raise Http404("No such role.")
    return role


# -- The matrix of one role -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolLine:
    """A tool under its category; `effect` is allow, deny or, where the category's word counts, empty."""

    name: str
    effect: str


@dataclass(frozen=True)
class CategoryLine:
    """A category of a role's matrix. Without `is_whole` only some of the tools that differ are in it."""

    name: str
    title: str
    count: int
    effect: str
    tools: Sequence[ToolLine] = field(default_factory=tuple)
    is_whole: bool = True
    #: How many of its tools have a rule of their own.
    differing: int = 0

    @property
    def is_listed(self) -> bool:
        """True where a rule names the category or one of its tools."""
        return bool(self.effect or self.differing)

    @property
    def not_shown(self) -> int:
        """Number of tools with a rule of their own that are not in the page."""
        return self.differing - sum(bool(tool.effect) for tool in self.tools)


@dataclass(frozen=True)
class RoleMatrix:
    """The categories of a role's page, and how many there are besides."""

    listed: Sequence[CategoryLine]
    unlisted: Sequence[CategoryLine]
    #: Categories without a rule, shown or not; those of either kind that are not shown.
    unlisted_count: int
    left_out: int


def role_matrix(rules: Iterable[Rule], stored: Iterable[Rule] = ()) -> RoleMatrix:
    """The categories with what the rules say of them and of their tools. Two queries.

    Of a large catalogue it is a part; what differs from the `stored` rules is always in it.
    """
    effects, stored_effects = _effects_by_name(rules), _effects_by_name(stored)
    changed = {key for key in effects.keys() | stored_effects.keys() if effects.get(key) != stored_effects.get(key)}
    categories = list(Category.objects.annotate(tool_count=Count("tools")).order_by("title", "name"))
    is_whole = sum(each.tool_count for each in categories) <= TOOLS_INLINE
    tools = Tool.objects.order_by("name")
    if not is_whole:
        tools = tools.filter(name__in=[name for kind, name in effects.keys() | changed if kind == "tool"])
    shown: dict[int, list[ToolLine]] = {}
    differing: dict[int, int] = {}
    remaining = TOOLS_AT_FIRST
    for name, category_id in tools.values_list("name", "category_id"):
        line = ToolLine(name, effects.get(("tool", name), ""))
        differing[category_id] = differing.get(category_id, 0) + bool(line.effect)
        if is_whole or remaining > 0 or ("tool", name) in changed:
            shown.setdefault(category_id, []).append(line)
            remaining -= 1
    lines = [
        CategoryLine(
            each.name,
            each.title,
            each.tool_count,
            effects.get(("category", each.name), ""),
            shown.get(each.pk, ()),
            is_whole or len(shown.get(each.pk, ())) == each.tool_count,
            differing.get(each.pk, 0),
        )
        for each in categories
    ]
    listed, unlisted = [line for line in lines if line.is_listed], [line for line in lines if not line.is_listed]
    first, rest = _first_of(listed, LISTED_SHOWN, changed), _first_of(unlisted, UNLISTED_SHOWN, changed)
    return RoleMatrix(first, rest, len(unlisted), len(lines) - len(first) - len(rest))


def _effects_by_name(rules: Iterable[Rule]) -> dict[tuple[str, str], str]:
    return {("tool", rule.tool) if rule.tool else ("category", rule.category): rule.effect for rule in rules}


def _first_of(lines: Sequence[CategoryLine], count: int, changed: Collection[tuple[str, str]]) -> list[CategoryLine]:
    """The first of these, and those behind them where something was changed."""
    more = [
        line
        for line in lines[count:]
        if ("category", line.name) in changed or any(("tool", tool.name) in changed for tool in line.tools)
    ]
    return [*lines[:count], *more]


def role_category(rules: Iterable[Rule], name: str) -> CategoryLine:
    """One category with its first tools, for a catalogue that is too long to show whole. Two queries. Raises Http404
    where there is no such category."""
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise Http404("No such category.")
    effects = _effects_by_name(rules)
    names = list(Tool.objects.filter(category=category).order_by("name").values_list("name", flat=True))
    first = [ToolLine(each, effects.get(("tool", each), "")) for each in names[:TOOLS_OF_CATEGORY]]
    differ = [ToolLine(each, effects["tool", each]) for each in names[TOOLS_OF_CATEGORY:] if ("tool", each) in effects]
    return CategoryLine(category.name, category.title, len(names), effects.get(("category", name), ""), first + differ)


@dataclass(frozen=True)
class RoleMembers:
    """The members that a role's form shows, each with whether it `has` the role in the form.

    `why_locked` of each: why the actor may not give it the role or take it; "" where they may.
    """

    shown: Sequence[Membership] = ()
    has_more: bool = False
    #: Public ids of members that are not shown and that get the role by the form (True), or lose it.
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
    shown_ids = {each.public_id for each in page}
    for each in page:
        each.has = ticks.get(each.public_id, each.has)
        each.why_locked = "has more access than you" if why_not_to(actor, each) else ""
    return RoleMembers(
        page,
        len(shown) > MEMBERS_SHOWN,
        {each.public_id: ticks[each.public_id] for each in changed if each.public_id not in shown_ids},
        [each for each in changed if ticks[each.public_id]],
        [each for each in changed if not ticks[each.public_id]],
    )


# -- Grants -----------------------------------------------------------------------------------------------------------


# -- Who may use a tool -----------------------------------------------------------------------------------------------
