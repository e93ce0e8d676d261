"""REST: usage, summed by a period or by what it was used for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from typing import Any

from django.db.models import Max
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.contract.budget_windows import first_moment, span_of, zone_named
from sessions.usage.queries import (
    GROUPINGS,
    Grouping,
    ToolSums,
    UsageSums,
    added,
    as_sums,
    counted_from,
    groupings_of,
    name_of,
    public_ids_of,
    rows_of,
    slugs_of,
    sums_of,
)
from toolhub.tenants.models import Membership
from toolhub.tenants.rest.api import ErrorOut, api_member
from toolhub.tenants.rest.paging import MAX_PAGE, PAGE_PARAMETERS, begun, cursor_of, integer_parameter, only_parameters
from toolhub.tenants.rows.keyset import PAGE, Keyset, page_of_sorted
from toolhub.tenants.rows.money import dollars

PERIODS = ("hour", "day", "month")
GROUP_BY = (*PERIODS, *GROUPINGS)
#: Days that are summed where the query names no beginning, and most days of one answer.
DEFAULT_DAYS = 30
MOST_DAYS = 400


class UsageRowOut(serializers.Serializer[Any]):
    """Sums of one group: those of tools where it is grouped by tool or category, else those of model calls."""

    key = serializers.CharField(
        allow_null=True,
        help_text="The beginning of the period; an agent's slug, a member's id, `provider / model`, the name of a tool "
        "or category. null: it was removed.",
    )
    name = serializers.CharField(allow_blank=True, help_text="As it was called last.")
    turns = serializers.IntegerField(required=False)
    failed_turns = serializers.IntegerField(required=False, help_text="Of them, ended by an error.")
    rounds = serializers.IntegerField(required=False, help_text="Model calls.")
    input_tokens = serializers.IntegerField(required=False)
    cached_tokens = serializers.IntegerField(required=False, help_text="Of the input, read from the provider's cache.")
    cache_write_tokens = serializers.IntegerField(required=False, help_text="Of the input, written to that cache.")
    output_tokens = serializers.IntegerField(required=False)
    reasoning_tokens = serializers.IntegerField(required=False, help_text="Of the output.")
    cost = serializers.CharField(required=False, help_text="US dollars of the model calls that have a price.")
    unpriced_rounds = serializers.IntegerField(required=False, help_text="Model calls without a price.")
    estimated_rounds = serializers.IntegerField(required=False, help_text="Model calls whose tokens we counted.")
    tool_tokens = serializers.IntegerField(required=False, help_text="Of tool definitions that were sent.")
    all_tool_tokens = serializers.IntegerField(required=False, help_text="What all permitted ones would have been.")
    saved_tokens = serializers.IntegerField(
        required=False, help_text="By sending fewer tools, counted as new input; below zero it is a loss."
    )
    saved_cost = serializers.CharField(required=False, help_text="The same in US dollars, where there is a price.")
    routed_turns = serializers.IntegerField(required=False)
    empty_turns = serializers.IntegerField(required=False, help_text="Routed turns that were sent no tool.")
    missed_turns = serializers.IntegerField(required=False, help_text="Turns that lacked a tool that routing left out.")
    sent_rounds = serializers.IntegerField(required=False, help_text="How often its definition was sent.")
    sent_tokens = serializers.IntegerField(required=False, help_text="Tokens of that.")
    calls = serializers.IntegerField(required=False)
    failed_calls = serializers.IntegerField(required=False)
    result_tokens = serializers.IntegerField(required=False)


class UsageReportOut(serializers.Serializer[Any]):
    results = UsageRowOut(many=True)
    next = serializers.CharField(allow_null=True)
    group_by = serializers.ChoiceField(choices=GROUP_BY)
    starts_at = serializers.DateTimeField(help_text="Hours that begin from here on are in the sums,")
    ends_at = serializers.DateTimeField(help_text="as far as they begin before this.")
    time_zone = serializers.CharField(help_text="Where days and months begin.")
    uncounted_since = serializers.DateTimeField(
        allow_null=True, help_text="Turns that ended since then are still being added; null: all are in the sums."
    )


def parameter(name: str, description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, str, description=description, **more)


class UsageList(APIView):
    @extend_schema(
        operation_id="usage_list",
        summary="Usage",
        parameters=[
            *PAGE_PARAMETERS,
            parameter(
                "group_by", "What a row is of. Member, tool and category take the right `budgets`.", enum=GROUP_BY
            ),
            parameter("from", "A day of the organisation's time zone, or a moment; 30 days back, if left out."),
            parameter("to", "The same, and not in the sums; until now, if left out. At most 400 days behind `from`."),
        ],
        responses={200: UsageReportOut, 400: ErrorOut, 403: ErrorOut},
    )
    def get(self, request: Request) -> Response:
        """Tokens, money, tool definitions and what routing saved, from hourly sums: everybody's with the right
        `budgets`, else yours."""
        member = api_member(request)
        only_parameters(request, "cursor", "limit", "group_by", "from", "to")
        group_by = request.query_params.get("group_by", "day")
        if group_by not in GROUP_BY:
            raise ValidationError({"group_by": f"Give one of {', '.join(GROUP_BY)}."})
        if group_by in GROUPINGS and group_by not in groupings_of(member):
            raise PermissionDenied("Usage by member, tool or category needs the admin right budgets.")
        starts_at, ends_at = _range(request, member)
        limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
        if group_by in PERIODS:
            results, following = _by_period(request, member, group_by, starts_at, ends_at, limit)
        else:
            results, following = _by_group(request, member, group_by, starts_at, ends_at, limit)
        body = {
            "results": results,
            "next": following,
            "group_by": group_by,
            "starts_at": starts_at,
            "ends_at": ends_at,
            "time_zone": member.organisation.time_zone,
            "uncounted_since": counted_from(),
        }
        return Response(UsageReportOut(body).data)


def _range(request: Request, member: Membership) -> tuple[datetime, datetime]:
    ends_at = _moment(request, member, "to") or timezone.now()
    starts_at = _moment(request, member, "from") or ends_at - timedelta(days=DEFAULT_DAYS)
    if starts_at >= ends_at:
        raise ValidationError({"from": "This is not before the end."})
    if ends_at - starts_at > timedelta(days=MOST_DAYS):
        raise ValidationError({"from": f"Ask for at most {MOST_DAYS} days at once."})
    return starts_at, ends_at


def _moment(request: Request, member: Membership, name: str) -> datetime | None:
    """Read a day or moment of the query, None where it is left out; without a zone of its own in the organisation's."""
    text = request.query_params.get(name)
    if text is None:
        return None
    zone = zone_named(member.organisation.time_zone)
    found = None
    try:
        moment, day = parse_datetime(text), parse_date(text)
        if day is not None:
            found = first_moment(zone, day)
        elif moment is not None:
            aware = moment if timezone.is_aware(moment) else moment.replace(tzinfo=zone)
            found = aware.astimezone(timezone.get_default_timezone())
    except (ValueError, OverflowError):
        pass
    # Days are counted from it in both directions, in any time zone.
    if found is not None and MINYEAR + 2 <= found.year <= MAXYEAR - 2:
        return found
    raise ValidationError({name: "Give a day like 2026-11-03 or a moment like 2026-11-03T09:00:00Z."})


def _by_period(
    request: Request, member: Membership, window: str, starts_at: datetime, ends_at: datetime, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a page of periods, and the place where the next one begins. One query: hours are summed by the
    database, and put together to days and months here."""
    rows = rows_of(member, GROUPINGS["agent"], starts_at, ends_at).values("hour").order_by("hour")
    zone = member.organisation.time_zone
    found: dict[datetime, list[UsageSums]] = {}
    begins = ends = None
    for row in rows.annotate(**sums_of(UsageSums)):
        if begins is None or ends is None or row["hour"] >= ends:
            span = span_of(window, zone, row["hour"])
            begins, ends = span.starts_at, span.ends_at
        found.setdefault(begins, []).append(as_sums(UsageSums, row))
    local = zone_named(zone)
    listed = [(begins.astimezone(local).isoformat(), added(UsageSums, each)) for begins, each in found.items()]
    page = page_of_sorted(listed, lambda each: (each[0],), cursor_of(request), limit=limit)
    return [_row(key, key, sums) for key, sums in page.rows], page.after or None


def _by_group(
    request: Request, member: Membership, group_by: str, starts_at: datetime, ends_at: datetime, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Groups in the order of their keys. Two queries."""
    grouping = GROUPINGS[group_by]
    names = {f"last_{name}": Max(name) for name in grouping.names if name not in grouping.key}
    sums = sums_of(grouping.sums)
    rows = rows_of(member, grouping, starts_at, ends_at).values(*grouping.key).annotate(**names, **sums)
    ordered: Keyset[Any] = Keyset(rows.values_list(*grouping.key, *names, *sums, named=True), grouping.key)
    page = begun(request, ordered).page(limit=limit)
    listed = [row._asdict() for row in page.rows]
    keys = _public_keys(group_by, grouping, listed)
    return [_row(keys(row), name_of(grouping, row), as_sums(grouping.sums, row)) for row in listed], page.after or None


def _public_keys(group_by: str, grouping: Grouping, rows: list[dict[str, Any]]) -> Any:
    """Return a function that reads the public key or name of a row's group for a client. At most one query."""
    if group_by in ("agent", "member"):
        read: Any = slugs_of if group_by == "agent" else public_ids_of
        known: Mapping[int, str] = read(row[grouping.key[0]] for row in rows)
        return lambda row: known.get(row[grouping.key[0]])
    return lambda row: name_of(grouping, row)


def _row(key: str | None, name: str, sums: UsageSums | ToolSums) -> dict[str, Any]:
    values = asdict(sums)
    money: dict[str, Any] = {each: dollars(values[each]) for each in ("cost", "saved_cost") if each in values}
    return {"key": key, "name": name, **values, **money}


urlpatterns: list[URLPattern] = [path("usage", UsageList.as_view(), name="api-usage")]
