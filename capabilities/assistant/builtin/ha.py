"""Home Assistant over its REST API: what its entities are like, and calls of its services."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from capabilities.assistant.builtin._lib.remote import Remote, a_dict, bearer, dicts, filled, remote, short
from capabilities.contract.context import ToolContext
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="ha",
    title="Home Assistant",
    description="Lights, switches, sensors and other things at home.",
    keywords=(
        "home assistant",
        "light",
        "thermostat",
        "turn on",
        "turn off",
        "kitchen",
        "bedroom",
        "switch",
        "sensor",
        "temperature",
        "temperature in",
        "garage",
    ),
)
HOME_ASSISTANT = ServiceSpec(
    name="home_assistant",
    title="Home Assistant",
    description="One Home Assistant, with a long-lived access token of the user that tools act as.",
    fields=(
        ServiceField("base_url", "Address", "Such as https://home.example.org or http://10.0.0.5:8123."),
        ServiceField("token", "Access token", is_secret=True),
    ),
    test=lambda context: _home(context).json("GET", "api", "config", shape=dict),
)
SERVICES = (HOME_ASSISTANT,)

#: Bytes of all states of a large home, and attributes of one entity that are shown.
STATES_LIMIT = 8_000_000
ATTRIBUTE_LIMIT = 40
#: Ways into the house, or of use to a browser only.
HIDDEN = frozenset({"access_token", "entity_picture", "entity_picture_local", "icon", "supported_features"})


def _matching(pattern: str, sentence: str) -> AfterValidator:
    """Checked here and not in the schema, where a pattern costs tokens wherever it is used."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(sentence)
        return value

    return AfterValidator(check)


EntityId = Annotated[str, _matching(r"[a-z0-9_]{1,100}\.[a-z0-9_]{1,150}", "an entity_id looks like light.kitchen")]
Name = Annotated[str, _matching(r"[a-z0-9_]{1,100}", "a name has a-z, 0-9 and _ only")]


@tool(category="ha", effect="read", service="home_assistant", human_format="Looking at {entity_id}")
def ha_get_state(
    context: ToolContext, entity_id: Annotated[EntityId, Field(description="Such as light.kitchen.")]
) -> dict[str, Any]:
    """One entity of Home Assistant: its state and attributes."""
    missing = f"There is no {entity_id}: ha_get_states shows what there is."
    state = _home(context).json("GET", "api", "states", entity_id, shape=dict, missing=missing)
    return _row(state) | filled({"attributes": _attributes(state), "changed": short(state.get("last_changed"), 40)})


@tool(category="ha", effect="read", service="home_assistant", human_format="Listing entities of the home")
def ha_get_states(
    context: ToolContext,
    domain: Annotated[Name | None, Field(description="Such as light or sensor.")] = None,
    name: Annotated[str, Field(description="Part of a name or entity_id.", max_length=100)] = "",
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """List entities of Home Assistant with their states, by kind or name."""
    states = dicts(_home(context).json("GET", "api", "states", shape=list, max_bytes=STATES_LIMIT))
    rows = [_row(state) for state in states if isinstance(state.get("entity_id"), str)]
    wanted = " ".join(name.casefold().split())
    found = [
        row
        for row in rows
        if (not domain or row["entity_id"].startswith(f"{domain}."))
        and wanted in f"{row['entity_id']} {row.get('name', '')}".casefold()
    ]
    return {"entities": found[:limit]} | ({"more": len(found) - limit} if len(found) > limit else {})


@tool(
    category="ha",
    effect="external",
    on_crash="never",
    service="home_assistant",
    in_untrusted="ask",
    human_format="Calling {domain}.{service} at home",
)
def ha_call_service(
    context: ToolContext,
    domain: Name,
    service: Annotated[Name, Field(description="Such as turn_on.")],
    entity_id: EntityId | list[EntityId] | None = None,
    data: Annotated[dict[str, Any] | None, Field(description='Such as {"brightness_pct": 40}.')] = None,
) -> dict[str, Any]:
    """Call a service of Home Assistant, such as light.turn_on; returns the states that changed."""
    body = dict(data or {}) | ({"entity_id": entity_id} if entity_id else {})
    missing = f"Home Assistant has no service {domain}.{service}."
    changed = _home(context).json("POST", "api", "services", domain, service, shape=list, body=body, missing=missing)
    return {"done": f"{domain}.{service}", "changed": [_row(state) for state in dicts(changed)][:50]}


def _home(context: ToolContext) -> Remote:
    return remote(context, HOME_ASSISTANT, headers=bearer(context.service.get("token", "")))


def _row(state: Mapping[str, Any]) -> dict[str, Any]:
    attributes = a_dict(state.get("attributes"))
    return {"entity_id": short(state.get("entity_id"), 255), "state": short(state.get("state"), 255)} | filled(
        {"unit": short(attributes.get("unit_of_measurement"), 40), "name": short(attributes.get("friendly_name"), 100)}
    )


def _attributes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values and short lists of them; where there is more, a reader would be drowned in it."""
    shown: dict[str, Any] = {}
    for name, value in list(a_dict(state.get("attributes")).items()):
        if name in HIDDEN or name in {"friendly_name", "unit_of_measurement"} or len(shown) == ATTRIBUTE_LIMIT:
            continue
        if isinstance(value, list):
            shown[name[:100]] = [short(each, 100) for each in value[:20]]
        elif isinstance(value, (bool, int, float)):
            shown[name[:100]] = value
        else:
            shown[name[:100]] = short(value, 300)
    return filled(shown)
