"""Decides what the offline model replies to a conversation: calls of tools, or a text. Knows no HTTP."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from capabilities.choosing.routing.abilities import asks_what_can_be_done
from capabilities.choosing.routing.clauses import clauses_of
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import Index, build_index
from capabilities.choosing.routing.ranking import fields_of
from capabilities.choosing.routing.words import stem, words_of
from capabilities.contract.loading import META_TOOLS, SEARCH_TOOLS
from toolhub.embedded.offline_model import answers, talk
from toolhub.embedded.offline_model.arguments import Filled, Message, fill, plain
from toolhub.embedded.offline_model.conversation import (
    CallMade,
    calls_of,
    count_of,
    recalled,
    rows_of,
    text_of,
    with_it_named,
)
from toolhub.embedded.offline_model.rows import arguments_for, far_ahead, fitting, listing_for
from toolhub.embedded.offline_model.tools import RESCHEDULING, Tool, read_tools
from toolhub.embedded.offline_model.values import conversion, days, sums, times

TRIED = 8
#: What a missing argument costs and what a tool gains that has the verb or is named: a ranking's best has about 2.
MISSING, VERB, NAMED = 0.5, 1.0, 9.0
#: Things that are offered where nothing fits.
MOST_OFFERED = 3
#: Words by which a question for all that can be done finds tools that were left out.
ABILITIES = (
    "add put mark create list show find get set send read write change remove compute convert tell task calendar time"
)
_AND = re.compile(
    r",?\s+and\s+(?:also\s+|please\s+)?(?=(?:remind|add|create|schedule|put|set|mark|cancel|delete|remove|"
    r"list|show|tell|send|"
    r"convert|calculate|book|play|stop|what|how)\b)",
    re.IGNORECASE,
)
_YES = re.compile(
    r"\W*(?:yes|yep|yeah|ja|oui|s[ií]|sure|ok(?:ay)?|right|exactly|do it|please do|correct)(?: please)?\W*",
    re.IGNORECASE,
)


class Call(NamedTuple):
    name: str
    arguments: Mapping[str, Any]


class Reply(NamedTuple):
    """A text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def reply(request: Mapping[str, Any]) -> Reply:
    """The reply to a chat-completions request whose messages are dicts. Says once that it is no LLM."""
    answer = Answering(request).reply()
    earlier = (text_of(each) for each in request["messages"] if each.get("role") == "assistant")
    if not answer.text or any(answers.SIGNATURE in text for text in earlier):
        return answer
    return Reply(f"{answer.text}\n\n{answers.SIGNATURE}")


class Answering:
    """One request: the message that it ends with, the conversation before it, the calls made for it since."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.messages: Sequence[Mapping[str, Any]] = request["messages"]
        last = max((index for index, each in enumerate(self.messages) if each.get("role") == "user"), default=-1)
        self.before = self.messages[: max(last, 0)]
        self.made = calls_of(self.messages[last + 1 :])
        self.displays = request.get("metadata")
        self.is_parallel = request.get("parallel_tool_calls") is not False
        self.all_tools = read_tools(request.get("tools"))
        self.tools = [tool for tool in self.all_tools if tool.name not in META_TOOLS]
        self.message = plain(text_of(self.messages[last])) if last >= 0 else ""
        self.it: Mapping[str, Any] | None = None
        self.text, self.picked, self.is_confirmed = self._question()

    def reply(self) -> Reply:
        """Return small talk, what can be done, calls of tools, their results in words, or why there are none."""
        if asks_what_can_be_done(self.message):
            return self._abilities()
        if not self.made and (sentence := self._without_tools()):
            return Reply(sentence)
        chosen = self._chosen()
        only = chosen[0] if len(chosen) == 1 else None
        listing = listing_for(only.tool, self.tools) if only and only.needs_row and not only.missing else None
        done = [call for call in self.made if call.name != SEARCH_TOOLS and not (listing and call.name == listing.name)]
        if done:
            return Reply("\n\n".join(self._result(call) for call in done))
        if not chosen:
            return self._search(self.text) or Reply(self._cannot())
        if any(each.message.is_guess and each.tool.kind != "read" for each in chosen) and not self.is_confirmed:
            return Reply(f"{answers.DID_YOU_MEAN} “{Message(self.text).text}”? Say yes, and I do it.")
        if only and only.message.unknown:
            return Reply(
                f"I know no time zone of “{only.message.unknown}”: name a larger city near it, or a zone "
                f"such as Europe/Berlin."
            )
        if only and only.missing:
            return Reply(answers.ask_for(only.tool, only.missing))
        if only and listing:
            return self._for_row(only, listing)
        if only and only.row and only.row.name not in only.arguments:
            kind = " ".join(word for word in words_of(only.tool.name) if stem(word) in only.tool.nouns)
            return self._search(f"list {kind}") or Reply(answers.ask_for(only.tool, [only.row]))
        return Reply(calls=tuple(Call(each.tool.name, each.arguments) for each in chosen))

    def _without_tools(self) -> str:
        """Return the words for small talk, the conversation itself, and wishes that are never granted."""
        if sentence := talk.small_talk(self.message) or recalled(self.message, self.before, answers.SIGNATURE):
            return sentence if not self.is_confirmed else ""
        if talk.is_negated(self.message):
            return talk.LEFT_ALONE
        if not talk.takes_all_away(self.text):
            return ""
        message = Message(self.text)
        return "" if any(is_named(message, tool) for tool in self.tools) else talk.CANNOT_ALL

    def _chosen(self) -> list[Filled]:
        """Return a tool for each clause, where every one of them has its tool, else one for the message."""
        chosen: list[Filled] = []
        for clause in self._clauses():
            found = choose(clause, self.tools)
            found = _with_text_of(found, chosen[-1]) if found and found.missing and chosen else found
            if found is None or found.missing or found.needs_row:
                break
            chosen.append(found)
        else:
            if chosen:
                return chosen
        whole = choose(self.text, self.tools)
        return [whole] if whole else []

    def _clauses(self) -> list[str]:
        if not self.is_parallel:
            return []
        return clauses_of(self.text) or clauses_of(_AND.sub("; ", self.text))

    def _abilities(self) -> Reply:
        if search := self._search(ABILITIES, most=20):
            return search
        found = [row for call in self.made for row in rows_of(call.content) if isinstance(row.get("name"), str)]
        named = {tool.name: tool.description for tool in self.tools}
        named |= {row["name"]: str(row.get("description") or "") for row in found}
        return Reply(answers.offered(sorted(named.items()) if found else [*named.items()], "I can:"))

    def _search(self, query: str, most: int = 5) -> Reply | None:
        """Look for tools that were left out of this request, once; None where that was done, or cannot be."""
        is_there = any(tool.name == SEARCH_TOOLS for tool in self.all_tools)
        searched = any(call.name == SEARCH_TOOLS for call in self.made)
        if not is_there or searched or talk.is_for_no_tool(query) or not words_of(query):
            return None
        message = Message(query)
        wanted = "change event" if message.verb in RESCHEDULING else message.command[:200].strip()
        return Reply(calls=(Call(SEARCH_TOOLS, {"query": wanted, "max_results": most}),)) if wanted else None

    def _cannot(self) -> str:
        reason = talk.cannot(self.text)
        if reason != talk.CANNOT_DO:
            return reason
        near = [(tool.name, tool.description) for _, tool in rank(Message(self.text), self.tools)]
        return answers.offered(near, reason, MOST_OFFERED)

    def _for_row(self, filled: Filled, listing: Tool) -> Reply:
        """Look the thing up, then do it; ask back where several fit."""
        call = next((each for each in self.made if each.name == listing.name), None)
        if call is None:
            return Reply(calls=(Call(listing.name, far_ahead(listing)),))
        rows = fitting(filled, rows_of(call.content), self.picked, self.it)
        if not rows:
            text = answers.readable(call.content)
            listed = (
                f" There is:\n{text}" if rows_of(call.content) or "error" in call.content else " The list is empty."
            )
            return Reply(f"I found none that fits, and changed nothing.{listed}")
        if len(rows) > 1:
            return Reply(answers.which([row for row in rows if row]))
        return Reply(calls=(Call(filled.tool.name, arguments_for(filled, rows[0])),))

    def _question(self) -> tuple[str, str, bool]:
        """The message, with the one that it completes; what it picks of several things; whether it confirms a guess."""
        texts = [each for each in self.before if each.get("role") in ("user", "assistant") and text_of(each)]
        if len(texts) < 2 or texts[-1].get("role") != "assistant" or texts[-2].get("role") != "user":
            return self._with_it(), "", False
        asked, question = plain(text_of(texts[-2])), plain(text_of(texts[-1]))
        if question.startswith(answers.DID_YOU_MEAN) and _YES.fullmatch(self.message):
            return asked, "", True
        is_open = answers.WHICH in question or (question.startswith("To use ") and answers.ASKING in question)
        if not is_open or self._is_new(picks=answers.WHICH in question):
            return self._with_it(), "", False
        if answers.WHICH in question:
            return asked, self.message, False
        return f"{asked.rstrip(' .?!')} {self.message}", "", False

    def _with_it(self) -> str:
        text, self.it = with_it_named(self.message, self.before)
        return text

    def _is_new(self, *, picks: bool) -> bool:
        """Return whether the message asks for something by itself, whatever was asked back before it; `picks` says that
        it was which of some things is meant, which no verb answers."""
        message = Message(self.message)
        if talk.small_talk(self.message) or message.is_question or talk.takes_all_away(self.message):
            return True
        if talk.cannot(self.message) == talk.CANNOT_WRITE:
            return True
        return bool(message.kind) and (picks or any(is_asked_for(message, tool) for tool in self.tools))

    def _result(self, call: CallMade) -> str:
        """The result of a call, under the line that says the call, with its number of rows where that is asked."""
        line = self.displays.get(call.id) if isinstance(self.displays, dict) else None
        text = answers.readable(call.content)
        if re.match(r"\W*how many\b", self.text, re.IGNORECASE) and '"error"' not in call.content[:20]:
            count = count_of(call.content)
            text = text if count is None else f"{count} in all." if count == 0 else f"{count} in all:\n{text}"
        return f"{plain(line)[:300]}:\n{text}" if isinstance(line, str) else text


def _with_text_of(filled: Filled, earlier: Filled) -> Filled:
    """Give a clause without a text that of the clause before it: "add a task: buy food; and remind me at 6pm"."""
    [field] = filled.missing if len(filled.missing) == 1 else [None]
    text = next((earlier.arguments[name] for name in ("title", "text") if name in earlier.arguments), None)
    if field is None or text is None or filled.tool.takes(field) != "text":
        return filled
    return filled._replace(arguments={**filled.arguments, field.name: text}, missing=())


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
    extra = [NAMED * is_named(message, tool) + VERB * (not message.deeds.isdisjoint(tool.verbs)) for tool in tools]
    ranked = [(score + more, tool) for score, more, tool in zip(scores, extra, tools, strict=True)]
    return sorted(ranked, key=lambda pair: -pair[0])


@lru_cache(maxsize=64)
def _index(documents: tuple[Document, ...]) -> Index:
    return build_index(documents, embedding=False)


def is_asked_for(message: Message, tool: Tool) -> bool:
    """Return whether the message asks for this deed with this object. What changes something needs its own verb or one
    that does the like; without a verb, the object comes first."""
    if tool.kind == "destroy" and not any(each.is_required for each in tool.fields):
        return is_named(message, tool)  # it takes all of them away
    if not tool.does(message.verb):
        return is_named(message, tool)
    if message.verb in RESCHEDULING and tool.alters and any(tool.takes(each) == "moment" for each in tool.fields):
        now = datetime.datetime.now()
        return bool(times(message.text) or days(message.text, now.date()) or not tool.words.isdisjoint(message.objects))
    is_deed = tool.kind == (message.kind or "read") or (not tool.kind and not message.deeds.isdisjoint(tool.verbs))
    objects = message.objects if message.kind else message.roots[:1]
    return is_named(message, tool) or (is_deed and not tool.words.isdisjoint(objects))


def is_named(message: Message, tool: Tool) -> bool:
    """Return whether the message has the tool's name, or a sum or measure that the tool cannot do without."""
    has_name = "_" in tool.name and re.search(rf"(?<!\w){re.escape(tool.name)}(?!\w)", message.text) is not None
    wanted = [kind for kind, found in (("sum", sums), ("unit", conversion)) if found(message.text)]
    return has_name or (bool(wanted) and any(each.is_required and tool.takes(each) in wanted for each in tool.fields))


def _has_use(message: Message, filled: Filled) -> bool:
    """Return whether all is said for the tool; in a question, most of it. Words of a thing are looked up."""
    if (
        filled.row is not None
        or filled.message.unknown
        or any(filled.tool.takes(each) == "unit" and each.name in filled.arguments for each in filled.tool.fields)
    ):
        return True
    most = len(filled.tool.words.intersection(message.roots)) if message.kind == "read" else 0
    return len(filled.left_over) <= most
