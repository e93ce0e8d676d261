"""Versions of tools, as pages and the API show them, and what differs between two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import Http404
from django.utils.safestring import SafeString

from capabilities.catalogue.versions.rules import may_decide
from capabilities.common import confined
from capabilities.common.visible import marked
from capabilities.contract.context import ToolError
from capabilities.contract.versions import DiffLine, Piece, SchemaChange, is_breaking
from capabilities.models import HelperVersion, Tool, ToolVersion, VersionStatus
from toolhub.tenants.menu import notice
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

V = TypeVar("V", ToolVersion, HelperVersion)
#: The badge counts to one more than this.
COUNTED = 99
#: Columns that no list of versions reads.
_LONG = ("wire", "parameters", "description", "implementation", "instructions")
#: The badge of each status.
STATES = {
    VersionStatus.DRAFT: "off",
    VersionStatus.PENDING: "wait",
    VersionStatus.APPROVED: "ok",
    VersionStatus.REJECTED: "bad",
    VersionStatus.RETIRED: "off",
}
#: Titles of the knobs of a version, for people.
KNOB_TITLES = {
    "effect": "Effect",
    "on_crash": "After a crash",
    "timeout": "Timeout in seconds",
    "max_result_chars": "Longest result in characters",
    "untrusted_output": "Text from outside in its results",
    "in_untrusted": "After text from outside",
}
WORD_TITLES = {
    "description": "Description for the model",
    "instructions": "Instructions for the model",
    "human_format": "A call in one line",
}


def may_read_code(member: Membership, category: str) -> bool:
    """Return whether the member sees what runs behind a tool of this category: its code, address or server."""
    return member.has_right(Right.CATALOGUE, category) or member.has_right(Right.APPROVE_CODE, category)


def versions_page(tool: Tool, *, after: str = "", before: str = "") -> Page[ToolVersion]:
    """Return one page of versions, the newest first, without their long texts. One query."""
    versions = ToolVersion.objects.filter(tool=tool).select_related(
        "created_by__user", "decided_by__user", "made_by_agent"
    )
    return Keyset(versions.defer(*_LONG, "made_by_agent__prompt"), ("-number",)).page(after, before).of(with_state)


def with_state(version: V) -> V:
    """Return the version, of a tool or of a module, with the badge of its status, for a template."""
    version.state = STATES[VersionStatus(version.status)]  # type: ignore[attr-defined]
    return version


def version_or_404(name: str, number: int) -> ToolVersion:
    """Return one version whole, with its tool. Raises Http404. One query."""
    versions = ToolVersion.objects.select_related(
        "tool__category", "tool__current_version", "created_by__user", "decided_by__user", "made_by_agent"
    )
    version = versions.filter(tool__name=name, number=number).first()
    if version is None:
        raise Http404("No such version.")
    return with_state(version)


def others_waiting(version: ToolVersion) -> list[int]:
    """Return the numbers of the tool's other versions that wait. One query."""
    waiting = ToolVersion.objects.filter(tool_id=version.tool_id, status=VersionStatus.PENDING).exclude(pk=version.pk)
    return sorted(waiting.values_list("number", flat=True)[:50])


# -- What waits --------------------------------------------------------------------------------------------------------


def waiting_for(member: Membership) -> QuerySet[ToolVersion]:
    """Return the versions that wait for somebody who decides, as this member may. A delegated right costs one query."""
    waiting = ToolVersion.objects.filter(status=VersionStatus.PENDING)
    reach = member.reach(Right.APPROVE_CODE)
    if reach.covers(EVERY_CATEGORY):
        return waiting
    return waiting.filter(tool__category__name__in=reach.categories) if reach else waiting.none()


def waiting_page(member: Membership, *, after: str = "", before: str = "") -> Page[ToolVersion]:
    """Return the waiting versions, the oldest first, without their long texts. One query, one more for a delegated
    right."""
    rows = waiting_for(member).select_related(
        "tool__category", "tool__current_version", "created_by__user", "made_by_agent"
    )
    long = (*_LONG, *(f"tool__current_version__{name}" for name in _LONG), "made_by_agent__prompt")
    return Keyset(rows.defer(*long), ("pk",)).page(after, before).of(with_state)


def modules_waiting_for(member: Membership) -> QuerySet[HelperVersion]:
    """Return versions of helper modules that wait, for who approves code of every category: modules have none."""
    waiting = HelperVersion.objects.filter(status=VersionStatus.PENDING)
    return waiting if may_decide(member, EVERY_CATEGORY) else waiting.none()


def versions_notice(member: Membership) -> tuple[int, str]:
    """Count the versions of tools and of modules that wait for this member, with a sentence that says it; 0 and "" for
    nothing. One query, one more for a delegated right, none without the right."""
    if not member.reach(Right.APPROVE_CODE):
        return 0, ""
    tools = waiting_for(member).order_by().values("pk")
    modules = modules_waiting_for(member).order_by().values("pk")
    count = tools.union(modules, all=True)[: COUNTED + 1].count()
    return notice(count, "version waits for your approval", "versions wait for your approval", at_most=COUNTED)


# -- What differs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """One text of both versions, with what was taken out and put in."""

    title: str
    pieces: Sequence[tuple[str, SafeString]]


@dataclass(frozen=True)
class Lines:
    """The lines of one text that differ, with some around them."""

    title: str
    lines: Sequence[tuple[DiffLine, SafeString]]


@dataclass(frozen=True)
class VersionDifference:
    """Difference between two versions of a tool, from the first to the second."""

    first: ToolVersion
    second: ToolVersion
    words: Sequence[Words] = ()
    schema: Sequence[SchemaChange] = ()
    lines: Sequence[Lines] = ()
    #: Title, before and after.
    knobs: Sequence[tuple[str, Any, Any]] = ()
    #: Why they could not be compared, or empty.
    error: str = ""
    #: The comparison as plain JSON.
    as_json: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_breaking(self) -> bool:
        return is_breaking(self.schema)

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.schema or self.lines or self.knobs or self.error)


def difference_between(first: ToolVersion, second: ToolVersion, *, with_code: bool = True) -> VersionDifference:
    """Return the difference, compared in a limited child process. `with_code`: what runs is compared too. No query."""
    knobs = [
        (title, getattr(first, name), getattr(second, name))
        for name, title in KNOB_TITLES.items()
        if getattr(first, name) != getattr(second, name)
    ]
    words = {name: (getattr(first, name), getattr(second, name)) for name in WORD_TITLES}
    texts = {"Schema as JSON": (_json(first.parameters), _json(second.parameters))}
    if with_code:
        texts = {
            "Code": (_code(first), _code(second)),
            "What runs": (_json(_without_code(first)), _json(_without_code(second))),
        } | texts
    asked = {
        "words": {name: pair for name, pair in words.items() if pair[0] != pair[1]},
        "schema": (first.parameters, second.parameters),
        "lines": {name: pair for name, pair in texts.items() if pair[0] != pair[1]},
    }
    try:
        found = confined.run("versions", asked, first.organisation_id)
    except ToolError as error:
        return VersionDifference(first, second, knobs=knobs, error=str(error))
    return VersionDifference(
        first,
        second,
        [_words(WORD_TITLES[name], [Piece(**each) for each in pieces]) for name, pieces in found["words"].items()],
        [SchemaChange(**each) for each in found["schema"]],
        [shown_lines(name, [DiffLine(**each) for each in lines]) for name, lines in found["lines"].items()],
        knobs,
        as_json=found,
    )


def _words(title: str, pieces: Sequence[Piece]) -> Words:
    return Words(title, [(piece.side, marked(piece.text)) for piece in pieces])


def shown_lines(title: str, lines: Sequence[DiffLine]) -> Lines:
    """Return the lines for a template: characters that cannot be seen are written as escapes."""
    return Lines(title, [(line, marked(line.text)) for line in lines])


def _code(version: ToolVersion) -> str:
    return str(version.implementation.get("code", ""))


def _without_code(version: ToolVersion) -> dict[str, Any]:
    return {name: value for name, value in version.implementation.items() if name != "code"}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) if value else ""
