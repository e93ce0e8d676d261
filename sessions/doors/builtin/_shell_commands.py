"""Check that a command line may run under a tool's `security` and `safe_bins`. Pure: nothing is run or looked up.

With `allow-list` a command is words, quotes, and programs joined by `|`, `&&`, `||` and `;`, no more of the shell than
that; each program is a plain name on the list. What a listed program does with its arguments is its own affair.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection

from capabilities.contract.knobs import NOT_LISTABLE

#: Characters of a command.
MAX_COMMAND = 10_000
#: Operators that join the programs of a command.
JOINTS = frozenset({"|", "&&", "||", ";"})
#: Outside of words, these make the shell do something else than call a program with words. Some are harmless within
#: quotes; they are refused there too, so that nothing hangs on who reads a quote in which way.
REFUSED = {
    "$": "variables and substitution ($)",
    "`": "substitution (`)",
    "\\": "backslashes",
    "<": "redirection (<)",
    ">": "redirection (>)",
    "(": "subshells",
    ")": "subshells",
    "{": "braces",
    "}": "braces",
}


def shell_refusal(command: str, security: str, safe_bins: Collection[str]) -> str | None:
    """Why this command may not run, as a sentence for the model, or None. Any `security` but the known ones denies."""
    if security == "full":
        return None
    if security != "allow-list":
        return "Commands are not allowed here: an operator has to allow them in the runtime settings."
    if len(command) > MAX_COMMAND:
        return f"The command is longer than {MAX_COMMAND:,} characters."
    if not all(character.isprintable() for character in command):
        return "The command has a line break or a control character in it: send one line."
    for character, what in REFUSED.items():
        if character in command:
            return f"A command on the allow-list has no {what}."
    return _refusal_of_programs(command, safe_bins)


def _refusal_of_programs(command: str, safe_bins: Collection[str]) -> str | None:
    try:
        programs = _programs(command)
    except ValueError as error:
        return f"The command cannot be read: {str(error).lower().rstrip('.')}."
    for program in programs:
        if "/" in program:
            return f"{program[:100]} is a path: programs are called by their name alone."
        if program not in safe_bins or program in NOT_LISTABLE:
            there = ", ".join(sorted(safe_bins)[:20]) or "none"
            return f"{program[:100]} is not on the list of programs that may run. There are: {there}."
    return None


def _programs(command: str) -> list[str]:
    """The first word of each part. A quoted joint counts as one too: then more words are looked at than need be."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    programs, is_first = [], True
    for word in lexer:
        if is_first:
            if word in JOINTS or not word:
                raise ValueError("a program is missing")
            programs.append(word)
            is_first = False
        elif word in JOINTS:
            is_first = True
        elif set(word) <= set("&|;"):
            raise ValueError(f"{word} is not allowed in it")
    if is_first and (not programs or not command.rstrip().endswith(";")):
        raise ValueError("a program is missing")
    return programs
