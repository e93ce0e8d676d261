"""Tool whose definition a provider refuses, read from the words of its refusal. Pure.

It is named in words (OpenAI, xAI, DeepSeek), by its place in `tools` (OpenAI's `param`, Anthropic's, FastAPI's `loc` of
vLLM and Mistral, Ollama's and llama.cpp's), by its place among Gemini's declarations, or by its name alone. A refusal
about calls, results or the choice of a tool is about the conversation, and names no definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sessions.loop.clients.refusals import REFUSED, Refusal

#: Words of a refusal that is about no definition, though it may name a tool.
_OF_CALLS = re.compile(
    r"tool[_ ]?calls?\b|tool[_ ]call[_ ]id|function[_ ]?calls?\b|tool[_ ]choice|tool_use|tool_result|tool[_ ]output"
    r"|thought_signature|messages?[\[.]\d|input\[\d|contents?\[\d|reasoning_content",
    re.IGNORECASE,
)
#: Tools as such are refused: no single one is to blame.
_OF_ALL = re.compile(
    r"(?:not|n't|without|no)\W+(?:\w+\W+){0,3}(?:support|allow|available|enabled|found)\w*\W+(?:\w+\W+){0,4}"
    r"(?:tools?\b|tool use|functions?\b|function calling)"
    r"(?!\W+(?:parameter|schema|definition|declaration|input|argument))"
    r"|(?:tools?|tool use|function calling|functions?)\W+(?:\w+\W+){0,3}(?:not|n't)\W+(?:\w+\W+){0,2}"
    r"(?:supported|allowed|available|enabled|permitted)"
    r"|endpoints? found that support tool|too many tools|tools?.{0,40}(?:array too long|maximum (?:length|number))",
    re.IGNORECASE,
)
#: A place in `tools`; that of a declaration inside one counts, for all of ours are in the first.
_DECLARED = re.compile(r"function_?declarations?\W{0,3}[\[./ ]\W?(\d{1,4})", re.IGNORECASE)
_PLACED = re.compile(
    r"""(?<![\w])tools?['"]?\s*(?:[\[./:,]|->|→|\bat index\b|\bindex\b|\#)\s*['"]?(\d{1,4})(?!\w)""", re.IGNORECASE
)
_NAMED = re.compile(
    r"""(?:function|tool|schema)s?(?:\s+(?:named?|called|for))?\s*[:=]?\s*['"`“‘«]([\w-]{1,64})['"`”’»]""",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""['"`“‘«]([\w-]{1,64})['"`”’»]""")
_BARE = re.compile(r"(?<![\w-])[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)+(?![\w-])")
_AFTER = re.compile(r"\b(?:function|tool)s?:?\s+([\w-]{1,64})", re.IGNORECASE)
#: Words of a refusal that is about a definition, whether it names it or not.
_OF_DEFINITIONS = re.compile(
    r"\btools?\b|\bfunctions?\b|schema|declaration|grammar|\bparameters\b|input_schema|propert(?:y|ies)", re.IGNORECASE
)
#: Refusals that say nothing at all.
_NOTHING = re.compile(
    r"\W*(?:bad request|invalid request|invalid argument|request contains an invalid argument|provider returned error|"
    r"unprocessable entity|invalid_request_error|error|null|none|\{\}|error code: 4\d\d)?\W*",
    re.IGNORECASE,
)


def refused_tools(refusal: Refusal, names: Sequence[str]) -> list[str]:
    """Return the names among `names`, which stand in the order of the request's definitions, that the refusal
    mentions."""
    if not _may_be_of_definitions(refusal):
        return []
    texts = (refusal.parameter, refusal.words)
    known = set(names)
    others = () if _OF_ALL.search(refusal.words) else (_quoted(texts), _bare(texts))
    for found in (_explicit(texts), _places(texts, names), *others):
        named = [name for name in dict.fromkeys(found) if name in known]
        if named:
            return named
    return []


def is_of_definitions(refusal: Refusal) -> bool:
    """Return whether the provider may have refused the definition of one tool."""
    return _may_be_of_definitions(refusal) and not _OF_ALL.search(refusal.words)


def _may_be_of_definitions(refusal: Refusal) -> bool:
    if refusal.status not in REFUSED:
        return False
    head = re.split(r"[\[.]", refusal.parameter)[0]
    if head not in ("", "tools", "tool", "functions", "body", "parameters", "schema"):
        return False
    if head in ("tools", "functions"):
        return True
    return bool(_OF_DEFINITIONS.search(refusal.words)) and not _OF_CALLS.search(refusal.words)


def says_nothing(refusal: Refusal) -> bool:
    """Return whether the refusal gives no reason at all."""
    return refusal.status in (400, 422) and not refusal.parameter and bool(_NOTHING.fullmatch(refusal.words))


def _explicit(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield from _NAMED.findall(text)
    for text in texts:
        yield from _AFTER.findall(text)


def _places(texts: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for text in texts:
        found = _DECLARED.findall(text) or _PLACED.findall(text)
        yield from (names[int(place)] for place in found if int(place) < len(names))


def _quoted(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield from _QUOTED.findall(text)


def _bare(texts: Sequence[str]) -> Iterator[str]:
    """Names of several words: one word alone may just be a word."""
    for text in texts:
        yield from _BARE.findall(text)


#: How Gemini speaks, and servers that make a grammar of a schema: rules of `capabilities/contract/rendering`.
_SPEAKS = (
    ("google", re.compile(r"function_?declarations?|GenerateContentRequest|google\.ai\.generativelanguage", re.I)),
    ("plain", re.compile(r"grammar|JSON schema conversion|xgrammar|outlines|guidance|unrecognized schema", re.I)),
)


def rules_spoken_of(refusal: Refusal) -> str:
    """The rules for definitions of the vendor that the refusal sounds like; empty for none."""
    return next((key for key, words in _SPEAKS if words.search(refusal.words)), "")
