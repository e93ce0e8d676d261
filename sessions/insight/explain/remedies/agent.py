"""Changes of the agent: what it begins with, its own tools, whose credentials it acts with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from capabilities.agents.agents.writes import (
    agent_content,
    allowed_toolkits,
    deferred_tools,
    own_tools,
    pinned_tools,
    update_agent,
)
from capabilities.choosing.pipeline.candidates import Bundle, Row
from capabilities.models import Agent, AgentScope, ClientApprovals, RoutingMode
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.remedies.ways import Blocked, Page, Way, bundles_with
from toolhub.tenants.models import Membership


def widen_scope(blocked: Blocked) -> Iterator[Way]:
    """Let the agent act with what the organisation shares."""
    agent = blocked.inputs.agent
    yield _of_agent(
        blocked,
        f"the agent {agent} may act with the organisation’s credentials",
        partial(_with_scope, blocked),
        lambda stored: {"scope": AgentScope.ORGANISATION},
    )


def _with_scope(blocked: Blocked) -> Inputs:
    agent = copy(blocked.inputs.agent)
    agent.scope = AgentScope.ORGANISATION
    shared = frozenset(key for key, row in blocked.inputs.rows.items() if row.spec.acts_as_organisation)
    return blocked.inputs.changed(shared, agent=agent)


def ask_for_clients(blocked: Blocked) -> Iterator[Way]:
    """Ask for clients of `/v1` too, and tell them where it is answered."""
    agent = blocked.inputs.agent
    yield _of_agent(
        blocked,
        f"clients of {agent} are told where to answer",
        partial(_attended, blocked),
        lambda stored: {"client_approvals": ClientApprovals.ASK},
        "ask",
    )


def _attended(blocked: Blocked) -> Inputs:
    inputs = blocked.inputs
    gathered = inputs.gathered.values()
    keys = frozenset(each.spec.tool_id for each in gathered if inputs.why_asks and inputs.why_asks(each.spec))
    return inputs.changed(keys, why_asks=None)


def begin_with(blocked: Blocked) -> Iterator[Way]:
    """Load a toolkit that holds the tool in each new session."""
    for bundle in bundles_with(blocked):
        if bundle.toolkit_id is not None:
            name = bundle.name
            yield _of_agent(
                blocked,
                f"the agent {blocked.inputs.agent} begins with toolkit {name}",
                partial(_with_initial, blocked.inputs, bundle),
                partial(_initial_with, name),
                bundle,
            )


def _initial_with(name: str, stored: Agent) -> dict[str, Any]:
    initial = [each for each, is_initial in allowed_toolkits(stored).items() if is_initial]
    return {"initial_toolkits": (*initial, name)}


def _with_initial(inputs: Inputs, bundle: Bundle) -> Inputs | None:
    """Return the inputs where the agent begins with the bundle; None where another side disagrees with it, or the agent
    may not act with what is in it."""
    is_shared = any(each.spec.acts_as_organisation for each in inputs.reading.offer.tools_of(bundle))
    if is_shared and inputs.agent.scope == AgentScope.MEMBER:
        return None
    initial = replace(bundle, is_initial=True)
    allowed = tuple(initial if each == bundle else each for each in inputs.holdings.allowed)
    loads = tuple(replace(load, bundle=initial) if load.bundle == bundle else load for load in inputs.lasting_loads)
    holdings = replace(inputs.holdings, allowed=allowed, loads=loads)
    found = inputs.changed(inputs.brought_by(bundle), holdings=holdings)
    return None if found.clashes_with(bundle) else found


def send_at_once(blocked: Blocked) -> Iterator[Way]:
    """Defer the tool no longer."""
    spec = blocked.tool.spec
    row = blocked.inputs.rows.get(spec.tool_id)
    if row is not None and row.is_deferred:
        yield _of_agent(
            blocked,
            f"the agent {blocked.inputs.agent} no longer defers it",
            partial(_with_own, blocked, row.place),
            lambda stored: {"deferred_tools": tuple(each for each in deferred_tools(stored) if each != spec.name)},
        )


def add_tool(blocked: Blocked) -> Iterator[Way]:
    """Make it one of the agent's own."""
    spec = blocked.tool.spec
    row = blocked.inputs.rows.get(spec.tool_id)
    if row is None or row.place is None:
        yield _of_agent(
            blocked,
            f"it is one of the agent {blocked.inputs.agent}’s own tools",
            partial(_with_own, blocked, blocked.inputs.last_place + 1),
            lambda stored: {"tools": (*own_tools(stored), spec.name)},
        )


def pin(blocked: Blocked) -> Iterator[Way]:
    """Send it with every message."""
    spec = blocked.tool.spec
    row = blocked.inputs.rows.get(spec.tool_id)
    place = blocked.inputs.last_place + 1 if row is None or row.place is None else row.place
    yield _of_agent(
        blocked,
        f"the agent {blocked.inputs.agent} sends it with every message: it is pinned",
        partial(_with_own, blocked, place, is_pinned=True),
        partial(_pinned_with, spec.name),
    )


def _pinned_with(name: str, stored: Agent) -> dict[str, Any]:
    own = dict.fromkeys([*own_tools(stored), name])
    return {"tools": tuple(own), "pinned_tools": tuple(dict.fromkeys([*pinned_tools(stored), name]))}


def route_nothing(blocked: Blocked) -> Iterator[Way]:
    """Send all tools with every message."""
    agent = blocked.inputs.agent
    yield _of_agent(
        blocked,
        f"messages leave out no tool of the agent {agent}",
        partial(_unrouted, blocked),
        lambda stored: {"routing_mode": RoutingMode.OFF},
        "off",
    )


def _unrouted(blocked: Blocked) -> Inputs:
    agent = copy(blocked.inputs.agent)
    agent.routing_mode = RoutingMode.OFF
    left_out = (name for name, verdict in blocked.inputs.by_router.items() if not verdict.kept)
    gathered = blocked.inputs.gathered
    keys = frozenset(gathered[name].spec.tool_id for name in left_out if name in gathered)
    return blocked.inputs.changed(keys, agent=agent)


def _with_own(blocked: Blocked, place: int | None, *, is_pinned: bool = False) -> Inputs | None:
    spec, inputs = blocked.tool.spec, blocked.inputs
    if spec.is_meta:
        return None
    row = inputs.rows.get(spec.tool_id) or Row(spec, False, None, False)
    row = replace(row, place=place, is_deferred=False, is_pinned=is_pinned or row.is_pinned)
    found = inputs.changed()
    return replace(found, rows={**found.rows, spec.tool_id: row}, offer=None)


def _of_agent(
    blocked: Blocked,
    text: str,
    inputs: Callable[[], Inputs | None],
    content: Callable[[Agent], dict[str, Any]],
    key: object = None,
) -> Way:
    agent = blocked.inputs.agent
    return Way(text, Page("agent_update", (agent.slug,)), inputs, partial(_update_agent, agent.pk, content), key=key)


def _update_agent(key: int, content: Callable[[Agent], dict[str, Any]], actor: Membership) -> Agent:
    stored = Agent.objects.for_display().get(pk=key)
    return update_agent(stored, replace(agent_content(stored), **content(stored)), actor=actor)
