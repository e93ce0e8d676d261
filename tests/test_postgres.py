"""What must hold on PostgreSQL: its own tests once more, in a process whose DATABASE_URL names one.

One process runs all files, one after the other: it imports the service and migrates the database once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from xml.etree import ElementTree

import pytest

from tests.paths import ROOT
from tests.postgres import postgres_url

__all__ = ["postgres_url"]


pytestmark = [pytest.mark.postgres, pytest.mark.timeout(3600)]

#: Files, and how many of their tests must pass at least.
FILES = {
    "tests/sessions/turns/test_ledger.py": 45,
    "tests/sessions/turns/test_ledger_machine.py": 1,
    "tests/sessions/turns/test_spending.py": 40,
    "tests/sessions/turns/test_spending_machine.py": 1,
    "tests/sessions/loop/model_calls/test_reserving.py": 30,
    "tests/test_query_plans.py": 3,
    "tests/test_postgres_connections.py": 11,
    "tests/sessions/worker/test_starved.py": 3,
    "tests/sessions/worker/test_signs.py": 13,
    "tests/sessions/worker/test_worker.py": 15,
    "tests/sessions/turns/test_queue.py": 25,
    "tests/sessions/loop/model_calls/test_refused_tools.py": 25,
    "tests/sessions/loop/test_masked_calls.py": 7,
    "tests/capabilities/test_names.py": 12,
    "tests/capabilities/running/credentials/test_refreshing.py": 15,
    "tests/sessions/loop/calls/test_delegation.py": 38,
    "tests/sessions/selection/test_selection.py": 25,
    "tests/sessions/selection/test_unused_sets.py": 11,
    "tests/sessions/doors/schedules/test_periodic.py": 20,
    "tests/capabilities/access/test_requests.py": 40,
    "tests/sessions/selection/loading/test_loading_at_once.py": 6,
    "tests/sessions/loop/model_calls/test_drafts.py": 22,
    "tests/sessions/insight/trial/test_trial.py": 25,
    "tests/sessions/turns/test_sweeping.py": 16,
    "tests/sessions/turns/test_queue_limits.py": 6,
    "tests/sessions/turns/test_waiting.py": 7,
    "tests/sessions/asking/approvals/test_answers.py": 45,
    "tests/sessions/asking/approvals/test_asking.py": 40,
    "tests/sessions/asking/approvals/test_call_waits.py": 40,
    "tests/sessions/turns/test_lives_that_end.py": 25,
    "tests/capabilities/catalogue/test_search.py": 15,
    "tests/capabilities/assistant/records/test_records.py": 140,
    "tests/sessions/turns/test_statements_of_a_turn.py": 4,
    "tests/sessions/selection/test_memory.py": 15,
    "tests/tenants/test_guarded.py": 10,
    "tests/tenants/test_statements.py": 8,
    "tests/tenants/test_chain.py": 40,
    "tests/test_races.py": 9,
    "tests/capabilities/running/credentials/test_revoking.py": 22,
    "tests/sessions/doors/mcp_server/test_door.py": 35,
    "tests/sessions/doors/gateway/test_following.py": 16,
    "tests/sessions/doors/gateway/test_chat.py": 30,
    "tests/sessions/doors/gateway/test_responses.py": 28,
    "tests/sessions/doors/gateway/test_own_tools.py": 16,
    "tests/sessions/usage/metrics/test_metrics.py": 28,
    "tests/sessions/usage/rollups/test_roll_up.py": 25,
}


@dataclass
class Run:
    """What came of the run: tests that passed, and failures and errors, by file."""

    exit_status: int
    output: str
    passed: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def run(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    report = tmp_path_factory.mktemp("postgres") / "report.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db", f"--junit-xml={report}"]
    argv += ["-o", "junit_family=xunit1", *FILES]
    env = os.environ | {"DATABASE_URL": postgres_url}
    ran = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert report.exists(), ran.stdout + ran.stderr
    run = Run(ran.returncode, ran.stdout + ran.stderr)
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [*case.iter("failure"), *case.iter("error")]
        path = str(case.get("file"))
        if bad:
            run.failures.setdefault(path, []).append(f"{case.get('name')}: {bad[0].text}")
        elif not [*case.iter("skipped")]:
            run.passed[path] += 1
    return run


@pytest.mark.parametrize("path", FILES)
def test_the_same_tests_hold_on_postgresql(path: str, run: Run) -> None:
    assert run.failures.get(path, []) == []
    assert run.passed[path] >= FILES[path], run.output


def test_the_run_on_postgresql_ended_well(run: Run) -> None:
    assert run.exit_status == 0, run.output
