"""Items of earlier responses that a client names by their ids, as the Vercel AI SDK does: put in as they were sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sessions.doors.gateway.call_ids import read_id
from sessions.doors.gateway.conversations import MAX_MESSAGES
from sessions.doors.gateway.errors import Invalid
from sessions.doors.gateway.requests import Caller, answers_by_turn
from sessions.doors.gateway.responses import item_of, message_id_of
from sessions.models import Step, StepKind, StepStatus, Turn

MESSAGE_ID = re.compile(r"msg_(?P<turn>[0-9a-f]{32})\Z")


def with_items(caller: Caller) -> Mapping[str, Any]:
    """The body with the items in place of the references to them. Three queries where there are some.

    Raises Invalid, the same for an item of another token's and for one that never was.
    """
    items = caller.body.get("input")
    if not isinstance(items, list) or not any(map(_is_reference, items[:MAX_MESSAGES])):
        return caller.body
    known = _items(caller, {turn for item in items if _is_reference(item) and (turn := _turn_of(item.get("id")))})
    found = []
    for place, item in enumerate(items):
        if _is_reference(item):
            id = item.get("id")
            if not isinstance(id, str) or id not in known:
                raise Invalid("There is no such item here: send the item itself.", f"input.{place}.id")
            item = known[id]
        found.append(item)
    return {**caller.body, "input": found}


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"


def _turn_of(id: Any) -> UUID | None:
    """Return the turn that sent the item of this id; None for an id that is not one of ours."""
    if not isinstance(id, str):
        return None
    if message := MESSAGE_ID.match(id):
        return UUID(message["turn"])
    call = read_id(f"call_{id.removeprefix('fc_')}")
    return call.turn if call else None


def _items(caller: Caller, turn_ids: set[UUID]) -> dict[str, dict[str, Any]]:
    """The items of these turns by their ids, as far as this token's requests came to them and stored them."""
    own = Turn.objects.filter(membership=caller.member, client_request__token=caller.token, session__deleted_at=None)
    turns: Sequence[Turn] = list(own.filter(pk__in=turn_ids, client_request__is_stored=True))
    texts = answers_by_turn(turns)
    found: dict[str, dict[str, Any]] = {
        message_id_of(turn): {"role": "assistant", "content": texts[turn.pk]} for turn in turns if texts[turn.pk]
    }
    for step in Step.objects.filter(turn__in=turns, kind=StepKind.TOOL, status=StepStatus.RETURNED):
        item = item_of(step)
        found[item["id"]] = item
    return found
