"""An approval that outlives every process: all are killed between the question and the answer, and the turn goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.processes import wait_for
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_flow import House
from tests.valkey import running_valkey
from toolhub.embedded.supervisor import stop_parts, uvicorn
from toolhub.probe import is_ready

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="children die with their parent on Linux only"),
    pytest.mark.timeout(900),
]

#: Far beyond what any of it takes, on a machine that does other things too.
FAR_SECONDS = 180.0
#: Run in a process of its own, as the organisation's admin.
AS_ADMIN = """
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope
with system_scope():
    admin = Membership.objects.select_related("organisation", "user").get()
with organisation_scope(admin.organisation):
"""
RULE = """
    from capabilities.access.approval_rules.writes import RuleContent, create_rule
    create_rule(RuleContent(tool_pattern="task_*"), actor=admin)
"""
APPROVE = """
    from sessions.asking.approvals import queries, writes
    (approval,) = queries.waiting_for(admin)
    print(writes.approve(approval, actor=admin).status)
"""


@pytest.fixture
def house(tmp_path: Path, empty_database: Path | None) -> Iterator[House]:
    provider = ScriptedOpenAI().start()
    with running_valkey() as valkey:
        house = House(tmp_path, valkey, provider)
        try:
            house.start(empty_database)
            yield house
        finally:
            stop_parts(house.parts, 10)
            provider.stop()


def alone(house: House, script: str) -> str:
    """What a process of its own prints."""
    argv = [sys.executable, "manage.py", "shell", "--no-imports", "-c", AS_ADMIN + script]
    return subprocess.run(argv, cwd=ROOT, env=house.env, check=True, capture_output=True, text=True).stdout.strip()


def kill_everything(house: House) -> None:
    for part in house.parts:
        assert part.process is not None
        part.process.kill()
        part.process.wait()
    house.parts.clear()
    house.valkey.kill()


def test_an_approval_outlives_every_process_and_the_turn_goes_on_by_itself(house: House) -> None:
    alone(house, RULE)
    house.provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."))
    turn_id = house.write(house.session(), "Add a task: buy milk")
    wait_for(lambda: house.turn(turn_id)["status"] == "waiting_approval", FAR_SECONDS)
    assert house.turn(turn_id)["status"] == "waiting_approval"

    kill_everything(house)
    assert alone(house, APPROVE) == "approved"
    assert house.rows("SELECT title FROM {tasks}") == []
    house.valkey.start()
    house.part("web", uvicorn("toolhub.asgi:application", "127.0.0.1", house.port))
    house.worker()
    wait_for(lambda: is_ready("127.0.0.1", house.port, ["localhost"]), FAR_SECONDS)
    wait_for(lambda: house.turn(turn_id)["status"] == "done", FAR_SECONDS)

    assert house.turn(turn_id)["answer"] == "Added."
    assert house.rows("SELECT title FROM {tasks}") == [("buy milk",)]
    assert house.events(turn_id) == [
        *("accepted", "started", "model", "approval_requested", "waiting_approval", "approval_answered", "resumed"),
        *("attempt_restarted", "tool_started", "tool_done", "model", "done"),
    ]
