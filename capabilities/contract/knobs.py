"""The knobs of a tool call: one table of what can be set, in which range, for which tools, and how a value is read.

Pure: it knows no layer, no organisation and no row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from capabilities.contract.patterns import matching_pattern

#: Stands for a value that cannot be read. None is no value either.
MALFORMED: Final = object()
#: The type of a knob that is a list of programs.
PROGRAM_LIST: Final = "names"
#: Programs of one list, and characters of one name.
MAX_NAMES = 100
PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
#: Programs that run other programs, and words of the shell: on a list each would open all that it can reach.
NOT_LISTABLE = frozenset(
    "sh bash dash ash zsh ksh mksh fish csh tcsh busybox toybox env xargs parallel sudo su doas runuser nohup nice"  # noqa: SIM905 -- one a line would fill a page
    " ionice timeout time stdbuf setsid setarch chroot unshare nsenter watch script ssh find fd awk gawk mawk nawk"
    " python python3 perl ruby node deno bun php lua tclsh expect vi vim ed make git docker podman kubectl at batch"
    " crontab ld.so strace ltrace gdb flock start-stop-daemon systemd-run"
    " exec eval source command builtin alias trap set export declare typeset local read unset enable hash function"
    " if then else elif fi for while until do done case esac select coproc in".split()
)


@dataclass(frozen=True)
class Value:
    """A value as it was read: what counts, or MALFORMED, and in a sentence what is different from what was written."""

    value: Any
    note: str = ""
    #: How it differs: `malformed`, `clamped`, `dropped` (a part of it cannot be read), `repeated` (a part is there
    #: twice), or empty.
    kind: str = ""

    @property
    def is_malformed(self) -> bool:
        return self.value is MALFORMED


@dataclass(frozen=True)
class Knob:
    """One thing that can be set for a tool."""

    name: str
    title: str
    #: In an operator's words.
    help: str
    default: Any
    #: `number`, `integer`, `choice`, `switch` or `names`.
    type: str
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    #: From the strictest to the loosest.
    choices: tuple[str, ...] = ()
    #: The choices as people read them.
    choice_titles: tuple[str, ...] = ()
    #: Patterns of the tools that have it; empty: every tool.
    tools: tuple[str, ...] = ()
    #: Whether it decides what a call may do, and not only how long it takes or how much it says.
    is_safety: bool = False

    def read(self, written: Any) -> Value:
        """Return the value that a written one is read as. Reading the result again gives the same."""
        return _READERS[self.type](self, written)

    def is_of(self, name: str, category: str) -> bool:
        """Return whether the tool of this name has the knob."""
        return not self.tools or matching_pattern(self.tools, name, category) is not None

    @property
    def choice_words(self) -> Mapping[str, str]:
        """Each choice, and how people read it."""
        return dict(zip(self.choices, self.choice_titles or self.choices, strict=True))

    @property
    def range_text(self) -> str:
        """Range of values that may be written, in words."""
        if self.type in ("number", "integer"):
            unit = f" {self.unit}" if self.unit else ""
            return f"{self.minimum:,} to {self.maximum:,}{unit}"
        if self.type == "choice":
            return ", ".join(self.choices)
        return "yes or no" if self.type == "switch" else "names of programs"


def _number(knob: Knob, written: Any) -> Value:
    kind = "a whole number" if knob.type == "integer" else "a number"
    if isinstance(written, bool) or not isinstance(written, (int, float)):
        return Value(MALFORMED, f"{shown(written)} is not {kind}", "malformed")
    if isinstance(written, float) and not math.isfinite(written):
        return Value(MALFORMED, f"{written} is not {kind}", "malformed")
    if knob.type == "integer" and written != int(written):
        return Value(MALFORMED, f"{written:g} is not {kind}", "malformed")
    assert knob.minimum is not None
    assert knob.maximum is not None
    exact = int if knob.type == "integer" else float
    if written < knob.minimum:
        return Value(exact(knob.minimum), f"{shown(written)} is below the minimum of {knob.minimum:,}", "clamped")
    if written > knob.maximum:
        return Value(exact(knob.maximum), f"{shown(written)} is above the maximum of {knob.maximum:,}", "clamped")
    return Value(exact(written))


def _choice(knob: Knob, written: Any) -> Value:
    if isinstance(written, str) and written in knob.choices:
        return Value(written)
    return Value(MALFORMED, f"{shown(written)} is none of {', '.join(knob.choices)}", "malformed")


def _switch(knob: Knob, written: Any) -> Value:
    if isinstance(written, bool):
        return Value(written)
    return Value(MALFORMED, f"{shown(written)} is neither true nor false", "malformed")


def _names(knob: Knob, written: Any) -> Value:
    """Each once, in their order. A name that cannot be is left out: the list allows less then, never more."""
    if not isinstance(written, (list, tuple)):
        return Value(MALFORMED, f"{shown(written)} is not a list of names", "malformed")
    kept: dict[str, None] = {}
    notes: list[str] = []
    repeated: list[str] = []
    for each in written:
        name = each.strip() if isinstance(each, str) else ""
        if not PROGRAM.fullmatch(name):
            notes.append(f"{shown(each)} is not the name of a program")
        elif name in NOT_LISTABLE:
            notes.append(f"{name} runs other programs, or is a word of the shell")
        elif name in kept:
            repeated.append(f"{name} is there twice")
        elif len(kept) == MAX_NAMES:
            notes.append(f"only {MAX_NAMES} names are kept")
            break
        else:
            kept[name] = None
    kind = "dropped" if notes else "repeated" if repeated else ""
    return Value(tuple(kept), "; ".join([*notes, *repeated][:5]), kind)


_READERS = {"number": _number, "integer": _number, "choice": _choice, "switch": _switch, PROGRAM_LIST: _names}


def shown(written: Any) -> str:
    """A value as a sentence shows it, whatever it is, in at most 60 characters."""
    try:
        text = f"{written:,}" if isinstance(written, int) and not isinstance(written, bool) else repr(written)
    except (ValueError, RecursionError):  # a number of thousands of digits, or nested too deep
        return f"a {type(written).__name__} that is too large to show"
    return text if len(text) <= 60 else text[:59] + "…"


ALL_KNOBS = (
    Knob(
        "timeout_sec",
        "Timeout",
        "How long a call may take. After that nobody waits for it any more.",
        default=20.0,
        type="number",
        minimum=1,
        maximum=600,
        unit="seconds",
    ),
    Knob(
        "yield_ms",
        "Progress after",
        "A call that takes longer says in the chat that it is still running, and goes on.",
        default=10_000,
        type="integer",
        minimum=1_000,
        maximum=600_000,
        unit="milliseconds",
    ),
    Knob(
        "max_result_chars",
        "Longest result",
        "How much of a result the model gets to see, at most. The whole result is kept for people.",
        default=40_000,
        type="integer",
        minimum=200,
        maximum=1_000_000,
        unit="characters",
    ),
    Knob(
        "max_input_chars",
        "Longest input",
        "How long the arguments of a call may be; for a tool that reads files also how much of a file it reads.",
        default=2_000_000,
        type="integer",
        minimum=100,
        maximum=2_000_000,
        unit="characters",
    ),
    Knob(
        "max_definition_tokens",
        "Largest definition",
        "How many tokens of a request the definition of one tool may take. A larger one is not sent; an agent that"
        " searches and calls its tools reaches it all the same.",
        default=8_000,
        type="integer",
        minimum=1_000,
        maximum=1_000_000,
        unit="tokens",
    ),
    Knob(
        "ask",
        "Ask a person first",
        "Whether a person must approve a call before it runs.",
        default="off",
        type="choice",
        choices=("always", "first_time", "off"),
        choice_titles=("always", "the first time in a session", "never"),
        is_safety=True,
    ),
    Knob(
        "untrusted_output",
        "Results come from outside",
        "Whether its results hold text that others wrote, such as web pages and mail. A turn that reads them counts as"
        " untrusted from then on.",
        default=False,
        type="switch",
        is_safety=True,
    ),
    Knob(
        "in_untrusted",
        "In an untrusted turn",
        "What becomes of a call in a turn that has read text from outside.",
        default="allow",
        type="choice",
        choices=("refuse", "ask", "allow"),
        choice_titles=("it is refused", "a person is asked", "it runs"),
        is_safety=True,
    ),
    Knob(
        "security",
        "Commands",
        "Which commands run. On the list: all programs of a command must be.",
        default="deny",
        type="choice",
        choices=("deny", "allow-list", "full"),
        choice_titles=("none", "those on the list of programs", "all"),
        tools=("shell",),
        is_safety=True,
    ),
    Knob(
        "safe_bins",
        "List of programs",
        "Names of the programs that a command may call, where only those on the list run. A program on the list may do"
        " whatever its arguments make it do.",
        default=(),
        type=PROGRAM_LIST,
        tools=("shell",),
        is_safety=True,
    ),
    Knob(
        "max_redirects",
        "Redirects",
        "How often an address may send on to another one.",
        default=3,
        type="integer",
        minimum=0,
        maximum=10,
        tools=("web_fetch", "http_fetch"),
    ),
    Knob(
        "cache_ttl_sec",
        "Keep pages for",
        "How long a page that was read is kept for the organisation, and not fetched again; 0: it is always fetched.",
        default=300,
        type="integer",
        minimum=0,
        maximum=86_400,
        unit="seconds",
        tools=("web_fetch",),
    ),
    Knob(
        "readability",
        "Main text only",
        "Whether menus, headers and footers of a page are left out, so that its main text remains.",
        default=True,
        type="switch",
        tools=("web_fetch",),
    ),
)
KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in ALL_KNOBS}

#: Knobs that are set for all tools of a layer together.
SHARED_KNOBS: Mapping[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob(
            "result_context_share_ratio",
            "Share of the context",
            "The part of the model’s context window that one result may take.",
            default=0.22,
            type="number",
            minimum=0.01,
            maximum=1,
        ),
        Knob(
            "result_min_chars",
            "Always allowed for a result",
            "A result may be this long, however small the context window is. The tool’s longest result still counts.",
            default=1_200,
            type="integer",
            minimum=1,
            maximum=1_000_000,
            unit="characters",
        ),
    )
}


def knobs_of(name: str, category: str) -> list[Knob]:
    """Return the knobs that the tool of this name has, in the order of the table."""
    return [knob for knob in ALL_KNOBS if knob.is_of(name, category)]


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def in_words(value: Any, knob: Knob | None = None) -> str:
    """A value as people read it; a choice in words, where the knob that has it is given."""
    if knob is not None and isinstance(value, str):
        return knob.choice_words.get(value, shown(value).strip("'"))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,g}" if isinstance(value, float) and value < 10**6 else shown(value).strip("'")


def safety_knobs(names: Iterable[str]) -> list[str]:
    """Return those of these names that decide what a call may do."""
    return [name for name in names if name in KNOBS and KNOBS[name].is_safety]
