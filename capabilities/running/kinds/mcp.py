"""Runner of tools of MCP servers: turns a call of ours into one of a server, and its answer into a result.

A call that has to wait (a form, an address to open, a long task) leaves its state behind, as JSON, and holds nothing
open: it goes on from there, in whatever process.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.conf import settings

from capabilities.common.argument_checks import complaints_about
from capabilities.common.confined import ConfinedError
from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import (
    CallWaits,
    Credential,
    InputNeeded,
    LinkNeeded,
    Resumed,
    TaskStarted,
    ToolContext,
    ToolError,
)
from capabilities.contract.results import ToolResult
from capabilities.contract.spec import ToolSpec
from capabilities.models import McpServer, ToolVersion, Transport
from capabilities.running.credentials.signing import after_refusal
from capabilities.running.egress.guard import asking_organisation
from capabilities.running.kinds.checks import Content
from capabilities.running.mcp_client import client
from capabilities.running.mcp_client.answers import CallAnswer
from capabilities.running.mcp_client.errors import McpError, NotAuthorised, ServerLost, ServerRefused, ServerSilent
from capabilities.running.mcp_client.questions import Form, Link, QuestionRefused, question_of
from capabilities.running.mcp_client.results import result_of
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.words import readable

T = TypeVar("T")

#: Seconds of a call's time that are left for what comes before and after it, and the least that it gets.
SPARE, LEAST = 0.5, 0.1
#: Times that one call may be answered with questions, or with nothing but "again".
MAX_ROUNDS = 10
#: Seconds between looks at a task: what a server may ask for, and what is meant where it says nothing.
SHORTEST_LOOK, LONGEST_LOOK, USUAL_LOOK = 1.0, 300.0, 5.0
#: The error by which servers of protocol 2025-11-25 ask for an address to be opened first.
ADDRESS_FIRST = -32042
MAX_NAME = 128
#: Characters of what a call that waits leaves behind: questions, answers, and what the server wants back.
MAX_STATE = 200_000
#: The last part of a header's name.
HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
TASKS = ("optional", "required", "forbidden")


def check_implementation(content: Content) -> None:
    """Raise ChangeRefused unless this can be a tool of kind MCP; `field` says which part is at fault."""
    given = content.implementation
    name = given.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise ChangeRefused("implementation.name", "Say what the server calls the tool.")
    headers = given.get("headers", {})
    if not isinstance(headers, dict) or not all(
        isinstance(each, str) and HEADER.fullmatch(each) for each in headers.values()
    ):
        raise ChangeRefused("implementation.headers", "The headers must be an object of names.")
    if not isinstance(given.get("output_schema") or {}, dict | bool):
        raise ChangeRefused("implementation.output_schema", "The output schema must be an object.")
    if not isinstance(given.get("annotations", {}), dict):
        raise ChangeRefused("implementation.annotations", "The annotations must be an object.")
    if given.get("task", "forbidden") not in TASKS:
        raise ChangeRefused("implementation.task", f"This must be one of {', '.join(TASKS)}.")


def address_of(server: McpServer, credential: Credential) -> ServerAddress:
    """Return the server's address, for calls that this credential signs. Raises ToolError for a process that the
    installation does not offer (any more). Its organisation is read where it is a process."""
    principal = f"{server.organisation_id} {credential.secret_id or ''}"
    address = ServerAddress(
        "http", principal, str(server.organisation_id), title=server.title, url=server.url, credential=credential
    )
    if server.transport == Transport.STDIO:
        entry = settings.TOOLHUB_MCP_STDIO.get(server.stdio_name)
        if entry is None or not entry.is_open_to(server.organisation.slug):
            raise ToolError(f"{server.title} is not offered by this installation any more.", nothing_came=True)
        address = replace(address, transport="stdio", url="", argv=entry.argv, env=entry.env, folder=entry.folder)
    return replace(
        address,
        protocol=server.protocol,
        pinned=server.pinned_protocol,
        start_seconds=server.start_seconds,
        organisation=asking_organisation(),
    )


def run(
    *,
    spec: ToolSpec,
    version: ToolVersion,
    credential: Credential,
    context: ToolContext,
    arguments: Mapping[str, Any],
) -> ToolResult:
    """Call the tool at its server. One query, and those of the credential where the server refuses it. Raises ToolError
    for a server that is gone or switched off, and for a call that failed."""
    server = McpServer.objects.select_related("organisation").filter(tools__versions=version.pk).first()
    if server is None or not server.is_enabled:
        raise ToolError(f"The server of {spec.name} is switched off; use another tool.", nothing_came=True)
    call = _Call(spec, version.implementation, credential, context, arguments, server)
    return call.go_on() if context.resumed is not None and context.resumed.state else call.begin()


@dataclass
class _Call:
    spec: ToolSpec
    implementation: Mapping[str, Any]
    credential: Credential
    context: ToolContext
    arguments: Mapping[str, Any]
    server: McpServer
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.context.timeout - SPARE

    @property
    def seconds(self) -> float:
        """Seconds left of the call's time."""
        return max(LEAST, self.until - time.monotonic())

    @property
    def address(self) -> ServerAddress:
        return address_of(self.server, self.credential)

    # -- From the beginning, and after a wait ------------------------------------------------------------------------

    def begin(self) -> ToolResult:
        return self._outcome(self._call(), rounds=0)

    def go_on(self) -> ToolResult:
        """Continue a call that waited for a person or for its task, with the answer that came."""
        resumed = self.context.resumed
        assert resumed is not None
        state = json.loads(resumed.state)
        if state["kind"] == "task":
            return self._look(state, is_wanted=resumed.action != "cancel")
        waiting = [key for key in state["questions"] if key not in state["answers"]]
        state["answers"][waiting[0]] = _answer(state["questions"][waiting[0]], resumed)
        if state["kind"] == "task questions":
            return self._go_on_with_task(state)
        if state["kind"] == "address first" and resumed.action != "accept":
            raise ToolError(f"{self.server.title} needs an address opened first, which was not done.")
        self._ask_next(state)
        return self._outcome(self._call(state), rounds=state["rounds"])

    def _call(self, state: Mapping[str, Any] | None = None) -> CallAnswer:
        """The call, with what a member answered before."""
        more: dict[str, Any] = {}
        if state is not None and state["kind"] == "questions":
            more = {"input_responses": state["answers"], "request_state": state["request_state"]}
        elif state is not None and state["kind"] == "session questions":
            more = {"answers": state["answers"]}
        return self._asked(
            lambda: client.call_tool(
                self.address,
                self.implementation["name"],
                self.arguments,
                timeout=self.seconds,
                headers=self._headers(),
                as_task=self.implementation.get("task") == "required",
                stopped=self.context.stopped,
                **more,
            )
        )

    def _headers(self) -> dict[tuple[str, ...], str]:
        """Return the names of headers that arguments go as besides, by the path to each argument."""
        top = {(name,): header for name, header in self.implementation.get("headers", {}).items()}
        return top | dict(_annotated(json.loads(self.spec.parameters_text)))

    # -- What came ---------------------------------------------------------------------------------------------------

    def _outcome(self, answer: CallAnswer, *, rounds: int) -> ToolResult:
        """Return the result of an answer; wait for people where the server asks for more. Raises ToolError after
        MAX_ROUNDS."""
        while answer.questions is not None:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise ToolError(f"{self.server.title} keeps asking for more; the call was given up.")
            kind = "session questions" if answer.is_asked_in_session else "questions"
            state = {
                "kind": kind,
                "questions": answer.questions,
                "answers": self._answers_so_far() if answer.is_asked_in_session else {},
                "request_state": answer.request_state,
                "rounds": rounds,
            }
            self._ask_next(state)
            answer = self._call(state)  # it asked for nothing but to be called again
        if answer.task is not None:
            raise self._started(answer.task, {"kind": "task", "is_old": answer.is_old_task, "seen": []})
        assert answer.result is not None
        return self._checked(answer.result)

    def _answers_so_far(self) -> dict[str, Any]:
        """Return the answers so far: within a session a call is made again from its beginning, and asks them again."""
        resumed = self.context.resumed
        state = json.loads(resumed.state) if resumed is not None and resumed.state else {}
        if state.get("kind") != "session questions" or resumed is None:
            return {}
        waiting = [key for key in state["questions"] if key not in state["answers"]]
        return {**state["answers"], waiting[0]: _answer(state["questions"][waiting[0]], resumed)}

    def _ask_next(self, state: Mapping[str, Any]) -> None:
        """Raise what the call waits for, where a question has no answer yet."""
        for key, question in state["questions"].items():
            if key not in state["answers"]:
                raise self._question(question, state)

    def _question(self, question: Any, state: Mapping[str, Any]) -> CallWaits:
        try:
            asked = question_of(question)
        except QuestionRefused as error:
            raise ToolError(f"{self.server.title} cannot go on: {error}.") from error
        text = json.dumps(state)
        if len(text) > MAX_STATE:
            raise ToolError(f"{self.server.title} asks for more than is kept; the call was given up.")
        match asked:
            case Form(message, schema):
                return InputNeeded(message, schema=schema, state=text)
            case Link(message, url):
                return LinkNeeded(message, url=url, state=text)

    def _checked(self, sent: Mapping[str, Any]) -> ToolResult:
        """The result, with a line where its data is not what the tool's output schema promises."""
        result = result_of(sent)
        schema = self.implementation.get("output_schema")
        if not schema or result.is_error:
            return result
        if "structuredContent" not in sent:
            return _with_line(result, "(The server promises data beside this text, and sent none.)")
        mistakes = self._mistakes(schema, sent["structuredContent"])
        if mistakes:
            return _with_line(result, f"(The data is not what the server promises: {'; '.join(mistakes)[:1_000]}.)")
        return result

    def _mistakes(self, schema: Any, data: Any) -> list[str]:
        """Return the places where data does not fit its schema. A server writes both."""
        organisation_id, stopped = self.context.organisation_id, self.context.stopped
        try:
            found = complaints_about(json.dumps(schema), data, organisation_id, wait=self.seconds, stopped=stopped)
        except ConfinedError as error:
            return [f"it could not be compared: {str(error).rstrip('.')}"]
        return [each.removeprefix("arguments: ") for each in found]

    # -- Tasks -------------------------------------------------------------------------------------------------------

    def _started(self, task: Mapping[str, Any], state: dict[str, Any]) -> TaskStarted:
        task_id = task.get("taskId", state.get("id"))
        if not isinstance(task_id, str) or not 0 < len(task_id) <= 1_000:
            raise ToolError(f"{self.server.title} began a task without a name; what it does is not known.")
        pause = task.get("pollIntervalMs", task.get("pollInterval"))
        seconds = pause / 1_000 if isinstance(pause, int | float) and pause is not True else USUAL_LOOK
        message = readable(task["statusMessage"])[0][:300] if isinstance(task.get("statusMessage"), str) else ""
        return TaskStarted(
            message or f"{self.server.title} works on it.",
            seconds=min(LONGEST_LOOK, max(SHORTEST_LOOK, seconds)),
            state=json.dumps(state | {"kind": "task", "id": task_id}),
        )

    def _look(self, state: dict[str, Any], *, is_wanted: bool) -> ToolResult:
        """Ask for the task again; or cancel it, where nobody wants it any more."""
        if not is_wanted:
            self._asked(lambda: client.cancel_task(self.address, state["id"], timeout=self.seconds))
            raise ToolError("The task was cancelled.", nothing_came=True)
        task = self._asked(
            lambda: client.look_at_task(
                self.address,
                state["id"],
                timeout=self.seconds,
                is_old=state["is_old"],
                stopped=self.context.stopped,
            )
        )
        match task.get("status"):
            case "working":
                raise self._started(task, state)
            case "input_required":
                raise self._question_of_task(task, state)
            case "completed" if isinstance(task.get("result"), Mapping):
                return self._checked(task["result"])
            case "cancelled":
                raise ToolError(f"{self.server.title} cancelled the task.")
            case "failed":
                error = task.get("error")
                message = error.get("message") if isinstance(error, Mapping) else task.get("statusMessage")
                words = readable(message)[0][:500].rstrip(". ") if isinstance(message, str) else "it does not say why"
                raise ToolError(f"The task failed at {self.server.title}: {words}.")
            case _:
                raise ToolError(f"{self.server.title} sent no task where one was asked for.")

    def _question_of_task(self, task: Mapping[str, Any], state: dict[str, Any]) -> CallWaits:
        asked = task.get("inputRequests")
        questions = (
            {key: each for key, each in asked.items() if key not in state["seen"]} if isinstance(asked, Mapping) else {}
        )
        if not questions or state["is_old"]:
            return self._started(task, state)  # the answers are on their way
        if len(state["seen"]) >= MAX_ROUNDS:
            raise ToolError(f"{self.server.title} keeps asking for more; the task was given up.")
        asking = state | {"kind": "task questions", "questions": questions, "answers": {}}
        return self._question(next(iter(questions.values())), asking)

    def _go_on_with_task(self, state: dict[str, Any]) -> ToolResult:
        self._ask_next(state)
        answers = state["answers"]
        self._asked(lambda: client.answer_task(self.address, state["id"], answers, timeout=self.seconds))
        seen = [*state["seen"], *answers]
        raise self._started({}, {"id": state["id"], "is_old": state["is_old"], "seen": seen})

    # -- What goes wrong ---------------------------------------------------------------------------------------------

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return the server's answer. A credential that it refuses may be exchanged for a new one, once."""
        try:
            try:
                return ask()
            except NotAuthorised as refused:
                renewed = after_refusal(
                    self.credential,
                    refused.status,
                    refused.challenge,
                    membership_id=self.context.membership_id,
                    at_most=self.seconds,
                )
                if renewed is None:
                    raise
                self.credential = renewed
                return ask()
        except ServerRefused as error:
            if error.code == ADDRESS_FIRST:
                raise self._address_first(error) from error
            raise ToolError(f"{error}{self._doubt() if error.is_unknown else ''}") from error
        except (ServerSilent, ServerLost) as error:
            raise ToolError(f"{error}{self._doubt()}", nothing_came=error.nothing_came) from error
        except McpError as error:
            raise ToolError(str(error), nothing_came=error.nothing_came) from error

    def _doubt(self) -> str:
        return "" if self.spec.effect == "read" else " Whether it was done is not known."

    def _address_first(self, error: ServerRefused) -> CallWaits | ToolError:
        asked = error.data.get("elicitations") if isinstance(error.data, Mapping) else None
        if not isinstance(asked, list) or not asked or not isinstance(asked[0], Mapping):
            return ToolError(str(error))
        rounds = self._rounds() + 1
        if rounds > MAX_ROUNDS:
            return ToolError(f"{self.server.title} keeps asking for more; the call was given up.")
        question = {"method": "elicitation/create", "params": {**asked[0], "mode": "url"}}
        state = {"kind": "address first", "questions": {"address": question}, "answers": {}, "rounds": rounds}
        return self._question(question, state)

    def _rounds(self) -> int:
        resumed = self.context.resumed
        return int(json.loads(resumed.state).get("rounds", 0)) if resumed is not None and resumed.state else 0


def _answer(question: Any, resumed: Resumed) -> dict[str, Any]:
    """Return the member's answer as the protocol says it."""
    action = resumed.action if resumed.action in ("accept", "decline") else "cancel"
    params = question.get("params") if isinstance(question, Mapping) else None
    is_form = not isinstance(params, Mapping) or params.get("mode", "form") == "form"
    return {"action": action, **({"content": dict(resumed.content)} if action == "accept" and is_form else {})}


def _with_line(result: ToolResult, line: str) -> ToolResult:
    return replace(result, text=f"{result.text}\n{line}" if result.text else line)


def _annotated(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The arguments with a well-formed x-mcp-header, objects within objects included."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, node in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(node, Mapping):
            header = node.get("x-mcp-header")
            if isinstance(header, str) and node.get("type") in ("string", "integer", "boolean"):
                yield (*path, name), header
            yield from _annotated(node, (*path, name))
