"""Definition of a hook: its phase, its action with its settings, its conditions, and what happens when it fails.

Hooks are rows that people write, so every value here is read by `hook_entries.normalised`, which makes the one form of
it or says what is wrong. What the actions do is in `hook_phases`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from capabilities.contract.effective import Effective
from capabilities.contract.patterns import matching_pattern


class Phase(StrEnum):
    """Phase of a turn or a call in which a hook runs."""

    BEFORE_MODEL_RESOLVE = "before_model_resolve"
    BEFORE_PROMPT_BUILD = "before_prompt_build"
    BEFORE_TOOL_CALL = "before_tool_call"
    AFTER_TOOL_CALL = "after_tool_call"


class OnError(StrEnum):
    """Consequence for the call or the turn when a hook fails."""

    #: It goes on as if the hook were not there, with a warning.
    CONTINUE = "continue"
    #: The call does not run; the result is withheld; before a model call the turn fails.
    DENY = "deny"
    #: As the hook does by default, until it has failed so often in a row that it is switched off.
    DISABLE = "disable"


PHASE_TITLES = {
    Phase.BEFORE_MODEL_RESOLVE: "Before the model is chosen",
    Phase.BEFORE_PROMPT_BUILD: "Before the prompt is built",
    Phase.BEFORE_TOOL_CALL: "Before a tool call",
    Phase.AFTER_TOOL_CALL: "After a tool call",
}
ON_ERROR_TITLES = {
    OnError.CONTINUE: "Go on without it",
    OnError.DENY: "Stop",
    OnError.DISABLE: "Switch it off after some failures in a row",
}
#: Things that OnError.DENY keeps from going on, at each phase.
STOPS = {
    Phase.BEFORE_MODEL_RESOLVE: "the turn fails",
    Phase.BEFORE_PROMPT_BUILD: "the turn fails",
    Phase.BEFORE_TOOL_CALL: "the call does not run",
    Phase.AFTER_TOOL_CALL: "the model does not get to see the result",
}


class Failure(StrEnum):
    """Ways in which a hook can fail."""

    TIMEOUT = "timeout"
    EXCEPTION = "exception"
    #: No installed package has this entry point; or the provider or model is not there or switched off.
    MISSING = "missing"
    #: Its answer, or its own row, is not of the form that it must have.
    MALFORMED = "malformed"


class HookFailed(Exception):
    """A hook did not do what it should; the message is for operators."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True)
class Setting:
    """One setting of an action."""

    name: str
    #: text, line, number, value (any JSON), object (a JSON object), provider, model, entry_point, or its choices.
    kind: str
    title: str
    help: str = ""
    is_required: bool = True
    choices: tuple[tuple[str, str], ...] = ()
    minimum: int = 0
    maximum: int = 0


@dataclass(frozen=True)
class Action:
    """Something that a hook can do in its phases."""

    name: str
    title: str
    phases: tuple[Phase, ...]
    settings: tuple[Setting, ...] = ()


_PROVIDER = Setting("provider", "provider", "Provider")
_MODEL = Setting("model", "model", "Model", "The model’s name at the provider.")
_TEXT = Setting("text", "text", "Text")
PYTHON, BLOCK_TOOL, ASK = "python", "block_tool", "ask"
MERGE_INPUT = "merge_input"
#: Actions that change nothing of a turn.
KEEP_BACK = (BLOCK_TOOL, ASK)
#: The rank of the highest access, for hooks that act for everybody.
EVERYBODY = 99
#: Every action, in the order of the phases.
ACTIONS: dict[str, Action] = {
    each.name: each
    for each in (
        Action("set_provider", "Set the provider", (Phase.BEFORE_MODEL_RESOLVE,), (_PROVIDER,)),
        Action("set_model", "Set the model", (Phase.BEFORE_MODEL_RESOLVE,), (_MODEL,)),
        Action(
            "set_provider_and_model",
            "Set the provider and the model",
            (Phase.BEFORE_MODEL_RESOLVE,),
            (_PROVIDER, _MODEL),
        ),
        Action("prepend_prompt", "Put text before the system prompt", (Phase.BEFORE_PROMPT_BUILD,), (_TEXT,)),
        Action("append_prompt", "Put text behind the system prompt", (Phase.BEFORE_PROMPT_BUILD,), (_TEXT,)),
        Action(
            "replace_in_prompt",
            "Replace text in the system prompt",
            (Phase.BEFORE_PROMPT_BUILD,),
            (
                Setting("find", "text", "Text to find", "Letter by letter; every place where it stands is replaced."),
                Setting("text", "text", "Text in its place", "Empty: the found text is removed.", is_required=False),
            ),
        ),
        Action(
            BLOCK_TOOL,
            "Block the call",
            (Phase.BEFORE_TOOL_CALL,),
            (Setting("message", "text", "Message", "The model and the people in the chat read it."),),
        ),
        Action(
            MERGE_INPUT,
            "Change the arguments",
            (Phase.BEFORE_TOOL_CALL,),
            (
                Setting(
                    "mode",
                    "choice",
                    "How",
                    choices=(("deep", "Merge: objects inside are merged too"), ("set", "Set: each field is replaced")),
                ),
                Setting("values", "object", "New values", 'A JSON object, such as {"timeout": 10}.'),
            ),
        ),
        Action(
            "inject_context",
            "Give the model a text with the result",
            (Phase.BEFORE_TOOL_CALL,),
            (_TEXT,),
        ),
        Action(
            ASK,
            "Ask somebody first",
            (Phase.BEFORE_TOOL_CALL,),
            (Setting("message", "text", "Why somebody is asked", "Who approves reads it."),),
        ),
        Action("append_note", "Put a note behind the result", (Phase.AFTER_TOOL_CALL,), (_TEXT,)),
        Action(
            "set_field",
            "Set a field of the result",
            (Phase.AFTER_TOOL_CALL,),
            (
                Setting("field", "line", "Field", "Its name; with dots for a field inside another: page.text."),
                Setting("value", "value", "Value", 'As JSON: "hidden", 5, true, null.'),
            ),
        ),
        Action(
            "truncate",
            "Cut the result",
            (Phase.AFTER_TOOL_CALL,),
            (Setting("chars", "number", "Characters", "What is left of it.", minimum=1, maximum=1_000_000),),
        ),
        Action(
            PYTHON,
            "Call a Python hook",
            tuple(Phase),
            (
                Setting("entry_point", "entry_point", "Python hook", "A name of the group toolhub.hooks."),
                Setting("config", "object", "Settings for it", "A JSON object, handed on.", is_required=False),
            ),
        ),
    )
}
#: Phases about one tool call, whose conditions may name tools and arguments.
TOOL_PHASES = (Phase.BEFORE_TOOL_CALL, Phase.AFTER_TOOL_CALL)

MAX_NAME = 63
MAX_TEXT = 20_000
MAX_LISTED = 50
PRIORITIES = (0, 1_000, 100)
#: Seconds: least, most, default.
TIMEOUTS = (0.1, 30.0, 5.0)
DISABLE_AFTER = (1, 100, 5)
#: Seconds that the Python hooks of one phase may take together.
PHASE_SECONDS = 30.0


@dataclass(frozen=True)
class ArgumentPattern:
    """An argument by name, and what its text must look like; anything but text is looked at as JSON."""

    name: str
    pattern: str

    def matches(self, arguments: Effective, *, if_unknown: bool) -> bool:
        """An argument that is known not to be there matches nothing."""
        return arguments.has_match(self.name, self.pattern, if_unknown=if_unknown)


@dataclass(frozen=True)
class Conditions:
    """Conditions on which a hook runs: each must hold, and of each list one entry is enough. Without any: always."""

    #: Agents, providers and members, by the keys that name their rows.
    agents: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    #: Patterns of tools, as `patterns` reads them.
    tools: tuple[str, ...] = ()
    arguments: tuple[ArgumentPattern, ...] = ()
    #: Number of turns of a hundred.
    share: int = 100

    def hold(self, facts: Facts, arguments: Effective, hook: str, *, if_unknown: bool = False) -> bool:
        """Return whether the conditions hold. `hook` names the hook that a share of turns is drawn for: a turn is drawn
        for it each time with the same luck. `if_unknown` is the match of an argument whose effective value is not
        known."""
        return (
            (not self.agents or facts.agent in self.agents)
            and (not self.providers or facts.provider in self.providers)
            and (not self.members or facts.member in self.members)
            and (not self.tools or matching_pattern(self.tools, facts.tool, facts.category) is not None)
            and all(each.matches(arguments, if_unknown=if_unknown) for each in self.arguments)
            and (self.share >= 100 or drawn(hook, facts.turn) < self.share)
        )


@dataclass(frozen=True)
class Facts:
    """Facts that conditions are checked against: the turn, and in the phases of a call its tool."""

    turn: str
    agent: str = ""
    provider: str = ""
    member: str = ""
    tool: str = ""
    category: str = ""
    #: Rank of the member's access.
    rank: int = 0


def drawn(hook: str, turn: str) -> float:
    """A number from 0 to 100, below it, always the same for this hook and this turn."""
    return int.from_bytes(sha256(f"{hook} {turn}".encode()).digest()[:8], "big") / 2**64 * 100


@dataclass(frozen=True)
class HookSpec:
    """One hook as the phases run it."""

    #: Key by which its turns are drawn, for a share of them.
    public_id: str
    name: str
    phase: Phase
    action: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    when: Conditions = Conditions()
    priority: int = PRIORITIES[2]
    on_error: OnError = OnError.CONTINUE
    timeout: float = TIMEOUTS[2]
    #: Error in its row: then it fails each time, whatever it should do.
    broken: str = ""
    #: Rank of the access up to which it may change turns: that of whoever wrote it last.
    reach: int = EVERYBODY

    def is_beyond(self, facts: Facts) -> bool:
        """Return whether the hook may change nothing in this member's turns. Hooks that block or ask may act in all."""
        return self.action not in KEEP_BACK and facts.rank > self.reach

    @property
    def blocks(self) -> bool:
        return can_block(self.phase, self.action)

    @property
    def denies(self) -> bool:
        """True where a failure of the hook keeps the call or the turn from going on."""
        if self.on_error == OnError.DISABLE:
            return self.blocks
        return self.on_error == OnError.DENY


def can_block(phase: str, action: str) -> bool:
    """Return whether the hook's purpose is to keep calls from running: then it fails closed unless set otherwise."""
    return action in (BLOCK_TOOL, ASK) or (action == PYTHON and phase == Phase.BEFORE_TOOL_CALL)


def default_on_error(phase: str, action: str) -> OnError:
    return OnError.DENY if can_block(phase, action) else OnError.CONTINUE


def in_order(hooks: Sequence[HookSpec]) -> tuple[HookSpec, ...]:
    """The lower priority first, then by name."""
    return tuple(sorted(hooks, key=lambda each: (each.priority, each.name)))


# -- Reading what people write ----------------------------------------------------------------------------------------


#: Keys that an entry may have, in the order in which they are kept.
FIELDS = ("name", "phase", "action", "settings", "when", "priority", "timeout", "on_error", "disable_after")
#: Conditions that are lists of lines.
_LISTS = ("agents", "providers", "members", "tools")
_CONDITIONS = (*_LISTS, "arguments", "share")
