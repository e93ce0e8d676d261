"""What tests of tools with a service share: the tool called with that service set up, and what may go wrong with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, html_reply, json_reply


def call_with(context: ToolContext, name: str, values: Mapping[str, str], arguments: Mapping[str, Any]) -> Any:
    """The tool as a turn calls it, with these values of its service."""
    tool = registry.tools[name]
    spec = registry.services[tool.service]
    return tool.call(replace(context, service=spec.filled(values)), arguments)


def refused(context: ToolContext, name: str, values: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """The sentence that the model reads."""
    with pytest.raises(ToolError) as told:
        call_with(context, name, values, arguments)
    return str(told.value)


def slow(asked: Asked) -> Reply:
    time.sleep(1.5)
    return json_reply({})


#: What a service may answer instead of what it should, and what is then told.
FAILURES: dict[str, tuple[Callable[[Asked], Reply], str]] = {
    "html": (lambda asked: html_reply(), "that is no JSON"),
    "unauthorised": (lambda asked: json_reply({"message": "Bad credentials"}, 401), "401"),
    "rate": (lambda asked: Reply(429, b"", {"Retry-After": "17"}), "try again in 17 s"),
    "broken": (lambda asked: html_reply(502), "status 502"),
    "huge": (
        lambda asked: Reply(200, b'["' + b"x" * 9_000_000 + b'"]', {"Content-Type": "application/json"}),
        "answered with more than",
    ),
    "deep": (lambda asked: Reply(200, b"[" * 200_000, {"Content-Type": "application/json"}), "that is no JSON"),
    "away": (lambda asked: Reply(302, b"", {"Location": "http://127.0.0.2:9/x"}), "127.0.0."),
    "slow": (slow, "within"),
}
#: Values that are JSON, and not what was asked for.
ODD_VALUES: list[Any] = [
    None,
    1,
    "text",
    [],
    {},
    [1, None, "x", [], {}],
    {"results": 1, "data": "x", "ocs": [], "query": [], "Functions": 3},
    [{"results": [[]], "entity_id": 7, "Names": 3, "attributes": [], "title": {}, "Config": 1, "number": "x"}],
    {"results": [{"latitude": None}], "ocs": {"data": [{"message": 5, "messageParameters": [1]}]}},
    {"current": [], "daily": {"time": [1, 2], "weather_code": 5}, "items": [{}], "State": 5, "Config": {"Env": 3}},
    {"query": {"search": [{"title": 1}], "pages": [{"title": [], "extract": {}}]}, "RelatedTopics": {"a": 1}},
]


def check_failures(
    context: ToolContext, service: FakeService, name: str, values: Mapping[str, str], arguments: Mapping[str, Any]
) -> None:
    """Whatever the service does, the model gets a sentence or a small result, and the turn goes on."""
    for failure, (answer, told) in FAILURES.items():
        service.instead = answer
        hurried = replace(context, timeout=1.0) if failure == "slow" else context
        sentence = refused(hurried, name, values, arguments)
        assert told in sentence, (failure, sentence)
        assert sentence.endswith((".", "?")), sentence
    for value in ODD_VALUES:
        service.instead = lambda asked, value=value: json_reply(value)
        with suppress(ToolError):
            assert len(json.dumps(call_with(context, name, values, arguments))) < 5_000
    service.instead = None


def check_credential_stays(
    context: ToolContext, service: FakeService, name: str, values: Mapping[str, str], arguments: Mapping[str, Any]
) -> None:
    """Another host that the service redirects to sees no header of ours that could be a credential."""
    with Stranger() as stranger:
        service.instead = lambda asked: Reply(302, b"", {"Location": stranger.url + "/taken"})
        with pytest.raises(ToolError):
            call_with(context, name, values, arguments)
        service.instead = None
        harmless = {"accept", "accept-encoding", "content-type", "host", "user-agent"}
        assert [set(asked.headers) - harmless for asked in stranger.asked] == [set()] * len(stranger.asked)


class Stranger(FakeService):
    def answer(self, asked: Asked) -> Reply:
        return html_reply()
