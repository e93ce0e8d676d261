"""The form that a far side asks for, on the page: its fields by the schema, what was typed, and what came of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict
from django.template.loader import render_to_string

from sessions.asking.approvals.input_forms import InputForm, content_typed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seat": {"type": "string", "maxLength": 10, "title": "<b>Seat</b>", "description": "Near the window?"},
        "why": {"type": "string", "default": "Long & late"},
        "mail": {"type": "string", "format": "email"},
        "site": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date", "default": "2030-01-02"},
        "at": {"type": "string", "format": "date-time"},
        "bags": {"type": "integer", "default": 2},
        "meal": {"type": "string", "oneOf": [{"const": "a", "title": "Apples"}, {"const": "b", "title": "Bread"}]},
        "pets": {"type": "boolean", "default": False},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["wifi", "rug"]}, "default": ["rug"]},
    },
    "required": ["seat"],
}


def field_of(form: InputForm, place: int) -> str:
    bound = form[f"field-{place}"]
    boxes = bound.widget_type == "checkboxselectmultiple"
    return render_to_string("_choices.html" if boxes else "_field.html", {"field": bound, "mark_optional": True})


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (0, ('type="text" name="field-0"', "&lt;b&gt;Seat&lt;/b&gt;", "Near the window?")),
        (
            1,
            ('<textarea name="field-1" cols="40" rows="2" maxlength="10000"', "Long &amp; late", "optional"),
        ),
        (2, ('type="email"', 'autocomplete="off"')),
        (3, ('type="url"',)),
        (4, ('type="date"', 'value="2030-01-02"')),
        (5, ('type="datetime-local"',)),
        (6, ('type="number" name="field-6" value="2"', 'step="any"')),
        (7, ('<option value="" selected>Choose</option>', '<option value="a">Apples</option>')),
        (8, ('<option value="false" selected>No</option>', '<option value="true">Yes</option>')),
        (9, ('value="rug" class="form-check-input" id="field-9-one_1" checked', "optional")),
    ],
)
def test_each_kind_of_field_has_its_input_with_what_is_proposed(place: int, shown: tuple[str, ...]) -> None:
    page = field_of(InputForm(SCHEMA, "one"), place)

    assert [each for each in shown if each not in page] == []
    assert f'id="field-{place}-one' in page
    assert "optional" not in page or place != 0
    assert " required" not in page


def test_what_was_typed_stays_beside_what_is_wrong_with_it() -> None:
    typed = QueryDict("field-0=Seat+14&field-4=tomorrow&field-7=b&field-8=true&field-9=wifi")

    form = InputForm(SCHEMA, "one", typed, {"day": "Give a date.", "extras": "Choose some of these, each once."})

    assert 'value="Seat 14"' in field_of(form, 0)
    assert "field-error" not in field_of(form, 0)
    assert 'value="tomorrow"' in field_of(form, 4)
    assert "Give a date.</p>" in field_of(form, 4)
    assert 'aria-invalid="true"' in field_of(form, 4)
    assert '<option value="b" selected>' in field_of(form, 7)
    assert '<option value="true" selected>' in field_of(form, 8)
    assert field_of(form, 9).count("checked") == 1
    assert "Choose some of these, each once.</p>" in field_of(form, 9)


def test_what_was_typed_becomes_the_values_of_the_form() -> None:
    typed = QueryDict("field-0=a%0D%0Ab&field-5=2030-01-02T03:04&field-6=3&field-8=false&field-9=wifi&field-9=rug")

    found = content_typed(SCHEMA, typed)

    assert (found["seat"], found["bags"], found["pets"], found["extras"]) == ("a\nb", 3, False, ["wifi", "rug"])
    assert found["at"].startswith("2030-01-02T03:04:00+")
    assert content_typed(SCHEMA, QueryDict("field-6=many"))["bags"] == "many"
