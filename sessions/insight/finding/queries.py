"""Finds pages and things by words of their names, misspelt too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Coalesce, Concat, NullIf, Trim
from django.urls import reverse
from rapidfuzz import fuzz

from capabilities.models import Agent, Category, LanguageModel, McpServer, Role, Tool, Toolkit
from sessions.access import kept_sessions_of
from toolhub.tenants.menu import BESIDE, MENU, MenuPage, is_for
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.people.writes import current_members

#: Rows shown of each kind.
SHOWN = 5
#: Sessions that are looked at, the last ones first.
LATEST_SESSIONS = 500
#: Letters of a word from which on it may be misspelt, and how alike a part of a name has to be: 100 is the same.
#: "calender" is 87 like "calendar_create", "mail" 75 like "main".
LEAST_LETTERS, LEAST_ALIKE = 4, 80


@dataclass(frozen=True)
class Found:
    """A page or a thing: its name, a word about it, and its page."""

    title: str
    detail: str
    url: str


@dataclass(frozen=True)
class FoundGroup:
    """Found pages or things of one kind, the best first, at most SHOWN."""

    title: str
    icon: str
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of thing: rows that the member may see, and the fields that give the argument of its page, its name, and a
    word about it, which is looked through as well."""

    title: str
    icon: str
    view: str
    rows: Callable[[Membership], QuerySet[Any]]
    fields: tuple[Any, Any, Any]
    right: Right | None = None


NOTHING = Value("", output_field=CharField())
_PERSON = Concat(F("user__first_name"), Value(" "), F("user__last_name"))
PERSON = Coalesce(NullIf(Trim(_PERSON), Value("")), F("user__email"), output_field=CharField())

KINDS = (
    Kind(
        "Tools",
        "tools",
        "tool_detail",
        lambda _: Tool.objects.filter(current_version__isnull=False),
        ("name", F("name"), "category__title"),
    ),
    Kind("Toolkits", "box-seam", "toolkit_detail", lambda _: Toolkit.objects.all(), ("name", F("name"), "description")),
    Kind("Agents", "robot", "agent_detail", Agent.objects.seen_by, ("slug", "name", "description")),
    Kind(
        "Sessions",
        "chat-left-text",
        "session_detail",
        lambda member: kept_sessions_of(member).order_by("-active_at", "-pk")[:LATEST_SESSIONS],
        ("pk", "title", "agent__name"),
    ),
    Kind(
        "Members",
        "people",
        "member_detail",
        lambda _: current_members().prefetch_related(None),
        ("public_id", PERSON, "user__email"),
        Right.MEMBERS,
    ),
    Kind(
        "Roles",
        "shield-check",
        "role_detail",
        lambda _: Role.objects.all(),
        ("slug", "name", "description"),
        Right.ROLES,
    ),
    Kind(
        "Categories",
        "tags",
        "category_update",
        lambda _: Category.objects.all(),
        ("name", "title", F("name")),
        Right.CATALOGUE,
    ),
    Kind(
        "MCP servers",
        "globe2",
        "server_detail",
        lambda _: McpServer.objects.all(),
        ("name", "title", F("name")),
        Right.CATALOGUE,
    ),
    Kind(
        "Models",
        "cpu",
        "provider_update",
        lambda _: LanguageModel.objects.all(),
        ("provider__slug", "name", "provider__name"),
        Right.PROVIDERS,
    ),
)


def find(member: Membership, text: str) -> list[FoundGroup]:
    """Return pages and things whose names hold each word of the text, those of misspelt words behind them. One query a
    kind that the member may see; none for an empty text."""
    words = text.casefold().split()
    if not words:
        return []
    groups = [FoundGroup("Pages", "list", _best(words, _pages(member)))]
    for kind in KINDS:
        if kind.right is None or member.reach(kind.right):
            groups.append(FoundGroup(kind.title, kind.icon, _best(words, _things(kind, member))))
    return [group for group in groups if group.found]


def _pages(member: Membership) -> Iterable[tuple[str, str, str, Callable[[], str]]]:
    slug = member.organisation.slug
    for title, _, pages in MENU:
        for page in pages:
            if is_for(member, page):
                yield page.title, title, page.words, _address(page, slug)
    for title, page in BESIDE:
        if is_for(member, page):
            yield page.title, title, page.words, _address(page, slug)


def _address(page: MenuPage, slug: str) -> Callable[[], str]:
    return partial(reverse, page.view, args=[slug])


def _things(kind: Kind, member: Membership) -> Iterable[tuple[str, str, str, Callable[[], str]]]:
    slug = member.organisation.slug
    for key, title, detail in kind.rows(member).values_list(*kind.fields):
        yield title, detail, detail, partial(reverse, kind.view, args=[slug, key])


def _best(words: list[str], rows: Iterable[tuple[str, str, str, Callable[[], str]]]) -> tuple[Found, ...]:
    scored = []
    for title, detail, more, url in rows:
        score = _score(words, title.casefold(), more.casefold())
        if score:
            scored.append((-score, len(title), title, detail, url))
    scored.sort(key=lambda row: row[:3])
    return tuple(Found(title, detail, url()) for _, _, title, detail, url in scored[:SHOWN])


def _score(words: list[str], title: str, more: str) -> float:
    """Return how well a name fits: 0 for not at all, more the better. Each word counts by where it was found: at the
    beginning of the name, in it, in the word about it, or misspelt."""
    scores = [_score_of(word, title, more) for word in words]
    return sum(scores) if all(scores) else 0


def _score_of(word: str, title: str, more: str) -> float:
    if word in title:
        return 300 if title.startswith(word) else 200
    if word in more:
        return 100
    if len(word) < LEAST_LETTERS:
        return 0
    alike = fuzz.partial_ratio if len(title) > len(word) else fuzz.ratio
    return alike(word, title, score_cutoff=LEAST_ALIKE) / 2
