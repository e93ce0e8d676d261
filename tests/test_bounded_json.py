"""JSON from outside is loaded by one function, within bounds of bytes, values and depth, and nothing goes around it."""

from __future__ import annotations

import ast
import json
import random
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.views import APIView

from tests.paths import ROOT
from tests.test_doors import HOUSES, sources
from toolhub.bounded_json import MAX_VALUES, JsonMessages, JsonRefused, TooMuchJson, check_json, load_json
from toolhub.tenants.rest.wire import StrictJSONParser

# -- The function ----------------------------------------------------------------------------------------------------

#: 4 MB of text each, of far more values or depth than is taken.
DEAR = {
    "lists": b"[" + b"[]," * 1_300_000 + b"[]]",
    "objects": b"[" + b"{}," * 1_300_000 + b"{}]",
    "numbers": b"[" + b"1," * 2_000_000 + b"1]",
    "texts": b"[" + b'"",' * 1_300_000 + b'""]',
    "names": b"{" + b'"a":1,' * 600_000 + b'"b":1}',
    "texts of signs": b"[" + b'"[,",' * 700_000 + b'""]',
    "behind quoted quotes": b'["' + b'\\"' * 900_000 + b'",' + b"[]," * 700_000 + b"1]",
    "behind backslashes": b'["' + b"\\\\" * 900_000 + b'",' + b"[]," * 700_000 + b"1]",
    "opened": b"[" * 4_000_000,
    "deep": b"[" * 2_000_000 + b"]" * 2_000_000,
    "broken at the end": b"[" + b"[]," * 1_300_000 + b"x",
}


@pytest.mark.parametrize("name", DEAR)
def test_what_would_become_too_much_is_refused_before_it_is_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(json, "loads", lambda *given, **more: parsed.append("parsed"))
    begun = time.process_time()

    with pytest.raises(TooMuchJson):
        load_json(DEAR[name])

    assert parsed == []
    assert time.process_time() - begun < 0.4  # 0.03 s here, against 0.4 to 1 s for the values of some of them


@pytest.mark.parametrize(
    "text",
    [
        '[1, 2.5, null, true, "é", {"a": []}]',
        json.dumps({"text": "a, [b], {c} " * 100_000}),
        json.dumps({"text": '"\\' * 50_000 + "[" * 200_000}),
        "[" * 100 + "]" * 100,
        json.dumps([0] * (MAX_VALUES - 2)),
        "\ufeff[1]".encode().decode("utf-8-sig"),
    ],
)
def test_what_is_within_the_bounds_is_read_whole(text: str) -> None:
    assert load_json(text) == json.loads(text)
    assert load_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_are_counted_as_what_they_say(encoding: str) -> None:
    assert load_json('["\u2200", 1]'.encode(encoding)) == ["\u2200", 1]
    with pytest.raises(TooMuchJson):
        load_json(("[" + "[]," * MAX_VALUES + "1]").encode(encoding))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        "NaN",
        "[Infinity]",
        "1e999",
        "-1e999",
        "9" * 5_000,
        b"\xff",
        "\ud800",
        "[" * 5_000,
        '{"a":1}x',
    ],
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(JsonRefused):
        load_json(text)


def test_a_caller_may_take_numbers_that_json_does_not_have() -> None:
    assert load_json("[NaN, 1e999, -Infinity, 1.5]", constant=lambda name: name) == ["NaN", "1e999", "-Infinity", 1.5]


def test_a_name_that_comes_twice_is_refused_where_the_caller_says_so() -> None:
    assert load_json('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(JsonRefused, match="twice"):
        load_json('[{"a": 1, "a": 2}]', unique_names=True)


def a_value(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([1, -2.5, None, True, "", "a,b[{", '"', "\\", '\\"[,', "[[["])
    size = range(chance.randrange(4))
    if chance.random() < 0.5:
        return [a_value(chance, depth - 1) for _ in size]
    return {chance.choice(["a,", "b[", "\\", '"']) + str(each): a_value(chance, depth - 1) for each in size}


def values_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(values_of(each) for each in inner)


def depth_of(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max((depth_of(each) for each in (value.values() if isinstance(value, dict) else value)), default=0)


def test_never_fewer_values_and_no_other_depth_are_counted_than_there_are() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        value = a_value(chance, 6)
        text, values, depth = json.dumps(value).encode(), values_of(value), depth_of(value)

        assert check_json(text, most_values=10_000, most_depth=depth) >= values
        if depth > 1 and text.count(b"[") + text.count(b"{") >= depth:
            with pytest.raises(TooMuchJson):
                check_json(text, most_values=10_000, most_depth=depth - 1)
        if values > 2:
            with pytest.raises(TooMuchJson):
                check_json(text, most_values=values - 1)


def test_the_messages_of_one_channel_are_bounded_together() -> None:
    messages = JsonMessages(100, most_values_of_one=60)

    assert messages.load("[" + "1," * 49 + "1]") == [1] * 50
    with pytest.raises(TooMuchJson, match="60"):
        messages.load("[" + "1," * 60 + "1]")
    with pytest.raises(TooMuchJson, match="100"):
        messages.load("[" + "1," * 49 + "1]")


# -- Nothing goes around it ------------------------------------------------------------------------------------------

#: Calls that make values of JSON text, by the name of the function or method.
LOADERS = {
    "loads",
    "load",
    "raw_decode",
    "JSONDecoder",
    "from_json",
    "model_validate_json",
    "validate_json",
    "parse_raw",
}
FROM_PYDANTIC = {"from_json", "SchemaValidator", "*"}
OURS = "this service wrote it"
STORED = "stored by this service, which loaded it within bounds when it came"
CHILD = "runs in a child process with limits, which ends"
DEFINITION = "a definition of a tool, which was bounded when it was imported or saved"
SECRETS = "values that this service stored encrypted"
REFUSAL = "a refusal that this service wrote"
#: file:function -> why it may load JSON by itself.
ALLOWED = {
    "toolhub/bounded_json.py:load_json": "the function itself",
    "toolhub/cache.py:loads": OURS,
    "toolhub/embedded/supervisor.py:read_plan": OURS,
    "toolhub/tenants/audit/writes.py:_as_stored": OURS,
    "toolhub/tenants/rows/cursors.py:opened_place": "encrypted by this service",
    "capabilities/catalogue/tools/writes.py:audited_content": OURS,
    "capabilities/catalogue/tools/writes.py:write_versions": OURS,
    "capabilities/common/confined_jobs/child.py:main": OURS,
    "capabilities/common/confined_jobs/syntax.py:json_flaw": CHILD,
    "capabilities/contract/effective.py:_schema": DEFINITION,
    "capabilities/contract/schemas.py:_checks_of": DEFINITION,
    "capabilities/contract/schemas.py:_validator": DEFINITION,
    "capabilities/contract/spec.py:definition": DEFINITION,
    "capabilities/contract/spec.py:parameters_text": DEFINITION,
    "capabilities/contract/wire.py:_entries_of": DEFINITION,
    "capabilities/contract/wire.py:_namespaces_in": DEFINITION,
    "capabilities/contract/wire.py:names_in": DEFINITION,
    "capabilities/choosing/pipeline/tool_index.py:_document": DEFINITION,
    "capabilities/running/kinds/mcp.py:_headers": DEFINITION,
    "capabilities/contract/rendering/names.py:schema_with_other_names": DEFINITION,
    "capabilities/contract/rendering/schemas.py:rendered_wire": DEFINITION,
    "capabilities/choosing/pipeline/namespaces.py:definition_of": DEFINITION,
    "sessions/loop/model_calls/client_requests.py:client_tools": DEFINITION,
    "sessions/loop/clients/attempts.py:tool_entries": DEFINITION,
    "sessions/loop/clients/written.py:_values": "counted by check_json before",
    "sessions/loop/clients/written.py:_named": "counted by check_json before",
    "sessions/loop/clients/responses.py:names_added": DEFINITION,
    "sessions/loop/clients/responses.py:_tools_of": DEFINITION,
    "capabilities/running/credentials/oauth/refreshing.py:_values": SECRETS,
    "capabilities/running/credentials/oauth/revoking.py:_values_or_none": SECRETS,
    "capabilities/running/credentials/signing.py:after_refusal": SECRETS,
    "capabilities/running/credentials/signing.py:signed_with": SECRETS,
    "capabilities/running/push/sending.py:_send": SECRETS,
    "capabilities/running/push/writes.py:_take_from_others": SECRETS,
    "capabilities/running/services/writes.py:_shown_service": SECRETS,
    "capabilities/running/services/writes.py:stored_values": SECRETS,
    "capabilities/running/kinds/mcp.py:_answers_so_far": STORED,
    "capabilities/running/kinds/mcp.py:_rounds": STORED,
    "capabilities/running/kinds/mcp.py:go_on": STORED,
    "capabilities/running/mcp_client/processes.py:_pass_on": "each line has passed check_json; the SDK reads it",
    "capabilities/running/sandbox/bubblewrap/zygote.py:main": OURS,
    "capabilities/running/sandbox/bubblewrap/zygote.py:receive": OURS,
    "toolhub/embedded/offline_model/tools.py:_tool": "the same value once more, as JSON",
    "toolhub/embedded/offline_model/arguments.py:_choice": OURS,
    "sessions/doors/builtin/_making.py:_tried": "the same value once more, as JSON",
    "sessions/insight/connections/runs.py:_service_reason": REFUSAL,
    "sessions/loop/tools/execution.py:note_denied_call": REFUSAL,
    "sessions/loop/hooks/phases.py:complaint_about": REFUSAL,
    "sessions/insight/trial/writes.py:why_not": REFUSAL,
    "sessions/models/trials.py:link": OURS,
    "sessions/loop/calls/call_waits.py:resumed_with": STORED,
    "sessions/loop/calls/delegation.py:_hooked": STORED,
    "sessions/loop/tools/execution.py:as_result": "the same value once more, as JSON of bounded length",
    "sessions/loop/conversation/history.py:step_messages": STORED,
    "sessions/loop/hooks/python_hooks.py:_answer_of": OURS,
    "sessions/loop/hooks/python_hooks.py:_called": "of a package that the operator installed, of bounded length",
    "sessions/loop/run/turn.py:_display_of": STORED,
    "sessions/loop/calls/task_cancels.py:cancel_task": STORED,
    "sessions/insight/trial/forms.py:_field": "a choice of a schema, as this service wrote it",
    "sessions/insight/trial/views.py:tool_trial": STORED,
    "sessions/turns/listener.py:piece_of": OURS,
}


@cache
def direct_uses() -> frozenset[str]:
    files = [path for folder in HOUSES for path in sources(folder) if "migrations" not in path.parts]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    return frozenset(use for file, text in texts.items() if "json" in text for use in uses_in(text, file))


def uses_in(source: str, file: str) -> Iterator[str]:
    """file:function of each call of a loader, each loader that is handed on, and each answer that is asked for JSON."""
    for name, node in nodes_by_function(ast.parse(source)):
        is_loader = isinstance(node, ast.Attribute) and node.attr in LOADERS and not is_pickle(node)
        asks = isinstance(node, ast.Call) and not node.args and getattr(node.func, "attr", "") == "json"
        imported = isinstance(node, ast.ImportFrom) and brings_loader(node)
        plain = isinstance(node, ast.Import) and any(each.name in ("orjson", "ujson", "msgspec") for each in node.names)
        if is_loader or asks or imported or plain:
            yield f"{file}:{name}"


def brings_loader(node: ast.ImportFrom) -> bool:
    """Whether it imports from a library of JSON, or from pydantic's one what loads it."""
    names = {each.name for each in node.names}
    return node.module in ("json", "orjson") or (node.module == "pydantic_core" and not names.isdisjoint(FROM_PYDANTIC))


def is_pickle(node: ast.Attribute) -> bool:
    """Loaders of other things than JSON: `tomllib.loads`, and methods of ours that happen to be called `load`."""
    return node.attr in ("load", "loads") and not (isinstance(node.value, ast.Name) and node.value.id == "json")


def nodes_by_function(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from nodes_by_function(node, node.name)
        else:
            yield name, node
            yield from nodes_by_function(node, name)


def test_no_text_from_outside_is_loaded_by_anything_else() -> None:
    assert direct_uses() - {*ALLOWED} == frozenset()


def test_each_allowed_use_of_json_still_exists() -> None:
    assert {*ALLOWED} - direct_uses() == set()


@pytest.mark.parametrize(
    "source",
    [
        "def f(): return json.loads(x)",
        "def f(): return [*map(json.loads, x)]",
        "def f(): return json.load(x)",
        "def f(): return response.json()",
        "def f(): return Model.model_validate_json(x)",
        "def f(): return adapter.validate_json(x)",
        "def f(): return pydantic_core.from_json(x)",
        "def f(): return json.JSONDecoder().decode(x)",
        "def f():\n    from json import loads\n    return loads(x)",
        "def f():\n    import orjson\n    return orjson.loads(x)",
        "def f():\n    from pydantic_core import from_json as read\n    return read(x)",
    ],
)
def test_each_way_around_is_found(source: str) -> None:
    assert "a.py:f" in set(uses_in(source, "a.py"))


def test_an_error_of_pydantic_loads_nothing() -> None:
    source = "from pydantic_core import PydanticSerializationError"

    assert not [*uses_in(source, "a.py")]


def views(patterns: list[URLPattern | URLResolver]) -> Iterator[type[APIView]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from views(pattern.url_patterns)
        elif issubclass(getattr(pattern.callback, "cls", object), APIView):
            yield pattern.callback.cls  # type: ignore[attr-defined]


def test_every_route_of_rest_parses_bodies_by_it() -> None:
    found = {*views(get_resolver().url_patterns)}
    parsers = {parser for view in found for parser in view.parser_classes}

    assert len(found) > 50
    assert {parser for parser in parsers if not issubclass(parser, StrictJSONParser)} == set()
    assert {parser.parse for parser in parsers} == {StrictJSONParser.parse}
