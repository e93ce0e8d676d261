"""The gateway as clients meet it: over HTTP, with turns that workers run meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import openai
import pytest
from django.db import connection

from capabilities.models import Agent
from sessions.models import Step, StepKind, Turn
from sessions.turns import ledger, listener
from sessions.worker.process import watch_held, work_on
from tests.cast import give_tool, make_agent, make_role, make_token, make_tool
from tests.scripted_openai import ScriptedOpenAI
from tests.serving import serving
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope
from toolhub.web.handler import Handler


@dataclass
class Gateway:
    """The address, Bob's token, and an agent `helper` of Acme's that may use `calculator`."""

    origin: str
    token: str
    agent: Agent
    member: Membership

    def client(self, **fields: Any) -> Any:
        """As anybody has it, but that it tries once."""
        given = {"base_url": f"{self.origin}/v1", "api_key": self.token, "max_retries": 0, **fields}
        return openai.OpenAI(**given)

    def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        named = {"Authorization": f"Bearer {self.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return httpx2.post(f"{self.origin}{path}", json=body, headers=named, timeout=60)

    def turns(self) -> list[Turn]:
        """In the order in which they came."""
        with organisation_scope(self.member.organisation):
            return list(Turn.objects.select_related("client_request", "session").order_by("created_at", "seq"))

    def steps(self, turn: Turn, kind: StepKind = StepKind.TOOL) -> list[Step]:
        with organisation_scope(self.member.organisation):
            return list(Step.objects.filter(turn=turn, kind=kind).order_by("index"))


@pytest.fixture
def gateway(
    transactional_db: None, bob: Membership, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateway]:
    # There is no broker to tell what happened.
    monkeypatch.setattr(listener, "POLL_EVERY", 0.05)
    agent = make_agent(bob.organisation, provider.url, slug="helper", prompt="Be brief.")
    give_tool(agent, make_tool(bob.organisation, "calculator"))
    make_role(bob.organisation, bob)
    with serving(Handler()) as origin, working():
        yield Gateway(origin, make_token(bob), agent, bob)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class working:
    """Workers that run every turn as it comes, while the block runs."""

    def __enter__(self) -> None:
        self._stopped = threading.Event()
        self._taken: set[UUID] = set()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __exit__(self, *args: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _run(self, turn_id: UUID) -> None:
        try:
            work_on(turn_id)
        finally:
            self._taken.discard(turn_id)

    def _work(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            try:
                while not self._stopped.is_set():
                    with system_scope():
                        free = list(Turn.objects.filter(ledger.claimable()).values_list("pk", flat=True))
                    for turn_id in free:
                        if turn_id not in self._taken:
                            self._taken.add(turn_id)
                            pool.submit(self._run, turn_id)
                    watch_held()
                    time.sleep(0.02)
            finally:
                connection.close()
