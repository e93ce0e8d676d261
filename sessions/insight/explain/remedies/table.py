"""The single changes that would let a tool through: each is tried by running the selection, and named only if it works.

REMEDIES is the table: the stage that stops the tool, a word for programs, the right that it takes, and a function that
finds the ways to do it. A way says what the selection would be read from, and has the write that does it.
"""

from __future__ import annotations

from functools import partial

from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.reasons import Reasons
from sessions.insight.explain.remedies import agent, catalogue, model, policies, rights, session
from sessions.insight.explain.remedies.ways import Blocked, Change, Remedy, Way
from toolhub.tenants.models import Membership, Right


class Remedies:
    """Remedies for the tools of one page."""

    def __init__(self, inputs: Inputs, member: Membership, *, in_session: bool) -> None:
        self.inputs = inputs
        self.member = member
        self.in_session = in_session
        self._tried: dict[object, frozenset[int]] = {}

    def of(self, tool: Reasons) -> tuple[Change, ...]:
        """Return the changes that would let the tool through; none for a tool that is sent, and for one that two stages
        stop, beside the limit."""
        stops = {cell.stage for cell in tool.stops} - {"limit"}
        if tool.is_sent or len(stops) > 1:
            return ()
        stage, blocked = next(iter(stops), "limit"), Blocked(self.inputs, self.member, tool, self.in_session)
        return tuple(
            Change(
                remedy.code,
                way.text,
                way.page.view,
                way.page.args,
                way.page.query,
                remedy.right,
                way.target,
                way.write,
            )
            for remedy in REMEDIES
            if remedy.stage == stage
            for way in remedy.ways(blocked)
            if tool.spec.tool_id in self._sent(remedy.code, way)
        )

    def _sent(self, code: str, way: Way) -> frozenset[int]:
        """Keys of what the selection sends then."""
        if way.key is not None and (code, way.key) in self._tried:
            return self._tried[code, way.key]
        inputs = way.inputs()
        sent = inputs.sent if inputs is not None else frozenset()
        if way.key is not None:
            self._tried[code, way.key] = sent
        return sent


REMEDIES = (
    Remedy("loaded", "load_toolkit", None, partial(session.load, toolkits=True)),
    Remedy("loaded", "load_tool", None, partial(session.load, toolkits=False)),
    Remedy("loaded", "make_initial", Right.AGENTS, agent.begin_with),
    Remedy("loaded", "send_at_once", Right.AGENTS, agent.send_at_once),
    Remedy("loaded", "add_tool", Right.AGENTS, agent.add_tool),
    Remedy("enabled", "switch_on", Right.CATALOGUE, catalogue.switch_on),
    Remedy("enabled", "release", Right.APPROVE_CODE, catalogue.release),
    Remedy("enabled", "approve_version", Right.APPROVE_CODE, catalogue.approve),
    Remedy("set-up", "set_up", Right.CATALOGUE, catalogue.set_up),
    Remedy("scope", "widen_scope", Right.AGENTS, agent.widen_scope),
    Remedy("grants", "revoke_grant", Right.ROLES, rights.revoke),
    Remedy("role", "allow_in_role", Right.ROLES, rights.allow_in_role),
    Remedy("role", "give_grant", Right.ROLES, rights.give),
    Remedy("policy", "let_through", Right.POLICIES, partial(policies.let_through, of_provider=False)),
    Remedy(
        "provider_policy",
        "let_through_to_provider",
        Right.POLICIES,
        partial(policies.let_through, of_provider=True),
    ),
    Remedy("approval", "ask_for_clients", Right.AGENTS, agent.ask_for_clients),
    Remedy("refused", "send_again", Right.CATALOGUE, model.send_again),
    Remedy("size", "raise_definition_limit", Right.POLICIES, catalogue.raise_definition_limit),
    Remedy("router", "pin_tool", Right.AGENTS, agent.pin),
    Remedy("router", "route_nothing", Right.AGENTS, agent.route_nothing),
    Remedy("limit", "raise_limit", Right.PROVIDERS, model.raise_limit),
    Remedy("limit", "unload", None, session.unload),
)
