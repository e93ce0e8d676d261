"""Open-Meteo, forecast and geocoding: https://open-meteo.com/en/docs"""

from __future__ import annotations

from typing import Any

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, json_reply

PLACES: list[dict[str, Any]] = [
    {
        "id": 2988507,
        "name": "Paris",
        "latitude": 48.85341,
        "longitude": 2.3488,
        "country_code": "FR",
        "country": "France",
        "admin1": "Île-de-France",
        "timezone": "Europe/Paris",
    },
    {
        "id": 4717560,
        "name": "Paris",
        "latitude": 33.66094,
        "longitude": -95.55551,
        "country_code": "US",
        "country": "United States",
        "admin1": "Texas",
        "admin2": "Lamar",
        "timezone": "America/Chicago",
    },
]
CURRENT = {
    "temperature_2m": 11.4,
    "apparent_temperature": 9.0,
    "relative_humidity_2m": 81,
    "precipitation": 0.0,
    "cloud_cover": 100,
    "wind_speed_10m": 18.7,
    "wind_gusts_10m": 40.3,
    "weather_code": 61,
    "wind_direction_10m": 236,
}


class OpenMeteo(FakeService):
    """Both of its services behind one address."""

    key = ""

    def answer(self, asked: Asked) -> Reply:
        if self.key and asked.query.get("apikey") != self.key:
            return json_reply({"error": True, "reason": "The supplied API key is invalid."}, 401)
        if asked.path == "/v1/search":
            found = [place for place in PLACES if place["name"].lower() == asked.query["name"].lower()]
            count = int(asked.query.get("count", "10"))
            return json_reply({"results": found[:count]} if found else {"generationtime_ms": 0.5})
        if asked.path == "/v1/forecast":
            return self.forecast(asked.query)
        return json_reply({"error": True, "reason": "Not Found"}, 404)

    def forecast(self, query: dict[str, str]) -> Reply:
        if abs(float(query["latitude"])) > 90:
            reason = f"Latitude must be in range of -90 to 90°. Given: {query['latitude']}."
            return json_reply({"error": True, "reason": reason}, 400)
        answer: dict[str, Any] = {"latitude": 48.86, "longitude": 2.36, "timezone": "Europe/Paris"}
        if wanted := query.get("current"):
            answer["current"] = {"time": "2026-11-18T10:30", "interval": 900}
            answer["current"] |= {name: CURRENT[name] for name in wanted.split(",")}
        if wanted := query.get("daily"):
            days = range(int(query["forecast_days"]))
            answer["daily"] = {"time": [f"2026-11-{18 + day}" for day in days]}
            answer["daily"] |= {name: [self.cell(name, day) for day in days] for name in wanted.split(",")}
        return json_reply(answer)

    def cell(self, name: str, day: int) -> Any:
        if name in ("sunrise", "sunset"):
            return f"2026-11-{18 + day}T{'08:05' if name == 'sunrise' else '17:02'}"
        return {"weather_code": [3, 95][day % 2], "temperature_2m_min": 4.5 + day}.get(name, 10 + day)
