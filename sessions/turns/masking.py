"""Arguments of calls without the secrets that sign the calls: in the calls' steps, in the reply that asked for them,
and in the request of a client that made one itself.

A call reads its arguments from the reply until it has an answer, also behind a crash, and the calls of one reply share
its row. So a reply is masked when each of its calls has an answer or its turn has ended; and before it goes back to the
model, so that no later request has other bytes for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from capabilities.choosing.pipeline.specs import specs
from capabilities.contract.masking import masked_cut, masked_in, masked_json
from capabilities.models import Tool, ToolVersion
from capabilities.running.credentials.signing import secrets_for
from capabilities.running.kinds.lines import MAX_LINE
from sessions.models import ClientRequest, Door, Step, StepKind, StepStatus, Turn
from sessions.turns.fencing import HELD, Claim, fence

#: Secrets of each call, by the key of its step.
Secrets = Mapping[int, Sequence[str]]
#: Texts of a stored call that its arguments are in.
TEXTS = ("arguments", "raw_arguments")


def masked_fields(arguments: str, display: str, secrets: Iterable[str]) -> dict[str, str]:
    """The fields of a call's step that are made of its arguments, without these secrets. No query."""
    secrets = tuple(secrets)
    line = masked_cut(display, secrets) if len(display) >= MAX_LINE else masked_in(display, secrets)
    return {"arguments": masked_json(arguments, secrets), "display": line[:MAX_LINE]}


def mask_reply(claim: Claim, reply: Step, calls: Iterable[Step], known: Secrets, *, membership_id: int) -> None:
    """Mask the reply and its calls, in one transaction; those without an answer, and those that the client runs, stay
    as they are. Raises LeaseLost.

    `known` are the secrets of the calls that this worker ran. No query where all are known and none is among the
    arguments. Else one for the tools of the other calls, those of `secrets_for`, and two or more to write.
    """
    ended = [call for call in calls if not call.is_unanswered and call.status != StepStatus.RETURNED]
    secrets = {**_looked_up([call for call in ended if call.pk not in known], membership_id), **known}
    changes = _changes(reply, ended, secrets)
    if not changes:
        return
    with transaction.atomic():
        fence(claim, HELD)
        _write(changes, reply, secrets)


def mask_ended(turn_id: UUID) -> None:
    """Mask the last reply of a turn that has ended in another way than by an answer, with its calls, or the call of a
    client that never began. Inside a transaction that holds its row. Two queries, and one more where the reply made
    calls; then as `mask_reply`, where none is known."""
    member, door = Turn.objects.values_list("membership_id", "door").get(pk=turn_id)
    replies = Step.objects.filter(turn=turn_id, kind__in=(StepKind.MODEL, StepKind.CLIENT))
    reply = replies.only("kind", "round", "tool_calls", "turn_id", "organisation_id").order_by("-index").first()
    if reply is None and door == Door.MCP:
        _mask_request(turn_id, member)
    if reply is None or not reply.tool_calls:
        return
    calls = Step.objects.filter(turn=turn_id, kind=StepKind.TOOL, round=reply.round)
    ended = list(calls.exclude(status=StepStatus.RETURNED).order_by("call_index"))
    secrets = _looked_up(ended, member)
    if changes := _changes(reply, ended, secrets):
        _write(changes, reply, secrets)


def _looked_up(calls: Sequence[Step], membership_id: int) -> dict[int, Sequence[str]]:
    """The secrets of the member's calls: of the tool that each called, or, where it never began, of the one that it
    names."""
    if not calls:
        return {}
    versions = [call.tool_version_id for call in calls if call.tool_version_id is not None]
    names = [call.tool_name for call in calls if call.tool_version_id is None]
    called = dict(ToolVersion.objects.filter(pk__in=versions).values_list("pk", "tool_id")) if versions else {}
    tools = Tool.objects.filter(Q(pk__in=called.values()) | Q(name__in=names))
    signed = [spec for spec in specs(tools) if spec.service or spec.credential_id is not None]
    by_tool = {spec.tool_id: secrets_for(spec, membership_id) for spec in signed}
    by_name = {spec.name: by_tool[spec.tool_id] for spec in signed}
    return {
        call.pk: by_tool.get(called.get(call.tool_version_id or 0, 0), ())
        if call.tool_version_id is not None
        else by_name.get(call.tool_name, ())
        for call in calls
    }


def _changes(reply: Step, calls: Iterable[Step], secrets: Secrets) -> list[tuple[Step, dict[str, Any]]]:
    """The steps in which something is to be masked, with their new fields."""
    found: list[tuple[Step, dict[str, Any]]] = []
    written = list(reply.tool_calls)
    for call in calls:
        hidden = secrets.get(call.pk, ())
        if not hidden:
            continue
        written[call.call_index] = _masked_call(written[call.call_index], hidden)
        fields = masked_fields(call.arguments, call.display, hidden)
        if any(getattr(call, name) != value for name, value in fields.items()):
            found.append((call, fields))
    return [*found, (reply, {"tool_calls": written})] if written != reply.tool_calls else found


def _masked_call(call: Mapping[str, Any], secrets: Sequence[str]) -> dict[str, Any]:
    return {name: masked_json(each, secrets) if name in TEXTS else each for name, each in call.items()}


def _write(changes: Sequence[tuple[Step, dict[str, Any]]], reply: Step, secrets: Secrets) -> None:
    """One query for each change, and those of `_write_request` for a client's own call."""
    for step, fields in changes:
        Step.objects.filter(pk=step.pk).update(**fields)
        for name, value in fields.items():
            setattr(step, name, value)
    if reply.kind == StepKind.CLIENT:
        _write_request(reply.turn_id, [secret for each in secrets.values() for secret in each])


def _write_request(turn_id: UUID, secrets: Sequence[str]) -> None:
    """Two queries."""
    made = ClientRequest.objects.filter(turn=turn_id)
    call = made.values_list("call", flat=True).get()
    if call is not None:
        made.update(call=_masked_call(call, secrets))


def _mask_request(turn_id: UUID, membership_id: int) -> None:
    """Mask a client's call that never began, by the tool that it names. Two queries, and four or five more where the
    tool has a credential."""
    name = ClientRequest.objects.values_list("call__name", flat=True).get(turn=turn_id)
    unmade = Step(pk=0, tool_name=name)
    if hidden := _looked_up([unmade], membership_id)[0]:
        _write_request(turn_id, hidden)
