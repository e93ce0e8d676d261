"""Values of knobs as people type them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from capabilities.contract.knobs import ALL_KNOBS, KNOBS, PROGRAM_LIST, Knob

NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")


def typed(knob: Knob, text: str) -> Any:
    """The value that a text stands for; the text itself where it stands for none: the write says what is wrong."""
    text = text.strip()
    if knob.type == "switch":
        return {"yes": True, "no": False}.get(text, text)
    if knob.type == PROGRAM_LIST:
        return [] if text == "none" else [each for each in re.split(r"[\s,]+", text) if each]
    if knob.type in ("number", "integer") and NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def as_typed(value: Any) -> str:
    """A stored value as its field shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "\n".join(map(str, value)) or "none"
    return "" if value is None else str(value)


def further_knobs(text: str) -> dict[str, Any]:
    """Knobs that were typed as lines of `name: value`. Raises ValueError with a sentence for the first that is none."""
    found: dict[str, Any] = {}
    for line in filter(None, (each.strip() for each in text.splitlines())):
        name, colon, value = (each.strip() for each in line.partition(":"))
        if not colon or name not in KNOBS:
            known = ", ".join(knob.name for knob in ALL_KNOBS)
            raise ValueError(f"“{line[:60]}” is no knob and value; write such as ask: always. Knobs: {known}.")
        found[name] = typed(KNOBS[name], value)
    return found


def as_lines(knobs: Mapping[str, Any]) -> str:
    """Further knobs as `further_knobs` reads them."""
    return "\n".join(f"{name}: {as_typed(value).replace(chr(10), ' ')}" for name, value in knobs.items())
