"""Tool calls of this process that did not come back in their time and still run, counted by organisation.

Python cannot end a thread. What a tool leaves behind goes on taking memory, connections and processor time, so an
organisation may leave only so many behind before its next calls are refused.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from django.conf import settings

from sessions.loop.tools.tool_threads import ToolRun

logger = logging.getLogger(__name__)


@dataclass
class LeftBehind:
    """The runs, by organisation; those that have ended since are forgotten when somebody asks."""

    _runs: dict[int, list[ToolRun]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, organisation_id: int, run: ToolRun) -> None:
        with self._lock:
            self._runs.setdefault(organisation_id, []).append(run)
        count = self.count(organisation_id)
        logger.warning(
            "The %s did not come back and is left behind: %s of organisation %s", run.name, count, organisation_id
        )

    def count(self, organisation_id: int) -> int:
        """Count the organisation's left calls that still run."""
        with self._lock:
            running = [run for run in self._runs.pop(organisation_id, ()) if run.is_alive()]
            if running:
                self._runs[organisation_id] = running
            return len(running)

    def is_full(self, organisation_id: int) -> bool:
        """Return whether the organisation's next call must wait until one of them has ended."""
        count = self.count(organisation_id)
        if count < settings.TOOLHUB_LEFT_BEHIND_CALLS:
            return False
        logger.warning("A call of organisation %s is refused: %s calls are left behind", organisation_id, count)
        return True


left_behind = LeftBehind()
