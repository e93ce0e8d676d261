"""An Atom feed (RFC 4287) as entries. Document types and entities are refused, so nothing grows and nothing is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

NAMESPACE = "http://www.w3.org/2005/Atom"
#: Elements within one another, and characters of one text.
DEPTH_LIMIT = 20
TEXT_LIMIT = 20_000


class NotAtom(ValueError):
    """The document is no Atom feed that is taken."""


@dataclass
class Entry:
    """One entry: texts by element name, authors, and links by their title or relation."""

    texts: dict[str, str] = field(default_factory=dict)
    authors: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return re.sub(r"\s+", " ", self.texts.get(name, "")).strip()


def entries(document: bytes) -> list[Entry]:
    """Raises NotAtom for whatever else it is."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.say
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise NotAtom(str(NotAtom.__doc__)) from error
    if not reader.is_feed:
        raise NotAtom(str(NotAtom.__doc__))
    return reader.entries


def _refuse(*declaration: object) -> None:
    raise NotAtom("The document declares a type or an entity.")


class _Reader:
    """Collects what stands directly in an entry, and the names of its authors."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.path: list[str] = []
        self.is_feed = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, name = tag.rpartition(" ")
        if not self.path:
            self.is_feed = (namespace, name) == (NAMESPACE, "feed")
        self.path.append(name)
        if len(self.path) > DEPTH_LIMIT:
            raise NotAtom("The document is nested too deep.")
        if self.path == ["feed", "entry"]:
            self.entries.append(Entry())
        elif self.path == ["feed", "entry", "link"]:
            relation = attributes.get("title") or attributes.get("rel", "")
            self.entries[-1].links.setdefault(relation, attributes.get("href", ""))
        elif self.path == ["feed", "entry", "author", "name"]:
            self.entries[-1].authors.append("")
        elif self.path[:2] == ["feed", "entry"] and name == "primary_category":
            self.entries[-1].texts[name] = attributes.get("term", "")

    def end(self, tag: str) -> None:
        self.path.pop()

    def say(self, text: str) -> None:
        if self.path == ["feed", "entry", "author", "name"]:
            self.entries[-1].authors[-1] = (self.entries[-1].authors[-1] + text)[:TEXT_LIMIT]
        elif len(self.path) == 3 and self.path[:2] == ["feed", "entry"]:
            texts, name = self.entries[-1].texts, self.path[2]
            texts[name] = (texts.get(name, "") + text)[:TEXT_LIMIT]
