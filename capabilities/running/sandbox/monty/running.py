"""Runner of a tool's code in the interpreter: it answers what it asks of the service."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pydantic_monty import (
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyConversionError,
    MontyCrashedError,
    MontyDisconnectError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
)

from capabilities.running.sandbox.host import NAMES, HostCalls, OutOfTime, TooManyCalls
from capabilities.running.sandbox.monty import modules
from capabilities.running.sandbox.monty.pool import pool
from capabilities.running.sandbox.results import NotJson, limited_json
from capabilities.running.sandbox.values import HostFunctions, Limits, RunError, SandboxResult
from toolhub.durations import duration

#: Names that code looks up, calls of the host and imports, in one run.
MAX_SUSPENSIONS = 2_000
MAX_RECURSION = 300
#: Seconds after its deadline at which a run's process is ended.
GRACE = 0.5
MODULE_MAKER = """\
class Module:
    pass
def __fill(module, code, names):
    exec(code, names)
    for name in names:
        setattr(module, name, names[name])
"""


class MontyEnded(Exception):
    """End of a run, with this error."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.message)
        self.error = error


def run(
    code: str,
    arguments: Mapping[str, Any],
    *,
    helpers: Mapping[str, str],
    limits: Limits,
    host: HostFunctions,
    stopped: threading.Event,
) -> SandboxResult:
    """Run the tool's entry with these arguments. Never raises for what the code does."""
    started = time.monotonic()
    loading = Loading(limits, host, stopped, started)
    value, error = None, None
    try:
        with (
            pool().checkout(limits=resource_limits(limits), os_policy=os_policy(host)) as session,
            loading.watched(session),
        ):
            loading.load_modules(session, code, helpers)
            loading.load_code(session, code)
            text = loading.fed(session, CALL, {"__arguments": dict(arguments)})
            value = limited_json(text, limits.output)
    except MontyEnded as ended:
        error = ended.error
    except NotJson as reason:
        error = RunError("Result", str(reason))
    except (MontyCrashedError, MontyDisconnectError):
        error = loading.crash()
    except MontyConversionError as reason:
        error = RunError("Result", f"The arguments cannot be handed to the code: {str(reason)[:300]}")
    except TimeoutError:
        error = RunError("Busy", "Too many Python tools are running: try again in a moment.")
    except OSError as reason:
        error = RunError("Unavailable", f"The interpreter could not be started: {reason.strerror or reason}.")
    return SandboxResult(
        value=value,
        error=error,
        printed=loading.printed.text,
        seconds=time.monotonic() - started,
        host_calls=loading.calls.requests,
    )


def why_no_monty() -> str:
    """Return why the interpreter does not work here, tried with a call; "" where it does."""
    result = run(
        "def run(): return 1", {}, helpers={}, limits=Limits(), host=HostFunctions(), stopped=threading.Event()
    )
    return "" if result.value == 1 else f"The interpreter does not work here: {result.error}"


CALL = """\
import json as __json
__json.dumps(run(**__arguments), allow_nan=False)
"""


def resource_limits(limits: Limits) -> Any:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_memory": limits.memory,
        "max_recursion_depth": MAX_RECURSION,
        "max_suspensions": MAX_SUSPENSIONS,
    }


def os_policy(host: HostFunctions) -> Any:
    """Return the policy of the interpreter: nothing waits, and the clock is the organisation's."""
    return {"sleep": "zero", "timezone": host.timezone}


class Printed:
    """Printed text of the code, cut at the limit: the rest is dropped, not kept."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._parts: list[str] = []

    def __call__(self, stream: str, text: str) -> None:
        if self._remaining > 0:
            part = text[: self._remaining]
            self._remaining -= len(part)
            self._parts.append(part)

    @property
    def text(self) -> str:
        return "".join(self._parts)


class Loading:
    """One session: the code that is fed to it, one piece after another, and what that asks of the host."""

    def __init__(self, limits: Limits, host: HostFunctions, stopped: threading.Event, started: float) -> None:
        self.limits = limits
        self.deadline = started + limits.seconds
        self.calls = HostCalls(host, limit=limits.host_calls, deadline=self.deadline)
        self.printed = Printed(limits.output)
        self.stopped = stopped
        self.modules: dict[str, Any] = {}
        self.helpers: Mapping[str, str] = {}
        self.feeds = 0
        #: The feed that the tool's own code is, by which its lines are known.
        self.own_feed: int | None = None
        self._killer: threading.Timer | None = None
        self._pid: int | None = None

    @contextmanager
    def watched(self, session: MontySession) -> Iterator[None]:
        """End the process past the deadline: the interpreter's own clock stands still while the host works."""
        self._pid = session.worker_pid
        try:
            yield
        finally:
            if self._killer is not None:
                self._killer.cancel()
                self._killer.join()

    def load_modules(self, session: MontySession, code: str, helpers: Mapping[str, str]) -> None:
        """Bring in the modules that the code may import. Raises MontyEnded."""
        self.helpers = helpers
        wanted = modules_in_order(code, helpers)
        if not wanted:
            return
        # Handed out while they are empty: what is in a module never crosses to this process.
        made = "".join(f"__module_{name} = Module()\n" for name in wanted)
        empty = self.fed(session, f"{MODULE_MAKER}{made}[{', '.join(f'__module_{name}' for name in wanted)}]")
        for name, module in zip(wanted, empty, strict=True):
            self._load_module(session, name, helpers)
            self.modules[name] = module

    def load_code(self, session: MontySession, code: str, *, type_check: bool = False) -> None:
        """Run the module of the tool itself, whose lines errors name from now on. Raises MontyEnded.

        With `type_check` (of a session that was checked out with it), raises MontyTypingError before anything runs.
        """
        self.own_feed = self.feeds
        self.fed(session, code, {"__name__": "tool"}, type_check=type_check)

    def _load_module(self, session: MontySession, name: str, helpers: Mapping[str, str]) -> None:
        """Run the code of one module, and fill its object with the names. Raises MontyEnded, with the module's name."""
        is_helper = name in helpers
        part = "" if is_helper else modules.PACKAGES.get(name, "")
        text = helpers[name] if is_helper else modules.source(f"{name}.{part}" if part else name)
        given = "".join(f", {one!r}: {one}" for one in NAMES if is_helper and one in text)
        filled = f"__module_{name}"
        code = ""
        if part:
            code, filled = f"{filled}.{part} = Module()\n", f"{filled}.{part}"
        try:
            self.fed(
                session, f"{code}__fill({filled}, __code, {{'__name__': {name!r}{given}}})\nNone", {"__code": text}
            )
        except MontyEnded as ended:
            error = ended.error
            message = f"The module {name} could not be loaded: {error.message}"
            raise MontyEnded(RunError(error.kind, message, advice=error.advice, module=name)) from None

    def fed(
        self, session: MontySession, code: str, inputs: Mapping[str, Any] | None = None, *, type_check: bool = False
    ) -> Any:
        """Run one piece of code and return its last value. Raises MontyEnded."""
        self.feeds += 1
        try:
            snapshot = session.feed_start(
                code,
                inputs={**(inputs or {})},
                external_lookup=dict.fromkeys(NAMES, _placeholder),
                print_callback=self.printed,
                skip_type_check=not type_check,
            )
            while not isinstance(snapshot, MontyComplete):
                if self.stopped.is_set():
                    raise MontyEnded(RunError("Stopped", "The run was stopped."))
                snapshot = self._answered(snapshot)
            return snapshot.output
        except (MontyRuntimeError, MontySyntaxError) as error:
            raise MontyEnded(self._error(error)) from None

    def _answered(self, snapshot: Any) -> Any:
        """Answer what the interpreter stopped for: a function of the service, an import, or its own default."""
        if isinstance(snapshot, FunctionSnapshot):
            name = str(snapshot.function_name)
            if snapshot.is_os_function:
                if name == "import" and snapshot.args and snapshot.args[0] in self.modules:
                    return snapshot.resume({"return_value": self.modules[snapshot.args[0]]})
                if name == "import" and snapshot.args and snapshot.args[0] in self.helpers:
                    words = (
                        f"{snapshot.args[0]} is imported by a module that it imports: put what both need into a third"
                    )
                    return snapshot.resume({"exc_type": "ImportError", "message": words})
                return snapshot.resume_auto()
            if name in NAMES:
                return snapshot.resume(self._of_host(name, snapshot.args, snapshot.kwargs))
            return snapshot.resume_auto()
        if isinstance(snapshot, FutureSnapshot):
            raise MontyEnded(RunError("RuntimeError", "The code awaits something that never comes."))
        assert isinstance(snapshot, NameLookupSnapshot)
        return snapshot.resume_auto()

    def _of_host(self, name: str, args: Any, kwargs: Any) -> Any:
        """Answer a call of one of the service's functions. Raises MontyEnded beyond its limits."""
        if self._killer is None and self._pid is not None:
            self._killer = threading.Timer(max(0.0, self.deadline - time.monotonic()) + GRACE, self._end, [self._pid])
            self._killer.daemon = True
            self._killer.start()
        try:
            return {"return_value": self.calls.call(name, args, kwargs)}
        except TooManyCalls as error:
            raise MontyEnded(RunError("HostCalls", str(error))) from None
        except OutOfTime:
            raise MontyEnded(self._too_long()) from None
        except (OSError, TypeError, ValueError, NameError) as error:
            return {
                "exception": error
                if type(error) in (OSError, TypeError, ValueError, NameError)
                else ValueError(str(error))
            }

    def _end(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _too_long(self) -> RunError:
        return RunError("Timeout", f"It took longer than {duration(self.limits.seconds)}.")

    def crash(self) -> RunError:
        """Return the reason why the process is gone."""
        if time.monotonic() >= self.deadline:
            return self._too_long()
        return RunError("Crashed", "The code crashed its process, most likely by asking for too much memory.")

    def _error(self, error: MontyRuntimeError | MontySyntaxError) -> RunError:
        """Return the error of a run, with its line in the member's own code."""
        text = error.display("type-msg")
        kind, _, message = text.partition(": ")
        kind = kind.rpartition(".")[2]
        line = None
        for frame in error.traceback():
            if self.own_feed is not None and frame.filename == f"<python-input-{self.own_feed}>":
                line = frame.line
        if kind == "TimeoutError" and "time limit exceeded" in message:
            return RunError("Timeout", f"It took longer than {duration(self.limits.seconds)}.", line)
        if kind == "MemoryError":
            return RunError("Memory", f"It held more than {self.limits.memory // 1_000_000:,} MB.", line)
        if "suspension limit" in message:
            return RunError("HostCalls", "It asked the service too often.", line)
        return RunError(kind, message[:2_000], line)


def _placeholder(*args: Any, **kwargs: Any) -> Any:
    """Stands for a host function where its name is looked up: its calls are answered elsewhere."""
    raise RuntimeError("This function is answered elsewhere.")


def modules_in_order(code: str, helpers: Mapping[str, str]) -> list[str]:
    """The modules to load before this code, each behind those that it imports itself."""
    found: list[str] = []
    known = [*helpers, *(name for name in (*modules.NAMES, *modules.PACKAGES) if name not in helpers)]

    def visit(text: str, above: tuple[str, ...]) -> None:
        for name in known:
            if name in found or not imports(text, name):
                continue
            if name in above:  # itself, or a circle: the import fails when it is asked for
                continue
            if name in helpers:
                visit(helpers[name], (*above, name))
            found.append(name)

    visit(code, ())
    return found


def imports(text: str, name: str) -> bool:
    """Return whether a line of the text may import the module. A comment may say so too: then it is loaded in vain."""
    return name in text and re.search(rf"\b(?:import|from)\b[^\n]*\b{re.escape(name)}\b", text) is not None
