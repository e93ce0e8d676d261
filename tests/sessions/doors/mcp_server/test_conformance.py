"""The official conformance suite against the MCP server, in both protocols, with its fixture tools as real tools.

What is expected to fail is in `expected_failures_*.yml`, with why.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest

from capabilities.catalogue.tools.writes import Origin
from capabilities.models import Agent, McpServer, ToolKind
from tests.capabilities.running.mcp_client.over_http import http_server
from tests.capabilities.running.mcp_client.scripted import NONE, Script, text_result
from tests.cast import give_tool, make_role, make_token, make_tool
from tests.clients.installed import NODE, PACKAGES, need_clients
from tests.serving import serving
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.lasting, pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(600)]

SUITE = PACKAGES / "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = PACKAGES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"

#: Headers that a relay says itself.
OF_ONE_HOP = (b"authorization", b"connection", b"content-length", b"transfer-encoding")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(b"RIFF$\0\0\0WAVEfmt ").decode()
IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
DOCUMENT = types.EmbeddedResource(
    resource=types.BlobResourceContents(
        uri="test://embedded-resource",
        mime_type="text/plain",
        blob=base64.b64encode(b"This is an embedded resource content.").decode(),
    )
)


def result(*content: Any, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), **more)


#: The suite's fixture tools that a server of tools alone can have, and what each answers.
FIXTURES = {
    "test_simple_text": text_result("This is a simple text response for testing."),
    "test_image_content": result(types.TextContent(text="An image."), IMAGE),
    "test_audio_content": result(
        types.TextContent(text="A sound."), types.AudioContent(data=SOUND, mime_type="audio/wav")
    ),
    "test_embedded_resource": result(types.TextContent(text="A resource."), DOCUMENT),
    "test_multiple_content_types": result(types.TextContent(text="Multiple content types test:"), IMAGE, DOCUMENT),
    "test_error_handling": text_result("This tool intentionally returns an error for testing", is_error=True),
    "test_tool_with_progress": text_result("Done."),
    "json_schema_2020_12_tool": text_result("Done."),
    "test_header": text_result("Done."),
}
TEXT = {"type": "string"}
#: Schemas of those that take arguments.
SCHEMAS: dict[str, dict[str, Any]] = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT, "city": TEXT}}},
        "properties": {
            "name": TEXT,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": TEXT,
            "email": TEXT,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    "test_header": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}


def with_token(url: str, token: str) -> Any:
    """ASGI: passes every request on to this address with a token: these clients bring none."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        headers = [(name, value.strip()) for name, value in scope["headers"] if name not in OF_ONE_HOP]
        headers.append((b"authorization", f"Bearer {token}".encode()))
        async with (
            httpx2.AsyncClient(timeout=60) as http,
            http.stream(scope["method"], url, headers=headers, content=body) as answer,
        ):
            sent = [(name, value) for name, value in answer.headers.raw if name.lower() not in OF_ONE_HOP]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": sent})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


@pytest.fixture(scope="module", autouse=True)
def clients() -> None:
    need_clients()


@pytest.fixture
def fixtures(agent: Agent, bob: Membership) -> Any:
    """The suite's tools, each a tool of an MCP server of the organisation's, as real ones are."""
    make_role(bob.organisation, bob)
    script = Script()
    for name, answer in FIXTURES.items():
        script.tool(name, answer, schema=SCHEMAS.get(name, NONE))
    with http_server(script) as url:
        with organisation_scope(bob.organisation):
            server = McpServer.objects.create(organisation=bob.organisation, name="suite", title="Suite", url=url)
        for place, name in enumerate(FIXTURES):
            tool = make_tool(
                bob.organisation,
                name,
                origin=Origin(ToolKind.MCP, server=server),
                implementation={"name": name},
                parameters=SCHEMAS.get(name, NONE),
                effect="read",
                untrusted_output=True,
            )
            give_tool(agent, tool, position=20 + place)
        yield


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_what_is_expected(
    origin: str, fixtures: None, bob: Membership, version: str, settings: Any
) -> None:
    # The relay keeps the streams of older clients open that the suite has left.
    settings.TOOLHUB_STREAMS_PER_TOKEN = settings.TOOLHUB_STREAMS_PER_MEMBER = 1_000
    settings.TOOLHUB_STREAMS_PER_ORGANISATION = 1_000
    with serving(with_token(f"{origin}/mcp/desk", make_token(bob))) as relay:
        argv = [str(NODE), str(SUITE), "server", "--url", f"{relay}/mcp", "--requirements", version]
        expected = Path(__file__).with_name(f"expected_failures_{version}.yml")
        found = subprocess.run(
            [*argv, "--expected-failures", str(expected)], capture_output=True, text=True, timeout=500, cwd="/tmp"
        )
    if folder := os.environ.get("CONFORMANCE_LOGS"):
        Path(folder, f"conformance-{version}.log").write_text(found.stdout + found.stderr)

    assert found.returncode == 0, found.stdout[-6_000:] + found.stderr[-2_000:]


def test_the_inspectors_command_line_lists_and_calls(
    origin: str, agent: Agent, bob: Membership, tmp_path: Path
) -> None:
    make_role(bob.organisation, bob)
    argv = [str(NODE), str(INSPECTOR), "--cli", f"{origin}/mcp/desk", "--transport", "http"]
    argv += ["--header", f"Authorization: Bearer {make_token(bob)}", "--method"]
    call = ["tools/call", "--tool-name", "calculator", "--tool-arg", "expression=6*7"]
    at_home = {**os.environ, "HOME": str(tmp_path)}  # it keeps a folder there

    listed, called = (
        subprocess.run([*argv, *words], env=at_home, capture_output=True, text=True, timeout=120, check=True).stdout
        for words in (["tools/list"], call)
    )

    assert '"calculator"' in listed
    assert re.search(r"result.{0,6}42", called), called
