"""What a client reads where its turn waits for a person: who must do what, and where."""

from __future__ import annotations

from django.urls import reverse

from sessions.gateway.following import Outcome
from sessions.models import Approval, ApprovalKind


def sentence_for(outcome: Outcome, origin: str) -> str:
    """In words, with the address of each thing that is asked. `origin` is where this service is reached."""
    organisation = outcome.turn.membership.organisation.slug
    lines = [
        _line(each, origin + reverse("approval_detail", args=[organisation, each.public_id])) for each in outcome.asks
    ]
    session = origin + reverse("session_detail", args=[organisation, outcome.turn.session_id])
    return "\n".join([*lines, f"The answer comes in this session when that is done: {session}"])


def _line(asked: Approval, address: str) -> str:
    if asked.kind == ApprovalKind.APPROVAL:
        return f"The call of {asked.tool.name} waits until somebody allows it: {address}"
    return f"{asked.tool.name} waits for an answer of yours: {address}"
