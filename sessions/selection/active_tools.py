"""The tools that a session has at hand, computed anew at each call: there is no snapshot.

Definitions, permissions and names as other code asks for them; the work is the selection's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from capabilities.choosing.pipeline.permissions import may_use
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent
from sessions.models import ChatSession
from sessions.selection.queries import Selection, selection_preview
from toolhub.tenants.models import Membership

#: Whether the session's member may use the tool, asked when it is called. One query.
Permitted = Callable[[], bool]


@dataclass(frozen=True)
class ActiveTools:
    """Tools that the session's next turn would carry, in the order in which they are sent.

    `defs` are in OpenAI form; `perms` has a predicate for each name; `selection` says how it came to them.
    """

    defs: list[dict[str, Any]]
    perms: dict[str, Permitted]
    names: list[str]
    selection: Selection


def compute_definitions(
    session: ChatSession, member: Membership | None = None, agent: Agent | None = None, message: str = ""
) -> ActiveTools:
    """Return the tools that the next turn of the session would carry for this message; without one, all that it may
    bring.

    `agent` is the session's first where none is given. `member` is the session's own, and may be left out; raises
    ValueError for any other. Queries as `select_tools`.
    """
    if member is not None and member.pk != session.membership_id:
        raise ValueError("A session's tools are those of its own member.")
    selection = selection_preview(session, agent, message)
    return ActiveTools(
        [tool.definition for tool in selection.tools],
        {tool.name: partial(_is_permitted, session.membership_id, tool) for tool in selection.tools},
        [tool.name for tool in selection.tools],
        selection,
    )


def get_active_tool_definitions(session: ChatSession, member: Membership | None = None) -> list[dict[str, Any]]:
    """Return the definitions of the tools that the session's next turn would carry, in OpenAI's form. Raises and
    queries as `compute_definitions`."""
    return compute_definitions(session, member).defs


def get_active_tool_permissions(session: ChatSession, member: Membership | None = None) -> dict[str, Permitted]:
    """Return a predicate for each tool: whether the member may use it at the moment of the question."""
    return compute_definitions(session, member).perms


def get_active_tool_names(session: ChatSession, member: Membership | None = None) -> list[str]:
    return compute_definitions(session, member).names


def _is_permitted(membership_id: int, spec: ToolSpec) -> bool:
    return may_use(membership_id, spec).allowed
