"""Approval rules: which calls a person must approve first. Pure, and one module for the worker and for pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from capabilities.contract.effective import Effective
from capabilities.contract.patterns import pattern_matches
from capabilities.contract.spec import BUILTIN, ToolSpec
from capabilities.contract.wire import canonical_json, sha256_hex

#: The tool with which an agent asks the member a question: its answer comes from a person.
ASK_USER = "ask_user"
#: Built-in tools that ask for something which is an administrator's: somebody is asked of each call, whatever rules and
#: runtime settings say, and of a member's call who is no admin another person.
ASKS_ADMINISTRATORS = frozenset({"cortex_restart", "cortex_update"})
#: When somebody is asked: a rule's `when`.
NEVER, FIRST_IN_SESSION, ALWAYS = "never", "first_in_session", "always"
#: Hours until nobody can answer any more, and the most that a rule may say.
USUAL_HOURS, MAX_HOURS = 24 * 7, 24 * 90
#: Characters of arguments that somebody can be asked to allow: more could not be shown whole, and read.
MAX_SHOWN = 20_000


@dataclass(frozen=True)
class AskedCall:
    """A call, as rules look at it. `read_roles` is called at most once, where a rule names a role, and
    `read_arguments` where one names an argument: it returns the arguments as they take effect."""

    tool_id: int
    name: str
    category: str
    agent_id: int | None
    read_arguments: Callable[[], Effective]
    read_roles: Callable[[], Collection[int]]

    @cached_property
    def arguments(self) -> Effective:
        return self.read_arguments()

    @cached_property
    def role_ids(self) -> Collection[int]:
        return self.read_roles()


@dataclass(frozen=True)
class AskRule:
    """A rule as it is stored, by keys. `toolkit_tools` are those of its toolkit, None without one."""

    name: str
    when: str
    tool_pattern: str = "*"
    toolkit_tools: frozenset[int] | None = None
    role_id: int | None = None
    agent_id: int | None = None
    argument: str = ""
    argument_pattern: str = ""
    expires_after: int = USUAL_HOURS
    needs_other_person: bool = False
    message: str = ""

    def means(self, call: AskedCall) -> bool:
        """Return whether the rule is about the call. Where the value of its argument is unknown, a rule that asks means
        the call, and one that does not ask does not."""
        return (
            self._means_tool_of(call)
            and self._means_argument(call, if_unknown=self.when != NEVER)
            and self._means_role(call)
        )

    def surely_means(self, call: AskedCall) -> bool:
        """Return whether the rule means the call, whatever the values of its unknown arguments."""
        return self.means(call) and self._means_argument(call, if_unknown=False)

    def may_mean(self, call: AskedCall) -> bool:
        """Return whether the rule is about a call of this tool, by this agent and member, with some arguments."""
        return self._means_tool_of(call) and self._means_role(call)

    def _means_tool_of(self, call: AskedCall) -> bool:
        is_agent = self.agent_id is None or call.agent_id == self.agent_id
        return is_agent and self.means_tool(call.tool_id, call.name, call.category)

    def _means_argument(self, call: AskedCall, *, if_unknown: bool) -> bool:
        return not self.argument or call.arguments.has_match(
            self.argument, self.argument_pattern, if_unknown=if_unknown
        )

    def _means_role(self, call: AskedCall) -> bool:
        return self.role_id is None or self.role_id in call.role_ids

    def means_tool(self, tool_id: int, name: str, category: str) -> bool:
        """Return whether the rule could be about some call of the tool."""
        is_in_toolkit = self.toolkit_tools is None or tool_id in self.toolkit_tools
        return is_in_toolkit and pattern_matches(self.tool_pattern, name, category)


def is_question(spec: ToolSpec) -> bool:
    """Return whether a call of the tool is a question to the member."""
    return (spec.kind, spec.name) == (BUILTIN, ASK_USER)


def asks_administrators(spec: ToolSpec) -> bool:
    """Return whether each call of the tool is a request to the administrators of the service."""
    return spec.kind == BUILTIN and spec.name in ASKS_ADMINISTRATORS


def rules_of(rules: Iterable[AskRule], call: AskedCall) -> list[AskRule]:
    """The rules that count for the call: the first that surely means it, behind those before it that mean it where an
    argument is what nobody knows. The strictest of them counts."""
    found = []
    for rule in rules:
        if rule.means(call):
            found.append(rule)
            if rule.surely_means(call):
                break
    return found


def rules_met(rules: Iterable[AskRule], call: AskedCall) -> list[AskRule | None]:
    """The rules that can be the first to mean a call of this tool, by this agent and member, whatever its arguments;
    None among them where there can be a call that no rule means."""
    found: list[AskRule | None] = []
    for rule in rules:
        if rule.may_mean(call):
            found.append(rule)
            if not rule.argument:
                return found
    return [*found, None]


def digest_of(tool: str, version: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest that ties an approval to one call: SHA-256 of the tool's name, its version's SHA-256, and the
    arguments."""
    return sha256_hex(canonical_json({"tool": tool, "version": version, "arguments": arguments}))
