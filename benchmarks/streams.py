"""What open chat pages cost the web server while nothing happens, and what a message costs it.

    .venv/bin/python benchmarks/streams.py [--streams 200] [--seconds 30] [--rest]

Starts the web server and a Valkey, as `make run` has them, on a data folder that is thrown away, and no worker: turns
wait. Posts one message to each of `--streams` sessions, with one connection that is kept open, and reads from /proc
what a 202 took. Then opens the event stream of each turn, as its page does (with --rest as a program does), and
compares the web server with them and without: its CPU, its memory, and the time of the login page.

The last line of standard output is a JSON object:

streams            streams that were open all the time
accept_cpu_ms      CPU of the web server for one message, to its 202
cpu_percent        share of one core that the streams take: with them, less without
memory_mb          what the web server's memory grew by (resident)
login_ms           median time of the login page without streams; login_streams_ms: with them
login_ratio        the second over the first
threads            threads of the web server with the streams open
"""

from __future__ import annotations

import argparse
import http.client
import http.cookies
import json
import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.ending import to_its_end  # noqa: E402 -- after the path
from toolhub.embedded.supervisor import Part, free_port, socket_path, stop_parts, uvicorn, valkey_command  # noqa: E402
from toolhub.probe import is_ready  # noqa: E402

START_SECONDS = 90.0
REQUEST_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
#: Login pages of one measurement.
LOGIN_PAGES = 40
#: Messages before the measured ones, so that code and caches are warm.
WARM = 20
PASSWORD = "a-password-of-the-benchmark"


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@dataclass
class Service:
    """A web server and a Valkey on a folder of their own."""

    folder: Path
    streams: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        self.port = free_port()
        data = self.folder / "data"
        data.mkdir()
        path = socket_path(data, "valkey.sock")
        many = str(self.streams + 10_000)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLHUB_", "OPENAI_"))}
        self.env = clean | {
            "DJANGO_SETTINGS_MODULE": "toolhub.settings",
            "TOOLHUB_DATA_DIR": str(data),
            "TOOLHUB_BOOTSTRAP_TOKEN": self.token,
            "TOOLHUB_BOOTSTRAP_PASSWORD": PASSWORD,
            "TOOLHUB_LOG_LEVEL": "WARNING",
            "REDIS_URL": f"unix://{path}?db=0",
        }
        for limit in ("STREAMS_PER_TOKEN", "STREAMS_PER_MEMBER", "STREAMS_PER_ORGANISATION"):
            self.env[f"TOOLHUB_{limit}"] = "10000"
        for limit in ("QUEUED_PER_MEMBER", "QUEUED_PER_ORGANISATION"):
            self.env[f"TOOLHUB_{limit}"] = many
        self.web = self.part("web", uvicorn("toolhub.asgi:application", "127.0.0.1", self.port))
        self.valkey = self.part("valkey", valkey_command(path.parent, path))

    def part(self, name: str, argv: list[str]) -> Part:
        return Part(name, ["sh", "-c", f'exec "$@" >>"{self.folder}/{name}.log" 2>&1', "sh", *argv], self.env)

    def start(self) -> None:
        for command in (["migrate"], ["bootstrap"]):
            argv = [sys.executable, "manage.py", *command]
            subprocess.run(argv, env=self.env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        self.valkey.start()
        self.web.start()
        deadline = time.monotonic() + START_SECONDS
        while not is_ready("127.0.0.1", self.port, ["localhost"], 1.0, path="/healthz"):
            if time.monotonic() > deadline or not self.web.running:
                raise SystemExit(f"The web server is not ready; see {self.folder}.")
            time.sleep(0.1)

    def stop(self) -> None:
        stop_parts([self.web, self.valkey], 5.0)

    @property
    def pid(self) -> int:
        assert self.web.process is not None
        return self.web.process.pid

    def cpu_seconds(self) -> float:
        """User and system time of the web server so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def status(self, name: str) -> int:
        """A number of /proc/<pid>/status: `VmRSS` in KB, `Threads`."""
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def share(self, seconds: float) -> float:
        """Of one core, while nobody asks anything."""
        begun, before = time.monotonic(), self.cpu_seconds()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.monotonic() - begun)


class Client:
    """One connection that is kept open, with a token or a login."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=REQUEST_SECONDS)
        self.cookies: dict[str, str] = {}
        #: Where the last answer sent to.
        self.location = ""

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, str]:
        given = {"Host": f"localhost:{self.service.port}"} | ({"Cookie": self.cookie} if self.cookies else {})
        self.connection.request(method, path, body, given | headers)
        answer = self.connection.getresponse()
        self.location = answer.headers.get("Location", "")
        for line in answer.headers.get_all("Set-Cookie", []):
            for name, morsel in http.cookies.SimpleCookie(line).items():
                self.cookies[name] = morsel.value
        return answer.status, answer.read().decode()

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.service.token}", "Content-Type": "application/json"}
        status, text = self.ask(method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers)
        if status >= 300:
            raise SystemExit(f"{method} {path}: {status} {text}")
        return json.loads(text)

    def sign_in(self) -> None:
        _, page = self.ask("GET", "/accounts/login/", None, {})
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert found is not None
        body = urlencode({"login": "admin@example.com", "password": PASSWORD, "csrfmiddlewaretoken": found[1]})
        status, _ = self.ask("POST", "/accounts/login/", body, {"Content-Type": "application/x-www-form-urlencoded"})
        if status != 302:
            raise SystemExit(f"The sign-in was answered with {status}.")

    def login_page_ms(self) -> float:
        """Median of some login pages, asked one after another."""
        self.connection.close()  # the server ends one that was silent for some seconds
        took = []
        for _ in range(LOGIN_PAGES):
            begun = time.monotonic()
            self.ask("GET", "/accounts/login/", None, {})
            took.append((time.monotonic() - begun) * 1000)
        return statistics.median(took)


def open_stream(service: Service, path: str, headers: dict[str, str]) -> socket.socket:
    """A connection on which the stream has begun."""
    stream = socket.create_connection(("127.0.0.1", service.port), timeout=REQUEST_SECONDS)
    lines = [f"GET {path} HTTP/1.1", f"Host: localhost:{service.port}", *(f"{k}: {v}" for k, v in headers.items())]
    stream.sendall("\r\n".join([*lines, "", ""]).encode())
    begun = b""
    while b"event: " not in begun:
        part = stream.recv(65536)
        if not part or (b"\r\n" in begun and b" 200 " not in begun.split(b"\r\n")[0]):
            raise SystemExit(f"{path}: {begun[:300]!r}")
        begun += part
    return stream


def still_open(stream: socket.socket) -> bool:
    """Whether it has not ended; what it sent meanwhile is read."""
    stream.setblocking(False)
    try:
        while stream.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True


def measure(service: Service, seconds: float, as_program: bool) -> dict[str, Any]:
    client = Client(service)
    agent = client.rest("GET", "agents")["results"][0]["slug"]
    sessions = [client.rest("POST", "sessions", {"agent": agent})["id"] for _ in range(service.streams + WARM)]
    for session in sessions[:WARM]:
        client.rest("POST", f"sessions/{session}/turns", {"message": "warm"})
    before = service.cpu_seconds()
    turns = [client.rest("POST", f"sessions/{session}/turns", {"message": "wait"})["id"] for session in sessions[WARM:]]
    accept = (service.cpu_seconds() - before) / len(turns) * 1000
    say(f"{len(turns)} turns wait; a 202 took {accept:.1f} CPU ms")

    client.sign_in()
    client.ask("GET", "/", None, {})
    home = client.location
    if as_program:
        headers = {"Authorization": f"Bearer {service.token}"}
        paths = [f"/api/v1/turns/{turn}/events" for turn in turns]
    else:
        headers = {"Cookie": client.cookie}
        paths = [f"{home}turns/{turn}/stream" for turn in turns]
    for path in paths[:5]:  # so that the code is loaded
        open_stream(service, path, headers).close()
    stranger = Client(service)
    stranger.login_page_ms()
    login, idle, memory = stranger.login_page_ms(), service.share(seconds / 2), service.status("VmRSS")
    say(f"without streams: {idle:.1%} of a core, {memory // 1024} MB, login page {login:.1f} ms")

    streams = [open_stream(service, path, headers) for path in paths]
    time.sleep(3)
    share = service.share(seconds)
    grown, threads = service.status("VmRSS") - memory, service.status("Threads")
    login_streams = stranger.login_page_ms()
    count = sum(still_open(stream) for stream in streams)
    say(f"with {count} streams: {share:.1%} of a core, {grown // 1024} MB more, login page {login_streams:.1f} ms")
    for stream in streams:
        stream.close()
    return {
        "streams": count,
        "accept_cpu_ms": round(accept, 1),
        "cpu_percent": round((share - idle) * 100, 1),
        "memory_mb": round(grown / 1024, 1),
        "login_ms": round(login, 1),
        "login_streams_ms": round(login_streams, 1),
        "login_ratio": round(login_streams / login, 2),
        "threads": threads,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0, help="to look at the open streams")
    parser.add_argument("--rest", action="store_true", help="open the streams of the REST API")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="toolhub-streams-"))
    service = Service(folder, options.streams)
    try:
        service.start()
        figures = measure(service, options.seconds, options.rest)
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(to_its_end(main))
