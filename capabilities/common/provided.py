"""Functions that a room needs from a room above it, which provides them when the apps are ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Provided(Generic[P, R]):
    """Callable that stands for the provided function. Raises RuntimeError where none was provided."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> None:
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            raise RuntimeError(f"Nothing provides {self.name}.")
        return self._function(*args, **kwargs)
