"""Policy: the available tools that it lets through, and by which rule. Pure: no database, no settings, no clock.

One layer says, in this order: profile -> allow -> also_allow -> deny.

    profile      keeps the tools that it names; with `reads_only`, those of them that only read
    allow        takes the place of what the profile keeps: these tools and no others
    also_allow   adds to it
    deny         takes away, whatever let the tool through

With neither profile nor allow everything is kept, but for what is denied. The organisation's layer comes first, what it
keeps is what the provider's layer gets. A layer never adds a tool that it was not given. Source: docs/requirements.md,
Runtime contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from capabilities.contract.patterns import Patterns, pattern_matches

#: Patterns of one list.
MAX_PATTERNS = 200
#: The effect of a tool that only reads.
READ = "read"


class Rule(StrEnum):
    """The part of a layer that kept or dropped a tool."""

    PROFILE = "profile"
    ALLOW = "allow"
    ALSO_ALLOW = "also_allow"
    DENY = "deny"
    #: The layer has neither a profile nor an allow-list.
    UNLIMITED = "unlimited"
    #: The layer cannot be read as it is stored: it keeps nothing, rather than too much.
    MALFORMED = "malformed"


class PolicyTool(Protocol):
    """A tool, as far as a policy looks at it."""

    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def effect(self) -> str: ...


T = TypeVar("T", bound=PolicyTool)


@dataclass(frozen=True)
class Profile:
    """A named set of tools. With `reads_only` nothing in it changes anything, whatever its patterns name."""

    name: str
    patterns: tuple[str, ...]
    reads_only: bool = False

    @cached_property
    def compiled(self) -> Patterns:
        return Patterns(self.patterns)


@dataclass(frozen=True)
class Ruling:
    """Ruling of one layer on one tool. `pattern` is the one that decided; empty where none did."""

    kept: bool
    rule: Rule
    pattern: str = ""
    profile: str = ""

    @property
    def reason(self) -> str:
        """Text that comes behind the layer's name: `allows web_*`, `denies group:web`."""
        if self.rule == Rule.MALFORMED:
            return "cannot be read as it is stored, so it keeps nothing"
        if self.rule == Rule.UNLIMITED:
            return "does not deny it"
        if self.rule == Rule.DENY:
            return f"denies {self.pattern}"
        if self.rule == Rule.ALSO_ALLOW:
            return f"also allows {self.pattern}"
        if self.rule == Rule.ALLOW:
            return f"allows {self.pattern}" if self.kept else "allows only listed tools, and not this one"
        if self.kept:
            return f"begins with profile {self.profile}, which names {self.pattern}"
        why = "keeps only tools that read" if self.pattern else "does not name it"
        return f"begins with profile {self.profile}, which {why}"


@dataclass(frozen=True)
class PolicyRules:
    """Rules of one layer. Patterns are as people wrote them; upper and lower case are the same."""

    profile: Profile | None = None
    allow: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    is_malformed: bool = False
    _rulings: dict[tuple[str, str, str], Ruling] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def _compiled(self) -> tuple[Patterns, Patterns, Patterns]:
        return Patterns(self.allow), Patterns(self.also_allow), Patterns(self.deny)

    def ruling(self, tool: PolicyTool) -> Ruling:
        """Return the layer's ruling on the tool; it is remembered for the next time."""
        key = (tool.name, tool.category, tool.effect)
        found = self._rulings.get(key)
        if found is None:
            found = self._rulings[key] = self._ruling(tool)
        return found

    def _ruling(self, tool: PolicyTool) -> Ruling:
        if self.is_malformed:
            return Ruling(False, Rule.MALFORMED)
        allow, also_allow, deny = (each.first_for(tool.name, tool.category) for each in self._compiled)
        if deny is not None:
            return Ruling(False, Rule.DENY, deny)
        kept = self._kept_by_profile(tool) if not self.allow else Ruling(allow is not None, Rule.ALLOW, allow or "")
        if not kept.kept and also_allow is not None:
            return Ruling(True, Rule.ALSO_ALLOW, also_allow)
        return kept

    def _kept_by_profile(self, tool: PolicyTool) -> Ruling:
        if self.profile is None:
            return Ruling(True, Rule.UNLIMITED)
        pattern = self.profile.compiled.first_for(tool.name, tool.category) or ""
        reads = tool.effect == READ or not self.profile.reads_only
        return Ruling(bool(pattern) and reads, Rule.PROFILE, pattern, self.profile.name)


@dataclass(frozen=True)
class PolicyLayer:
    """One layer with its name for people: `the organisation’s policy`."""

    title: str
    rules: PolicyRules


@dataclass(frozen=True)
class ToolRuling:
    """Why a layer kept or dropped a tool."""

    tool: str
    layer: str
    ruling: Ruling

    @property
    def reason(self) -> str:
        return f"{self.layer} {self.ruling.reason}"


@dataclass(frozen=True)
class Filtered(Generic[T]):
    """The tools that every layer kept, in their order; and the ruling of each layer on each tool that reached it."""

    tools: tuple[T, ...]
    rulings: tuple[ToolRuling, ...]


def filtered(tools: Iterable[T], layers: Sequence[PolicyLayer]) -> Filtered[T]:
    """The tools that are left, layer by layer, with the reasons."""
    kept, rulings = list(tools), list[ToolRuling]()
    for layer in layers:
        pairs = [(tool, layer.rules.ruling(tool)) for tool in kept]
        rulings += [ToolRuling(tool.name, layer.title, ruling) for tool, ruling in pairs]
        kept = [tool for tool, ruling in pairs if ruling.kept]
    return Filtered(tuple(kept), tuple(rulings))


# -- What is written --------------------------------------------------------------------------------------------------


def normalised(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns without blanks around, empty ones and repeated ones in any spelling; in their order."""
    found: dict[str, str] = {}
    for pattern in patterns:
        text = pattern.strip()
        if text:
            found.setdefault(text.casefold(), text)
    return tuple(found.values())


def rules_from(allow: Any, also_allow: Any, deny: Any, profile: Profile | None = None) -> PolicyRules:
    """A layer of what is stored. Lists that are none make it malformed: then it keeps nothing."""
    if not all(_is_list_of_texts(each) for each in (allow, also_allow, deny)):
        return PolicyRules(profile, is_malformed=True)
    return PolicyRules(profile, normalised(allow), normalised(also_allow), normalised(deny))


def profile_from(name: str, patterns: Any, reads_only: bool) -> Profile:
    """A profile of what is stored; one whose patterns cannot be read names nothing."""
    return Profile(name, normalised(patterns) if _is_list_of_texts(patterns) else (), reads_only)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


# -- Patterns that name nothing ---------------------------------------------------------------------------------------


def unknown_patterns(patterns: Iterable[str], tools: Sequence[PolicyTool]) -> tuple[str, ...]:
    """Return the patterns that name none of these tools."""
    remaining = list(patterns)
    for tool in tools:
        if not remaining:
            break
        remaining = [each for each in remaining if not pattern_matches(each, tool.name, tool.category)]
    return tuple(remaining)


def names_nothing(patterns: Sequence[str], tools: Sequence[PolicyTool]) -> bool:
    """Return whether there are patterns, and none of them names one of these tools."""
    if not patterns:
        return False
    compiled = Patterns(patterns)
    return not any(compiled.first_for(tool.name, tool.category) for tool in tools)


def lists_without_tools(rules: PolicyRules, tools: Sequence[PolicyTool]) -> tuple[Rule, ...]:
    """Return the limiting list of the layer (the one in force of profile and allow) where it names no tool; else ()."""
    if rules.allow:
        return (Rule.ALLOW,) if names_nothing(rules.allow, tools) else ()
    if rules.profile is None:
        return ()
    return () if any(rules.profile.compiled.first_for(each.name, each.category) for each in tools) else (Rule.PROFILE,)
