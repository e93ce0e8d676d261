"""Search for the lines that a regular expression matches.

The engine does not backtrack: its time is linear in the line, where Python's own can take hours for `(a+)+$`. The one
at hand is Rust's, behind the `pattern` of a JSON Schema.
"""

from __future__ import annotations

import jsonschema_rs

#: Bytes that a compiled pattern may take.
PATTERN_BYTES = 1_000_000


def run(pattern: str, ignore_case: bool, lines: list[str], most: int) -> list[int] | None:
    """The places of the first matching lines, at most so many; None for a pattern that is not taken."""
    schema = {"pattern": f"(?i:{pattern})" if ignore_case else pattern}
    limits = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    try:
        matches = jsonschema_rs.Draft202012Validator(schema, pattern_options=limits).is_valid
    except jsonschema_rs.ValidationError:
        return None
    found: list[int] = []
    for index, line in enumerate(lines):
        if matches(line):
            found.append(index)
            if len(found) == most:
                break
    return found
