"""Shell commands in namespaces: what they reach, what ends them, and who is unaffected."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from capabilities.running.sandbox.bubblewrap import shell
from capabilities.running.sandbox.bubblewrap.shell import OUTPUT_BYTES, ShellResult, ShellUnavailable, run_shell
from tests.isolation import need_isolation
from toolhub.tenants.models import Organisation

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def allowed(settings: object) -> None:
    settings.TOOLHUB_SHELL = True  # type: ignore[attr-defined]
    need_isolation(shell.why_unavailable())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def run(workspace: Path, command: str, seconds: float = 10.0) -> ShellResult:
    return run_shell(command, workspace, organisation_id=1, seconds=seconds, stopped=threading.Event())


def test_a_command_works_in_the_workspace(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")

    result = run(workspace, "grep -c . a.txt | tee count; echo wrong >&2; exit 3")

    assert result == ShellResult("2\nwrong\n", 3)
    assert (workspace / "count").read_text() == "2\n"


def test_a_command_stands_behind_everything_else_that_wants_the_processor(workspace: Path) -> None:
    assert run(workspace, "nice").output == "10\n"


ESCAPES = {
    "files of the machine": "cat /etc/passwd || cat /etc/shadow",
    "homes": "ls /home /root",
    "the service's own": f"cat {shell.__file__}",
    "its neighbours": "ls / | grep -vE '^(bin|sbin|dev|etc|lib.*|tmp|usr|workspace)$'",
    "the environment": "env | grep -vE '^(PATH|HOME|TMPDIR|LC_ALL|PWD)='",
    "other processes": "ls /proc/1",
    "a mount": "mount -t tmpfs none /usr",
    "another namespace": "unshare -Ur id",
    "writing programs": "touch /usr/bin/x || touch /bin/x",
    "writing the root": "touch /x",
    "a device": "mknod /tmp/sda b 8 0",
    "the kernel's settings": "mkdir /tmp/p && mount -t proc none /tmp/p",
    "the machine's devices": "ls /sys /dev/sda /dev/mem",
    "another user": "chown 0 /workspace",
    "a raw socket": "ping -c1 -W1 127.0.0.1",
}


@pytest.mark.parametrize("what", ESCAPES)
def test_s43_a_command_reaches_nothing_of_the_machine(workspace: Path, what: str) -> None:
    result = run(workspace, ESCAPES[what])

    assert result.status != 0, result.output


def test_s43_a_command_reaches_no_server_of_the_machine(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        probe = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        result = run(workspace, f'python3 -c "{probe}" || exit 7')

    assert result.status == 7


def test_s45_tmp_is_empty_each_time(workspace: Path) -> None:
    run(workspace, "echo secret > /tmp/left")

    assert run(workspace, "ls -A /tmp").output == ""


BOMBS = {
    "a loop": ("while :; do :; done", "after 2 s"),
    "a sleep": ("sleep 60", "after 2 s"),
    "forks": ("bomb() { bomb | bomb & }; bomb & while :; do :; done", "after 2 s"),
    "memory": ("head -c 1900000000 /dev/zero | tail -c 1800000000 > /dev/null; sleep 120", "MB of memory"),
    "left behind": ("(setsid sleep 60 &) ; sleep 60", "after 2 s"),
}


@pytest.mark.parametrize("what", BOMBS)
def test_s44_a_bomb_is_ended_and_nothing_of_it_stays(workspace: Path, what: str) -> None:
    command, why = BOMBS[what]

    seconds = 2 if why == "after 2 s" else 60  # outer bound of what is ended for another reason

    result = run(workspace, f": MARK-{what.replace(' ', '-')}; {command}", seconds)

    assert why in result.ended
    assert gone(f"MARK-{what.replace(' ', '-')}")
    assert run(workspace, "echo fine").output == "fine\n"


def test_s44_a_command_has_so_many_processes_and_not_one_more(workspace: Path) -> None:
    result = run(workspace, "for i in $(seq 500); do sleep 30 & done; wait")

    assert "Cannot fork" in result.output


def test_s44_another_organisation_forks_while_one_has_all_its_processes(tmp_path: Path) -> None:
    stopped = threading.Event()
    bomb = threading.Thread(
        target=run_shell,
        args=("bomb() { bomb | bomb & }; bomb; sleep 60", tmp_path / "a"),
        kwargs={"organisation_id": 1, "seconds": 60, "stopped": stopped},
    )
    bomb.start()
    time.sleep(1)
    try:
        neighbour = run_shell(
            "for i in $(seq 20); do sleep 0.1 & done; wait; echo fine",
            tmp_path / "b",
            organisation_id=2,
            seconds=30,
            stopped=threading.Event(),
        )
    finally:
        stopped.set()
        bomb.join()

    assert neighbour == ShellResult("fine\n", 0)


def test_what_the_service_wrote_is_the_commands_to_change(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("theirs")
    (workspace / "deep").mkdir()
    (workspace / "deep" / "own").write_text("before")
    (workspace / "link").symlink_to(tmp_path / "outside")
    owner = (tmp_path / "outside").stat().st_uid

    result = run(workspace, "echo after > deep/own; mkdir new; cat link")

    assert result.status != 0
    assert (workspace / "deep" / "own").read_text() == "after\n"
    assert (tmp_path / "outside").stat().st_uid == owner


def test_s44_folders_without_end_take_nothing_of_the_service(workspace: Path) -> None:
    deep = "import os\nfor _ in range(1_500):\n    os.mkdir('d'); os.chdir('d')\n"
    made = run(workspace, f'python3 -c "{deep}" && echo made', 60)
    (workspace / "new").write_text("the service's")

    try:
        found = run(workspace, "echo after > new && cat new", 60)
    finally:
        subprocess.run(["rm", "-rf", str(workspace / "d")], check=True)  # too deep for the end of the test

    assert (made, found) == (ShellResult("made\n", 0), ShellResult("after\n", 0))


def test_s44_a_full_disk_is_never_a_commands(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(workspace, "echo fine").output == "fine\n"
    monkeypatch.setattr(shell, "DISK_LEFT", 1 << 60)

    assert "of the disk were left" in run(workspace, "sleep 60", 60).ended


def test_what_is_stopped_before_it_begins_does_not_begin(workspace: Path) -> None:
    (workspace / "own").write_text("the service's")
    stopped = threading.Event()
    stopped.set()

    ran = run_shell("touch ran", workspace, organisation_id=1, seconds=10, stopped=stopped)

    assert "the turn was stopped" in ran.ended
    assert not (workspace / "ran").exists()


def test_s43_a_file_that_would_change_the_user_does_not(workspace: Path) -> None:
    command = "cp /usr/bin/id own; chmod 6755 own; ./own -u; ./own -g"

    assert run(workspace, command).output == "65534\n65534\n"
    assert run(workspace, "./own -u").output == "65534\n"


def test_s44_a_file_has_a_largest_size(workspace: Path) -> None:
    result = run(workspace, "head -c 200000000 /dev/zero > big")

    assert result.status != 0
    assert (workspace / "big").stat().st_size <= shell.FILE_BYTES


def test_what_a_command_leaves_running_ends_with_it(workspace: Path) -> None:
    result = run(workspace, ": MARK-daemon; (setsid sleep 300 >/dev/null 2>&1 &); echo done")

    assert result == ShellResult("done\n", 0)
    assert gone("MARK-daemon")


def gone(mark: str) -> bool:
    """Whether no process of the machine has the mark on its command line, within a few seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not any(mark in line for line in command_lines()):
            return True
        time.sleep(0.05)
    return False


def command_lines() -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                found.append(Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return found


def test_a_stopped_turn_ends_the_command(workspace: Path) -> None:
    stopped = threading.Event()
    threading.Timer(0.5, stopped.set).start()

    result = run_shell("sleep 60", workspace, organisation_id=1, seconds=60, stopped=stopped)

    assert "the turn was stopped" in result.ended


def test_s44_an_endless_output_ends(workspace: Path) -> None:
    result = run(workspace, "yes", 60)

    assert (len(result.output), result.is_cut) == (OUTPUT_BYTES, True)


def test_a_long_output_is_cut(workspace: Path) -> None:
    result = run(workspace, f"head -c {OUTPUT_BYTES + 1} /dev/zero | tr '\\0' x")

    assert (len(result.output), result.is_cut) == (OUTPUT_BYTES, True)


def test_s47_without_isolation_nothing_runs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, in_acme: Organisation
) -> None:
    monkeypatch.setattr(shell, "PROBE", "echo files; echo apart")
    shell._why_not.cache_clear()
    try:
        with pytest.raises(ShellUnavailable, match="cannot be kept apart"):
            run(workspace, "touch ran")
    finally:
        shell._why_not.cache_clear()
    assert not (workspace / "ran").exists()


def test_it_is_off_unless_the_operator_allows_it(workspace: Path, settings: object) -> None:
    settings.TOOLHUB_SHELL = False  # type: ignore[attr-defined]

    with pytest.raises(ShellUnavailable, match="TOOLHUB_SHELL=1"):
        run(workspace, "touch ran")
