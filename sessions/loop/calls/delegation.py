"""A part of a turn given to another agent: a child turn in a child session, and its answer as the result of the call.

The child acts for the same member, and may reach what its own agent and all agents above it may reach, no more. The
call stays open, and its turn waits without a worker, until the child has ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from capabilities.choosing.pipeline.runtime_layers import in_force
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.loading import SPAWN_AGENT
from capabilities.contract.result_cap import cut
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, AgentScope, Tool, ToolKind
from capabilities.running.services.writes import acts_as_organisation
from sessions.loop.calls import approvals
from sessions.loop.calls.preparing import Prepared
from sessions.loop.calls.trust import keep_trust, untrusted_before
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.hooks.phases import hooked_outcome
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.loop.tools.runtime import layers_of
from sessions.loop.tools.stored_results import number_of
from sessions.models import Approval, ApprovalKind, ChatSession, Step, StepStatus, Turn, TurnStatus
from sessions.selection.holdings import reachable_tool_ids
from sessions.turns import accepting, ledger
from sessions.turns.budget_states import budgets_of, charged_below, charged_for
from sessions.turns.fencing import HELD, Claim, OverBudget, check_may_start, fence, hold
from sessions.turns.spending import check_room_for_child

#: Sessions below a member's own: an agent asks another, that one a third, and that one a fourth.
MAX_DEPTH = 3
#: Agents that are named to a model that asked for one that is not there.
NAMED = 20


@dataclass(frozen=True)
class Order:
    """Order of a turn to another agent, and the tools that both may reach at most."""

    turn: Turn
    agent: Agent
    message: str
    tool_ids: Sequence[int]
    #: The organisation's registry version, as the turn saw it last.
    at: int | None = None


def is_delegation(spec: ToolSpec | None) -> TypeGuard[ToolSpec]:
    return spec is not None and (spec.kind, spec.name) == (ToolKind.BUILTIN, SPAWN_AGENT)


# -- Hand over --------------------------------------------------------------------------------------------------------


def hand_over(ready: Prepared, **fields: Any) -> None:
    """Open a child turn for a call, which stays open until the child has ended; or answer it with why there is none.

    `fields` are what the call's step says from its begin on. One that has begun without a child is gone on with:
    nothing has happened yet.
    """
    turn, step = ready.turn, ready.step
    order = order_of(turn.row, ready.arguments, at=turn.registry_version)
    if isinstance(order, Order):
        slug = order.agent.slug
        try:
            if open_child(turn.claim, step, order, **fields) is not None:
                return
            order = _used_up()
        except OverBudget as over:
            order = execution.failure(str(over), agent=slug)
    if step.status == StepStatus.PENDING:
        ledger.start_step(turn.claim, step, **fields)
    _answer(turn.claim, step, order)


def order_of(turn: Turn, arguments: Mapping[str, Any], *, at: int | None = None) -> Order | Outcome:
    """Return the order that a call with these arguments makes `at` a registry version, if that can be; else the outcome
    that the model reads."""
    if turn.session.depth >= MAX_DEPTH:
        return execution.failure(f"Agents asked each other {MAX_DEPTH} times over; do this part yourself.")
    message = str(arguments["message"])
    if not message.strip():
        return execution.failure("Say what the agent shall do.")
    if delegated_turns(root_of(turn)) >= settings.TOOLHUB_CHILDREN_PER_TURN:
        return _used_up()
    agents = Agent.objects.offered_to(turn.membership_id).filter(is_enabled=True)
    agent = agents.filter(slug=arguments["agent"]).first()
    if agent is None:
        return execution.failure(f"There is no such agent. There are: {_listed(agents)}.")
    return Order(turn, agent, message, tools_to_pass_on(turn), at)


def root_of(turn: Turn) -> UUID:
    """The turn of the person at the top: a query or two for each level above this one."""
    while turn.session.parent_turn is not None:
        turn = turn.session.parent_turn
    return turn.pk


def delegated_turns(root_id: UUID) -> int:
    """Turns below this one, however deep: what one message has made of itself. One query a level."""
    count, level = 0, [root_id]
    for _ in range(MAX_DEPTH):
        level = list(Turn.objects.filter(session__parent_turn__in=level).values_list("pk", flat=True))
        count += len(level)
        if not level:
            break
    return count


def _used_up() -> Outcome:
    most = settings.TOOLHUB_CHILDREN_PER_TURN
    return execution.failure(f"This message has used up its {most} calls of other agents; go on alone.")


def tools_to_pass_on(turn: Turn) -> list[int]:
    """Keys of the tools that a child of this turn may use at most, in order: what this turn's agent reaches itself."""
    reach = reachable_tool_ids(turn.session, turn.agent)
    if turn.agent.scope == AgentScope.MEMBER:
        reach = set(Tool.objects.filter(pk__in=reach).exclude(acts_as_organisation()).values_list("pk", flat=True))
    return sorted(reach)


def open_child(claim: Claim, step: Step, order: Order, **fields: Any) -> Turn | None:
    """Begin the call (unless it has begun), and store the child session and its turn, in one transaction.

    None, and nothing stored, where the tree of turns has all the children that one message may have: the turn at the
    top is held meanwhile, so that calls side by side cannot pass the limit together. A call that has its child keeps
    it: no crash makes a second one. Raises CancelRequested for a turn that was stopped, and OverBudget where as many
    turns of the other agent run as may at once.
    """
    with transaction.atomic():
        root_id = root_of(order.turn)
        hold(root_id)
        is_pending = step.status == StepStatus.PENDING
        there = None if is_pending else Turn.objects.filter(parent_step=step).first()
        if there is None and delegated_turns(root_id) >= settings.TOOLHUB_CHILDREN_PER_TURN:
            fence(claim, HELD)
            return None
        if there is None:
            _check_room(order)
        if is_pending:
            ledger.start_step(claim, step, **fields)
        else:
            check_may_start(fence(claim, HELD))
        return there or _insert_child(step, order)


def _check_room(order: Order) -> None:
    turn = order.turn
    budgets = budgets_of(turn.organisation_id, order.at)
    charged = charged_for(turn.session, turn.membership_id, order.agent.pk, order.at)
    check_room_for_child(budgets, charged, timezone.now())


def _insert_child(step: Step, order: Order) -> Turn:
    parent = order.turn
    session = ChatSession.objects.create(
        organisation_id=parent.organisation_id,
        membership_id=parent.membership_id,
        agent=order.agent,
        title=accepting.title_of(order.message),
        parent_turn=parent,
        depth=parent.session.depth + 1,
        delegated_tools=list(order.tool_ids),
        is_untrusted=untrusted_before(parent, step) is not None,
    )
    child = Turn(
        organisation_id=parent.organisation_id,
        session=session,
        seq=1,
        membership_id=parent.membership_id,
        agent=order.agent,
        message=order.message,
        parent_step=step,
        charged_above=charged_below(parent),
        is_unattended=parent.is_unattended,
    )
    accepting.insert_turn(child)
    return child


def _listed(agents: QuerySet[Agent]) -> str:
    """The first agents by short name, each with its line on what it does. One query."""
    lines = agents.order_by("pk").values_list("slug", "role")[:NAMED]
    return ", ".join(f"{slug} ({role})" if role else slug for slug, role in lines) or "none"


# -- Take back --------------------------------------------------------------------------------------------------------


def take_back(turn: RunningTurn, *, can_read_on: bool = False) -> list[Turn]:
    """Answer the calls whose children have ended, once each. Returns the children that were looked at, those that are
    open among them.

    `can_read_on` says whether the round has the tool that reads on in a long answer.
    """
    waiting = list(_unsettled(turn.row))
    for child in waiting:
        if not child.is_open and child.parent_step is not None:
            number = number_of(turn.row, child.parent_step) if can_read_on else ""
            spec, cap = _called(turn, child.parent_step)
            outcome = outcome_of(child, cap, step=number)
            if spec is not None:
                outcome = _hooked(turn, spec, child.parent_step, outcome, cap, number)
            outcome = _with_receipt(child, outcome, cap, number)
            keep_trust(turn.row, _answer(turn.claim, child.parent_step, outcome))
    return waiting


def _unsettled(turn: Turn) -> QuerySet[Turn]:
    """The children whose call has no answer yet. One query."""
    children = Turn.objects.filter(parent_step__turn=turn, parent_step__status=StepStatus.STARTED)
    approved = Approval.objects.filter(step=OuterRef("parent_step"), kind=ApprovalKind.APPROVAL)
    at_hand = children.select_related("agent", "parent_step").annotate(was_approved=Exists(approved))
    return at_hand.order_by("parent_step__call_index")


def outcome_of(child: Turn, cap: int, *, step: str = "") -> Outcome:
    """Build the outcome that the asking agent reads: at most `cap` characters, and with `step`, the number of the call,
    how to read on."""
    place: dict[str, Any] = {"agent": child.agent.slug, "session": str(child.session_id), "turn": str(child.pk)}
    if child.status != TurnStatus.DONE:
        why = child.error_message or child.get_status_display()
        failed = execution.failure(f"{child.agent.slug} did not answer: {why}", **place)
        return replace(failed, untrusted=child.untrusted_since is not None)
    text = json.dumps({"success": True, **place, "answer": child.answer}, ensure_ascii=False)
    sent = cut(text, cap, step=step)
    return Outcome(StepStatus.DONE, text, sent, untrusted=child.untrusted_since is not None)


def _with_receipt(child: Turn, outcome: Outcome, cap: int, number: str) -> Outcome:
    """Add to the outcome who approved that the agent was asked, where somebody had to. One query then."""
    if not vars(child)["was_approved"]:
        return outcome
    answered = Approval.objects.select_related("decided_by__user")
    approval = answered.get(step=child.parent_step_id, kind=ApprovalKind.APPROVAL)
    receipt = approvals.receipt_of(approval)
    return replace(outcome, result_sent=execution.shown_part(outcome, cap, receipt, step=number))


def _hooked(turn: RunningTurn, spec: ToolSpec, step: Step, outcome: Outcome, cap: int, number: str) -> Outcome:
    """Apply the hooks to the answer, and cut it as it would have been cut without them."""
    made = hooked_outcome(turn, spec, step, json.loads(step.arguments or "{}"), outcome)
    if not made.hooked_result:
        return made
    return replace(made, result_sent=cut(made.hooked_result, cap, step=number))


def _called(turn: RunningTurn, step: Step) -> tuple[ToolSpec | None, int]:
    """The tool by which the child was asked, and the characters of the answer that the turn's model gets to see: None
    and the least, where the tool is gone since."""
    version_id = step.tool_version_id
    found = current_specs(
        [version_id] if version_id else [], organisation_id=turn.row.organisation_id, at=turn.registry_version
    )
    if not found:
        return None, int(settings.TOOLHUB_MIN_RESULT_CHARS)
    spec = in_force(found[0], layers_of(turn))
    return spec, execution.result_cap_of(spec.envelope, turn.model.context_window)


def _answer(claim: Claim, step: Step, outcome: Outcome) -> Mapping[str, Any]:
    return ledger.finish_step(
        claim,
        step,
        outcome.status,
        result=outcome.result,
        result_sent=outcome.result_sent,
        malformed=outcome.malformed,
        untrusted=outcome.untrusted,
        hooked_result=outcome.hooked_result,
        hooks=outcome.hooks,
    )
