"""Differences between two versions of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from capabilities.contract.versions import line_pieces, schema_changes, word_pieces


def run(
    words: Mapping[str, Sequence[str]], schema: Sequence[Mapping[str, Any]], lines: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the differences under the names of the arguments. Each argument holds pairs of before and after: texts by
    name for `words` and `lines`, schemas for `schema`."""
    return {
        "words": {name: [asdict(each) for each in word_pieces(pair[0], pair[1])] for name, pair in words.items()},
        "schema": [asdict(each) for each in schema_changes(schema[0], schema[1])],
        "lines": {name: [asdict(each) for each in line_pieces(pair[0], pair[1])] for name, pair in lines.items()},
    }
