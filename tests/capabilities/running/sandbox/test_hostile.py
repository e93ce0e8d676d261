"""Code that lies to the service about itself: on the channel of its call, about its end, and by its modules' names."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from capabilities.running.sandbox import SandboxResult
from capabilities.running.sandbox.bubblewrap import zygotes
from tests.capabilities.running.sandbox.running import ACME, ran
from tests.processes import children_of, wait_for

#: Processes of a sandbox in which nothing runs: bubblewrap's two, and the zygote.
AT_REST = 3
ONE = "def run():\n    return 1\n"
LIAR = """
import os, time

def run():
    for file in range(3, 64):
        try:
            os.write(file, {line!r} * {times})
        except OSError:
            pass
    {then}
"""
#: Sends the data over every file that takes all of it.
SENDER = """
import os, time

def run():
    for file in range(3, 64):
        left = {data}
        try:
            while left:
                left = left[os.write(file, left):]
        except OSError:
            pass
    time.sleep(60)
"""


def lie(line: bytes, then: str = "time.sleep(60)", times: int = 1, **limits: Any) -> SandboxResult:
    return ran(LIAR.format(line=line, times=times, then=then), runtime="full", **limits)


def processes_of(pid: int) -> list[int]:
    """The process and all those below it."""
    return [pid, *(found for child in children_of(pid) for found in processes_of(child))]


@pytest.mark.usefixtures("full_python")
class TestChannel:
    @pytest.mark.parametrize(
        "line",
        [
            b'{"exit": []}\n',
            b'{"exit": {}}\n',
            b'{"exit": true}\n',
            b'{"result": 5}\n',
            b'{"result": null}\n',
            b'{"result": ' + b"[" * 900 + b"]" * 900 + b"}\n",
            b'{"error": 1}\n',
            b'{"error": {"kind": ' + b"[" * 900 + b"]" * 900 + b', "message": {}}}\n',
            b'{"error": {"kind": [], "message": null, "line": true, "module": 7}}\n',
            b'{"printed": {}, "error": []}\n' * 3 + b"\n",
            b"[]\n",
            b"\xff\xfe\n",
            b"1" * 5_000 + b"\n",
            b'{"call": "http_get", "arguments": {}}\n' + b"x\n",
            b'{"call": ["http_get"], "arguments": [1]}\nx\n',
            b'{"call": "__init__", "arguments": []}\nx\n',
            b'{"call": "http_get", "arguments": [1, 2, 3, 4, 5]}\nx\n',
            b'{"call": "http_post", "arguments": ["https://h.example", {"a": ' + b"[" * 900 + b"]" * 900 + b"}]}\nx\n",
        ],
    )
    def test_s46_a_lie_is_an_error_of_the_run(self, line: bytes) -> None:
        found = lie(line)

        assert found.error is not None
        assert found.error.kind in ("Crashed", "Output"), found.error
        assert ran(ONE, runtime="full").value == 1

    @pytest.mark.parametrize(
        "data",
        [
            """b'{"call": "http_get", "arguments": [' + b"[]," * 300_000 + b"1]}\\n" """,
            """b'{"printed": [' + b"{}," * 300_000 + b"1]}\\n" """,
            """(b'{"printed": [' + b"1," * 9_000 + b"1]}\\n") * 40""",
            """b'{"printed": "x"}\\n' * 150_000""",
            """b"[" * 100_000 + b"\\n" """,
        ],
    )
    def test_what_would_become_many_values_is_not_parsed(self, data: str) -> None:
        found = ran(SENDER.format(data=data), runtime="full")

        assert found.error is not None
        assert found.error.kind == "Output", found.error
        assert "values" in found.error.message

    def test_a_forged_result_is_the_codes_own_and_no_more_than_json(self) -> None:
        assert lie(b'{"result": "{\\"a\\": 1}"}\n').value == {"a": 1}
        assert "JSON" in str(lie(b'{"result": "NaN"}\n').error)

    @pytest.mark.parametrize("then", ["time.sleep(600)", "\n    while True: pass"])
    def test_s44_nothing_runs_on_behind_an_answer(self, then: str) -> None:
        ran(ONE, runtime="full")
        pid = zygotes.status(ACME)["pid"]
        wait_for(lambda: len(processes_of(pid)) == AT_REST, 10)
        assert len(processes_of(pid)) == AT_REST

        assert [lie(b'{"result": "1"}\n', then).value for _ in range(3)] == [1, 1, 1]

        assert zygotes.status(ACME)["pid"] == pid
        wait_for(lambda: len(processes_of(pid)) == AT_REST, 10)
        assert len(processes_of(pid)) == AT_REST

    def test_s44_a_flood_of_messages_ends_in_time(self) -> None:
        begun = time.monotonic()

        found = lie(b'{"printed":""}\n', "return run()", times=10_000, seconds=1.0)

        assert found.error is not None
        assert found.error.kind in ("Output", "Timeout")
        assert time.monotonic() - begun < 8


@pytest.mark.usefixtures("full_python")
def test_s45_a_call_holds_its_own_channel_and_no_other_file() -> None:
    code = """
import os, stat, time

def run(seconds):
    time.sleep(seconds)
    found = []
    for file in range(64):
        try:
            kind = os.fstat(file).st_mode
            found.append("socket" if stat.S_ISSOCK(kind) else "device" if stat.S_ISCHR(kind) else oct(kind))
        except OSError:
            pass
    return found
"""
    beside = threading.Thread(target=lambda: ran(code, {"seconds": 2}, runtime="full"))
    beside.start()
    time.sleep(0.5)
    try:
        found = ran(code, {"seconds": 0}, runtime="full").value
    finally:
        beside.join()

    assert sorted(set(found)) == ["device", "socket"]  # /dev/null, and the channel
    assert found.count("socket") == 1
