"""Notations in a model's text that are not text: thoughts in tags, and calls in the notations of local models. Pure.

A thought is folded away. A call is run where its tool was sent, and where the provider sent no call itself; in other
cases its notation is folded away as a thought. Code (a fence, or between backticks) that shows such tags stays as it
is, and so does an object in JSON, or in a fence at the end, that names no tool that was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolhub.bounded_json import check_json, load_json

#: Characters of a notation that is not closed which are held back; calls of one reply.
MOST_HELD = 200_000
MOST_CALLS = 64
_THOUGHTS = "think|thinking|thought|thoughts|reasoning"
#: Where a notation begins, and where it ends; one without an end goes on to the end of the reply.
_OPENERS: tuple[tuple[str, str], ...] = (
    (r"<tool_call>(?=\s*(?:[{\[<]|[\w.-]+\s*(?:\n|<arg_key>|[{(])))", r"</tool_call>"),
    (r"<tool_calls>(?=\s*[{\[<])", r"</tool_calls>"),
    (r"<function_calls?>(?=\s*[{\[<])", r"</function_calls?>"),
    (
        r"<(?:minimax:|antml:)?(?:tool_call|function_calls)>(?=\s*<)",
        r"</(?:minimax:|antml:)?(?:tool_call|function_calls)>",
    ),
    (r"<function=(?=[\w.:-]+\s*>)", r"</function>"),
    (r"<invoke name=(?=\")", r"</invoke>"),
    (r"<\|tool_calls?\|>", r"<\|/tool_calls?\|>|<\|tool_calls?_end\|>"),
    (r"<\|tool_calls_section_begin\|>", r"<\|tool_calls_section_end\|>"),
    (r"<｜tool▁calls▁begin｜>", r"<｜tool▁calls▁end｜>"),
    (r"<\|python_tag\|>", r"<\|eom_id\|>|<\|eot_id\|>"),
    (r"\[TOOL_CALLS\]", r"\Z(?!)"),
    (r"<\|channel\|>", r"<\|message\|>"),
)
_MARKS = r"<\|start\|>[^<\n]{0,100}(?=<)|<\|(?:end|return|call|im_end|eot_id|eom_id|constrain)\|>"
_TOKEN = re.compile(
    "|".join(
        [
            r"(?P<fence>```)",
            r"(?P<tick>`)",
            r"(?P<newline>\n)",
            rf"(?P<think><(?P<tag>{_THOUGHTS})>)",
            rf"(?P<unthink></(?:{_THOUGHTS})>)",
            *(f"(?P<o{number}>{opener})" for number, (opener, _) in enumerate(_OPENERS)),
            rf"(?P<mark>{_MARKS})",
        ]
    )
)
_CLOSERS = [re.compile(closer) for _, closer in _OPENERS]
_HARMONY = len(_OPENERS) - 1
_HARMONY_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
#: The end of a text that more may turn into one of the above.
_BEGUN = re.compile(
    r"(?:<\|start\|>[^<\n]{0,100}(?:<[^<>\n]{0,40})?|<[^<>\n]{0,60}|<[^<>\n]{1,60}>\s{0,20}[\w.-]{0,80}|\[[A-Z_]{0,11}|`{1,2})\Z"
)
_JSON_BEGIN = re.compile(
    r'\s*\[?\s*\{\s*"(?:name|function|tool|tool_name|type|tool_calls|arguments|parameters|id|recipient_name)"\s*:'
)
_JSON_PART = re.compile(r'\s*(?:\[\s*)?(?:\{\s*(?:"[a-z_]{0,16}"?\s*)?)?\Z')
_FENCE_HEAD = re.compile(r"```[a-z_]*[ \t]*\n?")
_XML_CALL = re.compile(r"<function=([\w.:-]{1,64})\s*>(.*?)(?:</function>|\Z)", re.DOTALL)
_INVOKE = re.compile(r'<invoke name="([\w.:-]{1,64})"\s*>(.*?)(?:</invoke>|\Z)', re.DOTALL)
_PARAMETER = re.compile(
    r'<parameter(?:=|\s+name=")([\w.-]{1,64})"?[^>]*>\n?(.*?)\n?</parameter>'
    r"|<arg_key>\s*([\w.-]{1,64})\s*</arg_key>\s*<arg_value>(.*?)</arg_value>",
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?:functions?[.\s]|to=functions\.)?([\w.-]{1,64})(?::\d+)?(?:<[^<>{}]{1,60}>|\[ARGS\]|[\s`(]|json)*(?=\{)"
)
_BEGINS = re.compile(r"[{\[]")
_BARE_NAME = re.compile(r"\s*([\w.-]{1,64})\s*(?=<arg_key>|\Z)")


def calls_written(body: str) -> list[tuple[str, str]]:
    """Names and arguments (JSON) of the calls in a notation, in their order."""
    found = [*_in_json(body)]
    if not found:
        found = [
            (name, _parameters(inner)) for pattern in (_XML_CALL, _INVOKE) for name, inner in pattern.findall(body)
        ]
    if not found:
        found = [*_named(body)]
    if not found and (bare := _BARE_NAME.match(body)):
        found = [(bare[1], _parameters(body[bare.end() :]))]
    return found[:MOST_CALLS]


def _values(text: str) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), 0
    for _ in range(MOST_CALLS):
        begin = _BEGINS.search(text, place)
        if begin is None:
            return
        try:
            check_json(text.encode())
            value, place = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            return
        yield value


def _in_json(text: str) -> Iterator[tuple[str, str]]:
    if re.match(r"\s*(?:```\w*\s*)?(?:<[^<>]{1,40}>\s*)?[{\[]", text):
        for value in _values(text):
            yield from _of_value(value)


def _of_value(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for each in value[:MOST_CALLS]:
            yield from _of_value(each)
        return
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("tool_calls"), list):
        yield from _of_value(value["tool_calls"])
        return
    if isinstance(value.get("function"), Mapping):
        value = value["function"]
    names = (value.get(name) for name in ("name", "tool_name", "tool", "function", "recipient_name"))
    name = next((each for each in names if isinstance(each, str) and each), "")
    keys = [key for key in ("arguments", "parameters", "args", "input", "tool_input") if key in value]
    if name and (keys or set(value) <= {"name", "type", "id"}):
        arguments = value[keys[0]] if keys else {}
        yield _plain(name), arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _plain(name: str) -> str:
    return name.removeprefix("functions.")


def _named(body: str) -> Iterator[tuple[str, str]]:
    decoder, place = json.JSONDecoder(), 0
    for _ in range(MOST_CALLS):
        found = _NAMED.search(body, place)
        if found is None:
            return
        try:
            check_json(body.encode())
            value, place = decoder.raw_decode(body, found.end())
        except ValueError:
            return
        yield found[1].removeprefix("functions."), json.dumps(value, ensure_ascii=False)


def _parameters(inner: str) -> str:
    try:
        value = load_json(inner)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(
        {(one or two): _value(text or more) for one, text, two, more in _PARAMETER.findall(inner)}, ensure_ascii=False
    )


def _value(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


@dataclass
class WrittenText:
    """Text as it comes, in pieces cut anywhere. `names` are the tools that were sent, asked for where one is called;
    `on_void` is called where all text so far turns out to have been a thought."""

    names: Callable[[], frozenset[str]] = frozenset
    on_void: Callable[[], None] = lambda: None
    #: Thoughts that were folded away, and calls: name and arguments.
    thoughts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    _rest: str = ""
    #: Notation that is open: "thought", "json", "fence", "call", "header" (of a channel); empty in plain text.
    _open: str = ""
    _closer: re.Pattern[str] = _HARMONY_END
    #: Header of a channel: it names the addressee of its message.
    _header: str = ""
    #: Whether the reply is written in channels (gpt-oss): only then their marks are none of its words.
    _has_channels: bool = False
    _in_fence: bool = False
    _in_tick: bool = False
    #: Whether the line has nothing but space so far, and the text has begun.
    _at_line: bool = True
    _has_text: bool = False
    #: Behind which a closer may stand, so that a long notation is searched once.
    _looked: int = 0

    def add(self, piece: str) -> str:
        """Take in the next piece; returns the text that is one for certain."""
        self._rest += piece
        return self._steps(is_end=False)

    def end(self) -> str:
        """End the text: return the rest of it."""
        return self._steps(is_end=True)

    def _steps(self, *, is_end: bool) -> str:
        shown = []
        while self._rest or (is_end and self._open):
            before = (len(self._rest), self._open)
            text = getattr(self, f"_{self._open or 'text'}_step")(is_end)
            if not self._has_text and (self.thoughts or self.calls):
                text = text.lstrip()
            self._has_text = self._has_text or bool(text.strip())
            shown.append(text)
            if (len(self._rest), self._open) == before:
                break
        return "".join(shown)

    def _text_step(self, is_end: bool) -> str:
        if not self._has_text and not self._in_fence:
            if _JSON_BEGIN.match(self._rest) and self.names():
                self._open = "json"
                return ""
            if not is_end and len(self._rest) < 100 and _JSON_PART.match(self._rest):
                return ""
        begun = None if is_end else _BEGUN.search(self._rest, max(0, len(self._rest) - 160))
        limit, place = begun.start() if begun else len(self._rest), 0
        while (token := _TOKEN.search(self._rest, place)) is not None and token.start() < limit:
            self._see(self._rest[place : token.start()])
            opens = self._opens(token, is_end)
            if self._open == "void":
                return ""
            if opens is not None:
                text, self._rest = self._rest[: token.start()], self._rest[token.end() if opens else token.start() :]
                return text
            self._note(token)
            place = token.end()
        limit = max(limit, place)
        self._see(self._rest[place:limit])
        text, self._rest = self._rest[:limit], self._rest[limit:]
        return text

    def _see(self, text: str) -> None:
        self._at_line = self._at_line and not text.strip()

    def _note(self, token: re.Match[str]) -> None:
        """A token that stays in the text."""
        if token["newline"]:
            self._in_tick, self._at_line = False, True
            return
        self._at_line = False
        if token["fence"] and not self._in_tick:
            self._in_fence = not self._in_fence
        elif token["tick"] and not self._in_fence:
            self._in_tick = not self._in_tick

    def _opens(self, token: re.Match[str], is_end: bool) -> bool | None:
        """Return whether a notation begins: True where its opening is left out, False where it is still read; None for
        plain text."""
        if token["fence"]:
            return self._opens_fence(token, is_end)
        if token["tick"] or token["newline"] or self._in_fence or self._in_tick:
            return None
        if token["mark"]:
            if not (self._has_channels or token["mark"].startswith("<|start|>assistant")):
                return None
            self._header = token["mark"]
            return True
        if token["think"] or token["unthink"]:
            return self._opens_thought(token)
        number = next(each for each in range(len(_OPENERS)) if token[f"o{each}"])
        self._closer, self._looked = _CLOSERS[number], 0
        self._open = "header" if number == _HARMONY else "call"
        self._has_channels = self._has_channels or number == _HARMONY
        return not token[f"o{number}"].startswith(("<function=", "<invoke"))

    def _opens_thought(self, token: re.Match[str]) -> bool | None:
        if token["unthink"]:
            follows = self._rest[token.end() :].lstrip(" ")[:1]
            if not (self._at_line or follows in ("", "\n")):
                return None
            self.thoughts.append(self._rest[: token.start()])
            self._rest = self._rest[token.end() :].lstrip()
            self.on_void()
            self._has_text, self._at_line, self._open = False, True, "void"
            return False
        if not self._at_line:
            return None
        self._open, self._closer, self._looked = "thought", re.compile(f"</(?:{_THOUGHTS})>"), 0
        return True

    def _opens_fence(self, token: re.Match[str], is_end: bool) -> bool | None:
        if self._in_fence or self._in_tick or not self._at_line:
            return None
        head = _FENCE_HEAD.match(self._rest, token.start())
        inside = self._rest[head.end() if head else token.end() :]
        could_be = not is_end and len(inside) < 100 and _JSON_PART.match(inside)
        if not (could_be or _JSON_BEGIN.match(inside)) or not self.names():
            return None
        self._open = "fence"
        return False

    # -- What is open -------------------------------------------------------------------------------------------------

    def _void_step(self, is_end: bool) -> str:
        self._open = ""
        return ""

    def _until_closed(self, is_end: bool) -> str | None:
        """Return the text in front of the closer, and take off both; None where the closer has not come yet."""
        found = self._closer.search(self._rest, max(0, self._looked - 40))
        if found is None and not is_end and len(self._rest) < MOST_HELD:
            self._looked = len(self._rest)
            return None
        body = self._rest[: found.start()] if found else self._rest
        is_next = found is not None and found[0] == "<|channel|>"
        self._rest = self._rest[found.start() if is_next else found.end() :] if found else ""
        self._looked, self._open, self._at_line = 0, "", True
        return body

    def _thought_step(self, is_end: bool) -> str:
        body = self._until_closed(is_end)
        if body is not None:
            self.thoughts.append(body)
            self._rest = self._rest.lstrip() if not self._has_text else self._rest
        return ""

    def _header_step(self, is_end: bool) -> str:
        header = self._until_closed(is_end)
        if header is None:
            return ""
        header = f"{self._header} {header}"
        to = re.search(r"to=(?:functions\.)?([\w.-]{1,64})", header)
        self._header, self._closer = f"{to[1]}" if to else "", _HARMONY_END
        if to:
            self._open = "call"
        elif "analysis" in header:
            self._open = "thought"
        return ""

    def _call_step(self, is_end: bool) -> str:
        name, body = self._header, self._until_closed(is_end)
        if body is None:
            return ""
        self._header = ""
        is_named = self._closer is _HARMONY_END and name and not name.startswith("<")
        found = [(name, body.strip())] if is_named else calls_written(body)
        if not self._take(found):
            self.thoughts.append(body)
        return ""

    def _json_step(self, is_end: bool) -> str:
        return self._at_end(calls_written(self._rest)) if is_end else ""

    def _fence_step(self, is_end: bool) -> str:
        head = _FENCE_HEAD.match(self._rest)
        begin = head.end() if head else 3
        inside = self._rest[begin:]
        end = inside.find("```", max(0, self._looked - begin - 3))
        self._looked = self._looked if end >= 0 else len(self._rest)
        could_be = _JSON_BEGIN.match(inside) or (not is_end and len(inside) < 100 and _JSON_PART.match(inside))
        if not could_be or (end >= 0 and inside[end + 3 :].strip()):
            self._open, self._in_fence, self._at_line = "", end < 0, end >= 0
            size = begin + end + 3 if end >= 0 else begin
            text, self._rest = self._rest[:size], self._rest[size:]
            return text
        return self._at_end(calls_written(inside[:end] if end >= 0 else inside)) if is_end else ""

    def _at_end(self, found: list[tuple[str, str]]) -> str:
        """The whole rest is a call, or plain text."""
        text, self._rest, self._open = self._rest, "", ""
        return "" if self._take(found) else text

    def _take(self, found: list[tuple[str, str]]) -> bool:
        """Keep the calls of tools that were sent; returns whether there were any. Others are left out."""
        known = [each for each in found if each[0] in self.names()] if found else []
        self.calls += known[: MOST_CALLS - len(self.calls)]
        return bool(known)
