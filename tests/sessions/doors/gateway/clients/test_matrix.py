"""Each client against the service, by one table: what a user of any client must see, and what the turns must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sessions.doors.gateway import answering
from sessions.doors.gateway.following import Followed, Text
from sessions.doors.gateway.limits import open_requests
from sessions.models import StepStatus, TurnStatus
from tests.clients.installed import FOLDER, NODE, PYTHON, need_clients
from tests.paths import ROOT
from tests.scripted_openai import Raw, Say, Script, ScriptedOpenAI, call
from tests.sessions.doors.gateway.clients.speaking import Shown, Task
from tests.sessions.doors.gateway.conftest import Gateway, until

pytestmark = pytest.mark.processes

#: Libraries that are not in .venv.
OF_MAKE_CLIENTS = {"litellm", "openai_agents", "ai_sdk"}


@dataclass(frozen=True)
class Row:
    """A client library, and how it asks."""

    library: str
    api: str = "chat"

    def __str__(self) -> str:
        return f"{self.library} {self.api}"

    def argv(self) -> list[str]:
        """What runs it. Skips the test where the library is not installed."""
        module = f"tests.sessions.doors.gateway.clients.with_{self.library}"
        if self.library in OF_MAKE_CLIENTS:
            need_clients()
        if self.library == "ai_sdk":
            return [str(NODE), str(FOLDER / "with_ai_sdk.mjs")]
        return [str(PYTHON) if self.library in OF_MAKE_CLIENTS else sys.executable, "-m", module]


ROWS = (
    Row("openai"),
    Row("openai", "responses"),
    Row("openai_agents"),
    Row("openai_agents", "responses"),
    Row("langchain"),
    Row("langchain", "responses"),
    Row("pydantic_ai"),
    Row("pydantic_ai", "responses"),
    Row("llm"),
    Row("litellm"),
    Row("litellm", "responses"),
    Row("ai_sdk"),
    Row("ai_sdk", "responses"),
)
#: LiteLLM asks for the whole response of a model that it does not know, and tells that as a stream.
NEVER_STREAMS = Row("litellm", "responses")
#: These keep a stream open that its user has left, until their process ends.
KEEP_STREAMS = {Row("llm"), Row("litellm")}
#: `run_stream` of pydantic-ai takes the first words for the answer, whatever the model calls beside them.
FIRST_WORDS = "pydantic_ai"
#: What keeps the libraries from talking to anybody else.
OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
}
OURS = call("calculator", {"expression": "1+2"})
THEIRS = call("weather", {"town": "Bonn"})
RETURNED, DONE = StepStatus.RETURNED, StepStatus.DONE
NOT_FOUND = Raw(b'{"error": {"message": "No such model.", "code": "model_not_found"}}', status=404)


@dataclass(frozen=True)
class Answered:
    """A conversation that comes to its answer."""

    script: tuple[Script, ...]
    text: str
    towns: tuple[str, ...] = ()
    #: Of the last turn.
    tokens: int = 110
    #: The tool calls of all turns, in their order.
    steps: tuple[tuple[str, StepStatus], ...] = ()
    task: dict[str, Any] = field(default_factory=dict)


ANSWERED = {
    "plain": Answered((Say("One two three."),), "One two three."),
    "ours": Answered(
        (Say(calls=[OURS]), Say("It is 3.")), "It is 3.", tokens=220, steps=(("calculator", DONE),)
    ),
    "own": Answered(
        (Say(calls=[THEIRS]), Say("It rains.")),
        "It rains.",
        ("Bonn",),
        steps=(("weather", RETURNED),),
        task={"tool": "weather"},
    ),
    "both": Answered(
        (Say(calls=[OURS, THEIRS]), Say("3, and rain.")),
        "3, and rain.",
        ("Bonn",),
        steps=(("calculator", DONE), ("weather", RETURNED)),
        task={"tool": "weather"},
    ),
    "own, then ours": Answered(
        (Say(calls=[THEIRS]), Say(calls=[OURS]), Say("Rain, and 3.")),
        "Rain, and 3.",
        ("Bonn",),
        tokens=220,
        steps=(("weather", RETURNED), ("calculator", DONE)),
        task={"tool": "weather"},
    ),
}  # fmt: skip
#: What is wrong with a request, the status that the client's error has, and a part of what it says.
REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a name of ours": ({"tool": "calculator"}, 400, "calculator"),
    "a bad token": ({"token": "th_wrong"}, 401, "No usable API key"),
    "another's agent": ({"model": "theirs"}, 404, "no such model"),
}


class Client:
    """A process with a client library, that does one task after the other."""

    def __init__(self, row: Row, home: Path) -> None:
        self.row = row
        self._argv = row.argv()
        self._environment = {**os.environ, **OFFLINE, "HOME": str(home), "LLM_USER_PATH": str(home)}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._argv, cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def does(self, task: Task) -> Shown:
        self.begins(task)
        assert self._process.stdout is not None
        return Shown(**json.loads(self._process.stdout.readline()))

    def begins(self, task: Task) -> None:
        if self._process.poll() is not None:
            self._start()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(replace(task, api=self.row.api))) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def close(self) -> None:
        """End it as its user does; the next task starts it anew."""
        if self._process.poll() is None:
            self._process.communicate(timeout=30)


@pytest.fixture(scope="module", params=ROWS, ids=str)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    started = Client(request.param, tmp_path_factory.mktemp("home"))
    yield started
    started.close()


def task_for(gateway: Gateway, **fields: Any) -> Task:
    return Task(**{"base_url": f"{gateway.origin}/v1", "token": gateway.token, **fields})


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ANSWERED)
def test_a_client_comes_to_its_answer_with_our_tools_its_own_and_both(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, name: str, streams: bool
) -> None:
    case = ANSWERED[name]
    provider.enqueue(*case.script)

    shown = client.does(task_for(gateway, streams=streams, **case.task))

    assert shown == Shown(case.text, list(case.towns), case.tokens)
    turns = gateway.turns()
    steps = [(step.tool_name, step.status) for turn in turns for step in gateway.steps(turn)]
    assert (len(turns), steps) == (1 + len(case.towns), list(case.steps))
    assert {turn.status for turn in turns} == {TurnStatus.DONE}
    assert len({turn.session_id for turn in turns}) == 1
    told = [str(each["content"]) for each in provider.requests[-1]["messages"] if each["role"] == "tool"]
    assert [("rain" in each or "3" in each) for each in told] == [True] * len(case.steps)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_client_says_what_was_refused(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, name: str, streams: bool
) -> None:
    wrong, status, part = REFUSED[name]

    shown = client.does(task_for(gateway, streams=streams, **wrong))

    assert (shown.error, shown.text, shown.towns) == (status, "", [])
    assert part in shown.message
    assert provider.requests == []


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_is_told_to_come_later(client: Client, gateway: Gateway, settings: Any, streams: bool) -> None:
    settings.TOOLHUB_REQUESTS_PER_TOKEN = 0

    shown = client.does(task_for(gateway, streams=streams))

    assert shown.error == 429
    assert "requests under way" in shown.message
    assert gateway.turns() == []


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_is_told_that_something_broke_here(
    client: Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    monkeypatch.setattr(answering, "follow", broken)

    shown = client.does(task_for(gateway, streams=streams))

    assert shown.error == 500
    assert "Something went wrong here" in shown.message


async def broken(followed: Followed) -> AsyncGenerator[Text]:
    raise RuntimeError("as a fault of ours would be")
    yield


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_is_told_that_the_provider_failed(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    provider.enqueue(*[NOT_FOUND] * 3)

    shown = client.does(task_for(gateway, streams=streams))

    assert (shown.error, shown.text) == (502, "")
    assert {turn.status for turn in gateway.turns()} == {TurnStatus.FAILED}


def test_a_stream_that_breaks_off_is_an_error_and_no_short_answer(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("I will see.", calls=[OURS]), NOT_FOUND)

    shown = client.does(task_for(gateway, streams=True))

    if client.row == NEVER_STREAMS:
        assert (shown.error, shown.text) == (502, "")
    else:
        assert shown.error in (0, 500)  # pydantic-ai makes a status of the event's type
        assert shown.text == "I will see."
    assert [turn.status for turn in gateway.turns()] == [TurnStatus.FAILED]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_words_beside_a_call_are_shown_and_come_back_with_its_result(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    provider.enqueue(Say("I look.", calls=[THEIRS]), Say("It rains."))

    shown = client.does(task_for(gateway, streams=streams, tool="weather"))

    if streams and client.row.library == FIRST_WORDS:
        assert (shown.text, shown.towns, len(provider.requests)) == ("I look.", ["Bonn"], 1)
        return
    assert (shown.text, shown.towns, shown.message) == ("I look.It rains.", ["Bonn"], "")
    told = [(each["role"], each["content"]) for each in provider.requests[1]["messages"][1:3]]
    assert told == [("user", "What about Bonn?"), ("assistant", "I look.")]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_brings_its_conversation_along(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    provider.enqueue(Say("One."), Say("Two."))

    shown = client.does(task_for(gateway, streams=streams, questions=("What about Bonn?", "And Rome?")))

    assert (shown.text, shown.message) == ("One.Two.", "")
    told = [(each["role"], each["content"]) for each in provider.requests[1]["messages"][1:]]
    assert told == [("user", "What about Bonn?"), ("assistant", "One."), ("user", "And Rome?")]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_that_leaves_stops_its_turn(
    client: Client, gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    streams = streams and client.row != NEVER_STREAMS
    provider.enqueue(*[Say("First.", calls=[OURS])] * streams, Say("Late.", delay=20.0))

    shown = client.does(task_for(gateway, streams=streams, leaves=True))

    if streams and client.row in KEEP_STREAMS:
        client.close()
    until(lambda: [turn.status for turn in gateway.turns()] == [TurnStatus.CANCELLED])
    assert shown.text == "First." * streams
    assert open_requests.count() == {}


def test_a_client_that_is_killed_stops_its_turn(client: Client, gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("First.", calls=[OURS]), Say("Late.", delay=20.0))
    client.begins(task_for(gateway, streams=True))
    until(lambda: len(provider.requests) == 2)

    client.kill()

    until(lambda: [turn.status for turn in gateway.turns()] == [TurnStatus.CANCELLED])
    assert open_requests.count() == {}
