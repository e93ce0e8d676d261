"""The menu: eight entries, each with its pages as tabs, and what waits for the member on each page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from django.http import HttpRequest
from django.urls import Resolver404, resolve, reverse

from toolhub.tenants.models import Membership, Right
from toolhub.tenants.provided import ProvidedByKey


@dataclass(frozen=True)
class MenuPage:
    """A page of the menu.

    `views` are the first words of the names of the views that belong to it, "tool" for `tool_list` and `tool_detail`;
    the longest one counts. `right` is what its page asks for, `unless` the right of those for whom it stands elsewhere.
    """

    title: str
    view: str
    views: tuple[str, ...]
    right: Right | None = None
    unless: Right | None = None
    #: True where a new group of tabs begins.
    opens_group: bool = False
    #: True for what only an organisation with the personal assistant has.
    is_assistants: bool = False
    #: Other words by which people look for it.
    words: str = ""


#: Title, icon, pages. A member sees the pages that would let them in, and the entries that have one.
MENU: tuple[tuple[str, str, tuple[MenuPage, ...]], ...] = (
    ("Home", "house", (MenuPage("Home", "organisation_home", ("organisation_home", "first_steps")),)),
    (
        "Chat",
        "chat-left-text",
        (
            MenuPage("Sessions", "session_list", ("session", "turn", "step")),
            MenuPage("Schedules", "schedule_list", ("schedule",), words="cron reminders timer"),
            MenuPage("Your data", "data_overview", ("data",), is_assistants=True, words="tasks notes contacts records"),
        ),
    ),
    (
        "Inbox",
        "inbox",
        (
            MenuPage("Approvals", "approval_list", ("approval",), words="confirm allow"),
            MenuPage("Tool versions", "approval_versions", ("approval_versions",), Right.APPROVE_CODE),
            MenuPage("Access requests", "request_list", ("request",)),
            MenuPage("Imports to review", "import_review_list", ("import_review_list",), Right.CATALOGUE),
            MenuPage("Remembered approvals", "approval_consents", ("approval_consents", "approval_consent")),
        ),
    ),
    (
        "Tools",
        "tools",
        (
            MenuPage("All tools", "tool_list", ("tool", "tools", "http_tool")),
            MenuPage("Categories", "category_list", ("category",)),
            MenuPage("Keywords", "keyword_list", ("keyword",), Right.CATALOGUE),
            MenuPage("Toolkits", "toolkit_list", ("toolkit",)),
            MenuPage("Published", "publication_list", ("publication",), Right.CATALOGUE),
            MenuPage("Why?", "explain", ("explain",), unless=Right.ROLES, words="explain access may not"),
            MenuPage("MCP servers", "server_list", ("server",), Right.CATALOGUE, opens_group=True),
            MenuPage("Imports", "import_list", ("import",), Right.CATALOGUE),
            MenuPage("Files", "tool_file_list", ("tool_file",), Right.CATALOGUE),
            MenuPage("Credentials", "credential_list", ("credential",), Right.CATALOGUE),
            MenuPage("Services", "service_list", ("service",), Right.CATALOGUE, words="set-up api keys"),
            MenuPage("Modules", "module_list", ("module",), Right.CATALOGUE),
        ),
    ),
    (
        "Agents",
        "robot",
        (
            MenuPage("Agents", "agent_list", ("agent",)),
            MenuPage("Models", "provider_list", ("provider", "model"), Right.PROVIDERS, words="providers openai key"),
            MenuPage("Prices", "price_list", ("price",), Right.BUDGETS, words="cost dollars"),
            MenuPage("Connect a client", "connect", ("connect",), words="claude cursor vs code mcp token"),
        ),
    ),
    (
        "People",
        "people",
        (
            MenuPage("Members", "member_list", ("member",), Right.MEMBERS, words="users people"),
            MenuPage("Roles", "role_list", ("role",), Right.ROLES),
            MenuPage("Matrix", "role_matrix", ("role_matrix",), Right.ROLES, words="permissions"),
            MenuPage("Grants", "grant_list", ("grant",), Right.ROLES),
            MenuPage("Why?", "explain", ("explain",), Right.ROLES, words="explain access may not"),
        ),
    ),
    (
        "Rules",
        "sliders",
        (
            MenuPage("Policies", "policy_list", ("policy",), Right.POLICIES),
            MenuPage("Approval rules", "approval_rules", ("approval_rule", "approval_rules"), Right.POLICIES),
            MenuPage("Hooks", "hook_list", ("hook",), Right.HOOKS, words="script"),
            MenuPage(
                "Runtime settings",
                "runtime_list",
                ("runtime",),
                Right.POLICIES,
                words="timeout limits calls",
            ),
            MenuPage("Budgets", "budget_list", ("budget",), Right.BUDGETS, words="limit spend"),
        ),
    ),
    (
        "Insights",
        "bar-chart-line",
        (
            MenuPage("Usage", "usage", ("usage",), words="tokens cost spend statistics"),
            MenuPage("Unused tools", "usage_unused", ("usage_unused",), Right.BUDGETS),
            MenuPage("Your budgets", "budget_mine", ("budget_mine",)),
            MenuPage("Audit", "audit_list", ("audit",), Right.AUDIT, words="history log who changed"),
        ),
    ),
)

#: At the foot of the menu.
SETTINGS = MenuPage(
    "Organisation",
    "organisation_settings",
    ("organisation_settings",),
    Right.MEMBERS,
    words="settings name time zone assistant",
)

#: Pages that stand in no entry, and forms that people look for by name, each with the place where a reader finds it.
BESIDE = (
    ("Your account", MenuPage("Your tokens", "token_list", (), words="api key secret")),
    ("Your account", MenuPage("Notifications", "browser_list", (), is_assistants=True, words="push browser")),
    ("Your account", MenuPage("My accounts", "accounts", (), words="connected sign in oauth")),
    ("Tools", MenuPage("Import tools", "import_create", (), Right.CATALOGUE, words="add openapi api document file")),
    ("Tools", MenuPage("New MCP server", "server_create", (), Right.CATALOGUE, words="add")),
    ("Tools", MenuPage("New HTTP tool", "http_tool_create", (), Right.CATALOGUE, words="add api")),
    ("Tools", MenuPage("New Python tool", "tool_python_create", (), Right.CATALOGUE, words="add code write")),
    ("Tools", MenuPage("New toolkit", "toolkit_create", (), Right.TOOLKITS, words="add")),
    ("Agents", MenuPage("New agent", "agent_create", (), Right.AGENTS, words="add")),
    ("Agents", MenuPage("New provider", "provider_create", (), Right.PROVIDERS, words="add connect model openai key")),
    ("People", MenuPage("Invite a member", "member_invite", (), Right.MEMBERS, words="add colleague user")),
    ("People", MenuPage("New role", "role_create", (), Right.ROLES, words="add")),
    ("Rules", MenuPage("New budget", "budget_create", (), Right.BUDGETS, words="add limit spend")),
    ("Rules", MenuPage("Settings of budgets", "budget_rules", (), Right.BUDGETS, words="time zone")),
    ("Foot of the menu", SETTINGS),
)

#: Pages as high as the window, which show no tabs.
WHOLE_WINDOW = frozenset({"session_detail"})

#: Counts what waits for a member on a page, and says it in a sentence. At most one query.
Waiting = Callable[[Membership], tuple[int, str]]
#: By the view of the page that shows it.
waiting_counts: ProvidedByKey[Waiting] = ProvidedByKey("counts of what waits")


def notice(count: int, one: str, many: str, *, at_most: int = 0) -> tuple[int, str]:
    """Return the count and a sentence that says it, "" for nothing. Behind `at_most`, where it is given, nothing was
    counted: "More than 99 approvals wait"."""
    if not count:
        return 0, ""
    shown = f"More than {at_most:,}" if at_most and count > at_most else f"{count:,}"
    return count, f"{shown} {one if count == 1 else many}"


@dataclass(frozen=True)
class Tab:
    """A page of an entry, for one member."""

    title: str
    url: str
    is_current: bool
    opens_group: bool
    #: Number of things that wait for the member there, and the sentence that says so; 0 and "" for nothing.
    waiting: int
    note: str
    #: The id that the count has in a page; empty where nothing can wait.
    count_id: str


@dataclass(frozen=True)
class Entry:
    """An entry of the menu, for one member. `url` is its first page's."""

    title: str
    icon: str
    url: str
    is_current: bool
    pages: tuple[Tab, ...]
    #: Sum of what waits on its pages, the sentences that say so, and the id of the count in a page, or "".
    waiting: int
    note: str
    count_id: str


@dataclass(frozen=True)
class Menu:
    """Entries in their order, with `tabs` and `title` of the one that is open: none where it has one page."""

    entries: tuple[Entry, ...]
    tabs: tuple[Tab, ...]
    title: str
    #: The page at its foot; None for who may not open it.
    settings: Tab | None = None

    @property
    def waiting(self) -> list[tuple[Entry, Tab]]:
        """Pages on which something waits, each with its entry."""
        return [(entry, page) for entry in self.entries for page in entry.pages if page.waiting]

    @property
    def waiting_in_all(self) -> int:
        return sum(entry.waiting for entry in self.entries)


def menu_for(member: Membership, request: HttpRequest) -> Menu:
    """Return the menu of this member. At most one query, and one for each kind of thing that may wait."""
    current_view = view_shown(request)
    current = page_of(current_view)
    entries = tuple(_entries(member, current))
    settings = _tab(member, SETTINGS, current) if is_for(member, SETTINGS) else None
    opened = next((entry for entry in entries if entry.is_current), None)
    if opened is None or len(opened.pages) < 2 or current_view in WHOLE_WINDOW:
        return Menu(entries, (), "", settings)
    return Menu(entries, opened.pages, opened.title, settings)


def page_of(view: str) -> str:
    """Return the view of the menu's page to which a view belongs, or ""."""
    words = [(len(word), page.view) for page in all_pages() for word in page.views if f"{view}_".startswith(f"{word}_")]
    return max(words, default=(0, ""))[1]


def all_pages() -> Iterable[MenuPage]:
    return (*(page for _, _, pages in MENU for page in pages), SETTINGS)


def view_shown(request: HttpRequest) -> str:
    """Return the name of the view whose page is open in the browser: for an htmx request the one that it came from."""
    if getattr(request, "htmx", False):
        try:
            return resolve(urlsplit(cast(str, request.htmx.current_url or "")).path).url_name or ""  # type: ignore[attr-defined]
        except (Resolver404, ValueError):
            return ""
    return getattr(request.resolver_match, "url_name", None) or ""


def _entries(member: Membership, current: str) -> Iterable[Entry]:
    """Yield the entries of the menu that the member may open."""
    for title, icon, pages in MENU:
        tabs = tuple(_tab(member, page, current) for page in pages if is_for(member, page))
        if tabs:
            yield Entry(
                title,
                icon,
                tabs[0].url,
                any(tab.is_current for tab in tabs),
                tabs,
                sum(tab.waiting for tab in tabs),
                "; ".join(tab.note for tab in tabs if tab.note),
                f"waiting-in-{title.lower()}" if any(tab.count_id for tab in tabs) else "",
            )


def is_for(member: Membership, page: MenuPage) -> bool:
    if page.is_assistants and not member.organisation.has_assistant:
        return False
    if page.unless is not None and member.reach(page.unless):
        return False
    return page.right is None or bool(member.reach(page.right))


def _tab(member: Membership, page: MenuPage, current: str) -> Tab:
    count, note = waiting_counts[page.view](member) if page.view in waiting_counts else (0, "")
    count_id = f"waiting-{page.view}" if page.view in waiting_counts else ""
    url = reverse(page.view, args=[member.organisation.slug])
    return Tab(page.title, url, page.view == current, page.opens_group, count, note, count_id)
