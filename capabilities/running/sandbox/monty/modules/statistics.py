"""`statistics`: averages and spread.

Sums of floats are exact, as in the original; a last division may round the last digit differently.
"""

import math
from collections import Counter
from decimal import Decimal
from typing import Any


def _mean(numbers: list[Any], count: int) -> Any:
    total = math.fsum(numbers) if any(isinstance(one, float) for one in numbers) else sum(numbers)
    return total // count if isinstance(total, int) and total % count == 0 else total / count


def mean(data: Any) -> Any:
    numbers = list(data)
    if not numbers:
        raise ValueError("mean requires at least one data point")
    return _mean(numbers, len(numbers))


def fmean(data: Any) -> float:
    return float(mean([float(one) for one in data]))


def median(data: Any) -> Any:
    numbers = sorted(data)
    if not numbers:
        raise ValueError("no median for empty data")
    half = len(numbers) // 2
    return numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2


def mode(data: Any) -> Any:
    found = Counter(list(data)).most_common(1)
    if not found:
        raise ValueError("no mode for empty data")
    return found[0][0]


def _spread(data: Any, center: Any, name: str, fewer: int) -> Any:
    numbers = list(data)
    if len(numbers) <= fewer:
        raise ValueError(f"{name} requires at least {'two data points' if fewer else 'one data point'}")
    middle = mean(numbers) if center is None else center
    return _mean([(one - middle) * (one - middle) for one in numbers], len(numbers) - fewer)


def _root(number: Any) -> Any:
    return number.sqrt() if isinstance(number, Decimal) else math.sqrt(number)


def variance(data: Any, xbar: Any = None) -> Any:
    return _spread(data, xbar, "variance", 1)


def pvariance(data: Any, mu: Any = None) -> Any:
    return _spread(data, mu, "pvariance", 0)


def stdev(data: Any, xbar: Any = None) -> Any:
    return _root(_spread(data, xbar, "stdev", 1))


def pstdev(data: Any, mu: Any = None) -> Any:
    return _root(_spread(data, mu, "pstdev", 0))
