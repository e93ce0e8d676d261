"""Check of code that is to be a tool: all that has to change, in one answer, with what to write instead.

Nothing of the code is called: it is parsed, its names are looked up in the runtime, and its module is loaded once in
the sandbox, with no way to the web.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from capabilities.common import confined
from capabilities.running.sandbox import monty
from capabilities.running.sandbox.bubblewrap import run_full
from capabilities.running.sandbox.entry import CONTEXT
from capabilities.running.sandbox.host import NAMES
from capabilities.running.sandbox.isolation import isolation
from capabilities.running.sandbox.values import MAX_CODE, HostFunctions, Limits, Problem

#: Told at once.
MAX_PROBLEMS = 40


def check_python(
    code: str,
    *,
    helpers: Mapping[str, str],
    runtime: str,
    parameters: Mapping[str, Any] | None,
    organisation_id: int,
) -> list[Problem]:
    """Return everything that keeps this code from being a tool of these parameters, by line; empty where it can be one.

    `helpers` are the modules that it may import: name -> code. With `parameters` None it is a helper module itself, and
    needs no `run`. Problems that do not block (`blocks`) are doubts of the type check. Raises ConfinedError where there
    was no child process to read it in.
    """
    ready = isolation()
    if not ready.has(runtime):
        return [Problem(None, None, ready.reason(runtime))]
    if len(code) > MAX_CODE:
        return [Problem(None, None, f"The code is longer than {MAX_CODE:,} characters.")]
    try:
        facts = confined.run("python_code", {"code": code}, organisation_id)
    except confined.TooComplex:
        return [Problem(None, None, "The code is too complex to read.", "Write it with less nesting.")]
    if facts["flaw"]:
        flaw = facts["flaw"]
        return [Problem(flaw["line"], flaw["column"], f"This is not Python: {flaw['message']}.")]
    found = [] if parameters is None else list(_of_entry(facts["entry"], parameters))
    if runtime == "monty":
        found += monty.problems(code, facts, helpers)
    else:
        found += _of_imports(facts, helpers)
        if not found:
            found += _loaded_in_full(code, helpers, organisation_id)
    found.sort(key=lambda one: (not one.blocks, one.line or 0, one.column or 0))
    return found[:MAX_PROBLEMS]


def _of_entry(entry: Mapping[str, Any] | None, parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield problems where `run` is missing, or does not take what the schema lets through."""
    properties = parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    listed = parameters.get("required")
    required = listed if isinstance(listed, list) else []
    if entry is None:
        signature = ", ".join(name for name in names if name.isidentifier())
        yield Problem(None, None, "There is no function `run`.", f"Write `def run({signature}):` at the top level.")
        return
    line = entry["line"]
    if entry["is_async"]:
        yield Problem(
            line, 1, "`run` is async.", "Write `def run(...)`: http_get and http_post are called without await."
        )
    for name in entry["positional_only"]:
        yield Problem(line, 1, f"`run` takes {name} by its place only.", "Leave the `/` out: arguments come by name.")
    for name in names:
        if name not in entry["names"] and not entry["takes_any"]:
            if name.isidentifier():
                advice = f"Add `{name}` to the arguments of `run`, or take it out of the schema."
            else:
                advice = f"Rename it in the schema, such as to `{_identifier(name)}`: arguments come by name."
            yield Problem(line, 1, f"`run` has no argument `{name}`, which the schema has.", advice)
    for name in entry["required"]:
        if name in entry["positional_only"]:
            continue
        if name not in names:
            if name != CONTEXT:
                yield Problem(
                    line,
                    1,
                    f"The schema has no `{name}`, which `run` asks for.",
                    "Add it to the schema, or give it a default.",
                )
        elif name not in required:
            yield Problem(
                line,
                1,
                f"A call may leave out `{name}`.",
                f"List it under `required`, or give it a default: `{name}=None`.",
            )


def _identifier(name: str) -> str:
    text = "".join(character if character.isalnum() and character.isascii() else "_" for character in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"_{text}"


def _loaded_in_full(code: str, helpers: Mapping[str, str], organisation_id: int) -> Iterator[Problem]:
    """Yield the problem that loading the module raises."""
    error = run_full(
        code,
        {},
        helpers=helpers,
        limits=Limits(seconds=3.0, host_calls=0, output=10_000),
        host=HostFunctions(),
        organisation_id=organisation_id,
        stopped=threading.Event(),
        only_load=True,
    ).error
    if error is not None:
        message = f"The module {error.module} could not be loaded: {error.message}" if error.module else str(error)
        yield Problem(error.line if not error.module else None, None, message)


def _of_imports(facts: Mapping[str, Any], helpers: Mapping[str, str]) -> Iterator[Problem]:
    """Yield problems for modules that CPython's own library does not have, and for names that nothing gives a value."""
    for one in facts["imports"]:
        module = one.get("module") or one["name"]
        first = module.partition(".")[0]
        if first not in sys.stdlib_module_names and first not in helpers and not one["optional"]:
            yield Problem(
                one["line"],
                one["column"],
                f"The module {first} is not installed here, as nothing is.",
                monty.module_advice(module) or "Use Python's own library, and http_get and http_post for the web.",
            )
    for one in facts["uses"]:
        if one["kind"] == "unknown name" and one["name"] not in NAMES:
            yield Problem(one["line"], one["column"], f"The name {one['name']} is not defined.")
