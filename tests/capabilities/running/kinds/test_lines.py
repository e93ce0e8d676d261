"""The line for people of a call: what it is filled with, and which lines are refused when a tool is saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from capabilities.catalogue.tools.writes import Definition, ToolRefused
from capabilities.running.kinds.lines import filled_line, why_never_filled
from capabilities.running.registry import registry


def schema(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}


@pytest.mark.parametrize(
    ("line", "arguments", "shown"),
    [
        ("Processing: ${input.text}", {"text": "hello"}, "Processing: hello"),
        (
            "Calculating: ${input.a} ${input.operation} ${input.b}",
            {"a": 2, "operation": "add", "b": 3},
            "Calculating: 2 add 3",
        ),
        ("Processing: {text}", {"text": "hello"}, "Processing: hello"),
        ("${ input.text } costs ${price}", {"input.text": "Tea", "price": 4}, "$Tea costs $4"),
        ("${input.text} is {{not}} {text}", {"text": "x"}, "x is {not} x"),
        ("${input.text}", {"text": "${input.secret} {secret}", "secret": "s"}, "${input.secret} {secret}"),
        ("Processing: ${input.text}", {}, ""),
    ],
)
def test_tx_27_a_line_is_filled_in_either_spelling(line: str, arguments: dict[str, Any], shown: str) -> None:
    assert filled_line(line, arguments) == shown


@pytest.mark.parametrize(
    "line",
    [
        "Processing: ${input.txt}",
        "Processing: {txt}",
        "Adding ${input.a + input.b}",
        "Of ${input.user.name}",
        "${text}, ${input}",
        "Calling {}",
        "{text!r} {text:>9}",
    ],
)
def test_tx_27_a_line_that_cannot_be_filled_is_refused_when_it_is_saved(line: str) -> None:
    definition = Definition("shout", "Shouts.", schema("text"), human_format=line)

    with pytest.raises(ToolRefused) as refused:
        definition.check()

    assert refused.value.field == "human_format"
    replace(definition, human_format="Processing: ${input.text} {text} {{x}}").check()


def test_tx_27_arguments_that_other_parts_of_a_schema_may_bring_are_not_refused() -> None:
    assert why_never_filled("{text}", schema())
    assert why_never_filled("{text}", {"type": "object", "allOf": [schema("text")]}) == ""


@pytest.mark.parametrize("name", sorted(registry.tools))
def test_tx_27_the_line_of_each_built_in_tool_names_its_arguments(name: str) -> None:
    tool = registry.tools[name]

    assert why_never_filled(tool.human_format, tool.parameters) == ""
