"""Checks that each kind makes of a tool's content before it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Content(Protocol):
    """A tool's content, as far as its kind looks at it."""

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def implementation(self) -> Mapping[str, Any]: ...


class Check(Protocol):
    """Raises ChangeRefused unless a tool of this kind can run it; the field begins with `implementation`."""

    def __call__(self, content: Content) -> None: ...
