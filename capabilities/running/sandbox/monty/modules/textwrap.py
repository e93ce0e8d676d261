"""`textwrap`: dedent, indent, wrap, fill and shorten, without the options for hyphens and tabs."""

from typing import Any


def dedent(text: str) -> str:
    lines = [line if line.strip() else "" for line in text.split("\n")]
    margin = None
    for line in lines:
        if line:
            space = line[: len(line) - len(line.lstrip(" \t"))]
            if margin is None:
                margin = space
            while not space.startswith(margin):
                margin = margin[:-1]
    return "\n".join([line[len(margin or "") :] for line in lines])


def indent(text: str, prefix: str, predicate: Any = None) -> str:
    found = ""
    for line in text.splitlines(True):
        wanted = predicate(line) if predicate is not None else bool(line.strip())
        found += prefix + line if wanted else line
    return found


def wrap(
    text: str, width: int = 70, initial_indent: str = "", subsequent_indent: str = "", break_long_words: bool = True
) -> list[str]:
    if width <= 0:
        raise ValueError(f"invalid width {width!r} (must be > 0)")
    lines: list[str] = []
    line, is_empty = initial_indent, True
    for word in text.split():
        while True:
            room = max(1, width - len(line)) - (0 if is_empty else 1)
            if len(word) <= room:
                line += word if is_empty else " " + word
                is_empty = False
                break
            if is_empty:
                if not break_long_words:
                    line += word
                    is_empty = False
                    break
                line += word[:room]
                word = word[room:]
            elif break_long_words and len(word) > max(1, width - len(subsequent_indent)) and room > 0:
                line += " " + word[:room]
                word = word[room:]
            lines.append(line)
            line, is_empty = subsequent_indent, True
    if not is_empty:
        lines.append(line)
    return lines


def fill(
    text: str, width: int = 70, initial_indent: str = "", subsequent_indent: str = "", break_long_words: bool = True
) -> str:
    return "\n".join(wrap(text, width, initial_indent, subsequent_indent, break_long_words))


def shorten(text: str, width: int, placeholder: str = " [...]") -> str:
    words = text.split()
    whole = " ".join(words)
    if len(whole) <= width:
        return whole
    if len(placeholder.lstrip()) > width:
        raise ValueError("placeholder too large for max width")
    found = ""
    for word in words:
        longer = found + " " + word if found else word
        if len(longer) + len(placeholder) > width:
            break
        found = longer
    return found + placeholder if found else placeholder.lstrip()
