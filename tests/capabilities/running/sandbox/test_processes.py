"""The processes behind the sandbox: after forks, crashes and misuse; and machines that cannot isolate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.sandbox import HostError, HostFunctions, isolation
from capabilities.running.sandbox.bubblewrap import launch, machine, zygotes
from capabilities.running.sandbox.monty.pool import pool
from capabilities.running.sandbox.values import NICE
from tests.capabilities.running.sandbox.running import ACME, GLOBEX, ran
from tests.paths import ROOT

ONE = "def run():\n    return 1\n"
SLOW = "import time\n\ndef run():\n    time.sleep(1.5)\n    return 1\n"


def interpreters() -> list[int]:
    """The processes of this process's pool."""
    found = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        children = [int(pid) for pid in (task / "children").read_text().split()]
        found += [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "monty"]
    return found


def in_a_child(function: Any) -> int:
    """The exit status of a forked child that runs this; 0 where it returned true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if function() else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("full_python")
def test_a_process_and_its_fork_each_have_zygotes_of_their_own() -> None:
    assert ran(ONE, runtime="full").value == 1

    assert in_a_child(lambda: ran(ONE, runtime="full").value == 1) == 0

    assert ran(ONE, runtime="full").value == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_too_late_is_refused_and_its_parent_goes_on() -> None:
    assert ran(ONE).value == 1

    assert in_a_child(lambda: "was forked from one" in str(ran(ONE).error)) == 0

    assert ran(ONE).value == 1


FORK_FIRST = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
from tests.capabilities.running.sandbox.running import ran
import capabilities.running.sandbox
code = "def run():\\n    return 1\\n"
pid = os.fork()
if pid == 0:
    os._exit(0 if ran(code).value == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or ran(code).value != 1)
"""


@pytest.mark.processes
def test_a_process_that_is_forked_before_runs_code_and_so_does_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORK_FIRST], cwd=ROOT, timeout=60, check=False)

    assert done.returncode == 0


def test_a_process_of_the_interpreter_that_is_killed_is_replaced() -> None:
    with pool().checkout() as session:
        pid = session.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)

    found = [ran(ONE) for _ in range(3)]

    assert found[-1].value == 1


def test_a_process_that_is_killed_during_a_run_is_an_error_of_that_run() -> None:
    killed = threading.Event()

    def kill(*args: Any, **kwargs: Any) -> Any:
        for pid in interpreters():
            os.kill(pid, signal.SIGKILL)
        killed.set()
        raise HostError("x")

    error = ran("def run():\n    http_get('https://h')\n    return 1\n", host=HostFunctions(http=kill)).error

    assert killed.is_set()
    assert error is not None
    assert error.kind == "Crashed"
    assert ran(ONE).value == 1


@pytest.mark.usefixtures("full_python")
class TestFull:
    def test_each_organisation_has_a_zygote_of_its_own_and_keeps_it(self) -> None:
        first = [ran(ONE, runtime="full", organisation_id=each).value for each in (ACME, GLOBEX)]
        pids = [zygotes.status(each)["pid"] for each in (ACME, GLOBEX)]
        ran("def run():\n    raise ValueError('x')\n", runtime="full", organisation_id=ACME)

        assert first == [1, 1]
        assert pids[0] != pids[1]
        assert [zygotes.status(each)["pid"] for each in (ACME, GLOBEX)] == pids

    @pytest.mark.parametrize(
        "code",
        ["def run():\n    while True:\n        pass\n", "import ctypes\n\ndef run():\n    ctypes.string_at(0)\n"],
    )
    def test_a_zygote_is_replaced_after_misuse(self, code: str) -> None:
        ran(ONE, runtime="full")
        before = zygotes.status(ACME)["pid"]

        error = ran(code, runtime="full", seconds=0.5).error

        assert error is not None
        assert error.kind in ("Timeout", "Crashed")
        assert ran(ONE, runtime="full").value == 1
        assert zygotes.status(ACME)["pid"] != before

    def test_a_call_goes_on_while_another_of_its_organisation_is_ended(self) -> None:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(ran(SLOW, runtime="full", seconds=20)))
        ran(ONE, runtime="full")
        thread.start()
        time.sleep(0.3)

        ended = ran("def run():\n    while True:\n        pass\n", runtime="full", seconds=0.5)
        thread.join()

        assert ended.error is not None
        assert found[0].value == 1

    def test_a_zygote_that_is_killed_ends_the_calls_of_its_organisation_alone(self) -> None:
        found: dict[int, Any] = {}

        def call(organisation_id: int) -> None:
            found[organisation_id] = ran(SLOW, runtime="full", organisation_id=organisation_id, seconds=20)

        for each in (ACME, GLOBEX):
            ran(ONE, runtime="full", organisation_id=each)
        threads = [threading.Thread(target=call, args=[each]) for each in (ACME, GLOBEX)]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        os.killpg(zygotes.status(ACME)["pid"], signal.SIGKILL)
        for thread in threads:
            thread.join()

        assert found[ACME].error is not None
        assert found[ACME].error.kind == "Crashed"
        assert found[GLOBEX].value == 1
        assert ran(ONE, runtime="full", organisation_id=ACME).value == 1

    def test_the_zygote_outlives_the_thread_that_asked_for_it(self) -> None:
        organisation_id = 77
        thread = threading.Thread(target=lambda: ran(ONE, runtime="full", organisation_id=organisation_id))
        thread.start()
        thread.join()
        before = zygotes.status(organisation_id)["pid"]
        time.sleep(0.2)

        assert ran(ONE, runtime="full", organisation_id=organisation_id).value == 1
        assert zygotes.status(organisation_id)["pid"] == before

    def test_no_process_is_left_of_a_call_that_ran_out_of_time(self) -> None:
        ran(ONE, runtime="full")
        zygote = zygotes.status(ACME)["pid"]

        ran("def run():\n    while True:\n        pass\n", runtime="full", seconds=0.3)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and os.path.exists(f"/proc/{zygote}"):
            time.sleep(0.05)

        assert not os.path.exists(f"/proc/{zygote}")


def test_monty_stands_behind_everything_else_that_wants_the_processor() -> None:
    assert ran(ONE).value == 1

    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in interpreters()} == {NICE}


def test_full_python_stands_behind_everything_else_as_a_user_of_its_own(full_python: None) -> None:
    for organisation_id in (ACME, GLOBEX):
        assert ran(ONE, runtime="full", organisation_id=organisation_id).value == 1
        pid = zygotes.status(organisation_id)["pid"]
        assert os.getpriority(os.PRIO_PROCESS, pid) == NICE
        status = Path(f"/proc/{pid}/status").read_text()
        assert status.partition("Uid:")[2].split()[0] == str(launch.user_of(organisation_id) or os.geteuid())


class TestIsolation:
    """S47: where the machine cannot isolate code, it does not run, and it says why."""

    @pytest.fixture(autouse=True)
    def tried_anew(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        settings.TOOLHUB_FULL_PYTHON = True
        monkeypatch.setattr(sys.modules["capabilities.running.sandbox.isolation"], "_found", {})
        zygotes.forget(0)

    def test_full_python_is_off_unless_the_operator_says(self, settings: Any) -> None:
        settings.TOOLHUB_FULL_PYTHON = False

        assert (isolation().monty, isolation().full) == (True, False)
        assert "TOOLHUB_FULL_PYTHON" in isolation().full_reason

    def test_a_machine_where_bubblewrap_gives_up_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = machine.sandbox()
        refused = replace(here, arguments=("--ro-bind", "/nowhere", "/nowhere", *here.arguments))
        monkeypatch.setattr(zygotes, "sandbox", lambda: refused)

        found = isolation()

        assert not found.full
        assert "find source path /nowhere" in found.full_reason
        error = ran(ONE, runtime="full").error
        assert error is not None
        assert (error.kind, error.message) == ("Unavailable", found.full_reason)

    @pytest.mark.parametrize(
        ("without", "extra", "what"),
        [
            (["--remount-ro", "/"], [], "nothing to write but its own folder"),
            ([], ["--ro-bind", "/etc", "/etc"], "no files of the machine"),
            ([], ["--proc", "/proc"], "no other process"),
        ],
    )
    def test_an_isolation_with_a_hole_refuses(
        self, without: list[str], extra: list[str], what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = machine.sandbox()
        words = list(here.arguments)
        if without:
            at = words.index(without[0])
            del words[at : at + len(without)]
        at = words.index("--dir")
        changed = replace(here, arguments=(*words[:at], *extra, *words[at:]))
        monkeypatch.setattr(zygotes, "sandbox", lambda: changed)

        found = isolation()

        assert not found.full
        assert what in found.full_reason

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the sandbox as another user")
    def test_full_python_never_runs_as_root_of_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(user: int) -> None:
            raise PermissionError(user)

        monkeypatch.setattr(launch, "_become", refused)

        found = isolation()

        assert not found.full
        assert "user of its own" in found.full_reason

    def test_an_interpreter_that_does_not_start_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing() -> Any:
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr("capabilities.running.sandbox.monty.running.pool", missing)

        found = isolation()

        assert not found.monty
        assert "No such file or directory" in found.monty_reason
