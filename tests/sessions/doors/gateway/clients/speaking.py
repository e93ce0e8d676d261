"""What a client's process and the test say to each other: a JSON line for each task, and one for what came of it.

Each client runs in a process of its own: its imports, warnings and telemetry are none of the tests'.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Task:
    """Ask the model `model` these questions, in one conversation, with the address and token of the service."""

    base_url: str
    token: str
    model: str = "helper"
    questions: tuple[str, ...] = ("What about Bonn?",)
    #: The name of the client's own tool, which takes a town and tells its weather.
    tool: str = ""
    streams: bool = False
    #: By which address: chat completions or responses.
    api: str = "chat"
    #: Leave before the answer: behind the first piece of a stream, else when PATIENCE is over.
    leaves: bool = False

    @property
    def patience(self) -> float | None:
        """Seconds for an answer that is no stream; None where there is time."""
        return PATIENCE if self.leaves and not self.streams else None


@dataclass
class Shown:
    """What a user of the client saw."""

    text: str = ""
    #: The towns that its own tool was asked for.
    towns: list[str] = field(default_factory=list)
    #: Tokens of the last answer, as the client counts them.
    tokens: int = 0
    #: The HTTP status of the error that was raised; 0 where it has none, as an error in the middle of a stream.
    error: int | None = None
    message: str = ""


Answer = Callable[[Task, Shown], None]
WEATHER = "rain"
PATIENCE = 1.5


def answer_tasks(answer: Answer) -> None:
    """Answer each task of stdin, until it ends. What the library prints is no part of it."""
    told, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        shown = Shown()
        try:
            answer(Task(**json.loads(line)), shown)
        except Exception as error:
            shown.error, shown.message = _status_of(error), f"{type(error).__name__}: {error}"
        print(json.dumps(asdict(shown)), file=told, flush=True)


def _status_of(error: BaseException | None) -> int:
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return 0
