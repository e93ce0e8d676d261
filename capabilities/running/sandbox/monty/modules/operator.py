"""`operator`: itemgetter, attrgetter, and the functions of the operators."""

from typing import Any


def itemgetter(item: Any, *items: Any) -> Any:
    if not items:
        return lambda thing: thing[item]
    every = (item, *items)
    return lambda thing: tuple([thing[one] for one in every])


def attrgetter(attr: str, *attrs: str) -> Any:
    def value(thing: Any, path: str) -> Any:
        for part in path.split("."):
            thing = getattr(thing, part)
        return thing

    if not attrs:
        return lambda thing: value(thing, attr)
    every = (attr, *attrs)
    return lambda thing: tuple([value(thing, one) for one in every])


def add(a: Any, b: Any) -> Any:
    return a + b


def sub(a: Any, b: Any) -> Any:
    return a - b


def mul(a: Any, b: Any) -> Any:
    return a * b


def truediv(a: Any, b: Any) -> Any:
    return a / b


def floordiv(a: Any, b: Any) -> Any:
    return a // b


def mod(a: Any, b: Any) -> Any:
    return a % b


def pow(a: Any, b: Any) -> Any:
    return a**b


def neg(a: Any) -> Any:
    return -a


def eq(a: Any, b: Any) -> Any:
    return a == b


def ne(a: Any, b: Any) -> Any:
    return a != b


def lt(a: Any, b: Any) -> Any:
    return a < b


def le(a: Any, b: Any) -> Any:
    return a <= b


def gt(a: Any, b: Any) -> Any:
    return a > b


def ge(a: Any, b: Any) -> Any:
    return a >= b


def and_(a: Any, b: Any) -> Any:
    return a & b


def or_(a: Any, b: Any) -> Any:
    return a | b


def xor(a: Any, b: Any) -> Any:
    return a ^ b


def not_(a: Any) -> bool:
    return not a


def truth(a: Any) -> bool:
    return bool(a)


def is_(a: Any, b: Any) -> bool:
    return a is b


def contains(a: Any, b: Any) -> bool:
    return b in a


def getitem(a: Any, b: Any) -> Any:
    return a[b]
