"""Connections to SQLite that this process keeps open for its next use: to open one reads the whole schema.

Threads come and go, and a worker's thread gives its connection back behind each turn and each call.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field

#: Connections of a process that are kept, about half a megabyte each.
KEPT_AT_MOST = 8


@dataclass
class KeptConnections:
    """Open connections that nobody uses. The last to come is the first to be lent: its caches are warm."""

    _kept: list[tuple[Hashable, sqlite3.Connection]] = field(default_factory=list)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def lend(self, key: Hashable) -> sqlite3.Connection | None:
        """One that was opened in the way that `key` names, if there is one."""
        with self._mutex:
            for index in range(len(self._kept) - 1, -1, -1):
                if self._kept[index][0] == key:
                    return self._kept.pop(index)[1]
        return None

    def keep(self, key: Hashable, connection: sqlite3.Connection) -> None:
        """Keep it for the next who asks; the one that waited longest is closed where there are too many."""
        with self._mutex:
            self._kept.append((key, connection))
            surplus = self._kept.pop(0)[1] if len(self._kept) > KEPT_AT_MOST else None
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        """Close all of them."""
        with self._mutex:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            with suppress(sqlite3.Error):
                connection.close()


def file_of(name: str) -> tuple[int, int]:
    """The file that has this name now: a database may be replaced by another one. (0, 0) where there is none."""
    try:
        found = os.stat(name)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
