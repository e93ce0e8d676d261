"""Arguments of a call beside those of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.common.visible import Part, visible_parts
from toolhub.bounded_json import load_json
from toolhub.tenants.audit.queries import changes


@dataclass(frozen=True)
class ArgumentChange:
    """One argument of two calls, with escapes for what cannot be seen; None where a call does not have it."""

    name: Sequence[Part]
    before: Sequence[Part] | None
    after: Sequence[Part] | None


def differing_arguments(earlier: str, arguments: str) -> list[ArgumentChange] | None:
    """Return the arguments that differ, by name; None where one of the calls has no object of arguments."""
    try:
        before, after = load_json(earlier), load_json(arguments)
    except ValueError:
        return None
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    return [
        ArgumentChange(_seen(each.name) or [], _seen(each.before), _seen(each.after))
        for each in changes(before, after, with_empty=True)
    ]


def _seen(text: str | None) -> list[Part] | None:
    return None if text is None else list(visible_parts(text))
