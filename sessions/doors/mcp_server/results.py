"""Results of calls for an MCP client: what a model would have read of one, its data and files, or why there is none."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from uuid import UUID

import mcp_types as types
from django.urls import reverse

from sessions.doors.mcp_server.callers import McpCaller
from sessions.doors.mcp_server.writes import leave_waiting
from sessions.models import Approval, ApprovalStatus, Step, StepFile, StepKind, StepStatus, Turn, TurnStatus

#: Name of the user's answer between the client and us.
ANSWER = "answer"
#: Bytes of a file that goes out within a result; a larger one is named with its address.
MOST_WITHIN = 1_000_000


def result_of(caller: McpCaller, turn_id: UUID) -> types.CallToolResult:
    """The result of an ended call. Three queries; one more where it brought files."""
    turn = Turn.objects.get(pk=turn_id)
    step = Step.objects.filter(turn=turn, kind=StepKind.TOOL).order_by("index").first()
    if step is None or (turn.status != TurnStatus.DONE and step.status != StepStatus.DONE):
        return failed(f"{turn.error_message or 'The call did not end.'} ({turn.error_code or turn.status})")
    content: list[types.ContentBlock] = [types.TextContent(text=step.result_sent)]
    content += [_as_content(caller, each, is_within=not step.hooked_result) for each in _files_of(step)]
    return types.CallToolResult(
        content=content, structured_content=_data_of(step), is_error=step.status != StepStatus.DONE
    )


def _data_of(step: Step) -> dict[str, object] | None:
    """The result as data, where the client gets the whole of it as text too: not past a cut, nor past what hooks took
    out."""
    is_whole = not step.hooked_result and step.result_sent.startswith(step.result)
    data: dict[str, object] | None = step.structured
    return data if is_whole else None


def _files_of(step: Step) -> Sequence[StepFile]:
    return list(StepFile.objects.filter(step=step).order_by("place")) if step.status == StepStatus.DONE else []


def _as_content(caller: McpCaller, file: StepFile, *, is_within: bool) -> types.ContentBlock:
    """The file itself, as what its type says; one that is too large, or whose result hooks changed (not `is_within`),
    as a link, for a person who is signed in."""
    url = caller.site + reverse("file_download", args=[caller.member.organisation.slug, file.public_id])
    if file.size > MOST_WITHIN or not is_within:
        return types.ResourceLink(uri=url, name=file.name, mime_type=file.media_type, size=file.size)
    data = base64.b64encode(bytes(file.content)).decode()
    kind = file.media_type.partition("/")[0]
    if kind == "image":
        return types.ImageContent(data=data, mime_type=file.media_type)
    if kind == "audio":
        return types.AudioContent(data=data, mime_type=file.media_type)
    return types.EmbeddedResource(resource=types.BlobResourceContents(uri=url, mime_type=file.media_type, blob=data))


def waiting_result(
    caller: McpCaller, turn: Turn, *, opens_pages: bool
) -> types.CallToolResult | types.InputRequiredResult | None:
    """Return the result for a client whose call waits for a person, and record that the client has read so: None where
    the call waits for nobody now. One that shows its user a page (`opens_pages`) is asked to, and comes back with the
    state; any other one reads where it is answered, and calls again. Two queries."""
    asked = Approval.objects.filter(turn=turn, status=ApprovalStatus.PENDING).order_by("pk").first()
    if asked is None:
        return None
    leave_waiting(turn.pk)
    where = caller.page(f"approvals/{asked.public_id}/")
    what = f"{asked.get_kind_display()} is waited for, before the call goes on."
    if opens_pages:
        page = types.ElicitRequestURLParams(message=what, url=where, elicitation_id=str(asked.public_id))
        request = types.ElicitRequest(params=page)
        return types.InputRequiredResult(input_requests={ANSWER: request}, request_state=str(turn.pk))
    session = caller.page(f"sessions/{turn.session_id}/")
    return failed(
        f"Not done yet. {what} A person answers at {where} Then make the same call again, with the same arguments: it "
        f"is not made twice, and you get its result. It will also be at {session}"
    )


def is_declined(responses: types.InputResponses | None) -> bool:
    """Return whether the user of the client would not open the page."""
    answer = (responses or {}).get(ANSWER)
    return isinstance(answer, types.ElicitResult) and answer.action != "accept"


def failed(message: str) -> types.CallToolResult:
    """A result that a model can read, and mend what it can."""
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
