"""Series of numbers that a member records, and what plain statistics expect of them. No model, no library."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Count, Max, QuerySet
from pydantic import BaseModel, ConfigDict, Field

from capabilities.assistant.builtin._lib import statistics
from capabilities.assistant.models import Series, SeriesPoint
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.moments import parse_when
from capabilities.running.records.names import key_of, name_and_key
from capabilities.running.records.rows import WITHOUT_NUL, listing
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="predictions",
    title="Predictions",
    description="Series of numbers, such as weight or sales, and forecasts by plain statistics.",
    keywords=(
        "predict",
        "prediction",
        "predictions",
        "forecast",
        "trend",
        "series",
        "extrapolate",
        "expect",
        "by the end of",
    ),
)

#: Series of one member, points of one series, and the latest points that a forecast looks at.
SERIES = 200
POINTS = 10_000
USED = 1_000
#: Days ahead that a forecast may be for.
AHEAD_DAYS = 730

Name = Annotated[str, Field(description="The series' name.", max_length=200), WITHOUT_NUL]


class Measured(BaseModel):
    """One number of a series."""

    model_config = ConfigDict(extra="forbid")

    value: Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
    at: Annotated[str, Field(description="Day, or day and time; default now.", max_length=40)] = ""


@tool(category="predictions", effect="write", human_format="Recording {name}")
def series_record(
    context: ToolContext,
    name: Annotated[Name, Field(description="A new name makes a new series.")],
    points: Annotated[list[Measured], Field(min_length=1, max_length=200)],
    unit: Annotated[str, Field(max_length=30), WITHOUT_NUL] = "",
) -> dict[str, Any]:
    """Record numbers of a series, such as the user's weight. A number for the same moment replaces the old one."""
    values = {_moment(context, point.at): point.value for point in points}
    with transaction.atomic():
        series = _series_to_write(context, name)
        if unit.strip():
            _all_series(context).filter(pk=series.pk).update(unit=" ".join(unit.split()))
        series.points.filter(at__in=values).delete()
        if series.points.count() + len(values) > POINTS:
            raise ToolError(f"A series holds at most {POINTS} points.")
        own = {"organisation_id": context.organisation_id, "membership_id": context.membership_id}
        SeriesPoint.objects.bulk_create(
            [SeriesPoint(**own, series=series, at=at, value=value) for at, value in values.items()]
        )
    return {"series": series.name, "recorded": len(values), "points": series.points.count()}


@tool(category="predictions", effect="read", human_format="Listing series")
def series_list(
    context: ToolContext,
    name: Annotated[str | None, Field(description="Also its latest points.", max_length=200)] = None,
    limit: Annotated[int, Field(description="Points.", ge=1, le=200)] = 30,
) -> dict[str, Any]:
    """List the user's series of numbers, or the latest points of one."""
    if name is not None:
        series = _series(context, name)
        return {"series": series.name, "unit": series.unit} | listing(
            "points", series.points.order_by("-at"), _point_as_json, limit=limit
        )
    counted = _all_series(context).annotate(count=Count("points"), latest=Max("points__at"))
    return listing("series", counted.order_by("key"), _series_as_json, limit=SERIES)


@tool(category="predictions", effect="read", human_format="Predicting {name}")
def series_predict(
    context: ToolContext,
    name: Name,
    on: Annotated[
        str, Field(description="The day to predict: YYYY-MM-DD, or words such as in 3 weeks.", max_length=40)
    ],
    method: Annotated[
        Literal["auto", "linear", "mean", "weekly"],
        Field(description="auto takes the one that was nearest on the latest points."),
    ] = "auto",
) -> dict[str, Any]:
    """Predict a series for a day: linear trend, mean, or the same weekday before (weekly). Tells how sure it is."""
    series = _series(context, name)
    latest = series.points.order_by("-at").values_list("at", "value")[:USED]
    points = [(at.timestamp() / statistics.DAY, value) for at, value in latest][::-1]
    day = _day(context, on)
    noon = datetime.combine(day, time(12), context.now().tzinfo).timestamp() / statistics.DAY
    if points and noon - points[-1][0] > AHEAD_DAYS:
        raise ToolError(f"A prediction reaches at most {AHEAD_DAYS} days past the latest point.")
    try:
        forecast = statistics.forecast(points, noon, method)
    except ValueError as error:
        raise ToolError(str(error)) from None
    return {"series": series.name, "on": day.isoformat(), "unit": series.unit} | forecast.as_json()


def _all_series(context: ToolContext) -> QuerySet[Series]:
    return Series.objects.filter(membership_id=context.membership_id)


def _series(context: ToolContext, name: str) -> Series:
    series = _all_series(context).filter(key=key_of(name)).first()
    if series is None:
        raise ToolError(f"There is no series {name}: series_list shows them.")
    return series


def _series_to_write(context: ToolContext, name: str) -> Series:
    """Return the series of this name, made where there is none. Raises ToolError where all are in use."""
    named = name_and_key(name, "A series")
    series = _all_series(context).filter(key=named["key"]).first()
    if series is None and _all_series(context).count() >= SERIES:
        raise ToolError(f"All {SERIES} series are in use.")
    return (
        series
        or Series.objects.get_or_create(
            organisation_id=context.organisation_id,
            membership_id=context.membership_id,
            key=named["key"],
            defaults={"name": named["name"]},
        )[0]
    )


def _moment(context: ToolContext, text: str) -> datetime:
    """A day without a time is its noon: the middle of what was measured."""
    if not text.strip():
        return context.now()
    when = _when(context, text)
    return when if isinstance(when, datetime) else datetime.combine(when, time(12), context.now().tzinfo)


def _day(context: ToolContext, text: str) -> date:
    when = _when(context, text)
    return when.date() if isinstance(when, datetime) else when


def _when(context: ToolContext, text: str) -> datetime | date:
    zone = context.now().tzinfo
    return parse_when(text, context.now(), zone if isinstance(zone, ZoneInfo) else ZoneInfo("UTC"))


def _point_as_json(point: SeriesPoint) -> dict[str, Any]:
    return {"at": point.at.isoformat(timespec="minutes"), "value": point.value}


def _series_as_json(series: Series) -> dict[str, Any]:
    count, latest = series.count, series.latest  # type: ignore[attr-defined]
    row: dict[str, Any] = {"name": series.name, "points": count}
    row |= {"unit": series.unit} if series.unit else {}
    return row | ({"latest": latest.date().isoformat()} if latest else {})
