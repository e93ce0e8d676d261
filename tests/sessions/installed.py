"""A real installed distribution with Python hooks, for as long as a test runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from capabilities.agents.hooks.installed import GROUP


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, **points: str) -> None:
    """Install a distribution of this name with one module of the same name; `points` are its hooks, each with the name
    of its function. What pip leaves behind is a folder with the module and a `dist-info`."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{point} = {name}:{function}" for point, function in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
