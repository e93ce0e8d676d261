"""Decides what the offline model replies to a conversation: calls of tools, or a text. Knows no HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from capabilities.choosing.routing.clauses import clauses_of
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import Index, build_index
from capabilities.choosing.routing.ranking import fields_of
from toolhub.embedded.offline_model import answers
from toolhub.embedded.offline_model.arguments import Filled, Message, fill, plain
from toolhub.embedded.offline_model.tools import Tool, read_tools
from toolhub.embedded.offline_model.values import sums

TRIED = 8
#: What a missing argument costs and what a tool gains that has the verb or is named: a ranking's best has about 2.
MISSING, VERB, NAMED = 0.5, 1.0, 9.0
NO_MATCH = "I match the words of a message with tools, and none fits well enough. I could:"


class Call(NamedTuple):
    name: str
    arguments: Mapping[str, Any]


class Reply(NamedTuple):
    """A text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def reply(request: Mapping[str, Any]) -> Reply:
    """The reply to a chat-completions request whose messages are dicts. Says once that it is no LLM."""
    answer = _reply(request["messages"], request)
    earlier = (_text_of(each) for each in request["messages"] if each.get("role") == "assistant")
    if not answer.text or any(answers.SIGNATURE in text for text in earlier):
        return answer
    return Reply(f"{answer.text}\n\n{answers.SIGNATURE}")


def _reply(messages: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> Reply:
    """Return the reply to these messages: results in words, small talk, tool calls, or what it can do."""
    last = max((index for index, each in enumerate(messages) if each.get("role") == "user"), default=-1)
    if results := [each for each in messages[last + 1 :] if each.get("role") == "tool"]:
        return Reply("\n\n".join(_result(each, request.get("metadata")) for each in results))
    text, tools = _question(messages[: last + 1]), read_tools(request.get("tools"))
    if sentence := answers.small_talk(text, tools):
        return Reply(sentence)
    # A call for each clause, where every one of them has its tool.
    clauses = clauses_of(text) if request.get("parallel_tool_calls") is not False else []
    chosen = [choice for clause in clauses if (choice := choose(clause, tools)) and not choice.missing]
    if not chosen or len(chosen) < len(clauses):
        chosen = [choice for choice in [choose(text, tools)] if choice]
    if not chosen:
        return Reply(answers.offered([tool for _, tool in rank(Message(text), tools)], NO_MATCH))
    if chosen[0].missing:
        return Reply(answers.ask_for(chosen[0].tool, chosen[0].missing))
    return Reply(calls=tuple(Call(each.tool.name, each.arguments) for each in chosen))


def choose(text: str, tools: Sequence[Tool]) -> Filled | None:
    """The best ranked tool that the message asks for and that has a use for its words; None without one."""
    message = Message(text)
    asked_for = [(score, tool) for score, tool in rank(message, tools) if is_asked_for(message, tool)][:TRIED]
    filled = [(score, fill(tool, text)) for score, tool in asked_for]
    candidates = [(score - MISSING * len(each.missing), each) for score, each in filled if _has_use(message, each)]
    return max(candidates, key=lambda pair: pair[0])[1] if candidates else None


def rank(message: Message, tools: Sequence[Tool]) -> list[tuple[float, Tool]]:
    """All tools, best first: by the ranking of the service, without its vectors."""
    query = " ".join([message.command, *sorted(message.objects)])
    scores = fields_of(_index(tuple(tool.document for tool in tools)), [query]).scores(None)[0].tolist()
    extra = [NAMED * _is_named(message, tool) + VERB * (not message.deeds.isdisjoint(tool.verbs)) for tool in tools]
    ranked = [(score + more, tool) for score, more, tool in zip(scores, extra, tools, strict=True)]
    return sorted(ranked, key=lambda pair: -pair[0])


@lru_cache(maxsize=64)
def _index(documents: tuple[Document, ...]) -> Index:
    return build_index(documents, embedding=False)


def is_asked_for(message: Message, tool: Tool) -> bool:
    """Return whether the message asks for this deed with this object. What changes something needs its own verb or one
    that does the like; without a verb, the object comes first."""
    is_deed = tool.kind == (message.kind or "read") or (not tool.kind and not message.deeds.isdisjoint(tool.verbs))
    objects = message.objects if message.kind else message.roots[:1]
    return _is_named(message, tool) or (is_deed and not tool.words.isdisjoint(objects))


def _is_named(message: Message, tool: Tool) -> bool:
    """Return whether the message has the tool's name, or a sum that the tool cannot do without."""
    has_name = "_" in tool.name and re.search(rf"(?<!\w){re.escape(tool.name)}(?!\w)", message.text) is not None
    takes_sum = any(each.is_required and tool.takes(each) == "sum" for each in tool.fields)
    return has_name or (takes_sum and bool(sums(message.text)))


def _has_use(message: Message, filled: Filled) -> bool:
    """Return whether all is said for the tool; in a question, most of it."""
    most = len(filled.tool.words.intersection(message.roots)) if message.kind == "read" else 0
    return len(filled.left_over) <= most


def _text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    parts = [each.get("text") for each in content if isinstance(each, dict)] if isinstance(content, list) else [content]
    return " ".join(part for part in parts if isinstance(part, str))


def _question(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last user message; what answers a question of ours goes with the message that raised it."""
    texts = [plain(_text_of(each)) for each in messages[-3:]]
    is_answer = len(texts) == 3 and texts[1].startswith("To use ") and answers.ASKING in texts[1]
    return f"{texts[0].rstrip(' .?!')} {texts[2]}" if is_answer else texts[-1] if texts else ""


def _result(message: Mapping[str, Any], displays: object) -> str:
    """The result of a call, under the line that says the call. `displays`: lines for people, by call id."""
    line = displays.get(str(message.get("tool_call_id"))) if isinstance(displays, dict) else None
    text = answers.readable(_text_of(message))
    return f"{plain(line)[:300]}:\n{text}" if isinstance(line, str) else text
