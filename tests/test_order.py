"""The order in which several processes of pytest take the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import longest_first


@dataclass
class Item:
    path: Path
    name: str
    mark: str = ""

    def get_closest_marker(self, name: str) -> str | None:
        return self.mark if self.mark == name else None


def test_long_files_come_first_then_those_with_many_tests_and_none_is_torn_apart() -> None:
    few, many, browser, postgres = (Path(f"test_{name}.py") for name in ("few", "many", "browser", "postgres"))
    items: Any = [
        Item(few, "a"),
        Item(many, "b"),
        Item(browser, "c"),
        Item(many, "d"),
        Item(postgres, "e", "postgres"),
        Item(browser, "f", "browser"),
    ]

    ordered = sorted(items, key=longest_first(items))

    assert "".join(each.name for each in ordered) == "ecfbda"
