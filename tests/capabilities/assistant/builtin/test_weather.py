from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from capabilities.contract.context import ToolContext
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.fakes.open_meteo import OpenMeteo
from tests.capabilities.assistant.builtin.remote import call_with, check_failures, refused


@pytest.fixture
def meteo() -> Iterator[OpenMeteo]:
    with OpenMeteo() as service:
        yield service


def ask(context: ToolContext, meteo: OpenMeteo, name: str, **arguments: Any) -> Any:
    return call_with(context, name, values(meteo), arguments)


def values(meteo: OpenMeteo) -> dict[str, str]:
    return {"base_url": meteo.url, "geocoding_url": meteo.url}


def test_it_works_without_set_up() -> None:
    assert registry.services["open_meteo"].works_unset


def test_the_weather_of_a_place_now(context: ToolContext, meteo: OpenMeteo) -> None:
    assert ask(context, meteo, "weather_current", place="paris") == {
        "place": "Paris, Île-de-France, France",
        "time": "2026-11-18T10:30",
        "sky": "slight rain",
        "temperature_c": 11.4,
        "feels_like_c": 9.0,
        "humidity_percent": 81,
        "precipitation_mm": 0.0,
        "clouds_percent": 100,
        "wind_kmh": 18.7,
        "gusts_kmh": 40.3,
        "wind_from": "SW",
    }
    assert (meteo.last.query["latitude"], meteo.last.query["timezone"]) == ("48.85341", "auto")


def test_coordinates_need_no_look_up(context: ToolContext, meteo: OpenMeteo) -> None:
    found = ask(context, meteo, "weather_current", latitude=0, longitude=-9.5)

    assert (found["temperature_c"], "place" in found) == (11.4, False)
    assert [(asked.path, asked.query["longitude"]) for asked in meteo.asked] == [("/v1/forecast", "-9.5")]


@pytest.mark.parametrize("place", ["Paris, Texas", "Paris, US", "paris,  united states", "Paris, Lamar, Texas"])
def test_a_region_or_country_chooses_among_places(context: ToolContext, meteo: OpenMeteo, place: str) -> None:
    found = ask(context, meteo, "weather_current", place=place)

    assert found["place"] == "Paris, Texas, United States"


def test_a_forecast_has_a_row_a_day(context: ToolContext, meteo: OpenMeteo) -> None:
    found = ask(context, meteo, "weather_forecast", place="Paris", days=2)

    assert found == {
        "place": "Paris, Île-de-France, France",
        "days": [
            {
                "date": "2026-11-18",
                "sky": "overcast",
                "min_c": 4.5,
                "max_c": 10,
                "precipitation_mm": 10,
                "rain_chance_percent": 10,
                "wind_kmh": 10,
                "sunrise": "08:05",
                "sunset": "17:02",
            },
            {
                "date": "2026-11-19",
                "sky": "thunderstorm",
                "min_c": 5.5,
                "max_c": 11,
                "precipitation_mm": 11,
                "rain_chance_percent": 11,
                "wind_kmh": 11,
                "sunrise": "08:05",
                "sunset": "17:02",
            },
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"place": "Nowhere"}, "There is no place named Nowhere: check the spelling, or give latitude and longitude."),
        (
            {"place": "Paris, Spain"},
            "There is no Paris in Spain, but Paris, Île-de-France, France, Paris, Texas, United States.",
        ),
        ({}, "Name a place, or both latitude and longitude."),
        ({"latitude": 5}, "Name a place, or both latitude and longitude."),
        ({"place": ", France"}, "Name a place."),
    ],
)
def test_a_place_that_is_unclear_is_told(
    context: ToolContext, meteo: OpenMeteo, arguments: dict[str, Any], told: str
) -> None:
    assert refused(context, "weather_current", values(meteo), arguments) == told


@pytest.mark.parametrize("arguments", [{"latitude": 91, "longitude": 0}, {"latitude": 0, "longitude": 181}])
def test_coordinates_are_on_earth(context: ToolContext, meteo: OpenMeteo, arguments: dict[str, Any]) -> None:
    refused(context, "weather_current", values(meteo), arguments)

    assert meteo.asked == []


def test_an_api_key_is_sent_and_a_missing_one_reported(context: ToolContext, meteo: OpenMeteo) -> None:
    meteo.key = "k"

    found = call_with(context, "weather_forecast", values(meteo) | {"api_key": "k"}, {"place": "Paris", "days": 1})
    told = refused(context, "weather_forecast", values(meteo), {"place": "Paris"})

    assert len(found["days"]) == 1
    assert "refuses the request (status 401)" in told
    assert told.endswith("The supplied API key is invalid.")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("weather_current", {"place": "Paris"}),
        ("weather_current", {"latitude": 1, "longitude": 1}),
        ("weather_forecast", {"place": "Paris, France", "days": 16}),
    ],
)
def test_failures_are_sentences(context: ToolContext, meteo: OpenMeteo, name: str, arguments: dict[str, Any]) -> None:
    check_failures(context, meteo, name, values(meteo), arguments)
