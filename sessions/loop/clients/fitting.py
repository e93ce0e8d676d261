"""A conversation made fit for the model that reads it next. Pure: neutral messages in, neutral messages out.

For every model, whatever the conversation came from: a reply without words and calls is left out, each result follows
its call and each call has one result, and no two calls have the same id. What only some models insist on is a rule,
known of the vendor or learned from a refusal (`rule_of`):

call_ids          ids are letters and digits of this exact length, or (above EXACT) at most this many characters, all of
                  them letters, digits, _ and -
no_empty_text     no message is empty
no_null_text      a reply that is all calls has an empty text, and not none
system_first      what stands for the system is one message in front
no_system         what stands for the system is the beginning of the user's first message
alternate         messages of one role in a row are one
user_first        the conversation begins with the user
answered_results  a reply stands between results and the user's next message

What is changed is the same in each request, so that a provider's prompt cache holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sessions.loop.clients.refusals import REFUSED, Refusal
from sessions.loop.clients.requests import TOOLS

Message = dict[str, Any]
Rules = Mapping[str, int]
#: Lengths of ids up to this one are exact: no vendor takes so few, and any number below as well.
EXACT = 16
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#: Text in place of an empty one.
NO_TEXT = "(no text)"
NO_RESULT = "(no result)"
BEGUN = "(The conversation goes on.)"
NOTED = "(noted)"


def fitted(messages: Sequence[Mapping[str, Any]], rules: Rules) -> list[Message]:
    """The conversation under these rules. What needs no change is passed on as it is."""
    found = list(_paired(messages))
    if "system_first" in rules or "no_system" in rules:
        found = _system_first(found)
    if "answered_results" in rules:
        found = list(_answered(found))
    if "alternate" in rules:
        found = list(_merged(found))
    if "user_first" in rules or "alternate" in rules:
        found = _begun_by_user(found)
    if "no_system" in rules:
        found = _without_system(found)
    if "no_empty_text" in rules:
        found = list(map(_with_text, found))
    if "no_null_text" in rules:
        found = [each if each.get("content") is not None else {**each, "content": ""} for each in found]
    if "call_ids" in rules:
        found = list(_with_ids(found, rules["call_ids"]))
    return found


# -- For every model --------------------------------------------------------------------------------------------------


def _paired(messages: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the messages without replies that say nothing, and with one result for each call, right behind it."""
    known: set[str] = set()
    #: The ids of calls without a result so far: as they are, and as they go out.
    left: list[tuple[str, str]] = []
    for each in messages:
        message = dict(each)
        if message["role"] != "tool":
            yield from (_result(id, NO_RESULT) for _, id in left)
            left = []
        if message["role"] == "tool":
            pair = next((pair for pair in left if pair[0] == message["tool_call_id"]), None)
            if pair is not None:
                left.remove(pair)
                yield {**message, "tool_call_id": pair[1], "content": message["content"] or ""}
        elif message["role"] != "assistant":
            yield message
        elif message.get("tool_calls"):
            ids = [call["id"] for call in message["tool_calls"]]
            new = [_unlike(id, known) for id in ids]
            left = list(zip(ids, new, strict=True))
            yield message if new == ids else _with_call_ids(message, new)
        elif _says(message) or message.get("extras"):
            yield message
    yield from (_result(id, NO_RESULT) for _, id in left)


def _unlike(id: str, known: set[str]) -> str:
    """The id, or where it came before, one that did not."""
    new, count = id, 2
    while new in known:
        new, count = f"{id[:56]}_{count}", count + 1
    known.add(new)
    return new


def _result(id: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content}


def _with_call_ids(message: Message, ids: Sequence[str]) -> Message:
    calls = [{**call, "id": id} for call, id in zip(message["tool_calls"], ids, strict=True)]
    return {**message, "tool_calls": calls}


def _says(message: Mapping[str, Any]) -> bool:
    return bool((message.get("content") or "").strip())


# -- Rules ------------------------------------------------------------------------------------------------------------


def _with_ids(messages: Sequence[Message], length: int) -> Iterator[Message]:
    for message in messages:
        if message["role"] == "tool":
            yield {**message, "tool_call_id": sent_id(message["tool_call_id"], length)}
        elif message.get("tool_calls"):
            yield _with_call_ids(message, [sent_id(call["id"], length) for call in message["tool_calls"]])
        else:
            yield message


def sent_id(id: str, length: int) -> str:
    """The id in a form of this length; one that fits stays as it is."""
    if length > EXACT:
        return id if re.fullmatch(f"[a-zA-Z0-9_-]{{1,{length}}}", id) else f"call_{_letters(id, length - 5)}"
    return id if re.fullmatch(f"[a-zA-Z0-9]{{{length}}}", id) else _letters(id, length)


def _letters(id: str, length: int) -> str:
    """Return `length` letters and digits, 40 at most, that stand for the id."""
    number, found = int.from_bytes(sha256(id.encode("utf-8", "replace")).digest()), ""
    while len(found) < min(length, 40):
        number, place = divmod(number, len(_ALPHABET))
        found += _ALPHABET[place]
    return found


def _with_text(message: Message) -> Message:
    if message["role"] == TOOLS or _says(message) or message.get("tool_calls"):
        return message
    return {**message, "content": NO_RESULT if message["role"] == "tool" else NO_TEXT}


def _system_first(messages: Sequence[Message]) -> list[Message]:
    texts = [each["content"] for each in messages if each["role"] == "system" and _says(each)]
    others = [each for each in messages if each["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others] if texts else others


def _without_system(messages: Sequence[Message]) -> list[Message]:
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, *others = messages
    at = next((place for place, each in enumerate(others) if each["role"] == "user"), None)
    if at is None:
        return [{"role": "user", "content": system["content"]}, *others]
    texts = [system["content"], others[at].get("content")]
    others[at] = {**others[at], "content": "\n\n".join(text for text in texts if text)}
    return others


def _answered(messages: Sequence[Message]) -> Iterator[Message]:
    before = ""
    for message in messages:
        if message["role"] == "user" and before == "tool":
            yield {"role": "assistant", "content": NOTED}
        before = message["role"]
        yield message


def _merged(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages, those of the user, or of the assistant, that stand in a row as one; results stay as they
    are."""
    last: Message | None = None
    for message in messages:
        if last is not None and _are_one(last, message):
            texts = [text for text in (last.get("content"), message.get("content")) if text]
            images = [*last.get("images", ()), *message.get("images", ())]
            last = {**last, **message, "content": "\n\n".join(texts)} | ({"images": images} if images else {})
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def _are_one(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["role"] != other["role"] or one["role"] not in ("user", "assistant", "system"):
        return False
    return "extras" not in one and "extras" not in other  # behind calls stand their results


def _begun_by_user(messages: list[Message]) -> list[Message]:
    at = next((place for place, each in enumerate(messages) if each["role"] not in ("system", TOOLS)), len(messages))
    if at == len(messages) or messages[at]["role"] == "user":
        return messages
    return [*messages[:at], {"role": "user", "content": BEGUN}, *messages[at:]]


# -- What a refusal teaches -------------------------------------------------------------------------------------------

_ID = r"(?:tool[_ ]?call|function[_ ]?call|call)[_ ]?ids?\b|tool_calls?[\[.\]0-9]*\.?id\b|call_id"
_EXACT = re.compile(
    rf"(?:{_ID}).{{0,200}}?(?:(?:length of|exactly|be)\s+(?:an?\s+)?(\d{{1,2}})\b|(\d{{1,2}})[ -]char)",
    re.IGNORECASE | re.DOTALL,
)
_MOST = re.compile(
    rf"(?:{_ID}).{{0,300}}?(?:max(?:imum)?(?: length)?(?: of)?|at most|longer than|up to|<=)\s*(?:length\s*)?"
    r"(\d{2,3})\b",
    re.IGNORECASE | re.DOTALL,
)
#: Ids of other letters are refused, and no length is named.
_OTHER_IDS = re.compile(
    rf"(?:{_ID}|tool_use(?:_id|\.id)|tool_calls?\S{{0,20}}\.id).{{0,200}}?(?:pattern|alphanumeric|invalid character)",
    re.IGNORECASE | re.DOTALL,
)
MOST_LETTERS = 40
_TEXTS = (
    (
        "no_null_text",
        re.compile(
            r"expected a string, got null|content.{0,60}none is not an allowed|content.{0,60}\bnull\b"
            r"|none is not of type.{0,60}content|content.{0,200}input_value=none|input_value=none.{0,200}content",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "no_empty_text",
        re.compile(
            r"(?:content|text|message|parts?)\b.{0,80}(?:non-?empty|not be empty|be empty|cannot be (?:empty|blank)"
            r"|non-whitespace|is empty|is blank|at least one|must not be blank|minimum number of items)"
            r"|too short.{0,60}content"
            r"|(?:empty|blank) (?:content|text|message)"
            r"|must have either content or tool_calls|must include at least one parts? field",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "answered_results",
        re.compile(r"unexpected role '?user'? after role '?tool|user.{0,30}(?:after|follow)\w*.{0,20}tool", re.I),
    ),
    (
        "no_system",
        re.compile(
            r"system(?: role| message| prompt|'? role)?s? (?:is |are )?not (?:supported|allowed)"
            r"|not support.{0,30}(?:role )?'?system\b|developer instruction is not enabled",
            re.IGNORECASE,
        ),
    ),
    (
        "system_first",
        re.compile(
            r"unexpected role '?system|system (?:message|role|prompt)s?.{0,60}(?:first|beginning|start|begin)"
            r"|(?:only|one|single|multiple).{0,20}system (?:message|prompt)|first message.{0,30}\bsystem\b",
            re.IGNORECASE,
        ),
    ),
    (
        "alternate",
        re.compile(
            r"alternat|consecutive .{0,30}(?:roles?|messages?|user|assistant)|roles? must .{0,30}(?:differ|switch)"
            r"|unexpected role '?(?:user|assistant)'? after role '?(?:user|assistant)|same role",
            re.IGNORECASE,
        ),
    ),
    (
        "user_first",
        re.compile(
            r"(?:first|begin|start)\w*.{0,60}\buser\b|\buser\b.{0,40}(?:first|begin|start)"
            r"|no user query|function call turn comes immediately after a user turn|unexpected role '?assistant",
            re.IGNORECASE,
        ),
    ),
)


def rule_of(refusal: Refusal, in_force: Rules) -> tuple[str, int] | None:
    """The rule that a refusal of the conversation asks for, with its number; None for none, and for one that is in
    force."""
    if refusal.status not in REFUSED:
        return None
    if found := _EXACT.search(refusal.words) or _MOST.search(refusal.words):
        return _new("call_ids", int(next(filter(None, found.groups()))), in_force)
    if _OTHER_IDS.search(refusal.words) and "call_ids" not in in_force:
        return "call_ids", EXACT if "alphanumeric" in refusal.words else MOST_LETTERS
    for name, words in _TEXTS:
        if words.search(refusal.words) and name not in in_force:
            return name, 0
    return None


def _new(name: str, number: int, in_force: Rules) -> tuple[str, int] | None:
    return (name, number) if number >= 6 and in_force.get(name) != number else None
