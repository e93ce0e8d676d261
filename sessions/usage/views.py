"""The pages of usage: sums over time, tools that are sent and never called, and the sums as a file."""

from __future__ import annotations

import csv
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from sessions.selection.schema_cache import schema_cache_numbers
from sessions.usage.advice import advice_for
from sessions.usage.charts import DEFAULT_SHOWN, DRAWN, SHOWN, chart_of
from sessions.usage.queries import (
    Grouping,
    ToolSums,
    counted_from,
    groupings_of,
    largest_groups,
    rows_of,
    sees_all,
    usage_in,
)
from sessions.usage.spans import DEFAULT_RANGE, RANGES, Range, range_of
from sessions.usage.tables import csv_lines
from sessions.usage.unused import DAYS, FEWEST_ROUNDS, unused_of
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

#: Days of which the hits of the schema cache are shown.
SCHEMA_DAYS = 7
#: Groups of one file.
MOST_LINES = 20_000


class UsageAddress(forms.Form):
    """Choices in the address of the page. A value that cannot be is left out."""

    range = forms.ChoiceField(choices=list(RANGES.items()), required=False)
    by = forms.ChoiceField(required=False)
    show = forms.ChoiceField(
        choices=[(key, title) for key, (title, _) in SHOWN.items()], required=False, label="Chart shows"
    )

    def __init__(self, member: Membership, *args: Any) -> None:
        super().__init__(*args)
        self.groupings = groupings_of(member)
        field = self.fields["by"]
        field.choices = [(key, each.plural) for key, each in self.groupings.items()]  # type: ignore[attr-defined]
        self.full_clean()

    def asked(self, name: str, default: str) -> str:
        return self.cleaned_data.get(name) or default

    @property
    def grouped_by(self) -> str:
        return self.asked("by", "agent")

    @property
    def grouping(self) -> Grouping:
        return self.groupings[self.grouped_by]

    @property
    def shown(self) -> str:
        return self.asked("show", DEFAULT_SHOWN)

    @property
    def measure(self) -> str:
        """The column that groups are large by."""
        return "sent_tokens" if self.grouping.sums is ToolSums else SHOWN[self.shown][1]

    def span(self, member: Membership) -> Range:
        return range_of(self.asked("range", DEFAULT_RANGE), member.organisation.time_zone, timezone.now())


@require_GET
@signed_in
def usage_page(request: MemberRequest, org: str) -> HttpResponse:
    """Show everybody's usage with the right `budgets`; else one's own. Five queries of its own."""
    member = member_or_404(request)
    address = UsageAddress(member, request.GET)
    span, grouping = address.span(member), address.grouping
    drawn = ("sent_tokens",) if grouping.sums is ToolSums else DRAWN[address.shown]
    usage = usage_in(member, grouping, span, address.measure, drawn)
    chart = chart_of(usage, grouping, span, address.shown)
    context = {
        "usage": usage,
        "chart": chart,
        "chart_json": chart.as_json(),
        "grouping": grouping,
        "is_of_tools": grouping.sums is ToolSums,
        "sees_all": sees_all(member),
        "schemas": schema_cache_numbers(member.organisation_id, SCHEMA_DAYS) if sees_all(member) else None,
        "schema_days": SCHEMA_DAYS,
        "counted_from": counted_from(),
        "zone": member.organisation.time_zone,
        "choices": {"range": span.key, "by": address.grouped_by, "show": address.shown},
        "ranges": RANGES,
        "range_title": RANGES[span.key],
        "groupings": address.groupings,
        "shown": {key: title for key, (title, _) in SHOWN.items()},
    }
    return render(request, "sessions/usage/usage.html", context)


@require_GET
@signed_in
def usage_csv(request: MemberRequest, org: str) -> HttpResponse:
    """The sums of each group in the range, the largest first, as a file. One query of its own."""
    member = member_or_404(request)
    address = UsageAddress(member, request.GET)
    span, grouping = address.span(member), address.grouping
    rows = rows_of(member, grouping, span.starts_at, span.ends_at)
    groups = largest_groups(rows, grouping, address.measure, MOST_LINES)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="usage-{org}-{address.grouped_by}-{span.key}.csv"'
    csv.writer(response).writerows(csv_lines(grouping, groups))
    return response


@require_GET
@signed_in
def usage_advice(request: MemberRequest, org: str) -> HttpResponse:
    """Show the next steps that usage suggests; htmx gets the line alone."""
    member = member_or_404(request, right=Right.BUDGETS)
    partial, page = "sessions/usage/_advice.html", "sessions/usage/advice.html"
    return render(request, partial if request.htmx else page, {"advice": advice_for(member, timezone.now())})


@require_GET
@signed_in
def usage_unused(request: MemberRequest, org: str) -> HttpResponse:
    """Tools and toolkits that agents were sent in many rounds and never called. Twelve queries of its own at most."""
    member = member_or_404(request, right=Right.BUDGETS)
    unused = unused_of(member, timezone.now())
    names = unused.called_by_nobody(member.reach(Right.CATALOGUE))
    context = {"unused": unused, "called_by_nobody": names, "days": DAYS, "fewest_rounds": FEWEST_ROUNDS}
    return render(request, "sessions/usage/unused.html", context)
