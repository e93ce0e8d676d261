"""Start of bubblewrap: never as root of the machine, and behind everything else that wants the processor.

A service that runs as root starts each sandbox as a user of the organisation's own. Files that this user cannot reach
(a Python below /root, a workspace) are shown to the sandbox alone, at a mount point that everybody may pass through.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from capabilities.running.sandbox.values import NICE

#: The user of organisation 0, where the service runs as root; that of another has its key added. Nobody else's.
FIRST_USER = 1_879_048_192
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
#: Options of bubblewrap that show a file or folder of the machine: source, then target.
BINDS = ("--bind", "--ro-bind")
_libc = ctypes.CDLL(None, use_errno=True)


class CannotLaunch(Exception):
    """Error of a machine that does not let the service start a sandbox; the message says why."""


def user_of(organisation_id: int) -> int | None:
    """The user that the organisation's sandboxes run as; None where the service is not root: then its own."""
    return FIRST_USER + organisation_id if os.geteuid() == 0 else None


@contextlib.contextmanager
def launched(
    bwrap: str,
    arguments: Sequence[str],
    command: Sequence[str],
    *,
    user: int | None,
    then: Callable[[], None] = lambda: None,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in bubblewrap, as this user, and call `then` in the child before. Raises CannotLaunch.

    The process is the caller's to end. It has begun by the end of the block: what it was shown is no longer needed.
    """
    with contextlib.ExitStack() as stack:
        shown = _Shown(list(arguments))
        if user is not None:
            shown = stack.enter_context(_shown(arguments))
        # Opened here: the sandbox's user need not be let into the folders above it.
        program = stack.enter_context(opened(bwrap, os.O_PATH))
        file = stack.enter_context(_arguments_file(shown.arguments))
        steps: list[Callable[[], object]] = [partial(os.nice, NICE)]
        if user is not None:
            steps += [shown.mount, partial(_become, user)]
        steps += [then, partial(os.set_inheritable, program, False)]  # the sandbox holds no file of the machine
        try:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                # The arguments come by a file: a command line can be read by every process of the machine.
                [f"/proc/self/fd/{program}", "--args", str(file), "--", *command],
                env={},
                pass_fds=[program, file],
                preexec_fn=partial(_each, steps),
                **options,
            )
        except subprocess.SubprocessError as error:
            raise CannotLaunch("this machine gives the sandbox no user of its own") from error
        yield process


@contextlib.contextmanager
def opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """A descriptor of the file, closed at the end of the block. Raises OSError."""
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Shown:
    """Arguments of bubblewrap whose sources the sandbox's user can reach, and what is mounted for that first."""

    arguments: list[str]
    mounts: list[tuple[bytes, bytes]] = field(default_factory=list)

    def mount(self) -> None:
        """Show each source at its mount point, in the child and to this process alone."""
        if not self.mounts:
            return
        _must(_libc.unshare(CLONE_NEWNS))
        _must(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
        for source, target in self.mounts:
            _must(_libc.mount(source, target, None, MS_BIND | MS_REC, None))


@contextlib.contextmanager
def _shown(arguments: Sequence[str]) -> Iterator[_Shown]:
    with tempfile.TemporaryDirectory(prefix="toolhub-sandbox-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)  # noqa: S103 -- what is in it is empty
        shown = _Shown(list(arguments))
        for index in range(1, len(arguments)):
            if arguments[index - 1] in BINDS and not is_reachable(arguments[index]):
                target = Path(folder) / str(index)
                target.mkdir() if os.path.isdir(arguments[index]) else target.touch()
                shown.mounts.append((arguments[index].encode(), os.fsencode(target)))
                shown.arguments[index] = str(target)
        yield shown


def is_reachable(path: str) -> bool:
    """Return whether every user may pass through all folders above the file."""
    folders = [folder for folder in Path(os.path.realpath(path)).parents if folder.exists()]
    return all(folder.stat().st_mode & 0o001 for folder in folders)


@contextlib.contextmanager
def _arguments_file(arguments: Sequence[str]) -> Iterator[int]:
    """A file with these arguments, open at its beginning."""
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(each.encode() + b"\0" for each in arguments))
        file.seek(0)
        yield file.fileno()


# -- In the child, before the sandbox begins: system calls, and nothing that could wait for another thread -----------


def _each(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _must(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "A system call was refused")
