"""Tools that are asked about, in pages: those that are sent first, then those that one change would let through."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from django.db.models import F, FilteredRelation, IntegerField, Q, Value
from django.db.models.functions import Cast, Left, Now

from capabilities.catalogue.versions.rules import CODE
from capabilities.choosing.pipeline.bringing import OwnLine, begins_with, toolkit_lines, without_agent
from capabilities.choosing.pipeline.candidates import Row
from capabilities.choosing.pipeline.specs import SPEC, spec_annotations, spec_of, spec_without_version
from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.contract.spec import ToolSpec
from capabilities.models import (
    Agent,
    ClientApprovals,
    Grant,
    Tool,
    ToolVersion,
    VersionStatus,
)
from sessions.insight.explain.inputs import Inputs, read_inputs
from sessions.insight.explain.reasons import (
    Asked,
    GrantLine,
    Listed,
    Reasons,
    WaitingVersion,
    reasons_of,
    state_of,
)
from sessions.models import ChatSession
from sessions.selection.queries import new_session
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import Page, page_of_sorted

#: Characters of a description that a list shows.
LINE_CHARS = 160


#: Tools that are kept back, of which it is asked whether one change would do.
NEARLY_LOOKED_AT = 500


#: Columns of each tool: its key, name and version in force, and what decides whether the agent would have it with one.
_REACH = (
    "pk",
    "name",
    "current_version_id",
    "own__position",
    "own__is_deferred",
    "made_by_agent_id",
    "category__is_core",
)


@dataclass(frozen=True)
class ReasonsPage:
    """Some tools with their reasons; the places to go on after and before, empty at either end."""

    inputs: Inputs
    tools: Sequence[Reasons]
    after: str
    before: str


def reasons_page(member: Membership, agent: Agent, session: ChatSession | None, asked: Asked) -> ReasonsPage:
    """Return a page of the tools that are asked about, each with the reasons for which it is sent or not: in the
    session, or without one in a new session. `agent` comes with its model and provider at hand. Nine queries at most,
    whatever there is."""
    is_unattended = asked.client and agent.client_approvals == ClientApprovals.HIDE
    inputs = read_inputs(session or new_session(member, agent), agent, asked.message, is_unattended=is_unattended)
    page = _page(inputs, asked)
    return ReasonsPage(
        inputs, [reasons_of(inputs, each) for each in _noted(member, page.rows)], page.after, page.before
    )


def _page(inputs: Inputs, asked: Asked) -> Page[Listed]:
    """Return a page of tools: those that are sent come first, then what one change lets through, what is offered, and
    the rest; of words, what they find best. Two queries: the names in their order, then the tools of the page; one more
    where something of it waits for a decision; for words those of `search_names` besides."""
    tools = Tool.objects.annotate(own=FilteredRelation("agent_tools", condition=Q(agent_tools__agent=inputs.agent)))
    if asked.tool:
        tools = tools.filter(name=asked.tool)
    if asked.category:
        tools = tools.filter(category__name=asked.category)
    places = {name: place for place, name in enumerate(search_names(asked.q))}
    rows = list(tools.values_list(*_REACH))
    would_have = {row[0]: row for row in rows if row[2] is None and _would_have(inputs.agent, *row[3:])}
    has_words, group_of = bool(asked.q.strip()), _groups(inputs, would_have)
    found = sorted(
        (places[name] if has_words else group_of(key), name, key)
        for key, name, *_ in rows
        if (name in places or not has_words) and (not asked.state or asked.state == state_of(inputs, key, would_have))
    )
    page = page_of_sorted(found, itemgetter(0, 1), asked.after, asked.before, limit=asked.limit)
    keys = [key for _, _, key in page.rows]
    columns = Tool.objects.filter(pk__in=keys).annotate(
        **spec_annotations(), line=Left("current_version__description", LINE_CHARS)
    )
    more = ("line", "quarantined_at", "quarantined_by__user__first_name", "quarantined_by__user__email", "is_offered")
    by_key = {row[0]: _listed(row) for row in columns.values_list(*SPEC, *more)}
    waiting = _waiting([each.spec for each in by_key.values() if not each.spec.is_in_force or each.spec.quarantine])
    for key, version in waiting.items():
        listed = by_key[key]
        then = _row_then(inputs, listed.spec, version, *would_have[key][3:]) if key in would_have else None
        by_key[key] = replace(listed, waiting=version, row_then=then)
    return Page([by_key[key] for key in keys if key in by_key], page.after, page.before)


def _would_have(agent: Agent, place: int | None, is_deferred: bool | None, maker_id: int | None, is_core: bool) -> bool:
    """Return whether a session with the agent begins with it, as soon as a version is in force: the first approval of
    what an agent made gives it to that agent."""
    return maker_id == agent.pk or begins_with(agent, OwnLine(place, bool(is_deferred)), is_core=is_core)


def _row_then(
    inputs: Inputs,
    spec: ToolSpec,
    version: WaitingVersion,
    place: int | None,
    is_deferred: bool | None,
    maker_id: int | None,
    is_core: bool,
) -> Row:
    """The tool as the agent would have it with this version in force."""
    if place is None and maker_id == inputs.agent.pk:
        place = inputs.last_place + 1
    return Row(replace(spec, version_id=version.id, quarantine=""), is_core, place, bool(is_deferred))


def _listed(row: Sequence[Any]) -> Listed:
    *columns, line, kept_back_at, first_name, email, is_offered = row
    spec = spec_of(columns) if columns[1] is not None else spec_without_version(columns)
    by = first_name or email or ""
    return Listed(spec, line or "", kept_back_at=kept_back_at, kept_back_by=by, is_offered=is_offered)


def _waiting(tools: Sequence[ToolSpec]) -> dict[int, WaitingVersion]:
    """The newest version of each that waits, by the tool's key. One query, none without tools."""
    if not tools:
        return {}
    rows = ToolVersion.objects.filter(tool__in=[each.tool_id for each in tools], status=VersionStatus.PENDING)
    rows = rows.select_related("created_by__user", "made_by_agent").order_by("number")
    kinds = {each.tool_id: each.kind for each in tools}
    long = ("wire", "parameters", "description", "implementation", "instructions", "made_by_agent__prompt")
    return {
        each.tool_id: WaitingVersion(
            each.pk, each.number, each.created_at, _author(each), _not_by(each, kinds[each.tool_id])
        )
        for each in rows.defer(*long)
    }


def _author(version: ToolVersion) -> str:
    by = str(version.created_by or "toolhub")
    return f"the agent {version.made_by_agent} for {by}" if version.made_by_agent else by


def _not_by(version: ToolVersion, kind: str) -> str:
    is_code = kind in CODE or version.made_by_agent_id is not None
    return str(version.created_by) if is_code and version.created_by else ""


def _groups(inputs: Inputs, would_have: Collection[int]) -> Callable[[int], int]:
    """The number of a tool's group, by its key."""
    sent, nearly, offered = inputs.sent, _nearly_sent(inputs), inputs.offered

    def group_of(key: int) -> int:
        if key in sent:
            return 0
        if key in nearly or key in would_have:
            return 1
        return 2 if key in offered else 3

    return group_of


def _nearly_sent(inputs: Inputs) -> set[int]:
    """Keys of what could be loaded, and of what is brought and stopped by one stage alone, beside the limit."""
    kept_back = [each.spec for each in inputs.gathered.values() if each.spec.tool_id not in inputs.sent]
    found = set(inputs.loadable)
    for spec in kept_back[:NEARLY_LOOKED_AT]:
        stops = {cell.stage for cell in reasons_of(inputs, Listed(spec, "")).stops} - {"limit"}
        if len(stops) <= 1:
            found.add(spec.tool_id)
    return found


def _noted(member: Membership, tools: Sequence[Listed]) -> Iterator[Listed]:
    """Complete the tools with the toolkits that hold them, the grants on them, and whether any agent has them. One
    query."""
    keys = [each.spec.tool_id for each in tools]
    categories = {each.spec.category_id for each in tools}
    none = Cast(Value(None), IntegerField())
    grants = (
        Grant.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), membership=member)
        .filter(Q(tool__in=keys) | Q(category__in=categories))
        .values_list(Value("grant"), "pk", "effect", "tool_id", "category_id")
    )
    listed, whole_ones = toolkit_lines(keys, categories)
    lines = listed.values_list(Value("kit"), "toolkit_id", "toolkit__name", "tool_id", none)
    whole = whole_ones.values_list(Value("kit"), "toolkit_id", "toolkit__name", none, F("category_id"))
    nobodys = without_agent(keys).values_list(Value("nobodys"), none, "name", "pk", none)
    rows = list(lines.union(whole, grants, nobodys, all=True))
    for each in tools:
        own = [row for row in rows if each.spec.tool_id == row[3] or each.spec.category_id == row[4]]
        yield replace(
            each,
            toolkits=tuple(sorted({name for kind, _, name, *_ in own if kind == "kit"})),
            grants=tuple(GrantLine(pk, tool, cat, effect) for kind, pk, effect, tool, cat in own if kind == "grant"),
            is_nobodys=any(kind == "nobodys" for kind, *_ in own),
        )
