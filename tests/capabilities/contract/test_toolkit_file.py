"""The form of a toolkit file: what is written is read again, and nothing else is."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capabilities.common.confined_jobs import toolkit_file as job
from capabilities.contract.toolkit_file import (
    MAX_TOOLS,
    ToolkitFileRefused,
    content_hash,
    read_toolkit_file,
    with_hash,
)
from capabilities.contract.wire import canonical_json, sha256_hex


def sealed(content: dict[str, Any]) -> str:
    """The file of this content."""
    return canonical_json(with_hash(content))


CODE = "def gross(net):\n    return net * 2\n"
FULL = {
    "description": "Does it.",
    "parameters": {"type": "object", "properties": {"net": {"type": "number"}}},
    "instructions": "",
    "human_format": "Doing {net}",
    "effect": "read",
    "on_crash": "never",
    "timeout": 20.0,
    "max_result_chars": 40_000,
}
CONTENT: dict[str, Any] = {
    "toolkit": {
        "name": "money",
        "description": "Prices.",
        "tools": [{"tool": "price", "timeout": 5.0, "max_result_chars": None, "knobs": {}}]
        + [
            {"tool": name, "timeout": None, "max_result_chars": None, "knobs": {}}
            for name in ("fetch", "mcp__far__ask", "calculator", "gone")
        ],
    },
    "tools": [
        {
            "name": "price",
            "kind": "python",
            **FULL,
            "implementation": {
                "runtime": "monty",
                "code": "import money\ndef run(net):\n    return money.gross(net)\n",
            },
            "credential": "",
            "helpers": {"money": sha256_hex(CODE)},
            "tests": [{"name": "one", "arguments": {"net": 1}, "expected": 2, "expects_error": False}],
        },
        {
            "name": "fetch",
            "kind": "http",
            **FULL,
            "implementation": {"method": "GET", "url": "https://api.example.org/"},
            "credential": "api",
        },
        {"name": "mcp__far__ask", "kind": "mcp", **FULL, "implementation": {"name": "ask"}, "server": "far"},
        {"name": "calculator", "kind": "builtin"},
    ],
    "modules": [{"name": "money", "description": "", "code": CODE}],
    "credentials": [
        {"name": "api", "kind": "bearer", "parameter": "", "prefix": "", "origins": ["https://api.example.org"]}
    ],
    "servers": [{"name": "far", "transport": "http", "address": "https://mcp.example.org/mcp"}],
    "left_out": [{"tool": "gone", "because": "It is switched off."}],
}


#: Hashed as it should be, and nothing else.
BARE = {"format": "toolhub-toolkit", "version": 1}


def resealed(change: Any) -> str:
    """The file with this change, hashed again: as somebody else would write it."""
    content = copy.deepcopy(CONTENT)
    change(content)
    return sealed(content)


def test_a_sealed_file_is_read_back() -> None:
    text = sealed(CONTENT)

    document = read_toolkit_file(text + "\n")

    assert {name: document[name] for name in CONTENT} == CONTENT
    assert (document["format"], document["version"]) == ("toolhub-toolkit", 1)
    assert document["sha256"] == content_hash(document)
    assert sealed({name: document[name] for name in CONTENT}) == text


def test_a_changed_byte_is_refused_wherever_it_stands() -> None:
    text = sealed(CONTENT)

    for place in range(len(text)):
        changed = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        with pytest.raises(ToolkitFileRefused):
            read_toolkit_file(changed)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(json.loads(sealed(CONTENT)), indent=2),
        sealed(CONTENT).replace('"version":1', '"version":1,"version":1'),
        sealed(CONTENT).replace("20.0", "2e1"),
        sealed(CONTENT).replace("Prices.", "\\u0050rices."),
    ],
)
def test_the_same_content_in_other_bytes_is_refused(text: str) -> None:
    with pytest.raises(ToolkitFileRefused, match="changed after it was exported"):
        read_toolkit_file(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("[]", "no toolkit file"),
        ("{}", "no toolkit file"),
        ('{"format":"toolhub-toolkit"}', "version 1"),
        ('{"format":"toolhub-toolkit","version":true}', "version 1"),
        ('{"format":"toolhub-toolkit","version":2}', "version 1"),
        ('{"format"', "broken in line 1"),
        ("[" * 100_000, "nested"),
        ('{"format":' + "[" * 70 + "]" * 70 + "}", "nested more than"),
        ('{"format":NaN}', "no JSON number"),
        ('{"format":' + "9" * 5_000 + "}", "digits"),
        ('{"format":"toolhub-toolkit","version":1,"sha256":"\ud800"}', "UTF-8"),
        (
            canonical_json(BARE | {"sha256": content_hash(BARE)}),
            "The file has no",
        ),
    ],
)
def test_what_is_no_such_file_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ToolkitFileRefused, match=words):
        read_toolkit_file(text)


def put(*path: Any) -> Any:
    """A change that sets the last of these at the place of the others."""

    def change(content: dict[str, Any]) -> None:
        node: Any = content
        for step in path[:-2]:
            node = node[step]
        node[path[-2]] = path[-1]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("tools", 0, "timeout", True), "“timeout” must be a whole number or a number"),
        (put("tools", 0, "name", "a b"), "Tool 1 has no name"),
        (put("tools", 0, "kind", "shell"), "“kind” must be one of"),
        (put("tools", 0, "kind", ["python"]), "“kind” must be one of"),
        (put("tools", 0, "effect", "safe"), "“effect” must be one of"),
        (put("tools", 0, "on_crash", "again"), "“on_crash” must be one of"),
        (put("tools", 0, "status", "approved"), "not known, “status”"),
        (put("tools", 0, "helpers", {"money": 1}), "by the SHA-256"),
        (put("tools", 0, "helpers", {"money": "0" * 64}), "uses a module money"),
        (put("tools", 0, "tests", [{"name": "x"}]), "test 1 has no"),
        (put("tools", 1, "credential", "other"), "names a credential that is not in the file"),
        (put("tools", 2, "server", "other"), "names a server that is not in the file"),
        (put("tools", 3, "name", "price"), "names a tool twice"),
        (put("tools", 3, {"name": "calculator", "kind": "builtin", "code": ""}), "not known, “code”"),
        (put("tools", [{"name": "a"}] * (MAX_TOOLS + 1)), "are the most"),
        (put("tools", 0, "description", "a\x00b"), "U\\+0000"),
        (put("modules", 0, "code", "other"), "uses a module money"),
        (put("modules", 0, "name", "a-b"), "as Python names one"),
        (put("toolkit", "tools", 0, "tool", "other"), "which is not in the file"),
        (put("toolkit", "tools", [CONTENT["toolkit"]["tools"][0]] * 2), "twice"),
        (put("toolkit", "name", ""), "1 to 64"),
        (put("toolkit", []), "“toolkit” must be an object"),
        (put("credentials", 0, "origins", [1]), "are addresses"),
        (put("credentials", [CONTENT["credentials"][0]] * 201), "more than 200"),
        (put("organisation", "acme"), "not known, “organisation”"),
    ],
)
def test_a_file_that_is_hashed_and_wrong_is_refused_in_words(change: Any, words: str) -> None:
    with pytest.raises(ToolkitFileRefused, match=words):
        read_toolkit_file(resealed(change))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the document."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for step, inner in steps for each in places(inner, (*path, step)))]


PLACES = [each for each in places(CONTENT) if each]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=3))
def test_a_mutated_file_is_read_or_refused_and_never_crashes(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    content = copy.deepcopy(CONTENT)
    for path, value in changes:
        try:
            put(*path, value)(content)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took that place away
    try:
        text = sealed(content)
    except ValueError:
        return  # no JSON

    found = job.run(text)

    assert set(found) in ({"document"}, {"refused"})
    if "document" in found:
        assert canonical_json(found["document"]) == text
    else:
        assert found["refused"].endswith((".", "!"))


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_refused_in_words(text: str) -> None:
    assert "refused" in job.run(text)
