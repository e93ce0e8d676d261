"""Ten tools as a model writes them, and what each gives; those that need another form, rewritten as a message says.

Each rewritten form changes only what a problem of the check names, and does with it what the advice says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    name: str
    code: str
    arguments: dict[str, Any]
    is_right: Callable[[Any], bool]


@dataclass(frozen=True)
class Rewritten:
    """The same tool as the first message about it says. `because` has each line of the original that changes, and the
    line of the problem whose advice asks for that: a line that is used elsewhere changes where it is used as well."""

    name: str
    code: str
    because: dict[int, int]


TEN = [
    Example(
        "calculator",
        """\
def run(operation: str, a: float, b: float) -> dict:
    ops = {"add": a + b, "subtract": a - b, "multiply": a * b}
    if operation == "divide":
        if b == 0:
            raise ValueError("Division by zero")
        result = a / b
    elif operation in ops:
        result = ops[operation]
    else:
        raise ValueError(f"Unknown operation: {operation}")
    return {"result": result, "message": f"{a} {operation} {b} = {result}"}
""",
        {"operation": "divide", "a": 7, "b": 2},
        lambda value: value["result"] == 3.5,
    ),
    Example(
        "parse_log",
        """\
import re
from datetime import datetime
from collections import Counter

LINE = re.compile(r"^(?P<ts>\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d) (?P<level>[A-Z]+) (?P<msg>.*)$", re.MULTILINE)

def run(text: str) -> dict:
    counts = Counter()
    first = None
    for m in LINE.finditer(text):
        counts[m.group("level")] += 1
        if first is None:
            first = datetime.strptime(m.group("ts"), "%Y-%m-%d %H:%M:%S")
    return {**dict(counts), "first": first.isoformat() if first else None}
""",
        {
            "text": "2026-11-22 10:00:01 ERROR db: timeout after 30s\n2026-11-22 10:00:02 INFO ok\n"
            "2026-11-22 10:05:00 ERROR api: 500"
        },
        lambda value: value["ERROR"] == 2 and value["first"].startswith("2026-11-22T10:00:01"),
    ),
    Example(
        "invoice_total",
        """\
from dataclasses import dataclass
from decimal import Decimal, ROUND_HALF_UP

@dataclass
class Item:
    name: str
    qty: int
    price: Decimal

    @property
    def total(self) -> Decimal:
        return self.price * self.qty

def run(items: list, vat: str) -> dict:
    rows = [Item(i["name"], int(i["qty"]), Decimal(i["price"])) for i in items]
    net = sum((r.total for r in rows), Decimal("0"))
    gross = (net * (1 + Decimal(vat))).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    return {"net": str(net), "total": str(gross)}
""",
        {"items": [{"name": "a", "qty": 3, "price": "19.99"}, {"name": "b", "qty": 1, "price": "5.00"}], "vat": "0.20"},
        lambda value: value["total"] == "77.96",
    ),
    Example(
        "weather_brief",
        """\
import json

def run(city: str) -> dict:
    resp = http_get("https://api.example.com/weather", {"q": city})
    if resp["status"] != 200:
        raise RuntimeError(f"weather service said {resp['status']}")
    data = json.loads(resp["body"])
    temps = [h["temp"] for h in data["hours"]]
    return {"summary": f"{city}: {sum(temps)/len(temps):.0f}°C, {data['sky']}", "min": min(temps), "max": max(temps)}
""",
        {"city": "Berlin"},
        lambda value: value["summary"].startswith("Berlin: 7"),
    ),
    Example(
        "business_days",
        """\
from datetime import date, timedelta

def run(start: str, days: int, holidays: list) -> dict:
    off = {date.fromisoformat(h) for h in holidays}
    day, left = date.fromisoformat(start), days
    while left > 0:
        day += timedelta(days=1)
        if day.weekday() < 5 and day not in off:
            left -= 1
    return {"due": day.isoformat(), "weekday": day.strftime("%A")}
""",
        {"start": "2026-11-20", "days": 5, "holidays": ["2026-11-26"]},
        lambda value: value["due"] == "2026-11-30",
    ),
    Example(
        "csv_summary",
        """\
import csv, io, statistics
from itertools import groupby

def run(csv_text: str) -> dict:
    rows = list(csv.DictReader(io.StringIO(csv_text)))
    rows.sort(key=lambda r: r["region"])
    out = {}
    for region, group in groupby(rows, key=lambda r: r["region"]):
        amounts = [float(r["amount"]) for r in group]
        out[region] = {"sum": sum(amounts), "mean": statistics.mean(amounts), "n": len(amounts)}
    return out
""",
        {"csv_text": "name,amount,region\nann,10.5,EU\nbob,20,US\ncid,4.5,EU\n"},
        lambda value: value["EU"]["sum"] == 15.0,
    ),
    Example(
        "slugify",
        """\
import re, unicodedata

def slug(text):
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

def run(titles: list) -> dict:
    return {"slugs": [slug(t) for t in titles]}
""",
        {"titles": ["Crème Brûlée & Co.", "Hello,  World!"]},
        lambda value: value["slugs"][0] == "creme-brulee-co",
    ),
    Example(
        "validate_order",
        """\
from enum import Enum

class Level(Enum):
    WARN = "warn"
    ERROR = "error"

class OrderError(Exception):
    def __init__(self, level, message):
        super().__init__(message)
        self.level = level

def check(line):
    if not line.get("sku"):
        raise OrderError(Level.ERROR, "sku missing")
    if line.get("qty", 0) <= 0:
        raise OrderError(Level.WARN, "qty must be positive")

def run(order: dict) -> dict:
    errors = []
    for line in order["lines"]:
        try:
            check(line)
        except OrderError as e:
            errors.append(f"{e.level.value}: {e}")
    return {"ok": not errors, "errors": errors}
""",
        {"order": {"id": "A1", "lines": [{"sku": "x", "qty": 0}]}},
        lambda value: value["ok"] is False and "qty" in value["errors"][0],
    ),
    Example(
        "paginate_api",
        """\
import json
from urllib.parse import urlencode

def fetch_all(pages):
    for page in range(1, pages + 1):
        resp = http_get("https://api.example.com/items?" + urlencode({"page": page, "size": 2}), None)
        yield from json.loads(resp["body"])["items"]

def run(pages: int) -> dict:
    seen = {}
    for item in fetch_all(pages):
        seen.setdefault(item["id"], item)
    return {"count": len(seen), "names": [i["name"] for i in seen.values()]}
""",
        {"pages": 3},
        lambda value: value["count"] == 6,
    ),
    Example(
        "geo_distance",
        """\
import math, hashlib, base64
from typing import NamedTuple

class Point(NamedTuple):
    lat: float
    lon: float

def haversine(p: Point, q: Point) -> float:
    dlat, dlon = math.radians(q.lat - p.lat), math.radians(q.lon - p.lon)
    h = math.sin(dlat / 2) ** 2 + math.cos(math.radians(p.lat)) * math.cos(math.radians(q.lat)) * math.sin(dlon / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(h))

def run(a: list, b: list) -> dict:
    km = haversine(Point(*a), Point(*b))
    return {"km": round(km, 1), "key": base64.urlsafe_b64encode(hashlib.sha256(f"{a}{b}".encode()).digest())[:8].decode()}
""",  # noqa: E501 -- as it was written
        {"a": [52.52, 13.405], "b": [48.8566, 2.3522]},
        lambda value: 870 < value["km"] < 885,
    ),
]

#: Those that monty does not run as they are.
REWRITTEN = [
    Rewritten(
        "invoice_total",
        # "Take `@property` away, so that it is a plain method, and call it with brackets: `x.total()`."
        """\
from dataclasses import dataclass
from decimal import Decimal, ROUND_HALF_UP

@dataclass
class Item:
    name: str
    qty: int
    price: Decimal

    def total(self) -> Decimal:
        return self.price * self.qty

def run(items: list, vat: str) -> dict:
    rows = [Item(i["name"], int(i["qty"]), Decimal(i["price"])) for i in items]
    net = sum((r.total() for r in rows), Decimal("0"))
    gross = (net * (1 + Decimal(vat))).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    return {"net": str(net), "total": str(gross)}
""",
        {10: 10, 16: 10},
    ),
    Rewritten(
        "validate_order",
        # "Write constants ...; then they are the text itself, so take `.value` and `.name` away."
        # "Leave the class out: write `raise ValueError(f"OrderError: ...")` with the fields in the text,
        # `except ValueError as error:`, and `str(error)` for them"
        """\
LEVEL_WARN = "warn"
LEVEL_ERROR = "error"

def check(line):
    if not line.get("sku"):
        raise ValueError(f"{LEVEL_ERROR}: sku missing")
    if line.get("qty", 0) <= 0:
        raise ValueError(f"{LEVEL_WARN}: qty must be positive")

def run(order: dict) -> dict:
    errors = []
    for line in order["lines"]:
        try:
            check(line)
        except ValueError as e:
            errors.append(str(e))
    return {"ok": not errors, "errors": errors}
""",
        {1: 1, 3: 3, 4: 3, 5: 3, 7: 7, 8: 7, 9: 9, 10: 7, 14: 7, 16: 7, 23: 7, 24: 7},
    ),
    Rewritten(
        "paginate_api",
        # "Build a list and return it: `found = []` before the loop, `found.extend(...)` in place of `yield from`,
        # `return found` at the end."
        """\
import json
from urllib.parse import urlencode

def fetch_all(pages):
    found = []
    for page in range(1, pages + 1):
        resp = http_get("https://api.example.com/items?" + urlencode({"page": page, "size": 2}), None)
        found.extend(json.loads(resp["body"])["items"])
    return found

def run(pages: int) -> dict:
    seen = {}
    for item in fetch_all(pages):
        seen.setdefault(item["id"], item)
    return {"count": len(seen), "names": [i["name"] for i in seen.values()]}
""",
        {7: 7},
    ),
    Rewritten(
        "geo_distance",
        # "Write `@dataclass` (`from dataclasses import dataclass`) above `class Point:`, with the same fields."
        """\
import math, hashlib, base64
from dataclasses import dataclass

@dataclass
class Point:
    lat: float
    lon: float

def haversine(p: Point, q: Point) -> float:
    dlat, dlon = math.radians(q.lat - p.lat), math.radians(q.lon - p.lon)
    h = math.sin(dlat / 2) ** 2 + math.cos(math.radians(p.lat)) * math.cos(math.radians(q.lat)) * math.sin(dlon / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(h))

def run(a: list, b: list) -> dict:
    km = haversine(Point(*a), Point(*b))
    return {"km": round(km, 1), "key": base64.urlsafe_b64encode(hashlib.sha256(f"{a}{b}".encode()).digest())[:8].decode()}
""",  # noqa: E501 -- as it was written
        {2: 2, 4: 4},
    ),
]
