"""Cuts of the text of a JSON value, placed so that the part in front can be closed again. Pure.

One pass over the beginning of the text: the time grows with the number of characters shown, whatever is in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from capabilities.contract.text_cut import soft_end

_TOKEN = re.compile(
    r"""[ \t\n\r]*+(?:
        (?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
        |(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)|(?P<colon>:)
        |(?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
    )""",
    re.VERBOSE,
)
_CLOSERS = {"{": "}", "[": "]"}
#: Tokens that may follow, by what is expected; `(` stands for an opening bracket, `)` for a closing one.
_VALUE = frozenset({"string", "scalar", "open"})


@dataclass(frozen=True)
class JsonCut:
    """The text up to `end` becomes JSON again with `closing` behind it, but for the outermost container, which is open.

    `outermost` is its closing bracket, or `"` where the value is a string; `has_members`, whether something stands in
    it already.
    """

    end: int
    closing: str
    outermost: str
    has_members: bool


@dataclass
class _Scan:
    """Containers that are open at one point of the text."""

    #: The closing bracket of each container, the outermost first.
    open: list[str] = field(default_factory=list)
    #: For each of them, where its newest whole member ends, or where it begins.
    last: list[int] = field(default_factory=list)
    #: Where the outermost one begins.
    begin: int = 0

    def cut(self, depth: int, end: int, *, quote: str = "") -> JsonCut:
        """A cut at `end`, inside of the `depth` outermost containers."""
        closing = quote + "".join(reversed(self.open[1:depth]))
        return JsonCut(end, closing, self.open[0], has_members=end > self.begin)


def json_cut(text: str, room: int, slack: int) -> JsonCut | None:
    """Find the cut of the JSON value that the text is, so that at most `room` characters are shown and closed; None
    where the text is no JSON, or ends before.

    The cut is behind a whole member, the outermost that costs at most `slack` of the characters which could be shown;
    in a long string it is inside. A bracket that is still open takes one of `room`, the outermost aside.
    """
    if text.lstrip(" \t\n\r")[:1] not in ("{", "[", '"'):
        return None
    scan, at, expected = _Scan(), 0, "value"
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        kind, start, end = found.lastgroup or "", found.start(found.lastgroup or 0), found.end()
        after = _next(scan, expected, kind, text[start])
        if after is None:
            return None
        if end + max(len(scan.open) - 1 + (1 if kind == "open" else -1 if kind == "close" else 0), 0) > room:
            is_value = kind == "string" and after != "colon"
            return _best(scan, text, room, slack, string_at=start if is_value else None)
        if kind == "open":
            scan.begin = scan.begin if scan.open else end
            scan.open.append(_CLOSERS[text[start]])
            scan.last.append(end)
        elif kind == "close":
            scan.open.pop()
            scan.last.pop()
        if after == "comma":
            if not scan.open:
                return None
            scan.last[-1] = end
        at, expected = end, after


def _next(scan: _Scan, expected: str, kind: str, character: str) -> str | None:
    """Return what is expected behind this token: `value`, `first value` or `first key` (of a container, which may end
    there), `key`, `colon`, `comma` (or the end of the container); None where the token is out of place."""
    if kind == "close":
        may_end = expected in ("comma", "first value", "first key")
        return "comma" if may_end and scan.open and scan.open[-1] == character else None
    if kind == "open" and expected in ("value", "first value"):
        return "first key" if character == "{" else "first value"
    if kind in _VALUE and expected in ("value", "first value"):
        return "comma"
    if kind == "string" and expected in ("key", "first key"):
        return "colon"
    if kind == "colon" and expected == "colon":
        return "value"
    if kind == "comma" and expected == "comma" and scan.open:
        return "key" if scan.open[-1] == "}" else "value"
    return None


def _best(scan: _Scan, text: str, room: int, slack: int, *, string_at: int | None) -> JsonCut | None:
    """The cut, at the point where the next token has no room; `string_at` is where that begins, if it is a string that
    stands as a value."""
    inside, most = 0, room - 1 - max(len(scan.open) - 1, 0)
    if string_at is not None and most > string_at:
        inside = soft_end(text, most, slack, start=string_at + 1, newline=r"\n")
    if not scan.open:
        return JsonCut(inside, "", '"', has_members=True) if inside else None
    limit = max(inside, scan.last[-1])
    for depth, end in enumerate(scan.last, start=1):
        if end >= limit - slack:
            return scan.cut(depth, end)
    return scan.cut(len(scan.open), inside, quote='"')
