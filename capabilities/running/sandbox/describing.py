"""Descriptions of Python in each runtime, for whoever writes code: short, because a model pays for each word."""

from __future__ import annotations

from capabilities.running.sandbox.monty import PROVIDED

ENTRY = (
    "Write `def run(...)` with the schema's properties as arguments by name; return JSON (dict, list, text, number, "
    "bool, None). Raise ValueError for a refusal. "
)
HOST = (
    "There without import: `http_get(url, params=None, headers=None)`, `http_post(url, body=None, params=None, "
    'headers=None)` return {"status", "headers", "body" (text)}; at most 10 requests a call; `now_in(zone)`, '
    "`in_zone(moment, zone)` return datetimes. No files, no network but these, no packages, no threads. "
    "An argument `context` that is not in the schema gets a dict: agent, organisation, session, tool, version, now. "
)
TEXTS = {
    "monty": ENTRY
    + HOST
    + "It runs in a part of Python 3. Not there: inheritance (so no own exceptions, Enum, NamedTuple, TypedDict), "
    "@property/@staticmethod/@classmethod, yield, del, super, nested classes, functions in re.sub, re.VERBOSE, "
    "json.dumps(default=), __lt__, __len__, str.lower as a value (write a lambda). There: functions, closures, "
    "comprehensions, plain classes, @dataclass (frozen only), namedtuple, match, with, try, f-strings, and of modules: "
    + PROVIDED
    + ".",
    "full": ENTRY
    + HOST
    + "The code runs in CPython 3 with its own library (no packages), in an empty folder of its own.",
}


def describe_runtime(runtime: str) -> str:
    """One paragraph for a model that writes code for this runtime."""
    return TEXTS[runtime]
