"""Previews: what a change would do to members and live sessions, shown before it is saved, and saved as it was shown.

Which sessions are live, and what they have loaded, only the room `sessions` knows: each kind of preview is `Provided`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from django.http import HttpRequest

from capabilities.common.refused import ChangedMeanwhile
from capabilities.contract.wire import canonical_json, sha256_hex

R = TypeVar("R")


class Impact(Protocol):
    """Effects that saving would have."""

    #: Template that pages draw it with.
    template: ClassVar[str]

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""

    @property
    def changes_somebody(self) -> bool:
        """True where a member gains or loses a tool."""

    @property
    def members(self) -> int:
        """Number of members that gain or lose one."""


@dataclass(frozen=True)
class Asked:
    """Request of a POST: to show a change, or to save it as it was shown."""

    #: Stamps of what is stored, and of what was posted.
    state: str
    content: str
    #: Both stamps of what was shown last, if anything was.
    shown: tuple[str, str]
    wants_preview: bool

    @property
    def stamp(self) -> str:
        return f"{self.state}.{self.content}"

    @property
    def has_moved(self) -> bool:
        """True where the stored state has changed since the preview was shown."""
        return bool(self.shown[0]) and self.shown[0] != self.state

    @property
    def is_shown(self) -> bool:
        return self.shown == (self.state, self.content) and not self.wants_preview

    def may_be_saved(self, *, is_felt: bool) -> bool:
        """Return whether it may be saved without a preview: it changes nothing for anybody, and nobody asked to see."""
        return not (is_felt or self.has_moved or self.wants_preview)


def asked_of(request: HttpRequest, state: str, content: Any) -> Asked:
    """Read a POST. `state` stamps the stored state; `content` is what was posted, as JSON."""
    shown, _, shown_content = request.POST.get("stamp", "").partition(".")
    return Asked(state, digest(content), (shown, shown_content), "preview" in request.POST)


@dataclass(frozen=True)
class Preview:
    """A change that is not saved yet: what it would do, and the stamp with which it is saved as it was shown."""

    impact: Impact
    stamp: str
    #: Whether what is stored was changed since something was shown.
    has_moved: bool


def save_as_shown(
    request: HttpRequest,
    content: Any,
    *,
    stamp: Callable[[], str],
    impact_of: Callable[[], Impact],
    save: Callable[[str], R],
) -> R | Preview:
    """Return the result of `save` where the change was shown before or changes nothing for anybody, else its preview.

    `content` is what was posted, as JSON; `stamp` is of what is stored. Raises ChangeRefused for what cannot be saved.
    """
    asked = asked_of(request, stamp(), content)
    has_moved = asked.has_moved
    try:
        impact = None if asked.is_shown else impact_of()
        if impact is None or asked.may_be_saved(is_felt=impact.changes_somebody):
            return save(asked.state)
    except ChangedMeanwhile:
        has_moved = True
        asked = asked_of(request, stamp(), content)
        impact = impact_of()
    return Preview(impact, asked.stamp, has_moved)


def digest(content: Any) -> str:
    return sha256_hex(canonical_json(content))
