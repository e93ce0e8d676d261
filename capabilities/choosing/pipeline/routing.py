"""Routing of an agent's tools by a message: the router, asked about candidates, and its answer as a step keeps it.

The router knows names and texts only; here are the agent's mode and token budget, the categories' keywords, and what
is never left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from capabilities.choosing.pipeline.candidates import Candidate, is_routable_source
from capabilities.choosing.routing.budget import budget_of
from capabilities.choosing.routing.documents import document_of
from capabilities.choosing.routing.gate import is_small_talk
from capabilities.choosing.routing.index import Index, build_index, index_key
from capabilities.choosing.routing.keywords import Keywords
from capabilities.choosing.routing.requests import Context, Kept, Route, RouteRequest
from capabilities.choosing.routing.router import route
from capabilities.choosing.routing.words import MAX_CHARACTERS
from capabilities.common.memory import Memory
from capabilities.contract.loading import LOAD_TOOLS, LOADING_TOOLS, READ_RESULT, SEARCH_TOOLS
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, Category, LoadingMode, RoutingMode

NOT_NEEDED = "not needed for this message"
#: Why a tool goes with each message, whatever it says.
PINNED = "pinned"
ALL_NEEDED = "every tool is sent, there is nothing to search"
NOTHING_TO_READ = "no tool is sent whose results it could read"
#: Why tools that load others stay out where nothing of the catalogue matches the message.
SMALL_TALK = "small talk calls for no tool"
NO_KEYWORD = "no keyword of a category is in the message"
SEARCH_ALONE = "nothing matches the message: the search alone is sent"
NEVER_CHANGES = "not routed: the tools of this agent never change"
FOUND_LATER = "asked for in this turn"
#: Why a tool is not sent that the message calls for: its tokens, and those for all tools of a message.
TOO_LARGE = "it takes {tokens:,} tokens, and all tools of a message may take {budget:,}: pin it, or raise that number"
#: A name of several words, as tools have them: one word alone may just be a word.
_WRITTEN = re.compile(r"\b[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)+\b")
#: Ranked tools that a step keeps.
MOST_RANKED = 20
#: The best ones, of which one must be missing before a provider that keeps what was sent gets others too.
BEST = 3


@dataclass(frozen=True)
class Before:
    """Facts that a session keeps about an agent's last turn. Keys are those of tools."""

    #: The newest message first.
    messages: tuple[str, ...] = ()
    #: The end of what the agent said last.
    answer: str = ""
    #: Tools that routing sent.
    sent: tuple[int, ...] = ()
    #: Names of tools whose calls the last turn left without an answer from the agent.
    open_calls: tuple[str, ...] = ()
    #: Whether the agent asked something of a task, or did not get to its end.
    is_unfinished: bool = False
    #: Names of tools that load others which it went without, for nothing matched.
    left_loaders: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Decided:
    """Record of routing at a turn's first model call, and the tools that the turn asked for since, by name."""

    record: Mapping[str, Any]
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RoutingInputs:
    """Inputs that a message is routed by. `specs` are the agent's tools that a message may leave out, whoever asks."""

    specs: tuple[ToolSpec, ...]
    keywords: Keywords
    before: Before = field(default_factory=Before)
    #: A later round of a turn keeps to what its first one decided.
    decided: Decided | None = None


@dataclass(frozen=True)
class Routed:
    """Why each tool is sent or not, by name, and the same as a step keeps it; nothing where there is nothing to say."""

    kept: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    #: Names of tools that are at hand for routing alone.
    extra: frozenset[str] = frozenset()


#: Tokens of a definition as the model gets it.
TokensOf = Callable[[ToolSpec], int]


@dataclass(frozen=True)
class Counted(Mapping[str, int]):
    """Tokens of each tool by its name, counted when they are asked for: of thousands, a message asks for a hundred."""

    specs: Mapping[str, ToolSpec]
    tokens_of: TokensOf

    def __getitem__(self, name: str) -> int:
        return self.tokens_of(self.specs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)


def is_routed(agent: Agent) -> bool:
    """Return whether messages decide which tools are sent: where the tools never change, they do not."""
    return agent.routing_mode != RoutingMode.OFF and agent.loading_mode != LoadingMode.CONSTANT


def routed(
    agent: Agent,
    message: str,
    inputs: RoutingInputs | None,
    candidates: Sequence[Candidate],
    *,
    keeps_sent: bool = False,
    tokens_of: TokensOf = lambda spec: spec.tokens,
) -> Routed:
    """Route these candidates: which of them go out for the message. Tools that somebody loaded are not looked at. Where
    something is left out, `search_tools` goes along, else not for that alone. Where nothing matches, no tool that loads
    others goes in mode `keywords` or for small talk, and `search_tools` alone for any other message. No query.

    `keeps_sent`: what the last turn sent stays, so that a provider's cache holds. `tokens_of`: what a definition takes.
    """
    if not is_routed(agent):
        is_asked = agent.routing_mode != RoutingMode.OFF and bool(message)
        return Routed({each.spec.name: NEVER_CHANGES for each in candidates if each.is_routable} if is_asked else {})
    others = {each.spec.name for each in candidates if not each.is_routable}
    extra = frozenset({SEARCH_TOOLS} & others if LOAD_TOOLS not in others else ())
    if inputs is None:
        return Routed(dropped=dict.fromkeys(extra, ALL_NEEDED), extra=extra)
    routable = [each for each in candidates if each.is_routable]
    if inputs.decided is not None:
        kept, record = _as_decided(inputs.decided, routable)
    else:
        kept, record = _anew(agent, message, inputs, routable, keeps_sent=keeps_sent, tokens_of=tokens_of)
    dropped = {each.spec.name: NOT_NEEDED for each in routable if each.spec.name not in kept}
    dropped |= {name: why for name, why in _too_large_in(record).items() if name in dropped}
    unneeded, why_not = unneeded_loaders(record)
    dropped |= dict.fromkeys(others & unneeded, why_not)
    others -= unneeded
    if not dropped:
        dropped = dict.fromkeys(extra, ALL_NEEDED)
    wanted = inputs.decided.wanted if inputs.decided is not None else ()
    if not kept and others <= {SEARCH_TOOLS, READ_RESULT} and READ_RESULT not in wanted:
        dropped |= dict.fromkeys(others & {READ_RESULT}, NOTHING_TO_READ)
    return Routed(kept, dropped, record, extra)


def _as_decided(decided: Decided, routable: Sequence[Candidate]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the tools that the first round sent and those asked for since, each with its reason, and the record of
    both."""
    record, by_key = decided.record, {each.spec.tool_id: each.spec.name for each in routable}
    ids, found = integers(record.get("kept")), integers(record.get("wanted"))
    reasons = _reasons_of(record)
    kept = {by_key[key]: str(reasons.get(by_key[key], FOUND_LATER)) for key in (*ids, *found) if key in by_key}
    new = {name: key for key, name in by_key.items() if name in decided.wanted and name not in kept}
    kept |= dict.fromkeys(new, FOUND_LATER)
    dropped = len(routable) - len(kept)
    # Whoever asks for a tool is not just talking.
    no_match = bool(record.get("no_match")) and not decided.wanted
    return kept, {**record, "why": kept, "wanted": [*found, *new.values()], "dropped": dropped, "no_match": no_match}


def _anew(
    agent: Agent,
    message: str,
    inputs: RoutingInputs,
    routable: Sequence[Candidate],
    *,
    keeps_sent: bool,
    tokens_of: TokensOf,
) -> tuple[dict[str, str], dict[str, Any]]:
    """Route the message; return the reasons by tool that is sent, and the record of how they were found."""
    before = inputs.before
    names = {each.spec.tool_id: each.spec.name for each in routable}
    tokens = Counted({each.spec.name: each.spec for each in routable}, tokens_of)
    sent_before = tuple(names[key] for key in before.sent if key in names)
    pinned = _pinned(message, before, routable)
    request = RouteRequest(
        message,
        tuple(names.values()),
        Context(before.messages, before.answer, sent_before, before.is_unfinished),
        cast(Literal["keywords", "hybrid"], str(agent.routing_mode)),
        inputs.keywords,
        tuple(sorted(pinned)),
        agent.routing_tokens,
        tokens,
    )
    found = route(index_of(inputs.specs, inputs.keywords), request)
    categories = {each.spec.name: each.spec.category for each in routable}
    reasons = {each.name: pinned.get(each.name) or _reason(each, found, categories[each.name]) for each in found.kept}
    if keeps_sent:
        reasons = _with_sent(reasons, found, sent_before, pinned)
    keys = {name: key for key, name in names.items()}
    matches = any(why != PINNED for why in reasons.values()) or found.categories
    no_match = not (matches or found.is_follow_up or before.is_unfinished)
    record = {
        "mode": str(agent.routing_mode),
        "categories": {name: list(words) for name, words in found.categories},
        "ranked": [[name, round(score, 3)] for name, score in found.ranked[:MOST_RANKED]],
        "kept": [keys[name] for name in reasons],
        "why": reasons,
        "dropped": len(routable) - len(reasons),
        "follow_up": found.is_follow_up,
        "empty": found.is_empty,
        "no_match": no_match,
        "small_talk": no_match and is_small_talk(message),
        "loaders_stay": sorted(LOADING_TOOLS - before.left_loaders) if keeps_sent and before.messages else [],
        "wanted": [],
        "too_large": {
            name: TOO_LARGE.format(tokens=tokens[name], budget=budget_of(request))
            for name in found.too_large
            if name not in reasons
        },
    }
    return reasons, record


def _pinned(message: str, before: Before, routable: Sequence[Candidate]) -> dict[str, str]:
    """Names of the tools that go whatever the message needs, each with why."""
    written = set(_WRITTEN.findall(message[:MAX_CHARACTERS]))
    found: dict[str, str] = {}
    for each in routable:
        name = each.spec.name
        if each.is_pinned:
            found[name] = PINNED
        elif name in before.open_calls:
            found[name] = "its call was left open"
        elif name in written:
            found[name] = "named in the message"
    return found


def _with_sent(
    reasons: Mapping[str, str], found: Route, sent_before: Sequence[str], pinned: Iterable[str]
) -> dict[str, str]:
    """Return the tools to send, with their reasons: those sent before stay, and are all, unless one of the best, or of
    those that must go along, is missing."""
    best = [each.name for each in sorted(found.kept, key=lambda each: -each.score)][:BEST]
    stays = {name: reasons.get(name, "sent before in this session") for name in sent_before}
    if set(stays).issuperset([*best, *pinned]) and stays:
        return stays
    return stays | {name: why for name, why in reasons.items() if name not in stays}


def _reason(kept: Kept, found: Route, category: str) -> str:
    """Return the reason in words, as verdicts and steps show it."""
    if kept.why == "category" or (kept.why == "toolkit" and category in dict(found.categories)):
        words = " and ".join(f"“{word}”" for word in dict(found.categories).get(category, ())[:3])
        return f"{'keywords' if ' and ' in words else 'keyword'} {words} in category {category}"
    if kept.why == "ranked":
        rank = next((number for number, (name, _) in enumerate(found.ranked, 1) if name == kept.name), 0)
        return f"ranked {_ordinal(rank)} ({kept.score:.2f})" if rank else f"ranked ({kept.score:.2f})"
    reasons = {
        "before": "as in the last turn",
        "toolkit": "the others of its category are needed",
    }
    return reasons.get(kept.why, kept.why)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def router_verdicts(record: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the router's verdicts from a stored record: one for each tool that the stored verdicts of the other stages
    let through."""
    if not record:
        return []
    stopped = {each["tool"] for each in verdicts if not each["kept"]}
    gathered_ones = (each for each in verdicts if each["stage"] == "gather" and each["tool"] not in stopped)
    routable = [each["tool"] for each in gathered_ones if is_routable_source(each["reason"])]
    why = _reasons_of(record)
    too_large = _too_large_in(record)
    found = [
        {
            "tool": name,
            "stage": "router",
            "kept": name in why,
            "reason": why.get(name) or too_large.get(name, NOT_NEEDED),
        }
        for name in routable
    ]
    unneeded, why_not = unneeded_loaders(record)
    if unneeded:
        gathered = {each["tool"] for each in verdicts if each["stage"] == "gather" and each["tool"] not in stopped}
        found += [
            {"tool": name, "stage": "router", "kept": False, "reason": why_not} for name in sorted(gathered & unneeded)
        ]
    return found


def unneeded_loaders(record: Mapping[str, Any]) -> tuple[frozenset[str], str]:
    """The tools that load others which a stored record leaves out, and why; none where something matched, and none that
    stays because the turn before was sent it."""
    if not record.get("no_match"):
        return frozenset(), ""
    stays = frozenset(texts(record.get("loaders_stay")))
    if record.get("small_talk"):
        return LOADING_TOOLS - stays, SMALL_TALK
    if record.get("mode") == RoutingMode.KEYWORDS:
        return LOADING_TOOLS - stays, NO_KEYWORD
    return LOADING_TOOLS - stays - {SEARCH_TOOLS}, SEARCH_ALONE


def _reasons_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Why each tool was kept, by its name."""
    why = record.get("why")
    return why if isinstance(why, dict) else {}


def _too_large_in(record: Mapping[str, Any]) -> Mapping[str, str]:
    """Why each tool that the message calls for is too large to be sent, by its name."""
    found = record.get("too_large")
    return found if isinstance(found, dict) else {}


def integers(value: object) -> list[int]:
    """Return the entries of a stored list that are whole numbers."""
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []


def texts(value: object) -> tuple[str, ...]:
    """Return the entries of a stored list that are text."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


# -- What is made ready once ------------------------------------------------------------------------------------------

_keywords: Memory[Keywords] = Memory(64)
#: By what the tools are, so that organisations with the same ones share it.
_indexes: Memory[Index] = Memory(32)
_known: Memory[Index] = Memory(128)


def keywords_at(organisation_id: int, version: int | None) -> Keywords:
    """The keywords of the organisation's categories. One query, none where they were read before at this registry
    version."""

    def read() -> Keywords:
        rows = Category.objects.order_by("name").values_list("name", "keywords")
        return Keywords.of({name: [word for word in words if isinstance(word, str)] for name, words in rows})

    return read() if version is None else _keywords.get((organisation_id, version), read)


def index_of(specs: Sequence[ToolSpec], keywords: Keywords) -> Index:
    """The index of these tools under these keywords, made once for each content. No query."""
    key = (tuple((spec.version_id, spec.name, spec.category, spec.category_title) for spec in specs), keywords)
    return _known.get(key, lambda: _shared(specs, keywords))


def _shared(specs: Sequence[ToolSpec], keywords: Keywords) -> Index:
    words = dict(keywords.categories)
    documents = [
        document_of(
            spec.definition["function"],
            toolkit=spec.category_title,
            category=spec.category,
            triggers=words.get(spec.category, ()),
        )
        for spec in specs
    ]
    return _indexes.get(index_key(documents), lambda: build_index(documents))
