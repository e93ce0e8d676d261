"""Parts of Python that the interpreter lacks, and what to write instead: a sentence for each."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from capabilities.running.sandbox.values import Problem

EXCEPTIONS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}
ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
PROTOCOLS = {"Protocol", "ABC", "Generic"}

#: Special methods that are never called: name -> what to write instead.
SPECIAL_METHODS = {
    **dict.fromkeys(
        ("__lt__", "__le__", "__gt__", "__ge__"),
        "Write a method such as `def is_before(self, other)`, and sort with `sorted(items, key=lambda "
        "one: one.field)`.",
    ),
    "__len__": "Write a method such as `def size(self)`, and call it in place of `len(x)`.",
    "__bool__": "Write a method such as `def is_empty(self)`, and call it in the condition.",
    "__ne__": "Write `__eq__` alone, and `not a == b`.",
    "__getattr__": "Set every attribute in `__init__`, or keep them in a dict.",
    "__setattr__": "Write a method that sets the attribute.",
    "__format__": "Write a method that returns the text, and put its result into the f-string.",
    "__iadd__": "Write `__add__`: `a += b` then uses it.",
    "__reversed__": "Write a method that returns the reversed list.",
    "__post_init__": "Write a function that makes the object and does the rest, and call that.",
    "__new__": "Write a function that makes and returns the object.",
    "__class_getitem__": "Leave it out: annotations are not looked at.",
    "__init_subclass__": "Leave it out: classes cannot inherit here.",
    "__del__": "Leave it out.",
    "__bytes__": "Write a method that returns the bytes.",
}
METHOD_DECORATORS = {
    "property": "Take `@property` away, so that it is a plain method, and call it with brackets: `x.{0}()`.",
    "cached_property": "Take the decorator away, so that it is a plain method, and call it with brackets: `x.{0}()`.",
    "functools.cached_property": "Take the decorator away, and call it with brackets: `x.{0}()`.",
    "staticmethod": "Write `{0}` as a function outside of the class.",
    "classmethod": "Write `{0}` as a function outside of the class that returns the object.",
}
#: Names that are never there, or not all of them: name -> what to write instead.
INSTEAD = {
    # Built-in functions
    "super": "Classes cannot inherit here, so there is nothing above: leave the line out.",
    "callable": "Say which it is with an argument of its own.",
    "vars": "Write the dict out: `{'name': x.name}`.",
    "dir": "Name the attributes.",
    "globals": "Keep the values in a dict of your own.",
    "input": "Take the value as an argument of `run`.",
    "open": "There are no files here: take the text as an argument of `run`, and return text.",
    "bytearray": "Collect a list of bytes objects, and write `b''.join(parts)`.",
    "memoryview": "Slice the bytes themselves.",
    "compile": "Write the code out.",
    "breakpoint": "Leave it out, and use `print`.",
    "aiter": "Use a plain loop.",
    "anext": "Use a plain loop.",
    "property": METHOD_DECORATORS["property"].format("name"),
    "staticmethod": "Write a function outside of the class.",
    "classmethod": "Write a function outside of the class that returns the object.",
    # Names of modules
    "dataclasses.asdict": "Write a method that returns the dict: `def as_dict(self): return {'x': self.x}`.",
    "dataclasses.astuple": "Write a method that returns the tuple.",
    "dataclasses.replace": "Make a new object with all its values.",
    "dataclasses.fields": "Name the fields.",
    "dataclasses.KW_ONLY": "Leave it out, and make the objects with names: `P(x=1)`.",
    "functools.wraps": "Leave `@wraps(...)` out.",
    "functools.total_ordering": "Sort with `sorted(items, key=...)`.",
    "functools.cmp_to_key": "Sort with `key=`, such as a tuple: `key=lambda one: (one['a'], -one['b'])`.",
    "functools.singledispatch": "Write one function with `isinstance`.",
    "functools.cached_property": "Write a plain method, and keep its value in a variable.",
    "collections.OrderedDict": "Use a plain `dict`: it keeps the order.",
    "collections.ChainMap": "Merge the dicts: `{**defaults, **given}`.",
    "collections.abc": "Write `from typing import Iterable, Mapping, Sequence, Callable` in its place.",
    "typing.NamedTuple": "Write a class with `@dataclass` and the same fields, or "
    "`collections.namedtuple('Name', 'a b')`.",
    "typing.TypedDict": "Use plain dicts, and annotate them as `dict`.",
    "typing.cast": "Use the value itself.",
    "typing.NewType": "Use the type itself.",
    "typing.get_type_hints": "Name the types.",
    "datetime.UTC": "Write `timezone.utc` (`from datetime import timezone`).",
    "datetime.tzinfo": "Use `timezone(timedelta(hours=1))`, or `in_zone(moment, 'Europe/Berlin')`.",
    "datetime.datetime.utcnow": "Write `datetime.now(timezone.utc)`.",
    "datetime.datetime.utcfromtimestamp": "Write `datetime.fromtimestamp(seconds, timezone.utc)`.",
    "re.VERBOSE": "Write the pattern without spaces and comments.",
    "re.X": "Write the pattern without spaces and comments.",
    "re.subn": "Write `re.sub`, and count with `len(re.findall(...))`.",
    "re.template": "Write `re.sub`.",
    "json.JSONEncoder": "Turn the values into text, numbers, lists and dicts first, and call `json.dumps` on them.",
    "json.JSONDecoder": "Write `json.loads`.",
    "csv.Sniffer": "Take the delimiter as an argument.",
    "pathlib.PurePath": "There are no files here: take paths apart with `path.split('/')`.",
    "pathlib.PurePosixPath": "There are no files here: take paths apart with `path.split('/')`.",
    "random.SystemRandom": "Use the functions of `random`.",
    "asyncio.sleep": "Leave it out: nothing waits here.",
    "zoneinfo.ZoneInfo": "Call `now_in('Europe/Berlin')`, or `in_zone(moment, 'Europe/Berlin')`: both are "
    "there without import.",
    "statistics.NormalDist": "Use `statistics.mean` and `statistics.stdev`, and `math.erf` for the distribution.",
    "statistics.quantiles": "Sort the numbers, and take those at `len(numbers) * part // parts`.",
    "statistics.multimode": "Use `collections.Counter`.",
    "statistics.geometric_mean": "Write `math.exp(statistics.mean([math.log(x) for x in numbers]))`.",
    "statistics.harmonic_mean": "Write `len(numbers) / sum([1 / x for x in numbers])`.",
    "urllib.parse.urlsplit": "Write `address.partition('?')`, and `split('/')` for host and path.",
    "urllib.parse.urlparse": "Write `address.partition('?')`, and `split('/')` for host and path.",
    "urllib.parse.urljoin": "Put host and path together: `base.rstrip('/') + '/' + path`.",
    "io.BytesIO": "Use `bytes`, and slice them.",
    "io.TextIOWrapper": "Use `text.splitlines()`.",
    "urllib.request": "Call `http_get(url, params)`: it is there without import, and returns a dict with "
    "status, headers and body.",
    "urllib.error": "`http_get` raises OSError where the web does not answer; a status is in the dict that it returns.",
    # Methods of built-in types
    "str.maketrans": "Call `replace` once for each character, or join what a dict says of each.",
    "str.translate": "Call `replace` once for each character, or join what a dict says of each.",
    "str.format_map": "Write `text.format(**values)`.",
    "int.from_bytes": "Write `int(data.hex(), 16)`.",
    "float.fromhex": "Write `float(text)`.",
}
#: Whole modules: name -> what to write instead.
MODULES_INSTEAD = {
    "enum": "Write constants: `WARN = 'warn'`, or a class with plain class variables and no base, and "
    "take `.value` away.",
    "calendar": "Use `date` and `timedelta`: a month ends on the day before the next one begins.",
    "contextlib": "Write `try`, `except` and `finally`, or a class with `__enter__` and `__exit__`.",
    "heapq": "Write `sorted(items)[:n]`; `bisect.insort` keeps a list in order.",
    "html": "Write `text.replace('&', '&amp;').replace('<', '&lt;')`, or the other way round.",
    "operator": "Write a lambda: `key=lambda one: one['name']`.",
    "string": "Write the letters out, and an f-string in place of `Template`.",
    "textwrap": "Put the words of `text.split()` together in a loop; cut with `text[:n]`.",
    "uuid": "Write `f'{random.getrandbits(128):032x}'`, or `hashlib.sha256(text.encode()).hexdigest()[:32]`.",
    "abc": "Leave it out: classes cannot inherit here.",
    "requests": "Call `http_get(url, params)` or `http_post(url, body)`: both are there without import, "
    "and return a dict "
    "with status, headers and body (text).",
    "httpx": "Call `http_get(url, params)` or `http_post(url, body)`: both are there without import.",
    "aiohttp": "Call `http_get(url, params)` or `http_post(url, body)`: both are there without import.",
    "http": "Call `http_get(url, params)` or `http_post(url, body)`: both are there without import.",
    "socket": "Call `http_get(url, params)`: nothing else reaches the network.",
    "subprocess": "No programs can be started here.",
    "multiprocessing": "Write a plain loop: no processes can be started here.",
    "threading": "Write a plain loop: no threads can be started here.",
    "concurrent": "Write a plain loop: no threads can be started here.",
    "queue": "Use `collections.deque`.",
    "zoneinfo": "Call `now_in('Europe/Berlin')`, or `in_zone(moment, 'Europe/Berlin')`: both are there without import.",
    "pytz": "Call `now_in('Europe/Berlin')`, or `in_zone(moment, 'Europe/Berlin')`: both are there without import.",
    "dateutil": "Use `datetime.fromisoformat`, `datetime.strptime` and `timedelta`.",
    "numpy": "Use lists, `math`, `statistics` and comprehensions.",
    "pandas": "Use lists of dicts, `csv.DictReader` and `statistics`.",
    "bs4": "Take the text apart with `re`.",
    "yaml": "Ask for JSON, and use `json.loads`.",
    "pydantic": "Use `@dataclass`, and check the values in a function that raises ValueError.",
    "attr": "Use `@dataclass`.",
    "attrs": "Use `@dataclass`.",
    "xml": "Take the text apart with `re.findall`.",
    "logging": "Use `print`: what is printed comes back beside the result.",
    "warnings": "Use `print`: what is printed comes back beside the result.",
    "traceback": "Catch the error, and return `str(error)`.",
    "tempfile": "There are no files here: keep the text in a variable.",
    "shutil": "There are no files here.",
    "glob": "There are no files here.",
    "sqlite3": "Use dicts and lists.",
    "pickle": "Use `json`.",
    "struct": "Use `int(data[a:b].hex(), 16)`.",
    "fractions": "Use `decimal.Decimal`, or two whole numbers.",
    "secrets": "Use `random`; a secret does not belong into a tool.",
    "hmac": "Use the tool's credential: it signs requests.",
    "pprint": "Use `json.dumps(value, indent=2)`.",
    "difflib": "Compare the lines of `text.splitlines()` in a loop.",
    "types": "Use a class, or a dict.",
    "inspect": "Name what you need.",
    "ast": "Use `json.loads` for data.",
    "numbers": "Use `isinstance(x, (int, float))`.",
    "array": "Use a list.",
    "cmath": "Use `math`.",
    "zlib": "Ask for what is not compressed.",
    "gzip": "Ask for what is not compressed.",
    "locale": "Use f-strings: `f'{x:,.2f}'`.",
    "unittest": "Save test cases beside the tool in place of it.",
    "ipaddress": "Take the address apart with `split`.",
    "email": "Take the text apart with `split`.",
    "configparser": "Use `tomllib` or `json`.",
    "copyreg": "Leave it out.",
    "ctypes": "Write it in Python.",
    "signal": "Leave it out: the run has a limit of its own.",
    "gc": "Leave it out.",
    "weakref": "Use plain references.",
    "importlib": "Write the `import` out.",
    "platform": "Leave it out.",
    "getpass": "Take the value as an argument of `run`.",
    "argparse": "Take the values as arguments of `run`.",
    "django": "Call `http_get` of a REST API: nothing of this service is at hand.",
}
#: Modules of the library that do nothing in full Python either: no network, no program, no process and thread beside.
NOWHERE = {
    *("ctypes", "concurrent", "http", "multiprocessing", "queue"),
    *("signal", "socket", "subprocess", "threading", "urllib"),
}
#: Methods that values of built-in types do not have: name -> what to write instead.
METHODS_INSTEAD = {
    "translate": INSTEAD["str.translate"],
    "format_map": INSTEAD["str.format_map"],
    "isocalendar": "Write `int(day.strftime('%V'))` for the week.",
    "toordinal": "Write `(day - date(1, 1, 1)).days + 1`.",
    "utctimetuple": "Use the attributes: `moment.hour`.",
    "timetuple": "Use the attributes: `moment.hour`.",
    "bit_length": "Write `len(bin(number)) - 2`.",
    "bit_count": "Write `bin(number).count('1')`.",
    "is_integer": "Write `number == int(number)`.",
    "as_integer_ratio": "Use `decimal.Decimal`.",
    "with_traceback": "Leave it out.",
    "add_note": "Put it into the message.",
    "__dict__": "Write the dict out: `{'name': x.name}`.",
    "__traceback__": "Use `str(error)`.",
}
KEYWORDS = {
    "json.dumps(default)": "Turn the values into text, numbers, lists and dicts first.",
    "json.dumps(cls)": "Turn the values into text, numbers, lists and dicts first.",
    "json.dump(default)": "Turn the values into text, numbers, lists and dicts first.",
    "json.loads(object_hook)": "Change the dicts after they are read.",
    "json.loads(object_pairs_hook)": "Change the dicts after they are read.",
    "json.loads(parse_float)": "Call `Decimal(str(value))` where it is needed.",
    "json.loads(parse_int)": "Change the values after they are read.",
    "json.loads(cls)": "Change the dicts after they are read.",
}
DATACLASS_OPTIONS = {
    "order": "Leave `order=True` out, and sort with `sorted(items, key=lambda one: one.field)`.",
    "slots": "Leave `slots=True` out.",
    "kw_only": "Leave `kw_only=True` out, and make the objects with names: `P(x=1)`.",
    "unsafe_hash": "Write `frozen=True` in its place.",
    "match_args": "Leave it out.",
    "weakref_slot": "Leave it out.",
}


def of_constructs(found: list[dict[str, Any]], code: str) -> Iterator[Problem]:
    """Yield problems for constructs of the language that the interpreter does not have."""
    for one in found:
        kind, name, inside = one["kind"], one["name"], one.get("inside", "")
        message = advice = ""
        if kind == "base class":
            message, advice = _base_class(name, inside)
        elif kind == "class keyword":
            message, advice = f"class {inside}({name}=...): classes have no keywords here.", f"Leave `{name}=...` out."
        elif kind == "method decorator":
            message = f"@{name or '...'} on the method {inside}: methods have no decorators here."
            advice = METHOD_DECORATORS.get(
                name, "Take the decorator away, and call what it does in the method."
            ).format(inside)
            if name.endswith((".setter", ".deleter")):
                advice = f"Write a plain method of another name, such as `set_{inside}(self, value)`."
        elif kind == "special method" and name in SPECIAL_METHODS:
            if name != "__post_init__" or one.get("is_dataclass"):
                message, advice = f"{name} is never called here.", SPECIAL_METHODS[name]
        elif kind == "class in a class":
            message, advice = (
                f"class {name} inside of {inside}: not here.",
                f"Write `{name}` outside, above `{inside}`.",
            )
        elif kind == "statement in a class":
            message = f"A class can only have methods and plain variables here, not `{name}`."
            advice = "Write it outside of the class."
        elif kind == "dataclass option" and name in DATACLASS_OPTIONS:
            message, advice = f"@dataclass({name}=...) is not here.", DATACLASS_OPTIONS[name]
        elif kind in ("yield", "yield from", "async generator"):
            message = (
                f"`{kind}`: there are no generators here."
                if kind != "async generator"
                else "There are no generators here."
            )
            advice = (
                "Build a list and return it: `found = []` before the loop, "
                + ("`found.extend(...)`" if kind == "yield from" else "`found.append(...)`")
                + f" in place of `{kind if kind != 'async generator' else 'yield'}`, `return found` at the end."
            )
        elif kind == "del":
            message = "`del` is not here."
            advice = {
                "Subscript": "Write `d.pop(key)`, `items.pop(i)`, or make a new list without it.",
                "Attribute": "Set it to None.",
            }.get(name, "Leave the line out, or set the variable to None.")
        elif kind == "except*":
            message, advice = "`except*` is not here.", "Write `except`."
        elif kind == "import *":
            message, advice = "`from ... import *` is not here.", "Name what you use."
        elif kind == "function as replacement":
            message = f"{name} with a function as replacement is not here."
            advice = (
                "Loop over `re.finditer(pattern, text)` and join the parts: keep `at = 0`, append "
                "`text[at:m.start()]` and "
                "the new text, set `at = m.end()`, and append `text[at:]` at the end."
            )
        elif kind == "next of a generator":
            message = "`next(... for ...)`: a comprehension in brackets is a list here, so `next` does not take it."
            advice = "Write a loop with `break`, or `next(iter([x for x in items if ...]), None)`."
        elif kind == "keyword" and name in KEYWORDS:
            message, advice = f"{name.replace('(', ' has no ').rstrip(')')} here.", KEYWORDS[name]
        elif kind == "super":
            message, advice = "super() is not here.", INSTEAD["super"]
        if message:
            yield Problem(one["line"], one["column"], message, advice)


def _base_class(base: str, name: str) -> tuple[str, str]:
    """Return the message for a class with this base, and advice how to do without."""
    message = f"class {name}({base}): classes cannot inherit here."
    last = base.rpartition(".")[2]
    if last in EXCEPTIONS or last.endswith(("Error", "Exception")):
        return message, (
            f'Leave the class out: write `raise ValueError(f"{name}: ...")` with the fields in the text, '
            "`except ValueError as error:`, and `str(error)` for them; or return the error as a value, such as a dict."
        )
    if last in ENUMS:
        return message, (
            f"Write constants, such as `{name.upper()}_A = 'a'`, or `class {name}:` with plain class variables; then "
            "they are the text itself, so take `.value` and `.name` away."
        )
    if last == "NamedTuple":
        return message, (
            f"Write `@dataclass` (`from dataclasses import dataclass`) above `class {name}:`, with the same fields."
        )
    if last == "TypedDict":
        return message, f"Leave the class out, and write `dict` in place of `{name}` in annotations."
    if last in PROTOCOLS or base.startswith(("Generic", "Protocol")):
        return message, f"Write `class {name}:`."
    if last == "object":
        return message, f"Write `class {name}:`."
    return message, (
        f"Write `class {name}:` with all its fields and methods in it, or a `@dataclass` and functions that look at "
        "a field such as `kind`."
    )


def module_advice(module: str) -> str:
    return MODULES_INSTEAD.get(module.partition(".")[0], "") or INSTEAD.get(module, "")


def in_full(module: str) -> str:
    """Return a sentence that names full Python for a module that it has, or empty."""
    first = module.partition(".")[0]
    return "Full Python has it." if first in sys.stdlib_module_names and first not in NOWHERE else ""


def of_module(one: Mapping[str, Any], provided: str) -> Problem:
    """Return the problem of a module that is not there."""
    module = one.get("module") or one["name"]
    first = module.partition(".")[0]
    reason = "is not here" if first in sys.stdlib_module_names else "is not installed here, as nothing is"
    advice = INSTEAD.get(one["name"], "") or INSTEAD.get(module, "") or MODULES_INSTEAD.get(first, "")
    advice = f"{advice or f'There are {provided}.'} {in_full(module)}".strip()
    return Problem(one["line"], one["column"], f"The module {module} {reason}.", advice)


def of_name(one: Mapping[str, Any], name: str) -> Problem:
    """Return the problem of a name of a module, a built-in function, or a method of a built-in type, that is not
    there."""
    last = name.rpartition(".")[2]
    advice = INSTEAD.get(name, "") or INSTEAD.get(last if "." not in name else "", "")
    if not advice and "." in name and name.partition(".")[0] in ("str", "bytes", "list", "dict", "int", "float"):
        advice = f"Write `lambda x: x.{last}()` where a function is asked for."
    return Problem(one["line"], one["column"], f"{name} is not here.", advice or "Write it with what is there.")
