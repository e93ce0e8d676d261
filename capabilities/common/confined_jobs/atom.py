"""The entries of an Atom feed (RFC 4287). Document types and entities are refused: nothing grows or is fetched."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

ATOM = "{http://www.w3.org/2005/Atom}"
#: Characters of one text, and authors of one entry.
TEXT_LIMIT = 20_000
AUTHORS = 100


def run(document: str, most: int) -> list[dict[str, Any]] | None:
    """The first `most` entries, or None where the document is no plain feed.

    Each character of it stands for one byte: the document itself says how it is encoded.
    """
    try:
        feed = fromstring(document.encode("latin-1"), forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        return None
    if feed.tag != f"{ATOM}feed":
        return None
    return [_entry(entry) for entry in feed.findall(f"{ATOM}entry")[:most]]


def _entry(entry: Element) -> dict[str, Any]:
    """Texts by the name of their element, terms of categories, authors, and links by their title or relation."""
    texts = {name: _text(entry.find(ATOM + name)) for name in ("id", "title", "published", "summary")}
    category = entry.find("{*}primary_category")
    # The first link of a name counts.
    every = reversed(entry.findall(f"{ATOM}link"))
    links = {each.get("title") or each.get("rel") or "": each.get("href", "") for each in every}
    authors = [_text(name) for name in entry.findall(f"{ATOM}author/{ATOM}name")[:AUTHORS]]
    return texts | {
        "category": "" if category is None else category.get("term", ""),
        "authors": authors,
        "links": links,
    }


def _text(element: Element | None) -> str:
    """Text of the element, on one line."""
    return "" if element is None else " ".join("".join(element.itertext())[:TEXT_LIMIT].split())
