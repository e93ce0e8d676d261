"""Ends a benchmark with all that it started, however it is asked to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

#: What a shell reports of a program that Ctrl-C ended.
INTERRUPTED = 130


def to_its_end(main: Callable[[], int]) -> int:
    """The exit code of `main`. SIGTERM is taken as Ctrl-C is: what `main` started is ended on the way out.

    A program that a shell starts in the background ignores Ctrl-C unless it says otherwise.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
