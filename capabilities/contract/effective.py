"""Arguments as they take effect: decisions look at these, and not at what was written.

An argument that a call leaves out has the default of its schema. Where the schema has none, or the tool is somebody
else's and the value is null, only the far side knows what takes effect: such an argument is *unknown*, and a rule that
asks or denies counts it as a match. What is sent to a tool from outside stays what was written: to leave a field out of
an update and to write its default can be two different things there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from capabilities.contract.patterns import text_matches
from capabilities.contract.wire import canonical_json

#: How deep defaults are filled in, and how many schemas are looked at for one call: what is beyond is unknown.
MAX_DEPTH = 20
MAX_NODES = 5_000


@dataclass(frozen=True)
class Effective:
    """Arguments that take effect, and the names of those that have, or hold, a value that is unknown at this point."""

    values: Mapping[str, Any]
    unknown: frozenset[str] = frozenset()

    def has_match(self, name: str, pattern: str, *, if_unknown: bool) -> bool:
        """Return whether the argument of this name, case aside, matches; `if_unknown` where its value is unknown.

        Anything but text is compared as canonical JSON, whole numbers without a point. With `if_unknown` one of several
        spellings is enough, without it all have to match; what is not there, and is known not to be, matches nothing.
        """
        wanted = name.casefold()
        if any(each.casefold() == wanted for each in self.unknown):
            return if_unknown
        found = [
            text_matches(pattern, _text(value)) for each, value in self.values.items() if each.casefold() == wanted
        ]
        return bool(found) and (any if if_unknown else all)(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def effective_for(schema_text: str, arguments: Mapping[str, Any]) -> Effective:
    """The arguments under a JSON Schema from outside. Pure; bounded whatever the schema is."""
    root = _schema(schema_text)
    walk = _Walk(root)
    values = walk.filled(root, arguments, 0)
    return Effective(values, frozenset(walk.unknown))


@lru_cache(maxsize=1024)
def _schema(text: str) -> Any:
    return json.loads(text)


def plain_numbers(value: Any) -> Any:
    """A JSON value with whole numbers as integers: 3.0 and 3 are one number in JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: plain_numbers(each) for key, each in value.items()}
    return [plain_numbers(each) for each in value] if isinstance(value, list) else value


def restored(made: Mapping[str, Any], written: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return `made`, which was made out of `shown` (`written` as it takes effect), with the unchanged values as they
    were written."""
    kept = {}
    for name, value in made.items():
        if name not in shown or not _is_same(value, shown[name]):
            before = written.get(name)
            both = isinstance(value, Mapping) and isinstance(before, Mapping) and isinstance(shown.get(name), Mapping)
            kept[name] = restored(value, before, shown[name]) if both else value  # type: ignore[arg-type]
        elif name in written:
            kept[name] = written[name]
    return kept


def _is_same(one: Any, other: Any) -> bool:
    return one is other or canonical_json(one) == canonical_json(other)


class _Walk:
    """Fills in the defaults of one call's schema; `unknown` has the arguments with a value that nobody knows."""

    def __init__(self, root: Any) -> None:
        self.root, self.unknown = root, set[str]()
        self._remaining = MAX_NODES

    def filled(self, node: Any, value: Mapping[str, Any], depth: int, argument: str = "") -> dict[str, Any]:
        """An object under this schema. `argument` is the one that it is in, or empty for the arguments themselves."""
        properties = self._properties(node, depth)
        made = {name: self._value(properties.get(name, []), each, depth, argument or name)
                for name, each in value.items()}  # fmt: skip
        for name, schemas in properties.items():
            if name in value:
                continue
            defaults = [each["default"] for each in self._spread(schemas, depth) if "default" in each]
            if not defaults or any(not _is_same(each, defaults[0]) for each in defaults) or self._remaining <= 0:
                self.unknown.add(argument or name)
                continue
            made[name] = self._value(schemas, defaults[0], depth, argument or name)
        return made

    def _value(self, schemas: Sequence[Any], value: Any, depth: int, argument: str) -> Any:
        if value is None:
            self.unknown.add(argument)
        if depth >= MAX_DEPTH or self._remaining <= 0:
            if isinstance(value, (Mapping, list)):
                self.unknown.add(argument)
            return plain_numbers(value)
        if isinstance(value, Mapping):
            return self.filled({"allOf": list(schemas)}, value, depth + 1, argument)
        if isinstance(value, list):
            inner = [each["items"] for each in self._spread(schemas, depth) if isinstance(each.get("items"), Mapping)]
            return [self._value(inner, each, depth + 1, argument) for each in value]
        return plain_numbers(value)

    def _properties(self, node: Any, depth: int) -> dict[str, list[Any]]:
        """The schemas of each property that this schema names, wherever in it."""
        found: dict[str, list[Any]] = {}
        for each in self._spread([node], depth):
            named = each.get("properties")
            for name, child in named.items() if isinstance(named, Mapping) else ():
                found.setdefault(name, []).append(child)
            required = each.get("required")
            for name in required if isinstance(required, list) else ():
                if isinstance(name, str):
                    found.setdefault(name, [])
        return found

    def _spread(self, nodes: Sequence[Any], depth: int) -> Iterator[Mapping[str, Any]]:
        """These schemas, what they refer to, and what they are made of: all that may hold for the value."""
        seen = set[int]()
        waiting = list(nodes)
        while waiting and self._remaining > 0:
            node = waiting.pop()
            if not isinstance(node, Mapping) or id(node) in seen:
                continue
            seen.add(id(node))
            self._remaining -= 1
            yield node
            waiting += [self._named(node[word]) for word in ("$ref", "$dynamicRef") if isinstance(node.get(word), str)]
            for word in ("allOf", "anyOf", "oneOf"):
                waiting += node[word] if isinstance(node.get(word), list) else []
            waiting += [node[word] for word in ("if", "then", "else") if word in node]
            dependent = node.get("dependentSchemas")
            waiting += dependent.values() if isinstance(dependent, Mapping) else []

    def _named(self, reference: str) -> Any:
        """Return the part of the schema that a local reference names; None for any other reference."""
        if reference == "#":
            return self.root
        target: Any = self.root
        for part in reference[2:].split("/") if reference.startswith("#/") else ["\0"]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and part.isdecimal() and int(part) < len(target):
                target = target[int(part)]
            else:
                target = target.get(part) if isinstance(target, Mapping) else None
        return target
