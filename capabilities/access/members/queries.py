"""Tools with whether one member may use each, and why, as the member's page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, Q
from django.http import Http404

from capabilities.choosing.pipeline.permissions import members_permitted, permissions_of, tool_key
from capabilities.contract.permission import Permission
from capabilities.models import Grant, Role, RoleMembership, Tool
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import Keyset, Page, page_of_sorted

#: Each has a form of its own on the page.
TOOLS_A_PAGE = 25
GRANTS_SHOWN = 20
CATEGORIES_SHOWN = 20


@dataclass(frozen=True)
class UsableTool:
    """A tool and the answer, with the stage that gave it and why."""

    name: str
    category: str
    category_title: str
    tokens: int
    is_enabled: bool
    answer: Permission


@dataclass(frozen=True)
class UsableCategory:
    """Number of tools of a category, number of those that the member may use, and the tokens of those."""

    name: str
    title: str
    count: int
    allowed: int
    tokens: int


@dataclass(frozen=True)
class UsableTools:
    """One page of tools by name, and every category in numbers."""

    page: Page[UsableTool]
    categories: Sequence[UsableCategory]

    @property
    def largest(self) -> Sequence[UsableCategory]:
        """The categories of which the member may use the most, by title."""
        found = sorted(self.categories, key=lambda each: (-each.allowed, -each.tokens, each.title))
        return sorted(found[:CATEGORIES_SHOWN], key=lambda each: each.title)

    @property
    def count(self) -> int:
        return sum(each.count for each in self.categories)

    @property
    def allowed(self) -> int:
        return sum(each.allowed for each in self.categories)

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.categories)


def shown_member_or_404(member_id: UUID) -> Membership:
    """Return the member of this id. Raises Http404 where the organisation has none."""
    member = Membership.objects.select_related("user").filter(public_id=member_id, ended_at=None).first()
    if member is None:
        raise Http404("No such member.")
    return member


def usable_tools(
    member: Membership,
    *,
    q: str = "",
    category: str = "",
    only_allowed: bool = True,
    after: str = "",
    before: str = "",
) -> UsableTools:
    """`q` is looked for in names. The numbers are of the whole catalogue. Two queries."""
    permissions = permissions_of(member)
    rows = Tool.objects.values_list(
        "pk",
        "category_id",
        "name",
        "kind",
        "category__name",
        "category__title",
        "current_version__tokens",
        "is_enabled",
    )
    found: list[UsableTool] = []
    totals: dict[str, tuple[str, int, int, int]] = {}
    for key, category_id, name, kind, of_category, title, tokens, is_enabled in rows:
        answer = permissions.decide(tool_key(key, category_id, name, kind))
        _, count, allowed, sum_of = totals.get(of_category, (title, 0, 0, 0))
        counted = (allowed + 1, sum_of + (tokens or 0)) if answer.allowed else (allowed, sum_of)
        totals[of_category] = (title, count + 1, *counted)
        is_asked = q.lower() in name.lower() and category in ("", of_category)
        if is_asked and (answer.allowed or not only_allowed):
            found.append(UsableTool(name, of_category, title, tokens or 0, is_enabled, answer))
    found.sort(key=_by_name)
    return UsableTools(
        page_of_sorted(found, _by_name, after, before, limit=TOOLS_A_PAGE),
        sorted((UsableCategory(name, *rest) for name, rest in totals.items()), key=lambda each: each.title),
    )


def _by_name(tool: UsableTool) -> tuple[str]:
    return (tool.name,)


def roles_of_member(member: Membership) -> Sequence[Role]:
    """One query."""
    return list(Role.objects.filter(role_memberships__membership=member).order_by("name", "pk"))


def grants_of_member(member: Membership) -> tuple[Sequence[Grant], bool]:
    """The newest first, with whether each is `in_force`; and whether there are more. One query."""
    now = Grant.objects.in_force().filter(pk=OuterRef("pk"))
    grants = (
        Grant.objects.filter(membership=member)
        .select_related("tool__category", "category")
        .annotate(in_force=Exists(now))
    )
    found = list(grants.order_by("-pk")[: GRANTS_SHOWN + 1])
    return found[:GRANTS_SHOWN], len(found) > GRANTS_SHOWN


def grants_on(tools: Iterable[UsableTool], member: Membership) -> Mapping[str, Grant]:
    """The member's own grants in force on these tools, by the tool's name; of several the newest. One query."""
    names = [tool.name for tool in tools]
    grants = Grant.objects.in_force().filter(membership=member, tool__name__in=names)
    return {each.tool.name: each for each in grants.select_related("tool__category").order_by("pk") if each.tool}


USERS_SHOWN = 50


@dataclass(frozen=True)
class Reader:
    """A member and why he or she may use a tool."""

    member: Membership
    reason: str


def members_who_may_use(tool: Tool, *, q: str = "", after: str = "", before: str = "") -> Page[Reader]:
    """The members who may use the tool, by address; `q` is looked for in addresses and names. Four queries, for any
    number."""
    permitted = members_permitted(tool)
    roles = RoleMembership.objects.filter(role__in=list(permitted.opening)).order_by("role__slug")
    members = permitted.members.select_related("user").prefetch_related(Prefetch("role_memberships", roles))
    if q:
        members = members.filter(
            Q(user__email__icontains=q) | Q(user__first_name__icontains=q) | Q(user__last_name__icontains=q)
        )
    page = Keyset(members, ("user__email",)).page(after, before, limit=USERS_SHOWN)
    return page.of(lambda member: Reader(member, permitted.reason(member)))
