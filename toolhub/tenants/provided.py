"""Functions that a room needs of a room above it, which may not be imported. docs/architecture.md lists all of them.

The lower room declares and calls them; `wiring.py` of each app provides them once, when the apps are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Provided(Generic[P, R]):
    """Decorator of a function without a body: a call runs the function that was provided, which has the same types.

    Raises RuntimeError, with the function's name, where none was provided.
    """

    def __init__(self, declared: Callable[P, R]) -> None:
        update_wrapper(self, declared)
        self._name = f"{declared.__module__}.{declared.__qualname__}"
        self._function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> None:
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            raise RuntimeError(f"Nothing provides {self._name}.")
        return self._function(*args, **kwargs)


class ProvidedByKey(Mapping[str, T]):
    """Values that rooms above provide, each under a key of its own, in the order in which they were provided.

    Raises RuntimeError, with the name, where nothing was provided.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: dict[str, T] = {}

    def provide(self, values: Mapping[str, T]) -> None:
        self._values |= values

    def __getitem__(self, key: str) -> T:
        return self._provided()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._provided())

    def __len__(self) -> int:
        return len(self._provided())

    def _provided(self) -> dict[str, T]:
        if not self._values:
            raise RuntimeError(f"Nothing provides {self._name}.")
        return self._values
