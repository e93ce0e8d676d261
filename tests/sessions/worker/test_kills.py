"""Workers that are killed while a call runs or waits: the call goes by the tool's `on_crash`, nothing that may not be
repeated runs twice, and no sandbox outlives its worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.sandbox import isolation
from capabilities.running.sandbox.bubblewrap import shell
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from tests.capabilities.running.mcp_client.over_http import raw_server
from tests.processes import alive, children_of, wait_for
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_processes import alone
from tests.test_flow import House
from tests.valkey import running_valkey
from toolhub.embedded.supervisor import Part, stop_parts

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="children die with their parent on Linux only"),
    pytest.mark.timeout(900),
]

#: Far beyond what any of it takes, on a machine that does other things too.
FAR_SECONDS = 90.0
#: What a call of these tests may take.
CALL_SECONDS = 40.0


class HouseWithSandboxes(House):
    """Its operator allows commands and full Python; a worker that is gone is soon noticed."""

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"TOOLHUB_SHELL": "1", "TOOLHUB_FULL_PYTHON": "1", "TOOLHUB_LEASE_SECONDS": "4"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[House]:
    provider = ScriptedOpenAI().start()
    with running_valkey() as valkey:
        house = HouseWithSandboxes(tmp_path_factory.mktemp("kills"), valkey, provider)
        try:
            house.start(empty_database)
            yield house
        finally:
            stop_parts(house.parts, 10)
            provider.stop()


@pytest.fixture
def sandboxes(settings: Any) -> None:
    """Both can be kept apart on this machine; else the test is skipped with the reason."""
    settings.TOOLHUB_FULL_PYTHON = settings.TOOLHUB_SHELL = True
    if why := isolation().full_reason or shell.why_unavailable():
        pytest.skip(why)


class Counter:
    """A server that counts what it is sent, and answers with the number."""

    def __init__(self) -> None:
        self.count = 0
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                handler.rfile.read(int(handler.headers.get("content-length", 0)))
                with lock:
                    self.count += 1
                    body = str(self.count).encode()
                handler.send_response(200)
                handler.send_header("content-length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.server.shutdown()
    counter.server.server_close()


def worker_of(house: House) -> Part:
    if not any(part.name == "worker" and part.running for part in house.parts):
        house.worker()  # the test before failed
    return next(part for part in house.parts if part.name == "worker" and part.running)


def kill_worker(house: House) -> None:
    """By SIGKILL; and nothing that it had started is left."""
    worker = worker_of(house)
    assert worker.process is not None
    below = everything_below(worker.process.pid)
    worker.process.kill()
    worker.process.wait()
    house.parts.remove(worker)
    wait_for(lambda: not any(map(alive, below)), 20)
    assert [pid for pid in below if alive(pid)] == []


def everything_below(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *everything_below(child))]


def ended(house: House, turn_id: str) -> dict[str, Any]:
    over = ("done", "failed", "expired", "cancelled")
    wait_for(lambda: house.turn(turn_id)["status"] in over, FAR_SECONDS)
    return house.turn(turn_id)


def result(house: House) -> str:
    """What the model was sent of its last call."""
    return results_in(house.provider.requests[-1])[-1]


def results_in(request: Any) -> list[str]:
    return [str(each["content"]) for each in request["messages"] if each["role"] == "tool"]


#: Tools that the agent is always sent.
MAKE = f"""
    CALL_SECONDS = {CALL_SECONDS}
    from capabilities.catalogue.tools.writes import Definition, Origin, create_tool
    from capabilities.common.registry_version import touch_registry
    from capabilities.models import Agent, Category, Tool, ToolKind
    from capabilities.agents.runtime_config.writes import ORGANISATION, set_tool_knobs
    from tests.capabilities.catalogue.servers.servers import make_server, make_server_tool
    from tests.cast import give_tool, make_category
    def give(tool):
        give_tool(Agent.objects.get(slug="starter"), tool)
        touch_registry(admin.organisation_id)
    def make(name, code, runtime, **fields):
        definition = Definition(name, "Works.", {{"type": "object", "properties": {{}}}}, timeout=CALL_SECONDS,
            implementation={{"runtime": runtime, "code": code, "helpers": {{}}}}, **fields)
        category = make_category(admin.organisation, "works")
        give(create_tool(category, definition, actor=None, origin=Origin(ToolKind.PYTHON)))
    def make_far(name, url, **fields):
        give(make_server_tool(make_server(admin, name, url=url), "book", timeout=CALL_SECONDS, **fields))
"""
CODE = """
def run():
    number = http_post("{url}", body="x")["body"]
    while number == "1":
        pass
    return "ran " + number
"""


@pytest.mark.usefixtures("sandboxes")
def test_a_worker_that_dies_while_a_python_tool_runs(house: House, counter: Counter) -> None:
    name = "work_never"
    code = CODE.format(url=counter.url)
    alone(house, f"{MAKE}\n    make({name!r}, {code!r}, 'full', effect='external', on_crash='never')")
    turn_id = begun(house, name, {})
    wait_for(lambda: counter.count == 1, FAR_SECONDS)
    assert counter.count == 1

    kill_worker(house)
    house.worker()

    assert ended(house, turn_id)["status"] == "done"
    assert counter.count == 1
    assert result(house) == OUTCOME_UNKNOWN


def begun(house: House, tool: str, arguments: dict[str, Any]) -> str:
    """A turn whose model calls the tool, again where it comes with the next step alone, and then says that it is
    done."""

    def reply(request: Any) -> Say:
        found = results_in(request)
        is_run = bool(found) and "was not sent" not in found[-1]
        return Say("Done.") if is_run else Say(calls=[call(tool, arguments)])

    worker_of(house)
    house.provider.script = [reply] * 4
    return house.write(house.session(), "Work")


@pytest.mark.usefixtures("sandboxes")
def test_a_worker_that_dies_while_a_command_runs(house: House) -> None:
    knobs = "set_tool_knobs(ORGANISATION, 'shell_exec', {'security': 'full'}, actor=admin)"
    alone(house, f"{MAKE}\n    {knobs}\n    give(Tool.objects.get(name='shell_exec'))")
    turn_id = begun(house, "shell_exec", {"command": "echo x >> ran; sleep 500", "timeout_seconds": 600})
    (house.folder / "data" / "workspaces").mkdir(exist_ok=True)
    wait_for(lambda: bool(ran_of(house)), FAR_SECONDS)

    kill_worker(house)
    house.worker()

    assert ended(house, turn_id)["status"] == "done"
    assert ran_of(house) == ["x\n"]
    assert result(house) == OUTCOME_UNKNOWN


def ran_of(house: House) -> list[str]:
    return [file.read_text() for file in (house.folder / "data" / "workspaces").glob("*/ran")]


QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which seat?",
        "requestedSchema": {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]},
    },
}
ANSWER = """
    from sessions.asking.approvals import writes
    from sessions.models import Approval
    approval = Approval.objects.get(status="pending")
    print(writes.answer(approval, actor=approval.requester, action="accept", content={"seat": "4a"}).status)
"""


class FarSide:
    """An MCP server whose tool asks for a form, then works until it is let go, and says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[dict[str, Any]] = []
        self.may_end = threading.Event()

    def book(self, message: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(message["params"])
        if "inputResponses" not in message["params"]:
            return {"resultType": "input_required", "inputRequests": {"a": QUESTION}, "requestState": "state"}
        self.may_end.wait(FAR_SECONDS)
        return {"content": [{"type": "text", "text": "Booked."}]}

    def waits_in(self, house: House, **fields: Any) -> str:
        """A turn that waits for the form. In the house as a server's tool."""
        with_server = f"{MAKE}\n    make_far({self.name!r}, {self.url!r}, **{fields!r})"
        alone(house, with_server)
        turn_id = begun(house, f"mcp__{self.name}__book", {})
        wait_for(lambda: house.turn(turn_id)["status"] == "waiting_input", FAR_SECONDS)
        assert house.turn(turn_id)["status"] == "waiting_input"
        return turn_id

    url = ""


@pytest.fixture
def far_side(request: pytest.FixtureRequest) -> Iterator[FarSide]:
    far = FarSide(f"far{len(request.node.name)}")
    with raw_server({"tools/call": far.book}) as url:
        far.url = url
        yield far
        far.may_end.set()


def test_a_worker_that_dies_while_a_form_waits(house: House, far_side: FarSide) -> None:
    far_side.may_end.set()
    turn_id = far_side.waits_in(house, effect="external", on_crash="never")

    kill_worker(house)
    assert alone(house, ANSWER) == "responded"
    house.worker()

    assert ended(house, turn_id)["status"] == "done"
    assert result(house) == "Booked."
    assert [each.get("requestState") for each in far_side.calls] == [None, "state"]


def test_a_worker_that_dies_in_the_call_behind_the_answer(house: House, far_side: FarSide) -> None:
    turn_id = far_side.waits_in(house, effect="external", on_crash="never")
    assert alone(house, ANSWER) == "responded"
    wait_for(lambda: len(far_side.calls) == 2, FAR_SECONDS)
    assert len(far_side.calls) == 2

    kill_worker(house)
    far_side.may_end.set()
    house.worker()

    assert ended(house, turn_id)["status"] == "done"
    assert len(far_side.calls) == 2
    assert result(house) == OUTCOME_UNKNOWN
