"""Hits of `search_tools`: tools that a turn does not carry and that can be had, each with the way to it. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from capabilities.choosing.pipeline.candidates import Bundle, Candidate
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.choosing.pipeline.specs import specs
from capabilities.choosing.pipeline.stages import LOADABLE_STAGES, narrowed
from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.choosing.routing.tool_search import Searched, score_of, words_of
from capabilities.models import LoadingMode, Tool, ToolVersion
from sessions.models import Step, StepKind
from sessions.selection.holdings import offer_at_hand
from sessions.selection.loading.loadable import LoadInputs, LoadTarget, read_place
from sessions.selection.loading.queries import loadable_categories
from sessions.selection.queries import meta_tools, selected

#: Tools found by the words, at most, that are looked up in categories.
MOST_IN_CATEGORIES = 200


class How(StrEnum):
    """Way to get a tool that was found."""

    #: It is loaded, and comes later by itself.
    LOADED = "loaded"
    #: The message did not call for it: it comes with the turn's next model call.
    LEFT_OUT = "left_out"
    #: By a load of the toolkit or the tool that it comes with; where the tools never change, by `call_tool`.
    LOAD = "load"
    #: By `call_tool`, from a client that is not shown each tool.
    CALL = "call"
    #: By a load of its whole category.
    CATEGORY = "category"


@dataclass(frozen=True)
class Hit:
    """A tool that was found, with its score."""

    candidate: Candidate
    score: int
    how: How


def search_place(place: LoadTarget, query: str, max_results: int, turn_id: UUID | None) -> list[Hit]:
    """Return the tools at this place that match best, at most `max_results`. Three queries and those of `search_names`;
    three more in a turn, one for who may load whole categories."""
    reading = read_place(place)
    to_search = () if reading.searches else reading.to_search
    found = {each.spec.name: (each, How.LOAD) for each in to_search}
    is_left_out = How.LEFT_OUT if is_routed(place.agent) else How.LOADED
    for each in _not_yet_sent(reading, turn_id):
        found[each.spec.name] = (each, is_left_out if each.is_routable else How.LOADED)
    for each in _in_categories(reading, query):
        found.setdefault(each.spec.name, (each, How.CATEGORY))
    ranked = _ranked(query, {name: each for name, (each, _) in found.items()})[:max_results]
    return [Hit(found[name][0], score_of(query, _searched(found[name][0])), found[name][1]) for name in ranked]


def search_offered(candidates: Sequence[Candidate], query: str, max_results: int) -> list[Hit]:
    """Return those of the candidates that match best, at most `max_results`; each is had by `call_tool`. The queries of
    `search_names`."""
    found = {each.spec.name: each for each in candidates}
    ranked = _ranked(query, found)[:max_results]
    return [Hit(found[name], score_of(query, _searched(found[name])), How.CALL) for name in ranked]


def _ranked(query: str, candidates: Mapping[str, Candidate]) -> list[str]:
    """Return the candidates' names as the catalogue's search ranks them; then those that only the name of their bundle
    finds."""
    names = [name for name in search_names(query, near=True) if name in candidates]
    bundles = {each.bundle.name for each in candidates.values() if each.bundle}
    words = set(words_of(query))
    matching = {name for name in bundles if words.intersection(words_of(name))}
    named = {name for name, each in candidates.items() if each.bundle and each.bundle.name in matching}
    return [*names, *sorted(named.difference(names))]


def _not_yet_sent(reading: LoadInputs, turn_id: UUID | None) -> Sequence[Candidate]:
    """Return the tools that the session's next selection carries, and this turn's last model call did not."""
    agent = reading.place.agent
    if turn_id is None or agent.loading_mode == LoadingMode.CONSTANT:
        return ()
    last = Step.objects.filter(turn=turn_id, kind=StepKind.MODEL, tool_set__isnull=False).order_by("-index")
    versions = last.values_list("tool_set__version_ids", flat=True).first() or []
    carried = set(ToolVersion.objects.filter(pk__in=versions).values_list("tool_id", flat=True))
    at_hand = offer_at_hand(agent, reading.holdings, meta_tools(agent, reading.holdings, reading.permissions))
    selection = selected(
        reading.place.session,
        agent,
        reading.permissions,
        reading.holdings,
        at_hand,
        policies=reading.policies,
        why_asks=reading.why_asks,
    )
    coming = {tool.tool_id for tool in selection.tools} - carried
    return [each for each in at_hand.candidates if each.spec.tool_id in coming]


def _in_categories(reading: LoadInputs, query: str) -> list[Candidate]:
    """Tools that the query finds in categories that the member may load here, as far as the member may use them."""
    place, permissions = reading.place, reading.permissions
    names = search_names(query, near=True)[:MOST_IN_CATEGORIES] if reading.loads_categories else ()
    if not names:
        return []
    categories = loadable_categories(place.agent, permissions.loads).order_by()
    tools = specs(Tool.objects.filter(name__in=names, category__in=categories))
    candidates = [Candidate(each, "", Bundle(each.category, None, frozenset({each.category_id}))) for each in tools]
    usable, _ = narrowed(reading.situation, candidates, LOADABLE_STAGES)
    there = {each.spec.tool_id for each in reading.offer.candidates}
    return [each for each in usable if each.spec.tool_id not in there]


def _searched(candidate: Candidate) -> Searched:
    function = candidate.spec.definition["function"]
    title = candidate.bundle.name if candidate.bundle else ""
    return Searched(candidate.spec.name, title, function["description"], candidate.spec.category)
