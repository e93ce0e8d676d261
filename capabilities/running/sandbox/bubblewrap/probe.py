"""Trial of full Python on this machine: a call looks for everything that it must not reach."""

from __future__ import annotations

import threading

from django.conf import settings

from capabilities.running.sandbox.bubblewrap.full import run
from capabilities.running.sandbox.values import HostFunctions, Limits

PROBE_LIMITS = Limits(seconds=10.0)
#: Findings that a call must make, else no call is made.
MUST_HOLD = (
    "no other process",
    "no second process",
    "no second thread",
    "no program",
    "no network",
    "no files of the machine",
    "nothing to write but its own folder",
    "no environment",
    "no capability",
    "no new namespace",
)
PROBE = """
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)

def refused(function):
    try:
        function()
    except (OSError, RuntimeError):
        return True
    return False

def write(path):
    with open(path, "w") as file:
        file.write("x")

def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")

def connect():
    import socket
    socket.create_connection(("127.0.0.1", 9), timeout=1)

def run():
    return {
        "no other process": os.getpid() == 1 and not os.path.exists("/proc/1"),
        "no second process": refused(os.fork) and refused(lambda: os.posix_spawn("/bin/sh", ["sh"], {})),
        "no second thread": refused(lambda: threading.Thread(target=print).start()),
        "no program": refused(lambda: os.execv("/bin/sh", ["sh"])),
        "no network": refused(connect),
        "no files of the machine": not os.path.exists("/etc/passwd") and not os.path.exists("/home"),
        "nothing to write but its own folder": refused(lambda: write("/x")) and os.listdir("/tmp") == [],
        "no environment": set(os.environ) <= {"TZ", "HOME", "TMPDIR", "LC_ALL"},
        "no capability": refused(lambda: must(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))),
        "no new namespace": refused(lambda: must(libc.unshare(0x10000000))),
    }
"""


def why_no_full_python() -> str:
    """Return why full Python cannot run here, tried with a call; "" where it can."""
    if not settings.TOOLHUB_FULL_PYTHON:
        return "Full Python is switched off: the operator sets TOOLHUB_FULL_PYTHON to allow it."
    result = run(
        PROBE, {}, helpers={}, limits=PROBE_LIMITS, host=HostFunctions(), organisation_id=0, stopped=threading.Event()
    )
    if result.error is not None:
        return f"Full Python cannot be isolated here: {result.error}"
    checks = result.value if isinstance(result.value, dict) else {}
    broken = sorted(name for name in MUST_HOLD if checks.get(name) is not True)
    if broken:
        return f"Full Python cannot be isolated here: {', '.join(broken)} does not hold."
    return ""
