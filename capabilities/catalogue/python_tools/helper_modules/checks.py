"""Check of code that is to be a module for tools: what is wrong with it, by line, in each runtime.

It runs in the sandbox, bounded, and before a transaction begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from capabilities.common import confined
from capabilities.common.refused import ChangeRefused
from capabilities.contract.wire import is_whole
from capabilities.models import HelperModule
from capabilities.running.sandbox import MAX_CODE, RUNTIMES, Problem, check_python, isolation

#: Modules that a module may bring in, by those that it imports too.
MAX_IMPORTED = 20
#: Problems that a refusal names.
NAMED = 3
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^#\n]+))", re.MULTILINE)


@dataclass(frozen=True)
class CheckedModule:
    """Code, and what keeps it from being a module in each runtime that there is here."""

    code: str
    problems: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    #: Why there is no runtime at all, or empty.
    error: str = ""

    @property
    def runtimes(self) -> list[str]:
        """Names of the runtimes that it can be loaded in."""
        return [name for name, found in self.problems.items() if not any(each.blocks for each in found)]

    @property
    def main_problems(self) -> Sequence[Problem]:
        """Problems of the runtime with the fewest that block; of the first one where they are equal."""
        counts = {name: sum(each.blocks for each in found) for name, found in self.problems.items()}
        return self.problems[min(counts, key=counts.__getitem__)] if counts else ()

    @property
    def refusal(self) -> str:
        """Reason why it cannot be saved, with the lines; empty where it can."""
        if self.runtimes:
            return ""
        if self.error:
            return self.error
        found = [str(each) for each in self.main_problems if each.blocks]
        rest = len(found) - NAMED
        return " ".join([*found[:NAMED], f"And {rest} more." if rest > 0 else ""]).strip()


def check_module(name: str, code: str, organisation_id: int) -> CheckedModule:
    """The code with what is wrong in it. Raises ChangeRefused where it is empty or too long.

    It may import the versions in force of other modules. Takes the sandbox; one query for each depth of imports.
    """
    code = code.replace("\r\n", "\n")
    if not code.strip():
        raise ChangeRefused("code", "Write the code: functions that tools import.")
    if len(code) > MAX_CODE:
        raise ChangeRefused("code", f"Keep the code under {MAX_CODE:,} characters.")
    if not is_whole(code):
        raise ChangeRefused("code", "The text holds half a character, or one that databases refuse (U+0000).")
    ready = isolation()
    runtimes = [each for each in RUNTIMES if ready.has(each)]
    if not runtimes:
        return CheckedModule(code, error=" ".join(ready.reason(each) for each in RUNTIMES))
    helpers = imported_modules(name, code)
    return CheckedModule(code, {each: _problems(code, helpers, each, organisation_id) for each in runtimes})


def _problems(code: str, helpers: Mapping[str, str], runtime: str, organisation_id: int) -> list[Problem]:
    try:
        return check_python(code, helpers=helpers, runtime=runtime, parameters=None, organisation_id=organisation_id)
    except confined.ConfinedError as error:
        return [Problem(None, None, str(error))]


def imported_modules(name: str, code: str) -> dict[str, str]:
    """The code in force of the modules that this one imports, and of those that they import; never its own."""
    found: dict[str, str] = {}
    wanted = _imported(code) - {name}
    while wanted and len(found) < MAX_IMPORTED:
        rows = HelperModule.objects.filter(name__in=sorted(wanted), current_version__isnull=False)
        stored_code = dict(
            rows.order_by("name").values_list("name", "current_version__code")[: MAX_IMPORTED - len(found)]
        )
        found |= stored_code
        wanted = set().union(*map(_imported, stored_code.values())) - {name, *found}
    return found


def _imported(code: str) -> set[str]:
    """Names of modules that lines of the code may import."""
    found = set()
    for one, several in _IMPORT.findall(code):
        found.update(
            [one] if one else [each.split()[0].partition(".")[0] for each in several.split(",") if each.split()]
        )
    return found
