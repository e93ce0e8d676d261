"""The client that the official conformance suite of MCP drives: lists the tools and calls each of them.

The suite is npm's `@modelcontextprotocol/conformance` (0.2.0-alpha.12 knows protocol 2026-07-28) and wants Node 22:

    node .../conformance/dist/index.js client --spec-version 2026-07-28 --scenario http-custom-headers \\
        --command "python -m benchmarks.mcp_conformance"

It starts this with the server's address, and says in MCP_CONFORMANCE_CONTEXT which calls it wants.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
os.environ.setdefault("TOOLHUB_PRIVATE_HOSTS", "mcp:localhost,provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1")

import django

from capabilities.running.mcp_client import client
from capabilities.running.mcp_client.answers import ListedTool
from capabilities.running.mcp_client.errors import McpError
from capabilities.running.mcp_client.questions import Form, question_of
from capabilities.running.mcp_client.server_addresses import ServerAddress

SECONDS = 15.0
VALUES: dict[str, Any] = {"string": "text", "integer": 2, "number": 2, "boolean": True, "array": [], "object": {}}


def main() -> None:
    address = ServerAddress("http", "conformance", url=sys.argv[1])
    listing = client.list_tools(address)
    wanted = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls", [])
    calls = [(each["name"], each.get("arguments", {})) for each in wanted]
    tools = {tool.name: tool for tool in listing.tools if not tool.unusable}
    # One scenario wants the schema of a tool that it lists, as an argument of another tool.
    VALUES["object"] = next((tool.definition["inputSchema"] for tool in tools.values()), {})
    for name, arguments in calls or [(name, values_for(tool.definition)) for name, tool in tools.items()]:
        try:
            if name in tools:
                print(name, call(address, tools[name], arguments))
        except McpError as error:
            print(name, repr(error))
    client.close()


def values_for(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Something for each argument."""
    properties = definition["inputSchema"].get("properties", {})
    return {name: VALUES.get(node.get("type"), "text") for name, node in properties.items()}


def call(address: ServerAddress, tool: ListedTool, arguments: dict[str, Any]) -> Any:
    """The result; questions on the way are answered with what their forms propose."""
    given: dict[str, Any] = {}
    for _ in range(10):
        answer = client.call_tool(address, tool.name, arguments, timeout=SECONDS, headers=tool.headers, **given)
        if answer.questions is None:
            return answer.result or answer.task
        answers = {key: answer_to(question) for key, question in answer.questions.items()}
        if answer.is_asked_in_session:
            given = {"answers": given.get("answers", {}) | answers}
        else:
            given = {"input_responses": answers, "request_state": answer.request_state}
    return None


def answer_to(question: Any) -> dict[str, Any]:
    asked = question_of(question)
    if not isinstance(asked, Form):
        return {"action": "accept"}
    fields = asked.schema["properties"]
    content = {name: node.get("default", VALUES.get(node["type"], "text")) for name, node in fields.items()}
    return {"action": "accept", "content": content}


if __name__ == "__main__":
    django.setup()
    main()
