"""Next steps that usage suggests: what is sent in vain, the fullest budget, the dearest model. Each with its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import F, FloatField, Sum
from django.db.models.functions import Cast
from django.urls import reverse

from sessions.budgets.queries import fullest_budget
from sessions.usage.queries import GROUPINGS, rows_of
from sessions.usage.spans import DEFAULT_RANGE, range_of
from sessions.usage.unused import DAYS, unused_of
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.money import rounded_dollars


@dataclass(frozen=True)
class Advice:
    """A sentence with a figure, and the page to act on, named by what is done there."""

    sentence: str
    act: str
    url: str


def advice_for(member: Membership, now: datetime) -> list[Advice]:
    """Return the next steps for a member with the right `budgets`, those that there are. 15 queries at most."""
    found = (_unused(member, now), _budget(member), _model(member, now))
    return [each for each in found if each is not None]


def _unused(member: Membership, now: datetime) -> Advice | None:
    """The toolkit that was sent in vain for most tokens, or the tool, where that took more; with a page that the member
    may use."""
    org, unused = member.organisation.slug, unused_of(member, now)
    tool = max(unused.tools, key=lambda each: each.tokens, default=None)
    kit = max(unused.toolkits, key=lambda each: each.tokens, default=None)
    if tool is None:
        return None
    may_change = member.has_right(Right.AGENTS)
    in_vain = f"was sent and never called: {{tokens:,}} tok in {DAYS} days"
    if kit is not None and kit.tokens >= tool.tokens:
        sentence = f"Toolkit {kit.name} of {kit.agent} {in_vain.format(tokens=kit.tokens)}"
        if kit.is_initial and may_change:
            change = reverse("agent_update", args=[org, kit.agent.slug])
            return Advice(sentence, "Stop loading it from the start", change)
        return Advice(sentence, "See the toolkit", reverse("toolkit_detail", args=[org, kit.name]))
    sentence = f"{tool.tool.name} of {tool.agent} {in_vain.format(tokens=tool.tokens)}"
    if tool.is_own and may_change:
        return Advice(sentence, "Take it from the agent", reverse("agent_update", args=[org, tool.agent.slug]))
    return Advice(sentence, "See how it comes there", reverse("usage_unused", args=[org]))


def _budget(member: Membership) -> Advice | None:
    line = fullest_budget(member)
    if line is None or not line.percent:
        return None
    url = reverse("budget_detail", args=[member.organisation.slug, line.budget.public_id])
    return Advice(f"Budget {line.budget.name} is nearest to its limit: {line.percent} % used", "Change it", url)


def _model(member: Membership, now: datetime) -> Advice | None:
    """The model whose turns cost most each, where there are several to choose from. One query."""
    span = range_of(DEFAULT_RANGE, member.organisation.time_zone, now)
    rows = rows_of(member, GROUPINGS["model"], span.starts_at, span.ends_at).values("provider_name", "model_name")
    sums = rows.annotate(all_turns=Sum("turns"), all_cost=Sum("cost")).filter(all_turns__gt=0, all_cost__gt=0)
    a_turn = Cast(F("all_cost"), FloatField()) / Cast(F("all_turns"), FloatField())
    dearest = list(sums.annotate(a_turn=a_turn).order_by("-a_turn", "provider_name", "model_name")[:2])
    if len(dearest) < 2:
        return None
    most, second = (f"{each['model_name']} {rounded_dollars(round(each['a_turn']))}" for each in dearest)
    query = urlencode({"range": DEFAULT_RANGE, "by": "model", "show": "money"})
    return Advice(
        f"Models by the cost of a turn: {most}, then {second}",
        "Compare models",
        f"{reverse('usage', args=[member.organisation.slug])}?{query}",
    )
