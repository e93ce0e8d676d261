"""Test whether a budget lets any turn begin: the least that one model call of each agent reserves, against its
limit."""

from __future__ import annotations

from django.utils import timezone

from capabilities.language_models.providers.prices import input_at_most, worst_cost
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent
from sessions.budgets.amounts import amount_shown
from sessions.loop.model_calls.reserving import with_usual_answer
from sessions.models import Budget, BudgetScope, Measure

#: Agents that a warning names.
NAMED = 5


def warnings_of(budget: Budget, version: int | None) -> list[str]:
    """Sentences for whoever saves it; none for one that only warns, is off, or counts turns. Two queries at most.

    What a call reserves is counted without prompt, tools and message, so that each sentence is true of every turn.
    """
    if not (budget.is_hard and budget.is_enabled) or budget.measure not in (Measure.TOKENS, Measure.MONEY):
        return []
    least = {agent: amount for agent in _agents_of(budget) if (amount := least_of(agent, budget.measure, version))}
    stopped = [agent for agent, amount in least.items() if amount > budget.limit]
    if not stopped:
        return []
    needed = amount_shown(min(least[agent] for agent in stopped), budget.measure)
    names = ", ".join(agent.name for agent in stopped[:NAMED])
    more = f" and {len(stopped) - NAMED:,} more" if len(stopped) > NAMED else ""
    if len(stopped) == len(least):
        return [f"No turn can start under this limit: one model call of {names}{more} reserves at least {needed}."]
    return [f"Turns of {names}{more} cannot start under this limit: one model call reserves at least {needed}."]


def least_of(agent: Agent, measure: str, version: int | None) -> int:
    """The least that a model call of the agent reserves; 0 where that is not known. The model and its provider are at
    hand."""
    model = with_usual_answer(resolve_model(agent.model, agent), agent.output_p95)
    if measure == Measure.TOKENS:
        return input_at_most(model, 0) + model.max_output_tokens
    cost = worst_cost(model, 0, model.max_output_tokens, timezone.now(), version)
    return cost.nano if cost is not None else 0


def _agents_of(budget: Budget) -> list[Agent]:
    """Return the agents whose turns it may count, by name; an agent's budget counts that one's alone. One query."""
    agents = Agent.objects.filter(is_enabled=True).select_related("model__provider").defer("model__provider__api_key")
    if budget.scope == BudgetScope.AGENT and budget.agent_id is not None:
        agents = agents.filter(pk=budget.agent_id)
    elif budget.scope == BudgetScope.SESSION and budget.session_id is not None:
        agents = agents.filter(chat_sessions=budget.session_id)
    return list(agents.order_by("name", "pk"))
