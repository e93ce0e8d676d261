"""Forecasts of a series by plain statistics: a straight line, the mean, the same weekday before. Knows no row.

A point is (days since some beginning, value), in order of time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import Any

Point = tuple[float, float]

#: Seconds.
DAY = 86_400
#: Points that each method needs, before what it says is worth saying.
LEAST = {"linear": 5, "mean": 3, "weekly": 8}
#: How sure an interval is.
SURE = 0.95
#: How far from a week's multiple a point of the same weekday may lie, in days.
NEAR = 0.5


@dataclass(frozen=True)
class Forecast:
    """`low` and `high` hold the value in 19 of 20 cases, if the series goes on as it did. `error` is the mean distance
    by which the method missed the latest points, each predicted from those before it."""

    method: str
    value: float
    low: float
    high: float
    n: int
    error: float | None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        rounded = {"value": _round(self.value), "low": _round(self.low), "high": _round(self.high)}
        row: dict[str, Any] = rounded | {"interval": "95 %", "method": self.method, "n": self.n}
        row |= {"mean_error": _round(self.error)} if self.error is not None else {}
        return row | ({"note": self.note} if self.note else {})


def forecast(points: list[Point], at: float, method: str) -> Forecast:
    """Predict the value at that day. Raises ValueError with a sentence where the points do not allow it."""
    if points and at <= points[-1][0]:
        raise ValueError("That day is not after the latest point: read it with series_list.")
    if method == "auto":
        return _nearest(points, at)
    least = LEAST[method]
    if len(points) < least:
        raise ValueError(f"The method {method} needs at least {least} points; there are {len(points)}.")
    return METHODS[method](points, at)


def _nearest(points: list[Point], at: float) -> Forecast:
    """Return the forecast of the method that missed the latest points by the least, of those that have enough
    points."""
    found = []
    for method in METHODS:
        try:
            found.append(forecast(points, at, method))
        except ValueError:
            continue
    if not found:
        raise ValueError(f"A prediction needs at least {min(LEAST.values())} points; there are {len(points)}.")
    return min(found, key=lambda each: float("inf") if each.error is None else each.error)


def linear(points: list[Point], at: float) -> Forecast:
    """A straight line by least squares, with the interval of a new point on it."""
    slope, height, spread, middle, width = _line(points)
    n = len(points)
    reach = _student(n - 2) * spread * sqrt(1 + 1 / n + (at - middle) ** 2 / width)
    value = height + slope * (at - middle)
    per_day = f"The trend is {_round(slope)} a day."
    error = _missed(points, lambda before, x: _on_line(before, x), LEAST["linear"])
    return Forecast("linear", value, value - reach, value + reach, n, error, per_day)


def mean(points: list[Point], at: float) -> Forecast:
    """The mean, whatever the day."""
    values = [value for _, value in points]
    n, value = len(values), fmean(values)
    reach = _student(n - 1) * stdev(values) * sqrt(1 + 1 / n)
    error = _missed(points, lambda before, x: fmean(y for _, y in before), LEAST["mean"])
    return Forecast("mean", value, value - reach, value + reach, n, error)


def weekly(points: list[Point], at: float) -> Forecast:
    """The latest value of the same weekday; its interval comes from how much such values differed before. Raises
    ValueError with too few values."""
    value = _weeks_before(points, at)
    if value is None:
        raise ValueError("The method weekly needs a point of the same weekday.")
    steps = [
        y - before for number, (x, y) in enumerate(points) if (before := _weeks_before(points[:number], x)) is not None
    ]
    if len(steps) < 2:
        raise ValueError("The method weekly needs points of the same weekdays in several weeks.")
    reach = _student(len(steps)) * sqrt(fmean(step * step for step in steps))
    error = fmean(abs(step) for step in steps[-_held_out(points) :])
    return Forecast("weekly", value, value - reach, value + reach, len(points), error)


METHODS: dict[str, Callable[[list[Point], float], Forecast]] = {"linear": linear, "mean": mean, "weekly": weekly}


def _line(points: list[Point]) -> tuple[float, float, float, float, float]:
    """Slope, height in the middle, spread around the line, middle, and sum of squared distances from the middle."""
    middle = fmean(x for x, _ in points)
    height = fmean(y for _, y in points)
    width = sum((x - middle) ** 2 for x, _ in points)
    if not width:
        raise ValueError("All points are of the same moment.")
    slope = sum((x - middle) * (y - height) for x, y in points) / width
    rest = sum((y - height - slope * (x - middle)) ** 2 for x, y in points)
    spread = sqrt(rest / (len(points) - 2)) if len(points) > 2 else 0.0
    return slope, height, spread, middle, width


def _on_line(points: list[Point], at: float) -> float:
    slope, height, _, middle, _ = _line(points)
    return height + slope * (at - middle)


def _weeks_before(points: list[Point], at: float) -> float | None:
    """The latest value that lies a whole number of weeks before."""
    for x, y in reversed(points):
        weeks = round((at - x) / 7)
        if weeks >= 1 and abs(at - x - 7 * weeks) <= NEAR:
            return y
    return None


def _held_out(points: list[Point]) -> int:
    """Return the number of the latest points that a method is tried on."""
    return max(1, min(20, len(points) // 4))


def _missed(points: list[Point], guess: Callable[[list[Point], float], float], least: int) -> float | None:
    """Return the mean distance by which guesses from the points before missed the latest; None where no guess can be
    made."""
    tried = [number for number in range(len(points) - _held_out(points), len(points)) if number >= least - 1]
    try:
        distances = [abs(points[number][1] - guess(points[:number], points[number][0])) for number in tried]
    except ValueError:
        return None
    return fmean(distances) if distances else None


def _student(freedom: int) -> float:
    """Return the number of standard deviations that the interval reaches, by Student's distribution (Cornish and
    Fisher's expansion: under 1 % off from 3 degrees of freedom on; 2 degrees, which the mean of 3 points has, are 3 %
    off)."""
    z = NormalDist().inv_cdf((1 + SURE) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _round(value: float) -> float:
    """Six digits that count."""
    return float(f"{value:.6g}")
