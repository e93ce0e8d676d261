"""Frame of every page: who is signed in, which organisation is open, and where the member can go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET
from django_htmx.http import HttpResponseClientRedirect

from toolhub import __version__
from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.models import Membership, Right, User
from toolhub.tenants.provided import ProvidedByKey

View = TypeVar("View", bound=Callable[..., Any])


def signed_in(view: View) -> View:
    """Send people without a login to the login page and back; keep what is shown out of every cache.

    An htmx request would swap the login page into the middle of ours, so its answer sends the browser there instead.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return to_login(request)
        return _private(view(request, *args, **kwargs))

    return cast(View, guarded)


def to_login(request: HttpRequest) -> HttpResponseBase:
    """The login page, with the way back to the page that was being looked at."""
    response = redirect_to_login(_way_back(request))
    if getattr(request, "htmx", False):
        return HttpResponseClientRedirect(response.url)
    return response


def _way_back(request: HttpRequest) -> str:
    if request.method in ("GET", "HEAD") and not getattr(request, "htmx", False):
        return request.get_full_path()
    page = request.headers.get("HX-Current-URL") or request.headers.get("Referer") or ""
    if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        return page
    return reverse("home")


def _private(response: HttpResponseBase) -> HttpResponseBase:
    patch_vary_headers(response, ["HX-Request"])
    if not response.has_header("Cache-Control"):
        patch_cache_control(response, private=True, no_store=True)
    return response


# -- The frame --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One line of the side menu."""

    title: str
    icon: str
    url: str
    is_current: bool
    #: Number of things that wait for the member on that page, and the sentence that says so; 0 and "" for nothing.
    waiting: int = 0
    note: str = ""
    #: The id that its count has in a page; empty where nothing can wait.
    count_id: str = ""


@dataclass(frozen=True)
class Section:
    """Some lines of the side menu under a heading; the first has none."""

    title: str
    entries: tuple[Entry, ...]


#: Heading, then (title, icon, view, first words of the views that belong to it, right that its page asks for).
MENU: tuple[tuple[str, tuple[tuple[str, str, str, str, Right | None], ...]], ...] = (
    (
        "",
        (
            ("Home", "house", "organisation_home", "organisation", None),
            ("Sessions", "chat-left-text", "session_list", "session", None),
            ("Schedules", "arrow-repeat", "schedule_list", "schedule", None),
            ("Your data", "archive", "data_overview", "data", None),
            ("Connect a client", "plug", "connect", "connect", None),
        ),
    ),
    (
        "Catalogue",
        (
            ("Tools", "tools", "tool_list", "tool http", None),
            ("Categories", "tags", "category_list", "category", None),
            ("Keywords", "key", "keyword_list", "keyword", Right.CATALOGUE),
            ("Toolkits", "box-seam", "toolkit_list", "toolkit", None),
            ("Imports", "archive", "import_list", "import", Right.CATALOGUE),
            ("Published toolkits", "send", "publication_list", "publication", Right.CATALOGUE),
            ("MCP servers", "globe2", "server_list", "server", Right.CATALOGUE),
            ("Credentials", "key", "credential_list", "credential", Right.CATALOGUE),
            ("Python modules", "list", "module_list", "module", Right.CATALOGUE),
            ("Set-up", "plug", "service_list", "service", Right.CATALOGUE),
            ("Agents", "robot", "agent_list", "agent", None),
            ("Providers", "cpu", "provider_list", "provider", Right.PROVIDERS),
        ),
    ),
    (
        "Runtime",
        (
            ("Policies", "sliders", "policy_list", "policy", Right.POLICIES),
            ("Hooks", "lightning-charge-fill", "hook_list", "hook", Right.HOOKS),
            ("Runtime settings", "cpu", "runtime_list", "runtime", Right.POLICIES),
            ("Approvals", "check-lg", "approval_list", "approval", None),
        ),
    ),
    (
        "Spending",
        (
            ("Budgets", "speedometer2", "budget_list", "budget", None),
            ("Usage", "bar-chart-line", "usage", "usage", None),
            ("Prices", "tags", "price_list", "price", Right.BUDGETS),
        ),
    ),
    (
        "Access",
        (
            ("Members", "people", "member_list", "member", Right.MEMBERS),
            ("Roles", "shield-check", "role_list", "role", Right.ROLES),
            ("Grants", "person-check", "grant_list", "grant", Right.ROLES),
            ("Requests", "hourglass-split", "request_list", "request", None),
            ("Explain", "question-circle", "explain", "explain", None),
            ("Audit", "journal-text", "audit_list", "audit", Right.AUDIT),
        ),
    ),
)


#: Counts what waits for a member on a page, and says it in a sentence. At most one query.
Waiting = Callable[[Membership], tuple[int, str]]
#: By the view of the menu's entry that shows it.
waiting_counts: ProvidedByKey[Waiting] = ProvidedByKey("counts of what waits")


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of every page. Nothing is read until a template asks: partials that show no frame pay nothing."""
    member = cast("Membership | None", getattr(request, "membership", None))
    menu: Any = SimpleLazyObject(lambda: menu_for(member, request) if member else ())
    return {
        "toolhub_version": __version__,  # `version` is a tool's on its own pages
        "member": member,
        "organisation": member.organisation if member else None,
        "menu": menu,
        "waiting_entries": SimpleLazyObject(lambda: waiting_in(menu)),
        "waiting_in_all": SimpleLazyObject(lambda: sum(each.waiting for each in waiting_in(menu))),
        "memberships": SimpleLazyObject(lambda: _memberships(request)),
    }


def waiting_in(menu: Sequence[Section]) -> list[Entry]:
    return [each for part in menu for each in part.entries if each.waiting]


def menu_for(member: Membership, request: HttpRequest) -> tuple[Section, ...]:
    """The entries whose pages would let this member in, if only for one category, and what waits there. At most one
    query, and one for each kind of thing that may wait."""
    here = getattr(request.resolver_match, "url_name", None) or ""
    slug = member.organisation.slug
    sections = []
    for heading, lines in MENU:
        entries = tuple(
            Entry(
                title,
                icon,
                reverse(view, args=[slug]),
                here.partition("_")[0] in word.split(),
                *((*waiting_counts[view](member), f"waiting-{word}") if view in waiting_counts else ()),
            )
            for title, icon, view, word, right in lines
            if right is None or member.reach(right)
        )
        if entries:
            sections.append(Section(heading, entries))
    return tuple(sections)


def _memberships(request: HttpRequest) -> list[Membership]:
    user = getattr(request, "user", None)
    return memberships_of_user(user) if isinstance(user, User) and user.is_authenticated else []


# -- The front door ---------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def home(request: HttpRequest) -> HttpResponse:
    """Straight into the only organisation; a choice where there are more; a word where there is none."""
    memberships = _memberships(request)
    if len(memberships) == 1:
        return redirect("organisation_home", org=memberships[0].organisation.slug)
    return render(request, "tenants/home.html", {"memberships": memberships})
