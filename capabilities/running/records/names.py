"""Names that people type: their form, their comparison, and the search in texts. Knows no tool and no row."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from capabilities.contract.context import ToolError

#: Characters of a name, and of its key: folding can make a text longer.
NAME_LIMIT = 200
KEY_LIMIT = 400


def folded(text: str) -> str:
    """Return the text as texts are compared: without case, width and ligatures. SQLite knows the case of ASCII letters
    only."""
    return unicodedata.normalize("NFKC", text).casefold()


def one_line(text: str, missing: str) -> str:
    """The text without needless blanks and line ends. Raises ToolError with the sentence where nothing is left."""
    line = " ".join(text.split())
    if not line:
        raise ToolError(missing)
    return line


def name_and_key(text: str, noun: str) -> dict[str, str]:
    """The fields of a named row: `name` as it is shown, `key` as it is compared. Raises ToolError for a name that is
    empty or too long."""
    name = one_line(text, f"{noun} needs a name.")
    key = folded(name)
    if len(name) > NAME_LIMIT or len(key) > KEY_LIMIT:
        raise ToolError(f"A name has at most {NAME_LIMIT} characters.")
    return {"name": name, "key": key}


def key_of(text: str) -> str:
    """Return the key by which a name is looked up."""
    return folded(" ".join(text.split()))


def words_of(query: str) -> list[str]:
    return re.findall(r"\w+", folded(query))[:20]


def holds_all(words: Iterable[str], *texts: str) -> bool:
    """Return whether each word occurs in one of the texts."""
    whole = folded("\n".join(texts))
    return all(word in whole for word in words)
