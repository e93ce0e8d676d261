"""HTTP tools in turns: what goes out, what the model reads, and that a secret is seen nowhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pytest_django import Settings

from capabilities.catalogue.tools.writes import Origin, update_tool
from capabilities.catalogue.tools.writes import definition_of as content_of
from capabilities.models import SecretStatus, StoredCredential, StoredSecret, Tool, ToolKind, VersionStatus
from sessions.models import ChatSession, Step, StepStatus
from tests.capabilities.catalogue.http_tools.rows import PARAMETERS, make_credential
from tests.capabilities.running.egress.servers import Server, say, serve
from tests.cast import make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "s3cret-of-acme"


@pytest.fixture
def server(settings: Settings) -> Iterator[Server]:
    for server in serve():
        settings.TOOLHUB_PRIVATE_HOSTS = [*settings.TOOLHUB_PRIVATE_HOSTS, f"tool:127.0.0.1:{server.port}"]
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


def test_s37_the_credential_is_behind_the_models_arguments_and_seen_nowhere(
    session: ChatSession, provider: ScriptedOpenAI, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    make_http(session, server, make_credential(session.membership, origins=[server.url]))
    server.answers["/users/7?verbose=true"] = echo
    provider.enqueue(Say(calls=[call("read_user", {"id": 7, "verbose": True})]), Say("Read."))

    with caplog.at_level(logging.DEBUG):
        turn = run(session)

    ((_, path, headers, _),) = server.requests
    (step,) = tool_steps_of(turn)
    assert (turn.answer, step.status, step.display) == ("Read.", StepStatus.DONE, "Reading user 7")
    assert (path, headers["authorization"]) == ("/users/7?verbose=true", f"Bearer {SECRET}")
    assert headers["idempotency-key"]
    assert json.loads(step.result)["headers"]["authorization"] == "Bearer ••••"
    with organisation_scope(session.organisation_id):
        assert SECRET not in str(list(Step.objects.values()))
    assert SECRET not in str(provider.requests)
    assert SECRET not in caplog.text


def test_a_secret_that_is_not_valid_any_more_is_not_sent_again(
    session: ChatSession, provider: ScriptedOpenAI, server: Server
) -> None:
    make_http(session, server, make_credential(session.membership, origins=[server.url]))
    challenge = 'Bearer error="invalid_token"'
    server.answers["/users/7"] = say(b"no", status=401, www_authenticate=challenge)
    both = [call("read_user", {"id": 7})]
    provider.enqueue(Say(calls=both), Say(calls=both), Say("Not read."))

    turn = run(session)

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.FAILED] * 2
    assert len(server.requests) == 1
    with organisation_scope(session.organisation_id):
        assert StoredSecret.objects.get().status == SecretStatus.REFUSED


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
