"""REST: budgets, their windows, and what all of them go by.

Amounts are texts: dollars as exact decimals, tokens and turns as whole numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import checked_part, refusals
from sessions.budgets.amounts import amount_of, amount_text
from sessions.budgets.least import warnings_of
from sessions.budgets.queries import (
    BudgetLine,
    Meter,
    PeriodLine,
    budget_or_404,
    budgets_binding,
    lines_of,
    period_lines,
    period_or_404,
    periods_of_budget,
    shown_budgets,
)
from sessions.budgets.writes import (
    MAX_NAME,
    MAX_SHARES,
    TARGETS,
    BudgetContent,
    budget_content,
    create_budget,
    delete_budget,
    reset_period,
    set_spending_rules,
    target_of,
    top_up_period,
    update_budget,
)
from sessions.models import Budget, BudgetPeriod, BudgetScope, Measure, Window
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, only_parameters, page

AMOUNT = "Dollars such as `12.50`, exact, or a whole number of tokens or turns, as a text."
EACH = "Left out: every one has a budget of its own."


class AmountField(serializers.CharField):
    """An amount as a text; what it may be depends on what the budget counts."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=40, **kwargs)


class BudgetChange(serializers.Serializer[Any]):
    """Fields of a budget that can be changed."""

    name = serializers.CharField(max_length=MAX_NAME)
    limit = AmountField(help_text=AMOUNT)
    is_hard = serializers.BooleanField(default=True, help_text="Whether it stops turns; else it only warns.")
    warn_at: Any = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=100),
        max_length=MAX_SHARES,
        default=[80, 95],
        help_text="Shares of the limit, in percent, at which it warns.",
    )
    is_enabled = serializers.BooleanField(default=True)


class BudgetIn(BudgetChange):
    scope = serializers.ChoiceField(BudgetScope.choices, default=BudgetScope.ORGANISATION)
    role = serializers.CharField(max_length=63, required=False, help_text="Of the scope `role`: its short name.")
    is_per_member = serializers.BooleanField(
        default=False, help_text="Of the scope `role`: whether each of its members has a budget of their own."
    )
    member = serializers.UUIDField(required=False, help_text=EACH)
    agent = serializers.CharField(max_length=63, required=False, help_text=f"Its short name. {EACH}")
    session = serializers.UUIDField(required=False, help_text=EACH)
    measure = serializers.ChoiceField(Measure.choices, default=Measure.TOKENS)
    window = serializers.ChoiceField(
        Window.choices,
        default=Window.DAY,
        help_text="In the organisation's time zone. Turns at once have none: it is `total` then.",
    )


class MeterOut(serializers.Serializer[Any]):
    """Amounts of one window of a budget, now or then."""

    limit = serializers.CharField()
    added = serializers.CharField(help_text="What somebody added for this window alone.")
    spent = serializers.CharField(help_text="Of turns at once: how many run.")
    reserved = serializers.CharField(help_text="What model calls under way may take.")
    left = serializers.CharField()
    resets_at = serializers.DateTimeField(allow_null=True, help_text="Null: not by itself.")


class BudgetOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    scope = serializers.ChoiceField(BudgetScope.choices)
    role = serializers.CharField(allow_null=True)
    is_per_member = serializers.BooleanField()
    member = serializers.UUIDField(allow_null=True)
    agent = serializers.CharField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    measure = serializers.ChoiceField(Measure.choices)
    window = serializers.ChoiceField(Window.choices)
    limit = serializers.CharField(help_text=AMOUNT)
    is_hard = serializers.BooleanField()
    warn_at: Any = serializers.ListField(child=serializers.IntegerField())
    is_enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    now = MeterOut(allow_null=True, help_text="Its running window, where all share one; else see its periods.")


class BudgetDetailOut(BudgetOut):
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Such as a limit under which no turn can start."
    )


class PeriodOut(MeterOut):
    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="Whose it is: `member`, `agent`, `session`, `turn`; empty: all share it.")
    owner = serializers.CharField(
        allow_null=True, help_text="Id or short name. Null: shared, gone, or not yours to see."
    )
    starts_at = serializers.DateTimeField()
    is_running = serializers.BooleanField()
    reset_at = serializers.DateTimeField(allow_null=True)
    spent_before_reset = serializers.CharField()


class BindingOut(serializers.Serializer[Any]):
    """A budget that one's own turns count on."""

    name = serializers.CharField()
    scope = serializers.ChoiceField(BudgetScope.choices)
    measure = serializers.ChoiceField(Measure.choices)
    window = serializers.ChoiceField(Window.choices)
    is_hard = serializers.BooleanField()
    agent = serializers.CharField(allow_null=True, help_text="The agent whose part of the budget this is.")
    now = MeterOut(allow_null=True, help_text="Null: each turn, or each session, has one of its own.")


class BindingsOut(serializers.Serializer[Any]):
    results = BindingOut(many=True)
    next = serializers.CharField(allow_null=True, help_text="Always null: all are on this page.")


class TopUpIn(serializers.Serializer[Any]):
    amount = AmountField(help_text=AMOUNT)


class RulesPart(serializers.Serializer[Any]):
    time_zone = serializers.CharField(max_length=64, help_text="An IANA name such as `Europe/Berlin`.")
    counts_unpriced_as_free = serializers.BooleanField(
        help_text="If not, a model without a price is refused under a budget in dollars that stops turns."
    )


class RulesOut(RulesPart):
    organisation = serializers.CharField(source="name")


# -- How they are shown -----------------------------------------------------------------------------------------------


def meter_body(meter: Meter | None) -> dict[str, Any] | None:
    if meter is None:
        return None
    amounts = {name: getattr(meter.amounts, name) for name in ("limit", "added", "spent", "reserved", "left")}
    return {name: amount_text(each, meter.measure) for name, each in amounts.items()} | {"resets_at": meter.resets_at}


def budget_body(line: BudgetLine) -> dict[str, Any]:
    budget = line.budget
    target = TARGETS.get(BudgetScope(budget.scope))
    body = {
        **dict.fromkeys(TARGETS.values()),
        **({target: target_of(budget) or None} if target else {}),
        **{name: getattr(budget, name) for name in ("name", "scope", "is_per_member", "measure", "window")},
        **{name: getattr(budget, name) for name in ("is_hard", "warn_at", "is_enabled", "created_at")},
        "id": budget.public_id,
        "limit": amount_text(budget.limit, budget.measure),
        "now": meter_body(line.meter if budget.is_enabled else None),
    }
    return dict(BudgetOut(body).data)


def one_budget(member: Membership, budget: Budget) -> dict[str, Any]:
    """Build the body of one budget, as `BudgetDetailOut` describes it."""
    (line,) = lines_of([budget], member.organisation)
    return budget_body(line) | {"warnings": warnings_of(budget, member.organisation.registry_version)}


def period_body(line: PeriodLine) -> dict[str, Any]:
    period, owner = line.period, line.owner
    body = {
        **(meter_body(line.meter) or {}),
        "id": period.public_id,
        "kind": line.kind,
        "owner": None if owner is None else getattr(owner, "slug", None) or getattr(owner, "public_id", owner.pk),
        "starts_at": period.starts_at,
        "is_running": line.is_running,
        "reset_at": period.reset_at,
        "spent_before_reset": amount_text(period.spent_before_reset, period.measure),
    }
    return dict(PeriodOut(body).data)


def _limit(content: dict[str, Any], measure: str) -> dict[str, Any]:
    """Return this content with its limit as a number. Raises ChangeRefused."""
    shares = {"warn_at": tuple(content["warn_at"])} if "warn_at" in content else {}
    limit = {"limit": amount_of(content["limit"], measure, "limit")} if "limit" in content else {}
    return content | shares | limit


def _aimed(body: dict[str, Any]) -> dict[str, Any]:
    """Return this body with its target under one name. Raises ValidationError for one of another scope."""
    own = TARGETS.get(body["scope"])
    for name in TARGETS.values():
        if name in body and name != own:
            raise ValidationError({name: ErrorDetail(f"A budget of the scope {body['scope']} has none.", "invalid")})
    rest = {name: value for name, value in body.items() if name not in TARGETS.values()}
    return rest | {"target": str(body.get(own, "")) if own else ""}


# -- Routes -----------------------------------------------------------------------------------------------------------


class BudgetList(APIView):
    @extend_schema(
        operation_id="budgets_list", summary="Budgets", parameters=PAGE_PARAMETERS, responses=paged(BudgetOut)
    )
    def get(self, request: Request) -> Response:
        """Budgets in the order they were made, with what is left of each. Needs the right `budgets`; for what binds
        you, see `budgets/mine`."""
        member = api_member(request, right=Right.BUDGETS)
        lines: dict[int, BudgetLine] = {}

        def complete(rows: list[Budget]) -> None:
            lines.update({line.budget.pk: line for line in lines_of(rows, member.organisation)})

        return Response(page(request, shown_budgets(), "pk", lambda row: budget_body(lines[row.pk]), complete=complete))

    @extend_schema(
        operation_id="budgets_create",
        summary="Make a budget",
        request=BudgetIn,
        responses={201: BudgetDetailOut, 400: ErrorOut},
    )
    def post(self, request: Request) -> Response:
        """The new budget counts from the next model call on. Needs the right `budgets`."""
        actor = api_member(request, right=Right.BUDGETS)
        body = _aimed(checked(BudgetIn, request))
        with refusals():
            budget = create_budget(BudgetContent(**_limit(body, body["measure"])), actor=actor)
        return Response(one_budget(actor, budget), status.HTTP_201_CREATED)


class BudgetDetail(APIView):
    @extend_schema(operation_id="budgets_read", summary="One budget", responses={200: BudgetDetailOut, 404: ErrorOut})
    def get(self, request: Request, budget_id: UUID) -> Response:
        member = api_member(request, right=Right.BUDGETS)
        return Response(one_budget(member, budget_or_404(member, budget_id)))

    @extend_schema(
        operation_id="budgets_update",
        summary="Change a budget",
        request=BudgetChange,
        responses={200: BudgetDetailOut, 400: ErrorOut, 404: ErrorOut},
    )
    def patch(self, request: Request, budget_id: UUID) -> Response:
        """Fields that are left out stay, and so do its measure, window and target. Running windows have a new limit at
        once."""
        actor = api_member(request, right=Right.BUDGETS)
        budget = budget_or_404(actor, budget_id)
        part = checked_part(BudgetChange, request)
        with refusals():
            content = replace(budget_content(budget), **_limit(part, budget.measure))
            return Response(one_budget(actor, update_budget(budget, content, actor=actor)))

    @extend_schema(operation_id="budgets_delete", summary="Remove a budget", responses={204: None, 404: ErrorOut})
    def delete(self, request: Request, budget_id: UUID) -> Response:
        """Delete the budget with what is on record of its windows; usage by the hour stays."""
        actor = api_member(request, right=Right.BUDGETS)
        budget = budget_or_404(actor, budget_id)
        with refusals():
            delete_budget(budget, actor=actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class OwnBudgets(APIView):
    @extend_schema(operation_id="budgets_mine", summary="Budgets that bind you", responses={200: BindingsOut})
    def get(self, request: Request) -> Response:
        """Budgets that your turns count on, and what is left of them. Needs no right."""
        member = api_member(request)
        only_parameters(request)
        results = []
        for binding in budgets_binding(member):
            lines: list[tuple[str | None, Meter | None]] = [
                (getattr(line.owner, "slug", None), line.meter) for line in binding.lines
            ]
            own = {name: getattr(binding.budget, name) for name in ("name", "scope", "measure", "window", "is_hard")}
            for agent, meter in lines or [(None, binding.untouched)]:
                results.append(BindingOut(own | {"agent": agent, "now": meter_body(meter)}).data)
        return Response({"results": results, "next": None})


class PeriodList(APIView):
    @extend_schema(
        operation_id="budget_periods_list",
        summary="Windows of a budget",
        parameters=PAGE_PARAMETERS,
        responses={200: paged(PeriodOut), 404: ErrorOut},
    )
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Amounts that were spent of it, window by window, the newest first."""
        member = api_member(request, right=Right.BUDGETS)
        budget = budget_or_404(member, budget_id)
        lines: dict[int, PeriodLine] = {}

        def complete(rows: list[BudgetPeriod]) -> None:
            lines.update({line.period.pk: line for line in period_lines(member, budget, rows)})

        def shown(row: BudgetPeriod) -> dict[str, Any]:
            return period_body(lines[row.pk])

        rows = periods_of_budget(budget)
        return Response(page(request, rows, "pk", shown, newest_first=True, complete=complete))


class PeriodReset(APIView):
    @extend_schema(
        operation_id="budget_periods_reset",
        summary="Reset a window of a budget",
        request=None,
        responses={200: PeriodOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, budget_id: UUID, period_id: UUID) -> Response:
        """Set the window's spending to 0; what is reserved stays so. 409 for a window that has ended."""
        actor = api_member(request, right=Right.BUDGETS)
        budget = budget_or_404(actor, budget_id)
        with refusals():
            period = reset_period(period_or_404(actor, budget, period_id), actor=actor)
        return Response(period_body(period_lines(actor, budget, [period])[0]))


class PeriodTopUp(APIView):
    @extend_schema(
        operation_id="budget_periods_top_up",
        summary="Add to a window of a budget",
        request=TopUpIn,
        responses={200: PeriodOut, 400: ErrorOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, budget_id: UUID, period_id: UUID) -> Response:
        """So much more in this window alone. 409 for a window that has ended."""
        actor = api_member(request, right=Right.BUDGETS)
        budget = budget_or_404(actor, budget_id)
        period = period_or_404(actor, budget, period_id)
        body = checked(TopUpIn, request)
        with refusals():
            amount = amount_of(body["amount"], budget.measure, "amount")
            period = top_up_period(period, amount, actor=actor)
        return Response(period_body(period_lines(actor, budget, [period])[0]))


class BudgetRules(APIView):
    @extend_schema(operation_id="budget_rules_read", summary="What all budgets go by", responses={200: RulesOut})
    def get(self, request: Request) -> Response:
        only_parameters(request)
        return Response(RulesOut(api_member(request).organisation).data)

    @extend_schema(
        operation_id="budget_rules_update",
        summary="Change what all budgets go by",
        request=RulesPart,
        responses={200: RulesOut, 400: ErrorOut},
    )
    def patch(self, request: Request) -> Response:
        """Fields that are left out stay. Running windows keep what was spent, and end by a new time zone. Needs the
        right `budgets`."""
        actor = api_member(request, right=Right.BUDGETS)
        body = dict(RulesOut(actor.organisation).data) | checked_part(RulesPart, request)
        with refusals():
            organisation = set_spending_rules(
                body["time_zone"], counts_unpriced_as_free=body["counts_unpriced_as_free"], actor=actor
            )
        return Response(RulesOut(organisation).data)


urlpatterns: list[URLPattern] = [
    path("budgets", BudgetList.as_view(), name="api-budgets"),
    path("budgets/mine", OwnBudgets.as_view(), name="api-budgets-mine"),
    path("budget-rules", BudgetRules.as_view(), name="api-budget-rules"),
    path("budgets/<uuid:budget_id>", BudgetDetail.as_view(), name="api-budget"),
    path("budgets/<uuid:budget_id>/periods", PeriodList.as_view(), name="api-budget-periods"),
    path("budgets/<uuid:budget_id>/periods/<uuid:period_id>/reset", PeriodReset.as_view(), name="api-period-reset"),
    path("budgets/<uuid:budget_id>/periods/<uuid:period_id>/top-up", PeriodTopUp.as_view(), name="api-period-top-up"),
]
