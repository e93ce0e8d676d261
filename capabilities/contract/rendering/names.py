"""Names of arguments that every vendor takes in place of those that some refuse, and the way back.

The names depend on the schema alone, so that nothing has to be kept: a call is read with the tool's stored schema.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from capabilities.contract.rendering.references import resolved

#: Names that vendors take; Anthropic refuses everything else.
ARGUMENT = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_OTHER = re.compile(r"[^a-zA-Z0-9_.-]+")
MOST = 64
#: Levels of arguments that are looked into.
MOST_LEVELS = 60


def sent_names(properties: Mapping[str, Any]) -> dict[str, str]:
    """The name that each property goes out under, each once."""
    return _sent_names(tuple(sorted(properties)))


@lru_cache(maxsize=2_000)
def _sent_names(names: tuple[str, ...]) -> dict[str, str]:
    found = {name: name for name in names if ARGUMENT.fullmatch(name)}
    taken = set(found)
    for name in names:
        if name in found:
            continue
        base = _plain(name)
        new, count = base, 2
        while new in taken:
            new, count = f"{base[: MOST - 4]}_{count}", count + 1
        taken.add(new)
        found[name] = new
    return found


def _plain(name: str) -> str:
    """The name in letters and digits; one that is long, or has none, ends with a hash of the whole."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = _OTHER.sub("_", ascii_only).strip("_")
    if plain and len(plain) <= MOST:
        return plain
    return f"{plain[: MOST - 9] or 'argument'}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def restored(arguments: Any, schema: Mapping[str, Any]) -> Any:
    """The arguments of a call under the names that the schema has. What the schema does not say stays as it is."""
    return _restored(arguments, [schema], schema, 0)


def _restored(value: Any, schemas: list[Any], root: Mapping[str, Any], level: int) -> Any:
    """Return the value with the names that the schemas give its fields, for those that were sent in other letters."""
    known = [each for schema in schemas for each in _alternatives(schema, root)]
    if level > MOST_LEVELS or not known:
        return value
    if isinstance(value, list):
        return [_restored(each, _items(known, index), root, level + 1) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties: dict[str, list[Any]] = {}
    real: dict[str, str] = {}
    for schema in known:
        named = _mapping(schema.get("properties"))
        real |= {new: name for name, new in sent_names(named).items()}
        for name, inner in named.items():
            properties.setdefault(name, []).append(inner)
    real |= {new: name for name, new in sent_names(properties).items()}
    names = {str(name): str(name if name in properties else real.get(name, name)) for name in value}
    clashes = len(set(names.values())) < len(names)
    others = [schema["additionalProperties"] for schema in known if "additionalProperties" in schema]
    return {
        name if clashes else names[name]: _restored(each, properties.get(names[name], others), root, level + 1)
        for name, each in value.items()
    }


def _alternatives(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and all that it combines: what one of them names is a name of this value."""
    pending, seen = [schema], 0
    while pending and seen < 200:
        each = pending.pop()
        seen += 1
        if not isinstance(each, Mapping):
            continue
        yield each
        pending += [part for key in ("anyOf", "oneOf", "allOf") for part in _list(each.get(key))]
        pending += [each[key] for key in ("if", "then", "else") if key in each]
        if "$ref" in each:
            pending.append(resolved(each["$ref"], root))


def _items(known: list[Mapping[str, Any]], index: int) -> list[Any]:
    found = []
    for schema in known:
        first = _list(schema.get("prefixItems"))
        found += [first[index]] if index < len(first) else [schema[key] for key in ("items",) if key in schema]
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


@lru_cache(maxsize=1_000)
def schema_with_other_names(schema_text: str) -> Mapping[str, Any] | None:
    """The schema, where a name in it goes out as another one; else None, so that nobody walks its arguments."""
    schema = json.loads(schema_text)
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            names = _mapping(each.get("properties"))
            if any(not ARGUMENT.fullmatch(name) for name in names):
                return _mapping(schema)
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return None
