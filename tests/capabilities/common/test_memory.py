"""What a process keeps under a registry version is what was committed under it."""

from __future__ import annotations

import pytest

from capabilities.common.memory import Memory
from capabilities.common.taken_back import taken_back


@pytest.mark.django_db
def test_nothing_is_kept_of_a_change_that_is_only_tried() -> None:
    memory = Memory[str](2)

    with taken_back():
        assert memory.get(("acme", 8), lambda: "tried") == "tried"

    assert memory.get(("acme", 8), lambda: "saved") == "saved"
    assert memory.get(("acme", 8), lambda: "made anew") == "saved"
