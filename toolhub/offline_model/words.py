"""English as far as a matcher of words needs it: stems, groups of words that mean the same, words that mean nothing.

General vocabulary only. Knows no tool and no sentence.
"""

from __future__ import annotations

import re
from functools import lru_cache


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# What one can ask to be done. A word may stand in several groups: "show" is said of a list and of one thing.
VERBS = {
    "create": "add create new make insert append put enter register plan schedule set compose draft open start",
    "book": "book reserve reservation",
    "save": "save store remember keep note record memorize memorise write log jot remind",
    "list": "list show display enumerate overview see view",
    "read": "read open show get fetch view retrieve tell give check see display download load recall",
    "find": "find search look lookup seek query locate browse google recall",
    "delete": "remove delete forget erase drop clear discard trash wipe cancel",
    "update": "update change edit modify rename set adjust alter correct move replace reschedule",
    "complete": "complete finish done tick mark close resolve",
    "calculate": "compute calculate evaluate sum total math arithmetic",
    "convert": "convert conversion exchange turn transform change",
    "send": "send mail email message notify post",
    "count": "count many",
    "run": "run execute launch start call invoke trigger",
    "stop": "stop halt end pause quit",
    "load": "load enable activate unlock",
}
# What kind of thing a verb does; two kinds in one sentence and one tool do not go together.
KINDS = {
    "create": "write",
    "book": "write",
    "save": "write",
    "send": "write",
    "list": "read",
    "read": "read",
    "find": "read",
    "count": "read",
    "delete": "delete",
    "update": "change",
    "complete": "change",
    "calculate": "compute",
    "convert": "compute",
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
    "price cost money amount currency",
    "bill invoice receipt",
    "time clock hour",
    "date day calendar",
    "event meeting appointment calendar",
    "song music track tune album",
    "weather forecast temperature rain",
    "mail email inbox message",
    "picture image photo",
    "kind type category",
    "command shell terminal",
    "customer client",
    "ticket issue bug",
    "flight plane trip journey travel",
    "plant flower",
)
STOP = _set("""
    a an the my your our his her their its this that these those is are was were be been am i you we he she it they me
    us him them to of in on at for with and or by from as do does did can could would will shall should may please
    have has had there here what which who whom whose when where why how any some all so just about into than then not
    no yes hi hello hey thanks thank ok okay let lets want need like if else also too very much more most i'd i'll i'm
    what's whats where's who's how's it's let's don't up out off down right now currently really actually only one
    after before over under between per each every yet still ever again got
""")
# Verbs that say little about which tool is meant.
WEAK = _set("get show see do make give tell put take use go set new start check open list view")
QUESTIONS = _set("""
    what what's whats which who who's whose when where where's how how's do does did is are am was were have has any
    anything will should
""")
DETERMINERS = _set("a an the my your our this that these those his her their its some any all new another")
LINKS = _set("to for about that of called named titled saying with on by from in into as at is are")


# "...; please add it to my list": the deed comes after what it is about.
ASIDE = re.compile(
    r"[,.;]?\s(?:and\s+)?(?:please\s+)?(?:add|put|save|note|store|write)\s+(?:it|that|this|them)\b.*$", re.IGNORECASE
)


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
    for name, members in [*VERBS.items(), *((members.split()[0], members) for members in NOUNS)]:
        prefix = "~" if name in VERBS else "#"
        for member in members.split():
            found.setdefault(stem(member), set()).add(prefix + name)
    return {key: frozenset(names) for key, names in found.items()}


_GROUPS = _groups()
_NONE: frozenset[str] = frozenset()
_WEAK_STEMS = frozenset(stem(word) for word in WEAK)


def groups(stemmed: str) -> frozenset[str]:
    """The groups of a stem: `~create` for what is done, `#task` for what it is done to."""
    return _GROUPS.get(stemmed, _NONE)


def verbs(stemmed: str) -> frozenset[str]:
    return frozenset(group[1:] for group in groups(stemmed) if group[0] == "~")


def is_weak(stemmed: str) -> bool:
    return stemmed in _WEAK_STEMS


def parts(name: str) -> list[str]:
    """The words of a name in snake_case, kebab-case or camelCase, in lower case."""
    return WORD.findall(_CAMEL.sub(" ", name.replace("_", " ")).lower())


@lru_cache(maxsize=20_000)
def stems(text: str) -> tuple[str, ...]:
    """The stems of the words of a text that mean something; names in snake_case and camelCase fall apart."""
    text = re.sub(r"\bto[- ]dos?\b", "todo", text, flags=re.IGNORECASE)
    return tuple(stem(part) for part in parts(text) if part not in STOP)
