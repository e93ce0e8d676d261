"""Limits of open event streams: counted for token, member and organisation, given back, and 429 beyond."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from sessions.doors.chats import stream_limits as streams
from sessions.doors.chats.stream_limits import OpenStreams, TooManyStreams, event_stream
from sessions.models import ChatSession, TurnStatus
from tests.browser import TOKEN, service
from tests.cast import make_agent, make_session, make_turn
from tests.paths import ROOT
from tests.rest import Rest
from toolhub.tenants.models import Membership


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> OpenStreams:
    mine = OpenStreams()
    monkeypatch.setattr(streams, "open_streams", mine)
    return mine


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


def test_each_limit_counts_for_itself_and_a_refused_stream_for_none(counts: OpenStreams) -> None:
    first = counts.take({("token", 1): 2, ("organisation", 7): 3})
    counts.take({("token", 1): 2, ("organisation", 7): 3})
    with pytest.raises(TooManyStreams, match="This token has 2 event streams open"):
        counts.take({("token", 1): 2, ("organisation", 7): 3})
    counts.take({("token", 2): 2, ("organisation", 7): 3})
    with pytest.raises(TooManyStreams, match="This organisation has 3 event streams open"):
        counts.take({("token", 2): 2, ("organisation", 7): 3})
    assert counts.count() == {("token", 1): 2, ("token", 2): 1, ("organisation", 7): 3}

    first.leave()
    first.leave()

    assert counts.count() == {("token", 1): 1, ("token", 2): 1, ("organisation", 7): 2}


@pytest.mark.django_db
@pytest.mark.parametrize("end", ["read to its end", "left in the middle", "never begun"])
def test_a_stream_gives_its_place_back_however_it_ends(bob: Membership, counts: OpenStreams, end: str) -> None:
    async def three() -> AsyncIterator[str]:
        for part in "abc":
            yield part

    async def use() -> None:
        response = event_stream(bob, None, three())
        assert counts.count() == {("member", bob.pk): 1, ("organisation", bob.organisation_id): 1}
        if end == "never begun":
            return
        parts = aiter(response)
        async for _ in parts:
            if end == "left in the middle":
                await parts.aclose()  # type: ignore[attr-defined]
                break

    asyncio.run(use())
    gc.collect()

    assert counts.count() == {}


@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["TOKEN", "MEMBER", "ORGANISATION"])
def test_one_more_over_rest_is_refused_with_a_time_to_come_back(
    session: ChatSession, bob: Membership, alice: Membership, charlie: Membership, settings: Any, setting: str
) -> None:
    setattr(settings, f"TOOLHUB_STREAMS_PER_{setting}", 1)
    turn = make_turn(session, status=TurnStatus.DONE)
    other = make_turn(make_session(charlie, make_agent(charlie.organisation)), status=TurnStatus.DONE)
    rest, second, admin = Rest(bob), Rest(bob), Rest(alice)

    held: list[Any] = []
    held.append(rest.client.get(f"/api/v1/turns/{turn.pk}/events"))

    refused = rest.get(f"turns/{turn.pk}/events")
    assert refused.error == (429, "too_many_streams", None)
    assert refused.headers["Retry-After"] == "5"
    assert rest.get(f"turns/{turn.pk}").status == 200
    assert second.get(f"turns/{turn.pk}/events").status == (200 if setting == "TOKEN" else 429)
    assert admin.get(f"turns/{turn.pk}/events").status == (429 if setting == "ORGANISATION" else 200)
    assert Rest(charlie).get(f"turns/{other.pk}/events").status == 200
    held.clear()
    gc.collect()
    assert rest.get(f"turns/{turn.pk}/events").status == 200


@pytest.mark.django_db(transaction=True)
def test_a_page_that_gets_no_stream_asks_for_its_turn(
    session: ChatSession, bob: Membership, client: Client, settings: Any, counts: OpenStreams
) -> None:
    settings.TOOLHUB_STREAMS_PER_MEMBER = 1
    turn = make_turn(session, status=TurnStatus.RUNNING, draft="So far")
    client.force_login(bob.user)
    counts.take({("member", bob.pk): 1})

    refused = client.get(f"/o/acme/turns/{turn.pk}/stream")
    polled = client.get(f"/o/acme/turns/{turn.pk}/?poll=1", headers={"HX-Request": "true"}).content.decode()

    assert (refused.status_code, refused["Retry-After"]) == (429, "5")
    assert f'hx-get="/o/acme/turns/{turn.pk}/?poll=1" hx-trigger="every 2s"' in polled
    assert "sse-connect" not in polled
    assert "So far" in polled


# -- On a real server -------------------------------------------------------------------------------------------------


#: Run in the service's own settings: prints one more token of its administrator, and one of another organisation's.
MORE_TOKENS = """
from capabilities.starter import FirstAdmin, create_organisation
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope
with system_scope():
    first = Membership.objects.select_related("organisation").get()
other = create_organisation("Globex", "globex", FirstAdmin("charlie@example.com", "a-password-of-charlie"))
for member in (first, other):
    with organisation_scope(member.organisation):
        print(issue_token(member, "streams", actor=member)[1])
"""


@dataclass(frozen=True)
class Caller:
    """Somebody's program, on a real server."""

    port: int
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Host": "localhost"}
        headers["Connection"] = "close"  # with the answer
        connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def read(self, method: str, path: str, body: Any = None) -> Any:
        with self.ask(method, path, body) as answer:
            assert answer.status < 300, answer.read()
            return json.load(answer)

    def begin_turn(self) -> str:
        """The id of a turn that takes a while."""
        session = self.read("POST", "sessions", {"agent": self.read("GET", "agents")["results"][0]["slug"]})["id"]
        turn: str = self.read("POST", f"sessions/{session}/turns", {"message": "Gibberish and hogwash"})["id"]
        return turn

    def open_streams(self, turn: str, count: int) -> list[http.client.HTTPResponse]:
        return [self.ask("GET", f"turns/{turn}/events") for _ in range(count)]

    def seconds_of_a_read(self, path: str) -> float:
        """Of ten, the one in the middle."""
        took = []
        for _ in range(10):
            begun = time.monotonic()
            self.read("GET", path)
            took.append(time.monotonic() - begun)
        return sorted(took)[5]


@pytest.fixture(scope="module")
def callers(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None
) -> Iterator[tuple[Caller, Caller, Caller]]:
    """The administrator's first token and second one, and one of another organisation's administrator.

    A token may have 10 streams open, an organisation 12.
    """
    folder = tmp_path_factory.mktemp("streams")
    with service(folder, empty_database, TOOLHUB_OFFLINE_WORD_SECONDS="1", TOOLHUB_STREAMS_PER_ORGANISATION="12") as up:
        made = subprocess.run(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", MORE_TOKENS],
            cwd=ROOT,
            env=os.environ | {"TOOLHUB_DATA_DIR": str(folder / "data"), "DJANGO_SETTINGS_MODULE": "toolhub.settings"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        first, second, other = [Caller(up.port, token) for token in (TOKEN, *made.stdout.split())]
        yield first, second, other


@pytest.mark.processes
@pytest.mark.timeout(400)  # the service starts slowly on a busy machine
def test_two_hundred_streams_of_one_token_and_a_full_organisation_stop_nobody_s_reads(
    callers: tuple[Caller, Caller, Caller],
) -> None:
    first, second, other = callers
    turn, others_turn = first.begin_turn(), other.begin_turn()

    held = first.open_streams(turn, 200)
    assert [answer.status for answer in held] == [200] * 10 + [429] * 190
    assert first.seconds_of_a_read(f"turns/{turn}") < 1.0

    held += second.open_streams(turn, 3)
    assert [answer.status for answer in held[200:]] == [200, 200, 429]
    assert second.seconds_of_a_read("agents") < 1.0
    assert other.seconds_of_a_read(f"turns/{others_turn}") < 1.0
    held += other.open_streams(others_turn, 1)
    assert held[-1].status == 200

    for answer in held:
        answer.close()
    until = time.monotonic() + 15
    while (again := first.ask("GET", f"turns/{turn}/events")).status != 200:
        again.close()
        assert time.monotonic() < until  # a place that was left is free again
        time.sleep(0.5)
    again.close()
