"""Which definition a refusal names: what is about the conversation names none, though a tool is in its words."""

from __future__ import annotations

import pytest

from sessions.loop.clients.refusals import Refusal
from sessions.loop.clients.refused_tools import is_of_definitions, refused_tools

NAMES = ["calculator", "note_add"]
SCHEMA = "Invalid schema for function 'note_add': an array lacks items."


@pytest.mark.parametrize(
    "words",
    [
        "The arguments of the tool call for function 'note_add' are no JSON.",
        "tool_choice names the function 'note_add', which has another schema.",
        "messages[3]: the tool_result of tool 'note_add' is too long.",
        "Function call for tool 'note_add' lacks a thought_signature.",
    ],
)
def test_what_is_about_a_call_blames_no_definition(words: str) -> None:
    refusal = Refusal(400, words)

    assert (refused_tools(refusal, NAMES), is_of_definitions(refusal)) == ([], False)


@pytest.mark.parametrize(
    ("parameter", "named"),
    [("", True), ("tools[1].function", True), ("tools", True), ("messages[2].content", False), ("model", False)],
)
def test_a_parameter_elsewhere_blames_no_definition(parameter: str, named: bool) -> None:
    found = refused_tools(Refusal(400, SCHEMA, parameter=parameter), NAMES)

    assert found == (["note_add"] if named else [])
