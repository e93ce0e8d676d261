"""Duties of every worker process beside running turns: it holds its leases, hears of cancels, and sweeps for what was
missed.

No single beat: each worker sweeps, and each step of a sweep is a conditional UPDATE, so that several at once are
harmless and one alone is enough. Without a broker, the sweeps alone keep turns going.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from celery import signals
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from capabilities.catalogue.imports import runs as imports
from capabilities.common.tokens import make_table
from capabilities.models import ConnectionTest, ToolImport
from capabilities.running.mcp_client import client as mcp_client
from sessions.doors.chats.writes import hide_throwaways, remove_deleted
from sessions.doors.schedules import periodic
from sessions.insight.connections import runs as connection_tests
from sessions.insight.trial import runs as trial_runs
from sessions.loop.calls import task_cancels, tracing
from sessions.loop.run.turn import run_turn
from sessions.models import UNENDED, CallWait, TrialRun, Turn, TurnStatus
from sessions.selection import schema_cache
from sessions.selection.unused_sets import remove_unused_sets
from sessions.turns import bell, ledger, queue, reaping
from sessions.turns.held import held_turns
from sessions.turns.sweeping import each_step
from sessions.usage.rollups.sweep import roll_up
from sessions.worker import signs
from sessions.worker.revoking import Revoker
from sessions.worker.servers import Listeners, ServerReader
from sessions.worker.small_works import small_works
from toolhub.tenants.rows.connections import keep_own_connection
from toolhub.tenants.rows.scope import organisation_scope, system_scope

logger = logging.getLogger(__name__)

RowId = TypeVar("RowId", UUID, int)

#: This process, among all that ever were.
OWNER = f"{socket.gethostname()[:40]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
#: Seconds between two looks at the turns that run here, and between two sweeps for those that do not.
HOLD_EVERY = 0.5
SWEEP_EVERY = 1.0
#: Seconds after which a turn that nobody took is rung for again.
RING_AGAIN = 2.0
#: Seconds in which a bell that this process rang, and that nobody answered, is remembered.
RANG_LATELY = 10.0
#: Seconds after which a thread that took turn after turn lets other work of the process have its place.
STREAK_SECONDS = 5.0
#: Seconds that a worker on its way down waits, behind its grace, for its turns to be given back; and behind that for
#: its threads to end.
DRAIN_SECONDS, LAST_SECONDS = 8.0, 4.0
SWEPT_AT_ONCE = 100


#: Progress of this process.
progress = signs.Progress()
#: Threads that take turns now: each runs one, or looks for its next.
_taking: set[int] = set()


def take_turns() -> None:
    """Run the turn that is next in the queue, and the one after it, until none waits that may run.

    What a thread does when the bell rings. Whatever happens is on record before this returns.
    """
    until = time.monotonic() + STREAK_SECONDS
    _taking.add(threading.get_ident())
    try:
        while not held_turns.draining:
            claim = queue.claim_next(OWNER, lambda: held_turns.draining)
            progress.chose_at = time.monotonic()
            if claim is None or not _run(claim):
                return
            if time.monotonic() > until and len(_taking) >= settings.WORKER_CONCURRENCY and _rang_for_next():
                return  # every thread takes turns, and runs of a tool by hand wait in the same line: go to its end
    except (DatabaseError, InterfaceError) as error:
        logger.warning("Turns wait for the database: %s", error)
    except Exception:
        logger.exception("No turn could be taken; a sweep calls again")
    finally:
        _taking.discard(threading.get_ident())
        connection.close()


def _rang_for_next() -> bool:
    """Return whether a turn waits that may run, and a worker was called for it."""
    waiting = queue.look().waiting
    return bool(waiting) and bell.ring(waiting[0].turn_id)


def work_on(turn_id: UUID) -> None:
    """Claim this one turn, if it is free, and run it. Whatever happens is on record before this returns."""
    try:
        claim = None if held_turns.draining else ledger.claim(turn_id, OWNER)
        if claim is not None:
            _run(claim)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("Turn %s waits for the database: %s", turn_id, error)
    finally:
        connection.close()


def _run(claim: ledger.Claim) -> bool:
    """Run the claimed turn. False where the database is out of reach: then start nothing more."""
    try:
        with organisation_scope(claim.organisation_id), held_turns.holding(claim) as held:
            run_turn(held)
    except ledger.LeaseLost:
        logger.warning("Turn %s is another worker's now, or has ended", claim.turn_id)
    except (DatabaseError, InterfaceError) as error:
        # The lease runs out, and the turn goes on elsewhere or later.
        logger.warning("Turn %s waits for the database: %s", claim.turn_id, error)
        return False
    except Exception:
        logger.exception("Turn %s fell over; it is tried again", claim.turn_id)
    return True


def work_on_trial(public_id: UUID) -> None:
    """Run a tool by hand, if the run is free. One that falls over is not taken up again: its outcome is unknown."""
    if not held_turns.draining:
        _work_on("run by hand", public_id, trial_runs.run_trial, TrialRun)


def work_on_connection_test(public_id: UUID) -> None:
    """Test a service or a model, if the test is free. One that falls over has failed when its time is up."""
    if not held_turns.draining:
        _work_on("connection test", public_id, connection_tests.run_connection_test, ConnectionTest)


def work_on_import(public_id: UUID) -> None:
    """Read what an import names, if it is free. One that falls over has failed when its time is up."""
    if not held_turns.draining:
        _work_on("import", public_id, imports.run_import, ToolImport)


def stop_task(wait_id: int) -> None:
    """Tell the far side of a task that nobody waits for it any more. One that falls over is not tried again."""
    _work_on("end of task", wait_id, task_cancels.cancel_task, CallWait)


def _work_on(what: str, row_id: RowId, work: Callable[[RowId], object], model: Any) -> None:
    """Do a small work beside the turns, where its organisation has a place for one; `row_id` is of a row of `model`.
    What it raises is logged, and stops nobody else's."""
    try:
        with system_scope():
            by = {"pk": row_id} if isinstance(row_id, int) else {"public_id": row_id}
            organisation_id = model.objects.filter(**by).values_list("organisation_id", flat=True).first()
        if organisation_id is None:
            return
        with small_works.place_for(organisation_id) as is_there:
            if is_there:
                work(row_id)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The %s %s lost the database: %s", what, row_id, error)
    except Exception:
        logger.exception("The %s %s fell over", what, row_id)
    finally:
        connection.close()


class Housekeeper:
    """The two threads beside the turns: one holds on to those that run here, one looks for those that run nowhere.

    They are two, so that a slow sweep never costs a lease. Each has a connection to the database of its own, so that
    turns which use up the pool never cost one either.
    """

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._own = ThreadPoolExecutor(settings.WORKER_CONCURRENCY, "unrung-turn")
        self._own_ids: set[UUID | int] = set()
        #: Turns that a worker was called for from here, and when.
        self._rang_at: dict[UUID, float] = {}
        self._renewed = self._signed = 0.0
        self._servers = ServerReader()
        self._listeners = Listeners(OWNER)
        self._revoker = Revoker()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for work, every in ((self.hold, HOLD_EVERY), (self.sweep, SWEEP_EVERY)):
            thread = threading.Thread(target=self._repeat, args=(work, every), name=work.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _repeat(self, work: Callable[[], None], every: float) -> None:
        keep_own_connection()
        try:
            while not self.ending.wait(every * random.uniform(0.8, 1.2)):  # noqa: S311
                self._once(work)
        finally:
            connection.close()

    def _once(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (DatabaseError, InterfaceError) as error:  # the second is no DatabaseError: a connection that broke
            logger.warning("The database is out of reach: %s", error)
            connection.close()
        except Exception:
            logger.exception("Housekeeping failed")

    def hold(self) -> None:
        """Tell the turns here what happened to them, and now and then renew their leases, and the sign of life."""
        watch_held()
        now = time.monotonic()
        if now - self._signed >= signs.RENEW_EVERY and not progress.is_stuck(held_turns.all()):
            self._signed = now
            signs.renew(OWNER)
        if now - self._renewed >= settings.TOOLHUB_LEASE_SECONDS / 3:
            self._renewed = now
            ledger.renew(OWNER, [held.claim.turn_id for held in held_turns.all()])

    def sweep(self) -> None:
        """End turns that no worker will end, do what is due by the clock, call a worker for each turn that waits for
        one, add the usage of ended turns to the hourly sums, and remove deleted rows. MCP servers that are due are
        begun to be read, and sign-ins that nobody keeps are begun to be ended."""
        clock = (periodic.sweep, trial_runs.sweep, connection_tests.sweep, imports.sweep)
        calls = (self.call_workers, self.call_workers_for_trials, self.call_workers_for_connection_tests)
        servers = (self.stop_tasks, self.call_workers_for_imports, self._listeners.sweep, self._servers.sweep)
        ends = (self._revoker.sweep, roll_up, hide_throwaways, remove_deleted, remove_unused_sets, schema_cache.pass_on)
        each_step((reaping.reap, *clock, *calls, *servers, *ends))
        progress.swept_at = time.monotonic()

    def call_workers(self) -> None:
        """Ring for turns that wait although there is a free place, or take them here where nobody can be rung."""
        each_step(partial(self._call_worker, turn_id) for turn_id in unrung())

    def call_workers_for_trials(self) -> None:
        """Ring for each run of a tool by hand that waits, or take it here where nobody can be rung."""
        each_step(partial(self._call_worker_for_trial, public_id) for public_id in trial_runs.unrung(RING_AGAIN))

    def call_workers_for_connection_tests(self) -> None:
        """Ring for each test of a service or a model that waits, or take it here where nobody can be rung."""
        each_step(partial(self._call_worker_for_test, public_id) for public_id in connection_tests.unrung(RING_AGAIN))

    def call_workers_for_imports(self) -> None:
        """Ring for each import of tools that waits, or take it here where nobody can be rung."""
        each_step(partial(self._call_worker_for_import, public_id) for public_id in imports.unrung(RING_AGAIN))

    def stop_tasks(self) -> None:
        """Tell far sides, in threads of this process, that nobody waits for a task of theirs any more."""
        each_step(partial(self._run_here, wait_id, stop_task) for wait_id in task_cancels.asked_for())

    def _call_worker(self, turn_id: UUID) -> None:
        """Ring; but take the turn here where nobody can be rung, or where nobody came when this process rang last."""
        now = time.monotonic()
        self._rang_at = {each: at for each, at in self._rang_at.items() if now - at < RANG_LATELY}
        if turn_id in self._rang_at or not bell.ring(turn_id):
            self._run_here(turn_id, lambda _: take_turns())
        else:
            self._rang_at[turn_id] = now

    def _call_worker_for_trial(self, public_id: UUID) -> None:
        if not bell.ring_for_trial(public_id):
            self._run_here(public_id, work_on_trial)

    def _call_worker_for_test(self, public_id: UUID) -> None:
        if not bell.ring_for_connection_test(public_id):
            self._run_here(public_id, work_on_connection_test)

    def _call_worker_for_import(self, public_id: UUID) -> None:
        if not bell.ring_for_import(public_id):
            self._run_here(public_id, work_on_import)

    def _run_here(self, row_id: RowId, work_on_row: Callable[[RowId], None]) -> None:
        """Do the work ourselves, beside the sweep, unless there is too much of it: nobody can be rung for it."""
        if row_id in self._own_ids or len(self._own_ids) >= settings.WORKER_CONCURRENCY:
            return
        self._own_ids.add(row_id)

        def work() -> None:
            try:
                work_on_row(row_id)
            finally:
                self._own_ids.discard(row_id)

        self._own.submit(work)

    def end(self) -> None:
        """Let calls that have begun come to their end, within the grace; give the turns back at their next step, or in
        the middle of it when the grace is over; and stop."""
        held_turns.drain()
        _wait_for_turns(settings.TOOLHUB_GRACE_SECONDS)
        held_turns.give_back()
        _wait_for_turns(DRAIN_SECONDS)
        self.stop()

    def stop(self) -> None:
        """End both threads, without a word to the turns."""
        self.ending.set()
        self._servers.stopped.set()
        self._revoker.stopped.set()
        for thread in self._threads:
            thread.join()
        self._servers.end()
        self._revoker.end()
        with suppress(DatabaseError, InterfaceError):
            self._listeners.end()
            signs.withdraw(OWNER)


def _wait_for_turns(seconds: float) -> None:
    """Wait until no turn runs here, for `seconds` at most."""
    until = time.monotonic() + seconds
    while held_turns.all() and time.monotonic() < until:
        time.sleep(0.05)


def watch_held() -> None:
    """Tell the turns that run here if they were cancelled or taken. One query."""
    held = held_turns.all()
    if not held:
        return
    turn_ids = {each.claim.turn_id for each in held}
    with system_scope():
        rows = Turn.objects.filter(pk__in=turn_ids).values_list("pk", "epoch", "status", "cancel_requested_at")
        found = {pk: (epoch, status, cancelled) for pk, epoch, status, cancelled in rows}
    for each in held:
        epoch, status, cancelled = found.get(each.claim.turn_id, (None, None, None))
        if epoch != each.claim.epoch or status != TurnStatus.RUNNING:
            each.stop("lost")
        elif cancelled is not None:
            each.stop("cancelled")


def unrung() -> list[UUID]:
    """Turns that could run and that nobody was called for lately, at most as many as this process has free places, less
    those that its threads are about to take; they count as called for from now on.

    Of several sweepers one gets each turn. They take the rows in the same order, so that they cannot block each other.
    """
    held, taking = len(held_turns.all()), len(_taking)
    places, about_to_take = settings.WORKER_CONCURRENCY - max(held, taking), max(0, taking - held)
    now = queue.look() if places > 0 else None
    progress.note_waiting(now is not None and bool(now.waiting))
    if now is None or not now.waiting:
        return []
    quiet = Q(rang_at=None) | Q(rang_at__lt=ledger.from_now(-RING_AGAIN))
    members = {each.membership_id for each in now.waiting}
    with system_scope():
        free = Turn.objects.filter(UNENDED, ledger.claimable(), quiet, membership__in=members)
        free = free.filter(ledger.next_in_session()).order_by("created_at", "pk")
        rows = free.values_list("pk", "organisation_id", "membership_id")[:SWEPT_AT_ONCE]
        found = queue.within_limits(rows, now)[about_to_take:][:places]
        if not found:
            return []
        with transaction.atomic():
            return [pk for pk in found if Turn.objects.filter(quiet, pk=pk).update(rang_at=Now())]


_housekeeper: Housekeeper | None = None


@signals.worker_init.connect
def begin(**_: object) -> None:
    """Before the broker is asked for anything, so that a worker without one works through the database."""
    global _housekeeper
    tracing.start()
    _housekeeper = Housekeeper()
    _housekeeper.start()
    # It takes half a second, which the first turn would wait for.
    threading.Thread(target=make_table, name="tokens", daemon=True).start()


@signals.worker_shutting_down.connect
def end(**_: object) -> None:
    threading.Thread(target=_end_at_last, name="last", daemon=True).start()
    if _housekeeper is not None:
        threading.Thread(target=_housekeeper.end, name="drain", daemon=True).start()


def _end_at_last() -> None:
    """End the process when its time is over, whatever its threads wait for: a database that does not answer, a tool
    that does not come back. It is as if it had been killed, which turns survive."""
    time.sleep(settings.TOOLHUB_GRACE_SECONDS + DRAIN_SECONDS + LAST_SECONDS)
    logger.warning("Threads of this worker did not end in time; it ends without them.")
    logging.shutdown()
    os._exit(1)


@signals.worker_shutdown.connect
def close_servers(**_: object) -> None:
    """End the processes of MCP servers that this worker started, and send its last spans."""
    mcp_client.close()
    tracing.stop()
