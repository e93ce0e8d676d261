"""Exceptions that a model call ends with where there is no reply. Knows no HTTP.

ModelError            the call failed for good; `code` goes to the turn
├── ModelBusy         the provider asks to come back later than a thread should wait
└── ModelRefused      the provider does not take the request as it is
    ├── SearchRefused it does not search tools: the turn goes on with tools that load others
    └── ToolsRefused  it does not take the definitions of some tools: the turn goes on without them
CallStopped           the turn was cancelled, ran out of time, or changed hands
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.loop.clients.refusals import Refusal


class ModelError(Exception):
    """The model call failed for good."""

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        #: Seconds after which the provider says that another try is worth it.
        self.retry_after = retry_after


class ModelBusy(ModelError):
    """The provider asks to be left alone for `wait` seconds."""

    def __init__(self, code: str, message: str, wait: float) -> None:
        super().__init__(code, message, wait)
        self.wait = wait


class ModelRefused(ModelError):
    """The request was refused before anything was answered."""

    def __init__(self, code: str, message: str, refusal: Refusal) -> None:
        super().__init__(code, message)
        self.refusal = refusal


class SearchRefused(ModelRefused):
    """The provider does not search tools."""


class ToolsRefused(ModelRefused):
    """The provider does not take the definitions of the tools `names`."""

    def __init__(self, refused: ModelRefused, names: Sequence[str]) -> None:
        super().__init__(refused.code, str(refused), refused.refusal)
        self.names = tuple(names)


class CallStopped(Exception):
    """Raised where nobody waits for this answer any more."""
