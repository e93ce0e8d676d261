"""Decides what the offline model replies to a conversation: calls of tools, or a text. Knows no HTTP."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.offline_model import answers, words
from toolhub.offline_model.answers import Result
from toolhub.offline_model.arguments import Filled, fill
from toolhub.offline_model.matching import THRESHOLD, Message, Ranked, Tool, is_strong, rank, read_message, read_tools
from toolhub.offline_model.small_talk import asks_for_help, small_talk

#: How many of the best ranked tools are tried on the message's arguments.
TRIED = 8
#: Of a message, what is read.
MOST_CHARACTERS = 4_000
CLAUSES = re.compile(r"\s*;\s+|,?\s+and then\s+|[.!]\s+then\s+", re.IGNORECASE)


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
    tool: Tool
    filled: Filled
    score: float


def reply(request: Mapping[str, Any]) -> Reply:
    """The reply to a chat-completions request whose messages are a list."""
    answer = _reply(request)
    if not answer.text or _has_signed(request["messages"]):
        return answer
    return Reply(answers.signed(answer.text))


def _has_signed(messages: Sequence[Any]) -> bool:
    """Whether an earlier answer of the conversation says already that this is no LLM."""
    said = (text_of(each) for each in messages if isinstance(each, dict) and each.get("role") == "assistant")
    return any(answers.SIGNATURE in text for text in said)


def _reply(request: Mapping[str, Any]) -> Reply:
    messages = [message for message in request["messages"] if isinstance(message, dict)]
    tools = [] if request.get("tool_choice") == "none" else read_tools(request.get("tools"))
    place = max((index for index, each in enumerate(messages) if each.get("role") == "user"), default=None)
    if place is None:
        return Reply(answers.no_match(tools))
    results, called = _results(messages[place + 1 :], request.get("metadata"))
    text = _question(messages, place)
    if results:
        more = _after_loading(text, tools, called)
        return more or Reply(answers.from_results(results))
    return _first(text, tools, request)


def _first(text: str, tools: Sequence[Tool], request: Mapping[str, Any]) -> Reply:
    now = datetime.datetime.now().astimezone()
    tools, floor = _demanded(tools, request.get("tool_choice"))
    if not floor and (sentence := small_talk(text)):
        return Reply(sentence)
    if not floor and asks_for_help(text):
        return Reply(answers.no_match(tools, wanted=False))
    if request.get("parallel_tool_calls") is not False and not floor:
        clauses = [clause for clause in CLAUSES.split(text) if clause.strip()]
        several = [choose(clause, tools, now) for clause in clauses[:8]] if len(clauses) > 1 else []
        if several and all(each is not None and not each.filled.missing for each in several):
            return Reply(calls=tuple(Call(each.tool.name, each.filled.arguments) for each in several if each))
    choice = choose(text, tools, now, demanded=floor)
    if choice is None:
        return Reply(answers.no_match(_nearest_first(text, tools)))
    if choice.filled.missing:
        return Reply(answers.ask_for(choice.tool, choice.filled.missing))
    return Reply(calls=(Call(choice.tool.name, choice.filled.arguments),))


def _nearest_first(text: str, tools: Sequence[Tool]) -> list[Tool]:
    """The tools that a message has anything in common with, then the others."""
    near = [each.tool for each in rank(read_message(text), tools)][:TRIED]
    return [*near, *(tool for tool in tools if tool not in near)]


def _demanded(tools: Sequence[Tool], choice: object) -> tuple[Sequence[Tool], bool]:
    """The tools that `tool_choice` leaves, and whether one of them has to be called."""
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return [tool for tool in tools if tool.name == name], True
    return tools, choice == "required"


def choose(text: str, tools: Sequence[Tool], now: datetime.datetime, *, demanded: bool = False) -> Choice | None:
    """The tool whose words and arguments fit best, or None where none fits well enough."""
    message = read_message(text)
    ranked = rank(message, tools)[:TRIED]
    if demanded and not ranked:
        ranked = [Ranked(tool, 0.0) for tool in tools[:TRIED]]
    if not demanded:
        ranked = [each for each in ranked if each.tool.only_reads or is_strong(message, each.tool)]
    choices = [_weighed(each, fill(each.tool, text, now), message) for each in ranked]
    best = max(choices, key=lambda choice: choice.score, default=None)
    return best if best and (demanded or best.score >= THRESHOLD) else None


def _weighed(ranked: Ranked, filled: Filled, message: Message) -> Choice:
    """Arguments speak too: what is said and used for a tool, what it needs and is not said against it."""
    texts = [str(value) for value in filled.arguments.values() if isinstance(value, str)]
    structured = sum(not isinstance(value, str) for value in filled.arguments.values())
    structured += sum(bool(re.match(r"https?://|\d{4}-\d\d-\d\d|\d+ ?[-+*/]|sqrt", text)) for text in texts)
    unused = len(words.stems(filled.left_over)) if not texts else 0
    score = ranked.score + 0.8 * min(structured, 3) - 1.5 * len(filled.missing)
    score -= min(0.4 * unused, 1.6) + (1.0 if message.payload and not texts else 0.0)
    return Choice(ranked.tool, filled, score)


# -- The conversation ------------------------------------------------------------------------------------------------


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _question(messages: Sequence[Mapping[str, Any]], place: int) -> str:
    """The last user message; what answers a question of ours goes with the message that raised it."""
    text = " ".join(text_of(messages[place])[:MOST_CHARACTERS].split())
    before = [each for each in messages[:place] if each.get("role") in ("user", "assistant")]
    if len(before) >= 2 and before[-1].get("role") == "assistant" and before[-2].get("role") == "user":
        asked = text_of(before[-1])
        if asked.startswith("To use ") and answers.ASKING in asked and len(text) < 200:
            return f"{text_of(before[-2]).rstrip(' .?!')} {text}"
    return text


def _results(messages: Sequence[Mapping[str, Any]], displays: object) -> tuple[list[Result], list[str]]:
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
            display = " ".join(line.split())[:300] if isinstance(line, str) else ""
            results.append(Result(names.get(call_id, "tool"), text_of(message), display))
    return results, list(names.values())


def _after_loading(text: str, tools: Sequence[Tool], called: Sequence[str]) -> Reply | None:
    """Where all that was called only made tools available, the one that the message is about comes next."""
    loaders = {tool.name for tool in tools if tool.name in called and _makes_available(tool)}
    if not called or set(called) - loaders:
        return None
    rest = [tool for tool in tools if tool.name not in called]
    choice = choose(text, rest, datetime.datetime.now().astimezone())
    if choice is None or choice.filled.missing or _makes_available(choice.tool):
        return None
    return Reply(calls=(Call(choice.tool.name, choice.filled.arguments),))


def _makes_available(tool: Tool) -> bool:
    return "load" in tool.verbs and bool({"tool", "toolkit"} & tool.terms.keys())


def arguments_text(call: Call) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)
