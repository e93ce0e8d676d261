"""The turns that this process runs right now, and how word from outside reaches them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from django.utils import timezone

from sessions.turns.ledger import Claim

#: Why a turn must stop: its user said so, another worker owns it, or this process is going down.
Reason = Literal["", "cancelled", "lost", "draining"]


@dataclass
class Held:
    """One claimed turn in this process. `stopped` is set once, with the reason."""

    claim: Claim
    stopped: threading.Event = field(default_factory=threading.Event)
    reason: Reason = ""
    #: Whether this process is going down: what has begun may end, and nothing new begins.
    is_leaving: bool = False
    #: When it was claimed, on the monotonic clock.
    since: float = field(default_factory=time.monotonic)

    def stop(self, reason: Reason) -> None:
        if not self.stopped.is_set():
            self.reason = reason
            self.stopped.set()

    def deadline(self, deadline_at: datetime) -> float:
        """The turn's deadline on this process's monotonic clock."""
        return time.monotonic() + (deadline_at - timezone.now()).total_seconds()

    def may_begin(self, deadline_at: datetime) -> bool:
        """Return whether the turn may begin its next step: a model call, or a tool call."""
        return not self.is_leaving and not self.stopped.is_set() and self.deadline(deadline_at) > time.monotonic()

    @property
    def is_given_back(self) -> bool:
        """True where the turn that ends here now is for another worker to go on with."""
        return self.reason == "draining" or (self.is_leaving and not self.reason)


@dataclass
class HeldTurns:
    """All of them, by claim: a process that slept through its lease may hold a turn twice for a moment."""

    _by_claim: dict[Claim, Held] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    draining: bool = False

    @contextmanager
    def holding(self, claim: Claim) -> Iterator[Held]:
        held = Held(claim)
        with self._lock:
            self._by_claim[claim] = held
            held.is_leaving = self.draining
        try:
            yield held
        finally:
            with self._lock:
                self._by_claim.pop(claim, None)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._by_claim.values())

    def drain(self) -> None:
        """Let every turn end the step that it is in, and begin no other; it goes back to the ledger behind it."""
        with self._lock:
            self.draining = True
            for each in self._by_claim.values():
                each.is_leaving = True

    def give_back(self) -> None:
        """Stop every turn in the middle of its step; they go back to the ledger."""
        for each in self.all():
            each.stop("draining")


held_turns = HeldTurns()
