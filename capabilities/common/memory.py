"""A cache: what was read of an organisation's catalogue, while the organisation's registry version stands.

Every write of the catalogue raises that version, in its own transaction. Whoever asks here read the version first, so
that nothing old is ever kept under a newer one. What depends on the time, or on one member, is not kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from capabilities.common.taken_back import is_tried

T = TypeVar("T")


@dataclass
class Memory(Generic[T]):
    """The values that were asked for last, at most so many."""

    size: int
    _values: OrderedDict[Hashable, T] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    every: ClassVar[list[Memory[Any]]] = []

    def __post_init__(self) -> None:
        self.every.append(self)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value that is kept under the key, or a new one. Two threads may make it side by side.

        Where a change is only tried nothing is kept: its registry version will be another change's.
        """
        if is_tried():
            return make()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            if len(self._values) > self.size:
                self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


def forget_everything() -> None:
    """Empty every memory, as a new process begins."""
    for memory in Memory.every:
        memory.clear()
