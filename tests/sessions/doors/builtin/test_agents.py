from __future__ import annotations

from tests.sessions.doors.builtin.conftest import Use


def test_outside_of_a_turn_nobody_waits_for_an_agent(use: Use) -> None:
    assert "from a conversation" in use("spawn_agent", agent="starter", message="x")["error"]
