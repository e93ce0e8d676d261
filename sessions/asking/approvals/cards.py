"""Card of one thing that a turn asks a person: the exact call, why, and whether this person may answer it.

One card serves the queue, the chat and an approval's own page.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from urllib.parse import urlsplit

from django.db.models import Q

from capabilities.common.visible import Part, unseen_count, visible_parts
from capabilities.contract.approvals import MAX_SHOWN
from capabilities.models import Tool
from sessions.asking.approvals.answering import answerable_by, why_not_answer
from sessions.asking.approvals.comparing import ArgumentChange, differing_arguments
from sessions.asking.approvals.input_forms import InputForm, Typed
from sessions.asking.approvals.queries import last_approved, with_all_shown
from sessions.asking.approvals.writes import is_whole
from sessions.models import OF_MEMBER, Approval, ApprovalKind, ApprovalStatus, StepKind, Turn, TurnStatus
from toolhub.bounded_json import load_json
from toolhub.tenants.models import Membership, Right

#: Choices of a question that are shown as buttons.
MAX_CHOICES = 20
#: Characters of arguments in one line.
MAX_LINE = 400


@dataclass(frozen=True)
class Card:
    """One approval for one reader. `why_not` is empty for who may answer it."""

    approval: Approval
    why_not: str = ""
    #: True where the reader may open the session that asks.
    opens_session: bool = True
    #: Input of a form that was sent and did not fit: what was typed, and what is wrong by the name of the field.
    typed: Typed | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    #: The last call of the same tool by the same agent that was approved, where a page compares them.
    earlier: Approval | None = None

    @property
    def can_answer(self) -> bool:
        return self.approval.is_pending and not self.why_not

    @property
    def can_approve(self) -> bool:
        """True where the reader may approve: nobody approves what cannot be shown whole."""
        return self.can_answer and self.is_whole and self.approval.kind == ApprovalKind.APPROVAL

    @property
    def is_question(self) -> bool:
        return self.approval.kind == ApprovalKind.QUESTION

    @property
    def is_form(self) -> bool:
        return self.approval.kind == ApprovalKind.INPUT

    @property
    def is_link(self) -> bool:
        return self.approval.kind == ApprovalKind.LINK

    @property
    def is_before_call(self) -> bool:
        """True where the approval decides whether a call runs: no question, no form, no link."""
        return self.approval.kind == ApprovalKind.APPROVAL

    @cached_property
    def message(self) -> list[Part]:
        """Message of the far side of the call, with escapes for what cannot be seen."""
        return list(visible_parts(self.approval.for_people))

    @cached_property
    def input_form(self) -> InputForm | None:
        """The form to fill in; None for what is no form."""
        approval = self.approval
        return InputForm(approval.form, str(approval.public_id), self.typed, self.errors) if self.is_form else None

    @property
    def host(self) -> str:
        """The host that a link leads to, in plain letters: one that only looks like another one is not shown so."""
        host = urlsplit(self.approval.url).hostname or ""
        try:
            return host.encode("idna").decode()
        except UnicodeError:
            return ascii(host)[1:-1]

    @property
    def is_whole(self) -> bool:
        return is_whole(self.approval)

    @cached_property
    def arguments(self) -> list[Part]:
        """The exact arguments, indented, with escapes for what cannot be seen; cut where nobody would read them."""
        text = self.approval.arguments
        return list(visible_parts(_indented(text) if self.is_whole else text[:MAX_SHOWN]))

    @property
    def line(self) -> list[Part]:
        """The beginning of the arguments in one line."""
        text = self.approval.arguments
        return list(visible_parts(text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"))

    @cached_property
    def differing(self) -> list[ArgumentChange] | None:
        """Arguments that are not those of the earlier call; None where there is none to compare with."""
        if self.earlier is None or not self.is_whole or not is_whole(self.earlier):
            return None
        return differing_arguments(self.earlier.arguments, self.approval.arguments)

    @cached_property
    def unseen(self) -> int:
        """Characters of the arguments that a reader would not see."""
        return unseen_count(self.approval.arguments)

    @cached_property
    def question(self) -> list[Part]:
        return list(visible_parts(str(self._asked.get("question", ""))))

    @cached_property
    def choices(self) -> list[str]:
        given = self._asked.get("choices")
        return [str(each) for each in given[:MAX_CHOICES]] if isinstance(given, list) else []

    @cached_property
    def _asked(self) -> dict[str, object]:
        try:
            value = load_json(self.approval.arguments)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def _indented(text: str) -> str:
    try:
        return json.dumps(load_json(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def card_for(member: Membership, approval: Approval) -> Card:
    """The card of one approval. Up to four queries, and none for one that nobody can answer any more."""
    why_not = why_not_answer(member, approval) if approval.is_pending else ""
    return Card(approval, why_not, opens_session(member, approval))


def opens_session(member: Membership, approval: Approval) -> bool:
    """Return whether the member may open the session that asks: not everybody who answers for others does."""
    return approval.requester_id == member.pk or member.has_right(Right.SESSIONS)


@dataclass(frozen=True)
class CardGroup:
    """The calls of one reply that wait, in its order."""

    cards: Sequence[Card]

    @property
    def first(self) -> Approval:
        return self.cards[0].approval


@dataclass(frozen=True)
class ToolGroup:
    """Calls of one tool that wait, which may be answered together."""

    cards: Sequence[Card]

    @property
    def tool(self) -> Tool:
        return self.cards[0].approval.tool


def by_tool(cards: Iterable[Card]) -> list[ToolGroup]:
    """Calls that the reader may answer, by their tool where there are several of it; in the order of the first ones."""
    found: dict[int, list[Card]] = {}
    for card in cards:
        if card.can_answer and card.is_before_call:
            found.setdefault(card.approval.tool_id, []).append(card)
    return [ToolGroup(cards) for cards in found.values() if len(cards) > 1]


def waiting_cards(member: Membership, waiting: Sequence[Approval]) -> list[Card]:
    """The cards of what this member may answer, each with the call that was approved last. Two queries, one more for a
    delegated right."""
    earlier = last_approved(member, waiting)
    return [
        Card(
            each,
            opens_session=opens_session(member, each),
            earlier=earlier.get((each.tool_id, each.turn.agent_id)) if each.kind == ApprovalKind.APPROVAL else None,
        )
        for each in waiting
    ]


def grouped(cards: Iterable[Card]) -> list[CardGroup]:
    """Cards that came from the same reply together; replies in the order of their first card."""
    order: dict[tuple[object, int], int] = {}
    for number, card in enumerate(cards := list(cards)):
        order.setdefault(_reply_of(card), number)
    by_reply = sorted(cards, key=lambda card: (order[_reply_of(card)], card.approval.step.index))
    return [CardGroup(list(found)) for _, found in groupby(by_reply, key=_reply_of)]


def _reply_of(card: Card) -> tuple[object, int]:
    return card.approval.turn_id, card.approval.step.round


#: Sentences on a card that waits for somebody else.
FOR_REQUESTER = "It waits for {requester}."
FOR_OTHERS = "It waits for {requester}, or for somebody with the admin right approvals."
FOR_ANOTHER = "Another person than {requester} must answer it, with the admin right approvals."


def show_cards(member: Membership, turns: Iterable[Turn]) -> None:
    """Give each step that somebody was asked about its `cards`, and a turn that waits for other agents what waits in
    their sessions, as `cards_below`.

    No query for turns that asked nothing (`has_asked`), else one; where some wait still, one more, and one for a
    delegated right.
    """
    turns = [turn for turn in turns if vars(turn).get("has_asked", True) or turn.status == TurnStatus.WAITING_CHILD]
    steps = {step.pk: step for turn in turns for step in turn.steps.all() if step.kind == StepKind.TOOL}
    if not steps:
        return
    parents = {turn.session_id: turn for turn in turns if turn.status == TurnStatus.WAITING_CHILD}
    below = Q(session__in=parents, status=ApprovalStatus.PENDING) & ~Q(turn__in=turns)
    wanted = Q(step__in=steps) | below if parents else Q(step__in=steps)
    approvals = list(with_all_shown(Approval.objects.filter(wanted)).order_by("pk"))
    waiting = [each.pk for each in approvals if each.is_pending]
    mine: Collection[int] = ()
    if waiting:
        mine = set(Approval.objects.filter(answerable_by(member), pk__in=waiting).values_list("pk", flat=True))
    for approval in approvals:
        why_not = "" if approval.pk in mine else _waits_for(approval)
        card = Card(approval, why_not)
        if approval.step_id in steps:
            vars(steps[approval.step_id]).setdefault("cards", []).append(card)
        else:
            vars(parents[approval.session_id]).setdefault("cards_below", []).append(card)


def _waits_for(approval: Approval) -> str:
    if approval.kind in OF_MEMBER:
        sentence = FOR_REQUESTER
    else:
        sentence = FOR_ANOTHER if approval.needs_other_person else FOR_OTHERS
    return sentence.format(requester=approval.requester)
