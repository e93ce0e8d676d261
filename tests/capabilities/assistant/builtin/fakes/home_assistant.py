"""Home Assistant: https://developers.home-assistant.io/docs/api/rest"""

from __future__ import annotations

from typing import Any

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, json_reply


def state(entity_id: str, value: str, **attributes: Any) -> dict[str, Any]:
    return {
        "entity_id": entity_id,
        "state": value,
        "attributes": attributes,
        "last_changed": "2026-11-18T08:00:00.123456+00:00",
        "last_updated": "2026-11-18T08:00:00.123456+00:00",
        "context": {"id": "01H", "parent_id": None, "user_id": None},
    }


class HomeAssistant(FakeService):
    token = "long-lived-token"

    def __init__(self) -> None:
        super().__init__()
        self.states = {
            "light.kitchen": state("light.kitchen", "off", friendly_name="Kitchen", supported_color_modes=["hs"]),
            "light.bed": state("light.bed", "on", friendly_name="Bedside lamp", brightness=128),
            "sensor.kitchen": state(
                "sensor.kitchen", "21.5", friendly_name="Kitchen temperature", unit_of_measurement="°C"
            ),
            "camera.door": state("camera.door", "idle", access_token="secret-of-camera", entity_picture="/api/x?t=1"),
        }

    def answer(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return Reply(401, b"401: Unauthorized", {"Content-Type": "text/plain; charset=utf-8"})
        match (asked.method, *asked.parts):
            case ("GET", "api", "config"):
                return json_reply({"location_name": "Home", "time_zone": "Europe/Berlin", "version": "2026.11.1"})
            case ("GET", "api", "states"):
                return json_reply(list(self.states.values()))
            case ("GET", "api", "states", entity_id):
                known = self.states.get(entity_id)
                return json_reply(known) if known else json_reply({"message": "Entity not found."}, 404)
            case ("POST", "api", "services", "light", ("turn_on" | "turn_off") as service):
                return self.switch(asked.json, service.removeprefix("turn_"))
            case ("POST", "api", "services", _, _):
                return Reply(400, b"400: Bad Request", {"Content-Type": "text/plain; charset=utf-8"})
        return Reply(404, b"404: Not Found", {"Content-Type": "text/plain; charset=utf-8"})

    def switch(self, data: dict[str, Any], to: str) -> Reply:
        wanted = data.get("entity_id", [])
        changed = []
        for entity_id in [wanted] if isinstance(wanted, str) else wanted:
            if self.states[entity_id]["state"] != to:
                self.states[entity_id]["state"] = to
                changed.append(self.states[entity_id])
        return json_reply(changed)
