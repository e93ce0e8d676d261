"""A model asked in its own dialect. What a refusal teaches is learned on the way, and the question is put again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

from capabilities.contract.wire import canonical_json, names_in, namespaces_in, without_search
from capabilities.language_models.providers.lessons import ADDED_TOOLS, TOOL_SEARCH, Lesson, Teaches, corrected, fills
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.clients.client import ModelCall
from sessions.loop.clients.dialects import DIALECTS, DialectModule
from sessions.loop.clients.errors import ModelError, ModelRefused, SearchRefused, ToolsRefused
from sessions.loop.clients.fitting import fitted, rule_of
from sessions.loop.clients.probing import find_refused, name_of_entry
from sessions.loop.clients.refusals import lesson_of, refused_parameter, refuses_added, refuses_search
from sessions.loop.clients.refused_tools import is_of_definitions, refused_tools, rules_spoken_of, says_nothing
from sessions.loop.clients.replies import Reply
from sessions.loop.clients.requests import TOOLS, CallSettings, request_body
from sessions.loop.clients.responses import names_added
from sessions.loop.clients.transport import endpoint_of

#: Lessons that one call may learn: a model that refuses more is not asked again.
MAX_LESSONS_A_CALL = 4
#: Tokens of an answer to a request that only asks whether definitions are taken.
PROBE_TOKENS = 16
#: The names under which what a person set goes out, and what it is called on the pages.
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
_SENT_AS = {
    "reasoning_effort": ("reasoning effort", frozenset({"reasoning_effort", "reasoning"})),
    "max_output_tokens": ("most output tokens", _LIMITS),
    "temperature": ("temperature", frozenset({"temperature"})),
    "parallel_tool_calls": ("parallel tool calls", frozenset({"parallel_tool_calls"})),
    "dialect": ("dialect", frozenset({"dialect"})),
}


@dataclass(frozen=True)
class Question:
    """Request to a model: its messages as `history` makes them, and the definitions of its tools as stored."""

    model: ResolvedModel
    messages: Sequence[Mapping[str, Any]]
    tools: str = "[]"
    #: All of the tools, where the rest of them is added by messages: what stands in `tools` for a model that turns out
    #: not to take that.
    all_tools: str = ""
    #: The stored row that `tools` are of.
    tools_key: int | None = None
    #: Names the conversation for the provider's prompt cache.
    cache_key: str = ""
    #: Parameters that the client of the gateway asks for, under the dialect's names.
    asked_for: Mapping[str, Any] = field(default_factory=dict)
    #: For the offline model: each call of the messages in a line for people, by its id.
    displays: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def parts(self) -> list[str]:
        """The messages as they go out, each as JSON, in order."""
        sent = [each for each in self.messages if self.adds_tools or each["role"] != TOOLS]
        messages = fitted(sent, self.model.history_rules)
        return self._dialect.parts(
            messages,
            fills(self.model.lessons),
            wants_namespaces=self.model.vendor.takes_added_tools,
            tools=self.declared,
            tools_key=self.tools_key,
        )

    @property
    def adds_tools(self) -> bool:
        """True where messages may add tools to those that stand in `tools`."""
        return bool(self.all_tools) and not self.model.why_no_added_tools

    @property
    def declared(self) -> str:
        """The stored definitions that stand in `tools`."""
        stored = self.tools if self.adds_tools or not self.all_tools else self.all_tools
        return without_search(stored) if self.model.why_no_tool_search else stored

    @property
    def is_searched(self) -> bool:
        """True where the provider searches some of the definitions."""
        return bool(namespaces_in(self.declared))

    def tools_of(self, wire: str) -> str:
        """Stored definitions as they go out."""
        return self._dialect.tools_of(wire)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Fields of the request beside messages and tools, by name."""
        model = self.model
        settings = CallSettings(
            model=model.name,
            max_output_tokens=model.max_output_tokens,
            vendor=model.vendor,
            reasoning_effort=model.reasoning_effort,
            temperature=model.temperature,
            parallel_tool_calls=model.parallel_tool_calls if self.declared != "[]" else None,
            cache_key=self.cache_key if model.vendor.takes_cache_key else "",
        )
        wanted = {**self._dialect.parameters(settings), **self.asked_for}
        if self.tools == "[]":
            wanted.pop("tool_choice", None)
        fields = corrected(wanted, model.lessons, chosen=self.chosen)
        return fields | {"metadata": dict(self.displays)} if self.displays else fields

    @cached_property
    def chosen(self) -> frozenset[str]:
        """Names of the settings that a person chose, under all the names that they go out under."""
        return _sent_names(self.model.chosen)

    @cached_property
    def tool_entries(self) -> list[dict[str, Any]]:
        """The entries of `tools`, as they are stored."""
        entries: list[dict[str, Any]] = json.loads(self.declared)
        return entries

    @cached_property
    def tool_names(self) -> list[str]:
        """The names of all definitions, those of `tools` by their places in front."""
        inside = [tool["function"]["name"] for each in self.tool_entries for tool in each.get("tools", ())]
        added = [name for each in self.messages if each["role"] == TOOLS for name in names_added(each["items"])]
        return [*map(name_of_entry, self.tool_entries), *inside, *(added if self.adds_tools else ())]

    def probe(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        """A request of one word with these definitions, which costs next to nothing."""
        parts = replace(self, messages=[{"role": "user", "content": "Hello"}]).parts
        few = {name: min(value, PROBE_TOKENS) if name in _LIMITS else value for name, value in self.parameters.items()}
        beside = {name: value for name, value in few.items() if name not in ("tool_choice", "prompt_cache_key")}
        return request_body(self._dialect.CONVERSATION, parts, self.tools_of(canonical_json(list(entries))), beside)

    @cached_property
    def body(self) -> bytes:
        return request_body(self._dialect.CONVERSATION, self.parts, self.tools_of(self.declared), self.parameters)

    @property
    def has_extras(self) -> bool:
        """True where a message carries extras, which only this model can read."""
        return any("extras" in message for message in self.messages)

    def without_extras(self) -> Question:
        bare = [{name: value for name, value in each.items() if name != "extras"} for each in self.messages]
        return replace(self, messages=bare)

    @property
    def _dialect(self) -> DialectModule:
        return DIALECTS[self.model.dialect]


@dataclass
class Asking:
    """One question, put until there is a reply. `question` is how it was put last."""

    question: Question
    stopped: threading.Event
    #: time.monotonic() after which nobody waits any more.
    deadline: float
    #: Gets what refusals taught, when there is a reply: what did not help is not kept.
    on_lesson: Callable[[Lesson], None] = lambda lesson: None
    #: More of ModelCall's.
    options: Mapping[str, Any] = field(default_factory=dict)
    _call: ModelCall | None = None

    def run(self) -> Reply:
        """The model's reply. Raises ModelError, ModelBusy or CallStopped."""
        endpoint, learned = endpoint_of(self.question.model), dict[str, Lesson]()
        while True:
            model = self.question.model
            self._call = ModelCall(
                endpoint,
                model.dialect,
                self.question.body,
                self.stopped,
                self.deadline,
                names=lambda: frozenset(names_in(self.question.declared)),
                **self.options,
            )
            try:
                reply = self._call.run()
            except ModelRefused as refused:
                if self.question.is_searched and refuses_search(refused.refusal):
                    self.on_lesson(Lesson(Teaches.OMIT, TOOL_SEARCH, "", refused.refusal.words))
                    raise SearchRefused(refused.code, str(refused), refused.refusal) from refused
                self._without_refused_tools(refused, learned)
                lesson = self._lesson_of(refused)
                if lesson is not None and lesson.key not in learned and len(learned) < MAX_LESSONS_A_CALL:
                    learned[lesson.key] = lesson
                    self.question = replace(self.question, model=model.with_lesson(lesson))
                elif self.question.has_extras and refused.refusal.status in (400, 422):
                    # They may be void by now: sealed for another key, or by a model that has changed since.
                    self.question = self.question.without_extras()
                else:
                    self._without_tools_found(refused, learned)
                    raise self._explained(refused) from refused
                continue
            for lesson in learned.values():
                self.on_lesson(lesson)
            return reply

    def half_reply(self) -> Reply | None:
        """Return the part of the reply that had come when the call was stopped; None if the provider had not begun to
        answer."""
        return self._call.half_reply() if self._call is not None else None

    def _without_refused_tools(self, refused: ModelRefused, learned: Mapping[str, Lesson]) -> None:
        """Raise ToolsRefused where the refusal names definitions that were sent."""
        if names := refused_tools(refused.refusal, self.question.tool_names):
            self._raise_refused(refused, names, learned)

    def _without_tools_found(self, refused: ModelRefused, learned: Mapping[str, Lesson]) -> None:
        """Raise ToolsRefused where the refusal names no definition and nothing else explains it, but small requests
        with some of the definitions each find the one to blame."""
        refusal = refused.refusal
        if self.question.adds_tools or not (is_of_definitions(refusal) or says_nothing(refusal)):
            return
        if refused_parameter(refusal, self.question.parameters) not in ("", "tools"):
            return
        if name := find_refused(self.question.tool_entries, self._is_refused):
            self._raise_refused(refused, [name], learned)

    def _raise_refused(self, refused: ModelRefused, names: Sequence[str], learned: Mapping[str, Lesson]) -> NoReturn:
        for lesson in learned.values():
            self.on_lesson(lesson)
        rules = rules_spoken_of(refused.refusal)
        if rules and rules != self.question.model.schema_rules.key:
            self.on_lesson(Lesson(Teaches.RENDER, rules, "", refused.refusal.words))
        raise ToolsRefused(refused, names) from refused

    def _is_refused(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether a small request with these definitions is refused. Raises ModelError where it fails
        otherwise."""
        call = ModelCall(
            endpoint_of(self.question.model),
            self.question.model.dialect,
            self.question.probe(entries),
            self.stopped,
            self.deadline,
            tries=1,
        )
        try:
            call.run()
        except ModelRefused:
            return True
        return False

    def _lesson_of(self, refused: ModelRefused) -> Lesson | None:
        model = self.question.model
        if self.question.adds_tools and refuses_added(refused.refusal):
            return Lesson(Teaches.OMIT, ADDED_TOOLS, "", refused.refusal.words)
        by_client = _sent_names(model.by_client)
        lesson = lesson_of(
            refused.refusal,
            model.dialect,
            self.question.parameters,
            chosen=self.question.chosen,
            by_client=by_client,
        )
        rule = rule_of(refused.refusal, model.history_rules) if lesson is None else None
        if rule is None:
            return lesson
        name, number = rule
        return Lesson(Teaches.HISTORY, name, str(number or ""), refused.refusal.words)

    def _explained(self, refused: ModelRefused) -> ModelError:
        """The refusal; where it is of what a person or the client set, with the name of that."""
        sent = refused_parameter(refused.refusal, self.question.parameters)
        model = self.question.model
        for name in sorted(model.chosen | model.by_client):
            label, names = _SENT_AS[name]
            if sent in names:
                value = getattr(model, name, "")
                where = "in the request" if name in model.by_client else "on the page of the model or of the agent"
                return ModelError("setting_refused", f"{refused} The {label} is set to {value}: change it {where}.")
        return refused


def _sent_names(settings: Iterable[str]) -> frozenset[str]:
    """All the names that these go out under."""
    return frozenset[str]().union(*(_SENT_AS[name][1] for name in settings))
