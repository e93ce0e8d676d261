"""Asks a running web server whether it is ready, or looks at a worker's last sign of life. Standard library only, so
that a container's health check is cheap: `python toolhub/probe.py [worker]` ends with 0 or 1. Knows neither Django nor
the settings."""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: Seconds after its last sign of life that a worker counts as dead.
ALIVE_SECONDS = 20.0
#: Addresses to listen on that are no addresses to call.
ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared with, not bound to


def is_ready(
    host: str, port: int, allowed_hosts: Sequence[str], seconds: float = 3.0, *, path: str = "/readyz"
) -> bool:
    """Return whether GET /readyz answers 200. The Host header is one that the server accepts, whatever it listens
    on."""
    connection = http.client.HTTPConnection(ANY_ADDRESS.get(host, host), port, timeout=seconds)
    try:
        connection.request("GET", path, headers={"Host": host_header(allowed_hosts)})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def host_header(allowed_hosts: Sequence[str]) -> str:
    names = [host.strip().removeprefix(".") for host in allowed_hosts]
    return next((name for name in names if name and name != "*"), "localhost")


def worker_file(data_dir: Path) -> Path:
    """The file that the worker of this host touches while it gets on with its work."""
    return data_dir / f"worker-{socket.gethostname()}.alive"


def is_worker_alive(data_dir: Path) -> bool:
    """Return whether the worker of this host gave a sign of life lately."""
    try:
        return time.time() - worker_file(data_dir).stat().st_mtime < ALIVE_SECONDS
    except OSError:
        return False


def main(argv: Sequence[str]) -> bool:
    if argv == ["worker"]:
        data_dir = Path(__file__).resolve().parent.parent / "var"
        return is_worker_alive(Path(os.environ.get("TOOLHUB_DATA_DIR") or data_dir).expanduser())
    return is_ready(
        os.environ.get("HOST", ""),
        int(os.environ.get("PORT") or 8000),
        os.environ.get("ALLOWED_HOSTS", "").split(","),
    )


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
