"""Weather now and for the next days, by Open-Meteo: a place is looked up first, then asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from capabilities.assistant.builtin._lib.remote import a_dict, dicts, filled, names, remote, short
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="weather",
    title="Weather",
    description="The weather of a place, now and for the next days.",
    keywords=("weather", "forecast", "temperature", "rain", "snow", "wind", "sunny", "umbrella"),
    is_core=True,
)
OPEN_METEO = ServiceSpec(
    name="open_meteo",
    title="Open-Meteo",
    description="Weather and places. It works without set-up; a key is for commercial use.",
    fields=(
        ServiceField("base_url", "Address", default="https://api.open-meteo.com"),
        ServiceField("geocoding_url", "Address of places", default="https://geocoding-api.open-meteo.com"),
        ServiceField("api_key", "Key", is_secret=True, is_required=False),
    ),
    test=lambda context: weather_current(context, latitude=52.5, longitude=13.4),
)
SERVICES = (OPEN_METEO,)

CURRENT = {
    "temperature_2m": "temperature_c",
    "apparent_temperature": "feels_like_c",
    "relative_humidity_2m": "humidity_percent",
    "precipitation": "precipitation_mm",
    "cloud_cover": "clouds_percent",
    "wind_speed_10m": "wind_kmh",
    "wind_gusts_10m": "gusts_kmh",
}
DAILY = {
    "temperature_2m_min": "min_c",
    "temperature_2m_max": "max_c",
    "precipitation_sum": "precipitation_mm",
    "precipitation_probability_max": "rain_chance_percent",
    "wind_speed_10m_max": "wind_kmh",
}
#: WMO code table 4677, as far as Open-Meteo uses it.
SKY = {
    0: "clear sky",
    1: "mainly clear",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    48: "fog with rime",
    51: "light drizzle",
    53: "drizzle",
    55: "dense drizzle",
    56: "light freezing drizzle",
    57: "dense freezing drizzle",
    61: "slight rain",
    63: "rain",
    65: "heavy rain",
    66: "light freezing rain",
    67: "heavy freezing rain",
    71: "slight snowfall",
    73: "snowfall",
    75: "heavy snowfall",
    77: "snow grains",
    80: "slight rain showers",
    81: "rain showers",
    82: "violent rain showers",
    85: "slight snow showers",
    86: "heavy snow showers",
    95: "thunderstorm",
    96: "thunderstorm with slight hail",
    99: "thunderstorm with heavy hail",
}

Place = Annotated[str, Field(description="City, with region or country where unclear: Paris, Texas.", max_length=200)]


@tool(category="weather", effect="read", service="open_meteo", human_format="Looking up the weather")
def weather_current(
    context: ToolContext,
    place: Place = "",
    latitude: Annotated[float | None, Field(ge=-90, le=90)] = None,
    longitude: Annotated[float | None, Field(ge=-180, le=180)] = None,
) -> dict[str, Any]:
    """The weather now, of a place or of coordinates."""
    if latitude is not None and longitude is not None:
        location = {"place": place.strip(), "latitude": latitude, "longitude": longitude}
    elif place.strip():
        location = _location(context, place)
    else:
        raise ToolError("Name a place, or both latitude and longitude.")
    asked = ",".join(["weather_code", "wind_direction_10m", *CURRENT])
    now = a_dict(_forecast(context, location, {"current": asked}).get("current"))
    if not now:
        raise ToolError("Open-Meteo knows no weather for this place.")
    measured = {ours: now.get(theirs) for theirs, ours in CURRENT.items()}
    return filled(
        {"place": location["place"], "time": short(now.get("time"), 25), "sky": _sky(now.get("weather_code"))}
        | _numbers(measured)
        | {"wind_from": _compass(now.get("wind_direction_10m"))}
    )


@tool(category="weather", effect="read", service="open_meteo", human_format="Looking up the forecast for {place}")
def weather_forecast(
    context: ToolContext,
    place: Annotated[Place, Field(min_length=1)],
    days: Annotated[int, Field(ge=1, le=16, description="Today is the first.")] = 3,
) -> dict[str, Any]:
    """The weather of the next days, a row a day."""
    location = _location(context, place)
    asked = ",".join(["weather_code", "sunrise", "sunset", *DAILY])
    daily = a_dict(_forecast(context, location, {"daily": asked, "forecast_days": days}).get("daily"))
    dates = _column(daily, "time")
    if not dates:
        raise ToolError("Open-Meteo knows no weather for this place.")
    return {"place": location["place"], "days": [_day(daily, index) for index in range(min(days, len(dates)))]}


def _day(daily: Mapping[str, Any], index: int) -> dict[str, Any]:
    cells = {name: column[index] for name in daily if index < len(column := _column(daily, name))}
    return filled(
        {"date": short(cells.get("time"), 10), "sky": _sky(cells.get("weather_code"))}
        | _numbers({ours: cells.get(theirs) for theirs, ours in DAILY.items()})
        | {name: short(cells.get(name), 16)[11:] for name in ("sunrise", "sunset")}
    )


def _location(context: ToolContext, place: str) -> dict[str, Any]:
    """The first place of that name; with a region or country behind a comma, the first one there."""
    name, _, hint = (part.strip() for part in place.partition(","))
    if not name:
        raise ToolError("Name a place.")
    gazetteer = remote(context, OPEN_METEO, address="geocoding_url")
    query = {"name": name, "count": 20 if hint else 1, "language": "en", "format": "json"} | _key(context)
    found = dicts(gazetteer.json("GET", "v1", "search", shape=dict, query=query).get("results"))
    locations = [location for location in found if _numbers(location).keys() >= {"latitude", "longitude"}]
    if not locations:
        raise ToolError(f"There is no place named {name}: check the spelling, or give latitude and longitude.")
    matching = [location for location in locations if _lies_in(location, hint)]
    if not matching:
        raise ToolError(
            f"There is no {name} in {hint}, but {names([_full_name(location) for location in locations], 5)}."
        )
    location = matching[0]
    return {"place": _full_name(location), "latitude": location["latitude"], "longitude": location["longitude"]}


def _lies_in(location: Mapping[str, Any], hint: str) -> bool:
    """Return whether every word group behind the commas is one of the place's regions, or a country or its code."""
    fields = ("country", "country_code", "admin1", "admin2", "admin3")
    known = {short(location.get(field)).casefold() for field in fields}
    wanted = [part.strip().casefold() for part in hint.split(",") if part.strip()]
    return all(any(part == name or (len(part) > 3 and part in name) for name in known) for part in wanted)


def _full_name(location: Mapping[str, Any]) -> str:
    parts = [short(location.get(field), 80) for field in ("name", "admin1", "country")]
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _forecast(context: ToolContext, location: Mapping[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    where = {"latitude": location["latitude"], "longitude": location["longitude"], "timezone": "auto"}
    return remote(context, OPEN_METEO).json("GET", "v1", "forecast", shape=dict, query=where | asked | _key(context))


def _key(context: ToolContext) -> dict[str, str]:
    return {"apikey": key} if (key := context.service.get("api_key", "").strip()) else {}


def _column(daily: Mapping[str, Any], name: str) -> list[Any]:
    column = daily.get(name)
    return column if isinstance(column, list) else []


def _numbers(row: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: value for name, value in row.items() if isinstance(value, (int, float))}


def _sky(code: Any) -> str:
    return SKY.get(code, "") if isinstance(code, int) else ""


def _compass(degrees: Any) -> str:
    points = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
    return points[round(degrees / 45) % 8] if isinstance(degrees, (int, float)) and abs(degrees) <= 360 else ""
