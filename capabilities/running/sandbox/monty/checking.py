"""Obstacles to code in the interpreter: constructs, modules and names that it lacks, and what types show."""

from __future__ import annotations

import builtins
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic_monty import ExternalModule, MontyCrashedError, MontySession, MontyTypingError

from capabilities.running.sandbox.host import NAMES, STUBS
from capabilities.running.sandbox.monty import gaps, modules
from capabilities.running.sandbox.monty.pool import pool
from capabilities.running.sandbox.monty.running import Loading, MontyEnded, os_policy, resource_limits
from capabilities.running.sandbox.values import HostFunctions, Limits, Problem
from toolhub.bounded_json import load_json

#: For loading code once: no way to the web, and little time.
LIMITS = Limits(seconds=3.0, memory=64_000_000, output=10_000, host_calls=0)
#: Findings that the type check is sure of; the rest of what it says is a doubt.
SURE = frozenset(
    {
        "call-non-callable",
        "missing-argument",
        "too-many-positional-arguments",
        "unknown-argument",
        "unresolved-import",
        "unresolved-reference",
    }
)
MAX_DOUBTS = 10
#: Values of built-in types that are called by the type: the rest of their methods only on a value.
CLASS_METHODS = frozenset({"dict.fromkeys", "bytes.fromhex"})
#: Built-in functions that are there, and never do what they are for.
NEVER = frozenset({"open"})
PROVIDED = (
    "json, re, math, datetime, decimal, random, collections, itertools, functools, dataclasses, typing, csv, base64, "
    "hashlib, copy, bisect, time, unicodedata, tomllib, " + ", ".join([*modules.NAMES, "urllib.parse"])
)


def problems(code: str, facts: Mapping[str, Any], helpers: Mapping[str, str]) -> Iterator[Problem]:
    """Return all problems at once. `facts` is what the child process read in the code."""
    found = list(gaps.of_constructs(facts["constructs"], code))
    wanted = [*facts["imports"], *facts["uses"]]
    try:
        found += _missing(wanted, code, facts, helpers)
        lines = {one.line for one in found}
        optional = {one["line"] for one in facts["imports"] if one["optional"]}
        # The interpreter tells of the first thing that it lacks: where all are known, it is not asked.
        loaded = _loaded(code, helpers, optional=optional, is_complete=bool(found))
        found += [one for one in loaded if one.line is None or one.line not in lines]
    except MontyEnded as ended:
        found.append(Problem(None, None, ended.error.message, ended.error.advice))
    except (MontyCrashedError, TimeoutError):
        found.append(Problem(None, None, "The code could not be loaded in time.", "Do less outside of `run`."))
    return iter(found)


# -- Modules and names -------------------------------------------------------------------------------------------------


def _missing(
    wanted: list[dict[str, Any]], code: str, facts: Mapping[str, Any], helpers: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the names that are missing. Each is tried in the interpreter itself: what it has is known to it alone."""
    asked = [(one, probe) for one in wanted if not one.get("optional") and (probe := _probe(one))]
    tried = dict.fromkeys(probe for _, probe in asked)
    absent = _absent(list(tried), code, helpers)
    no_modules = {
        one.get("module") or one["name"] for one, probe in asked if probe in absent and _module_probe(one) in absent
    }
    for one, probe in asked:
        if probe not in absent:
            continue
        module = one.get("module") or one["name"]
        if one["kind"] == "import" and (module in no_modules or one["member"] is None):
            yield gaps.of_module(one, PROVIDED)
        elif one["kind"] == "module attribute" and _is_in(one["name"], no_modules):
            continue  # the import is told already
        else:
            yield gaps.of_name(one, one["name"])
    for one in wanted:
        kind, name = one["kind"], one["name"]
        if kind == "builtin" and name in NEVER:
            yield gaps.of_name(one, name)
        elif kind == "unknown name" and name not in NAMES:
            yield Problem(one["line"], one["column"], f"The name {name} is not defined.")
        elif kind == "type attribute" and name not in CLASS_METHODS and not name.endswith("__"):
            yield gaps.of_name(one, name)
        elif kind == "attribute" and name in gaps.METHODS_INSTEAD and name not in facts["methods"]:
            yield Problem(one["line"], one["column"], f".{name} is not here.", gaps.METHODS_INSTEAD[name])


def _probe(one: Mapping[str, Any]) -> str:
    """A statement that fails where the name is not there; empty for what needs none."""
    kind, name = one["kind"], str(one["name"])
    if kind == "import" and one["member"] is not None:
        return f"from {one['module']} import {one['member']} as __probed"
    if kind == "import":
        return f"import {name}"
    if kind == "module attribute":
        module = "urllib.parse" if name.startswith("urllib.parse.") else name.partition(".")[0]
        return f"import {module}; {name}"
    if kind == "builtin" and name not in ("super", "property", "staticmethod", "classmethod", *NEVER):
        return name
    return ""


def _module_probe(one: Mapping[str, Any]) -> str:
    return f"import {one.get('module') or one['name']}"


def _is_in(name: str, missing: set[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in missing)


def _absent(probes: list[str], code: str, helpers: Mapping[str, str]) -> set[str]:
    """Return the probes that fail. A `from` import is tried together with its module."""
    every = dict.fromkeys(probes)
    for probe in probes:
        if probe.startswith("from "):
            every[f"import {probe.split()[1]}"] = None
    names = list(every)
    lines = ["__absent = []"]
    for number, probe in enumerate(names):
        parts = probe.split("; ")
        lines += ["try:", *(f"    {part}" for part in parts), "except Exception:", f"    __absent.append({number})"]
    lines.append("__absent")
    with _session(LIMITS) as (session, loading):
        loading.load_modules(session, code, helpers)
        return {names[number] for number in loading.fed(session, "\n".join(lines))}


# -- Types, and loading ------------------------------------------------------------------------------------------------


def _loaded(code: str, helpers: Mapping[str, str], *, optional: set[int], is_complete: bool) -> Iterator[Problem]:
    """Yield what the type check finds; and, unless problems are known already (`is_complete`), what loading raises."""
    known = {name: ExternalModule({}, stubs=_stubs(name, helpers)) for name in helpers}
    for name in (*modules.NAMES, *modules.PACKAGES):
        if name in helpers:
            continue
        part = modules.PACKAGES.get(name)
        if part:
            known[name] = ExternalModule({part: ExternalModule({}, stubs=_stubs(f"{name}.{part}", helpers))}, stubs="")
        else:
            known[name] = ExternalModule({}, stubs=_stubs(name, helpers))
    doubts = 0
    with _session(
        LIMITS, type_check=True, type_check_format="json", type_check_stubs=STUBS, external_modules=known
    ) as (
        session,
        loading,
    ):
        loading.load_modules(session, code, helpers)
        ended = None
        try:
            loading.load_code(session, code, type_check=True)
        except MontyEnded as reason:
            ended = reason
        except MontyTypingError as error:
            for one in _diagnostics(error):
                location = one.get("location") or {}
                if location.get("row") in optional or _is_builtin(one):
                    continue
                is_sure = one.get("name") in SURE
                doubts += not is_sure
                if is_sure or doubts <= MAX_DOUBTS:
                    message = re.sub(r"\s+", " ", str(one.get("message", "")))[:300]
                    yield Problem(
                        location.get("row"), location.get("column"), message.rstrip(".") + ".", blocks=is_sure
                    )
            try:
                loading.load_code(session, code)
            except MontyEnded as reason:
                ended = reason
        if ended is not None and not is_complete:
            raised = ended.error
            yield Problem(raised.line, None, f"{raised.kind}: {raised.message}", raised.advice)


@contextmanager
def _session(limits: Limits, **options: Any) -> Iterator[tuple[MontySession, Loading]]:
    host = HostFunctions()
    loading = Loading(limits, host, threading.Event(), time.monotonic())
    with pool().checkout(limits=resource_limits(limits), os_policy=os_policy(host), **options) as session:
        yield session, loading


def _is_builtin(one: Mapping[str, Any]) -> bool:
    """Return whether it is about a built-in name: the type check does not know all that the interpreter has."""
    named = re.search(r"^Name `(\w+)` used", str(one.get("message", "")))
    return named is not None and hasattr(builtins, named[1])


def _diagnostics(error: MontyTypingError) -> list[dict[str, Any]]:
    try:
        found = load_json(error.display())
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict) and one.get("severity") == "error"]


def _stubs(name: str, helpers: Mapping[str, str]) -> str:
    """Stubs of a module: every name may be anything, and no other name is there."""
    if name in helpers:
        return "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"
    names = re.findall(r"^(?:def |class )?([A-Za-z]\w*)(?:\(|:| = |, )", modules.source(name), re.MULTILINE)
    names += re.findall(r"^(\w+(?:, \w+)+) = ", modules.source(name), re.MULTILINE)
    plain = {part.strip() for one in names for part in one.split(",")} - {"from", "import"}
    return "from typing import Any\n" + "".join(f"{one}: Any\n" for one in sorted(plain))
