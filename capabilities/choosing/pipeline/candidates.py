"""Sources that bring a tool within an agent's reach, in their order: its own, the core, toolkits, loaded categories.

No rights are asked for here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import FilteredRelation, Q, QuerySet

from capabilities.choosing.pipeline.bringing import CORE, OWN, OwnLine, comes_with_core, is_own, tools_from_start
from capabilities.choosing.pipeline.specs import SPEC, spec_annotations, spec_of
from capabilities.common.memory import Memory
from capabilities.contract.envelope import NO_OVERRIDES, Overrides, overrides_of
from capabilities.contract.loading import META_TOOLS, RESERVED_TOOLS
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, AgentToolkit, Tool, ToolkitTool


@dataclass(frozen=True)
class Bundle:
    """Bundle that is loaded as one: a toolkit with its categories, a category, or a deferred tool of the agent's."""

    name: str
    toolkit_id: int | None = None
    category_ids: frozenset[int] = frozenset()
    tool_id: int | None = None
    is_initial: bool = False
    description: str = ""

    def __hash__(self) -> int:
        """Hash of the fields that name it: bundles are looked up for each tool."""
        return hash((self.name, self.toolkit_id, self.tool_id))

    @property
    def kind(self) -> str:
        """Kind of the bundle: `toolkit`, `category` or `tool`."""
        if self.toolkit_id is not None:
            return "toolkit"
        return "category" if self.tool_id is None else "tool"

    @property
    def source(self) -> str:
        return f"toolkit {self.name}" if self.kind == "toolkit" else f"loaded {self.kind} {self.name}"


@dataclass(frozen=True)
class Candidate:
    """A tool that something brought in, and what."""

    spec: ToolSpec
    source: str
    bundle: Bundle | None = None
    #: Whether it is the agent's own and sent whatever the message.
    is_pinned: bool = False

    @property
    def is_routable(self) -> bool:
        """True where it may stay out if a message does not need it: no tool that loads others, and none that somebody
        loaded."""
        return is_routable_source(self.source)


def is_routable_source(source: str) -> bool:
    """Return whether a candidate of this source may stay out where a message does not need it."""
    return source == OWN or source.startswith(CORE)


@dataclass(frozen=True)
class Clash:
    """One tool from two sides that do not agree on its overrides; the first one stands."""

    existing: Candidate
    candidate: Candidate


@dataclass(frozen=True)
class Offer:
    """Every way in which a tool comes to the agent, in the order in which they are sent."""

    ways: tuple[Candidate, ...]

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every tool once, from the first side that brings it."""
        found: dict[int, Candidate] = {}
        for way in self.ways:
            found.setdefault(way.spec.tool_id, way)
        return tuple(found.values())

    @cached_property
    def routable(self) -> tuple[ToolSpec, ...]:
        """The tools that a message may leave out, by name, whoever may use them."""
        specs = (each.spec for each in self.candidates if each.is_routable)
        return tuple(sorted(specs, key=lambda spec: spec.name))

    @property
    def clashes(self) -> list[Clash]:
        first = {each.spec.tool_id: each for each in self.candidates}
        pairs = ((first[way.spec.tool_id], way) for way in self.ways)
        return [Clash(known, way) for known, way in pairs if known.spec.overrides != way.spec.overrides]

    @cached_property
    def _ways_of(self) -> dict[Bundle | None, list[Candidate]]:
        found: dict[Bundle | None, list[Candidate]] = defaultdict(list)
        for way in self.ways:
            found[way.bundle].append(way)
        return found

    @cached_property
    def ways_to(self) -> Mapping[int, Sequence[Candidate]]:
        """Every way in which a tool comes, by the tool's key."""
        found: dict[int, list[Candidate]] = defaultdict(list)
        for way in self.ways:
            found[way.spec.tool_id].append(way)
        return dict(found)

    def tools_of(self, bundle: Bundle) -> tuple[Candidate, ...]:
        """Return the candidates that this bundle brings, whoever else brings them too."""
        return tuple(self._ways_of.get(bundle, ()))


@dataclass
class Row:
    """One tool with its lines: its place among the agent's own, and in each toolkit."""

    spec: ToolSpec
    is_core: bool
    place: int | None
    is_deferred: bool
    kits: dict[int, tuple[int, Overrides]] = field(default_factory=dict)
    is_pinned: bool = False

    @property
    def line(self) -> OwnLine:
        return OwnLine(self.place, self.is_deferred)


def toolkits_of(agent: Agent) -> list[Bundle]:
    """The toolkits that the agent may load, in its order. One query."""
    lines = AgentToolkit.objects.filter(agent=agent).order_by("position", "toolkit__name")
    found: dict[int, Bundle] = {}
    for key, name, text, initial, category in lines.values_list(
        "toolkit_id",
        "toolkit__name",
        "toolkit__description",
        "is_initial",
        "toolkit__toolkit_categories__category_id",
    ):
        known = found[key].category_ids if key in found else frozenset()
        categories = known if category is None else known | {category}
        found[key] = Bundle(name, key, categories, None, initial, text)
    return list(found.values())


_offers: Memory[Offer] = Memory(64)


def offer_of(agent: Agent, bundles: Sequence[Bundle] = (), *, meta: Sequence[str] = (), at: int | None = None) -> Offer:
    """Return the agent's tools with these bundles, in the order that is kept: its own tools, the core categories, these
    meta-tools, then each bundle. One query, whatever the number of tools and bundles; none where it was read before
    `at` this registry version of the organisation.

    A toolkit brings its listed tools in its order, then those of its categories by category and name. A deferred tool
    comes only with its bundle.
    """

    def read() -> Offer:
        return offer_from(rows_of(agent, bundles, meta), agent, bundles, meta=meta)

    if at is None:
        return read()
    return _offers.get((agent.organisation_id, at, agent.pk, tuple(bundles), tuple(meta)), read)


@dataclass(frozen=True)
class InReach:
    """The tools that an agent has or could load, and the meta-tools, by category and name; and every way to them."""

    rows: Mapping[int, Row]
    offer: Offer


#: Few: what reaches ten thousand tools takes 20 MB.
_reaches: Memory[InReach] = Memory(3)


def reach_of(agent: Agent, bundles: Sequence[Bundle], *, at: int | None = None) -> InReach:
    """Return the tools that these bundles and the agent itself bring. Queries as `offer_of`. Do not change its rows."""

    def read() -> InReach:
        rows = rows_of(agent, bundles, sorted(META_TOOLS))
        return InReach({row.spec.tool_id: row for row in rows}, offer_from(rows, agent, bundles))

    return read() if at is None else _reaches.get((agent.organisation_id, at, agent.pk, tuple(bundles)), read)


def offer_from(rows: Sequence[Row], agent: Agent, bundles: Sequence[Bundle] = (), *, meta: Sequence[str] = ()) -> Offer:
    """Build the offer of `offer_of` from rows that were read already; rows that none of these sides brings are left
    out."""
    return Offer(tuple(_ways_in(agent, rows, bundles, meta)))


def candidates_for(agent: Agent) -> list[Candidate]:
    """Return the candidates that a session with the agent begins with, apart from the meta-tools. Two queries."""
    return list(offer_of(agent, [each for each in toolkits_of(agent) if each.is_initial]).candidates)


def rows_of(agent: Agent, bundles: Sequence[Bundle] = (), meta: Sequence[str] = ()) -> list[Row]:
    """The tools that any of these sides brings, by category and name: as they are re-worded, their order stays.

    One query. It reads the lines of all toolkits that hold one of these tools: to look for each tool in each of 200
    toolkits costs a database more.
    """
    toolkit_ids = {each.toolkit_id for each in bundles if each.toolkit_id is not None}
    tools = Tool.objects.annotate(
        own=FilteredRelation("agent_tools", condition=Q(agent_tools__agent=agent)), **spec_annotations()
    ).filter(pk__in=_brought_by(agent, bundles, toolkit_ids, meta), current_version__isnull=False)
    found: dict[int, Row] = {}
    for (
        *columns,
        is_core,
        position,
        is_deferred,
        is_pinned,
        toolkit_id,
        toolkit_position,
        timeout,
        chars,
        knobs,
    ) in tools.values_list(
        *SPEC,
        "category__is_core",
        "own__position",
        "own__is_deferred",
        "own__is_pinned",
        "toolkit_tools__toolkit_id",
        "toolkit_tools__position",
        "toolkit_tools__timeout",
        "toolkit_tools__max_result_chars",
        "toolkit_tools__knobs",
    ):
        row = found.get(columns[0])
        if row is None:
            row = found[columns[0]] = Row(
                spec_of(columns), is_core, position, bool(is_deferred), is_pinned=bool(is_pinned)
            )
        if toolkit_id in toolkit_ids:
            row.kits[toolkit_id] = (toolkit_position, overrides_of(timeout, chars, knobs))
    return sorted(found.values(), key=lambda row: (row.spec.category, row.spec.name))


def _brought_by(
    agent: Agent, bundles: Sequence[Bundle], toolkit_ids: Collection[int], meta: Sequence[str]
) -> QuerySet[Any, Any]:
    """Keys of the tools that any of these sides brings, each side by its own index."""
    categories = {key for each in bundles for key in each.category_ids}
    singles = {each.tool_id for each in bundles if each.tool_id is not None}
    first, *queries = tools_from_start(agent)
    if agent.has_every_tool:
        return first
    if toolkit_ids:
        queries.append(ToolkitTool.objects.filter(toolkit__in=toolkit_ids).values_list("tool_id"))
    if categories:
        queries.append(Tool.objects.filter(category__in=categories).values_list("pk"))
    if singles:
        queries.append(Tool.objects.filter(pk__in=singles).values_list("pk"))
    if meta:
        queries.append(Tool.objects.filter(name__in=meta).values_list("pk"))
    return first.union(*queries)


def _ways_in(agent: Agent, rows: Sequence[Row], bundles: Sequence[Bundle], meta: Sequence[str]) -> Iterable[Candidate]:
    """Yield every way by which these rows come to the agent, in the order that is kept."""
    plain = [row for row in rows if not row.spec.is_meta]
    own = [row for row in plain if is_own(agent, row.line)]
    for row in sorted(own, key=lambda row: (row.place is None, row.place or 0)):
        yield Candidate(row.spec, OWN, is_pinned=row.is_pinned)
    for row in plain:
        if comes_with_core(agent, row.line, is_core=row.is_core):
            yield Candidate(row.spec, CORE + row.spec.category)
    by_name = {row.spec.name: row.spec for row in rows if row.spec.is_meta}
    yield from (Candidate(by_name[name], "meta-tool") for name in meta if name in by_name)
    by_source = _RowsBySource(plain)
    for bundle in bundles:
        yield from by_source.by(bundle)


class _RowsBySource:
    """Tools by the sources that may bring them, so that each bundle finds its own."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.of_kit: dict[int, list[tuple[int, Row]]] = defaultdict(list)
        self.of_category: dict[int, list[Row]] = defaultdict(list)
        self.single: dict[int | None, Row] = {}
        for row in rows:
            self.single[row.spec.tool_id] = row
            self.of_category[row.spec.category_id].append(row)
            for toolkit_id, (position, _) in row.kits.items():
                self.of_kit[toolkit_id].append((position, row))

    def by(self, bundle: Bundle) -> Iterable[Candidate]:
        """Yield the candidates of the bundle. A tool that no toolkit may hold is left out: it may have been moved into
        one of the toolkit's categories."""
        toolkit_id = bundle.toolkit_id
        if toolkit_id is None:
            yield from (Candidate(row.spec, bundle.source, bundle) for row in self._whole(bundle))
            return
        listed = [row for _, row in sorted(self.of_kit[toolkit_id], key=lambda pair: pair[0])]
        for row in [*listed, *(row for row in self._whole(bundle) if toolkit_id not in row.kits)]:
            if row.spec.name not in RESERVED_TOOLS:
                _, overrides = row.kits.get(toolkit_id, (0, NO_OVERRIDES))
                yield Candidate(row.spec.overridden(overrides), bundle.source, bundle)

    def _whole(self, bundle: Bundle) -> list[Row]:
        """The tools of its categories, by category and name; or the one that it is."""
        if bundle.tool_id is not None:
            return [self.single[bundle.tool_id]] if bundle.tool_id in self.single else []
        found = [row for category in bundle.category_ids for row in self.of_category[category]]
        return sorted(found, key=lambda row: (row.spec.category, row.spec.name))
