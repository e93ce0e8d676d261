"""Inputs and outputs of a run of Python: limits, host functions, results, problems. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Runtime = Literal["monty", "full"]
RUNTIMES: tuple[Runtime, ...] = ("monty", "full")

#: Characters of code that is taken: a tool's, and of each helper module.
MAX_CODE = 100_000
#: Niceness by which a sandbox stands behind the service's own processes when both want the processor.
NICE = 10


@dataclass(frozen=True)
class Limits:
    """Limits of one run. Whatever is over them is an error of the run, never of the service."""

    #: Wall time of all, waits for host functions included.
    seconds: float = 10.0
    #: Bytes that the code may hold at once.
    memory: int = 128_000_000
    #: Bytes of the result as JSON, and of what is printed.
    output: int = 1_000_000
    #: Requests to the web.
    host_calls: int = 10


@dataclass(frozen=True)
class HttpAnswer:
    """Answer that `http_get` and `http_post` return to the code, as a dictionary of these names."""

    status: int
    headers: Mapping[str, str]
    body: str


class HostError(Exception):
    """Failure of a host function: the code gets an OSError with this sentence."""


class Http(Protocol):
    """Function that asks the web for the code. `timeout` is what is left of the run. Raises HostError."""

    def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None, timeout: float
    ) -> HttpAnswer: ...


def no_http(method: str, url: str, *, headers: Mapping[str, str], content: bytes | None, timeout: float) -> HttpAnswer:
    """Refuse every request, for a run that may ask nothing of the web. It raises HostError."""
    raise HostError("This run cannot reach the web.")


@dataclass(frozen=True)
class HostFunctions:
    """Functions of the service that the code may call: those named in `describe_runtime`, and no others."""

    http: Http = no_http
    #: The organisation's time zone, in which `datetime.now()` of the code answers.
    timezone: str = "UTC"


@dataclass(frozen=True)
class Problem:
    """One thing that keeps code from being a tool. `advice` says what to write instead, or is empty."""

    line: int | None
    column: int | None
    message: str
    advice: str = ""
    #: True where the code cannot be saved with it. A doubt of the type check is shown, and blocks nothing.
    blocks: bool = True

    def __str__(self) -> str:
        where = f"Line {self.line}: " if self.line else ""
        return " ".join(part for part in (f"{where}{self.message}", self.advice) if part)


@dataclass(frozen=True)
class RunError:
    """Reason why a run has no value.

    `kind` is the name of the exception, such as ValueError; `Timeout`, `Memory`, `Output`, `HostCalls`, `Stopped` and
    `Crashed` for a limit; `Result` for a value that is not JSON; `Busy` and `Unavailable` where it did not run at all.
    """

    kind: str
    message: str
    #: Line of the tool's code, counted from 1; None where it is not of a line, or of another module.
    line: int | None = None
    advice: str = ""
    #: The helper module whose line it is, or empty.
    module: str = ""

    def __str__(self) -> str:
        """One sentence or two for a model: the message as the code raised it, the line, what to write instead."""
        where = f" (line {self.line}{f' of {self.module}' if self.module else ''})" if self.line else ""
        name = f"{self.kind}: " if self.kind not in OUR_KINDS else ""
        return " ".join(part for part in (f"{name}{self.message}{where}", self.advice) if part)


OUR_KINDS = frozenset(
    {"Timeout", "Memory", "Output", "HostCalls", "Stopped", "Crashed", "Result", "Busy", "Unavailable"}
)


@dataclass(frozen=True)
class SandboxResult:
    """Result of one run: `value` as plain JSON, or `error`."""

    value: Any = None
    error: RunError | None = None
    #: Printed text of the code, cut at the limit.
    printed: str = ""
    seconds: float = 0.0
    host_calls: int = field(default=0)

    @property
    def is_ok(self) -> bool:
        return self.error is None
