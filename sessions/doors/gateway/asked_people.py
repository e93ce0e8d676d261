"""Sentences for a client whose turn waits for a person: who must do what, and where."""

from __future__ import annotations

from uuid import UUID

from django.urls import reverse

from sessions.models import Approval, ApprovalKind, ApprovalStatus
from toolhub.tenants.models import Membership

#: Words in front of the address where the client's answer comes.
COMES_LATER = "The answer comes in this session when that is done: "


def sentence_for(turn_id: UUID, session_id: UUID, member: Membership, origin: str) -> str:
    """Build sentences with the address of each thing that is asked. `origin` is where this service is reached. One
    query."""
    organisation = member.organisation.slug
    asks = Approval.objects.filter(turn=turn_id, status=ApprovalStatus.PENDING).select_related("tool").order_by("pk")
    lines = [_line(each, origin + reverse("approval_detail", args=[organisation, each.public_id])) for each in asks]
    session = origin + reverse("session_detail", args=[organisation, session_id])
    return "\n".join([*lines, COMES_LATER + session])


def tells_to_wait(text: str, session_id: UUID) -> bool:
    """Return whether this is what a client reads of a turn of the session that waits."""
    last = text.rpartition("\n")[2]
    return last.startswith(COMES_LATER) and last.endswith(f"/{session_id}/")


def _line(asked: Approval, address: str) -> str:
    if asked.kind == ApprovalKind.APPROVAL:
        return f"The call of {asked.tool.name} waits until somebody allows it: {address}"
    return f"{asked.tool.name} waits for an answer of yours: {address}"
