"""Loads of a session, now and before, and what it could load: as pages and the REST API show them, and who may change
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import CharField, Exists, OuterRef, QuerySet, Value

from capabilities.choosing.pipeline.bringing import categories_beside
from capabilities.choosing.pipeline.candidates import Bundle, Offer, offer_of
from capabilities.choosing.pipeline.permissions import permissions_at_version
from capabilities.choosing.pipeline.policies import policies_for
from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, Category, Tool
from sessions.access import may_change_loads
from sessions.models import ChatSession, LoadedToolkit, LoadSource, Turn
from sessions.selection.holdings import Holdings, Load, bundles_sent, holdings_of, in_reach
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadInputs, LoadResult, LoadTarget, reading_of
from sessions.selection.loading.writes import By
from sessions.selection.queries import Selection, meta_tools, searches_for, selected
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Reach, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: Names of a list that a sentence repeats.
NAMES_TOLD = 20
LOADS_A_PAGE = 50
#: Toolkits and categories that could be loaded, in one page: each may bring a hundred tools.
LOADABLE_AT_ONCE = 15


# -- Who may, and what is done ----------------------------------------------------------------------------------------


def load_for(place: LoadTarget, *, actor: Membership, toolkit: str = "", category: str = "") -> LoadResult:
    """Load a toolkit (or a deferred tool), or a whole category, for a person, who may change the session's loads."""
    if toolkit:
        return loading.load(place, toolkit.strip(), by=By(actor))
    if not loading.may_load_category(actor, category):
        why = f"Loading the category {category.strip()[:100]} needs the admin right load_categories for it."
        return LoadResult("not_allowed", category.strip(), why)
    return loading.load_category(place, category, by=By(actor))


def sentence_of(result: LoadResult) -> str:
    """Return the result, with the names and overrides that it carries, in one text for people."""
    parts = [result.message]
    for side in ("existing", "candidate"):
        if side in result.more:
            overrides = result.more[side]["overrides"]
            text = ", ".join(f"{name} {value:g}" for name, value in overrides.items()) or "no overrides"
            parts.append(f"{result.more[side]['from']}: {text}.")
    if result.status == "scope_incompatible":
        parts.append(f"They are {_listed(result.more['tools'])}.")
    if result.more.get("allowed"):
        parts.append(f"It may load {_listed(result.more['allowed'])}.")
    if result.more.get("needs_set_up"):
        parts.append(f"Not sent before its service is set up: {_listed(result.more['needs_set_up'])}.")
    return " ".join(parts)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return ", ".join(names[:NAMES_TOLD]) + more


# -- What is at hand --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BundleRow:
    """Bundle that is loaded or could be, with those of its tools that the session's member may use."""

    name: str
    #: The name, and of a category the title.
    title: str
    kind: str
    description: str
    tools: tuple[str, ...]
    tokens: int
    needs_set_up: tuple[str, ...]
    is_sticky: bool
    #: Where it is loaded: what brought it about, its row (an initial one may have none yet), whether it is another
    #: agent's load that the session shares.
    is_loaded: bool = False
    source: str = ""
    load_id: int | None = None
    is_shared: bool = False


@dataclass(frozen=True)
class LoadablePart:
    """Part of the loadable bundles that is read: an agent may have hundreds of toolkits."""

    #: Their name or description holds this text.
    q: str = ""
    #: Kind and name of the one before the first; empty: from the beginning.
    after: tuple[str, ...] = ()
    limit: int = LOADABLE_AT_ONCE


FIRST_PART = LoadablePart()


@dataclass(frozen=True)
class Loads:
    """One look at an agent's loads in a session."""

    place: LoadTarget
    #: Selection that a turn of this agent would carry now.
    selection: Selection
    #: In the order of the agent's allowed list; categories behind, in the order in which they were loaded.
    loaded: list[BundleRow]
    #: Bundles that it may load and has not, as far as they were asked for; and where to go on (LoadablePart).
    loadable: list[BundleRow]
    #: Whole categories that could be loaded, where they were asked for.
    categories: list[BundleRow]
    next_after: tuple[str, ...] = ()


class NoSuchPart(Exception):
    """The loadable to go on behind is not there any more."""


def loads_of(
    session: ChatSession, agent: Agent, categories: Iterable[Bundle] = (), *, part: LoadablePart = FIRST_PART
) -> Loads:
    """Return the agent's loads in the session, and a part of what it could load, with the `categories` among that.
    `agent` comes with its model and provider at hand. Raises NoSuchPart. Queries as `select_tools`."""
    place, more = LoadTarget(session, agent), tuple(categories)
    permissions, at = permissions_at_version(session.membership_id)
    holdings = holdings_of(session, agent, at=at)
    asked, next_after = _part_of([*holdings.loadable, *more], frozenset(holdings.bundles), part)
    sides = list(dict.fromkeys([*holdings.bundles, *asked]))
    offer = offer_of(agent, sides, meta=meta_tools(agent, holdings, permissions), at=at)
    policies = policies_for(permissions, at)
    reading = reading_of(place, holdings, permissions, policies, offer)
    loaded = [(each.bundle, _line(reading, each.bundle, each)) for each in holdings.loads]
    loaded += [(each, _line(reading, each, None, is_loaded=True)) for each in holdings.new_initial]
    place_of = {bundle: number for number, bundle in enumerate(holdings.loadable)}
    loaded.sort(key=lambda pair: place_of.get(pair[0], len(place_of)))
    of_categories = set(more)
    at_hand = _at_hand(agent, holdings, offer)
    reach = in_reach(agent, holdings, at=at).offer if searches_for(agent) else None
    return Loads(
        place,
        selected(session, agent, permissions, holdings, at_hand, policies=policies, reach=reach),
        [line for _, line in loaded],
        _with_tools(reading, [each for each in asked if each not in of_categories]),
        _with_tools(reading, [each for each in asked if each in of_categories]),
        next_after,
    )


def _part_of(
    bundles: Sequence[Bundle], loaded: Collection[Bundle], part: LoadablePart
) -> tuple[list[Bundle], tuple[str, ...]]:
    """Return the bundles of this part that are not loaded, and kind and name of the last, where there are more behind
    it."""
    begin = 0
    if part.after:
        keys = [(each.kind, each.name) for each in bundles]
        if part.after not in keys:
            raise NoSuchPart
        begin = keys.index((part.after[0], part.after[1])) + 1
    text = part.q.casefold()
    found = [
        each
        for each in bundles[begin:]
        if each not in loaded and (text in each.name.casefold() or text in each.description.casefold())
    ]
    asked = found[: part.limit]
    return asked, (asked[-1].kind, asked[-1].name) if len(found) > part.limit else ()


def _at_hand(agent: Agent, holdings: Holdings, offer: Offer) -> Offer:
    """Return the part of the offer that a model call may carry."""
    sent = {None, *bundles_sent(agent, holdings)}
    return Offer(tuple(way for way in offer.ways if way.bundle in sent))


def _with_tools(reading: LoadInputs, bundles: Iterable[Bundle]) -> list[BundleRow]:
    """Build a line for each bundle; one without a tool that the member may use is not listed."""
    return [line for line in (_line(reading, each) for each in bundles) if line.tools]


def _line(reading: LoadInputs, bundle: Bundle, load: Load | None = None, *, is_loaded: bool = False) -> BundleRow:
    candidates = reading.usable_of(bundle)
    specs = [each.spec for each in candidates]
    return BundleRow(
        name=bundle.name,
        title=next((spec.category_title for spec in specs if bundle.kind == "category"), bundle.name),
        kind=bundle.kind,
        description=bundle.description,
        tools=tuple(spec.name for spec in specs),
        tokens=reading.tokens_of(candidates),
        needs_set_up=tuple(spec.name for spec in specs if not spec.is_ready),
        is_sticky=bundle.is_initial,
        is_loaded=is_loaded or load is not None,
        source=load.source if load is not None else LoadSource.INITIAL if is_loaded else "",
        load_id=load.id if load is not None else None,
        is_shared=load is not None and load.agent_id != reading.place.agent.pk,
    )


# -- What stands around it --------------------------------------------------------------------------------------------


def loadable_categories(agent: Agent, reach: Reach) -> QuerySet[Category]:
    """Query the categories that a member with this reach of `load_categories` may load for the agent."""
    tools = Tool.objects.filter(category=OuterRef("pk"), current_version__isnull=False)
    found = Category.objects.filter(Exists(tools)).exclude(name=META_CATEGORY).order_by("name")
    found = categories_beside(agent, found)
    return found if EVERY_CATEGORY in reach.categories else found.filter(name__in=reach.categories)


@dataclass(frozen=True)
class Around:
    """Choices on a session's page beside its turns. Agents as (slug, name), categories as (name, title)."""

    #: Agents to talk to, in the order they were made.
    agents: list[tuple[str, str]] = field(default_factory=list)
    #: Agents that took part so far.
    used: list[tuple[str, str]] = field(default_factory=list)
    #: Categories that the reader may load.
    categories: list[tuple[str, str]] = field(default_factory=list)
    #: Names of the people who loaded something by hand, by the key of its row.
    loaders: dict[int, str] = field(default_factory=dict)


def around(session: ChatSession, agent: Agent, member: Membership) -> Around:
    """Return the agents and categories that the session's page offers this member, and who loaded what by hand. One
    query, for the page that already takes eleven."""
    kind = {name: Value(name, output_field=CharField()) for name in ("agent", "used", "category", "load")}
    empty = Value("", output_field=CharField())
    agents = Agent.objects.offered_to(member).filter(is_enabled=True).order_by()
    used = Turn.objects.filter(session=session).order_by().distinct()
    by_hand = LoadedToolkit.objects.filter(session=session, unloaded_at=None, source=LoadSource.PERSON).order_by()
    user = [f"loaded_by__user__{name}" for name in ("email", "first_name", "last_name")]
    parts = [
        agents.values_list(kind["agent"], "pk", "slug", "name", empty),
        used.values_list(kind["used"], "agent_id", "agent__slug", "agent__name", empty),
        by_hand.values_list(kind["load"], "pk", *user),
    ]
    reach = member.reach(Right.LOAD_CATEGORIES)
    if reach and may_change_loads(member, session):
        categories = loadable_categories(agent, reach).order_by()
        parts.append(categories.values_list(kind["category"], "pk", "name", "title", empty))
    found = Around()
    for what, key, one, two, three in sorted(parts[0].union(*parts[1:], all=True), key=lambda row: row[1]):
        if what == "load":
            found.loaders[key] = f"{two or ''} {three or ''}".strip() or one or ""
        else:
            {"agent": found.agents, "used": found.used, "category": found.categories}[what].append((one, two))
    found.categories.sort()
    return found


# -- History ----------------------------------------------------------------------------------------------------------


def history_of(session: ChatSession) -> QuerySet[LoadedToolkit]:
    """Query every load of the session, now or before, with who, when and by which call; in no order yet."""
    heavy = [
        f"{step}__{name}"
        for step in ("loaded_in", "unloaded_in")
        for name in ("arguments", "result", "result_sent", "text", "tool_calls")
    ]
    rows = LoadedToolkit.objects.filter(session=session)
    return rows.select_related(
        "agent", "category", "loaded_by__user", "unloaded_by__user", "loaded_in__turn", "unloaded_in__turn"
    ).defer(
        "agent__prompt",
        *heavy,
        *(f"{step}__turn__{name}" for step in ("loaded_in", "unloaded_in") for name in ("message", "answer")),
    )


def history_page(session: ChatSession, *, after: str = "", before: str = "") -> Page[LoadedToolkit]:
    """Return a page of the session's loads, now and before, the newest first. One query."""
    return Keyset(history_of(session), ("-pk",)).page(after, before)
