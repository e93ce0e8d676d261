"""S43 to S46: code that tries to get out of the sandbox, and code that tries to take everything, in both runtimes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator

import pytest

from tests.capabilities.running.sandbox.escapes import BOMBS, ESCAPES, SECRET, Bomb, Escape
from tests.capabilities.running.sandbox.running import ACME, GLOBEX, ran
from tests.paths import ROOT

#: Seconds that a bomb gets, and a far outer bound for its end on a machine that does much else.
LIMIT, SLACK = 1.0, 8.0
WORKS = {"value": 42}
NEIGHBOUR = "import math\n\ndef run(n):\n    return math.comb(n, 2) - 3\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the escapes look for: a file with a secret, a port that answers, the service's code and packages."""
    file = tmp_path_factory.mktemp("machine") / "secret.txt"
    file.write_text(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=[server], daemon=True)
        thread.start()
        yield {
            "@FILE@": str(file),
            "@PORT@": str(server.getsockname()[1]),
            "@ROOT@": str(ROOT),
            "@PACKAGES@": sysconfig.get_path("purelib"),
        }


def _answer(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok")


def placed(code: str, places: dict[str, str]) -> str:
    for mark, value in places.items():
        code = code.replace(mark, value)
    return code


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.name)
def test_s43_an_escape_gets_nowhere(
    escape: Escape, runtime: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_A_TEST", SECRET)

    found = ran(placed(escape.code, places), runtime=runtime)

    assert "ESCAPED" not in str(found.value)
    assert SECRET not in f"{found.value} {found.error} {found.printed}"
    assert ran(NEIGHBOUR, {"n": 10}, runtime=runtime).value == 42


@pytest.mark.exhaustive
@pytest.mark.parametrize("escape", [escape for escape in ESCAPES if escape.works_bare], ids=lambda escape: escape.name)
def test_each_escape_works_where_there_is_no_sandbox(escape: Escape, places: dict[str, str]) -> None:
    script = f"{placed(escape.code, places)}\nimport json\nprint(json.dumps(run()))\n"
    environment = {**os.environ, "SECRET_OF_A_TEST": SECRET, "TOOLHUB_DATA_DIR": str(ROOT / "var" / "of-a-test")}

    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert json.loads(done.stdout.splitlines()[-1] if done.stdout else "null") == "ESCAPED", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_s44_a_bomb_ends_in_time_and_harms_no_neighbour(bomb: Bomb, runtime: str) -> None:
    if bomb.only_full and runtime != "full":
        pytest.skip("the interpreter has no such thing")
    neighbours: list[object] = []
    is_over = threading.Event()

    def neighbour() -> None:
        while not is_over.is_set():
            found = ran(NEIGHBOUR, {"n": 10}, runtime=runtime, organisation_id=GLOBEX, seconds=20)
            neighbours.append(found.value if found.is_ok else found.error)
            is_over.wait(0.05)

    assert ran(NEIGHBOUR, {"n": 10}, runtime=runtime, organisation_id=GLOBEX, seconds=20).value == 42
    thread = threading.Thread(target=neighbour)
    thread.start()
    try:
        found = ran(bomb.code, runtime=runtime, organisation_id=ACME, seconds=LIMIT, output=100_000)
    finally:
        is_over.set()
        thread.join()

    assert found.error is not None, found.value
    assert found.seconds < LIMIT + SLACK
    assert len(found.printed) <= 100_000
    assert set(map(str, neighbours)) == {"42"}
    assert ran(NEIGHBOUR, {"n": 10}, runtime=runtime, organisation_id=ACME, seconds=20).value == 42


def test_s44_a_few_bombs_end_in_time(runtime: str) -> None:
    for name in ("a loop that catches all", "a growing list", "recursion", "a print without end"):
        bomb = next(bomb for bomb in BOMBS if bomb.name == name)

        found = ran(bomb.code, runtime=runtime, seconds=LIMIT)

        assert found.error is not None, name
        assert found.seconds < LIMIT + SLACK, name
    assert ran(NEIGHBOUR, {"n": 10}, runtime=runtime).value == 42


@pytest.mark.usefixtures("full_python")
def test_s45_a_run_finds_nothing_of_the_one_before() -> None:
    write = "import tempfile, os\n\ndef run():\n    open('/tmp/kept', 'w').write('x')\n    return os.listdir('/tmp')\n"
    look = "import os\n\ndef run():\n    return [os.listdir('/tmp'), os.getcwd()]\n"

    assert ran(write, runtime="full").value == ["kept"]
    assert ran(look, runtime="full").value == [[], "/tmp"]


@pytest.mark.usefixtures("full_python")
def test_s45_two_runs_of_one_organisation_at_once_see_nothing_of_each_other() -> None:
    code = """\
import os, time

def run(name):
    open(f"/tmp/{name}", "w").close()
    time.sleep(0.4)
    return [os.listdir("/tmp"), os.getpid()]
"""
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(ran(code, {"name": name}, runtime="full").value))
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found, key=str) == [[["a"], 1], [["b"], 1]]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return float('inf')", "JSON"),
        ("return {'a': [1e999]}", "JSON"),
        ("x = []\n    for _ in range(60): x = [x]\n    return x", "nested"),
        ("return [0] * 200_000", "values"),
        ("return 'x' * 2_000_000", "over"),
        ("return 10 ** 5000", "digits"),
        ("return b'x'", ""),
        ("return {'__class__': object()}", ""),
        ("return run", ""),
    ],
)
def test_s46_only_limited_json_comes_back(code: str, words: str, runtime: str) -> None:
    error = ran(f"def run():\n    {code}\n", runtime=runtime).error

    assert error is not None
    assert words in str(error)


def test_s46_a_name_that_says_class_is_a_name() -> None:
    assert ran("def run():\n    return {'__class__': 'x', '$type': 'y'}\n").value == {"__class__": "x", "$type": "y"}
