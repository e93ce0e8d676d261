"""Modules of Python's library that are written anew for the interpreter do the same as the original."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.running.sandbox.monty import modules
from tests.capabilities.running.sandbox.running import ran

#: Expressions that must give the same in CPython and in the interpreter; an exception counts by its name.
SAME: dict[str, list[str]] = {
    "calendar": [
        "[calendar.isleap(y) for y in (1900, 2000, 2023, 2024)]",
        "calendar.monthrange(2024, 2), calendar.monthrange(2026, 11)",
        "calendar.monthcalendar(2026, 11)",
        "calendar.leapdays(1990, 2030)",
        "calendar.timegm((2026, 11, 23, 4, 5, 6))",
        "list(calendar.day_name), list(calendar.month_abbr)",
        "calendar.monthrange(2024, 13)",
    ],
    "heapq": [
        "heapq.nsmallest(2, [5, 1, 4]), heapq.nlargest(2, [5, 1, 4], key=lambda x: -x)",
        "list(heapq.merge([1, 4], [2, 3]))",
        "(lambda h: (heapq.heapify(h), heapq.heappush(h, 0), [heapq.heappop(h) for _ in range(4)]))([3, 1, 2])[2]",
        "(lambda h: (heapq.heapreplace(h, 9), heapq.heappushpop(h, 0), h))([1, 2, 3])",
        "heapq.heappop([])",
    ],
    "html": ["html.escape('<a href=\"x\">&\\'')", "html.escape('\"', quote=False)"],
    "io": [
        "io.StringIO('a\\nb').read()",
        "list(io.StringIO('a\\nb\\n'))",
        "(lambda s: (s.write('ab'), s.write('c'), s.getvalue()))(io.StringIO())",
        "(lambda s: (s.read(2), s.tell(), s.readline(), s.seek(0), s.readlines()))(io.StringIO('abc\\nd'))",
        "(lambda s: (s.write('x'), s.getvalue()))(io.StringIO('abc'))",
        "io.StringIO().write(1)",
    ],
    "operator": [
        "sorted([(1, 'b'), (0, 'c')], key=operator.itemgetter(1))",
        "operator.itemgetter('a', 'b')({'a': 1, 'b': 2})",
        "operator.add(1, 2), operator.sub(1, 2), operator.mul(2, 3), operator.truediv(1, 2), operator.contains([1], 1)",
    ],
    "statistics": [
        "statistics.mean([1, 2, 3, 4]), statistics.mean([1, 2]), statistics.mean([0.1] * 10)",
        "statistics.fmean([1, 2, 4]), statistics.fmean([1, 2], weights=[3, 1])",
        "statistics.median([3, 1, 2]), statistics.median([1, 2, 3, 4]), statistics.median_low([1, 2, 3, 4])",
        "statistics.median_high([1, 2, 3, 4]), statistics.mode('aabb'), statistics.multimode('aabbc')",
        "round(statistics.stdev([1.5, 2.5, 4.0]), 12), round(statistics.pstdev([1, 2, 4]), 12)",
        "statistics.variance([1, 2, 3, 4]), statistics.pvariance([1, 2, 3, 4])",
        "statistics.quantiles([1, 2, 3, 4, 5]), statistics.quantiles([1, 2, 3, 4, 5], n=10, method='inclusive')",
        "round(statistics.geometric_mean([54, 24, 36]), 9), round(statistics.harmonic_mean([40, 60]), 9)",
        "round(statistics.correlation([1, 2, 3], [1, 5, 7]), 12), statistics.covariance([1, 2, 3], [1, 5, 7])",
        "str(statistics.mean([Decimal('0.5'), Decimal('0.75')])), str(statistics.median([Decimal('1'), Decimal('2')]))",
        "statistics.mode([])",
        "statistics.mean([])",
        "statistics.stdev([1])",
    ],
    "string": [
        "[string.ascii_letters, string.digits, string.punctuation, string.whitespace, string.printable]",
        "string.capwords('hello big  world'), string.capwords('a-b', '-')",
    ],
    "textwrap": [
        "textwrap.dedent('  a\\n    b\\n\\n  c'), textwrap.dedent('a\\n b')",
        "textwrap.indent('a\\n\\nb', '> '), textwrap.indent('a\\n\\nb', '> ', lambda line: True)",
        "textwrap.wrap('the quick brown fox jumps over it', 10), textwrap.fill('aaa bbb ccc', 7)",
        "textwrap.wrap('a verylongwordthatdoesnotfit b', 8)",
        "textwrap.wrap('one two three', 8, initial_indent='* ', subsequent_indent='  ')",
        "textwrap.shorten('Hello  world, how are you', 16), textwrap.shorten('short', 10)",
    ],
    "urllib.parse": [
        "urllib.parse.quote('é a/b?c'), urllib.parse.quote('a/b', safe=''), urllib.parse.quote_plus('a b&c')",
        "urllib.parse.unquote('%C3%A9%20a%zz%2'), urllib.parse.unquote_plus('a+b%20c')",
        "urllib.parse.urlencode({'a': 1, 'b': 'x y', 'c': True}), urllib.parse.urlencode([('a', [1, 2])], doseq=True)",
        "urllib.parse.parse_qs('a=1&a=2&b=&c=x%20y'), urllib.parse.parse_qsl('a=1&b=', keep_blank_values=True)",
        "list(urllib.parse.urlsplit('HTTPS://u:p@Ex.org:8/a/b?c=d#e'))",
        "list(urllib.parse.urlparse('http://h/p;x?q#f')), list(urllib.parse.urlparse('mailto:a@b'))",
        "(lambda u: [u.hostname, u.port, u.username, u.path])(urllib.parse.urlsplit('https://u:p@Ex.org:8/a?b'))",
        "urllib.parse.urlsplit('https://[::1]:8/').hostname, urllib.parse.urlsplit('//h/x').netloc",
        "urllib.parse.urlparse('http://h/p?q=1').geturl()",
        "urllib.parse.urlunsplit(('https', 'h', 'p', 'q', 'f'))",
        "[urllib.parse.urljoin('http://a/b/c/d?q', r) for r in ('g', './g', 'g/', '/g', '//g', '?y', '', 'http://x/')]",
        "[urllib.parse.urljoin('http://a/b/c/d?q', r) for r in ('../g', '../../g', '.', '..', 'g;x=1', '#s')]",
    ],
    "uuid": [
        "str(uuid.uuid5(uuid.NAMESPACE_DNS, 'python.org')), str(uuid.uuid3(uuid.NAMESPACE_URL, 'x'))",
        "uuid.UUID('{6BA7B810-9dad-11d1-80b4-00c04fd430c8}').hex, uuid.UUID('6ba7b8109dad11d180b400c04fd430c8').int",
        "uuid.uuid4().version, len(str(uuid.uuid4())), uuid.uuid4() == uuid.uuid4(), uuid.uuid4().hex[12]",
        "uuid.UUID('x')",
    ],
    "contextlib": ["isinstance(contextlib.suppress(ValueError), contextlib.suppress)"],
}  # fmt: skip
CODE = """\
import {module}
from decimal import Decimal

def run():
    try:
        found = {expression}
    except Exception as error:
        return type(error).__name__
    return found
"""


def in_cpython(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    return json.loads(json.dumps(names["run"]()))


@pytest.mark.parametrize(
    ("module", "expression"), [(module, each) for module, found in SAME.items() for each in found], ids=str
)
def test_a_module_does_the_same_as_the_original(module: str, expression: str) -> None:
    code = CODE.format(module=module, expression=expression)
    expected = in_cpython(code)
    if expected in ("StatisticsError", "IllegalMonthError"):  # kinds of it
        expected = "ValueError"

    found = ran(code)

    assert (found.error, found.value) == (None, expected)


def test_every_module_is_compared() -> None:
    there = {*modules.NAMES, *(f"{name}.{part}" for name, part in modules.PACKAGES.items())}

    assert set(SAME) == there


def test_suppress_lets_through_what_it_does_not_name() -> None:
    code = """\
from contextlib import suppress, nullcontext

def run(text):
    with suppress(ValueError):
        int("x")
    with nullcontext(3) as three:
        pass
    with suppress(KeyError):
        return [three, int(text)]
"""

    assert ran(code, {"text": "4"}).value == [3, 4]
    assert "ValueError" in str(ran(code, {"text": "x"}).error)
