"""Python hooks: functions of installed packages, which name them in the group `toolhub.hooks` of their entry points.

What the operator of the service installed is what there is; nobody adds one in the browser.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "toolhub.hooks"


def installed_hooks() -> list[str]:
    """Their names, as the process finds them now."""
    return sorted({each.name for each in entry_points(group=GROUP)})


@lru_cache(maxsize=256)
def _loaded(point: EntryPoint) -> Any:
    return point.load()


def load_hook(name: str) -> Callable[[dict[str, Any]], Any] | None:
    """The function of this name; None where no installed package has it. Raises what its module raises."""
    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        return None
    found: Callable[[dict[str, Any]], Any] = _loaded(point)
    return found
