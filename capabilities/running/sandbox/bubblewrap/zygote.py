"""Zygote, which runs inside of the sandbox: it waits for calls of one organisation, and forks a process for each.

Started by bubblewrap with `python -I -S`, in namespaces of its own (users, processes, network, mounts, names) where
nothing is but Python's own library, read-only. Each call gets, before a line of its code is read: a process and a
message namespace of its own, in which it is number one and sees nobody else; an empty /tmp in memory; limits on memory,
processor time, files and their size; no capability; and a filter that lets through the system calls that plain Python
needs, and none that starts a process or a thread, opens a socket, mounts, or looks into another process.

Messages to this process come on the control socket (file 0), as JSON: {"call": number} with the call's own socket, and
{"kill": number}. It imports nothing of the service, and knows no secret.
"""

from __future__ import annotations

# What tools import most: loaded once, and there in each fork.
import base64  # noqa: F401
import ctypes
import datetime
import hashlib  # noqa: F401
import importlib.util
import io
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
import types
import zoneinfo
from typing import Any

CONTROL = 0
TMP = "/tmp"  # noqa: S108 -- in a mount namespace of its own
#: Bytes of the interpreter itself, before a tool holds anything.
BASE_MEMORY = 128_000_000
TMP_BYTES = 16_000_000
TMP_FILES = 2_000
OPEN_FILES = 64

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38

# -- The filter of system calls ---------------------------------------------------------------------------------------

#: Name -> number on x86-64 and on ARM 64; None where there is none.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222),
    "munmap": (11, 215), "brk": (12, 214), "futex": (202, 98), "newfstatat": (262, 79), "openat": (257, 56),
    "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233), "clock_gettime": (228, 113),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "ioctl": (16, 29), "fcntl": (72, 25), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65),
    "writev": (20, 66), "getrandom": (318, 278), "getdents64": (217, 61), "exit_group": (231, 94), "exit": (60, 93),
    "open": (2, None), "stat": (4, None), "lstat": (6, None), "access": (21, None), "readlink": (89, None),
    "statx": (332, 291), "faccessat": (269, 48), "faccessat2": (439, 439), "readlinkat": (267, 78),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "socketpair": (53, 199), "sendto": (44, 206), "recvfrom": (45, 207), "shutdown": (48, 210),
    "getsockopt": (55, 209), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178),
    "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "uname": (63, 160),
    "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "truncate": (76, 45), "ftruncate": (77, 46), "fsync": (74, 82),
    "fdatasync": (75, 83), "flock": (73, 32), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "utimensat": (280, 88), "getrusage": (98, 165), "setitimer": (38, 103), "alarm": (37, None),
    "set_robust_list": (273, 99), "rseq": (334, 293), "restart_syscall": (219, 128),
}  # fmt: skip
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
CLONE3 = 435
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06


def filter_program() -> bytes:
    """The filter as the kernel reads it: all that is not on the list is refused."""
    architecture, column = ARCHITECTURES[platform.machine()]
    steps = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),
        (AT_LEAST, 0, 1, 0x40000000),  # numbers of another calling convention
        (RETURN, 0, 0, KILL),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, ERRNO | ENOSYS),
    ]
    for numbers in CALLS.values():
        number = numbers[column]
        if number is not None:
            steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, ERRNO | EPERM))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def set_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    whole = _Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _must(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(whole), 0, 0))


def drop_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    _must(libc.capset(header, bytes(24)))


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# -- Waiting for calls -------------------------------------------------------------------------------------------------


def main() -> None:
    """Fork a child for each call that the service sends, end calls that it names, and all of them when it is gone."""
    _must(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    control = socket.socket(fileno=os.dup(CONTROL))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    program = filter_program()
    calls: dict[int, int] = {}
    control.send(b"ready")
    while True:
        select.select([control], [], [], 1.0)
        _reap(calls)
        try:
            data, files, _, _ = socket.recv_fds(control, 65_536, 4, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not data:  # the service is gone
            break
        message = json.loads(data)
        if "call" in message and files:
            calls[message["call"]] = _forked(control, files[0], program)
        elif message.get("kill") in calls:
            os.kill(calls[message["kill"]], signal.SIGKILL)
        for file in files:
            os.close(file)
    for pid in calls.values():
        os.kill(pid, signal.SIGKILL)


def _reap(calls: dict[int, int]) -> None:
    for number, pid in list(calls.items()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del calls[number]


def _forked(control: socket.socket, channel: int, program: bytes) -> int:
    """Start the two processes of one call, and return the number of the outer one: with it, both end."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        control.close()
        _must(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC))
        options = f"size={TMP_BYTES},nr_inodes={TMP_FILES},mode=0700".encode()
        _must(libc.mount(b"tmpfs", TMP.encode(), b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
        inner = os.fork()
        if inner == 0:
            _must(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
            call(channel, program)
            os._exit(0)
        drop_capabilities()
        status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        os.write(channel, json.dumps({"exit": status}).encode() + b"\n")
    finally:
        os._exit(0)


# -- One call ----------------------------------------------------------------------------------------------------------


class Channel:
    """Lines of JSON to the service and from it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._buffer = b""

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]

    def receive(self) -> dict[str, Any]:
        """Return the next message; the process ends where the other side is gone."""
        while b"\n" not in self._buffer:
            chunk = os.read(self._file, 1_000_000)
            if not chunk:
                os._exit(0)
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Output:
    """Output stream of the code, cut at the limit."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel = channel
        self._remaining = limit

    def write(self, text: str) -> int:
        part = str(text)[: max(0, self._remaining)]
        if part:
            self._remaining -= len(part)
            self._channel.send({"printed": part})
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return False


def call(file: int, program: bytes) -> None:
    """Read what to run, give everything up, and run it."""
    channel = Channel(file)
    request = channel.receive()
    limits = request["limits"]
    os.chdir(TMP)
    os.environ.clear()
    os.environ.update({"TZ": request["timezone"], "HOME": TMP, "TMPDIR": TMP, "LC_ALL": "C.UTF-8"})
    time.tzset()
    for name, bound in (
        (resource.RLIMIT_AS, limits["memory"] + BASE_MEMORY),
        (resource.RLIMIT_CPU, int(limits["seconds"]) + 2),
        (resource.RLIMIT_FSIZE, TMP_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(name, (bound, bound))
    drop_capabilities()
    set_filter(program)
    sys.stdin = io.StringIO()
    sys.stdout = sys.stderr = Output(channel, limits["output"])
    channel.send(outcome(channel, request))


def outcome(channel: Channel, request: dict[str, Any]) -> dict[str, Any]:
    """The result as JSON text, or the error with its line."""
    try:
        module = types.ModuleType("tool")
        module.__dict__.update(host_functions(channel))
        sys.modules["tool"] = module
        sys.meta_path.insert(0, Helpers(request["helpers"], host_functions(channel)))
        exec(compile(request["code"], "<tool>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 -- what it is for
        if request["only_load"]:
            return {"result": "null"}
        value = module.__dict__["run"](**request["arguments"])
    except BaseException as error:
        return {"error": described(error)}
    try:
        return {"result": json.dumps(value, allow_nan=False)}
    except BaseException as error:
        return {"error": {"kind": "Result", "message": str(error)[:500], "line": None, "module": ""}}


def described(error: BaseException) -> dict[str, Any]:
    """Return the error's name, its message, and the line of the code that it comes from."""
    line, module = None, ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == "<tool>":
            line, module = frame.lineno, ""
    if line is None and isinstance(error, SyntaxError):
        line = error.lineno
        module = (error.filename or "").removeprefix("<module ").removesuffix(">") if error.filename != "<tool>" else ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return {"kind": type(error).__name__, "message": message[:2_000], "line": line, "module": module}


class Helpers:
    """Finder of the organisation's helper modules before Python's own."""

    def __init__(self, code: dict[str, str], functions: dict[str, Any]) -> None:
        self._code = code
        self._functions = functions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name in self._code else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__dict__.update(self._functions)
        name = module.__name__
        code = compile(self._code[name], f"<module {name}>", "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 -- what it is for


def host_functions(channel: Channel) -> dict[str, Any]:
    """Return the functions that the other runtime has too, by name: two ask the service, two are answered here. They
    raise ValueError, TypeError or OSError as the service says."""

    def asked(name: str, *arguments: Any) -> Any:
        channel.send({"call": name, "arguments": arguments})
        answer = channel.receive()
        if "error" in answer:
            kind, message = answer["error"]
            raise {"TypeError": TypeError, "ValueError": ValueError}.get(kind, OSError)(message)
        return answer["value"]

    def http_get(url: str, params: Any = None, headers: Any = None) -> dict[str, Any]:
        return asked("http_get", url, params, headers)  # type: ignore[no-any-return]

    def http_post(url: str, body: Any = None, params: Any = None, headers: Any = None) -> dict[str, Any]:
        text = body.decode("utf-8", "replace") if isinstance(body, bytes | bytearray) else body
        return asked("http_post", url, text, params, headers)  # type: ignore[no-any-return]

    def zone_named(name: Any) -> zoneinfo.ZoneInfo:
        try:
            return zoneinfo.ZoneInfo(name)
        except Exception:
            raise ValueError(f'unknown time zone {name!r}; it must be a name such as "Europe/Berlin"') from None

    def now_in(zone: str) -> datetime.datetime:
        return datetime.datetime.now(zone_named(zone))

    def in_zone(moment: datetime.datetime, zone: str) -> datetime.datetime:
        to = zone_named(zone)
        return moment.replace(tzinfo=to) if moment.tzinfo is None else moment.astimezone(to)

    return {"http_get": http_get, "http_post": http_post, "now_in": now_in, "in_zone": in_zone}


if __name__ == "__main__":
    main()
