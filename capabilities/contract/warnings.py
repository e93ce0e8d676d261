"""Warnings for a person about a definition from outside before it is accepted, and its text as a model may read it.

A definition's text is read by models beside the user's words: it can hide instructions, speak for other tools, or be
so long that it crowds them out. Nothing here decides; it says what is there. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Characters of a description above which a person is warned, and levels of a schema.
LONG_TEXT = 2_000
DEEP_SCHEMA = 10
#: Characters without a break that look like encoded bytes.
BLOB = 120
#: Names that one warning lists.
NAMED = 5

#: Characters that show nothing although their category does not say so: fillers, the blank of braille, variation
#: selectors, a joiner of graphemes, and vowels without a form.
_UNSEEN = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0x1D159, 0x1D159),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)
#: Controls, formats (with those of direction), halves of characters, private and unassigned ones.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
#: Characters that turn the order in which others are shown.
TURNING = frozenset(map(chr, (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
#: Joiners, which several scripts and many emoji are written with, and how an emoji is coloured.
_JOINERS = frozenset("\u200c\u200d")
_EMOJI_STYLE = frozenset("\ufe0e\ufe0f")
_LINES = {"\r\n": "\n", "\r": "\n", "\u2028": "\n", "\u2029": "\n", "\u0085": "\n"}
#: Breaks of lines and tabs, which stay.
_SPACING = dict.fromkeys(map(ord, "\n\t"))
#: Sequences that move a terminal's cursor or hide text there.
_ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_BLOB = re.compile(rf"[A-Za-z0-9+/_-]{{{BLOB},}}={{0,2}}|data:[\w.+-]+/[\w.+-]+;base64,")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
#: A header's name (RFC 9110), and the types that may carry one.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_TYPES = ("string", "integer", "boolean")
HEADER_KEY = "x-mcp-header"


@dataclass(frozen=True)
class DefinitionWarning:
    """One thing to know: a code for programs and filters, a sentence for people."""

    code: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text}


#: Text for each code where people filter by it.
TITLES = {
    "hidden_characters": "Hidden characters",
    "turned_text": "Text that is shown in another order",
    "terminal_codes": "Terminal codes",
    "long_text": "Long text",
    "encoded_data": "Encoded data",
    "names_tools": "Speaks of other tools",
    "deep_schema": "Deeply nested arguments",
    "header_annotation": "Malformed header annotation",
    "no_description": "No description",
    "effect_unclear": "May change something",
    "deprecated": "Deprecated",
    "arguments_renamed": "Arguments renamed",
    "left_out": "Something is left out",
    "credential": "Needs a credential",
    "other_server": "Calls another server",
    "unchecked_code": "Code is not checked",
    "media_type": "One of several types of body",
    "schema_mended": "Arguments put right",
    "name_written": "Names in other letters",
    "too_large": "Too large to be sent",
}


def warnings_of(
    description: str, parameters: Any, *, other_names: Collection[str] = frozenset(), annotations: Any = None
) -> list[DefinitionWarning]:
    """Return the warnings that the text and the schema of one definition give reason for, worst first.

    `other_names` are the tools that it has no business to speak of: those of the catalogue that do not come from the
    same source.
    """
    texts = [description, *_texts(parameters), *_texts(annotations)]
    whole = "\n".join(texts)
    found = [
        *_hidden_warnings(whole),
        *_names_warnings(whole, other_names),
        *_blob_warnings(whole),
        *_length_warnings(texts, description),
        *_depth_warnings(parameters),
        *_header_warnings(parameters),
    ]
    if not normalised(description).strip():
        found.append(DefinitionWarning("no_description", "It has no description: a model chooses by that text."))
    return found


# -- Text as a model may read it --------------------------------------------------------------------------------------


def normalised(text: str) -> str:
    """The text without what a reader cannot see, in the form that databases and providers take. Never longer.

    Joiners and the style of an emoji stay where they stand between what they join.
    """
    text = _ANSI.sub("", text.encode("utf-8", "replace").decode())
    for old, new in _LINES.items():
        text = text.replace(old, new)
    if text.isascii() and text.translate(_SPACING).isprintable():
        return text
    kept: list[str] = []
    for index, character in enumerate(text):
        if not is_hidden(character):
            kept.append(character)
        elif character in _JOINERS or character in _EMOJI_STYLE:
            before, after = kept[-1] if kept else "", text[index + 1 : index + 2]
            if character in _EMOJI_STYLE:
                is_kept = _is_joined(before)
            else:
                is_kept = (_is_joined(before) or before in _EMOJI_STYLE) and _is_joined(after)
            kept += [character] * is_kept
    return "".join(kept)


def normalised_value(value: Any) -> Any:
    """A JSON value with all its text normalised, the names in it included."""
    if isinstance(value, str):
        return normalised(value)
    if isinstance(value, list):
        return [normalised_value(each) for each in value]
    if isinstance(value, Mapping):
        return {normalised(key): normalised_value(each) for key, each in value.items()}
    return value


def is_hidden(character: str) -> bool:
    """Return whether a reader cannot see the character, or sees others elsewhere because of it."""
    if character in "\n\t" or (character.isascii() and character.isprintable()):
        return False
    return unicodedata.category(character) in _HIDDEN or character in _UNSEEN


def _is_joined(character: str) -> bool:
    """Return whether this is written with joiners: a letter or sign beyond Latin, or an emoji, and no hidden one."""
    return bool(character) and ord(character) > 0x2BF and not is_hidden(character)


# -- What there is to say ---------------------------------------------------------------------------------------------


def _hidden_warnings(text: str) -> Iterator[DefinitionWarning]:
    """Yield warnings of characters that are not seen, turn the order of text, or steer a terminal."""
    if text.isascii() and text.translate(_SPACING).isprintable():
        return
    if _ANSI.search(text):
        yield DefinitionWarning("terminal_codes", "It holds codes that hide or move text in a terminal.")
    turned = sum(character in TURNING for character in text)
    if turned:
        verb = "shows" if turned == 1 else "show"
        yield DefinitionWarning("turned_text", f"{_counted(turned, 'character')} {verb} text in another order.")
    plain = _ANSI.sub("", text)
    for old, new in _LINES.items():
        plain = plain.replace(old, new)
    hidden = len(plain) - len(normalised(plain)) - turned
    if hidden > 0:
        spelled = _spelled(plain)
        hint = f" They spell: {spelled}." if spelled else ""
        yield DefinitionWarning(
            "hidden_characters",
            f"{_counted(hidden, 'character')} cannot be seen and {'is' if hidden == 1 else 'are'} taken out.{hint}",
        )


def _spelled(text: str) -> str:
    """Return the text that tag characters (U+E0020 to U+E007E) spell, quoted; models read them and people do not."""
    letters = "".join(chr(ord(each) - 0xE0000) for each in text if 0xE0020 <= ord(each) <= 0xE007E)
    return f"“{letters[:200]}”" if letters.strip() else ""


def _names_warnings(text: str, names: Collection[str]) -> Iterator[DefinitionWarning]:
    words = set(_WORD.findall(text)) & set(names)
    found = sorted(name for name in words if _is_compound(name) or _is_spoken_of(name, text))
    if found:
        more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
        listed = ", ".join(found[:NAMED])
        yield DefinitionWarning("names_tools", f"Its text speaks of other tools of the catalogue: {listed}{more}.")


def _is_compound(name: str) -> bool:
    """Return whether a name is no word of a language: search_tools, readFile."""
    return "_" in name or any(each.isupper() for each in name[1:]) or any(each.isdigit() for each in name)


def _is_spoken_of(name: str, text: str) -> bool:
    """Return whether a name that is also a plain word stands in the text as a name."""
    quoted = re.escape(name)
    return bool(re.search(rf"[`'\"“]{quoted}[`'\"”]|\b{quoted} tool\b|\btool {quoted}\b|\b{quoted}\(", text))


def _blob_warnings(text: str) -> Iterator[DefinitionWarning]:
    if any(_is_blob(found[0]) for found in _BLOB.finditer(text)):
        yield DefinitionWarning("encoded_data", "It holds what looks like encoded data, which no reader can check.")


def _is_blob(run: str) -> bool:
    """Return whether characters without a break are encoded bytes: a long path has a sign between its words."""
    return ";base64," in run or sum(run.count(sign) for sign in "-_/") * 12 <= len(run)


def _length_warnings(texts: Collection[str], description: str) -> Iterator[DefinitionWarning]:
    longest = max(map(len, texts), default=0)
    if longest > LONG_TEXT:
        where = "Its description" if len(description) == longest else "A text of its arguments"
        yield DefinitionWarning("long_text", f"{where} has {longest:,} characters; {LONG_TEXT:,} are usual at most.")


def _depth_warnings(parameters: Any) -> Iterator[DefinitionWarning]:
    depth = schema_depth(parameters)
    if depth > DEEP_SCHEMA:
        yield DefinitionWarning("deep_schema", f"Its arguments are nested {depth} deep, which models fill in badly.")


def schema_depth(schema: Any) -> int:
    """Return the depth of nested objects and lists of arguments: 1 for plain arguments. References count once."""
    deepest, level = 0, [(schema, 0)]
    while level:
        node, depth = level.pop()
        deepest = max(deepest, depth)
        if not isinstance(node, Mapping):
            continue
        for key, value in node.items():
            if key in ("properties", "patternProperties", "$defs", "definitions") and isinstance(value, Mapping):
                level += [(each, depth + 1) for each in value.values()]
            elif key in ("items", "additionalProperties", "contains", "not") and isinstance(value, Mapping):
                level.append((value, depth + 1))
            elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
                level += [(each, depth) for each in value]
    return deepest


def _header_warnings(parameters: Any) -> Iterator[DefinitionWarning]:
    reason = header_flaw(parameters)
    if reason:
        yield DefinitionWarning("header_annotation", reason)


def header_flaw(parameters: Any) -> str:
    """Return the error of the first malformed `x-mcp-header` of a schema, as a sentence; "" where all are well formed.

    MCP of 2026-07-28: a client does not take a tool that has one.
    """
    seen: set[str] = set()
    nodes: list[tuple[Any, str, bool]] = [(parameters, "", True)]
    while nodes:
        node, where, is_plain = nodes.pop()
        if isinstance(node, list):
            nodes += [(each, where, False) for each in node]
            continue
        if not isinstance(node, Mapping):
            continue
        if HEADER_KEY in node:
            flaw = _flaw_of_header(node, where, is_plain, seen)
            if flaw:
                return flaw
        for key, value in node.items():
            if key == "properties" and isinstance(value, Mapping):
                nodes += [(each, f"{where}.{name}" if where else str(name), is_plain) for name, each in value.items()]
            elif key not in (HEADER_KEY, "default", "examples", "example", "const", "enum"):
                nodes.append((value, where, False))
    return ""


def _flaw_of_header(node: Mapping[str, Any], where: str, is_plain: bool, seen: set[str]) -> str:
    header, subject = node[HEADER_KEY], where or "the arguments"
    if not where or not is_plain:
        return f"{HEADER_KEY} stands at {subject}, where no header can be made of it."
    if not isinstance(header, str) or not _HEADER_NAME.fullmatch(header):
        return f"{HEADER_KEY} of {subject} is not the name of a header."
    if node.get("type") not in _HEADER_TYPES:
        return f"{HEADER_KEY} of {subject} is on an argument that is no text, whole number or boolean."
    if header.lower() in seen:
        return f"{HEADER_KEY} {header} is there twice."
    seen.add(header.lower())
    return ""


def _texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value, names of arguments included."""
    nodes = [value]
    while nodes:
        node = nodes.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, Mapping):
            nodes += [*node.keys(), *node.values()]
        elif isinstance(node, list):
            nodes += node


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
