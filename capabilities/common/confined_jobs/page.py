"""Title and text of an HTML page, as a reader would see it."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

#: Characters of HTML that are looked at.
HTML_LIMIT = 1_000_000
#: Characters that are taken at a time.
CHUNK = 16_384


def run(html: str, most: int, seconds: float) -> dict[str, Any]:
    """`title`, the first `most` characters of the `text`, and whether this is the `whole` page."""
    title, text, whole = readable(html, time.monotonic() + seconds)
    return {"title": title, "text": text[:most], "whole": whole and len(text) <= most}


def readable(html: str, deadline: float = float("inf")) -> tuple[str, str, bool]:
    """Title and text of a page, and whether it was read to its end: before the deadline (of time.monotonic) and within
    HTML_LIMIT.

    It is fed in pieces and never closed: closing makes the parser try the rest again from each `<`, in quadratic time.
    """
    page = _Page()
    for start in range(0, min(len(html), HTML_LIMIT), CHUNK):
        if time.monotonic() > deadline:
            return page.title, page.text, False
        page.feed(html[start : start + CHUNK])
    return page.title, page.text, len(html) <= HTML_LIMIT


class _Page(HTMLParser):
    """Collects what a reader of the page would see."""

    UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
    INLINE = frozenset(
        "a abbr b bdi bdo cite code data em font i img ins kbd label mark q s samp small span strong sub sup time tt u"  # noqa: SIM905
        " var wbr".split()
    )
    CELLS = frozenset({"td", "th"})
    #: Stands for a space of a preformatted text, until the others are folded.
    KEPT_SPACE = "\0"

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._unseen: list[str] = []
        self._preformatted = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.UNSEEN:
            self._unseen.append(tag)
        elif tag == "title" and not self._unseen:
            self._in_title = True
        elif tag == "body":
            self._unseen.clear()  # a head that never closed its tags hides no page
        if tag == "pre":
            self._preformatted = True
        if tag not in self.INLINE | self.CELLS:
            self._pieces.append("\n- " if tag == "li" else "\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.INLINE:
            self._pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        if tag in {"title", "head"}:
            self._in_title = False
        if tag == "pre":
            self._preformatted = False
        if tag in self.CELLS:
            self._pieces.append(" ")
        elif tag not in self.INLINE:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._in_title:
            self._title.append(data)
        elif self._preformatted:
            self._pieces.append(data.expandtabs(4).replace(" ", self.KEPT_SPACE))
        else:
            self._pieces.append(data.replace("\n", " "))

    @property
    def title(self) -> str:
        return " ".join("".join(self._title).split())[:500]

    @property
    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        kept = (line.replace(self.KEPT_SPACE, " ").rstrip() for line in lines)
        return "\n".join(line for line in kept if line not in {"", "-"})
