"""Tools that are left out of a turn that nobody attends: those of which every call would ask a person.

A tool stays where only some of its calls ask, by their arguments, by a hook or by text from outside: such a call is
refused where it would ask (`sessions/loop/calls/approvals.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

from capabilities.access.approval_rules.queries import ask_rules, asked_call, role_ids
from capabilities.choosing.pipeline.runtime_layers import Layers, in_force, layers_for
from capabilities.contract.approvals import AskRule, is_question, rules_met
from capabilities.contract.decisions import Decision, Terms, Verb, decision_on
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Agent
from sessions.models import ChatSession
from sessions.turns.asked import consents_in

#: Why every call of a tool would ask a person; "" where not every call does.
WhyAsks = Callable[[ToolSpec], str]


def why_asks_in(session: ChatSession, agent: Agent, model: ResolvedModel | None = None, *, at: int | None) -> WhyAsks:
    """Return the function that says why every call of a tool asks, for the session's member, with this agent and its
    model, at this registry version of the organisation. The queries of `ask_rules` and `layers_for`, with the first
    tool that is asked about; one for the roles where a rule names one, and one for the consents where one could
    answer."""
    return _Asked(session, agent, model or resolve_model(agent.model, agent), at).why


class _Asked:
    """Rules, settings and consents that decide whether somebody is asked, read when they are first needed."""

    def __init__(self, session: ChatSession, agent: Agent, model: ResolvedModel, at: int | None) -> None:
        self._session, self._agent, self._model, self._at = session, agent, model, at

    def why(self, spec: ToolSpec) -> str:
        if is_question(spec):
            return "it asks the user a question, and nobody answers this client"
        call = asked_call(spec, {}, self._session.membership_id, self._agent.pk, lambda: self._roles)
        knob = in_force(spec, self._layers).envelope.ask
        decisions = [decision_on(spec, [rule] if rule else [], knob) for rule in rules_met(self._rules, call)]
        sources = [each.source for each in decisions if each is not None and self._asks(spec, each)]
        if len(sources) < len(decisions):
            return ""
        return f"each call of it asks a person ({sources[0]}), and nobody answers this client"

    def _asks(self, spec: ToolSpec, decision: Decision) -> bool:
        if decision.verb != Verb.ASK:
            return False
        return not (decision.terms.allows_consent and self._is_allowed(spec, decision.terms))

    def _is_allowed(self, spec: ToolSpec, terms: Terms) -> bool:
        """Return whether a consent answers the call, as `has_consent` of the loop finds it."""
        own = self._session.membership_id
        given = [by for version, by in self._consents if version == spec.version_id]
        return any(by != own for by in given) if terms.needs_other_person else bool(given)

    @cached_property
    def _rules(self) -> tuple[AskRule, ...]:
        return ask_rules(self._session.organisation_id, self._at)

    @cached_property
    def _layers(self) -> Layers:
        provider = self._model.provider.public_id
        return layers_for(self._session.organisation_id, provider_id=provider, agent_id=self._agent.pk, at=self._at)

    @cached_property
    def _roles(self) -> Collection[int]:
        return role_ids(self._session.membership_id)

    @cached_property
    def _consents(self) -> list[tuple[int, int | None]]:
        return list(consents_in(self._session).values_list("tool_version_id", "granted_by_id"))
