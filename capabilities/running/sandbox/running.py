"""Runner of Python that members and agents wrote: one call for both runtimes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capabilities.common.confined import Busy, Places
from capabilities.running.sandbox.advice import advice_for
from capabilities.running.sandbox.bubblewrap import run_full
from capabilities.running.sandbox.isolation import isolation
from capabilities.running.sandbox.monty import run_monty
from capabilities.running.sandbox.values import MAX_CODE, RUNTIMES, HostFunctions, Limits, RunError, SandboxResult

_places = Places("TOOLHUB_PYTHON_PROCESSES", "TOOLHUB_PYTHON_PROCESSES_PER_ORGANISATION")


def run_python(
    code: str,
    arguments: Mapping[str, Any],
    *,
    helpers: Mapping[str, str],
    runtime: str,
    limits: Limits,
    host: HostFunctions,
    organisation_id: int,
    stopped: threading.Event,
) -> SandboxResult:
    """Call the code's `run` with these arguments by name, where it can reach nothing but `host`.

    `helpers` are modules that it may import: name -> code. Never raises for what the code does; the result has the
    value as plain JSON, or an error that says what to write instead. Takes at most the limit's seconds and one more.
    What `host.http` raises beside HostError goes through.
    """
    started = time.monotonic()
    if max(map(len, (code, *helpers.values()))) > MAX_CODE:
        return SandboxResult(error=RunError("Unavailable", f"The code is longer than {MAX_CODE:,} characters."))
    if runtime not in RUNTIMES:
        return SandboxResult(error=RunError("Unavailable", f"There is no runtime called {runtime!r}."))
    ready = isolation()
    if not ready.has(runtime):
        return SandboxResult(error=RunError("Unavailable", ready.reason(runtime)))
    try:
        with _places.taken(organisation_id, started + limits.seconds, stopped):
            remaining = replace(limits, seconds=max(0.05, started + limits.seconds - time.monotonic()))
            if runtime == "monty":
                result = run_monty(code, arguments, helpers=helpers, limits=remaining, host=host, stopped=stopped)
            else:
                result = run_full(
                    code,
                    arguments,
                    helpers=helpers,
                    limits=remaining,
                    host=host,
                    organisation_id=organisation_id,
                    stopped=stopped,
                )
    except Busy:
        result = SandboxResult(error=RunError("Busy", "Too many Python tools are running: try again in a moment."))
    if result.error is not None and not result.error.advice:
        result = replace(result, error=replace(result.error, advice=advice_for(result.error, runtime)))
    return replace(result, seconds=time.monotonic() - started)
