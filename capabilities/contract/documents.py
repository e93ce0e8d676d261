"""A document from outside, JSON or YAML, as plain JSON values. Nothing is run, loaded or fetched. Pure.

YAML is read as its JSON part says (1.2): `on` and `2020-01-01` are text. Where a schema says that its values are text,
so are those that it lists: `007` and `0x1F` stay as they are written. What aliases would make of it is counted
before it is made: a kilobyte of them can stand for gigabytes.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

from toolhub.bounded_json import JsonRefused, TooMuchJson, load_json

#: Values of one document, those that aliases repeat included, and how deep they stand in each other.
MAX_VALUES = 1_000_000
MAX_DEPTH = 100
#: Limits for JSON, where each value stands in the text itself; a child process reads it. A schema that is nested deeper
#: than is taken is refused by itself.
MAX_JSON_BYTES, MAX_JSON_VALUES, MAX_JSON_DEPTH = 64_000_000, 5_000_000, 200
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
#: Keywords under which a schema lists its values.
_LISTED = frozenset({"enum", "default", "const", "example", "examples"})
_STANDARD = "tag:yaml.org,2002:"


class DocumentRefused(ValueError):
    """The text is no document that is read; the message is one sentence."""


def read_document(text: str) -> Any:
    """The value of the document. Raises DocumentRefused."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise DocumentRefused("The document is empty.")
    value = _from_json(text) if text.lstrip()[0] in "{[" else _from_yaml(text)
    if not isinstance(value, dict | list):
        raise DocumentRefused("This is neither JSON nor YAML that says anything.")
    return value


def _from_json(text: str) -> Any:
    """Return the value of a JSON text, or of YAML that begins with a brace. Raises DocumentRefused."""
    try:
        return load_json(
            text, most_bytes=MAX_JSON_BYTES, most_values=MAX_JSON_VALUES, most_depth=MAX_JSON_DEPTH, constant=_null
        )
    except TooMuchJson as error:
        raise DocumentRefused(f"The document {error}.") from error
    except JsonRefused as error:
        flow = text.lstrip()
        if re.match(r"[{\[]\s*[A-Za-z_]", flow):  # YAML may begin with a brace as well, and quotes no keys
            return _from_yaml(text)
        if isinstance(error.__cause__, json.JSONDecodeError):
            broken = error.__cause__
            raise DocumentRefused(f"The JSON is broken in line {broken.lineno}: {broken.msg}.") from error
        raise DocumentRefused(f"The document {str(error)[:200]}.") from error


def _null(name: str) -> None:
    """A number that JSON does not have, such as NaN, costs no document."""


def _from_yaml(text: str) -> Any:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(text, loader)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DocumentRefused(f"The YAML is broken{where}: {str(problem)[:200]}.") from error
    except (RecursionError, ValueError) as error:
        raise DocumentRefused("The YAML cannot be read: it is nested too deep, or holds broken characters.") from error
    if node is None:
        raise DocumentRefused("The document is empty.")
    _Sizes().of(node)
    return _value_of(node)


def _check_depth(text: str, loader: Any) -> None:
    """The parser's own recursion is C's: what is too deep ends the process."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DocumentRefused(f"The document is nested more than {MAX_DEPTH} deep.")


class _Sizes:
    """Number of values in each node, aliases written out. Raises DocumentRefused for a node inside of itself, and for
    too many values."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node, depth: int = 0) -> int:
        """Return the number of values that a node stands for, aliases written out. Raises DocumentRefused for too
        many."""
        key = id(node)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            raise DocumentRefused("The YAML has an alias inside of what it stands for.")
        if depth > MAX_DEPTH:
            raise DocumentRefused(f"The document is nested more than {MAX_DEPTH} deep.")
        self._open.add(key)
        size = 1
        if isinstance(node, yaml.MappingNode):
            size += sum(self.of(name, depth + 1) + self.of(value, depth + 1) for name, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(self.of(each, depth + 1) for each in node.value)
        self._open.discard(key)
        if size > MAX_VALUES:
            raise DocumentRefused(
                f"The YAML stands for more than {MAX_VALUES:,} values, its aliases written out: send less."
            )
        self._known[key] = size
        return size


def _value_of(node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        _check_tag(node, "seq", "set", "omap")
        return [_value_of(each) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        _check_tag(node, "map", "set", "omap")
        return _mapping_of(node)
    assert isinstance(node, yaml.ScalarNode)
    return _scalar_of(node)


def _mapping_of(node: yaml.MappingNode) -> dict[str, Any]:
    """Return the mapping of a node, its merge keys written out. Raises DocumentRefused for a key that is no text."""
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            raise DocumentRefused(f"The YAML has a key in line {name.start_mark.line + 1} that is no text.")
        if name.tag == f"{_STANDARD}merge" or (name.value == "<<" and _is_plain(name)):
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(each, yaml.MappingNode):
                    merged = _mapping_of(each) | merged
        else:
            found[name.value] = _value_of(value)
    if _is_of_text(found.get("type")):
        found |= {name.value: _as_written(value) for name, value in node.value if name.value in _LISTED}
    return merged | found


def _is_of_text(kind: Any) -> bool:
    """Return whether a schema of this type takes text, and no number or boolean beside it."""
    kinds = kind if isinstance(kind, list) else [kind]
    return "string" in kinds and all(each in ("string", "null") for each in kinds)


def _as_written(node: yaml.Node) -> Any:
    """The value where the schema lists some that are text: a plain number or truth is that text."""
    if isinstance(node, yaml.SequenceNode):
        return [_as_written(each) for each in node.value]
    if isinstance(node, yaml.ScalarNode) and _is_plain(node) and node.value not in _NULLS:
        _scalar_of(node)  # refuses the tags that it refuses elsewhere
        return node.value
    return _value_of(node)


def _scalar_of(node: yaml.ScalarNode) -> Any:
    """Return the value of a scalar, as YAML 1.2 reads it. Raises DocumentRefused for a tag of another kind."""
    text: str = node.value
    if not _is_plain(node):
        return text
    if node.tag == f"{_STANDARD}str" and not _is_resolved_otherwise(text):
        return text
    _check_tag(node, "str", "null", "bool", "int", "float", "timestamp", "binary", "value", "merge")
    if text in _NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _is_plain(node: yaml.ScalarNode) -> bool:
    """Return whether the scalar is neither quoted nor a block: its style is empty from LibYAML, None from Python's
    parser."""
    return not node.style


def _is_resolved_otherwise(text: str) -> bool:
    """YAML 1.1 takes some texts for text that 1.2 does not, such as 1e3 and 0o17."""
    return bool(text in _NULLS or text in _TRUTHS or _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text))


def _check_tag(node: yaml.Node, *known: str) -> None:
    if node.tag.removeprefix(_STANDARD) not in known:
        line = node.start_mark.line + 1
        raise DocumentRefused(f"The YAML has the tag {node.tag[:100]} in line {line}, which is not read.")
