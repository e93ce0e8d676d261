"""English as far as a matcher of words needs it: stems, groups of words that mean the same, words that mean nothing.

General vocabulary only. Knows no tool and no sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")

# What one can ask to be done, and its kind: two kinds in one sentence and one tool do not go together. A word may stand
# in several groups: "show" goes with a list and with one thing.
VERBS = {
    "create": (
        "write",
        "add create new make insert append put enter register plan schedule set compose draft open start",
    ),
    "book": ("write", "book reserve reservation"),
    "save": ("write", "save store remember keep note record memorize memorise write log jot remind"),
    "send": ("write", "send mail email message notify post"),
    "list": ("read", "list show display enumerate overview see view"),
    "read": ("read", "read open show get fetch view retrieve tell give check see display download load recall"),
    "find": ("read", "find search look lookup seek query locate browse google recall"),
    "count": ("read", "count many"),
    "delete": ("delete", "remove delete forget erase drop clear discard trash wipe cancel"),
    "update": ("change", "update change edit modify rename set adjust alter correct move replace reschedule"),
    "complete": ("change", "complete finish done tick mark close resolve"),
    "calculate": ("compute", "compute calculate evaluate sum total math arithmetic"),
    "convert": ("compute", "convert conversion exchange turn transform change"),
    "run": ("", "run execute launch start call invoke trigger"),
    "stop": ("", "stop halt end pause quit"),
    "load": ("", "load enable activate unlock"),
}
NOUNS = (
    "task todo item chore errand checklist agenda",
    "file document",
    "folder directory path",
    "web url page website site link internet online webpage http https",
    "note memo scratchpad scratch",
    "memory remember memorize recall fact",
    "person people user member contact guest attendee participant",
    "grocery shopping",
    "time clock hour",
    "date day calendar",
    "event meeting appointment calendar",
    "weather forecast temperature rain",
    "mail email inbox message",
    "kind type category",
    "command shell terminal",
)
STOP = _set("""
    a an the my your our his her their its this that these those is are was were be been am i you we he she it they me
    us him them to of in on at for with and or by from as do does did can could would will shall should may please
    have has had there here what which who whom whose when where why how any some all so just about into than then not
    no yes hi hello hey thanks thank ok okay let lets want need like if else also too very much more most i'd i'll i'm
    what's whats where's who's how's it's let's don't up out off down right now currently really actually only one
    after before over under between per each every yet still ever again got
""")
QUESTIONS = _set("""
    what what's whats which who who's whose when where where's how how's do does did is are am was were have has any
    anything will should
""")
DETERMINERS = _set("a an the my your our this that these those his her their its some any all new another")
LINKS = _set("to for about that of called named titled saying with on by from in into as at is are")


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A rough stem: the same for the inflections of a word, seldom the same for two words."""
    word = re.sub(r"['’]\w*$", "", word.lower())
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "ches", "shes", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in (("ing", 5), ("ed", 4), ("ion", 6)):
        if len(word) > least and word.endswith(ending):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsfz":
                word = word[:-1]
            break
    if len(word) > 5 and word.endswith(("er", "or")):
        word = word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _groups() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    rows = [("~" + name, members) for name, (_, members) in VERBS.items()]
    rows += [("#" + members.split()[0], members) for members in NOUNS]
    for group, members in rows:
        for member in members.split():
            found.setdefault(stem(member), set()).add(group)
    return {key: frozenset(names) for key, names in found.items()}


_GROUPS = _groups()
# Of verbs that say little about which tool is meant.
WEAK_STEMS = frozenset(
    map(stem, _set("get show see do make give tell put take use go set new start check open list view"))
)


def groups(stemmed: str) -> frozenset[str]:
    """The groups of a stem: `~create` for what is done, `#task` for what it is done to."""
    return _GROUPS.get(stemmed, frozenset())


def nouns(stems: Iterable[str]) -> frozenset[str]:
    """The groups of things that these stems belong to."""
    return frozenset(group for each in stems for group in groups(each) if group[0] == "#")


def verbs(stemmed: str) -> frozenset[str]:
    return frozenset(group[1:] for group in groups(stemmed) if group[0] == "~")


def kinds(names: frozenset[str]) -> frozenset[str]:
    """Return the kinds of thing that these verbs do: read, write, change, delete, compute."""
    return frozenset(VERBS[name][0] for name in names) - {""}


def parts(name: str) -> list[str]:
    """The words of a name in snake_case, kebab-case or camelCase, in lower case."""
    return WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.replace("_", " ")).lower())


@lru_cache(maxsize=20_000)
def stems(text: str) -> tuple[str, ...]:
    """The stems of the words of a text that mean something; names in snake_case and camelCase fall apart."""
    text = re.sub(r"\bto[- ]dos?\b", "todo", text, flags=re.IGNORECASE)
    return tuple(stem(part) for part in parts(text) if part not in STOP)
