"""Twenty rounds of one conversation in a loading mode and a dialect, run as a worker does, with each request's bytes.

The model is a script: what it asks for depends on nothing but the tools that a request carries. Django must be set up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.scenes import OWN, PROMPT, SCENES, TOOLKITS, Load, Scene, Unload
from capabilities.agents.agents.writes import AgentContent, create_agent
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, create_toolkit
from capabilities.models import Agent, Dialect, LanguageModel, LoadingMode, Provider
from sessions.doors.chats.writes import open_session
from sessions.models import ChatSession, Step, StepKind, TurnStatus
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By, load, unload
from sessions.turns import accepting
from sessions.worker.process import work_on
from tests.scripted_openai import Say, call, rendered
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

# -- The model ---------------------------------------------------------------------------------------------------------


class Model:
    """A provider on this machine that speaks the OpenAI protocol, plays the scenes, and keeps each request's bytes."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.bodies: list[bytes] = []
        self._plan = [part for scene in scenes for part in scene.plan]
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def reply(self, body: bytes) -> Say:
        number, part = len(self.bodies), self._plan[len(self.bodies)]
        self.bodies.append(body)
        sealed = f"gAAAA{number:02}" + 25 * "0123456789abcdef"
        if isinstance(part, str):
            return Say(part, reasoning=sealed)
        at_hand = {tool.get("function", tool)["name"] for tool in json.loads(body).get("tools", ())}
        acts = [act.call(at_hand) for act in part]
        calls = [
            call(name, json.dumps(arguments, ensure_ascii=False), id=f"call_{number}_{index}")
            for index, (name, arguments) in enumerate(acts)
        ]
        return Say(calls=calls, reasoning=sealed)


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = rendered(model.reply(self.rfile.read(int(self.headers["Content-Length"]))), self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(raw.body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@contextmanager
def playing(scenes: Sequence[Scene]) -> Iterator[Model]:
    model = Model(scenes)
    threading.Thread(target=model.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield model
    finally:
        model.server.shutdown()
        model.server.server_close()


# -- The run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """One model call: the bytes of its request, and what is on record of it."""

    body: bytes
    tool_tokens: int
    #: Bytes of tools and messages, and how many of them repeat the last call.
    prompt_bytes: int
    prefix_bytes: int


def add_toolkits(member: Membership) -> None:
    for name, tools in TOOLKITS.items():
        lines = tuple(ToolkitLine(tool) for tool in tools)
        create_toolkit(ToolkitContent(name, f"The {name}.", lines), actor=member)


def play(
    member: Membership, mode: LoadingMode, dialect: Dialect = Dialect.CHAT, scenes: Sequence[Scene] = SCENES
) -> list[Sent]:
    """The scenes with an agent of this loading mode, which may load TOOLKITS. The caller's scope is the member's."""
    with playing(scenes) as model:
        session = open_session(member, _agent(member, mode, dialect, model.url))
        for scene in scenes:
            if mode == LoadingMode.CONSTANT:
                _by_hand(session, scene)
            turn = accepting.accept(session, scene.message, member=member).turn
            work_on(turn.pk)
            turn.refresh_from_db()
            assert (turn.status, turn.answer) == (TurnStatus.DONE, scene.answer), turn.error_message
        return _sent(session, model.bodies)


def _agent(member: Membership, mode: LoadingMode, dialect: Dialect, url: str) -> Agent:
    slug = f"{mode}-{dialect}".replace("_", "-")
    provider = Provider.objects.create(
        organisation_id=member.organisation_id,
        slug=slug,
        name=slug,
        base_url=url,
        dialect=dialect,
        takes_added_tools=True,
    )
    model = LanguageModel.objects.create(organisation_id=member.organisation_id, provider=provider, name="scripted")
    content = AgentContent(
        slug,
        slug,
        model,
        prompt=PROMPT,
        starts_with_core=False,
        tools=OWN,
        allowed_toolkits=tuple(TOOLKITS),
        loading_mode=mode,
    )
    return create_agent(content, actor=member)


def _by_hand(session: ChatSession, scene: Scene) -> None:
    """What the model loads and unloads in other modes, a person does here."""
    place, by = LoadTarget(session, session.agent), By(session.membership)
    for act in (act for each in scene.rounds for act in each):
        if isinstance(act, Load):
            assert load(place, act.toolkit, by=by).status == "loaded"
        elif isinstance(act, Unload):
            assert unload(place, act.toolkit, by=by).status == "unloaded"


def _sent(session: ChatSession, bodies: Sequence[bytes]) -> list[Sent]:
    with organisation_scope(session.organisation_id):
        steps = Step.objects.filter(turn__session=session, kind=StepKind.MODEL).order_by("turn__seq", "index")
        rows = list(steps.values_list("tool_tokens", "prompt_bytes", "prefix_bytes"))
        failed = Step.objects.filter(turn__session=session, kind=StepKind.TOOL).exclude(status="done")
        assert not failed.exists(), [(step.tool_name, step.result) for step in failed]
    return [Sent(body, *row) for body, row in zip(bodies, rows, strict=True)]
