"""What every HTTP service here is made of: it remembers what it was asked, and can be told to misbehave."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request as it came in; `path` as it was sent, encoded."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def parts(self) -> list[str]:
        return [unquote(part) for part in self.path.split("/")[1:]]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **named})


def html_reply(status: int = 200) -> Reply:
    return Reply(status, b"<!DOCTYPE html><html><body>Sign in</body></html>", {"Content-Type": "text/html"})


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


class FakeService:
    """Serves while it is entered. `instead`, where set, answers whatever is asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.instead: Callable[[Asked], Reply] | None = None
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)

    def answer(self, asked: Asked) -> Reply:
        """What the real service would say."""
        raise NotImplementedError

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                service.asked.append(asked)
                reply = (service.instead or service.answer)(asked)
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(reply.body)))
                    self.end_headers()
                    self.wfile.write(reply.body)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _reply

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
