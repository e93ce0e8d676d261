"""Runs one tool call: checks the right and the arguments, keeps the deadline, caps what came back.

Whatever goes wrong becomes an Outcome that the model can read; nothing raised by a tool leaves this room.
"""

from __future__ import annotations

import contextvars
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from capabilities.choosing.pipeline.permissions import permissions_at_version
from capabilities.choosing.pipeline.policies import policies_for
from capabilities.choosing.pipeline.specs import specs, version_of
from capabilities.choosing.pipeline.stages import is_reader
from capabilities.common.argument_checks import complaints_about
from capabilities.common.confined import Busy, ConfinedError
from capabilities.common.text import storable, storable_value
from capabilities.contract.context import CallWaits, Credential, LinkNeeded, ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.contract.loading import CREATE_TOOL
from capabilities.contract.masking import masked_bytes, masked_in, masked_json, masked_value
from capabilities.contract.rendering import restored, schema_with_other_names
from capabilities.contract.result_cap import cut, result_cap
from capabilities.contract.result_edits import with_note
from capabilities.contract.results import ResultFile, ToolResult, fitting
from capabilities.contract.schemas import complaints
from capabilities.contract.spec import ToolSpec
from capabilities.contract.wire import TOOL_NAME
from capabilities.models import Tool, ToolKind
from capabilities.running.kinds import RUNNERS
from capabilities.running.registry import registry
from capabilities.running.services.writes import set_up_title
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.tools.left_behind import left_behind
from sessions.loop.tools.tool_threads import ToolRun, tool_threads
from sessions.models import StepStatus, Turn
from sessions.turns.asked import is_tool_run
from toolhub.bounded_json import JsonRefused, load_json
from toolhub.durations import duration
from toolhub.tenants.audit.denials import record_denial
from toolhub.tenants.models import Membership

logger = logging.getLogger(__name__)

NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
#: Characters of a malformed call that are told back.
MAX_ECHO = 800
#: Seconds between looks at whether the turn was stopped.
LOOK_EVERY = 0.2
#: Seconds within which a call's arguments are checked, a wait for a free child process included: nobody's page waits.
CHECK_SECONDS = 30.0
#: Events of one call that say that it is still running.
MOST_PROGRESS = 5
#: Characters of a result that are kept for the operator.
MAX_RESULT = 1_000_000
#: Text in place of a secret.
#: Characters of a note in a result, beside its words.
ROOM_OF_CONTEXT = 20
STILL_RUNNING = (
    "Not run: too many earlier calls of this organisation took longer than their time and are still running."
    " Try again later."
)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a call: its status, the whole result, and the part that the model gets to see."""

    status: StepStatus
    result: str
    result_sent: str
    #: The call itself was malformed: arguments that are no JSON, or do not fit, or a name that nothing has.
    malformed: bool = False
    #: Whether the result holds text from outside.
    untrusted: bool = False
    #: Result as hooks changed it; empty where they left it as it is.
    hooked_result: str = ""
    #: Effects of hooks, as the call's step keeps them, and the text of theirs that the model reads beside the result.
    hooks: tuple[Mapping[str, Any], ...] = ()
    context: tuple[str, ...] = ()
    #: Files that came with the text, and the result as data.
    files: tuple[ResultFile, ...] = ()
    structured: Mapping[str, Any] | None = None
    #: Names of tools that come with the next model call, as the answer says.
    promised: tuple[str, ...] = ()
    #: The call cannot end now, and this is what it waits for; then there is no result yet.
    waits: CallWaits | None = None


def failure(message: str, *, status: StepStatus = StepStatus.FAILED, malformed: bool = False, **more: Any) -> Outcome:
    text = storable(json.dumps({"success": False, "error": message, **more}, ensure_ascii=False))
    return Outcome(status, text, text, malformed)


def inactive(name: str, next_step: str = "") -> Outcome:
    """The answer to a call of a tool that is not in the round's selection, whatever the reason. `next_step` is for a
    tool that the member may use."""
    more = {"next_step": next_step} if next_step else {}
    message = f"Unknown or inactive tool: {name[:100]}"
    return failure(message, status=StepStatus.REFUSED, malformed=True, **more)


def denied(name: str, reason: str) -> Outcome:
    """The answer to a call that the member may not make now."""
    return failure(f"Access denied: {reason}.", status=StepStatus.REFUSED, denied_tool=name)


def outcome_unknown() -> Outcome:
    """The answer to a call that a crash cut off between its start and its result."""
    return Outcome(StepStatus.UNKNOWN, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN)


def refusal(turn: RunningTurn, spec: ToolSpec) -> Outcome | None:
    """Return the refusal of this tool for the turn's member and model *now*, or None. Asked right before each run.
    Queries as `refusal_to`."""
    return refusal_to(turn.row.membership_id, spec, turn.model.provider.public_id, read_at=turn.registry_version)


def refusal_to(
    membership_id: int, spec: ToolSpec, provider: UUID | None = None, *, read_at: int | None = None
) -> Outcome | None:
    """Return the refusal of this tool for this member now, or None. Without a provider only the organisation's policy
    is asked. `read_at` is the registry version that the spec was read at: where another one is in force now, the tool
    is looked at again. One query, that one, and those of `policies_for`."""
    if not spec.is_enabled or spec.quarantine:
        return switched_off(spec)
    if not spec.is_ready and spec.name == CREATE_TOOL:
        return failure("Agents may not make tools in this organisation: an admin switches it on.")
    if not spec.is_ready:
        title = set_up_title(spec.service)
        return failure(f"{spec.name} needs set-up: an administrator must configure {title} first.")
    permissions, at = permissions_at_version(membership_id)
    if read_at is not None and read_at != at:
        now = specs(Tool.objects.filter(pk=spec.tool_id))
        if now and (not now[0].is_enabled or now[0].quarantine):
            return switched_off(now[0])
    answer = permissions.decide(spec)
    if not answer.allowed:
        return denied(spec.name, answer.reason)
    reason = policies_for(permissions, at).why_not(spec, provider)
    return denied(spec.name, reason) if reason else None


def switched_off(spec: ToolSpec) -> Outcome:
    """The answer to a call of a tool that is switched off, with what whoever stopped it says, or that is kept back."""
    if spec.is_enabled:
        return denied(spec.name, "the tool is kept back until somebody with the right to approve it decides")
    return denied(spec.name, f"the tool was switched off{spec.off_because}")


def note_denied_call(membership_id: int, spec: ToolSpec, refused: Outcome) -> None:
    """Write down that a member's call was denied by a right or a policy; once a minute for each tool."""
    if spec.is_enabled and spec.is_ready:
        member = Membership.objects.select_related("user").get(pk=membership_id)
        tool = Tool.objects.filter(pk=spec.tool_id).first()
        record_denial(member, f"tool {spec.name}", str(json.loads(refused.result)["error"]), target=tool)


def stored_call(call_id: str, call: Call) -> dict[str, str]:
    """A call as it is kept and sent again. Where the model's name or arguments would be refused by a provider in the
    next request, a harmless form stands there, and the original is kept as `raw_name` and `raw_arguments`."""
    name = call.name if TOOL_NAME.match(call.name) else NOT_IN_NAMES.sub("_", call.name)[:64] or "unknown"
    stored = {"id": call_id, "name": name, "arguments": _sendable(call.arguments)}
    if name != call.name:
        stored["raw_name"] = storable(call.name, 200)
    if stored["arguments"] != call.arguments:
        stored["raw_arguments"] = storable(call.arguments)
    return stored


def _sendable(arguments: str) -> str:
    """The arguments in a form that any provider can read again: an object of whole characters, else an empty one."""
    try:
        value = load_json(arguments)
        whole = storable_value(value)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    return arguments if value == whole else json.dumps(whole, ensure_ascii=False)


def read_arguments(spec: ToolSpec, call: Call, organisation_id: int) -> dict[str, Any] | Outcome:
    """The call's arguments, if they fit the tool's schema; else what to tell the model."""
    arguments = parsed_arguments(spec, call)
    if isinstance(arguments, Outcome):
        return arguments
    try:
        found = _complaints(spec, arguments, organisation_id)
    except Busy as error:
        return failure(f"Not run: the arguments could not be checked. {error}", reason="busy")
    except ConfinedError as error:
        return failure(f"The arguments could not be checked: {error}")
    return _malformed("; ".join(found), call) if found else arguments


def parsed_arguments(spec: ToolSpec, call: Call) -> dict[str, Any] | Outcome:
    """The call's arguments, if they are an object of at most the tool's length, whatever its schema says of them."""
    text = call.arguments.strip() or "{}"
    most = spec.envelope.max_input_chars
    if len(text) > most:
        return _malformed(
            f"The arguments have {len(text):,} characters, and {spec.name} takes at most {most:,}. Send less at once.",
            call,
        )
    try:
        arguments = storable_value(load_json(text))
        if isinstance(arguments, str) and arguments.strip()[:1] == "{":  # encoded twice, as small models do
            arguments = storable_value(load_json(arguments))
    except JsonRefused as error:
        return _malformed(f"These are no arguments: the text {error}. Send one JSON object.", call)
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        return _malformed("The arguments must be one JSON object.", call)
    return with_own_names(arguments, spec.parameters_text)


def with_own_names(arguments: dict[str, Any], schema_text: str) -> dict[str, Any]:
    """The arguments under the names of the tool's own schema, where some went out under others."""
    schema = schema_with_other_names(schema_text)
    return arguments if schema is None else dict(restored(arguments, schema))


def has_own_schema(spec: ToolSpec) -> bool:
    """Return whether the schema of the arguments is this service's own, and not one that came from outside."""
    builtin = registry.tools.get(spec.name) if spec.kind == ToolKind.BUILTIN else None
    return builtin is not None and builtin.parameters_text == spec.parameters_text


def _complaints(spec: ToolSpec, arguments: Mapping[str, Any], organisation_id: int) -> list[str]:
    """Return the complaints about the arguments. Raises ConfinedError."""
    if has_own_schema(spec):
        found = complaints(spec.parameters_text, arguments)
        own = registry.tools[spec.name].complaint
        return [own] if found and own else found
    return complaints_about(spec.parameters_text, arguments, organisation_id, wait=CHECK_SECONDS)


def permitted_arguments(turn: RunningTurn, spec: ToolSpec, call: Call) -> dict[str, Any] | Outcome:
    """The call's arguments, if the turn's member may call the tool now and they fit; else what to tell the model."""
    refused = refusal(turn, spec)
    if refused is None:
        return read_arguments(spec, call, turn.row.organisation_id)
    note_denied_call(turn.row.membership_id, spec, refused)
    return refused


def run_tool(
    spec: ToolSpec,
    credential: Credential,
    context: ToolContext,
    arguments: Mapping[str, Any],
    turn_stopped: threading.Event,
    on_progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Run the tool, as the runner of its kind does, for at most its time. One that does not come back is left behind;
    unless it only reads, what it did is unknown. With too many left behind, the organisation's next call is refused.

    `on_progress` is called with the seconds so far, a few times, where the call takes longer than its `yield_ms`.
    """
    outcome = run_bounded(
        spec.name,
        lambda: RUNNERS[spec.kind](
            spec=spec, version=version_of(spec), credential=credential, context=context, arguments=arguments
        ),
        context,
        turn_stopped,
        is_read=spec.effect == "read",
        secrets=credential.secrets,
        on_progress=on_progress,
    )
    if not spec.envelope.untrusted_output:
        outcome = replace(outcome, untrusted=context.untrusted.is_set())
    is_own = spec.kind == ToolKind.BUILTIN and outcome.status == StepStatus.DONE
    return replace(outcome, promised=tuple(sorted(context.promised))) if is_own else outcome


def run_bounded(
    name: str,
    function: Callable[[], Any],
    context: ToolContext,
    turn_stopped: threading.Event,
    *,
    is_read: bool,
    secrets: Sequence[str],
    on_progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Call the function in another thread as `run_tool` says; these secrets are masked in the outcome.

    What the function returned, or raised with words of a far side in it, counts as text from outside. Where it raised
    one of CallWaits, the outcome says what the call waits for.
    """
    returned: list[ToolResult | ToolError | CallWaits] = []

    def run() -> None:
        is_tool_run.set(True)
        try:
            returned.append(as_result(function()))
        except (ToolError, CallWaits) as raised:
            returned.append(raised)
        except BaseException as error:  # SystemExit and its like must not reach the worker either
            logger.exception("The tool %s failed", name)
            returned.append(ToolError(f"The tool failed ({type(error).__name__}).", nothing_came=True))

    if turn_stopped.is_set():
        return failure("Not run: the turn was stopped.", status=StepStatus.REFUSED)
    if left_behind.is_full(context.organisation_id):
        return failure(STILL_RUNNING, status=StepStatus.REFUSED)
    started = tool_threads.start(f"tool {name}", partial(contextvars.copy_context().run, run))
    first = context.envelope.yield_ms / 1_000 if context.envelope else math.inf
    _wait(started, context.timeout, turn_stopped, Progress(first, on_progress))
    if not returned:
        context.stopped.set()
        started.let_go()
        left_behind.add(context.organisation_id, started)
        if is_read:
            return failure(f"The tool did not answer within {duration(context.timeout)}.")
        return outcome_unknown()
    result = returned[0]
    if isinstance(result, ToolError):
        return replace(failure(masked_in(str(result), secrets)), untrusted=not result.nothing_came)
    if isinstance(result, CallWaits):
        return replace(waiting_outcome(result, secrets), untrusted=True)
    return _outcome_of(result, secrets)


def _outcome_of(result: ToolResult, secrets: Sequence[str]) -> Outcome:
    """Build the outcome of a tool's result, without these secrets, and with the files that may be kept."""
    files, left_out = fitting(result.files)
    text = masked_in("\n".join([result.text, *left_out]), secrets)
    structured = masked_value(result.structured, secrets)
    outcome = failure(text) if result.is_error else Outcome(StepStatus.DONE, text, text)
    files = tuple(replace(each, content=masked_bytes(each.content, secrets)) for each in files)
    return replace(outcome, untrusted=True, files=files, structured=structured)


def masked(outcome: Outcome, secrets: Sequence[str]) -> Outcome:
    """The outcome without these secrets in what the loop and its hooks say of the call."""
    if not secrets:
        return outcome
    texts: dict[str, Any] = {
        name: masked_json(getattr(outcome, name), secrets) for name in ("result", "result_sent", "hooked_result")
    }
    return replace(outcome, **texts)


def waiting_outcome(waits: CallWaits, secrets: Sequence[str] = ()) -> Outcome:
    """The outcome of a call that cannot end now, as it reads where nobody can wait for it."""
    message = masked_in(storable(str(waits), MAX_ECHO), secrets)
    more: dict[str, Any] = {"link": waits.url} if isinstance(waits, LinkNeeded) else {}
    text = f"{message} Ask an agent for it in a chat: there it can go on."
    return replace(failure(text, status=StepStatus.REFUSED, **more), waits=waits)


def capped(outcome: Outcome, spec: ToolSpec, context_window: int, *, step: str = "") -> Outcome:
    """The outcome with the part of its result, as hooks left it, that the model gets to see. With `step`, the number of
    the call, the model also reads how to read on."""
    cap = result_cap_of(spec.envelope, context_window)
    named = "" if is_reader(spec) else step
    return replace(outcome, result_sent=shown_part(outcome, cap, "\n".join(outcome.context), step=named))


def shown_part(outcome: Outcome, cap: int, words: str = "", *, step: str = "") -> str:
    """The part of the result, as hooks left it, that stands in `cap` characters with these words beside it; without
    them, where there is no room for both."""
    result = outcome.hooked_result or outcome.result
    if words:
        room = max(0, cap - len(json.dumps(words, ensure_ascii=False)) - ROOM_OF_CONTEXT)
        sent = with_note(cut(result, room, step=step), words)
        if len(sent) <= cap:
            return sent
    return cut(result, cap, step=step)


def result_cap_of(envelope: Envelope, context_window: int) -> int:
    """Characters of one result under this envelope that a model with this window gets to see."""
    return result_cap(
        envelope.max_result_chars,
        context_window,
        share=envelope.result_context_share_ratio,
        minimum=envelope.result_min_chars,
    )


def context_for(
    turn: Turn, spec: ToolSpec, *, seconds_left: float, idempotency_key: str, step_id: int | None = None
) -> ToolContext:
    context = context_of(spec, turn.organisation_id, turn.membership_id, seconds_left=seconds_left)
    return replace(
        context,
        agent=turn.agent.slug,
        agent_id=turn.agent_id,
        session_id=turn.session_id,
        turn_id=turn.pk,
        step_id=step_id,
        idempotency_key=idempotency_key,
    )


def context_of(
    spec: ToolSpec, organisation_id: int, membership_id: int, *, seconds_left: float = math.inf
) -> ToolContext:
    """Build the context of a call that belongs to no turn."""
    return ToolContext(
        organisation_id=organisation_id,
        membership_id=membership_id,
        agent="",
        workspace=Path(settings.WORKSPACES_DIR) / str(organisation_id),
        now=timezone.now,
        timeout=max(0.0, min(spec.envelope.timeout, seconds_left)),
        envelope=spec.envelope,
    )


def as_result(value: Any) -> ToolResult:
    """A tool's return value as a result: its text is whole, and not too long."""
    if not isinstance(value, ToolResult):
        return ToolResult(as_text(value))
    try:
        structured = json.loads(as_text(value.structured))
    except ValueError:  # too long to be kept whole
        structured = None
    return replace(value, text=as_text(value.text), structured=structured if isinstance(structured, dict) else None)


def as_text(value: Any) -> str:
    """A tool's return value as text: strings as they are, all else as JSON; what is neither, as its repr."""
    if isinstance(value, str):
        return storable(value, MAX_RESULT)
    try:
        return storable(json.dumps(value, ensure_ascii=False, default=str), MAX_RESULT)
    except (TypeError, ValueError, RecursionError):
        return storable(repr(type(value)), MAX_RESULT)


class Progress:
    """Says of a call that takes long that it is still running: after `first` seconds, then after twice as long each
    time, and only so often."""

    def __init__(self, first: float, tell: Callable[[float], None] | None) -> None:
        self._began, self._next, self._left = time.monotonic(), first, MOST_PROGRESS
        self._tell = tell

    def look(self) -> None:
        seconds = time.monotonic() - self._began
        if self._tell is not None and self._left and seconds >= self._next:
            self._next, self._left = self._next * 2, self._left - 1
            self._tell(seconds)


def _wait(run: ToolRun, seconds: float, turn_stopped: threading.Event, progress: Progress) -> None:
    """Wait until the run ends, its time is up, or a second has passed since the turn was stopped."""
    until = time.monotonic() + seconds
    while run.is_alive() and (left := until - time.monotonic()) > 0:
        run.wait(min(LOOK_EVERY, left))
        if turn_stopped.is_set():
            until = min(until, time.monotonic() + 1.0)
            turn_stopped = threading.Event()
        elif run.is_alive():
            progress.look()


def _malformed(message: str, call: Call) -> Outcome:
    return failure(message, malformed=True, received=call.arguments[:MAX_ECHO])
