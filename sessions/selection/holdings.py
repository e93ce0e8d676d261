"""Tools that a session's agent has at hand, and could load: its configuration and the session's rows, read together.

Nobody's rights are asked for: that is the selection's work. A configuration that changed since a row was written is
found here (`stale`), and put on record by `loading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import BooleanField, Case, Exists, IntegerField, OuterRef, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast

from capabilities.choosing.pipeline.candidates import Bundle, InReach, Offer, offer_of, reach_of
from capabilities.common.memory import Memory
from capabilities.models import Agent, AgentTool, AgentToolkit, LoadingMode
from sessions.models import ChatSession, LoadedToolkit, Turn, UnloadReason
from toolhub.tenants.models import EVERY_CATEGORY, Access, AdminRight, Right


@dataclass(frozen=True)
class Load:
    """One row of what is loaded, as far as it counts for an agent."""

    id: int
    agent_id: int
    bundle: Bundle
    source: str
    #: Unloaded in the turn that looks: it counts until that is over, behind what has not ended.
    has_ended: bool = False


@dataclass(frozen=True)
class Holdings:
    """Bundles that an agent may load, its loads, and those of them that no longer hold."""

    #: The toolkits of the agent's configuration, in its order.
    allowed: tuple[Bundle, ...]
    #: The agent's own tools that are not sent before they are loaded.
    deferred: tuple[Bundle, ...]
    #: Loads that count, in the order in which they were made; those that have ended, behind.
    loads: tuple[Load, ...]
    #: Rows of this agent's that its configuration, or their loader's rights, no longer carry.
    stale: tuple[tuple[Load, UnloadReason], ...]

    @property
    def new_initial(self) -> list[Bundle]:
        """Initial toolkits that have no row yet: all of them at first, later those that became initial since."""
        there = {load.bundle.toolkit_id for load in self.loads}
        return [each for each in self.allowed if each.is_initial and each.toolkit_id not in there]

    @property
    def loadable(self) -> list[Bundle]:
        """Bundles that the agent may load by their names, loaded or not."""
        return [*self.allowed, *self.deferred]

    @property
    def bundles(self) -> list[Bundle]:
        """Bundles that are loaded, then those that are about to be."""
        return [*(load.bundle for load in self.loads), *self.new_initial]

    @property
    def initial(self) -> list[Bundle]:
        """Bundles that are loaded or about to be, without those that were loaded on purpose."""
        return [each for each in self.bundles if each.is_initial]


_configured: Memory[list[Any]] = Memory(256)


def holdings_of(
    session: ChatSession, agent: Agent, *, during: Turn | None = None, at: int | None = None, has_loads: bool = True
) -> Holdings:
    """Return what the agent may load, and what it has loaded, in the session. One query.

    `during` a turn, what it unloaded itself still counts: an unload shows when the turn is over. `at` a registry
    version of the organisation, what the agent may load is read once, in a query of its own; and where the session is
    known to have no loads (`has_loads`), they are not read.
    """
    if at is None:
        rows: Iterable[Any] = _allowed(agent).union(_deferred(agent), _loaded(session, agent, during), all=True)
        return _holdings(agent, rows)
    key = (agent.organisation_id, at, agent.pk)
    rows = _configured.get(key, lambda: list(_allowed(agent).union(_deferred(agent), all=True)))
    if has_loads:
        rows = [*rows, *_loaded(session, agent, during)]
    return _holdings(agent, rows)


def offer_at_hand(agent: Agent, holdings: Holdings, meta: Sequence[str] = (), *, at: int | None = None) -> Offer:
    """The tools that a model call of the agent may carry. One query, or as `offer_of` says of `at`."""
    return offer_of(agent, bundles_sent(agent, holdings), meta=meta, at=at)


def bundles_sent(agent: Agent, holdings: Holdings) -> list[Bundle]:
    """Return the bundles that a model call may carry: where the tools never change, only those that are there from the
    start."""
    return holdings.initial if agent.loading_mode == LoadingMode.CONSTANT else holdings.bundles


def in_reach(agent: Agent, holdings: Holdings, more: Sequence[Bundle] = (), *, at: int | None = None) -> InReach:
    """All that the agent has or could load: what is loaded, then every allowed toolkit and deferred tool, then `more`.
    One query, or as `reach_of` says of `at`."""
    return reach_of(agent, list(dict.fromkeys([*holdings.bundles, *holdings.loadable, *more])), at=at)


def reachable_tool_ids(session: ChatSession, agent: Agent) -> set[int]:
    """Keys of the tools that the agent has or could load here, whoever its member is. Two queries.

    A session by delegation reaches no more than it was given.
    """
    offer = in_reach(agent, holdings_of(session, agent)).offer
    found = {each.spec.tool_id for each in offer.candidates}
    return found if session.delegated_tools is None else found & set(session.delegated_tools)


def loads_in(sessions: QuerySet[ChatSession]) -> dict[Any, list[tuple[Load, bool]]]:
    """Return, for each of these sessions, by key, the loads of any agent in it, each with whether its loader may load
    it still. One query."""
    rows = LoadedToolkit.objects.filter(unloaded_at=None, session__in=sessions.values("pk")).annotate(
        loader_may=_loader_may()
    )
    found: dict[Any, list[tuple[Load, bool]]] = {}
    for key, agent, session, name, kit, category, tool, source, loader_may in rows.order_by("pk").values_list(
        "pk", "agent_id", "session_id", "name", "toolkit_id", "category_id", "tool_id", "source", "loader_may"
    ):
        categories = frozenset() if category is None else frozenset({category})
        load = Load(key, agent, Bundle(name, kit, categories, tool), source)
        found.setdefault(session, []).append((load, bool(loader_may)))
    return found


# -- Rows -------------------------------------------------------------------------------------------------------------

#: With its type: PostgreSQL takes a bare NULL of a union as text.
_NO_KEY = Cast(Value(None), IntegerField())


def _allowed(agent: Agent) -> Any:
    """A row for each toolkit of the agent and category in it."""
    return AgentToolkit.objects.filter(agent=agent).values_list(
        Value("allowed"),
        "position",
        "toolkit_id",
        "toolkit__name",
        Cast("toolkit__description", TextField()),
        "toolkit__toolkit_categories__category_id",
        _NO_KEY,
        "is_initial",
        _NO_KEY,
        Value(""),
    )


def _deferred(agent: Agent) -> Any:
    return AgentTool.objects.filter(agent=agent, is_deferred=True).values_list(
        Value("deferred"),
        "position",
        _NO_KEY,
        "tool__name",
        Value("", output_field=TextField()),
        _NO_KEY,
        "tool_id",
        "is_deferred",
        _NO_KEY,
        Value(""),
    )


def _loaded(session: ChatSession, agent: Agent, during: Turn | None) -> Any:
    """A row for each load that counts, of this agent, or where the session shares them, of any."""
    active = Q(unloaded_at=None)
    if during is not None and during.started_at is not None:
        active |= Q(unload_reason=UnloadReason.UNLOADED, unloaded_at__gte=during.started_at)
    whose = Q() if session.shares_loads else Q(agent=agent)
    return (
        LoadedToolkit.objects.filter(active, whose, session=session)
        .annotate(loader_may=_loader_may())
        .values_list(
            Case(When(unloaded_at=None, then=Value("load")), default=Value("ended")),
            "id",
            "toolkit_id",
            "name",
            Value("", output_field=TextField()),
            "category_id",
            "tool_id",
            "loader_may",
            "agent_id",
            "source",
        )
    )


def _loader_may() -> Case:
    """Build the expression that is true where the member who loaded a category may still load it."""
    delegated = AdminRight.objects.filter(
        membership=OuterRef("loaded_by"),
        right=Right.LOAD_CATEGORIES,
        category__in=[Value(EVERY_CATEGORY), OuterRef("category__name")],
    )
    return Case(
        When(Q(loaded_by__ended_at__isnull=False) | Q(loaded_by__user__is_active=False), then=False),
        When(loaded_by__access__in=[Access.ADMIN, Access.OPERATOR], then=True),
        default=Exists(delegated),
        output_field=BooleanField(),
    )


def _holdings(agent: Agent, rows: Iterable[Any]) -> Holdings:
    places: dict[int, tuple[int, str]] = {}
    deferred: dict[tuple[int, str], Bundle] = {}
    allowed: dict[int, Bundle] = {}
    loaded: dict[int, tuple[Load, bool]] = {}
    for kind, place, kit, name, text, category, tool, flag, agent_id, source in rows:
        if kind == "allowed":
            known = allowed[kit].category_ids if kit in allowed else frozenset()
            categories = known if category is None else known | {category}
            allowed[kit] = Bundle(name, kit, categories, None, bool(flag), text)
            places[kit] = (place, name)
        elif kind == "deferred":
            deferred[place, name] = Bundle(name, tool_id=tool)
        else:
            categories = frozenset() if category is None else frozenset({category})
            load = Load(place, agent_id, Bundle(name, kit, categories, tool), source, kind == "ended")
            loaded[place] = (load, bool(flag))
    order = sorted(allowed, key=lambda kit: places[kit])
    return holdings_from(
        agent,
        {kit: allowed[kit] for kit in order},
        tuple(deferred[key] for key in sorted(deferred)),
        sorted(loaded.values(), key=lambda row: (row[0].has_ended, row[0].id)),
    )


def holdings_from(
    agent: Agent, allowed: dict[int, Bundle], deferred: tuple[Bundle, ...], rows: Sequence[tuple[Load, bool]]
) -> Holdings:
    """Sort the rows into those that count, and those that do not any more: each comes with whether its loader may load
    it still.

    A toolkit that two agents of a shared session loaded counts once.
    """
    loads: list[Load] = []
    stale: list[tuple[Load, UnloadReason]] = []
    seen: set[Any] = set()
    own = {each.tool_id for each in deferred}
    for load, loader_may in rows:
        bundle = load.bundle
        reason = _why_not(bundle, allowed, own, loader_may=loader_may)
        if reason is not None:
            if load.agent_id == agent.pk and not load.has_ended:
                stale.append((load, reason))
            continue
        if bundle.toolkit_id is not None:
            bundle = allowed[bundle.toolkit_id]
        if bundle not in seen:
            seen.add(bundle)
            loads.append(replace(load, bundle=bundle))
    return Holdings(tuple(allowed.values()), deferred, tuple(loads), tuple(stale))


def _why_not(
    bundle: Bundle, allowed: dict[int, Bundle], deferred: set[int | None], *, loader_may: bool
) -> UnloadReason | None:
    if bundle.toolkit_id is not None:
        return None if bundle.toolkit_id in allowed else UnloadReason.NOT_ALLOWED
    if bundle.category_ids:
        return None if loader_may else UnloadReason.RIGHT_GONE
    if bundle.tool_id is not None:
        return None if bundle.tool_id in deferred else UnloadReason.NOT_ALLOWED
    return UnloadReason.GONE
