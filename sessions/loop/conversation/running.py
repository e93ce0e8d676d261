"""A turn while a worker runs it: what is stored of it, and what this worker alone knows."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.conversation.history import Past
from sessions.loop.conversation.steps import Steps
from sessions.models import Turn
from sessions.turns.fencing import Claim
from sessions.turns.held import Held


@dataclass
class HookState:
    """State of the hooks of one turn, in its worker. Calls run side by side, so several threads write to it."""

    #: How often each hook did something, by its public id, since that was counted last.
    fired: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Whether they had the agent's prompt to patch.
    has_patched: bool = False
    #: Rank of the member's access, None until a hook asks for it.
    rank: int | None = None


@dataclass
class RunningTurn:
    """A claimed turn in the memory of the worker that runs it.

    Everything that counts is in the row and in stored steps: another worker that goes on with the turn makes the rest
    anew.
    """

    row: Turn
    held: Held
    #: What its model calls go by, with the lessons and the refusals of this turn.
    model: ResolvedModel
    #: The agent's prompt, as hooks patched it.
    prompt: str
    #: The session's turns in front of it, as its model reads them.
    past: Past
    steps: Steps = field(default_factory=Steps)
    #: The organisation's registry version, as it was last seen; None where nobody looked.
    registry_version: int | None = None
    #: Whether the session has, or had, anything loaded.
    has_loads: bool = True
    #: How far the database's clock is ahead of the worker's.
    clock_ahead: timedelta = timedelta(0)
    #: Model calls in this epoch.
    model_calls: int = 0
    #: Names of its client's own tools that the model's provider refused.
    refused_tools: frozenset[str] = frozenset()
    hooks: HookState = field(default_factory=HookState)

    @property
    def claim(self) -> Claim:
        return self.held.claim

    def go_on_with(self, model: ResolvedModel) -> None:
        """Have another model answer from here on: it reads the session's history in its own way."""
        self.model, self.past = model, Past(self.row, model)
