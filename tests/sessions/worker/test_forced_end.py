"""A worker ends when its time is over, whatever its threads wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

#: A worker in whose turn a thread waits for something that never comes, told to end.
WORKER = """
import threading, uuid
import django
django.setup()
from django.conf import settings
from sessions.turns.held import held_turns
from sessions.turns.ledger import Claim
from sessions.worker import process
settings.TOOLHUB_GRACE_SECONDS = 0.2
process.DRAIN_SECONDS, process.LAST_SECONDS = 0.2, 0.4
claim = Claim({fields})
begun = threading.Event()
def hang():
    with held_turns.holding(claim):
        begun.set()
        threading.Event().wait()
threading.Thread(target=hang).start()
begun.wait()
process._housekeeper = process.Housekeeper()
process.end()
"""


def test_a_worker_whose_turn_never_comes_back_ends_when_its_time_is_over(tmp_path: Path) -> None:
    code = WORKER.format(fields="uuid.uuid4(), 1, 1")
    env = os.environ | {"TOOLHUB_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "toolhub.settings"}
    env["DATABASE_URL"] = f"sqlite:///{tmp_path / 'none.sqlite3'}"

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)

    assert ran.returncode == 1, ran.stderr
    assert "did not end in time" in ran.stderr
