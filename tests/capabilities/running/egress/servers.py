"""Servers on loopback that answer as a test wants, and addresses that must lead to none of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """An HTTP server on loopback that answers by path and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        self.port = int(self.http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((self.command, self.path, headers, body))
                try:
                    server.answers.get(self.path, say(b"hello"))(self)
                except OSError:  # the client hung up, as some of these tests want it to
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_HEAD = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def redirect(self, path: str, location: str, status: int = 302) -> None:
        self.answers[path] = say(b"", status=status, location=location)


def say(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


def serve() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


HOSTILE = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://127.8.8.8:{port}/",
    "http://localhost:{port}/",
    "http://localhost.:{port}/",
    "http://LOCALHOST:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::ffff:a9fe:a9fe]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://[fd00::1]:{port}/",
    "http://[fe80::1]:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1:{port}/",
    "http://100.64.0.1:{port}/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://user@127.0.0.1:{port}/",
    "http://example.org@127.0.0.1:{port}/",
    "http://example.org:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.org/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1:{port}/\n",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\u200b",
    "//127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/",
    "ftp://127.0.0.1:{port}/",
    "unix:///tmp/socket",
    "http+unix://%2Ftmp%2Fsocket/",
    "javascript:alert(1)",
    "http://",
    "",
    "http://127.0.0.1:99999/",
    "http://[::1",
]
