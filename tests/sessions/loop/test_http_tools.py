"""HTTP tools in turns: what goes out, what the model reads, and that a secret is seen nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pytest_django import Settings

from capabilities.catalogue.tools.writes import Origin, update_tool
from capabilities.catalogue.tools.writes import definition_of as content_of
from capabilities.models import StoredCredential, Tool, ToolKind, VersionStatus
from sessions.models import ChatSession, StepStatus
from tests.capabilities.catalogue.http_tools.rows import PARAMETERS
from tests.capabilities.egress.servers import Server, say, serve
from tests.cast import make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "s3cret-of-acme"


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    for server in serve():
        settings.TOOLHUB_PRIVATE_HOSTS = [*settings.TOOLHUB_PRIVATE_HOSTS, f"127.0.0.1:{server.port}"]
        yield server


def echo(handler: BaseHTTPRequestHandler) -> None:
    """Sends back what came, as echo services do."""
    headers = {name.lower(): value for name, value in handler.headers.items()}
    body = json.dumps({"path": handler.path, "headers": headers}).encode()
    say(body, content_type="application/json")(handler)


def make_http(session: ChatSession, server: Server, credential: StoredCredential | None = None, **fields: Any) -> Tool:
    request = {
        "method": "GET",
        "url": f"{server.url}/users/{{id}}",
        "arguments": {"id": {"in": "path"}, "verbose": {"in": "query"}},
    }
    content = {
        "parameters": PARAMETERS,
        "implementation": request,
        "effect": "external",
        "on_crash": "retry_with_key",
        "untrusted_output": True,
        "human_format": "Reading user {id}",
    }
    origin = Origin(ToolKind.HTTP, credential=credential)
    return make_tool(session.organisation, "read_user", origin=origin, **content | fields)


def test_s37_a_model_cannot_send_headers_of_its_own(
    session: ChatSession, provider: ScriptedOpenAI, server: Server
) -> None:
    """Where the schema takes more arguments than it names."""
    make_http(session, server, parameters={**PARAMETERS, "additionalProperties": True})
    provider.enqueue(Say(calls=[call("read_user", {"id": 7, "Authorization": "Bearer mine"})]), Say("No."))

    (step,) = tool_steps_of(run(session))

    assert (step.status, "there is no such argument" in step.result) == (StepStatus.FAILED, True)
    assert server.requests == []


def test_what_comes_back_counts_as_text_from_outside(
    session: ChatSession, provider: ScriptedOpenAI, server: Server
) -> None:
    make_http(session, server)
    provider.enqueue(Say(calls=[call("read_user", {"id": 7})]), Say("Read."))

    turn = run(session)

    assert turn.untrusted_since == tool_steps_of(turn)[0].index


def test_s52_a_version_that_waits_is_not_run(session: ChatSession, provider: ScriptedOpenAI, server: Server) -> None:
    """The one in force is, as it was."""
    tool = make_http(session, server)
    with organisation_scope(session.organisation_id):
        assert tool.current_version is not None
        content = content_of(tool, tool.current_version)
        request = {**content.implementation, "url": f"{server.url}/elsewhere/{{id}}"}
        changed = type(content)(**{**vars(content), "implementation": request})
        update_tool(tool, changed, actor=None, status=VersionStatus.PENDING)
    provider.enqueue(Say(calls=[call("read_user", {"id": 7})]), Say("Read."))

    run(session)

    assert [each[1] for each in server.requests] == ["/users/7"]
