from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from capabilities.contract.context import ToolContext
from tests.capabilities.assistant.builtin.fakes.home_assistant import HomeAssistant, state
from tests.capabilities.assistant.builtin.fakes.http import Reply
from tests.capabilities.assistant.builtin.remote import (
    call_with,
    check_credential_stays,
    check_failures,
    refused,
    slow,
)

KITCHEN = {"entity_id": "light.kitchen", "state": "off", "name": "Kitchen"}


@pytest.fixture
def home() -> Iterator[HomeAssistant]:
    with HomeAssistant() as service:
        yield service


def values(home: HomeAssistant) -> dict[str, str]:
    return {"base_url": home.url, "token": home.token}


def test_a_state_with_its_attributes(context: ToolContext, home: HomeAssistant) -> None:
    assert call_with(context, "ha_get_state", values(home), {"entity_id": "light.bed"}) == {
        "entity_id": "light.bed",
        "state": "on",
        "name": "Bedside lamp",
        "attributes": {"brightness": 128},
        "changed": "2026-11-18T08:00:00.123456+00:00",
    }


def test_a_camera_keeps_its_own_token(context: ToolContext, home: HomeAssistant) -> None:
    found = call_with(context, "ha_get_state", values(home), {"entity_id": "camera.door"})

    assert "attributes" not in found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, ["light.kitchen", "light.bed", "sensor.kitchen", "camera.door"]),
        ({"domain": "light"}, ["light.kitchen", "light.bed"]),
        ({"name": "KITCHEN"}, ["light.kitchen", "sensor.kitchen"]),
        ({"name": "bedside lamp"}, ["light.bed"]),
        ({"domain": "sensor", "name": "garage"}, []),
    ],
)
def test_states_by_kind_and_name(
    context: ToolContext, home: HomeAssistant, arguments: dict[str, Any], found: list[str]
) -> None:
    listing = call_with(context, "ha_get_states", values(home), arguments)

    assert [row["entity_id"] for row in listing["entities"]] == found


def test_a_long_list_says_how_much_is_left(context: ToolContext, home: HomeAssistant) -> None:
    home.states |= {f"sensor.s{number}": state(f"sensor.s{number}", "1") for number in range(300)}

    listing = call_with(context, "ha_get_states", values(home), {"domain": "sensor"})

    assert (len(listing["entities"]), listing["more"]) == (50, 251)


def test_a_service_is_called_and_changes_tell(context: ToolContext, home: HomeAssistant) -> None:
    arguments = {"domain": "light", "service": "turn_on", "entity_id": ["light.kitchen", "light.bed"]}

    first = call_with(context, "ha_call_service", values(home), arguments | {"data": {"brightness_pct": 40}})
    second = call_with(context, "ha_call_service", values(home), arguments)

    assert first == {"done": "light.turn_on", "changed": [KITCHEN | {"state": "on"}]}
    assert second == {"done": "light.turn_on", "changed": []}
    assert home.asked[0].json == {"brightness_pct": 40, "entity_id": ["light.kitchen", "light.bed"]}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ha_get_state", {"entity_id": "light.kitchen/../../config"}),
        ("ha_get_state", {"entity_id": "../config"}),
        ("ha_get_state", {"entity_id": "light.a?x=1"}),
        ("ha_call_service", {"domain": "light", "service": "../../states/x"}),
        ("ha_call_service", {"domain": "Light", "service": "turn_on"}),
    ],
)
def test_a_name_leads_nowhere_else(
    context: ToolContext, home: HomeAssistant, name: str, arguments: dict[str, Any]
) -> None:
    refused(context, name, values(home), arguments)

    assert home.asked == []


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (
            "ha_get_state",
            {"entity_id": "light.attic"},
            "There is no light.attic: ha_get_states shows what there is.",
        ),
        ("ha_call_service", {"domain": "light", "service": "explode"}, "Home Assistant answered with status 400."),
    ],
)
def test_what_is_not_there_is_told(
    context: ToolContext, home: HomeAssistant, name: str, arguments: dict[str, Any], told: str
) -> None:
    assert refused(context, name, values(home), arguments) == told


def test_a_wrong_token_is_told(context: ToolContext, home: HomeAssistant) -> None:
    told = refused(context, "ha_get_states", values(home) | {"token": "other"}, {})

    assert told.startswith("Home Assistant refuses")
    assert "(status 401)" in told


def test_a_token_of_two_lines_is_never_sent_nor_told(context: ToolContext, home: HomeAssistant) -> None:
    told = refused(context, "ha_get_states", values(home) | {"token": "first\nsecond"}, {})

    assert "a character that cannot be sent" in told
    assert home.asked == []


def test_a_credential_that_comes_back_is_masked(context: ToolContext, home: HomeAssistant) -> None:
    home.states["light.bed"] = state("light.bed", f"Bearer {home.token}")

    assert call_with(context, "ha_get_state", values(home), {"entity_id": "light.bed"})["state"] == "Bearer ••••"


def test_a_call_without_an_answer_may_have_been_done(context: ToolContext, home: HomeAssistant) -> None:
    home.instead = slow

    told = refused(
        replace(context, timeout=0.5), "ha_call_service", values(home), {"domain": "light", "service": "toggle"}
    )

    assert "may have been done" in told


def test_a_call_is_not_sent_on(context: ToolContext, home: HomeAssistant) -> None:
    home.instead = lambda asked: Reply(307, b"", {"Location": home.url + "/elsewhere"})

    refused(context, "ha_call_service", values(home), {"domain": "light", "service": "toggle"})

    assert len(home.asked) == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ha_get_state", {"entity_id": "light.bed"}),
        ("ha_get_states", {}),
        ("ha_call_service", {"domain": "light", "service": "turn_on", "entity_id": "light.bed"}),
    ],
)
def test_failures_are_sentences(
    context: ToolContext, home: HomeAssistant, name: str, arguments: dict[str, Any]
) -> None:
    check_failures(context, home, name, values(home), arguments)
    check_credential_stays(context, home, name, values(home), arguments)
