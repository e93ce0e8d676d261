"""Runner of shell commands of an organisation, in namespaces of their own: its workspace, and the machine's programs to
read.

No network, no other file, no environment, no capability, no process of the machine. The kernel bounds how many
processes there are: it counts them for a user, and never for root. So a service that runs as root starts the sandbox as
a user of the organisation's own, which then owns the workspace. A watch ends the whole sandbox when its processes hold
too much memory together, write too much, or take too long.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

from capabilities.running.sandbox.bubblewrap import launch
from capabilities.running.sandbox.bubblewrap.launch import opened
from capabilities.running.sandbox.bubblewrap.program import MISSING, program
from toolhub.durations import duration

#: Limits of one command: processes at once, bytes of memory in all, of one process's address space, of one file,
#: of /tmp, of its output; open files.
MOST_PROCESSES = 64
MEMORY = 512_000_000
ADDRESS_SPACE = 2_000_000_000
FILE_BYTES = 100_000_000
TMP_BYTES = 64_000_000
OUTPUT_BYTES = 1_000_000
OPEN_FILES = 256
#: Bytes of the workspace's disk that commands leave to everybody else.
DISK_LEFT = 500_000_000
#: Folders below one another whose files are made the sandbox's user's; the service writes nothing deeper.
DEEPEST = 32
#: Seconds between looks of the watch.
LOOK_EVERY = 0.1
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
#: Settings of programs that many of them read, and that say nothing of this machine.
FILES = ("/etc/alternatives", "/etc/mime.types", "/etc/ssl/certs")
PATH = "/usr/local/bin:/usr/bin:/bin"
WORKSPACE = "/workspace"


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ShellUnavailable(Exception):
    """Reason why commands cannot run here; the message is a sentence that says it."""


class _Over(Exception):
    """Reason why a command has to end; the message is a sentence that says it."""


@dataclass(frozen=True)
class _Bounds:
    """Bounds at which a command has to end, whatever it does."""

    seconds: float
    deadline: float
    stopped: threading.Event

    def check(self) -> None:
        """Raise _Over at the deadline, and when the turn was stopped."""
        if time.monotonic() >= self.deadline:
            raise _Over(f"It was ended after {duration(self.seconds)}.")
        if self.stopped.is_set():
            raise _Over("It was ended because the turn was stopped.")


@dataclass(frozen=True)
class ShellResult:
    """Result of a command: output and errors in one, and how it ended: its exit status, or why it was ended."""

    output: str
    status: int
    #: Empty where the command ended by itself.
    ended: str = ""
    is_cut: bool = False


def run_shell(
    command: str, workspace: Path, *, organisation_id: int, seconds: float, stopped: threading.Event
) -> ShellResult:
    """Run the command with the workspace as its folder. Raises ShellUnavailable where it cannot be kept apart."""
    why = why_unavailable()
    if why:
        raise ShellUnavailable(why)
    return _run(command, workspace, organisation_id, seconds=seconds, stopped=stopped)


@cache
def _why_not(is_allowed: bool) -> str:
    if not is_allowed:
        return "Commands are switched off: the operator of the installation sets TOOLHUB_SHELL=1 to allow them."
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = _run(PROBE, Path(folder), 0, seconds=10.0, stopped=threading.Event())
    except ShellUnavailable as error:
        return str(error)
    if (result.output.split(), result.status) != (["apart"], 0):
        return "Commands cannot be kept apart from this machine, so they do not run."
    return ""


def why_unavailable() -> str:
    """Return why no command can run here; "" where they can. Tried once in each process, in a part of a second."""
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


def _run(
    command: str, workspace: Path, organisation_id: int, *, seconds: float, stopped: threading.Event
) -> ShellResult:
    bwrap = program()
    if bwrap is None:
        raise ShellUnavailable(f"{MISSING}.")
    bounds = _Bounds(seconds, time.monotonic() + seconds, stopped)
    workspace.mkdir(parents=True, exist_ok=True)
    user = launch.user_of(organisation_id)
    if user is not None:
        try:
            _give(workspace, user, bounds)
        except _Over as over:
            return ShellResult("", -1, str(over))
    try:
        return _launched(bwrap, command, workspace, user, bounds)
    except launch.CannotLaunch as why:
        raise ShellUnavailable(f"Commands cannot run here: {why}.") from why


def _launched(bwrap: str, command: str, workspace: Path, user: int | None, bounds: _Bounds) -> ShellResult:
    """Raises CannotLaunch."""
    with (
        tempfile.TemporaryFile() as output,
        launch.launched(
            bwrap,
            _arguments(str(workspace.resolve())),
            ["/bin/sh", "-c", command],
            user=user,
            then=_limits(os.geteuid() if user is None else user),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        ended = ""
        try:
            _watch(process, output.fileno(), workspace, bounds)
        except _Over as over:
            ended = str(over)
        finally:
            _end(process)
        output.seek(0)
        data = output.read(OUTPUT_BYTES + 1)
    text = data[:OUTPUT_BYTES].decode("utf-8", "replace")
    return ShellResult(text, process.returncode, ended, is_cut=len(data) > OUTPUT_BYTES)


def _give(workspace: Path, user: int, bounds: _Bounds) -> None:
    """Make the folder and everything in it the user's: links themselves, and not what they lead to. Raises _Over."""
    with opened(str(workspace), FOLDER & ~os.O_NOFOLLOW) as folder:
        _give_below(folder, user, DEEPEST, bounds)
        os.chown(folder, user, user)


def _give_below(folder: int, user: int, depth: int, bounds: _Bounds) -> None:
    """Give the user all below the folder, no deeper than so many folders: each that is open takes two descriptors of
    the service."""
    with os.scandir(folder) as entries:
        for entry in entries:
            bounds.check()
            # Gone, or another thing, since it was looked at: a command of the same organisation may run beside.
            with contextlib.suppress(OSError):
                status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                if status.st_uid != user:
                    os.chown(entry.name, user, user, dir_fd=folder, follow_symlinks=False)
                if depth > 1 and stat.S_ISDIR(status.st_mode):
                    with opened(entry.name, FOLDER, folder) as below:
                        _give_below(below, user, depth - 1, bounds)


def _tasks_of(user: int) -> int:
    """Count the processes and threads of the user now: the kernel counts these as well."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _limits(user: int) -> Callable[[], None]:
    """Return a function that sets the limits, for MOST_PROCESSES beside what the user runs now."""
    limits = (
        (resource.RLIMIT_NPROC, _tasks_of(user) + MOST_PROCESSES),
        (resource.RLIMIT_AS, ADDRESS_SPACE),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    )

    def limit() -> None:
        for name, most in limits:
            hard = resource.getrlimit(name)[1]
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(name, (bound, bound))

    return limit


def _arguments(workspace: str) -> Sequence[str]:
    """Return the arguments of bubblewrap for a command in this workspace."""
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
    found += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--bind", workspace, WORKSPACE]  # noqa: S108
    for name, value in {"PATH": PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}.items():  # noqa: S108
        found += ["--setenv", name, value]
    return [*found, "--remount-ro", "/", "--chdir", WORKSPACE]


def _watch(process: subprocess.Popen[bytes], output: int, workspace: Path, bounds: _Bounds) -> None:
    """Watch until the command has ended by itself. Raises _Over where it has to be ended."""
    while process.poll() is None:
        bounds.check()
        if os.fstat(output).st_size > OUTPUT_BYTES:
            raise _Over(f"It was ended because it wrote more than {OUTPUT_BYTES:,} bytes.")
        if _memory_of(process.pid) > MEMORY:
            raise _Over(f"It was ended because it held more than {MEMORY // 1_000_000:,} MB of memory.")
        if _disk_left(workspace) < DISK_LEFT:
            raise _Over(f"It was ended because less than {DISK_LEFT // 1_000_000:,} MB of the disk were left.")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY)


def _disk_left(workspace: Path) -> int:
    """Return the bytes that can still be written where the workspace is."""
    found = os.statvfs(workspace)
    return found.f_bavail * found.f_frsize


def _memory_of(pid: int) -> int:
    """Return the bytes that this process and those below it hold in memory together."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # "pid (name) state ppid ...": a name may hold anything, so the last parenthesis ends it.
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
                pages[int(name)] = int(fields[21])
    below, open_ones = list[int](), [pid]
    while open_ones:
        each = open_ones.pop()
        below.append(each)
        open_ones += children.get(each, ())
    return sum(pages.get(each, 0) for each in below) * resource.getpagesize()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the sandbox: with the first process of its namespace, all others go."""
    if process.poll() is None:
        process.kill()
    process.wait()
