"""Whose turns may go on, and who may do what with them: one answer for claims, rounds, calls, sweeps, pages, REST."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from sessions.models import TurnStatus
from toolhub.tenants.models import Access, Membership, Right

#: Access levels of members who may chat.
CHATTING = tuple(access for access in Access if access.rank >= Access.MEMBER.rank)


@dataclass(frozen=True)
class Ending:
    """How a turn ends that may not go on; `code` is for programs, the message for people."""

    status: TurnStatus
    code: str
    message: str


REMOVED = Ending(TurnStatus.CANCELLED, "member_removed", "The member was removed from the organisation.")
INACTIVE = Ending(TurnStatus.CANCELLED, "member_inactive", "The member may not sign in any more.")
DEMOTED = Ending(TurnStatus.CANCELLED, "member_is_viewer", "The member is a viewer now, and viewers do not chat.")

#: What `turn_ending` reads of a turn, for `values`.
TURN_FIELDS = (
    "membership__ended_at",
    "membership__user__is_active",
    "membership__access",
    "agent__is_enabled",
    "agent__name",
)


def member_may_not_chat(prefix: str = "membership__") -> Q:
    """Rows whose member was removed, may not sign in, or is a viewer."""
    return (
        Q(**{f"{prefix}ended_at__isnull": False})
        | Q(**{f"{prefix}user__is_active": False})
        | ~Q(**{f"{prefix}access__in": CHATTING})
    )


def turn_may_not_go_on() -> Q:
    """Turns whose member may not chat any more, or whose agent is switched off."""
    return member_may_not_chat() | Q(agent__is_enabled=False)


def may_stop(member: Membership, owner_id: int) -> bool:
    """Whether the member may stop a turn of this owner: one's own, as far as one may chat; with the right `sessions`
    anybody's."""
    is_own = owner_id == member.pk and member.has_access(Access.MEMBER)
    return is_own or member.has_right(Right.SESSIONS)


def member_ending(member: Membership) -> Ending | None:
    """Why this member's turns and schedules end; None while they go on. Reads the member's user."""
    return _of_member(member.ended_at, member.user.is_active, member.access)


def turn_ending(row: Mapping[str, Any]) -> Ending | None:
    """Why the turn may not go on, by its `TURN_FIELDS`; None while it may."""
    ending = _of_member(row["membership__ended_at"], row["membership__user__is_active"], row["membership__access"])
    if ending is None and not row["agent__is_enabled"]:
        return Ending(TurnStatus.FAILED, "agent_disabled", f"The agent {row['agent__name']} is switched off.")
    return ending


def _of_member(ended_at: object, is_active: bool, access: str) -> Ending | None:
    if ended_at is not None:
        return REMOVED
    if not is_active:
        return INACTIVE
    return None if access in CHATTING else DEMOTED
