"""Reservation of budgets before a model call: how much it may use at most, and with which cap on its answer.

No query while the organisation has no budgets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from capabilities.contract.budget_windows import MONEY
from capabilities.language_models.providers.prices import input_at_most, worst_cost
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.model_calls.admission import TurnFailed
from sessions.models import Step, StepKind, StepStatus
from sessions.turns.budget_states import budgets_of, charged_by
from sessions.turns.fencing import OverBudget
from sessions.turns.spending import Reserved, reserve, reserved_in

#: Tokens of an answer that a call is given at least, however short the agent's usual answer is.
LEAST_ANSWER = 256
#: The finish_reason of a reply that met its cap.
LENGTH = "length"


@dataclass(frozen=True)
class Admitted:
    """A model call that may be made: its model with the cap that is sent, and what is reserved for it."""

    model: ResolvedModel
    reserved: Reserved | None = None
    #: Whether the cap is the length of the agent's usual answers, below the model's own.
    is_capped: bool = False


def reserve_call(turn: RunningTurn, counted: int, *, with_whole_answer: bool = False) -> Admitted:
    """Reserve for the turn's next model call what it may use at most, of every budget that it counts on.

    `counted` are the tokens that would be sent, by our own count. Under a budget that stops, the answer is given no
    more tokens than the agent's usual answers take, unless `with_whole_answer`.

    Raises TurnFailed: `budget_exceeded` where one has no room, `no_price` for a model without a price under a budget in
    money. Two queries where the budgets are known and their windows have begun.
    """
    budgets = budgets_of(turn.row.organisation_id, turn.registry_version)
    if not budgets:
        return Admitted(turn.model)
    at, charged = moment_of(turn), charged_by(turn.row, turn.registry_version)
    names = reserved_in(budgets, charged, at)
    if not names:
        return Admitted(turn.model)
    of_budgets = [budgets.by_id[name.budget_id] for name in names]
    model = turn.model
    if not with_whole_answer and any(terms.is_hard for terms in of_budgets):
        model = with_usual_answer(model, turn.row.agent.output_p95)
    cap, money = model.max_output_tokens, None
    of_money = [terms for terms in of_budgets if terms.measure == MONEY]
    if of_money:
        cost = worst_cost(model, counted, cap, at, turn.registry_version)
        hard = [terms.name for terms in of_money if terms.is_hard]
        if cost is None and hard and not budgets.counts_unpriced_as_free:
            raise TurnFailed("no_price", _no_price(model, hard[0]))
        money = None if cost is None else cost.nano
    turn.model_calls += 1
    try:
        reserved = reserve(
            turn.claim,
            budgets,
            charged,
            step=turn.model_calls,
            tokens=input_at_most(model, counted) + cap,
            money=money,
            at=at,
            names=names,
            answer=cap,
        )
    except OverBudget as over:
        raise TurnFailed(over.code, str(over)) from over
    return Admitted(model, reserved, model.max_output_tokens < turn.model.max_output_tokens)


def moment_of(turn: RunningTurn) -> datetime:
    """Now, by the database's clock: workers need not agree on the hour for a window to end once."""
    return timezone.now() + turn.clock_ahead


def clock_ahead(database_now: datetime) -> timedelta:
    """Return the time by which the database's clock, read just now, is ahead of this process's."""
    return database_now - timezone.now()


def with_usual_answer(model: ResolvedModel, usual: int | None) -> ResolvedModel:
    """The model with a cap of this many tokens, if that is lower than its own."""
    if usual is None:
        return model
    cap = max(LEAST_ANSWER, usual)
    return replace(model, max_output_tokens=cap) if cap < model.max_output_tokens else model


def _no_price(model: ResolvedModel, budget: str) -> str:
    return (
        f"No price is known for {model.name} of {model.provider.name}, and the budget “{budget}” is in money: "
        "somebody with the admin right budgets can give it a price, or let models without a price count as free."
    )


def is_cut_short(step: Step) -> bool:
    """Return whether this model call met the cap of usual answers: it is made once more, with the model's own."""
    return step.kind == StepKind.MODEL and step.status == StepStatus.FAILED
