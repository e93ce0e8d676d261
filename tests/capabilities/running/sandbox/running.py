"""How the tests of this room run code."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Any

from capabilities.running.sandbox import (
    HostFunctions,
    HttpAnswer,
    Limits,
    Problem,
    SandboxResult,
    check_python,
    run_python,
)

ACME, GLOBEX = 1, 2


def fake_web(method: str, url: str, *, headers: Mapping[str, str], content: bytes | None, timeout: float) -> HttpAnswer:
    """A weather service and a list of items in pages."""
    if "weather" in url:
        body: Any = {"hours": [{"temp": 5}, {"temp": 9}], "sky": "cloudy"}
    else:
        found = re.search(r"page=(\d+)", url)
        page = int(found[1]) if found else 1
        body = {"items": [{"id": page * 10 + number, "name": f"n{page}{number}"} for number in range(2)]}
    return HttpAnswer(200, {"content-type": "application/json"}, json.dumps(body))


def ran(
    code: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    helpers: Mapping[str, str] | None = None,
    runtime: str = "monty",
    organisation_id: int = ACME,
    host: HostFunctions | None = None,
    stopped: threading.Event | None = None,
    **limits: Any,
) -> SandboxResult:
    """The code's `run` with these arguments, within 5 seconds unless said."""
    return run_python(
        code,
        arguments or {},
        helpers=helpers or {},
        runtime=runtime,
        limits=Limits(**{"seconds": 5.0, **limits}),
        host=host or HostFunctions(http=fake_web, timezone="Europe/Berlin"),
        organisation_id=organisation_id,
        stopped=stopped or threading.Event(),
    )


def checked(
    code: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    helpers: Mapping[str, str] | None = None,
    runtime: str = "monty",
) -> list[Problem]:
    """Problems of the code as a tool that takes these arguments."""
    names = arguments or {}
    schema = {"type": "object", "properties": {name: {} for name in names}, "required": list(names)}
    return check_python(code, helpers=helpers or {}, runtime=runtime, parameters=schema, organisation_id=ACME)
