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

    def stop(self, reason: Reason) -> None:
        if not self.stopped.is_set():
            self.reason = reason
            self.stopped.set()

    def deadline(self, deadline_at: datetime) -> float:
        """The turn's deadline on this process's monotonic clock."""
        return time.monotonic() + (deadline_at - timezone.now()).total_seconds()


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
            if self.draining:
                held.stop("draining")
        try:
            yield held
        finally:
            with self._lock:
                self._by_claim.pop(claim, None)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._by_claim.values())

    def drain(self) -> None:
        """Stop every turn at its next step; they go back to the ledger."""
        with self._lock:
            self.draining = True
            held = list(self._by_claim.values())
        for each in held:
            each.stop("draining")


held_turns = HeldTurns()
