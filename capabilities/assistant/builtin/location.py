"""Places that a member saved, and how far apart they are. Asks no map."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt
from typing import Annotated, Any

from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field

from capabilities.assistant.models import Place
from capabilities.assistant.records.writes.household import ADDRESS_TEXT, save_place
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import key_of
from capabilities.running.records.own import own_rows, remove_row
from capabilities.running.records.rows import WITHOUT_NUL, listing
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="location",
    title="Places",
    description="The member's saved places, and distances between them.",
    keywords=("location", "place", "places", "where is", "how far", "distance", "coordinates", "address of", "near"),
    is_core=True,
)

#: Mean radius of the earth in kilometres; the error of taking it for a ball is under 0.6 %.
EARTH_KM = 6371.0088

Name = Annotated[str, Field(max_length=200), WITHOUT_NUL]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]


class Point(BaseModel):
    """A place on earth, in degrees."""

    model_config = ConfigDict(extra="forbid")

    latitude: Latitude
    longitude: Longitude


Somewhere = Annotated[str | Point, Field(description="Name of a saved place, or coordinates.")]


@tool(category="location", effect="write", on_crash="retry", human_format="Saving the place {name}")
def location_save(
    context: ToolContext,
    name: Annotated[Name, Field(description="As home or office. One that exists is replaced.")],
    latitude: Latitude,
    longitude: Longitude,
    address: Annotated[str, Field(max_length=ADDRESS_TEXT), WITHOUT_NUL] = "",
) -> dict[str, Any]:
    """Save a place of the user with its coordinates."""
    place = save_place(context, name=name, latitude=latitude, longitude=longitude, address=address)
    return {"place": _as_json(place)}


@tool(category="location", effect="read", human_format="Listing places")
def location_list(context: ToolContext) -> dict[str, Any]:
    """List the user's saved places."""
    return listing("places", _mine(context).order_by("key"), _as_json, limit=200)


@tool(category="location", effect="read", human_format="Measuring a distance")
def location_distance(context: ToolContext, start: Somewhere, end: Somewhere) -> dict[str, Any]:
    """Tell the distance as the crow flies between two places."""
    saved = {
        place.key: place
        for place in _mine(context).filter(key__in=[key_of(each) for each in (start, end) if isinstance(each, str)])
    }
    (from_name, a), (to_name, b) = (_point(each, saved) for each in (start, end))
    kilometres = distance_km(a, b)
    return {
        "from": from_name,
        "to": to_name,
        "kilometres": round(kilometres, 3),
        "miles": round(kilometres / 1.609344, 3),
    }


@tool(category="location", effect="write", human_format="Removing the place {name}")
def location_remove(context: ToolContext, name: Name) -> dict[str, Any]:
    """Remove a saved place."""
    place = _mine(context).filter(key=key_of(name)).first()
    if place is None:
        raise _no_place(name)
    remove_row(context, place)
    return {"removed": _as_json(place)}


def distance_km(a: Point, b: Point) -> float:
    """Along the surface, by the haversine formula."""
    north, south = radians(a.latitude), radians(b.latitude)
    height = sin((south - north) / 2) ** 2
    width = cos(north) * cos(south) * sin(radians(b.longitude - a.longitude) / 2) ** 2
    return 2 * EARTH_KM * asin(sqrt(min(1.0, height + width)))


def _mine(context: ToolContext) -> QuerySet[Place]:
    return own_rows(Place, context)


def _point(where: str | Point, saved: dict[str, Place]) -> tuple[str, Point]:
    if isinstance(where, Point):
        return f"{where.latitude:g}, {where.longitude:g}", where
    place = saved.get(key_of(where))
    if place is None:
        raise _no_place(where)
    return place.name, Point(latitude=place.latitude, longitude=place.longitude)


def _no_place(name: str) -> ToolError:
    return ToolError(f"There is no place {name[:200]}: location_list shows them.")


def _as_json(place: Place) -> dict[str, Any]:
    row: dict[str, Any] = {"name": place.name, "latitude": place.latitude, "longitude": place.longitude}
    return row | ({"address": place.address} if place.address else {})
