"""The matrix of roles by categories and tools: what its form says, and what the page shows of it.

A cell of the form is named `role:kind:name:was`, kind `c` for a category and `t` for a tool, `was` what it showed. So
only cells that were changed here change anything: what somebody else changed in the meantime is not taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q
from django.utils.html import format_html
from django.utils.safestring import SafeString

from capabilities.access.roles.writes import Rule
from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.models import Category, Effect, Role, RoleMode, RoleRule, Tool
from toolhub.tenants.models import Reach

ROLES_AT_ONCE = 12
#: Tools of one category that are shown at once, and of all that a page opens or finds; fewer where many roles are
#: columns, by the number of cells.
TOOLS_OF_CATEGORY = 100
TOOLS_A_PAGE = 125
CELLS_A_PAGE = 750
#: The best ones of those that the words find, which are looked for.
TOOLS_SEARCHED = 1_000
CATEGORIES_A_PAGE = 50
CELLS_OF_CATEGORIES = 400

KINDS = {"c": "category", "t": "tool"}
#: Texts of a cell for screen readers; static/matrix.js has them too.
WORDS = {Effect.ALLOW: "allowed", Effect.DENY: "denied", "": "not listed"}
#: A press of a cell sets the next effect.
NEXT = {"": Effect.ALLOW, Effect.ALLOW: Effect.DENY, Effect.DENY: ""}

#: Role, kind and name of a cell.
CellKey = tuple[str, str, str]
#: Effect on every tool of a role whose rules do not count.
FIXED: Mapping[str, str] = {RoleMode.ALL: Effect.ALLOW, RoleMode.NONE: Effect.DENY}


@dataclass(frozen=True)
class Asked:
    """Roles, open categories, search text and place that the page's address asks for."""

    roles: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    #: In the name of a tool or the title of a category.
    q: str = ""
    #: A tool: those of its category behind it. A category: the page behind it.
    after: str = ""
    behind: str = ""
    #: Only tools that not all shown roles treat alike.
    differ: bool = False

    @property
    def is_all_open(self) -> bool:
        return self.opened == ("all",)


@dataclass(frozen=True)
class Cell:
    """Cell of the matrix: the rule of one role on one category or tool, as stored and as the form leaves it."""

    key: CellKey
    stored_effect: str
    effect: str
    #: For a tool without a word of its own: whether its category is on.
    inherits: bool = False
    #: Why it cannot be changed here.
    locked: str = ""
    #: Word that counts for a role that opens all or nothing, whatever is said.
    fixed: str = ""
    #: Tools of the category with a word of their own.
    differing: int = 0

    @property
    def differs(self) -> bool:
        """True where a tool says something else than its category."""
        return self.key[1] == "t" and bool(self.effect) and (self.effect == Effect.ALLOW) != self.inherits

    @property
    def shape(self) -> str:
        """Class of the dot: allowed, denied, not listed and on by its category, or not listed."""
        return self.effect[:1] or ("i" if self.inherits else "n")

    @property
    def label(self) -> str:
        """Text for screen readers."""
        if self.fixed:
            return WORDS[self.fixed]
        word = WORDS[self.effect]
        if self.key[1] == "t" and not self.effect:
            return f"{word}, {'on' if self.inherits else 'off'}"
        return f"{word}, differs from its category" if self.differs else word

    def html(self) -> SafeString:
        """One table cell, short: a page has a thousand of them."""
        if self.locked:
            shape = self.fixed[:1] or self.shape
            return format_html('<td title="{}"><i class={}>{}</i>{}', self.locked, shape, self.label, self._note())
        role, kind, name = self.key
        return format_html(
            '<td{}><button name="{}:{}:{}:{}" value="{}" class={}>{}</button>{}',
            self._classes(),
            *(role, kind, name, self.stored_effect),
            *(NEXT[self.effect], self.shape, self.label),
            self._note(),
        )

    def _classes(self) -> SafeString:
        names = [*["differs"] * self.differs, *["is-changed"] * (self.stored_effect != self.effect)]
        return format_html(' class="{}"', " ".join(names)) if names else SafeString("")

    def _note(self) -> SafeString | str:
        if self.differing:
            return format_html("<small>{} differ{}</small>", self.differing, "s" if self.differing == 1 else "")
        return ""


@dataclass(frozen=True)
class ToolRow:
    name: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class CategoryRow:
    """A category; its tools where it is open, and after which one to go on."""

    name: str
    title: str
    count: int
    cells: Sequence[Cell]
    is_open: bool = False
    tools: Sequence[ToolRow] = ()
    after: str = ""
    #: Tools that not all shown roles treat alike, where only these are asked for.
    differing: int = 0


@dataclass(frozen=True)
class MatrixPage:
    """Categories in the order of their titles, and the name of the last, where there are more behind it."""

    rows: Sequence[CategoryRow]
    behind: str = ""


def posted_changes(data: Mapping[str, str]) -> dict[CellKey, str]:
    """Cells that say something else than they showed. Raises ChangeRefused for a word that a cell cannot say."""
    found: dict[CellKey, str] = {}
    for key in data:
        role, *rest = key.split(":")
        if len(rest) != 3 or rest[0] not in KINDS:
            continue
        kind, name, stored_effect = rest
        if "\x00" in key:
            raise not_there("rules", KINDS[kind], name.replace("\x00", ""))
        if data[key] not in ("", *Effect.values):
            raise ChangeRefused("rules", "A cell is on, off, or says nothing.")
        if data[key] != stored_effect:
            found[role, kind, name] = data[key]
        else:
            found.pop((role, kind, name), None)
    return found


def posted_was(data: Mapping[str, str], cell_key: CellKey) -> str:
    """Effect that the posted cell showed before."""
    begins = ":".join((*cell_key, ""))
    return next(key.removeprefix(begins) for key in data if key.startswith(begins))


def check_changes(changes: Mapping[CellKey, str]) -> dict[str, Role]:
    """The roles that are changed, by short name. Three queries.

    Raises ChangeRefused where a change names what is not there, or a role whose lines do not count.
    """
    roles = {role.slug: role for role in Role.objects.filter(slug__in={slug for slug, _, _ in changes})}
    model_classes: dict[str, type[Category] | type[Tool]] = {"c": Category, "t": Tool}
    known = {
        kind: set(
            model.objects.filter(name__in={name for _, each, name in changes if each == kind}).values_list(
                "name", flat=True
            )
        )
        for kind, model in model_classes.items()
    }
    for slug, kind, name in changes:
        if slug not in roles:
            raise not_there("roles", "role", slug)
        if name not in known[kind]:
            raise not_there("rules", KINDS[kind], name)
        if roles[slug].mode != RoleMode.LISTED:
            raise ChangeRefused("rules", f"{_fixed_why(roles[slug])} Its lines do not count.")
    return roles


def rules_of_roles(roles: Iterable[Role]) -> dict[int, tuple[Rule, ...]]:
    """Return the rules by key of the role, sorted. One query."""
    found: dict[int, list[Rule]] = {role.pk: [] for role in roles}
    lines = RoleRule.objects.filter(role__in=list(found))
    for key, effect, category, tool in lines.values_list("role_id", "effect", "category__name", "tool__name"):
        found[key].append(Rule(effect, category or "", tool or ""))
    return {key: tuple(sorted(rules)) for key, rules in found.items()}


def changed_rules(role: Role, stored: Iterable[Rule], changes: Mapping[CellKey, str]) -> tuple[Rule, ...]:
    """The role's rules as the changes leave them."""
    found = {("t", rule.tool) if rule.tool else ("c", rule.category): rule for rule in stored}
    for (slug, kind, name), effect in changes.items():
        if slug == role.slug:
            found.pop((kind, name), None)
            if effect:
                found[kind, name] = Rule(effect, **{KINDS[kind]: name})
    return tuple(sorted(found.values()))


def matrix_roles(asked: Sequence[str]) -> tuple[Sequence[Role], Sequence[Role]]:
    """Every role by name, and those that are shown: the ones asked for, else the first twelve. One query."""
    every = list(Role.objects.order_by("name", "pk"))
    shown = [role for role in every if role.slug in asked] or every
    return every, shown[:ROLES_AT_ONCE]


def matrix_rows(
    roles: Sequence[Role],
    asked: Asked,
    changes: Mapping[CellKey, str],
    reach: Reach,
    locked_roles: Mapping[int, str],
    *,
    only: str = "",
) -> MatrixPage:
    """A page of categories with their cells, those asked for with their tools; `only` for one of them. Three queries,
    one more for a page that does not begin at the first; for words those of `search_names` besides.

    `locked_roles`: why a role may not be changed, by its key.
    """
    book = _Book(roles, changes, locked_roles)
    categories, behind = _categories(asked, only, book)
    tools = Tool.objects.order_by("name")
    if asked.q:
        tools = tools.filter(name__in=search_names(asked.q)[:TOOLS_SEARCHED])
    elif not asked.is_all_open:
        tools = tools.filter(category__name__in=asked.opened)
    tools = tools.filter(category__in=[each.pk for each in categories])
    if asked.after:
        tools = tools.filter(name__gt=asked.after)
    names_of = {each.pk: each.name for each in categories}
    by_category: dict[int, list[str]] = {}
    for name, category_id in tools.values_list("name", "category_id"):
        if not asked.differ or book.tool_differs(name, names_of[category_id]):
            by_category.setdefault(category_id, []).append(name)
    rows: list[CategoryRow] = []
    remaining = min(TOOLS_A_PAGE, CELLS_A_PAGE // max(1, len(roles)))
    for each in categories:
        names = by_category.get(each.pk, [])
        shown = names[: min(TOOLS_OF_CATEGORY, remaining)]
        remaining -= len(shown)
        locked = "" if reach.covers(each.name) else "Your right does not cover this category."
        rows.append(
            CategoryRow(
                each.name,
                each.title,
                each.tool_count,
                [book.of_category(role, each.name, locked) for role in roles],
                bool(shown),
                [ToolRow(name, [book.of_tool(role, name, each.name, locked) for role in roles]) for name in shown],
                shown[-1] if shown and len(shown) < len(names) else "",
                book.number_differing(each.name, each.tool_count) if asked.differ else 0,
            )
        )
    return MatrixPage(rows, behind)


def one_cell(role: Role, kind: str, name: str) -> Cell:
    """The cell as it is stored. At most two queries."""
    book = _Book([role], {}, {})
    if kind == "c":
        return book.of_category(role, name, "")
    return book.of_tool(role, name, Tool.objects.values_list("category__name", flat=True).get(name=name), "")


def _categories(asked: Asked, only: str, book: _Book) -> tuple[Sequence[Any], str]:
    """Return the categories of the page that is asked for, with their `tool_count`; and the name of the last, where
    there are more."""
    categories = Category.objects.annotate(tool_count=Count("tools")).order_by("title", "name")
    if only:
        return list(categories.filter(name=only)), ""
    if asked.q:
        found = Tool.objects.filter(name__in=search_names(asked.q)[:TOOLS_SEARCHED]).values("category")
        categories = categories.filter(Q(title__icontains=asked.q) | Q(pk__in=found))
    most = min(CATEGORIES_A_PAGE, CELLS_OF_CATEGORIES // max(1, len(book.roles)))
    first = Category.objects.filter(name=asked.behind).first() if asked.behind else None
    if first is not None:
        categories = categories.filter(Q(title__gt=first.title) | Q(title=first.title, name__gt=first.name))
    elif len(asked.opened) == 1 and not asked.is_all_open:
        # A link from elsewhere opens one category: the page begins there.
        opened = Category.objects.filter(name=asked.opened[0]).first()
        if opened is not None and Category.objects.filter(title__lt=opened.title).count() >= most:
            categories = categories.filter(title__gte=opened.title)
    shown: Any = categories
    if asked.differ:
        shown = [each for each in categories if book.number_differing(each.name, each.tool_count)]
    page = list(shown[: most + 1])
    return page[:most], page[most - 1].name if len(page) > most else ""


class _Book:
    """Rules of the roles, as stored and as changed. One query."""

    def __init__(self, roles: Sequence[Role], changes: Mapping[CellKey, str], locked: Mapping[int, str]) -> None:
        self.roles, self.locked = roles, locked
        slugs = {role.pk: role.slug for role in roles}
        self.changes = changes
        self.stored: dict[CellKey, str] = {}
        self.differing: dict[tuple[str, str], int] = {}
        #: Tools with a rule of their own in one of the roles, by category.
        self.own_tools: dict[str, set[str]] = {}
        lines = RoleRule.objects.filter(role__in=list(slugs))
        columns = ("role_id", "effect", "category__name", "tool__name", "tool__category__name")
        for key, effect, category, tool, of_tool in lines.values_list(*columns):
            self.stored[slugs[key], "t" if tool else "c", tool or category or ""] = effect
            if tool:
                self.differing[slugs[key], of_tool] = self.differing.get((slugs[key], of_tool), 0) + 1
                self.own_tools.setdefault(of_tool, set()).add(tool)

    def of_category(self, role: Role, name: str, locked: str) -> Cell:
        """Return the cell of a role and a category."""
        cell_key = (role.slug, "c", name)
        stored_effect = self.stored.get(cell_key, "")
        fixed = FIXED.get(role.mode, "")
        return Cell(
            cell_key,
            stored_effect,
            self.changes.get(cell_key, stored_effect),
            locked=_fixed_why(role) or self.locked.get(role.pk, locked),
            fixed=fixed,
            differing=0 if fixed else self.differing.get((role.slug, name), 0),
        )

    def of_tool(self, role: Role, name: str, category: str, locked: str) -> Cell:
        """Return the cell of a role and a tool."""
        cell_key, above = (role.slug, "t", name), (role.slug, "c", category)
        stored_effect = self.stored.get(cell_key, "")
        fixed = FIXED.get(role.mode, "")
        inherits = self.changes.get(above, self.stored.get(above, "")) == Effect.ALLOW
        effect = "" if fixed else self.changes.get(cell_key, stored_effect)
        return Cell(
            cell_key, stored_effect, effect, inherits, _fixed_why(role) or self.locked.get(role.pk, locked), fixed
        )

    def number_differing(self, category: str, tool_count: int) -> int:
        """Number of its tools that not all roles treat alike, as stored."""
        own = self.own_tools.get(category, set())
        rest = tool_count - len(own) if self.tool_differs("", category) else 0
        return rest + sum(self.tool_differs(name, category) for name in own)

    def tool_differs(self, name: str, category: str) -> bool:
        """Whether some of the roles open this tool, and others do not; "" is a tool without a rule of its own."""
        return len({self._opens(role, name, category) for role in self.roles}) > 1

    def _opens(self, role: Role, name: str, category: str) -> bool:
        effect = FIXED.get(role.mode) or self.stored.get((role.slug, "t", name))
        return (effect or self.stored.get((role.slug, "c", category))) == Effect.ALLOW


def _fixed_why(role: Role) -> str:
    return "" if role.mode == RoleMode.LISTED else f"The mode of {role} is “{role.get_mode_display()}”."
