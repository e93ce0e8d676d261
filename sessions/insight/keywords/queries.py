"""Tools that a message would be sent, by the function that turns ask; and where routing was wrong of late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q

from capabilities.catalogue.categories.queries import categories_page
from capabilities.choosing.pipeline.routing import is_routed, keywords_at
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, Category, RoutingMode
from sessions.access import visible_to
from sessions.insight.explain.why import Subject
from sessions.models import FindingKind, RoutingFinding, Turn
from sessions.selection.queries import Selection, new_session, selection_preview
from toolhub.tenants.models import Membership, Reach
from toolhub.tenants.rows.keyset import Keyset, Page

#: Findings of a page of their own, and those that the page of keywords shows first.
FINDINGS, LATEST = 50, 8
#: The latest findings, which the table of keywords counts by category.
COUNTED = 200
#: Words for people for each value of a finding's `how`.
HOW = {
    "found_by_search": "the model found it with search_tools",
    "asked_for_again": "the member asked for the same again",
    "not_called": "none of its tools was called",
}


# -- Try a message ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchedCategory:
    """A category of which keywords stand in the message, with these; how many of its tools are sent, and where none is,
    why."""

    name: str
    title: str
    words: tuple[str, ...]
    sent: int
    why_none: str = ""


@dataclass(frozen=True)
class SentTool:
    spec: ToolSpec
    reason: str


@dataclass(frozen=True)
class RankedTool:
    """A tool as the ranking has it, whether it is sent or not; 1 is the best score."""

    name: str
    score: float
    is_sent: bool


@dataclass(frozen=True)
class Tried:
    """Selection that a turn with the message would send first."""

    subject: Subject
    mode: RoutingMode
    #: True where messages decide for this agent what is sent.
    is_routed: bool
    categories: Sequence[MatchedCategory]
    sent: Sequence[SentTool]
    ranked: Sequence[RankedTool]
    tokens: int
    all_count: int
    all_tokens: int
    is_empty: bool
    is_follow_up: bool

    @property
    def saved_percent(self) -> int:
        return round(100 * (self.all_tokens - self.tokens) / self.all_tokens) if self.all_tokens else 0

    @property
    def sent_percent(self) -> int:
        return min(100, round(100 * self.tokens / self.all_tokens)) if self.all_tokens else 0


def try_message(subject: Subject, message: str, mode: str = "") -> Tried:
    """Return what the next turn of the subject would send for the message: the same selection as the turn's. With a
    `mode`, as if the agent had it. Queries as `selection_preview`, and two."""
    agent = subject.agent
    if mode:
        agent.routing_mode = mode  # never saved
    session = subject.session or new_session(subject.member, agent)
    selection = selection_preview(session, agent, message)
    record = selection.routing
    return Tried(
        subject,
        RoutingMode(agent.routing_mode),
        is_routed(agent),
        _matched(selection, _categories_of(agent, record, message)),
        _sent(selection),
        _ranked(selection, record),
        selection.tokens,
        len(selection.all_tools),
        sum(tool.tokens for tool in selection.all_tools),
        record.get("empty") is True,
        record.get("follow_up") is True,
    )


def _categories_of(agent: Agent, record: Mapping[str, Any], message: str) -> Mapping[str, Sequence[str]]:
    """The categories that keywords name: as routing recorded them; of an agent that it does not look at, what it would
    find."""
    if record:
        return dict(record["categories"])
    return dict(keywords_at(agent.organisation_id, None).matches(message))


def _matched(selection: Selection, categories: Mapping[str, Sequence[str]]) -> list[MatchedCategory]:
    rows = Category.objects.filter(name__in=list(categories)).order_by("tools__name")
    titles: dict[str, str] = {}
    tools: dict[str, list[str]] = {}
    for name, title, tool in rows.values_list("name", "title", "tools__name"):
        titles[name] = title
        tools.setdefault(name, []).append(tool)
    sent = Counter(tool.category for tool in selection.tools)
    return [
        MatchedCategory(
            name,
            titles.get(name, name),
            tuple(words),
            sent[name],
            "" if sent[name] else _why_none(selection, tools.get(name, [])),
        )
        for name, words in categories.items()
    ]


def _why_none(selection: Selection, names: Sequence[str]) -> str:
    """Why none of these tools is sent, of the first that the agent has: in the words of its verdict."""
    kept_back = {each.tool: each.reason for each in selection.verdicts if not each.kept}
    for name in names:
        if name in kept_back:
            return f"{name}: {kept_back[name]}"
    return "the agent has none of its tools"


def _sent(selection: Selection) -> list[SentTool]:
    """Return the tools in the order in which they are sent, with what routing says of each; for those it does not look
    at, what brings them."""
    reasons = {each.tool: each.reason for each in selection.verdicts if each.kept and each.stage == "gather"}
    reasons |= {each.tool: each.reason for each in selection.verdicts if each.kept and each.stage == "router"}
    return [SentTool(tool, tool.in_titles(reasons.get(tool.name, ""))) for tool in selection.tools]


def _ranked(selection: Selection, record: Mapping[str, Any]) -> list[RankedTool]:
    sent = {tool.name for tool in selection.tools}
    return [RankedTool(name, score, name in sent) for name, score in record.get("ranked", ())]


# -- Keywords ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeywordRow:
    """A category of the table."""

    category: Any
    may_edit: bool
    #: Number of the latest findings where its keywords sent tools of which none was called, and the words of these.
    misfires: int = 0
    words: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class KeywordNumbers:
    """Categories, keywords of all of them, and agents by routing mode."""

    categories: int
    keywords: int
    agents: Mapping[str, int]


def keyword_numbers() -> KeywordNumbers:
    """Count categories and keywords, and agents by routing mode. Two queries."""
    words = [len(each) for each in Category.objects.order_by().values_list("keywords", flat=True)]
    modes = Agent.objects.order_by().values_list("routing_mode").annotate(count=Count("pk"))
    return KeywordNumbers(len(words), sum(words), dict(modes))


def keyword_page(reach: Reach, *, q: str = "", after: str = "", before: str = "") -> Page[KeywordRow]:
    """Categories with their keywords, by title. Two queries."""
    return _with_misfires(categories_page(q=q, after=after, before=before), reach)


def keyword_row(category: Any, reach: Reach) -> KeywordRow:
    """Return the row of one category. One query."""
    return _with_misfires(Page([category]), reach).rows[0]


def _with_misfires(page: Page[Any], reach: Reach) -> Page[KeywordRow]:
    latest = RoutingFinding.objects.order_by("-pk").values_list("kind", "name", "words")[:COUNTED]
    misfires: Counter[str] = Counter()
    words: dict[str, Counter[str]] = {}
    for kind, name, found in latest:
        if kind == FindingKind.MISFIRE:
            misfires[name] += 1
            words.setdefault(name, Counter()).update(str(word) for word in found)
    return page.of(
        lambda category: KeywordRow(
            category,
            reach.covers(category.name),
            misfires[category.name],
            tuple(words.get(category.name, Counter()).most_common(3)),
        )
    )


# -- Misfires and misses ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingLine:
    """A turn in which routing was wrong, or seems to have been. The turn is None where the reader may not see it."""

    finding: RoutingFinding
    title: str
    how: str
    turn: Turn | None

    @property
    def is_miss(self) -> bool:
        return self.finding.kind == FindingKind.MISS


def findings_page(
    reader: Membership, *, kind: str = "", after: str = "", before: str = "", limit: int = FINDINGS
) -> Page[FindingLine]:
    """Return a page of the turns in which routing was wrong, the newest first. Three queries at most: the findings, the
    turns of them that the reader may see, and titles."""
    rows = RoutingFinding.objects.filter(kind=kind) if kind else RoutingFinding.objects.all()
    page = Keyset(rows, ("-pk",)).page(after, before, limit=limit)
    if not page.rows:
        return Page(())
    turns = Turn.objects.filter(visible_to(reader, "session__"), pk__in=[each.turn_id for each in page.rows])
    turns = turns.select_related("agent", "session").only(
        "organisation_id",
        "message",
        "seq",
        "agent__organisation_id",
        "agent__name",
        "agent__slug",
        "session__organisation_id",
        "session__title",
    )
    by_key = {turn.pk: turn for turn in turns}
    names = {each.name for each in page.rows if each.kind == FindingKind.MISFIRE}
    titles = dict(Category.objects.filter(Q(name__in=names)).values_list("name", "title"))
    return page.of(
        lambda each: FindingLine(
            each, titles.get(each.name, each.name), HOW.get(each.how, each.how), by_key.get(each.turn_id)
        )
    )
