from __future__ import annotations

from tests.sessions.doors.builtin.conftest import Use


def test_outside_of_a_turn_nobody_waits_for_an_agent(use: Use) -> None:
    assert use("spawn_agent", agent="starter", message="x")["error"] == (
        "An agent is asked from a conversation: there its answer is waited for."
    )
