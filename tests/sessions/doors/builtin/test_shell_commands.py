"""Commands under an allow-list: only listed programs run, whatever is written around them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.doors.builtin._shell_commands import MAX_COMMAND, shell_refusal

LISTED = ("ls", "cat", "grep", "wc")

MAY_RUN = [
    "ls",
    "ls -l notes",
    "ls | wc -l",
    "cat a.txt | grep -i 'two words' | wc",
    "ls && cat a; grep x y || wc z",
    "ls;",
    "'ls' -l",
    "ls 'a;rm' \"b|rm\"",
    "grep a#b c",
]
REFUSED = [
    "rm -rf .",
    "ls; rm x",
    "ls;rm x",
    "ls && rm x",
    "ls&&rm x",
    "ls || rm x",
    "ls | rm",
    "ls|rm",
    # In the background, and joints that are none.
    "ls & rm x",
    "ls &",
    "ls |& rm",
    "ls;; rm",
    # Substitution, in quotes too.
    "ls $(rm x)",
    'ls "$(rm x)"',
    "ls `rm x`",
    "ls ${IFS}rm",
    "$0",
    "ls $'\\x3brm'",
    # Redirection.
    "ls > notes",
    "ls >> notes",
    "cat < notes",
    "cat <<< x",
    "cat <(rm x)",
    "ls 2>&1",
    # Paths, and assignments that change which program a name is.
    "/bin/ls",
    "./ls",
    "../ls",
    "~/ls",
    "PATH=. ls",
    "LD_PRELOAD=x.so ls",
    # More of the shell.
    "(ls)",
    "{ ls; }",
    "ls {a,b}",
    "! ls",
    "if ls",
    "ls \\\n; rm",
    "ls\nrm x",
    "ls\rrm x",
    "ls\x00rm",
    "ls\u2028rm",
    "ls # ; rm x",
    # Not whole.
    "",
    "  ",
    "''",
    "| ls",
    "ls |",
    "ls &&",
    "ls '",
    'ls "',
    "ls " + "a" * MAX_COMMAND,
    # Like a listed name, but not it.
    "LS",
    "l",
    "lsx",
    "'ls -l'",
    "ls*",
    "l?",
]


@pytest.mark.parametrize("command", MAY_RUN)
def test_a_command_of_listed_programs_may_run(command: str) -> None:
    assert shell_refusal(command, "allow-list", LISTED) is None


@pytest.mark.parametrize("command", REFUSED)
def test_any_other_command_is_refused(command: str) -> None:
    assert shell_refusal(command, "allow-list", LISTED)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("rm x", "rm is not on the list of programs that may run. There are: cat, grep, ls, wc."),
        ("/bin/ls", "/bin/ls is a path: programs are called by their name alone."),
        ("ls > x", "A command on the allow-list has no redirection (>)."),
        ("ls '", "The command cannot be read: no closing quotation."),
    ],
)
def test_the_refusal_says_what_is_wrong(command: str, sentence: str) -> None:
    assert shell_refusal(command, "allow-list", LISTED) == sentence


def test_zs_13_with_an_empty_list_nothing_runs() -> None:
    assert str(shell_refusal("ls", "allow-list", ())).endswith("There are: none.")


@pytest.mark.parametrize("security", ["deny", "", "FULL", "allow_list", None])
def test_zs_10_nothing_runs_before_an_operator_wants_it(security: str) -> None:
    assert "an operator has to allow them" in str(shell_refusal("ls", security, LISTED))


@pytest.mark.parametrize("command", ["ls", "rm x", "ls > $(rm)"])
def test_with_full_any_command_runs(command: str) -> None:
    assert shell_refusal(command, "full", ()) is None


@pytest.mark.parametrize("program", ["sh", "env", "xargs", "sudo", "eval", "exec", "python3", "find"])
def test_what_runs_other_programs_is_refused_on_a_list_too(program: str) -> None:
    assert shell_refusal(f"{program} rm", "allow-list", (program, "rm"))


PIECES = st.sampled_from(
    [*"'\"\\ ;|&<>(){}$`#!*?~=\n\t", " ", " ", "ls", "cat", "rm", "sh", "/bin/rm", "if", "x", "&&", "||", ";;", "rm=1"]
)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs each of which writes its name down and does nothing else."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in ("ls", "cat", "rm", "x", "sh"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {folder}/ran\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=9).map("".join))
def test_a_real_shell_runs_no_other_program_than_the_check_allowed(stubs: Path, command: str) -> None:
    if shell_refusal(command, "allow-list", ("ls", "cat")) is not None:
        return
    ran = stubs / "ran"
    ran.write_text("")

    shell = str(shutil.which("sh"))
    environment = {"PATH": str(stubs), "HOME": os.devnull}
    subprocess.run([shell, "-c", command], cwd=stubs, env=environment, capture_output=True, timeout=60, check=False)

    assert set(ran.read_text().split()) <= {"ls", "cat"}
