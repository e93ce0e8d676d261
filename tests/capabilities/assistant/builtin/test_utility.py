from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.assistant.builtin.utility import calculator
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import Call


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3", 5),
        ("(2 + 3) * 4 - -1", 21),
        ("7 / 2", 3.5),
        ("6 / 3", 2),
        ("7 // 2", 3),
        ("7 % 4", 3),
        ("2 ** 10", 1024),
        ("0.1 + 0.2", 0.3),
        ("sqrt(16) + abs(-2)", 6),
        ("round(pi, 2)", 3.14),
        ("round(2.6)", 3),
        ("min(3, 1, 2) + max(3, 1, 2)", 4),
        ("floor(2.9) + ceil(2.1)", 5),
        ("log(e)", 1),
        ("log(8, 2)", 3),
        ("exp(0) + sin(0) + cos(0) + tan(0)", 2),
        ("2 ** 200", 2**200),
        (" 1 + 1 ", 2),
    ],
)
def test_calculator_computes(call: Call, expression: str, result: float) -> None:
    assert call("calculator", expression=expression) == {
        "result": result,
        "message": f"{expression.strip()} = {result}",
    }


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "Division by zero"),
        ("1 % 0", "Division by zero"),
        ("0 ** -1", "Division by zero"),
        ("2 +", "That is not an arithmetic expression such as (2 + 3) * sqrt(16)."),
        ("", "That is not an arithmetic expression such as (2 + 3) * sqrt(16)."),
        ("1 = 1", "That is not an arithmetic expression such as (2 + 3) * sqrt(16)."),
        ("9 ** 9 ** 9", "The result is too large."),
        ("2.5 ** 9999", "The result is too large."),
        ("1e400", "The result is too large."),
        ("exp(1000)", "The result is too large."),
        ("sqrt(-1)", "That cannot be computed: math domain error."),
        ("(-8) ** 0.5", "That cannot be computed: the result is not a real number."),
        ("round(1.5, -10 ** 9)", "That cannot be computed: round takes a whole number of digits up to 300."),
        ("2 ^ 3", "Write a power as 2 ** 3; ^ is not one."),
        ("x + 1", "The calculator does not know 'x'."),
        ("open('x')", "The calculator does not know 'open'."),
        ("(1).real", "The calculator takes numbers, + - * / // % **, parentheses and its functions only."),
        ("'a' * 9", "The calculator takes numbers, + - * / // % **, parentheses and its functions only."),
        ("True + 1", "The calculator takes numbers, + - * / // % **, parentheses and its functions only."),
        ("[1 for _ in (1, 2)]", "The calculator takes numbers, + - * / // % **, parentheses and its functions only."),
        ("round(1, ndigits=1)", "The calculator takes numbers, + - * / // % **, parentheses and its functions only."),
    ],
)
def test_calculator_refuses_with_a_sentence(call: Call, expression: str, message: str) -> None:
    with pytest.raises(ToolError) as refused:
        call("calculator", expression=expression)

    assert str(refused.value) == message


def test_calculator_refuses_a_long_expression(call: Call) -> None:
    with pytest.raises(ToolError, match="at most 500 characters"):
        call("calculator", expression="1+" * 250 + "1")


@pytest.mark.parametrize(
    "expression",
    [
        "-" * 499 + "x",
        "(" * 249 + "x" + ")" * 249,
        "9**999*" * 62 + "1",
        "2**" * 160 + "2",
        "exp(" * 90 + "1" + ")" * 90,
    ],
)
def test_calculator_ends_soon_whatever_the_shape(call: Call, expression: str) -> None:
    started = time.monotonic()

    with pytest.raises(ToolError):
        call("calculator", expression=expression)

    assert time.monotonic() - started < 1


@given(st.text("0123456789.+-*/%() episqrtlogmax,", max_size=60))
def test_calculator_answers_or_refuses_and_never_breaks(expression: str) -> None:
    context: ToolContext = None  # type: ignore[assignment]  # it looks at nothing in it
    try:
        answer = calculator(context, expression)
    except ToolError:
        return
    assert set(answer) == {"result", "message"}


@pytest.mark.parametrize(
    ("timezone", "answer"),
    [
        (None, {"time": "2026-11-18T09:30:00+00:00", "weekday": "Wednesday", "timezone": "UTC"}),
        (
            "Asia/Tokyo",
            {"time": "2026-11-18T18:30:00+09:00", "weekday": "Wednesday", "timezone": "Asia/Tokyo"},
        ),
    ],
)
def test_current_time_is_told_in_a_zone(call: Call, timezone: str | None, answer: dict[str, str]) -> None:
    assert call("current_time", timezone=timezone) == answer


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_an_unknown_time_zone_is_refused(call: Call, timezone: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        call("current_time", timezone=timezone)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"date": "2026-01-31", "months": 1}, {"date": "2026-02-28", "weekday": "Saturday"}),
        ({"date": "2024-02-29", "years": 1}, {"date": "2025-02-28", "weekday": "Friday"}),
        ({"date": "2026-11-18", "days": -18}, {"date": "2026-10-31", "weekday": "Saturday"}),
        ({"date": "today", "weeks": 2, "days": 1}, {"date": "2026-12-03", "weekday": "Thursday"}),
        ({"date": "2026-01-15", "months": -1}, {"date": "2025-12-15", "weekday": "Monday"}),
        ({"date": "today", "until": "2026-12-24"}, {"from": "2026-11-18", "until": "2026-12-24", "days": 36}),
        ({"date": "2026-11-20", "until": "2026-11-18"}, {"from": "2026-11-20", "until": "2026-11-18", "days": -2}),
    ],
)
def test_date_arithmetic(call: Call, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
    assert call("date_arithmetic", **arguments) == answer


@pytest.mark.parametrize("step", ["days", "weeks", "months", "years"])
@pytest.mark.parametrize("count", [10**7, -(10**7), 10**30])
def test_dates_outside_the_calendar_are_refused(call: Call, step: str, count: int) -> None:
    with pytest.raises(ToolError, match="That date is outside the years 1 to 9999"):
        call("date_arithmetic", date="today", **{step: count})


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "result"),
    [
        (5, "km", "mi", 3.10685596119),
        (1, "Mile", "metres", 1609.344),
        (100, "°C", "fahrenheit", 212),
        (-40, "F", "C", -40),
        (0, "celsius", "kelvin", 273.15),
        (1, "lb", "g", 453.59237),
        (2, "cups", "ml", 473.176473),
        (1, "imperial gallon", "l", 4.54609),
        (1, "ha", "m2", 10_000),
        (36, "km/h", "m/s", 10),
        (1.5, "hours", "min", 90),
        (1, "GiB", "MB", 1073.741824),
        (8, "Mbit", "MB", 1),
    ],
)
def test_units_convert(call: Call, value: float, from_unit: str, to_unit: str, result: float) -> None:
    assert call("unit_convert", value=value, from_unit=from_unit, to_unit=to_unit) == {
        "result": result,
        "message": f"{value} {from_unit} = {result} {to_unit}",
    }


@pytest.mark.parametrize(
    ("from_unit", "to_unit", "message"),
    [
        ("kg", "km", "kg is a unit of mass and km one of length: they do not convert."),
        ("smoot", "m", "There is no unit 'smoot' here: write it as km, lb, celsius, l, m2, km/h, min or GiB."),
        ("", "m", "There is no unit '' here: write it as km, lb, celsius, l, m2, km/h, min or GiB."),
    ],
)
def test_units_that_do_not_fit_are_refused(call: Call, from_unit: str, to_unit: str, message: str) -> None:
    with pytest.raises(ToolError) as refused:
        call("unit_convert", value=1, from_unit=from_unit, to_unit=to_unit)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("value", "unit", "lowest"),
    [(-273.16, "celsius", "-273.15"), (-460, "fahrenheit", "-459.67"), (-1, "kelvin", "0"), (-1e308, "c", "-273.15")],
)
def test_nothing_is_colder_than_absolute_zero(call: Call, value: float, unit: str, lowest: str) -> None:
    with pytest.raises(ToolError) as refused:
        call("unit_convert", value=value, from_unit=unit, to_unit="kelvin")

    assert f"absolute zero, {lowest} {unit}." in str(refused.value)


@pytest.mark.parametrize(("value", "unit"), [(-273.15, "celsius"), (-459.67, "fahrenheit"), (0, "kelvin")])
def test_absolute_zero_itself_converts(call: Call, value: float, unit: str) -> None:
    assert abs(call("unit_convert", value=value, from_unit=unit, to_unit="kelvin")["result"]) < 1e-9


def test_a_value_too_large_to_convert_is_refused(call: Call) -> None:
    with pytest.raises(ToolError, match="The result is too large"):
        call("unit_convert", value=1e308, from_unit="km", to_unit="mm")


def test_uuids_are_random_and_of_version_4(call: Call) -> None:
    uuids = call("uuid", count=20)["uuids"]

    assert [UUID(uuid).version for uuid in uuids] == [4] * 20
    assert len(set(uuids)) == 20


@pytest.mark.parametrize("count", [0, 21])
def test_a_count_of_uuids_out_of_range_is_refused(call: Call, count: int) -> None:
    with pytest.raises(ToolError, match="count"):
        call("uuid", count=count)
