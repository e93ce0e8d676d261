"""Title and text of an HTML page, as a reader would see it."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

#: Characters of HTML that are looked at.
HTML_LIMIT = 1_000_000
#: Characters that are taken at a time.
CHUNK = 16_384


def run(html: str, most: int, seconds: float, main: bool = False) -> dict[str, Any]:
    """Return `title`, the first `most` characters of the `text`, and whether this is the `whole` page. With `main`
    without menus and the like, where something remains."""
    title, text, whole = readable(html, time.monotonic() + seconds, main=main)
    return {"title": title, "text": text[:most], "whole": whole and len(text) <= most}


def readable(html: str, deadline: float = float("inf"), *, main: bool = False) -> tuple[str, str, bool]:
    """Title and text of a page, and whether it was read to its end: before the deadline (of time.monotonic) and within
    HTML_LIMIT. With `main` its main text, where the page has one.

    It is fed in pieces and never closed: closing makes the parser try the rest again from each `<`, in quadratic time.
    """
    page = _Page()
    for start in range(0, min(len(html), HTML_LIMIT), CHUNK):
        if time.monotonic() > deadline:
            return page.title, page.main_text if main else page.text, False
        page.feed(html[start : start + CHUNK])
    return page.title, page.main_text if main else page.text, len(html) <= HTML_LIMIT


class _Page(HTMLParser):
    """Collects what a reader of the page would see."""

    UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
    INLINE = frozenset(
        "a abbr b bdi bdo cite code data em font i img ins kbd label mark q s samp small span strong sub sup time tt u"  # noqa: SIM905
        " var wbr".split()
    )
    CELLS = frozenset({"td", "th"})
    #: Elements beside the main text of a page.
    BESIDE = frozenset({"nav", "aside", "footer", "menu", "dialog"})
    #: Least share of the page in a main text: one character in so many. A menu that is never closed hides no page.
    LEAST_MAIN = 4
    #: How deep they may stand in each other.
    MOST_BESIDE = 50
    #: Stands for a space of a preformatted text, until the others are folded.
    KEPT_SPACE = "\0"

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        #: Pieces without those beside the main text, as far as that can be recognised.
        self._main: list[str] = []
        self._beside: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._unseen: list[str] = []
        self._preformatted = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.BESIDE and not self._unseen and len(self._beside) < self.MOST_BESIDE:
            self._beside.append(tag)
        if tag in self.UNSEEN:
            self._unseen.append(tag)
        elif tag == "title" and not self._unseen:
            self._in_title = True
        elif tag == "body":
            self._unseen.clear()  # a head that never closed its tags hides no page
        if tag == "pre":
            self._preformatted = True
        if tag not in self.INLINE | self.CELLS:
            self._add("\n- " if tag == "li" else "\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.INLINE:
            self._add("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._beside and not self._unseen:
            del self._beside[self._beside.index(tag) :]
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        if tag in {"title", "head"}:
            self._in_title = False
        if tag == "pre":
            self._preformatted = False
        if tag in self.CELLS:
            self._add(" ")
        elif tag not in self.INLINE:
            self._add("\n")

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._in_title:
            self._title.append(data)
        elif self._preformatted:
            self._add(data.expandtabs(4).replace(" ", self.KEPT_SPACE))
        else:
            self._add(data.replace("\n", " "))

    @property
    def title(self) -> str:
        return " ".join("".join(self._title).split())[:500]

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        if not self._beside:
            self._main.append(piece)

    @property
    def text(self) -> str:
        return self._folded(self._pieces)

    @property
    def main_text(self) -> str:
        """Text without menus, asides and footers; all of it where that leaves little."""
        main, whole = self._folded(self._main), self.text
        return main if len(main) * self.LEAST_MAIN >= len(whole) else whole

    def _folded(self, pieces: list[str]) -> str:
        lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
        kept = (line.replace(self.KEPT_SPACE, " ").rstrip() for line in lines)
        return "\n".join(line for line in kept if line not in {"", "-"})
