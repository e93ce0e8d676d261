"""The doors of the house: which room may import which. Read from the source, so a late import counts as well."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.paths import ROOT

HOUSES = ("toolhub", "capabilities", "sessions")
#: The same name as `django.contrib.sessions`, never an import of it.
OWN = (*HOUSES, "tests", "benchmarks")
#: What every room may import, pure ones and child processes too.
MEANS = ("toolhub.bounded_json", "toolhub.durations")
#: What a late import may give as its reason.
REASON = re.compile(r"# noqa: PLC0415 -- (app ready|leaf)$")


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    #: Inside a function.
    late: bool
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"

    def of(self, *packages: str) -> bool:
        return any(self.module == package or self.module.startswith(f"{package}.") for package in packages)


def imports(*folders: str) -> list[Import]:
    return [found for folder in folders for path in sources(folder) for found in read_imports(path)]


def sources(folder: str) -> list[Path]:
    path = ROOT / folder
    assert path.exists(), folder
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def read_imports(path: Path) -> list[Import]:
    return imports_of(path, ROOT, path.read_text())


@cache
def imports_of(path: Path, root: Path, text: str) -> list[Import]:
    """Every import of one file, read once for all tests."""
    lines = text.splitlines()
    tree = ast.parse(text)
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    return [
        Import(str(path.relative_to(root)), node.lineno, module, id(node) in late, lines[node.lineno - 1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported_modules(node, path.relative_to(root))
    ]


def imported_modules(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """`from capabilities import contract` names capabilities.contract: each name counts as a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = ".".join(path.with_suffix("").parts[: -node.level]) if node.level else ""
    base = ".".join(part for part in (package, node.module or "") if part)
    return [f"{base}.{alias.name}" for alias in node.names]


def as_lines(found: list[Import]) -> list[str]:
    return [str(one) for one in found]


def test_the_reader_sees_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house").mkdir()
    source = "import os.path\nfrom a import b\nfrom . import c\ndef f():\n    from .d import e\n"
    (tmp_path / "house" / "room.py").write_text(source)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)

    found = [(one.module, one.late) for one in imports("house")]

    assert found == [("os.path", False), ("a.b", False), ("house.c", False), ("house.d.e", True)]


def test_tenants_imports_neither_capabilities_nor_sessions() -> None:
    assert as_lines([one for one in imports("toolhub/tenants") if one.of("capabilities", "sessions")]) == []


def test_capabilities_does_not_import_sessions() -> None:
    assert as_lines([one for one in imports("capabilities") if one.of("sessions")]) == []


#: The wings of each app and the rooms of each wing, lowest first: a room imports from those before it, of its wing and
#: of the wings before. Rooms on one line see each other; "" stands for the files of the wing itself.
ROOMS = {
    "capabilities": {
        "contract common": (),
        "models": (),
        "running": ("egress registry records assistant", "sandbox", "mcp_client services", "credentials push", "kinds"),
        "language_models": ("", "providers", "prices"),
        "choosing": ("routing", "pipeline"),
        "access": (
            "",
            "policies approval_rules",
            "roles grants",
            "requests members",
        ),
        "catalogue": ("", "categories", "tools versions http_tools python_tools", "imports", "servers"),
        "agents": ("", "hooks runtime_config toolkits", "agents", "sharing"),
        "starter": (),
        "assistant_switch": (),
        "assistant": ("models", "records", "builtin", "apps"),
        "api apps audit_targets management urls wiring": (),
    },
    "sessions": {
        "models": (),
        "access": (),
        "turns": (),
        "selection": ("", "loading"),
        "loop": ("clients", "conversation", "model_calls tools", "hooks", "calls", "run"),
        "asking": ("approvals",),
        "budgets": (),
        "usage": ("metrics rollups", ""),
        "doors": ("chats", "schedules connect mcp_server gateway", "builtin"),
        "insight": ("explain previews connections trial hook_trials finding overview", "keywords"),
        "worker": (),
        "apps audit_targets templatetags urls wiring": (),
    },
}
#: Folders of an app's first level, rooms of a wing.
MOST_FOLDERS, MOST_ROOMS = 12, 8
#: What docs/architecture.md does not list beside the rooms.
NO_ROOMS = {"api", "apps", "audit_targets", "management", "templatetags", "urls", "wiring"}
#: Packages whose files only they themselves import; all others take a name that `__all__` lists.
DOORS = (
    "capabilities.running.sandbox",
    "capabilities.running.sandbox.bubblewrap",
    "capabilities.running.sandbox.monty",
)
#: The layers of a room, lowest first.
LAYERS = {"rules": 0, "models": 1, "writes": 2, "queries": 3, "forms": 4, "views": 5, "api": 5}
#: Where an app is put together: what may see pages and routes.
HALLWAYS = {"urls", "api", "apps"}


def ranks(app: str) -> dict[str, int]:
    """Of each room, and of each wing without rooms, its place in the order."""
    rows = [
        [f"{wing}.{room}" if room else wing for wing in wings.split() for room in row.split() or [""]]
        for wings, rooms in ROOMS[app].items()
        for row in (rooms or ("",))
    ]
    return {name: rank for rank, row in enumerate(rows) for name in row}


def room_of(module: str) -> str:
    """The room of `capabilities.access.roles.writes` is `access.roles`, that of `capabilities.access.powers` is
    `access`; "" for the app itself."""
    app, _, rest = module.partition(".")
    parts = rest.split(".")
    rank = ranks_of(app)
    return next((".".join(parts[:size]) for size in (2, 1) if ".".join(parts[:size]) in rank), parts[0])


@cache
def ranks_of(app: str) -> dict[str, int]:
    return ranks(app) if app in ROOMS else {}


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def layer_of(module: str) -> int | None:
    """The first name behind the room that is a layer's: `capabilities.agents.agents.api.AgentOut` is of `api`."""
    return next((LAYERS[name] for name in module.split(".")[2:] if name in LAYERS), None)


def test_the_architecture_lists_all_rooms_in_this_order() -> None:
    house = (ROOT / "docs" / "architecture.md").read_text().partition("```")[2].partition("```")[0]
    parts = re.split(r"^(\w+)/ .*$", house, flags=re.MULTILINE)
    drawn = dict(zip(parts[1::2], parts[2::2], strict=True))

    for app in ROOMS:
        rooms, wing = [], ""
        for line in drawn[app].splitlines():
            for name in re.findall(r"(?<![\w/])(\w+)(?:/|\.py)", re.split(r" {2,}", line.strip())[0]):
                wing = wing if line.startswith("    ") else name
                rooms.append(f"{wing}.{name}" if line.startswith("    ") else name)
        rank = ranks(app)
        places = [rank[room] for room in rooms if room in rank and not ROOMS[app].get(room)]  # a wing is told first
        assert places == sorted(places), app
        files = {name for name in rank if not (ROOT / app / name.replace(".", "/")).is_dir()}
        assert set(rank) - set(rooms) <= NO_ROOMS | files, app


def test_no_room_imports_from_a_room_above_it() -> None:
    wrong = []
    for app in ROOMS:
        rank = ranks(app)
        for one in imports(app):
            own, other = room_of(module_of(one.file)), room_of(one.module)
            if "/migrations/" in one.file or not one.of(app) or not own:
                continue
            if rank.get(other, 0) > rank[own]:
                wrong.append(one)

    assert as_lines(wrong) == []


@pytest.mark.parametrize("app", ROOMS)
def test_every_room_has_its_rank(app: str) -> None:
    files = [path for path in sources(app) if "migrations" not in path.parts]
    rooms = {room_of(module_of(str(path.relative_to(ROOT)))) for path in files}
    wings = {wing for line, of_wing in ROOMS[app].items() if of_wing and "" not in of_wing for wing in line.split()}

    assert rooms - {""} - wings == {*ranks(app)}


@pytest.mark.parametrize("app", ROOMS)
def test_an_app_has_few_wings_and_a_wing_few_rooms(app: str) -> None:
    folders = {path.relative_to(ROOT / app).parts[0] for path in sources(app) if path.parent != ROOT / app}
    rooms = {wing: {path.parent for path in (ROOT / app / wing).glob("*/__init__.py")} for wing in folders}

    assert len(folders) <= MOST_FOLDERS
    assert {wing: len(found) for wing, found in rooms.items() if len(found) > MOST_ROOMS} == {}


def test_no_layer_imports_from_a_layer_above_it_in_its_room() -> None:
    wrong = []
    for app in ROOMS:
        for one in imports(app):
            module = module_of(one.file)
            own, other = layer_of(module), layer_of(one.module)
            if one.of(app) and room_of(module) == room_of(one.module) and own is not None and (other or 0) > own:
                wrong.append(one)

    assert as_lines(wrong) == []


def test_pages_and_routes_are_imported_by_their_room_and_where_addresses_are_put_together() -> None:
    wrong = []
    for app in ROOMS:
        for one in imports(app):
            module = module_of(one.file)
            is_own = room_of(module) == room_of(one.module)
            if (
                one.of(app)
                and layer_of(one.module) == LAYERS["views"]
                and not is_own
                and Path(one.file).stem not in HALLWAYS
            ):
                wrong.append(one)

    assert as_lines(wrong) == []


def is_past(door: str, one: Import) -> bool:
    """Return whether a file outside of the package imports anything of it that is not a name of its door."""
    is_inside = one.file.startswith(f"{door.replace('.', '/')}/")
    names = {door, *(f"{door}.{name}" for name in import_module(door).__all__)}
    return one.of(door) and not is_inside and one.module not in names


@pytest.mark.parametrize("door", DOORS)
def test_nobody_imports_past_a_door(door: str) -> None:
    assert as_lines([one for one in imports(*HOUSES, "benchmarks") if is_past(door, one)]) == []


@pytest.mark.parametrize("runtime", DOORS[1:])
def test_a_runtime_imports_nothing_of_the_other(runtime: str) -> None:
    shared = [f"{DOORS[0]}.{name}" for name in ("host", "results", "values")]

    found = [one for one in imports(runtime.replace(".", "/")) if one.of(*OWN) and not one.of(runtime, *shared, *MEANS)]

    assert as_lines(found) == []


def test_only_wiring_and_addresses_import_the_assistant() -> None:
    """An organisation may be without it: what everybody needs is in another room."""
    own, hallways = "capabilities.assistant", {"wiring", "urls", "api"}
    outside = [one for one in imports(*HOUSES) if one.of(own) and not one.file.startswith("capabilities/assistant/")]

    assert outside
    assert as_lines([one for one in outside if Path(one.file).stem not in hallways]) == []


def test_no_model_is_reached_by_name() -> None:
    """What a migration's state knows, and rows found by a public id, are asked for by a name that was given."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for app in HOUSES
        for path in sources(app)
        if "migrations" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_model"
        if any(isinstance(argument, ast.Constant) for argument in node.args)
    ]

    assert calls == []


INCLUDED = re.compile(r"{%\s*(?:include|extends)\s+[\"']([^\"']+)[\"']")
#: Whose templates an app's templates may include, beside those that belong to nobody.
TEMPLATES = {
    "tenants": {"tenants"},
    "account": {"account", "mfa", "tenants"},
    "mfa": {"account", "mfa", "tenants"},
    "capabilities": {"capabilities", "tenants"},
    "sessions": {"sessions", "capabilities", "tenants"},
}


def test_no_template_includes_one_of_an_app_above_it() -> None:
    wrong = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        own = path.relative_to(ROOT / "templates").parts[0]
        for name in INCLUDED.findall(path.read_text()):
            if own in TEMPLATES and "/" in name and name.split("/")[0] not in TEMPLATES[own]:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")

    assert wrong == []


def test_the_rules_of_rooms_and_layers_are_broken_by_what_breaks_them() -> None:
    assert ranks("sessions")["loop.run"] > ranks("sessions")["turns"]
    assert room_of("capabilities.access.roles.writes") == "access.roles"
    assert room_of("sessions.loop.clients.client") == "loop.clients"
    assert room_of("sessions.turns.queue") == "turns"
    assert [
        layer_of(name) for name in ("capabilities.agents.agents.writes", "sessions.doors.chats.api.SessionOut")
    ] == [2, 5]
    assert [
        is_past(DOORS[0], Import("sessions/a.py", 1, f"{DOORS[0]}.{name}", late=False, text=""))
        for name in ("isolation", "isolation.isolation", "bubblewrap", "bubblewrap.run_shell")
    ] == [False, True, True, True]
    assert INCLUDED.findall('{% include "sessions/loop/_a.html" with a=b %}') == ["sessions/loop/_a.html"]


def test_of_the_hallway_the_apps_see_the_tenants_and_little_else() -> None:
    """toolhub.urls sees all; nobody sees it. Settings are read through django.conf."""
    allowed = ("toolhub.tenants", "toolhub.celery", "toolhub.environment", "toolhub.refusal", *MEANS)

    found = [one for one in imports("capabilities", "sessions") if one.of("toolhub") and not one.of(*allowed)]

    assert as_lines(found) == []


@pytest.mark.parametrize("room", ["capabilities/models", "sessions/models"])
def test_the_tables_import_tables_and_rules_alone(room: str) -> None:
    tables = ("capabilities.models", "sessions.models", "toolhub.tenants")
    rules = ("capabilities.contract", "capabilities.common", *MEANS)

    assert as_lines([one for one in imports(room) if one.of(*HOUSES) and not one.of(*tables, *rules)]) == []


@pytest.mark.parametrize("room", ["capabilities/contract", "capabilities/choosing/routing"])
def test_the_pure_rooms_import_nothing_of_django_or_of_the_house(room: str) -> None:
    pure = ("capabilities.contract", "capabilities.choosing.routing", *MEANS)
    django = ("django", "rest_framework", "celery", "allauth", "drf_spectacular", "django_htmx")

    found = [one for one in imports(room) if one.of(*django) or (one.of(*OWN) and not one.of(*pure))]

    assert as_lines(found) == []


def test_the_offline_model_shares_the_ranking_and_knows_nothing_else_of_the_house() -> None:
    pure = ("capabilities.contract", "capabilities.choosing.routing", "toolhub.embedded.offline_model", *MEANS)

    found = [one for one in imports("toolhub/embedded/offline_model") if one.of(*OWN, "django") and not one.of(*pure)]

    assert as_lines(found) == []


def test_what_runs_in_a_child_process_imports_nothing_that_knows_secrets() -> None:
    found = [one for one in imports("capabilities/common/confined_jobs") if one.of(*OWN, "django")]

    assert (
        as_lines(
            [one for one in found if not one.of("capabilities.contract", "capabilities.common.confined_jobs", *MEANS)]
        )
        == []
    )


def test_the_means_of_every_room_import_nothing_of_the_house() -> None:
    files = {f"{name.replace('.', '/')}.py" for name in MEANS}

    assert as_lines([one for one in imports("toolhub") if one.file in files and one.of(*OWN, "django")]) == []


def test_only_the_model_client_imports_openai() -> None:
    files = {one.file for one in imports(*HOUSES) if one.of("openai")}

    assert files <= {"sessions/loop/clients/failures.py", "sessions/loop/clients/transport.py"}


def test_a_late_import_gives_one_of_two_reasons() -> None:
    late = [one for one in imports(*HOUSES) if one.late]

    assert as_lines([one for one in late if not REASON.search(one.text)]) == []


def test_what_only_the_tests_install_is_not_imported_by_the_service() -> None:
    """`make run` installs requirements/run.txt alone."""
    provided = packages_distributions()
    locked = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE))
    roots = {one.module.partition(".")[0]: one for one in imports(*HOUSES, "manage.py")}

    missing = [
        one
        for root, one in roots.items()
        if root in provided and not {normalised(name) for name in provided[root]} & locked
    ]

    assert as_lines(missing) == []


def normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


#: Names that say too little, or another thing to everybody else. A place is one where somebody has been.
UNNAMED = {"Place", "Side", "World", "Reading", "Standing", "Meant", "told", "said"}
MEANT_SO = {("capabilities/assistant/models/household.py", "Place")}


def test_no_class_and_no_function_has_a_name_that_says_too_little() -> None:
    found = [
        (str(path.relative_to(ROOT)), node.name)
        for folder in HOUSES
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in UNNAMED
    ]

    assert {*found} - MEANT_SO == set()
