"""The panel of what a session has loaded, as the session's page and its own routes draw it."""

from __future__ import annotations

from typing import Any

from capabilities.choosing.pipeline.routing import is_routed
from capabilities.contract.budget_windows import TURNS
from capabilities.contract.loading import LOAD_CATEGORY, LOAD_TOOLS
from capabilities.models import Agent
from sessions.access import may_change_loads
from sessions.models import ChatSession
from sessions.selection.loading.queries import Around, LoadablePart, around, loads_of
from sessions.turns.budget_states import budgets_for_session, tightest
from toolhub.tenants.models import Membership


def panel_of(
    member: Membership, session: ChatSession, agent: Agent, beside: Around | None = None, q: str = ""
) -> dict[str, Any]:
    """The context of `_loads.html`, with the tightest budget of the next turn, of tokens or money. Four queries, or
    three where what stands around is read already; with budgets one more, one for each limit of turns at once, and two
    where they are not known yet at this registry version.

    `q`: what toolkits that could be loaded are called; the first of them are shown.
    """
    beside = beside or around(session, agent, member)
    loads = loads_of(session, agent, part=LoadablePart(q))
    budgets = budgets_for_session(session, agent, version=member.organisation.registry_version)
    used = dict.fromkeys([(session.agent.slug, session.agent.name), *beside.used, (agent.slug, agent.name)])
    return {
        "session": session,
        "agent": agent,
        "loads": loads,
        "selection": loads.selection,
        "is_routed": is_routed(agent),
        "budget": tightest(each for each in budgets if each.terms.measure != TURNS),
        "find_toolkit": q,
        "loaders": beside.loaders,
        "categories": [each for each in beside.categories if not _has_category(loads.loaded, each[0])],
        "agents": list(used),
        "may_load": may_change_loads(member, session),
        "is_searched": bool(loads.selection.namespaces),
        "loads_by_itself": any(tool.name in (LOAD_TOOLS, LOAD_CATEGORY) for tool in loads.selection.tools),
    }


def _has_category(loaded: list[Any], name: str) -> bool:
    return any(line.kind == "category" and line.name == name for line in loaded)
