"""Decides what the offline model replies to a conversation: calls of tools, or a text. Knows no HTTP."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.embedded.offline_model import answers, words
from toolhub.embedded.offline_model.answers import Result
from toolhub.embedded.offline_model.arguments import Filled, fill
from toolhub.embedded.offline_model.matching import THRESHOLD, Message, is_strong, plain, rank, read_message
from toolhub.embedded.offline_model.tools import Tool, read_tools

#: How many of the best ranked tools are tried on the message's arguments.
TRIED = 8
_CLAUSES = re.compile(r"\s*;\s+|,?\s+and then\s+|[.!]\s+then\s+", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """A text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A tool with the arguments that the message gives it, and how well both fit."""

    tool: Tool
    filled: Filled
    score: float

    @property
    def call(self) -> Call:
        return Call(self.tool.name, self.filled.arguments)


def reply(request: Mapping[str, Any]) -> Reply:
    """The reply to a chat-completions request whose messages are a list. Says once that it is no LLM."""
    messages = [message for message in request["messages"] if isinstance(message, dict)]
    answer = _reply(messages, request)
    earlier = (_text_of(each) for each in messages if each.get("role") == "assistant")
    if not answer.text or any(answers.SIGNATURE in text for text in earlier):
        return answer
    return Reply(answers.signed(answer.text))


def _reply(messages: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> Reply:
    tools = read_tools(request.get("tools"))
    place = max((index for index, each in enumerate(messages) if each.get("role") == "user"), default=None)
    if place is None:
        return Reply(answers.no_match(tools))
    text = _question(messages, place)
    results, called = _results(messages[place + 1 :], request.get("metadata"))
    if results:
        return _after_loading(text, tools, called) or Reply(answers.from_results(results))
    return _first(text, tools, request)


def _first(text: str, tools: Sequence[Tool], request: Mapping[str, Any]) -> Reply:
    if sentence := answers.small_talk(text):
        return Reply(sentence)
    if answers.asks_for_help(text):
        return Reply(answers.no_match(tools, wanted=False))
    if request.get("parallel_tool_calls") is not False and (calls := _several(text, tools)):
        return Reply(calls=calls)
    choice = _choose(text, tools)
    if choice is None:
        near = [tool for _, tool in rank(read_message(text), tools)[:TRIED]]
        return Reply(answers.no_match([*near, *(tool for tool in tools if tool not in near)]))
    if choice.filled.missing:
        return Reply(answers.ask_for(choice.tool, choice.filled.missing))
    return Reply(calls=(choice.call,))


def _several(text: str, tools: Sequence[Tool]) -> tuple[Call, ...]:
    """A call for each clause of the message; none where it has one clause, or one that no tool serves."""
    clauses = [clause for clause in _CLAUSES.split(text) if clause.strip()][:8]
    chosen = [_choose(clause, tools) for clause in clauses] if len(clauses) > 1 else []
    complete = [each.call for each in chosen if each is not None and not each.filled.missing]
    return tuple(complete) if len(complete) == len(clauses) else ()


def _choose(text: str, tools: Sequence[Tool]) -> Choice | None:
    """The tool whose words and arguments fit best, or None where none fits well enough."""
    now = datetime.datetime.now().astimezone()
    message = read_message(text)
    choices = [
        _weighed(score, tool, fill(tool, text, now), message)
        for score, tool in rank(message, tools)[:TRIED]
        if tool.only_reads or is_strong(message, tool)
    ]
    best = max(choices, key=lambda choice: choice.score, default=None)
    return best if best and best.score >= THRESHOLD else None


def _weighed(score: float, tool: Tool, filled: Filled, message: Message) -> Choice:
    """Arguments speak too: what is said and used for a tool, what it needs and is not said against it."""
    texts = [value for value in filled.arguments.values() if isinstance(value, str)]
    structured = len(filled.arguments) - len(texts)
    structured += sum(bool(re.match(r"https?://|\d{4}-\d\d-\d\d|\d+ ?[-+*/]|sqrt", text)) for text in texts)
    score += 0.8 * min(structured, 3) - 1.5 * len(filled.missing)
    if not texts:
        score -= min(0.4 * len(words.stems(filled.left_over)), 1.6) + (1.0 if message.payload else 0.0)
    return Choice(tool, filled, score)


# -- The conversation ------------------------------------------------------------------------------------------------


def _text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _question(messages: Sequence[Mapping[str, Any]], place: int) -> str:
    """The last user message; what answers a question of ours goes with the message that raised it."""
    text = plain(_text_of(messages[place]))
    before = [each for each in messages[:place] if each.get("role") in ("user", "assistant")][-2:]
    if [each["role"] for each in before] == ["user", "assistant"] and len(text) < 200:
        raised, asked = map(_text_of, before)
        if asked.startswith("To use ") and answers.ASKING in asked:
            return f"{raised.rstrip(' .?!')} {text}"
    return text


def _results(messages: Sequence[Mapping[str, Any]], displays: object) -> tuple[list[Result], set[str]]:
    """The results since the user spoke; and the names of the tools called. `displays`: lines for people, by call id."""
    lines = displays if isinstance(displays, dict) else {}
    names: dict[str, str] = {}
    results = []
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                names[str(call.get("id"))] = str(call["function"].get("name"))
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            line = lines.get(call_id)
            display = plain(line)[:300] if isinstance(line, str) else ""
            results.append(Result(names.get(call_id, "tool"), _text_of(message), display))
    return results, set(names.values())


def _after_loading(text: str, tools: Sequence[Tool], called: set[str]) -> Reply | None:
    """Return the call of the tool that the message is about, where all that was called only made tools available; else
    None."""
    if not called or called - {tool.name for tool in tools if tool.makes_available}:
        return None
    choice = _choose(text, [tool for tool in tools if tool.name not in called])
    if choice is None or choice.filled.missing or choice.tool.makes_available:
        return None
    return Reply(calls=(choice.call,))
