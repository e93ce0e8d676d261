"""Asks a running web server whether it is ready. Standard library only, so that a container's health check is cheap:
`python toolhub/probe.py` ends with 0 or 1. Knows neither Django nor the settings."""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Sequence

#: Addresses to listen on that are no addresses to call.
ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared with, not bound to


def is_ready(host: str, port: int, allowed_hosts: Sequence[str], seconds: float = 3.0) -> bool:
    """Whether GET /readyz answers 200. The Host header is one that the server accepts, whatever it listens on."""
    connection = http.client.HTTPConnection(ANY_ADDRESS.get(host, host), port, timeout=seconds)
    try:
        connection.request("GET", "/readyz", headers={"Host": host_header(allowed_hosts)})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def host_header(allowed_hosts: Sequence[str]) -> str:
    names = [host.strip().removeprefix(".") for host in allowed_hosts]
    return next((name for name in names if name and name != "*"), "localhost")


if __name__ == "__main__":
    ready = is_ready(
        os.environ.get("HOST", ""),
        int(os.environ.get("PORT") or 8000),
        os.environ.get("ALLOWED_HOSTS", "").split(","),
    )
    sys.exit(0 if ready else 1)
