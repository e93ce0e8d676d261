"""Parts of this machine that the sandbox is given: Python's own library and the files that it needs, read-only."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capabilities.running.sandbox.bubblewrap.program import MISSING, program

ZYGOTE = Path(__file__).with_name("zygote.py")
#: Path of the file inside.
INSIDE = "/zygote.py"
#: Loads every extension module of the library, and names the files that are mapped then.
SCRIPT = """
import importlib, os, sys
folder = sys.argv[1]
for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
    module = name.partition(".")[0]
    if name.endswith(".so") and not module.startswith(("_test", "xx", "_xx", "_tkinter", "_curses", "readline", "nis")):
        try:
            importlib.import_module(module)
        except Exception:
            pass
mapped = [line.split(None, 5) for line in open("/proc/self/maps")]
for file in sorted({parts[5].strip() for parts in mapped if len(parts) == 6}):
    if file.startswith("/"):
        print(file)
"""
#: Parts of the library that nobody's tool needs; some are large.
LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
ZONES = Path("/usr/share/zoneinfo")


class Missing(Exception):
    """Lack of something that the sandbox needs on this machine; the message names it."""


@dataclass(frozen=True)
class Sandbox:
    """Command that starts a zygote: bubblewrap's path and arguments, and the command inside."""

    bwrap: str
    arguments: tuple[str, ...]
    command: tuple[str, ...]


@cache
def sandbox() -> Sandbox:
    """Return the way to start a zygote here. Raises Missing. Starts Python once, the first time."""
    if sys.platform != "linux":
        raise Missing("it needs Linux")
    bwrap = program()
    if bwrap is None:
        raise Missing(MISSING)
    python = os.path.realpath(sys.executable)
    library = Path(os.path.realpath(sysconfig.get_path("stdlib")))
    arguments = [
        # Namespaces: users, processes, network, messages, host name, control groups; no further ones of users inside.
        *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"),
        # The zygote gives each call a /tmp of its own, for which it needs this one; the calls have none.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"),
    ]
    for file in _libraries(python, library):
        arguments += ["--ro-bind", file, file]
    arguments += ["--ro-bind", str(library), str(library)]
    for name in LEFT_OUT:
        if (library / name).is_dir():
            arguments += ["--tmpfs", str(library / name)]
    for link in ("/lib", "/lib64", "/usr/lib64"):
        if os.path.islink(link):
            arguments += ["--symlink", os.readlink(link), link]
    zones = _zones()
    if zones:
        arguments += ["--ro-bind", zones, str(ZONES)]
    for device in DEVICES:
        arguments += ["--dev-bind", device, device]
    arguments += ["--dir", "/tmp", "--ro-bind", str(ZYGOTE), INSIDE, "--chdir", "/", "--remount-ro", "/"]  # noqa: S108
    return Sandbox(bwrap, tuple(arguments), (python, "-I", "-S", "-B", INSIDE))


def _libraries(python: str, library: Path) -> list[str]:
    """The interpreter and every file that it maps, under each name by which the loader may ask for it."""
    listed = subprocess.run(
        [python, "-I", "-S", "-B", "-c", SCRIPT, str(library / "lib-dynload")],
        env={"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if listed.returncode:
        raise Missing("the files of Python could not be listed")
    found = {python}
    for line in listed.stdout.splitlines():
        file = Path(line)
        if not file.is_file() or library in file.parents:
            continue
        found.add(line)
        with os.scandir(file.parent) as entries:
            for entry in entries:
                if entry.is_symlink() and ".so" in entry.name and os.path.realpath(entry.path) == line:
                    found.add(entry.path)
    # The loader of programs is asked for by a name of its own, such as /lib64/ld-linux-x86-64.so.2.
    for loader in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        if os.path.exists(loader):
            folder = os.path.realpath(os.path.dirname(loader))
            found.add(os.path.join(folder, os.path.basename(loader)))
    return sorted(found)


def _zones() -> str:
    """Return the folder of time zones on this machine, or empty."""
    if ZONES.is_dir():
        return str(ZONES)
    packaged = Path(sysconfig.get_path("purelib")) / "tzdata" / "zoneinfo"
    return str(packaged) if packaged.is_dir() else ""
