"""Loads and unloads of a session: toolkits, whole categories, deferred tools of its agent. The writes, with history.

Whoever changes what is loaded begins by raising the session's count of loads in the same transaction: on any database
that holds the row, so that two at once come one after the other, and neither is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from capabilities.choosing.pipeline.bringing import begins_with_category
from capabilities.choosing.pipeline.candidates import Bundle
from capabilities.choosing.pipeline.permissions import permissions_of
from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, AgentToolkit, Category, LoadingMode, Toolkit
from sessions.models import ChatSession, LoadedToolkit, LoadSource, Step, StepStatus, UnloadReason
from sessions.selection.holdings import Holdings, Load, holdings_of
from sessions.selection.loading.loadable import LoadInputs, LoadResult, LoadTarget, not_loadable, read_place, why_not
from sessions.selection.queries import Selection, loading_tools
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

logger = logging.getLogger(__name__)

#: When a load shows, by the agent's loading mode, and how that is said.
TAKES_EFFECT = {
    LoadingMode.NEXT_REQUEST: ("next_request", "will be available on the next request in this session"),
    LoadingMode.SAME_RUN: ("next_round", "will be available with your next step, not within this batch of calls"),
    LoadingMode.NATIVE: ("next_round", "will be available with your next step, not within this batch of calls"),
    LoadingMode.NATIVE_SEARCH: ("next_round", "will be available with your next step, not within this batch of calls"),
    LoadingMode.CONSTANT: ("now", "can be searched with search_tools and called with call_tool"),
}
#: Answer to a request without a category's name.
CATEGORY_REQUIRED = "A category name is required."
#: Kinds of things that can be loaded. A toolkit and a category may have one name.
KINDS = ("toolkit", "category", "tool")

#: Why an agent has none of the tools that load others.
NOTHING_TO_LOAD = "its tools come by themselves to an agent that has something to load, and this one has nothing."


@dataclass(frozen=True)
class By:
    """Origin of a request: a person, or a call of the model, which asks for the session's own member."""

    member: Membership
    source: LoadSource = LoadSource.PERSON
    step_id: int | None = None
    #: The turn has used up its continuations: what it loads comes with the next one.
    next_turn: bool = False


# -- Load -------------------------------------------------------------------------------------------------------------


@transaction.atomic
def load(place: LoadTarget, name: str, *, by: By) -> LoadResult:
    """Load a toolkit, or a deferred tool of the agent's own, by its name."""
    hold(place.session)
    if is_overtaken(by):
        return _overtaken(name)
    reading = read_place(place)
    bundle = next((each for each in reading.holdings.loadable if each.name == name), None)
    if bundle is None:
        return not_loadable(reading, name)
    return _load_bundle(reading, bundle, by)


@transaction.atomic
def load_category(place: LoadTarget, name: str, *, by: By) -> LoadResult:
    """Load a whole category by its name. The caller has checked the admin right for it; `may_load_category`."""
    name = name.strip()
    if not name:
        return LoadResult("unknown", name, CATEGORY_REQUIRED)
    category = Category.objects.filter(name=name).first()
    if category is None:
        return LoadResult("unknown", name, f"Unknown tool category: {name[:100]}")
    if category.name == META_CATEGORY and not has_meta_tools(place):
        return LoadResult("not_allowed", category.name, f"{category.name} is not loaded: {NOTHING_TO_LOAD}")
    if is_there_anyway(place.agent, category):
        return LoadResult("already_loaded", category.name, f"{category.name} is there from the start.")
    hold(place.session)
    if is_overtaken(by):
        return _overtaken(name)
    bundle = Bundle(category.name, category_ids=frozenset({category.pk}))
    return _load_bundle(read_place(place, bundle), bundle, by)


def is_there_anyway(agent: Agent, category: Category) -> bool:
    """Return whether the category needs no load: the agent begins with it, or it holds the meta-tools."""
    return category.name == META_CATEGORY or begins_with_category(agent, category)


def has_meta_tools(place: LoadTarget) -> bool:
    """Return whether the agent gets any of the tools that load others. Two queries."""
    return bool(
        loading_tools(place.agent, holdings_of(place.session, place.agent), permissions_of(place.session.membership_id))
    )


def may_load_category(member: Membership, name: str) -> bool:
    """Return whether the member holds the admin right `load_categories`, whole or for this category."""
    return member.reach(Right.LOAD_CATEGORIES).covers(name.strip())


def is_overtaken(by: By) -> bool:
    """Return whether the call that asks has its answer already: its worker lost the turn, or it ran beyond its time.
    Asked with the session's row held: a worker that goes on with the call comes later."""
    return by.step_id is not None and not Step.objects.filter(pk=by.step_id, status=StepStatus.STARTED).exists()


def _overtaken(name: str) -> LoadResult:
    return LoadResult("error", name, "Not done: this call has ended meanwhile.")


def _load_bundle(reading: LoadInputs, bundle: Bundle, by: By) -> LoadResult:
    if bundle in reading.holdings.bundles:
        if _is_of_this_call(by, bundle):
            return _loaded(reading, bundle, by)
        return LoadResult("already_loaded", bundle.name, f"{bundle.name} is loaded already.")
    refused = why_not(reading, bundle)
    if refused is not None:
        return refused
    drop([each for each in reading.holdings.stale if each[0].bundle.category_ids & bundle.category_ids])
    row = LoadedToolkit.objects.create(
        organisation_id=reading.place.session.organisation_id,
        session=reading.place.session,
        agent=reading.place.agent,
        toolkit_id=bundle.toolkit_id,
        category_id=next(iter(bundle.category_ids)) if bundle.toolkit_id is None and bundle.category_ids else None,
        tool_id=bundle.tool_id,
        name=bundle.name,
        source=by.source,
        loaded_by=by.member,
        loaded_in_id=by.step_id,
    )
    count_load(reading.place.session)
    if by.source == LoadSource.PERSON:
        record("session.load", row, actor=by.member, after=_audited(reading.place, bundle))
    return _loaded(reading, bundle, by)


def _is_of_this_call(by: By, bundle: Bundle) -> bool:
    """Return whether an earlier worker made this load for the same call, and got no further."""
    rows = LoadedToolkit.objects.filter(loaded_in=by.step_id, name=bundle.name, unloaded_at=None)
    return by.step_id is not None and rows.exists()


def _loaded(reading: LoadInputs, bundle: Bundle, by: By) -> LoadResult:
    found = reading.loadable_of(bundle)
    when, words = takes_effect(reading.place.agent, by)
    more: dict[str, Any] = {"tools": [each.spec.name for each in found.tools], "takes_effect": when}
    if found.needs_set_up:
        more["needs_set_up"] = found.needs_set_up
    return LoadResult("loaded", bundle.name, f"{bundle.kind.title()} '{bundle.name}' {words}.", more)


def takes_effect(agent: Agent, by: By) -> tuple[str, str]:
    """Return when a change shows, as a word for programs and as words for the model."""
    mode = LoadingMode(agent.loading_mode)
    if mode.is_in_turn and by.next_turn:
        mode = LoadingMode.NEXT_REQUEST
    return TAKES_EFFECT[mode]


# -- Unload -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def unload(place: LoadTarget, name: str, *, by: By, kind: str = "") -> LoadResult:
    """Unload a toolkit, a category or a deferred tool by its name. What is initial stays.

    `kind` is one of KINDS. It is needed where two of this name are loaded: without it both stay (`ambiguous`).
    """
    hold(place.session)
    if is_overtaken(by):
        return _overtaken(name)
    holdings = holdings_of(place.session, place.agent)
    loaded = [each.bundle for each in holdings.loads if each.bundle.name == name and not each.bundle.is_initial]
    ending = [each for each in loaded if kind in ("", each.kind)]
    kinds = sorted({each.kind for each in ending}, key=KINDS.index)
    if len(kinds) > 1:
        return _ambiguous(name, kinds)
    if not ending:
        return _not_unloaded(place, holdings, name, kind)
    rows = _rows_of(place, ending)
    keeper = _keeper(rows)
    if keeper is not None:
        return LoadResult("sticky", name, f"{name} belongs to the agent {keeper} from the start, and stays.")
    _end(place.session, rows, by)
    when = "now" if place.agent.loading_mode == LoadingMode.CONSTANT else "next_request"
    message = f"{ending[0].kind.title()} '{name}' will no longer be available on the next request in this session."
    return LoadResult("unloaded", name, message, {"takes_effect": when})


def _ambiguous(name: str, kinds: Sequence[str]) -> LoadResult:
    which = " and ".join(f"a {kind}" for kind in kinds)
    how = f"Say which one with kind: {', '.join(kinds)}."
    message = f"Nothing is unloaded: {which} of the name {name} are loaded. {how}"
    return LoadResult("ambiguous", name, message, {"kinds": list(kinds)})


def _not_unloaded(place: LoadTarget, holdings: Holdings, name: str, kind: str) -> LoadResult:
    """Build the result where nothing of this name and kind can be unloaded: the agent has it from the start, it is not
    loaded, or it is unknown."""
    known = [each for each in holdings.loadable if each.name == name and kind in ("", each.kind)]
    category = Category.objects.filter(name=name).first() if kind in ("", "category") else None
    is_core = not known and category is not None and is_there_anyway(place.agent, category)
    if is_core and name == META_CATEGORY:
        is_core = has_meta_tools(place)
    if is_core or any(each.is_initial for each in known):
        return LoadResult("sticky", name, f"{name} belongs to this agent from the start, and stays.")
    if known or category is not None:
        return LoadResult("not_loaded", name, f"{name} is not loaded.")
    allowed = {"allowed": [each.bundle.name for each in read_place(place).loadable]}
    return LoadResult("unknown", name, f"There is no {kind or 'toolkit'} {name[:100]}.", allowed)


def _rows_of(place: LoadTarget, bundles: Sequence[Bundle]) -> list[LoadedToolkit]:
    """The agent's rows of these; where the session shares its loads, whichever agent loaded them."""
    whose: dict[str, Any] = {} if place.session.shares_loads else {"agent": place.agent}
    found: list[LoadedToolkit] = []
    for bundle in bundles:
        same: dict[str, Any] = {"toolkit": bundle.toolkit_id, "tool": bundle.tool_id}
        if bundle.toolkit_id is None:
            same["category"] = next(iter(bundle.category_ids), None)
        found += LoadedToolkit.objects.filter(session=place.session, unloaded_at=None, **whose, **same)
    return found


def _keeper(rows: Sequence[LoadedToolkit]) -> Agent | None:
    """Return an agent that has one of these as an initial toolkit; None where there is none."""
    for row in rows:
        line = AgentToolkit.objects.filter(agent=row.agent_id, toolkit=row.toolkit_id, is_initial=True)
        if row.toolkit_id is not None and (keeper := line.select_related("agent").first()):
            return keeper.agent
    return None


def _end(session: ChatSession, rows: Sequence[LoadedToolkit], by: By) -> None:
    for row in rows:
        LoadedToolkit.objects.filter(pk=row.pk).update(
            unloaded_at=Now(),
            unload_reason=UnloadReason.UNLOADED,
            unloaded_by=by.member,
            unloaded_in_id=by.step_id,
        )
        if by.source == LoadSource.PERSON:
            record("session.unload", row, actor=by.member, before={"session": str(session.pk), "name": row.name})
    count_load(session)


@transaction.atomic
def share_loads(session: ChatSession, shares: bool, *, actor: Membership) -> None:
    """Set whether what one agent loaded is there for the other agents too. The value that is set already changes
    nothing."""
    changed = ChatSession.objects.filter(pk=session.pk, shares_loads=not shares).update(
        shares_loads=shares, load_count=F("load_count") + 1
    )
    if changed:
        before, after = {"shares_loads": not shares}, {"shares_loads": shares}
        record("session.share_loads", session, actor=actor, before=before, after=after)


# -- Upkeep -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def settle(place: LoadTarget, selection: Selection) -> None:
    """Put on record what a selection found: initial toolkits that have no row yet, rows that hold no longer.

    Nothing else changes, so the selection stands.
    """
    hold(place.session)
    names = dict(Toolkit.objects.filter(pk__in=selection.new_initial).values_list("pk", "name"))
    there = set(
        LoadedToolkit.objects.filter(session=place.session, agent=place.agent, unloaded_at=None).values_list(
            "toolkit_id", flat=True
        )
    )
    LoadedToolkit.objects.bulk_create(
        LoadedToolkit(
            organisation_id=place.session.organisation_id,
            session=place.session,
            agent=place.agent,
            toolkit_id=key,
            name=names[key],
            source=LoadSource.INITIAL,
        )
        for key in selection.new_initial
        if key in names and key not in there
    )
    drop(selection.stale)
    for load, reason in selection.stale:
        what = f"{load.bundle.kind} {load.bundle.name}"
        logger.warning("Session %s: %s is no longer loaded (%s)", place.session.pk, what, reason)


def drop(stale: Sequence[tuple[Load, UnloadReason]]) -> None:
    """End these rows, each for its reason. The session's row is held."""
    for load, reason in stale:
        LoadedToolkit.objects.filter(pk=load.id, unloaded_at=None).update(unloaded_at=Now(), unload_reason=reason)


def hold(session: ChatSession) -> None:
    """Hold the session's row until this transaction ends: what is read from here on, nobody changes meanwhile.

    Whether it shares its loads is read anew: that may have changed since the caller read it.
    """
    ChatSession.objects.filter(pk=session.pk).update(load_count=F("load_count"))
    session.refresh_from_db(fields=["shares_loads"])


def count_load(session: ChatSession) -> None:
    """Count a change of the session's loads, so that a running turn that may react sees it."""
    ChatSession.objects.filter(pk=session.pk).update(load_count=F("load_count") + 1)


def _audited(place: LoadTarget, bundle: Bundle) -> dict[str, Any]:
    return {"session": str(place.session.pk), "agent": place.agent.slug, "name": bundle.name, "what": bundle.source}
