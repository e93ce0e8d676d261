"""A tool with a side effect outside that must never happen twice for one call."""

from __future__ import annotations

import http.client
import os
from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from capabilities.contract.context import ToolContext
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec("outside", "Outside", "Things that happen in another process.", is_core=True)


@tool(category="outside", effect="external", on_crash="never", human_format="Leaving a mark: {label}")
def leave_mark(context: ToolContext, label: Annotated[str, Field(description="What the mark says.")]) -> str:
    """Leave one mark in the outside world, for good."""
    port = int(os.environ["BENCHMARK_COUNTER_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=context.timeout)
    try:
        headers = {"Idempotency-Key": context.idempotency_key, "Content-Length": "0"}
        connection.request("POST", f"/marks/{quote(label, safe='')}", headers=headers)
        response = connection.getresponse()
        response.read()
        return f"marked ({response.status})"
    finally:
        connection.close()
