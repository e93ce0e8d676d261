"""Requests to the router, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from capabilities.choosing.routing.keywords import Keywords, Matches

Mode = Literal["keywords", "hybrid"]
#: pinned: named by the caller; named: its name stands in the message; before: a follow-up keeps what was sent for the
#: last turn; ranked: the ranking; category: a keyword's category; toolkit: the rest of a small toolkit that ranks high.
Why = Literal["pinned", "named", "before", "ranked", "category", "toolkit"]


@dataclass(frozen=True)
class Context:
    """Conversation before the message. `last_user` has the newest message first; `sent_before` are the names sent for
    the last turn; `is_unfinished` says that a task is open (the last turn ended with a question, or waits)."""

    last_user: tuple[str, ...] = ()
    last_assistant: str = ""
    sent_before: tuple[str, ...] = ()
    is_unfinished: bool = False


@dataclass(frozen=True)
class RouteRequest:
    """A message, and what may be sent for it.

    allowed: names in the order in which they would be sent, each once; a name that the index does not have can be kept
    only where it is pinned. pinned: those of them that always go. budget_tokens: for the routed tools, pinned ones
    included; None is the default of the catalogue's size. tokens: what each definition costs; an unknown one costs 100.
    """

    message: str
    allowed: tuple[str, ...]
    context: Context = field(default_factory=Context)
    mode: Mode = "hybrid"
    keywords: Keywords = field(default_factory=Keywords)
    pinned: tuple[str, ...] = ()
    budget_tokens: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    name: str
    why: Why
    score: float


@dataclass(frozen=True)
class Route:
    """Tools that are sent for a message.

    kept: in the order in which they are sent. ranked: at most 50 names, best first, 1 is the best possible score.
    categories: those that the keywords name, with the phrases that matched. is_empty: the message calls for no tool
    (what is pinned goes all the same). is_follow_up: it only says to go on. dropped: how many allowed ones do not go.
    too_large: those that the message calls for and that are larger than the whole budget.
    """

    kept: tuple[Kept, ...]
    ranked: tuple[tuple[str, float], ...] = ()
    categories: Matches = ()
    is_empty: bool = False
    is_follow_up: bool = False
    dropped: int = 0
    too_large: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.kept)
