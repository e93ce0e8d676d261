"""Python hooks, run as tools are: in a thread beside, for a bounded time, with plain data in and out.

The code is of a package that the service's operator installed. It runs in no organisation's scope: what it needs to
know comes with its input.
"""

from __future__ import annotations

import contextvars
import json
import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from capabilities.agents.hooks.installed import load_hook
from capabilities.common.text import storable_value
from capabilities.contract.hook_phases import CallPython
from capabilities.contract.hooks import Failure, HookFailed, HookSpec
from sessions.loop.clients.errors import CallStopped
from sessions.loop.tools.left_behind import left_behind
from sessions.loop.tools.tool_threads import tool_threads
from toolhub.durations import duration

logger = logging.getLogger(__name__)

#: Characters of an answer, as JSON.
MAX_ANSWER = 1_000_000
#: Seconds between looks at whether the turn was stopped.
LOOK_EVERY = 0.2


def python_of(organisation_id: int, stopped: threading.Event) -> CallPython:
    """Calls Python hooks for a turn of this organisation. Raises HookFailed, and CallStopped once `stopped` is set."""

    def call(hook: HookSpec, given: Mapping[str, Any], seconds: float) -> Any:
        return _called(hook, given, seconds, organisation_id, stopped)

    return call


def _called(
    hook: HookSpec, given: Mapping[str, Any], seconds: float, organisation_id: int, stopped: threading.Event
) -> Any:
    if left_behind.is_full(organisation_id):
        raise HookFailed(Failure.TIMEOUT, "Not called: too many calls that took longer than their time still run.")
    name, text = str(hook.settings["entry_point"]), json.dumps(given)
    ended: list[str | HookFailed] = []

    def run() -> None:
        try:
            ended.append(_answer_of(name, text))
        except HookFailed as failed:
            ended.append(failed)
        except BaseException as error:  # SystemExit and its like must not reach the worker either
            logger.exception("The Python hook %s failed", name)
            ended.append(HookFailed(Failure.EXCEPTION, f"{type(error).__name__}: {str(error)[:300]}"))

    started = tool_threads.start(f"hook {name}", partial(contextvars.Context().run, run))
    until = time.monotonic() + seconds
    while started.is_alive() and not stopped.is_set() and (left := until - time.monotonic()) > 0:
        started.wait(min(LOOK_EVERY, left))
    if not ended:
        started.let_go()
        left_behind.add(organisation_id, started)
        if stopped.is_set():
            raise CallStopped
        raise HookFailed(Failure.TIMEOUT, f"It did not answer within {duration(seconds)}.")
    (answer,) = ended
    if isinstance(answer, HookFailed):
        raise answer
    return storable_value(json.loads(answer))


def _answer_of(name: str, given: str) -> str:
    """The answer as JSON. Raises HookFailed, and what the hook raises."""
    function = load_hook(name)
    if function is None:
        raise HookFailed(Failure.MISSING, f"No installed package has a Python hook {name}.")
    answer = function(json.loads(given))
    try:
        text = json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise HookFailed(Failure.MALFORMED, f"Its answer is no plain data: {str(error)[:200]}") from error
    if len(text) > MAX_ANSWER:
        raise HookFailed(Failure.MALFORMED, f"Its answer has more than {MAX_ANSWER:,} characters.")
    return text
