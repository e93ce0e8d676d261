"""Tool that a call of the model means: one of the round's, one behind `call_tool`, or none, and the answer then."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import F

from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.choosing.pipeline.bringing import without_agent
from capabilities.choosing.pipeline.candidates import Candidate
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.choosing.pipeline.runtime_layers import in_force
from capabilities.choosing.pipeline.specs import specs
from capabilities.choosing.pipeline.stages import LOADABLE_STAGES, delegated, in_scope, is_reader, narrowed
from capabilities.contract.loading import CALL_TOOL, LOAD_CATEGORY, LOAD_TOOLS
from capabilities.contract.spec import ToolSpec
from capabilities.models import LoadingMode, Tool, ToolVersion
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.wanted_tools import NEXT_STEP
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.loop.tools.runtime import layers_of
from sessions.models import Door, StepStatus
from sessions.selection.loading.loadable import LoadInputs, LoadTarget, read_place
from sessions.selection.loading.offered import offered_to
from sessions.selection.queries import loading_tools


@dataclass(frozen=True)
class ResolvedCall:
    """The tool that a call means, and the call as that tool gets it; or an answer right away.

    `through` is the name of the tool by which it was called, or empty: permission, schema, record and cap are those of
    the tool that is meant.
    """

    call: Call
    spec: ToolSpec | None = None
    through: str = ""
    answer: Outcome | None = None


def resolve_call(
    turn: RunningTurn, call: Call, at_hand: Mapping[str, ToolSpec], sent: Sequence[int] = ()
) -> ResolvedCall:
    """The tool with its envelope in force. No query for one that is at hand.

    `sent` are the keys of the versions that the model was shown: one that is not in force any more is not run.
    """
    wanted = _resolve(turn, call, at_hand, sent)
    return wanted if wanted.spec is None else replace(wanted, spec=in_force(wanted.spec, layers_of(turn)))


def _resolve(turn: RunningTurn, call: Call, at_hand: Mapping[str, ToolSpec], sent: Sequence[int]) -> ResolvedCall:
    spec = at_hand.get(call.name)
    if spec is None and is_changed(call.name, sent):
        return ResolvedCall(call, answer=changed(call.name))
    if spec is None:
        return ResolvedCall(call, answer=not_at_hand(turn, call.name))
    if not (spec.is_meta and spec.name == CALL_TOOL):
        return ResolvedCall(call, spec)
    arguments = execution.permitted_arguments(turn, spec, call)
    if isinstance(arguments, Outcome):
        return ResolvedCall(call, spec, answer=arguments)
    inner = Call(call.id, arguments["name"], json.dumps(arguments.get("arguments", {}), ensure_ascii=False))
    wanted = None if inner.name == CALL_TOOL else at_hand.get(inner.name) or callable_spec(turn, inner.name)
    if wanted is None:
        return ResolvedCall(inner, through=CALL_TOOL, answer=not_at_hand(turn, inner.name))
    return ResolvedCall(inner, wanted, CALL_TOOL)


def is_changed(name: str, sent: Sequence[int]) -> bool:
    """Return whether the model was shown a version of this tool that is not the one in force now. One query."""
    shown = ToolVersion.objects.filter(pk__in=sent, tool__name=name[:64]).exclude(tool__current_version=F("pk"))
    return bool(sent) and shown.exists()


def changed(name: str) -> Outcome:
    message = f"Not run: {name} was changed while this turn ran. Ask again, if it is still wanted."
    return execution.failure(message, status=StepStatus.REFUSED)


def callable_spec(turn: RunningTurn, name: str) -> ToolSpec | None:
    """A tool that `call_tool` may reach for this turn, whatever its member's rights: those are asked for next."""
    if turn.row.agent.loading_mode != LoadingMode.CONSTANT or turn.row.door == Door.MCP:
        return None
    reading = _read(turn)
    found = [each for each in reading.offer.candidates if each.spec.name == name]
    kept, _ = narrowed(reading.situation, found, (in_scope, delegated))
    return kept[0].spec if kept else None


def not_at_hand(turn: RunningTurn, name: str) -> Outcome:
    """Build the answer to a call of a tool that the round does not carry: how to get the tool; why it may not run,
    where its agent and this session can have it; else the same answer as for an unknown name."""
    known = [each for each in specs(Tool.objects.filter(name=name[:64])) if each.name == name]
    if not known:
        return execution.inactive(name)
    if turn.row.door == Door.MCP:
        return _not_at_address(turn, known[0])
    reading = _read(turn)
    found = next((each for each in reading.offer.candidates if each.spec.name == name), None)
    if _is_left_out_meta(known[0], reading):
        return _left_out(name)
    if found is not None and found.spec.tool_id in reading.usable:
        needs_set_up = None if found.spec.is_ready else execution.refusal(turn, found.spec)
        return needs_set_up or _not_yet(found, reading)
    if found is None and _comes_with_category(known[0], reading):
        how = f"Call {LOAD_CATEGORY} with category {known[0].category} first."
        return _loadable(name, f"{name} is not loaded. {how}", category=known[0].category)
    if found is None and not known[0].is_meta:
        return execution.inactive(name, NO_AGENT if _is_nobodys(known[0], reading) else "")
    return _why_refused(found.spec if found is not None else known[0], reading) or execution.inactive(name)


def _why_refused(spec: ToolSpec, reading: LoadInputs) -> Outcome | None:
    """Return the refusal of a tool that the member may know of; None where it may run."""
    permission = reading.permissions.decide(spec)
    if not permission.allowed:
        return execution.denied(spec.name, permission.reason)
    if not spec.is_enabled or spec.quarantine:
        return execution.switched_off(spec)
    if reason := reading.why_not_sent(spec):
        return execution.denied(spec.name, reason)
    if reason := reading.why_unanswered(spec):
        return execution.failure(f"Not run: {reason}.", status=StepStatus.REFUSED, denied_tool=spec.name)
    if reason := reading.why_not_taken(Candidate(spec, "")):
        return execution.failure(
            f"{spec.name} is not sent: {reason}.", status=StepStatus.REFUSED, denied_tool=spec.name
        )
    return None


def _is_nobodys(spec: ToolSpec, reading: LoadInputs) -> bool:
    """Return whether the member may use the tool, it could be sent, and no agent has it or can load it. At most two
    queries."""
    if not (spec.is_enabled and spec.is_in_force and not spec.quarantine and reading.permissions.decide(spec).allowed):
        return False
    return without_agent([spec.tool_id]).exists()


def _not_at_address(turn: RunningTurn, spec: ToolSpec) -> Outcome:
    """Build the answer to a client that calls, by itself, a tool that its address no longer has for its member."""
    row = turn.row
    call = row.asked.call if row.asked is not None else None
    if call is None or not offered_to(row.membership_id, row.agent, str(call["toolkit"]), turn.model).has(spec.name):
        return execution.inactive(spec.name)
    refused = execution.refusal(turn, spec)
    if refused is None:
        return execution.inactive(spec.name)
    execution.note_denied_call(row.membership_id, spec, refused)
    return refused


def _comes_with_category(spec: ToolSpec, reading: LoadInputs) -> bool:
    """Return whether loading its category, which the member may do, would bring the tool."""
    if spec.is_meta or not reading.permissions.loads.covers(spec.category):
        return False
    if not reading.loads_categories:
        return False
    return bool(narrowed(reading.situation, [Candidate(spec, "")], LOADABLE_STAGES)[0])


def _not_yet(found: Candidate, reading: LoadInputs) -> Outcome:
    name, bundle = found.spec.name, found.bundle
    if reading.place.agent.loading_mode == LoadingMode.CONSTANT:
        return _loadable(name, f"{name} is not called directly. Call it with {CALL_TOOL}.", call_with=CALL_TOOL)
    if found.is_routable and is_routed(reading.place.agent):
        return _left_out(name)
    if bundle is None or bundle in reading.holdings.bundles:
        is_in_turn = LoadingMode(reading.place.agent.loading_mode).is_in_turn
        when = "your next step" if is_in_turn else "the next message"
        return _loadable(name, f"{name} is loaded, but not available before {when}.")
    return _loadable(
        name, f"{name} is not loaded. Call {LOAD_TOOLS} with toolkit {bundle.name} first.", toolkit=bundle.name
    )


def _is_left_out_meta(spec: ToolSpec, reading: LoadInputs) -> bool:
    """Return whether the tool reads on in results or loads others, the agent has it, and the message called for no
    tool."""
    agent = reading.place.agent
    if not (spec.is_meta and is_routed(agent)):
        return False
    if not (is_reader(spec) or _loads_others(spec, reading)):
        return False
    return spec.is_enabled and reading.permissions.decide(spec).allowed and not reading.why_not_sent(spec)


def _loads_others(spec: ToolSpec, reading: LoadInputs) -> bool:
    own = (reading.place.agent, reading.holdings, reading.permissions)
    return spec.name in loading_tools(*own, searches=reading.searches)


def _left_out(name: str) -> Outcome:
    """Routing left it out, and the model asks for it: it comes with the next model call."""
    message = f"{name} was not sent with this message. It comes with {NEXT_STEP}: call it then."
    return replace(_loadable(name, message, comes_with=NEXT_STEP), promised=(name,))


def _loadable(name: str, message: str, **more: Any) -> Outcome:
    return execution.failure(message, status=StepStatus.REFUSED, tool=name, **more)


def _read(turn: RunningTurn) -> LoadInputs:
    row = turn.row
    brings_tools = bool(row.asked and row.asked.tools)
    return read_place(LoadTarget(row.session, row.agent, turn.model, row.is_unattended, brings_tools=brings_tools))
