"""Sums, clocks, calendars, units and ids. Knows no row, no file and no network."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from pydantic import Field

from capabilities.assistant.builtin._lib.units import convert
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.dates import parse_date, shift
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="utility",
    title="Utility",
    description="Arithmetic, time, dates, units and ids.",
    keywords=(
        "calculate",
        "calculator",
        "how much is",
        "what time",
        "current time",
        "what day",
        "today's date",
        "how many days",
        "days until",
        "convert",
        "uuid",
    ),
    is_core=True,
)

#: Bits of the largest whole number that the calculator works with: about 1,200 digits.
MAX_BITS = 4_096

Number = int | float

BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: _power(base, exponent),
}
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": lambda value, digits=0: _round(value, digits),
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "floor": math.floor,
    "ceil": math.ceil,
    "log": math.log,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}


@tool(category="utility", effect="read", human_format="Calculating: {expression}")
def calculator(
    context: ToolContext,
    expression: Annotated[str, Field(description="For example (2 + 3) * sqrt(16).", max_length=500)],
) -> dict[str, Any]:
    """Compute an arithmetic expression exactly. Use it for any sum beyond the trivial.

    Knows + - * / // % ** ( ) pi e sqrt abs round min max floor ceil log exp sin cos tan (radians).
    """
    try:
        value = _evaluate(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError:
        raise ToolError("Division by zero") from None
    except (SyntaxError, RecursionError, MemoryError):
        raise ToolError("That is not an arithmetic expression such as (2 + 3) * sqrt(16).") from None
    except OverflowError:
        raise ToolError("The result is too large.") from None
    except (ValueError, TypeError) as error:
        raise ToolError(f"That cannot be computed: {error}.") from None
    result = _plain(value)
    return {"result": result, "message": f"{expression.strip()} = {result}"}


@tool(category="utility", effect="read", human_format="Looking at the clock")
def current_time(
    context: ToolContext,
    timezone: Annotated[str | None, Field(description="IANA name, as Europe/Berlin.", max_length=64)] = None,
) -> dict[str, str]:
    """Tell the current date, time and weekday, in the user's time zone unless another one is named."""
    now = context.now()
    if timezone:
        try:
            now = now.astimezone(ZoneInfo(timezone))
        except (KeyError, ValueError, OSError):
            raise ToolError(f"There is no time zone {timezone!r}: use an IANA name such as Europe/Berlin.") from None
    return {"time": now.isoformat(timespec="seconds"), "weekday": f"{now:%A}", "timezone": timezone or str(now.tzinfo)}


@tool(category="utility", effect="read", human_format="Working out a date from {date}")
def date_arithmetic(
    context: ToolContext,
    date: Annotated[str, Field(description="YYYY-MM-DD, today, tomorrow or a weekday.", max_length=40)],
    days: int = 0,
    weeks: int = 0,
    months: int = 0,
    years: int = 0,
    until: Annotated[str | None, Field(description="A second date: answer the days between.", max_length=40)] = None,
) -> dict[str, Any]:
    """Add to a date (negative numbers subtract), or count the days from it until another date."""
    today = context.now().date()
    try:
        start = shift(parse_date(date, today), days=days, weeks=weeks, months=months, years=years)
    except (ValueError, OverflowError):
        raise ToolError("That date is outside the years 1 to 9999.") from None
    if until is None:
        return {"date": start.isoformat(), "weekday": f"{start:%A}"}
    end = parse_date(until, today)
    return {"from": start.isoformat(), "until": end.isoformat(), "days": (end - start).days}


@tool(category="utility", effect="read", human_format="Converting {value} {from_unit} to {to_unit}")
def unit_convert(
    context: ToolContext,
    value: Annotated[float, Field(allow_inf_nan=False)],
    from_unit: Annotated[str, Field(description="For example km, lb, celsius, GiB, km/h.", max_length=40)],
    to_unit: Annotated[str, Field(max_length=40)],
) -> dict[str, Any]:
    """Convert between units of length, mass, temperature, volume (US), area, speed, time or data."""
    result = convert(value, from_unit, to_unit)
    if not math.isfinite(result):
        raise ToolError("The result is too large.")
    short = _plain(float(f"{result:.12g}"))
    return {"result": short, "message": f"{_plain(value)} {from_unit} = {short} {to_unit}"}


@tool(category="utility", effect="read", name="uuid", human_format="Making {count} random ids")
def generate_uuid(context: ToolContext, count: Annotated[int, Field(ge=1, le=20)] = 1) -> dict[str, list[str]]:
    """Make random unique ids (UUID version 4)."""
    return {"uuids": [str(uuid4()) for _ in range(count)]}


def _evaluate(node: ast.expr) -> Number:
    """The value of a syntax tree of numbers and the operations above; anything else is refused, nothing is run."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _checked(value)
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return _checked(UNARY[type(op)](_evaluate(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return _checked(BINARY[type(op)](_evaluate(left), _evaluate(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return _checked(FUNCTIONS[name](*[_evaluate(argument) for argument in args]))
        case ast.BinOp(op=ast.BitXor()):
            raise ToolError("Write a power as 2 ** 3; ^ is not one.")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
            raise ToolError(f"The calculator does not know {name!r}.")
        case _:
            raise ToolError("The calculator takes numbers, + - * / // % **, parentheses and its functions only.")


def _checked(value: Any) -> Number:
    if isinstance(value, complex):
        raise ValueError("the result is not a real number")
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise OverflowError
        return value
    if not math.isfinite(value):
        raise OverflowError
    return float(value)


def _power(base: Number, exponent: Number) -> Any:
    """The size is judged before the power is taken: 9 ** 9 ** 9 would never end."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 0:
        if exponent > MAX_BITS:
            raise OverflowError
        if (abs(base).bit_length() - 1) * exponent > MAX_BITS:
            raise OverflowError
    return base**exponent


def _round(value: Number, digits: Number) -> Number:
    if not isinstance(digits, int) or abs(digits) > 300:
        raise ValueError("round takes a whole number of digits up to 300")
    return round(value, digits)


def _plain(value: Number) -> Number:
    """A float as people write it: 0.1 + 0.2 is 0.3, and 6 / 3 is 2."""
    if isinstance(value, int):
        return value
    short = float(f"{value:.15g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
