"""The door of the web server: one change of threads a request, none held by a stream, files before Django."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from toolhub.web import handler
from toolhub.web.handler import Handler
from toolhub.web.intake import App
from toolhub.web.static_files import ServedFiles

#: What the views of this file note down.
noted: list[str] = []
#: Ends the view that is slow.
let_go = threading.Event()


async def slowly() -> AsyncIterator[str]:
    try:
        yield "begun "
        yield await sync_to_async(lambda: "read ")()
        await asyncio.sleep(60)
    finally:
        noted.append("ended")


def stream(request: HttpRequest) -> HttpResponseBase:
    response = StreamingHttpResponse(slowly())
    response._resource_closers.append(lambda: noted.append("closed"))  # type: ignore[attr-defined]
    return response


@csrf_exempt
def plain(request: HttpRequest) -> HttpResponseBase:
    response = HttpResponse(request.body)
    response._resource_closers.append(lambda: noted.append("closed"))  # type: ignore[attr-defined]
    return response


def slow(request: HttpRequest) -> HttpResponseBase:
    noted.append("slow")
    let_go.wait(30)
    return HttpResponse("done")


urlpatterns = [path("stream", stream), path("plain", plain), path("slow", slow)]


class Request:
    """One request under way: what was sent of its answer, and the client's hand on it."""

    def __init__(
        self, app: App, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        given = [
            (name.encode(), value.encode()) for name, value in ({"host": "localhost"} | dict(headers or {})).items()
        ]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": given}
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.status, self.headers, self.body = 0, dict[str, str](), b""
        self.task = asyncio.ensure_future(app(scope, self.incoming.get, self.send))

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        self.body += message.get("body", b"")

    async def leave(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})
        await self.task


@pytest.fixture(autouse=True)
def notes(settings: Any) -> list[str]:
    settings.ROOT_URLCONF = "tests.test_handler"
    noted.clear()
    return noted


def test_a_request_changes_threads_once(monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> None:
    changes: list[str] = []
    in_thread, sync_call = Handler.in_thread, SyncToAsync.__call__

    async def count(self: Handler, work: Any) -> Any:
        changes.append("handler")
        return await in_thread(self, work)

    async def count_asgiref(self: Any, *args: Any, **kwargs: Any) -> Any:
        changes.append("asgiref")
        return await sync_call(self, *args, **kwargs)

    monkeypatch.setattr(Handler, "in_thread", count)
    monkeypatch.setattr(SyncToAsync, "__call__", count_asgiref)

    async def ask() -> Request:
        request = Request(Handler(), "POST", "/plain", {"content-length": "5"}, b"hello")
        await request.task
        return request

    request = asyncio.run(ask())

    assert (request.status, request.body) == (200, b"hello")
    assert request.headers["x-frame-options"] == "DENY"  # the middlewares were there
    assert changes == ["handler"]
    assert notes == ["closed"]


def test_open_streams_hold_no_thread_and_end_when_their_reader_leaves(
    monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setattr(handler, "THREADS", 1)

    async def ask() -> list[Request]:
        app = Handler()
        streams = [Request(app, "GET", "/stream") for _ in range(3)]
        while not all(stream.body == b"begun read " for stream in streams):
            await asyncio.sleep(0.01)
        last = Request(app, "GET", "/plain")
        await last.task
        assert notes == ["closed"]
        for stream in streams:
            await stream.leave()
        return [*streams, last]

    requests = asyncio.run(asyncio.wait_for(ask(), 30))

    assert [request.status for request in requests] == [200] * 4
    assert notes == ["closed", *["ended", "closed"] * 3]


# -- More than there are threads --------------------------------------------------------------------------------------


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thread that the first request holds, until `let_go` is set."""
    monkeypatch.setattr(handler, "THREADS", 1)
    let_go.clear()
    yield
    let_go.set()


async def until_it_works() -> None:
    while not noted:
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("one_thread")
def test_nothing_is_worked_on_for_a_client_that_left_while_it_waited(notes: list[str]) -> None:
    async def ask() -> list[Request]:
        app = Handler()
        first = Request(app, "GET", "/slow")
        await until_it_works()
        left = [Request(app, "GET", "/slow") for _ in range(5)]
        stays = Request(app, "GET", "/plain")
        await asyncio.sleep(0.05)
        for each in left:
            await asyncio.wait_for(each.leave(), 10)
        let_go.set()
        await asyncio.gather(first.task, stays.task)
        assert (app.at_work, app.waiting) == (0, 0)
        return [first, *left, stays]

    requests = asyncio.run(asyncio.wait_for(ask(), 30))

    assert [each.status for each in requests] == [200, 0, 0, 0, 0, 0, 200]
    assert notes == ["slow", "closed"]


@pytest.mark.usefixtures("one_thread")
def test_where_too_many_wait_the_next_is_sent_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MOST_WAITING", 2)

    async def ask() -> list[Request]:
        app = Handler()
        first = Request(app, "GET", "/slow")
        await until_it_works()
        waiting = [Request(app, "GET", "/plain") for _ in range(2)]
        await asyncio.sleep(0.05)
        away = [Request(app, "GET", path) for path in ("/plain", "/api/v1/tools", "/v1/models")]
        await asyncio.gather(*(each.task for each in away))
        let_go.set()
        await asyncio.gather(first.task, *(each.task for each in waiting))
        last = Request(app, "GET", "/plain")
        await last.task
        return [first, *waiting, last, *away]

    requests = asyncio.run(asyncio.wait_for(ask(), 30))
    taken, away = requests[:4], requests[4:]

    assert [each.status for each in taken] == [200] * 4
    assert [(each.status, each.headers["retry-after"]) for each in away] == [(503, "2")] * 3
    assert away[0].headers["content-type"].startswith("text/plain")
    assert {json.loads(each.body)["error"]["code"] for each in away[1:]} == {"busy"}


# -- Files ------------------------------------------------------------------------------------------------------------


CONTENT = b"abcdefghijklmnopqrstuvwxyz" * 100


@pytest.fixture
def files(tmp_path: Path, settings: Any) -> Any:
    """An app that serves `/static/a.css`, of 2,600 bytes, and answers 404 to anything else."""
    settings.STATIC_ROOT, settings.WHITENOISE_AUTOREFRESH, settings.WHITENOISE_USE_FINDERS = tmp_path, False, False
    (tmp_path / "a.css").write_bytes(CONTENT)
    (tmp_path / "a.css.gz").write_bytes(gzip.compress(CONTENT))

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body"})

    return lambda: ServedFiles(nothing)


def ask_for(files: Any, method: str, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    async def ask() -> Request:
        request = Request(files(), method, path, {name.replace("_", "-"): value for name, value in headers.items()})
        await request.task
        return request

    request = asyncio.run(ask())
    return request.status, request.body, request.headers


def test_a_file_is_sent_whole_in_part_compressed_or_not_at_all(files: Any) -> None:
    status, body, headers = ask_for(files, "GET", "/static/a.css")
    assert (status, body) == (200, CONTENT)
    assert (headers["content-type"], headers["x-content-type-options"]) == ('text/css; charset="utf-8"', "nosniff")
    assert headers["content-length"] == "2600"

    assert ask_for(files, "HEAD", "/static/a.css")[:2] == (200, b"")
    assert ask_for(files, "GET", "/static/a.css", range="bytes=2-4")[:2] == (206, b"cde")
    assert ask_for(files, "GET", "/static/a.css", if_none_match=headers["etag"])[:2] == (304, b"")
    assert ask_for(files, "POST", "/static/a.css")[0] == 405
    packed = ask_for(files, "GET", "/static/a.css", accept_encoding="gzip")
    assert (packed[2]["content-encoding"], gzip.decompress(packed[1])) == ("gzip", CONTENT)


@pytest.mark.parametrize("path", ["/static/b.css", "/static/../a.css", "/static/", "/a.css", "/static//a.css"])
def test_any_other_path_is_for_django(files: Any, path: str) -> None:
    status, body, _ = ask_for(files, "GET", path)

    assert status == 404
    assert b"abcdef" not in body
