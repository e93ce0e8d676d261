"""Routines of the member who asks: messages kept under a name, and submitted whenever they are called for."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.db.models import QuerySet
from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool
from sessions.models import Routine, Turn
from sessions.turns import accepting, ledger

CATEGORY = CategorySpec(
    name="automation",
    title="Automation",
    description="Routines: messages kept under a name, submitted when they are called for.",
    keywords=("routine", "automation", "automate", "run my", "saved prompt"),
    is_core=True,
)
#: Routines that a member may keep.
MOST = 100
#: Marks the turns that a routine submitted: one of those starts no other.
KEY = "routine:"

Name = Annotated[str, Field(min_length=1, max_length=64), WITHOUT_NUL]


@tool(category="automation", effect="read", human_format="Listing routines")
def automation_list(context: ToolContext) -> dict[str, Any]:
    """List the user's routines."""
    rows = _mine(context).order_by("name")
    return {"routines": [{"name": row.name, "message": row.message[:200]} for row in rows]}


@tool(
    category="automation",
    effect="write",
    on_crash="retry",
    in_untrusted="ask",
    human_format="Keeping the routine {name}",
)
def automation_save(
    context: ToolContext, name: Name, message: Annotated[str, Field(min_length=1, max_length=10_000), WITHOUT_NUL]
) -> dict[str, Any]:
    """Keep a message as a routine; one of the same name is replaced."""
    if not _mine(context).filter(name=name).exists() and _mine(context).count() >= MOST:
        raise ToolError(f"There are {MOST} routines; remove one first.")
    Routine.objects.update_or_create(
        organisation_id=context.organisation_id,
        membership_id=context.membership_id,
        name=name,
        defaults={"message": message},
    )
    return {"saved": name}


@tool(category="automation", effect="write", on_crash="retry", human_format="Running the routine {name}")
def automation_run(context: ToolContext, name: Name) -> dict[str, Any]:
    """Submit a routine's message as the next turn of this conversation."""
    routine = _mine(context).filter(name=name).first()
    if routine is None:
        raise ToolError(f"There is no routine {name}; automation_list shows them.")
    turn = (
        Turn.objects.select_related("session", "agent", "membership").filter(pk=context.turn_id or UUID(int=0)).first()
    )
    if turn is None:
        raise ToolError("A routine is run from a conversation.")
    if turn.origin_key.startswith(KEY):
        raise ToolError("This turn is a routine itself; a routine starts no other one.")
    # The key is the call's: a call that is repeated after a crash submits no second turn.
    key = f"{KEY}{context.idempotency_key}"
    try:
        accepted = accepting.accept(
            turn.session, routine.message, member=turn.membership, agent=turn.agent, origin_key=key
        )
    except ledger.Conflict as conflict:
        raise ToolError(str(conflict)) from conflict
    return {"submitted": name, "turn": accepted.turn.seq, "takes_effect": "after this turn"}


@tool(category="automation", effect="write", human_format="Removing the routine {name}")
def automation_remove(context: ToolContext, name: Name) -> dict[str, Any]:
    """Remove a routine."""
    if not _mine(context).filter(name=name).delete()[0]:
        raise ToolError(f"There is no routine {name}; automation_list shows them.")
    return {"removed": name}


def _mine(context: ToolContext) -> QuerySet[Routine]:
    return Routine.objects.filter(membership=context.membership_id)
