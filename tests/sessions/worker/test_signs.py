"""A worker's sign of life: only one that gets on with its work gives it, and `/readyz` and containers go by it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from sessions.models import ChatSession, WorkerSign
from sessions.turns import bell, queue
from sessions.turns.held import Held, HeldTurns
from sessions.turns.ledger import Claim
from sessions.worker import process as worker
from sessions.worker import signs
from sessions.worker.process import Housekeeper
from sessions.worker.signs import Progress, has_living_worker, renew, withdraw
from tests.cast import make_agent, make_role, make_session
from tests.processes import wait_for
from tests.sessions.steps import accepted
from toolhub import probe
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.django_db(transaction=True)

LONG = signs.STUCK_SECONDS + 1


@pytest.fixture(autouse=True)
def files_of_this_test(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WORKER_FILE = probe.worker_file(tmp_path)
    monkeypatch.setenv("TOOLHUB_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(worker, "progress", Progress())
    monkeypatch.setattr(worker, "held_turns", HeldTurns())


@pytest.fixture
def housekeeper() -> Iterator[Housekeeper]:
    keeper = Housekeeper()
    yield keeper
    keeper.stop()
    keeper._own.shutdown()


def ready(client: Client) -> tuple[int, str]:
    response = client.get("/readyz")
    return response.status_code, json.loads(response.content)["workers"]


def test_a_service_without_a_living_worker_is_not_ready(client: Client, housekeeper: Housekeeper) -> None:
    assert ready(client) == (503, "none")

    housekeeper.start()
    wait_for(has_living_worker, 10)

    assert ready(client) == (200, "ok")
    assert probe.main(["worker"])


def test_a_worker_that_stops_takes_its_sign_away(client: Client, housekeeper: Housekeeper) -> None:
    housekeeper.start()
    wait_for(has_living_worker, 10)

    housekeeper.stop()

    assert ready(client) == (503, "none")
    assert not probe.main(["worker"])


def test_a_worker_that_was_killed_counts_no_more(client: Client, settings: Any) -> None:
    renew("worker-1")
    assert ready(client) == (200, "ok")
    long_ago = settings.WORKER_ALIVE_SECONDS + 1
    WorkerSign.objects.update(seen_at=timezone.now() - timedelta(seconds=long_ago))
    os.utime(settings.WORKER_FILE, (time.time() - long_ago,) * 2)

    assert ready(client) == (503, "none")
    assert not probe.main(["worker"])


def test_a_worker_that_ends_withdraws_at_once(client: Client, settings: Any) -> None:
    renew("worker-1")
    renew("worker-2")
    withdraw("worker-1")
    assert ready(client) == (200, "ok")
    withdraw("worker-2")

    assert ready(client) == (503, "none")
    assert not settings.WORKER_FILE.exists()


def test_a_sign_is_one_row_for_each_process_and_old_ones_go() -> None:
    renew("worker-1")
    WorkerSign.objects.update(seen_at=timezone.now() - timedelta(hours=2))
    renew("worker-2")
    renew("worker-2")

    assert list(WorkerSign.objects.values_list("pk", flat=True)) == ["worker-2"]


def test_a_worker_that_cannot_write_its_file_still_gives_its_sign(
    settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings.WORKER_FILE = tmp_path / "none" / "there"

    renew("worker-1")

    assert has_living_worker()
    assert "sign of life" in caplog.text


def test_an_idle_worker_is_alive() -> None:
    progress = Progress()
    progress.chose_at -= LONG

    assert not progress.is_stuck([])


def test_a_worker_whose_sweeps_stand_still_gives_no_sign() -> None:
    progress = Progress()
    progress.swept_at -= LONG

    assert progress.is_stuck([])


def test_a_worker_that_takes_none_of_the_turns_that_wait_gives_no_sign() -> None:
    progress = Progress()
    progress.note_waiting(True)
    progress.chose_at -= LONG
    assert not progress.is_stuck([])
    assert progress.waiting_since is not None
    progress.waiting_since -= LONG
    assert progress.is_stuck([])

    progress.chose_at = time.monotonic()  # a thread came back: others were faster, or it took one
    assert not progress.is_stuck([])
    progress.chose_at -= LONG
    progress.note_waiting(False)
    assert not progress.is_stuck([])


def test_a_look_into_the_queue_counts_as_progress_of_the_worker() -> None:
    before = worker.progress.chose_at

    worker.take_turns()

    assert worker.progress.chose_at > before


def test_a_worker_whose_threads_all_hang_gives_no_sign(settings: Any) -> None:
    settings.WORKER_CONCURRENCY = 2
    held = [Held(Claim(None, 1, 1)) for _ in range(2)]  # type: ignore[arg-type]
    held[0].since -= settings.TOOLHUB_TURN_SECONDS + signs.LATE_SECONDS + 1
    assert not Progress().is_stuck(held)

    held[1].since = held[0].since
    assert Progress().is_stuck(held)


def test_a_wedged_worker_stops_giving_its_sign_while_turns_wait(
    bob: Membership, housekeeper: Housekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leases are held and its sweeps come round, but no thread comes back from the queue."""
    free = threading.Event()

    def hangs(*_: object) -> None:
        free.wait(30)  # for a connection, or for a lock that somebody holds

    monkeypatch.setattr(queue, "claim_next", hangs)
    monkeypatch.setattr(signs, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(signs, "RENEW_EVERY", 0.0)
    make_role(bob.organisation, bob)
    accepted(a_session(bob))
    taking = threading.Thread(target=worker.take_turns)
    taking.start()
    for _ in range(2):
        housekeeper.sweep()
        time.sleep(0.6)
    housekeeper.sweep()
    WorkerSign.objects.all().delete()
    housekeeper.hold()
    stuck = not has_living_worker()
    free.set()
    taking.join(10)

    assert stuck


def a_session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


def test_a_turn_that_was_rung_for_and_that_nobody_took_is_taken_here(
    bob: Membership, housekeeper: Housekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes messages, and a consumer that is dead."""
    make_role(bob.organisation, bob)
    turn = accepted(a_session(bob))
    rung, here = [], []

    def ring(turn_id: UUID) -> bool:
        rung.append(turn_id)
        return True

    monkeypatch.setattr(bell, "ring", ring)
    monkeypatch.setattr(housekeeper, "_run_here", lambda row_id, work: here.append(row_id))

    housekeeper._call_worker(turn.pk)
    assert (rung, here) == ([turn.pk], [])
    housekeeper._call_worker(turn.pk)

    assert (rung, here) == ([turn.pk], [turn.pk])
