"""Arguments of tools from outside: checked here where the schema bounds the work, in a child process where not."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from capabilities.common import confined
from capabilities.common.argument_checks import complaints_about
from capabilities.common.confined import Busy, TookTooLong
from capabilities.contract.schemas import complaints, is_quickly_checked
from tests.capabilities.common.test_confined import ACME, BRANCHING

PLAIN = {
    "type": "object",
    "properties": {
        "state": {"enum": ["open", "closed"]},
        "owner": {"type": "string", "pattern": "^[a-z0-9](?:[a-z0-9-]{0,38})$", "maxLength": 39},
        "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "where": {"$ref": "#/$defs/place"},
        "also": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
    },
    "required": ["state"],
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def of_x(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


ROUND = of_x(**{"$ref": "#/$defs/a"}) | {"$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}, {"const": 1}]}}}
#: Schemas, with arguments, that are checked in a child process.
NOT_COUNTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "references that branch": (BRANCHING, {"x": 1}),
    "a reference that goes round": (ROUND, {"x": [1]}),
    "a reference by an anchor": (of_x(**{"$ref": "#here"}), {"x": 1}),
    "a dynamic reference": (of_x(**{"$dynamicRef": "#x"}), {"x": 1}),
    "a pattern that looks ahead": (of_x(pattern="^(?=a)(a+)+$"), {"x": "a"}),
    "a pattern that refers back": (of_x(pattern=r"^(a+)+\1$"), {"x": "a"}),
    "a pattern that names what it refers to": (of_x(pattern=r"^(?<n>a+)\k<n>$"), {"x": "a"}),
    "a pattern that repeats much": (of_x(pattern=r"^\w{1000}$"), {"x": "a"}),
    "a pattern that repeats repetitions": (of_x(pattern=r"^(a{90}){90}$"), {"x": "a"}),
    "a long pattern": (of_x(pattern="a|" * 500), {"x": "a"}),
    "patterns of names": (of_x(patternProperties={"^(a+)+$": {}}), {"x": {}}),
    "what was not evaluated": (of_x(unevaluatedProperties=False), {"x": {}}),
    "many branches for many values": (of_x(items={"anyOf": [{"const": n} for n in range(100)]}), {"x": [-1] * 5_000}),
    "a large choice for many values": (of_x(items={"enum": [*range(1_000)]}), {"x": [-1] * 5_000}),
}


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_what_could_take_long_is_left_to_a_child_process(name: str) -> None:
    schema, arguments = NOT_COUNTED[name]

    assert not is_quickly_checked(json.dumps(schema), arguments)


def test_what_cannot_take_long_needs_no_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "run", None)

    assert complaints_about(json.dumps(PLAIN), {"state": "open", "where": {"city": "Rome"}}, ACME) == []
    assert complaints_about(json.dumps(PLAIN), {"state": "shut"}, ACME) != []
    assert complaints_about('{"type": "object"}', {}, ACME) == []


@pytest.mark.parametrize("values", [10, 400])
def test_at_the_bound_a_check_takes_a_moment(values: int) -> None:
    schema = json.dumps(of_x(items={"anyOf": [{"const": n} for n in range(18_000 // values // 3)]}))
    arguments = {"x": [-1] * (values - 10)}
    assert is_quickly_checked(schema, arguments)
    begun = time.process_time()

    complaints(schema, arguments)

    assert time.process_time() - begun < 1.0  # 0.1 s here


def test_twenty_checks_at_once_find_their_places(settings: Any) -> None:
    """Each needs a child process, of which one organisation has two."""
    schema = json.dumps(of_x(pattern="^(?=a)b$"))

    with ThreadPoolExecutor(20) as threads:
        found = [*threads.map(lambda _: complaints_about(schema, {"x": "c"}, ACME, wait=60), range(20))]

    assert [bool(each) for each in found] == [True] * 20


def test_a_child_without_a_processor_is_tried_once_more_and_then_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def starved(command: Any, limit: int, deadline: float, *rest: Any, **more: Any) -> Any:
        tried.append(deadline)
        raise TimeoutError

    monkeypatch.setattr(confined, "output_of", starved)

    with pytest.raises(Busy, match="busy"):
        complaints_about(json.dumps(ROUND), {"x": 1}, ACME)
    assert len(tried) == 2


def test_a_child_that_the_machine_ended_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(b"", -9), (b'{"result": []}', 0)]
    monkeypatch.setattr(confined, "output_of", lambda *given, **more: answers.pop(0))

    assert complaints_about(json.dumps(ROUND), {"x": 1}, ACME) == []


def test_processor_time_and_no_clock_says_what_is_too_complex() -> None:
    """The child has a second, and far more by the clock."""
    with pytest.raises(TookTooLong):
        confined.run("schema", {"schema_text": json.dumps(BRANCHING), "arguments": {"x": 1}}, ACME, seconds=1, wait=120)
