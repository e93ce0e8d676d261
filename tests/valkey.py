"""A real Valkey for tests, from a wheel, on a unix socket."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tests.processes import wait_for
from toolhub.embedded.supervisor import die_with_parent, valkey_command


@dataclass
class Valkey:
    """One server, which a test may end, stop or start again."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "v.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        argv = valkey_command(self.folder / "data", self.socket)
        self.process = subprocess.Popen(argv, start_new_session=True, preexec_fn=die_with_parent(os.getpid()))
        wait_for(self.answers, 10)
        assert self.answers()

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except (redis.RedisError, OSError):
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def running_valkey() -> Iterator[Valkey]:
    """In a short temporary folder: a socket's path may not be long."""
    with tempfile.TemporaryDirectory(prefix="toolhub-vk-") as folder:
        valkey = Valkey(Path(folder))
        try:
            valkey.start()
            yield valkey
        finally:
            valkey.kill()


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server
