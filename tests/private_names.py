"""Private names of other packages that the service uses: imports, names that a class takes over from its bases or
overrides, and attributes of objects that its file does not make. Read from the source, and little of it is parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tests.paths import ROOT

HOUSES = ("toolhub", "capabilities", "sessions")
#: Names that begin with an underscore and are documented: of models, and of named tuples.
PUBLIC = {"_meta", "_replace", "_asdict", "_fields", "_make"}
#: Folders of modules that a package keeps to itself.
INNER = {"internal"}
#: Functions that reach an attribute by its name as a text.
BY_NAME = {"getattr", "setattr", "hasattr", "delattr", "attrgetter"}

IMPORT = re.compile(r"^[ \t]*(?:from [\w.]+ import (?:\([^)]*\)|[^\n(]+)|import [^\n]+)", re.MULTILINE)
CLASS = re.compile(r"^[ \t]*class (\w+)\(([^)]*)\)", re.MULTILINE)
#: A private name that the file gives to its own functions, classes and instances.
OWN = re.compile(r"(?:\b(?:self|cls)\.|\b(?:def|class) |^\s+)(_[a-z]\w*)(?=\s*[:=(\[,])", re.MULTILINE)
PRIVATE = re.compile(r"(?:\.|\bdef |^ +)(_[a-z]\w*)", re.MULTILINE)
REACHED = re.compile(r"(?<!\bself)(?<!\bcls)\._[a-z]|(?:attr|attrgetter|vars|__dict__)\b.*[\"']_[a-z]")


@dataclass(frozen=True)
class Use:
    file: str
    line: int
    name: str
    #: The module or class that has the name; empty for an object of which that cannot be seen.
    of: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} uses {self.name} of {self.of or 'an object from elsewhere'}"


def is_private(name: str) -> bool:
    return name[:1] == "_" and name[:2] != "__" and len(name) > 1 and name.isidentifier() and name not in PUBLIC


class Source:
    """Source files of the service, as texts."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.files = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in texts}
        self.texts = texts
        self.bases = {
            (module, name): [re.split(r"[\[(]", base)[0].strip() for base in bases.split(",")]
            for module, file in self.files.items()
            for name, bases in CLASS.findall(texts[file])
        }
        self._imports: dict[str, dict[str, str]] = {}

    def matching(self, pattern: str) -> Source:
        """Return the files alone that have a line of this pattern."""
        found = re.compile(pattern, re.MULTILINE)
        return Source({file: text for file, text in self.texts.items() if found.search(text)})

    def imports(self, module: str) -> dict[str, str]:
        """Return the full name of each name that the module imports."""
        if module not in self._imports:
            found = self._imports[module] = {}
            for statement in IMPORT.findall(self.texts[self.files[module]]):
                try:
                    (node,) = ast.parse(statement.strip()).body
                except SyntaxError:  # a line of a text
                    continue
                if isinstance(node, ast.Import):
                    found |= {(each.asname or each.name.partition(".")[0]): each.name for each in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found |= {(each.asname or each.name): f"{node.module}.{each.name}" for each in node.names}
        return self._imports[module]

    def full_name(self, module: str, dotted: str) -> str:
        """Return the full name of `models.Model`; empty for what this module neither imports nor defines."""
        root, dot, rest = dotted.partition(".")
        origin = f"{module}.{root}" if (module, root) in self.bases else self.imports(module).get(root, "")
        return origin and f"{origin}{dot}{rest}"

    def outer_bases(self, module: str, name: str) -> set[str]:
        """Return the classes of other packages that this class comes from."""
        found = set()
        for base in self.bases.get((module, name), ()):
            full = self.full_name(module, base)
            own, _, last = full.rpartition(".")
            is_inner = (own, last) in self.bases and (own, last) != (module, name)
            found |= self.outer_bases(own, last) if is_inner else {full}
        return found

    def uses(self, *packages: str) -> Iterator[Use]:
        """Yield each use of a private name of these packages, and of objects that may be anybody's."""
        named = "|".join(packages)
        private_import = re.compile(
            rf"^[ \t]*(?:from|import) (?:{named})\b[^\n(]*(?:\([^)]*?)?\b(?:_[a-z]|{'|'.join(INNER)}\b)", re.MULTILINE
        )
        for module, file in self.files.items():
            text = self.texts[file]
            words = {*PRIVATE.findall(text)}
            derived = {
                name: {
                    word: base
                    for base in sorted(self.outer_bases(module, name))
                    if is_of(base, packages)
                    for word in words & names_of(base)
                }
                for name, _ in CLASS.findall(text)
                if words
            }
            if any(derived.values()) or REACHED.search(text) or private_import.search(text):
                yield from self._uses_in(module, derived, packages)

    def _uses_in(self, module: str, derived: dict[str, dict[str, str]], packages: tuple[str, ...]) -> Iterator[Use]:
        file = self.files[module]
        own = {*OWN.findall(self.texts[file])}
        for node in ast.walk(ast.parse(self.texts[file])):
            if isinstance(node, ast.ImportFrom | ast.Import):
                for full in imported(node):
                    if is_of(full, packages) and any(is_private(part) or part in INNER for part in full.split(".")):
                        yield Use(file, node.lineno, full.rpartition(".")[2], full.rpartition(".")[0])
            elif isinstance(node, ast.ClassDef) and derived.get(node.name):
                of = derived[node.name]
                yield from (Use(file, line, name, of[name]) for line, name in private_of_class(node) if name in of)
            elif isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
                for name, owner in reached(node):
                    full = self.full_name(module, dotted(owner))
                    if is_of(full, packages):
                        yield Use(file, node.lineno, name, full)
                    elif is_of(full, ("", *HOUSES)) and name not in own:
                        yield Use(file, node.lineno, name, "")


def is_of(full: str, packages: tuple[str, ...]) -> bool:
    return full.partition(".")[0] in packages


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [f"{node.module}.{each.name}" for each in node.names]


def private_of_class(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Yield the private names that a class defines, and those that it uses of its own instances."""
    for each in node.body:
        names = [each.name] if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) else []
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        yield from ((each.lineno, name) for name in names if is_private(name))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and is_private(inner.attr) and is_own(inner.value):
            yield inner.lineno, inner.attr


def is_own(owner: ast.expr) -> bool:
    """Return whether it is `self`, `cls` or `super()`."""
    return name_of(owner) in {"self", "cls", "super"} and not isinstance(owner, ast.Attribute)


def reached(node: ast.Attribute | ast.Call | ast.Subscript) -> Iterator[tuple[str, ast.expr]]:
    """Yield the private attributes of another object that this node reaches, also by a text, with the object."""
    owner, found = node.value if not isinstance(node, ast.Call) else node.func, list[str]()
    if isinstance(node, ast.Attribute):
        found = [node.attr]
    elif isinstance(node, ast.Subscript):
        found = texts_of(node.slice) if is_namespace(owner) else []
    elif name_of(owner) in BY_NAME or (isinstance(owner, ast.Attribute) and is_namespace(owner.value)):
        owner, found = [*node.args, owner][0], texts_of(*node.args)
    yield from ((name, owner) for name in found if is_private(name) and not is_own(owner))


def texts_of(*nodes: ast.expr) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def name_of(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_namespace(node: ast.expr) -> bool:
    """Return whether it is `vars(x)` or `x.__dict__`."""
    return name_of(node) in {"vars", "__dict__"}


def has(of: str, name: str) -> bool:
    """Return whether this installed module or class has the name, or gives it to instances."""
    return name in names_of(of)


@cache
def names_of(full: str) -> set[str]:
    """Return the names of an installed module or class, with those that it gives to instances."""
    found = resolved(full)
    if not isinstance(found, type):
        return {*vars(found), *re.findall(r"\.(_\w+)", text_of(full) if isinstance(found, ModuleType) else "")}
    package = full.partition(".")[0]
    classes = [each for each in found.__mro__ if is_of(each.__module__, (package,))]
    given = (re.findall(r"\bself\.(_\w+)", text_of_class(each.__module__, each.__name__)) for each in classes)
    return {name for each in classes for name in vars(each)}.union(*given)


def resolved(full: str) -> object:
    """Return the module, or what a module has under this name. Raises ImportError and AttributeError."""
    try:
        return import_module(full)
    except ModuleNotFoundError:
        module, _, last = full.rpartition(".")
        if not module:
            raise
        return getattr(resolved(module), last)


@cache
def text_of(module: str) -> str:
    spec = find_spec(module)
    return Path(spec.origin).read_text() if spec is not None and spec.origin else ""


@cache
def text_of_class(module: str, name: str) -> str:
    found = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", text_of(module), re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


@cache
def service() -> Source:
    paths = (path for house in HOUSES for path in sorted((ROOT / house).rglob("*.py")))
    return Source({str(path.relative_to(ROOT)): path.read_text() for path in paths if "migrations" not in path.parts})
