from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from django.utils import timezone
from pydantic import BaseModel, Field

from capabilities.choosing.pipeline.specs import version_of
from capabilities.contract.context import Credential, ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.contract.schemas import check_schema
from capabilities.contract.spec import ToolSpec
from capabilities.running.kinds import RUNNERS
from capabilities.running.kinds.lines import display
from capabilities.running.registry import BuiltinTool, CategorySpec, Registry, registry
from capabilities.running.registry import tool as register

CONTEXT = ToolContext(
    organisation_id=1, membership_id=1, agent="starter", workspace=Path("workspace"), now=timezone.now, timeout=5.0
)


class Place(BaseModel):
    """Where."""

    title: str
    floor: int = 0


def book(
    context: ToolContext,
    title: Annotated[str, Field(description="What for.", max_length=20)],
    place: Place,
    kind: Literal["short", "long"] = "short",
    tags: list[str] | None = None,
    count: Annotated[int, Field(ge=1)] = 1,
) -> dict[str, Any]:
    """Book a room.

    Ask before booking a long one.
    """
    return {"title": title, "place": place.title, "kind": kind, "tags": tags, "count": count}


def added(function: Any = book, into: Registry | None = None, **options: Any) -> BuiltinTool:
    catalogue = into or Registry()
    fields: dict[str, Any] = {"category": "rooms", "effect": "write", "human_format": "Booking {title}"} | options
    register(into=catalogue, **fields)(function)
    return catalogue.tools[options.get("name") or function.__name__]


def test_a_typed_documented_function_becomes_a_tool() -> None:
    tool = added()

    assert (tool.name, tool.category, tool.effect, tool.on_crash, tool.timeout) == (
        "book",
        "rooms",
        "write",
        "never",
        20.0,
    )
    assert tool.description.split("\n\n") == ["Book a room.", "Ask before booking a long one."]
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["title", "place"],
        "properties": {
            "title": {"type": "string", "description": "What for.", "maxLength": 20},
            "place": {"$ref": "#/$defs/Place"},
            "kind": {"type": "string", "enum": ["short", "long"], "default": "short"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "count": {"type": "integer", "minimum": 1, "default": 1},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "description": "Where.",
                "required": ["title"],
                "properties": {"title": {"type": "string"}, "floor": {"type": "integer", "default": 0}},
            }
        },
    }


@pytest.mark.parametrize(("effect", "on_crash"), [("read", "retry"), ("write", "never"), ("external", "never")])
def test_only_a_tool_that_reads_may_run_again_unless_it_says_so(effect: str, on_crash: str) -> None:
    assert added(effect=effect).on_crash == on_crash
    assert added(effect=effect, on_crash="retry_with_key").on_crash == "retry_with_key"


def test_a_default_keeps_its_own_title() -> None:
    def note(context: ToolContext, value: dict[str, str] = {"title": "x"}) -> None:  # noqa: B006
        """Take a note."""

    assert added(note).parameters["properties"]["value"]["default"] == {"title": "x"}


def test_a_tool_without_arguments_has_an_empty_object() -> None:
    def ping(context: ToolContext) -> str:
        """Answer."""
        return "pong"

    tool = added(ping)

    assert tool.parameters == {"type": "object", "additionalProperties": False, "properties": {}}
    assert tool.call(CONTEXT, {}) == "pong"


def test_a_call_gets_typed_values_and_defaults() -> None:
    assert added().call(CONTEXT, {"title": "Talk", "place": {"title": "Hall"}}) == {
        "title": "Talk",
        "place": "Hall",
        "kind": "short",
        "tags": None,
        "count": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"place": {"title": "Hall"}}, "title: Field required"),
        ({"title": "Talk", "place": {}}, "place.title: Field required"),
        ({"title": "Talk", "place": {"title": "Hall"}, "x": 1}, "x: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_a_sentence_for_the_model(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError) as refused:
        added().call(CONTEXT, arguments)

    assert str(refused.value) == message


def test_a_function_without_a_docstring_is_refused() -> None:
    def silent(context: ToolContext) -> None: ...

    with pytest.raises(ValueError, match="Tool silent has no docstring"):
        added(silent)


@pytest.mark.parametrize("name", ["a b", "x" * 65, "ä", "a.b"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no tool name"):
        added(name=name)


def test_two_tools_of_one_name_are_refused_whatever_their_functions_are_called() -> None:
    into = Registry()
    added(into=into)
    namesake = eval("lambda context: 0")
    namesake.__doc__, namesake.__module__ = "Another module's.", "elsewhere"
    namesake.__name__ = namesake.__qualname__ = "book"

    with pytest.raises(ValueError, match="Tool book is declared twice"):
        added(namesake, into)
    added(into=into)
    with pytest.raises(ValueError, match="Tool book is declared twice"):
        added(run_builtin_like, into, name="book")


def run_builtin_like(context: ToolContext) -> None:
    """Another function."""


def test_two_categories_of_one_name_are_refused() -> None:
    into = Registry()
    into.add_category(CategorySpec("rooms", "Rooms", "Rooms to book."))
    into.add_category(CategorySpec("rooms", "Rooms", "Rooms to book."))

    with pytest.raises(ValueError, match="Category rooms is declared twice"):
        into.add_category(CategorySpec("rooms", "Rooms", "Other rooms."))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"expression": "1 + 1"}, "Calculating: 1 + 1"),
        ({"expression": "1 +\n\n  1"}, "Calculating: 1 + 1"),
        ({"expression": "x" * 900}, ("Calculating: " + "x" * 900)[:300]),
        ({"expression": "{0.__class__}"}, "Calculating: {0.__class__}"),
        ({}, "calculator"),
        ({"other": 1}, "calculator"),
    ],
)
def test_tx27_a_call_is_told_in_one_line(arguments: dict[str, Any], line: str) -> None:
    assert display("calculator", None, arguments) == line


NO_CREDENTIAL = Credential()


def run_by_kind(name: str, arguments: dict[str, Any], credential: Credential = NO_CREDENTIAL) -> Any:
    """A call as the runner of the built-in kind gets it."""
    spec = ToolSpec(1, 1, name, "builtin", "c", 1, True, "{}", "", 1, "read", Envelope("retry", 1.0, 1))
    return RUNNERS["builtin"](
        spec=spec, version=version_of(spec), credential=credential, context=CONTEXT, arguments=arguments
    )


def test_a_builtin_tool_gets_what_the_organisation_set_up_for_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def probe(context: ToolContext) -> None:
        """Looks at its service."""
        seen.append(dict(context.service))

    monkeypatch.setitem(registry.tools, "probe", added(probe))
    run_by_kind("probe", {}, Credential({"token": "t0p"}, ("t0p",)))

    assert seen == [{"token": "t0p"}]
    assert "t0p" not in repr(Credential({"token": "t0p"}, ("t0p",)))


def test_tx27_a_tool_that_is_gone_is_told_by_its_name() -> None:
    assert display("gone", None, {"a": 1}) == "gone"
    with pytest.raises(ToolError, match="gone is not part of this version of the service"):
        run_by_kind("gone", {})


def test_tx28_the_calculator_computes_and_refuses_in_words() -> None:
    assert run_by_kind("calculator", {"expression": "2 + 3"})["result"] == 5
    with pytest.raises(ToolError, match=r"^Division by zero$"):
        run_by_kind("calculator", {"expression": "1 / 0"})


@pytest.mark.parametrize("tool", registry.tools.values(), ids=registry.tools)
def test_every_tool_of_the_house_is_fit_for_the_catalogue(tool: BuiltinTool) -> None:
    check_schema(tool.parameters)
    assert tool.category in registry.categories
    assert tool.human_format.strip()
    assert 0 < tool.timeout <= 600
    assert tool.on_crash == "retry" or tool.effect != "read"


def test_the_line_of_a_call_reads_as_it_is_written() -> None:
    """It stands above the button that approves the call."""
    assert display("ask_user", None, {"question": "\u202eWhich\u2066 one?"}) == "Asking: Which one?"
