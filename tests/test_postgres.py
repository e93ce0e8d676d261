"""What must hold on PostgreSQL: its own tests once more, in a process whose DATABASE_URL names one.

The first file migrates the database, the others find it there: the server is new with each run of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import postgres_url

__all__ = ["postgres_url"]

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("path", "at_least"),
    [
        ("tests/sessions/turns/test_ledger.py", 45),
        ("tests/sessions/turns/test_ledger_machine.py", 1),
        ("tests/test_query_plans.py", 3),
        ("tests/sessions/loop/test_delegation.py", 38),
        ("tests/sessions/selection/test_selection.py", 25),
        ("tests/sessions/schedules/test_periodic.py", 20),
        ("tests/capabilities/access/test_requests.py", 40),
        ("tests/sessions/loading/test_loading_at_once.py", 6),
        ("tests/sessions/loop/test_drafts.py", 22),
        ("tests/sessions/trial/test_trial.py", 25),
        ("tests/sessions/turns/test_sweeping.py", 16),
        ("tests/sessions/turns/test_queue_limits.py", 6),
        ("tests/sessions/turns/test_lives_that_end.py", 25),
        ("tests/capabilities/catalogue/test_search.py", 17),
        ("tests/capabilities/records/test_records.py", 140),
        ("tests/sessions/turns/test_statements_of_a_turn.py", 3),
        ("tests/sessions/selection/test_memory.py", 15),
        ("tests/tenants/test_guarded.py", 10),
        ("tests/tenants/test_statements.py", 8),
        ("tests/tenants/test_chain.py", 40),
    ],
)
def test_the_same_tests_hold_on_postgresql(path: str, at_least: int, postgres_url: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db", path]
    ran = subprocess.run(
        argv, cwd=ROOT, env=os.environ | {"DATABASE_URL": postgres_url}, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None, ran.stdout
    assert int(passed[1]) >= at_least
