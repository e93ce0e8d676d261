"""`statistics`: averages, spread, quantiles, and how two lists of numbers go together.

Sums of floats are exact, as in the original; a last division may round the last digit differently.
"""

import math
from collections import Counter
from decimal import Decimal
from typing import Any


def _numbers(data: Any, name: str, least: int = 1) -> list[Any]:
    found = list(data)
    if len(found) < least:
        if least == 1:
            raise ValueError(f"{name} requires at least one data point")
        raise ValueError(f"{name} requires at least {'two' if least == 2 else least} data points")
    return found


def _sum(numbers: list[Any]) -> Any:
    if any(isinstance(one, float) for one in numbers):
        return math.fsum(numbers)
    total = numbers[0] - numbers[0]
    for one in numbers:
        total += one
    return total


def _divided(total: Any, count: int) -> Any:
    if isinstance(total, int):
        return total // count if total % count == 0 else total / count
    return total / count


def mean(data: Any) -> Any:
    numbers = _numbers(data, "mean")
    return _divided(_sum(numbers), len(numbers))


def fmean(data: Any, weights: Any = None) -> float:
    numbers = [float(one) for one in _numbers(data, "fmean")]
    if weights is None:
        return math.fsum(numbers) / len(numbers)
    shares = [float(one) for one in weights]
    if len(shares) != len(numbers):
        raise ValueError("data and weights must be the same length")
    total = math.fsum(shares)
    if not total:
        raise ValueError("sum of weights must be non-zero")
    return math.fsum([number * share for number, share in zip(numbers, shares)]) / total  # noqa: B905


def geometric_mean(data: Any) -> float:
    numbers = _numbers(data, "geometric_mean")
    if any(one <= 0 for one in numbers):
        raise ValueError("geometric mean requires a non-empty dataset containing positive numbers")
    return math.exp(math.fsum([math.log(one) for one in numbers]) / len(numbers))


def harmonic_mean(data: Any) -> Any:
    numbers = _numbers(data, "harmonic_mean")
    if any(one < 0 for one in numbers):
        raise ValueError("harmonic mean does not support negative values")
    if any(one == 0 for one in numbers):
        return 0
    return len(numbers) / _sum([1 / one for one in numbers])


def _middle(data: Any) -> list[Any]:
    numbers = sorted(data)
    if not numbers:
        raise ValueError("no median for empty data")
    return numbers


def median(data: Any) -> Any:
    numbers = _middle(data)
    half = len(numbers) // 2
    return numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2


def median_low(data: Any) -> Any:
    numbers = _middle(data)
    return numbers[(len(numbers) - 1) // 2]


def median_high(data: Any) -> Any:
    numbers = _middle(data)
    return numbers[len(numbers) // 2]


def mode(data: Any) -> Any:
    found = Counter(list(data)).most_common(1)
    if not found:
        raise ValueError("no mode for empty data")
    return found[0][0]


def multimode(data: Any) -> list[Any]:
    counts = Counter(list(data))
    if not counts:
        return []
    most = max(counts.values())
    return [value for value, count in counts.items() if count == most]


def _squares(numbers: list[Any], center: Any) -> Any:
    return _sum([(one - center) * (one - center) for one in numbers])


def variance(data: Any, xbar: Any = None) -> Any:
    numbers = _numbers(data, "variance", 2)
    center = mean(numbers) if xbar is None else xbar
    return _divided(_squares(numbers, center), len(numbers) - 1)


def pvariance(data: Any, mu: Any = None) -> Any:
    numbers = _numbers(data, "pvariance")
    center = mean(numbers) if mu is None else mu
    return _divided(_squares(numbers, center), len(numbers))


def stdev(data: Any, xbar: Any = None) -> Any:
    numbers = _numbers(data, "stdev", 2)
    return _root(variance(numbers, xbar))


def pstdev(data: Any, mu: Any = None) -> Any:
    return _root(pvariance(_numbers(data, "pstdev"), mu))


def _root(number: Any) -> Any:
    return number.sqrt() if isinstance(number, Decimal) else math.sqrt(number)


def quantiles(data: Any, n: int = 4, method: str = "exclusive") -> list[Any]:
    if n < 1:
        raise ValueError("n must be at least 1")
    numbers = sorted(data)
    count = len(numbers)
    if count < 2:
        raise ValueError("must have at least two data points")
    found = []
    for at in range(1, n):
        if method == "inclusive":
            low, rest = divmod(at * (count - 1), n)
            found.append((numbers[low] * (n - rest) + numbers[low + 1] * rest) / n)
        elif method == "exclusive":
            low = at * (count + 1) // n
            low = 1 if low < 1 else count - 1 if low > count - 1 else low
            rest = at * (count + 1) - low * n
            found.append((numbers[low - 1] * (n - rest) + numbers[low] * rest) / n)
        else:
            raise ValueError(f"Unknown method: {method!r}")
    return found


def _pairs(x: Any, y: Any, name: str) -> tuple[list[Any], list[Any]]:
    left, right = list(x), list(y)
    if len(left) != len(right):
        raise ValueError(f"{name} requires that both inputs have same number of data points")
    if len(left) < 2:
        raise ValueError(f"{name} requires at least two data points")
    return left, right


def _products(left: list[Any], right: list[Any]) -> float:
    a, b = math.fsum(left) / len(left), math.fsum(right) / len(right)
    return math.fsum([(one - a) * (other - b) for one, other in zip(left, right)])  # noqa: B905


def covariance(x: Any, y: Any) -> float:
    left, right = _pairs(x, y, "covariance")
    return _products(left, right) / (len(left) - 1)


def correlation(x: Any, y: Any) -> float:
    left, right = _pairs(x, y, "correlation")
    spread = math.sqrt(_products(left, left) * _products(right, right))
    if not spread:
        raise ValueError("at least one of the inputs is constant")
    return _products(left, right) / spread
