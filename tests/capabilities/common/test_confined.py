"""Hostile texts, each in a child process: the answer is a sentence, and the next call works."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from capabilities.common import confined
from capabilities.common.confined import Busy, ConfinedError, Job, TooComplex, output_of, run
from toolhub.tenants.audit.writes import request_id

ACME, GLOBEX = 1, 2

#: Below the megabyte that a file of the workspace may have.
COMPREHENSION = "[a" + " for a in b" * 64_000 + "]"
#: Each line keeps every beginning of its key: 13 GB in all.
DOTTED_KEYS = "\n".join(f"k{number}." + "a." * 9_000 + "b = 1" for number in range(50))
BRANCHING = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(60)}
    | {"a60": {"type": "integer"}},
}


def is_healthy() -> bool:
    return run("syntax", {"language": "python", "text": "x = 1\n"}, ACME) is None


def memory_of_children() -> int:
    """Bytes that the largest child of this process ever held, those of other tests included."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        pytest.param("syntax", {"language": "python", "text": COMPREHENSION}, id="a comprehension that overflows"),
        pytest.param("outline", {"text": "(" * 199 + "-" * 500_000 + "x"}, id="deep signs"),
        pytest.param("syntax", {"language": "toml", "text": DOTTED_KEYS}, id="a TOML that takes gigabytes"),
        pytest.param("syntax", {"language": "json", "text": "[" * 500_000}, id="deep JSON"),
        pytest.param("syntax", {"language": "yaml", "text": "[" * 500_000}, id="deep YAML"),
        pytest.param("schema", {"schema_text": json.dumps(BRANCHING), "arguments": {"x": 1}}, id="schema"),
        pytest.param(
            "differences",
            {
                "before": [str(n // 2 % 50) if n % 2 else f"a{n}" for n in range(5_000)],
                "after": [str(n // 2 % 50) if n % 2 else f"b{n}" for n in range(5_000)],
                "before_name": "a",
                "after_name": "b",
            },
            id="a difference that takes minutes",
        ),
    ],
)
def test_a_hostile_text_ends_its_child_and_nobody_else(job: Job, arguments: dict[str, Any]) -> None:
    begun, before = time.monotonic(), memory_of_children()

    with pytest.raises(TooComplex, match=r"^This is too complex to check"):
        run(job, arguments, ACME, seconds=2, wait=60)

    assert time.monotonic() - begun < 60
    assert memory_of_children() < max(before, confined.MEMORY) + 50_000_000
    assert is_healthy()


def test_a_child_that_crashes_says_by_what_signal_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TooComplex):
        run("syntax", {"language": "python", "text": COMPREHENSION}, ACME, seconds=60, wait=60)

    assert "process for syntax gave up or crashed" in caplog.text


def test_sixty_three_slow_checks_of_one_organisation_stall_no_other(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TOOLHUB_CHILD_PROCESSES, settings.TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = 3, 2
    running, most = threading.Semaphore(2), []
    answer = confined._answer

    def counted(job: Job, arguments: dict[str, Any], *rest: Any) -> Any:
        if arguments["language"] == "json":
            return answer(job, arguments, *rest)
        most.append(running.acquire(blocking=False))
        try:
            return answer(job, arguments, *rest)
        finally:
            running.release()

    monkeypatch.setattr(confined, "_answer", counted)
    answers: list[type[Exception]] = []

    def check() -> None:
        try:
            run("syntax", {"language": "toml", "text": DOTTED_KEYS}, ACME, seconds=1.5, wait=3)
        except ConfinedError as error:
            answers.append(type(error))

    threads = [threading.Thread(target=check) for _ in range(63)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert run("syntax", {"language": "json", "text": "{}"}, GLOBEX, wait=30) is None
    for thread in threads:
        thread.join(60)

    assert len(answers) == 63
    assert answers.count(Busy) >= 63 - len(most)
    assert len(most) >= 2
    assert all(most), "Three ran at the same time."
    assert is_healthy()


def test_a_stopped_caller_waits_for_no_child() -> None:
    stopped = threading.Event()
    threading.Timer(0.3, stopped.set).start()
    begun = time.monotonic()

    with pytest.raises(TooComplex):
        run("schema", {"schema_text": json.dumps(BRANCHING), "arguments": {"x": 1}}, ACME, stopped=stopped)

    assert time.monotonic() - begun < 1.5


def test_a_child_is_given_nothing_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLHUB_FIELD_KEYS", "canary")
    code = "import os, sys; print(sorted(os.environ), os.getcwd(), 'django' in sys.modules)"

    data, status = output_of([sys.executable, "-I", "-S", "-c", code], 1_000, time.monotonic() + 5, threading.Event())

    assert (data, status) == (b"['LC_ALL'] / False\n", 0)


def test_at_the_deadline_the_whole_group_is_gone(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import os, time, pathlib\n"
        f"if os.fork() == 0: pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)"
    )

    with pytest.raises(TimeoutError):
        output_of([sys.executable, "-I", "-S", "-c", code], 1_000, time.monotonic() + 1, threading.Event())

    grandchild = int(mark.read_text())
    for _ in range(50):
        if not is_running(grandchild):
            break
        time.sleep(0.1)
    assert not is_running(grandchild)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize("code", ["print('x' * 100_000_000)", "while True: print('x' * 1_000)"])
def test_what_a_child_prints_is_cut(code: str) -> None:
    data, _ = output_of([sys.executable, "-I", "-S", "-c", code], 10_000, time.monotonic() + 5, threading.Event())

    assert len(data) < 10_000 + 65_537


@pytest.mark.parametrize("printed", ["", "[1]", "{'result': 1}", '{"other": 1}', "[" * 1_000_000, '{"result": 1}x'])
def test_a_child_that_prints_no_valid_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str
) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"print({printed!r})")
    monkeypatch.setattr(confined, "CHILD", child)

    with pytest.raises(TooComplex):
        run("syntax", {}, ACME)


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"^(a|a)*b$", r"(a?){300}a{300}b$"])
def test_a_regular_expression_that_runs_away_elsewhere_ends(pattern: str) -> None:
    lines = ["a" * 1_999 + "!"] * 100

    assert run("pattern", {"pattern": pattern, "ignore_case": False, "lines": lines, "most": 1}, ACME) == []
    assert is_healthy()


def test_a_child_limits_itself_before_it_reads() -> None:
    code = (
        f"import os, resource, sys; sys.path.insert(0, {confined.FOLDERS[0]!r})\n"
        "from capabilities.common.confined_jobs.child import _limit\n"
        "_limit(300_000_000, 7)\n"
        "names = ('AS', 'CPU', 'CORE', 'FSIZE', 'NPROC')\n"
        "print([resource.getrlimit(getattr(resource, f'RLIMIT_{name}')) for name in names])"
    )

    data, _ = output_of([sys.executable, "-I", "-S", "-c", code], 1_000, time.monotonic() + 10, threading.Event())

    memory, seconds = (300_000_000, 300_000_000), (7, 8)
    assert data.decode() == f"{[memory, seconds, (0, 0), (0, 0), (0, 0)]}\n"


def test_places_are_bounded_for_one_organisation_and_for_all(settings: Any) -> None:
    settings.TOOLHUB_CHILD_PROCESSES, settings.TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = 3, 2
    places, nobody = confined.Places(*confined._OF_CHILDREN), threading.Event()

    def taken(organisation: int) -> Any:
        return places.taken(organisation, time.monotonic() + 0.1, nobody)

    with taken(ACME), taken(ACME):
        with pytest.raises(Busy), taken(ACME):
            pass
        with taken(GLOBEX), pytest.raises(Busy), taken(GLOBEX):
            pass
    with taken(ACME), taken(ACME), taken(GLOBEX):
        pass


def test_where_people_wait_only_so_many_of_one_organisation_do(settings: Any) -> None:
    """Each holds a thread that answers everybody's pages."""
    settings.TOOLHUB_CHILD_PROCESSES = 4
    settings.TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = 1
    places, nobody, said = confined.Places(*confined._OF_CHILDREN), threading.Event(), list[str]()

    def wait(organisation_id: int) -> None:
        try:
            with places.taken(organisation_id, time.monotonic() + 30, nobody, most_waiting=2):
                said.append("taken")
        except Busy:
            said.append("busy")

    with places.taken(ACME, time.monotonic() + 30, nobody, most_waiting=2):
        threads = [threading.Thread(target=wait, args=(ACME,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for _ in range(400):
            if len(said) == 3:
                break
            time.sleep(0.05)
        while_full = list(said)
        wait(GLOBEX)
    for thread in threads:
        thread.join()

    assert (while_full, said[3:]) == (["busy"] * 3, ["taken"] * 3)


@pytest.mark.parametrize(("request_name", "answered"), [("", 8), ("of a page", 2)])
def test_work_beside_the_web_server_waits_however_many_there_are(
    settings: Any, request_name: str, answered: int
) -> None:
    """A turn checks the arguments of all its calls at once; only the threads of pages are few."""
    settings.TOOLHUB_CHILD_PROCESSES = settings.TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = 1
    said, begin = list[object](), threading.Barrier(8)

    def check() -> None:
        request_id.set(request_name)
        begin.wait()
        try:
            said.append(confined.run("schema", {"schema_text": '{"type": "object"}', "arguments": {}}, ACME))
        except Busy:
            said.append("busy")

    threads = [threading.Thread(target=check) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert said.count([]) >= answered
    assert ("busy" in said) == bool(request_name)
