"""The system calls that docker-compose.sandbox.yml opens: the kernel holds bubblewrap to them, as Docker would."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from capabilities.running.sandbox.bubblewrap import program as bubblewrap
from capabilities.running.sandbox.bubblewrap import zygote
from tests.isolation import need_isolation, why_no_namespaces
from tests.paths import ROOT

PROFILE = json.loads((ROOT / "docker-compose.sandbox.seccomp.json").read_text())
#: The kernel's names and numbers of system calls, where its headers are installed.
HEADERS = [*Path("/usr/include").glob("*/asm/unistd_64.h"), *Path("/usr/include/asm").glob("unistd_64.h")]
#: Calls that no filter of a container should let through: other processes, the kernel itself, its keys and clock.
REFUSED = {
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "bpf", "perf_event_open"),
    *("userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "add_key", "request_key", "keyctl"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "acct", "quotactl", "syslog", "iopl", "ioperm"),
    *("open_by_handle_at", "fsopen", "fsmount", "move_mount", "open_tree", "mount_setattr", "personality"),
}
#: A process that has no rights takes the filter on, and then starts what is to be tried.
SCRIPT = """
import os, runpy, sys
set_filter = runpy.run_path(sys.argv.pop(1))["set_filter"]
program = bytes.fromhex(sys.argv[1])
os.setgroups([]) if os.geteuid() == 0 else None
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
set_filter(program)
os.execv(sys.argv[2], sys.argv[2:])
"""


def allowed() -> set[str]:
    return {name for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def program(names: set[str]) -> str:
    """The filter that lets these calls through, as the kernel reads it, in hexadecimal digits."""
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADERS[0].read_text()))
    columns = zygote.ARCHITECTURES["x86_64"][1]
    calls = {name: (int(numbers[name]),) * 2 for name in names if name in numbers}
    assert columns == 0
    kept, zygote.CALLS = zygote.CALLS, calls  # type: ignore[assignment]
    try:
        return zygote.filter_program().hex()
    finally:
        zygote.CALLS = kept


def tried(names: set[str]) -> subprocess.CompletedProcess[str]:
    """bubblewrap under a filter of these calls, with what both sandboxes ask of it."""
    bwrap = bubblewrap.program()
    assert bwrap is not None
    spaces = ["--unshare-all", "--unshare-user", "--disable-userns", "--hostname", "sandbox", "--die-with-parent"]
    mounts = ["--ro-bind", "/", "/", "--dev-bind", "/dev/null", "/dev/null", "--tmpfs", "/tmp", "--remount-ro", "/"]
    argv = [
        sys.executable,
        "-c",
        SCRIPT,
        str(zygote.__file__),
        program(names),
        bwrap,
        *spaces,
        *mounts,
        "--",
        "/bin/true",
    ]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_everything_is_refused_that_is_not_on_the_list() -> None:
    assert PROFILE["defaultAction"] == "SCMP_ACT_ERRNO"
    assert allowed() & REFUSED == set()
    assert [rule["names"] for rule in PROFILE["syscalls"] if rule["action"] != "SCMP_ACT_ALLOW"] == [["clone3"]]


def test_what_full_python_itself_calls_is_on_the_list() -> None:
    assert set(zygote.CALLS) - allowed() == set()


@pytest.mark.processes
@pytest.mark.skipif(not HEADERS, reason="the kernel's headers are not installed")
def test_bubblewrap_makes_its_namespaces_under_the_list_and_not_under_a_shorter_one() -> None:
    need_isolation(why_no_namespaces())

    whole = tried(allowed())

    assert (whole.returncode, whole.stderr) == (0, "")
    assert [name for name in ("mount", "umount2", "pivot_root") if tried(allowed() - {name}).returncode == 0] == []
