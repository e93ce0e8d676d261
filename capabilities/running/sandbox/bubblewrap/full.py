"""Runner of a tool's code in CPython: it answers what it asks of the service."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from capabilities.running.sandbox.bubblewrap.machine import Missing
from capabilities.running.sandbox.bubblewrap.zygotes import zygote_of
from capabilities.running.sandbox.host import HostCalls, OutOfTime, TooManyCalls
from capabilities.running.sandbox.results import NotJson, limited_json
from capabilities.running.sandbox.values import HostFunctions, Limits, RunError, SandboxResult
from toolhub.bounded_json import JsonMessages, JsonRefused, TooMuchJson
from toolhub.durations import duration

#: Seconds between looks at whether the caller was stopped.
LOOK_EVERY = 0.1
#: Bytes beside result and print that a call may send: requests, errors, the frame of each line.
SLACK = 4_000_000
#: Values of one message, and of all that a call sends: what it prints is one or two of a message.
MOST_VALUES_OF_MESSAGE, MOST_VALUES = 20_000, 100_000


class FullEnded(Exception):
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
    organisation_id: int,
    stopped: threading.Event,
    only_load: bool = False,
) -> SandboxResult:
    """Run the tool's entry with these arguments; with `only_load` its module alone. Never raises for what the code
    does."""
    started = time.monotonic()
    deadline = started + limits.seconds
    calls = HostCalls(host, limit=limits.host_calls, deadline=deadline)
    try:
        request = _request(code, arguments, helpers, limits, host, only_load)
        zygote = zygote_of(organisation_id)
        number, channel = zygote.start_call()
    except (TypeError, ValueError, RecursionError) as reason:
        error = RunError("Result", f"The arguments cannot be handed to the code: {str(reason)[:300]}")
        return SandboxResult(error=error)
    except Missing as reason:
        return SandboxResult(error=RunError("Unavailable", f"Full Python cannot run here: {reason}."))
    except OSError:
        return SandboxResult(error=RunError("Crashed", "The sandbox had ended; the next call gets a new one."))
    conversation = _Conversation(channel, calls, limits, deadline, stopped)
    is_clean = False
    value, failed = None, None
    try:
        with channel:
            text = conversation.held(request)
            is_clean = True
        value = limited_json(text, limits.output)
    except FullEnded as ended:
        failed = ended.error
        is_clean = conversation.is_over
    except NotJson as reason:
        failed = RunError("Result", str(reason))
    except OSError:
        failed = RunError("Crashed", "The sandbox ended while the code ran.")
    finally:
        zygote.end_call(number, is_clean=is_clean)
    return SandboxResult(
        value=value,
        error=failed,
        printed="".join(conversation.printed),
        seconds=time.monotonic() - started,
        host_calls=calls.requests,
    )


def _request(
    code: str,
    arguments: Mapping[str, Any],
    helpers: Mapping[str, str],
    limits: Limits,
    host: HostFunctions,
    only_load: bool,
) -> bytes:
    asked = {
        "code": code,
        "arguments": dict(arguments),
        "helpers": dict(helpers),
        "only_load": only_load,
        "timezone": host.timezone,
        "limits": {"memory": limits.memory, "seconds": limits.seconds, "output": limits.output},
    }
    return json.dumps(asked, allow_nan=False).encode() + b"\n"


class _Conversation:
    """Exchange of messages over the socket of one call."""

    def __init__(
        self, channel: socket.socket, calls: HostCalls, limits: Limits, deadline: float, stopped: threading.Event
    ) -> None:
        self._channel = channel
        self._calls = calls
        self._limits = limits
        self._deadline = deadline
        self._stopped = stopped
        self._buffer = bytearray()
        self._lines = deque[bytearray]()
        self._remaining = 2 * limits.output + SLACK
        self._messages = JsonMessages(MOST_VALUES, most_values_of_one=MOST_VALUES_OF_MESSAGE)
        self._printable = limits.output
        self.printed: list[str] = []
        #: True once the call ended by itself, and in order.
        self.is_over = False

    def held(self, request: bytes) -> str:
        """The result as JSON text. Raises FullEnded."""
        self._channel.setblocking(False)
        with selectors.DefaultSelector() as self._selector:
            self._selector.register(self._channel, selectors.EVENT_READ)
            self._send(request)
            while True:
                message = self._message()
                if "printed" in message:
                    self._print(message["printed"])
                elif "call" in message:
                    self._send(json.dumps(self._answer(message)).encode() + b"\n")
                elif "result" in message:
                    self.is_over = True
                    if not isinstance(message["result"], str):
                        raise FullEnded(_broken_off())
                    return message["result"]
                elif "error" in message:
                    raise FullEnded(self._error(message["error"]))
                else:
                    raise FullEnded(self._exit(message.get("exit")))

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._channel.send(view) :]
            except BlockingIOError:
                self._selector.modify(self._channel, selectors.EVENT_WRITE)
                self._wait()
                self._selector.modify(self._channel, selectors.EVENT_READ)

    def _message(self) -> dict[str, Any]:
        """Return the next message of the sandbox. Raises FullEnded where it ends, writes too much or takes too long."""
        while not self._lines:
            self._wait()
            try:
                chunk = self._channel.recv(262_144)
            except BlockingIOError:
                continue
            if not chunk:
                raise FullEnded(self._exit(None))
            self._remaining -= len(chunk)
            if self._remaining < 0:
                raise FullEnded(RunError("Output", f"It wrote more than {self._limits.output:,} bytes."))
            self._buffer += chunk
            if b"\n" in chunk:
                *lines, rest = self._buffer.split(b"\n")
                self._lines += lines
                self._buffer = rest
        if time.monotonic() >= self._deadline:
            raise FullEnded(self._too_long())
        try:
            message = self._messages.load(self._lines.popleft())
        except TooMuchJson as error:
            raise FullEnded(RunError("Output", f"What it sent {error}.")) from None
        except JsonRefused:
            message = None
        if not isinstance(message, dict):
            raise FullEnded(_broken_off())
        return message

    def _wait(self) -> None:
        """Wait until the socket is ready. Raises FullEnded at the deadline, and when stopped."""
        while True:
            remaining = self._deadline - time.monotonic()
            if remaining <= 0:
                raise FullEnded(self._too_long())
            if self._stopped.is_set():
                raise FullEnded(RunError("Stopped", "The run was stopped."))
            if self._selector.select(min(LOOK_EVERY, remaining)):
                return

    def _print(self, text: Any) -> None:
        if isinstance(text, str) and self._printable > 0:
            self.printed.append(text[: self._printable])
            self._printable -= len(self.printed[-1])

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a call of one of the service's functions. Raises FullEnded beyond its limits."""
        name, arguments = message.get("call"), message.get("arguments")
        if name not in ("http_get", "http_post") or not isinstance(arguments, list):
            return {"error": ("ValueError", "There is no such function.")}
        try:
            return {"value": self._calls.call(str(name), arguments, {})}
        except TooManyCalls as error:
            raise FullEnded(RunError("HostCalls", str(error))) from None
        except OutOfTime:
            raise FullEnded(self._too_long()) from None
        except OSError as error:
            return {"error": ("OSError", str(error))}
        except (TypeError, ValueError) as error:
            return {"error": (type(error).__name__, str(error))}

    def _too_long(self) -> RunError:
        return RunError("Timeout", f"It took longer than {duration(self._limits.seconds)}.")

    def _error(self, error: Any) -> RunError:
        """Return the error that the code raised, as it says itself: text from outside."""
        self.is_over = True
        fields = (
            {name: error.get(name, "") for name in ("kind", "message", "module")} if isinstance(error, dict) else {}
        )
        if not fields or not all(isinstance(each, str) for each in fields.values()):
            return _broken_off()
        kind, line = fields["kind"][:100], error.get("line")
        line_number = line if isinstance(line, int) and 0 < line < 1_000_000 else None
        if kind == "MemoryError":
            return RunError("Memory", f"It held more than {self._limits.memory // 1_000_000:,} MB.", line_number)
        return RunError(kind, fields["message"][:2_000], line_number, module=fields["module"][:64])

    def _exit(self, status: Any) -> RunError:
        if time.monotonic() >= self._deadline:
            return self._too_long()
        if status == 0:
            return RunError("Crashed", "The code ended its process before `run` returned.")
        signals = {
            -9: "it was killed",
            -11: "it read or wrote where nothing is",
            -24: "it took too much processor time",
        }
        why = signals.get(status, "it crashed") if isinstance(status, int) else "it crashed"
        return RunError("Crashed", f"The code's process ended: {why}.")


def _broken_off() -> RunError:
    return RunError("Crashed", "The code broke off the conversation with the service.")
