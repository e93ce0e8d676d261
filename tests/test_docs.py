"""The documents say what the code does: settings, requirements and the architecture."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.test import Client

from tests.cast import make_tool
from tests.paths import ROOT, own_files
from toolhub import __version__
from toolhub.tenants.models import Membership

DOCS = (ROOT / "docs").glob("*.md")
ROW = re.compile(r"^\| `(?P<name>[A-Z_]+)` \| (?P<unit>.+?) \| (?P<default>.+?) \| (?P<purpose>.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Knob:
    """One reading of the environment: env.integer("PORT", 8000, 1, 65535)."""

    name: str
    reader: str
    arguments: tuple[object, ...]


def knobs() -> dict[str, Knob]:
    tree = ast.parse((ROOT / "toolhub" / "settings.py").read_text())
    found: dict[str, Knob] = {}
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        if ast.unparse(call.func).startswith(("env.", "os.environ.")) and call.args:
            arguments = [literal(argument) for argument in call.args]
            if isinstance(arguments[0], str) and arguments[0].isupper():
                reader = ast.unparse(call.func).rpartition(".")[2]
                found.setdefault(arguments[0], Knob(arguments[0], reader, tuple(arguments[1:])))
    return found


def literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def documented() -> dict[str, re.Match[str]]:
    return {row["name"]: row for row in ROW.finditer((ROOT / "docs" / "settings.md").read_text())}


def test_every_knob_is_documented_and_every_documented_knob_is_read() -> None:
    assert sorted(documented()) == sorted(knobs())


@pytest.mark.parametrize("name", [name for name, knob in knobs().items() if knob.reader in ("integer", "number")])
def test_a_number_is_documented_with_its_default_and_range(name: str) -> None:
    default, low, high = knobs()[name].arguments

    row = documented()[name]

    assert row["default"] == str(default)
    assert row["unit"].endswith(f", {low} to {high}")


@pytest.mark.parametrize("name", [name for name, knob in knobs().items() if knob.reader in ("choice", "boolean")])
def test_a_choice_is_documented_with_its_default_and_choices(name: str) -> None:
    knob = knobs()[name]
    default = str(knob.arguments[0]).lower() if knob.reader == "boolean" else knob.arguments[0]
    choices = ["true", "false"] if knob.reader == "boolean" else knob.arguments[1]

    row = documented()[name]

    assert row["default"] == default
    assert [choice for choice in choices if choice not in row["unit"]] == []  # type: ignore[attr-defined]


def test_every_knob_says_what_it_does() -> None:
    assert [name for name, row in documented().items() if not row["purpose"].endswith(".")] == []


# -- docs/requirements.md ---------------------------------------------------------------------------------------------

REQUIREMENT = re.compile(r"(?<![a-zA-Z0-9])(ZK|ZS|TX|MR|CX)[-_]?(\d\d)(?!\d)", re.IGNORECASE)
#: How many statements each of the five documents makes.
STATEMENTS = {"ZK": 46, "ZS": 62, "TX": 40, "MR": 44, "CX": 42}
#: Of those, the ones that no test can hold; their lines say why.
UNTESTED = {"CX-39"}
#: In the name of a test: `cx_35_cx_36`, `cx_16_18`.
IN_A_NAME = re.compile(r"(?<![a-z0-9])(zk|zs|tx|mr|cx)((?:_\d\d(?!\d))+)")
#: In the name of a test.
ATTACK = re.compile(r"(?<![a-z0-9])s(3[1-9]|4\d|5[0-2])(?=_)")


def requirements_in(*folders: str) -> set[str]:
    texts = (path.read_text() for folder in folders for path in own_files(folder, "*.py"))
    return {f"{kind.upper()}-{number}" for text in texts for kind, number in REQUIREMENT.findall(text)}


def names_of_tests() -> list[str]:
    texts = [path.read_text() for path in own_files("tests", "test_*.py")]
    return [name for text in texts for name in re.findall(r"def (test_\w+)", text)]


def requirements_named() -> set[str]:
    found = (match for name in names_of_tests() for match in IN_A_NAME.finditer(name))
    return {f"{match[1].upper()}-{number}" for match in found for number in re.findall(r"\d\d", match[2])}


def test_every_statement_has_one_line_and_a_test_with_its_id_in_the_name() -> None:
    text = (ROOT / "docs" / "requirements.md").read_text()
    told = re.findall(r"^\| ([A-Z]{2}-\d\d) \| .+ \|$", text, re.MULTILINE)

    assert told == [f"{kind}-{number:02}" for kind, count in STATEMENTS.items() for number in range(1, count + 1)]
    assert set(told) - requirements_named() == UNTESTED
    assert requirements_in("tests") <= set(told)
    for each in UNTESTED:
        assert re.search(rf"^\| {each} \| .*Not tested: .+ \|$", text, re.MULTILINE), each


def test_cx_11_what_the_plan_s_appendix_names_has_a_counterpart_that_is_there() -> None:
    text = (ROOT / "docs" / "requirements.md").read_text()
    rows = re.findall(r"^\| (.+) \| `([\w/]+\.py)`: `(\w+)` \|$", text, re.MULTILINE)

    assert len(rows) == 9
    for _, file, name in rows:
        source = (ROOT / file).read_text()
        assert re.search(rf"^(?:def |class )?{name}\b", source, re.MULTILINE), (file, name)


def test_every_attack_on_tools_is_told_in_one_line_and_made_by_a_test() -> None:
    told = re.findall(r"^\| S(\d\d) \| .+ \|$", (ROOT / "docs" / "requirements.md").read_text(), re.MULTILINE)
    names = names_of_tests()

    assert told == [str(number) for number in range(31, 53)]
    assert set(told) == {number for name in names for number in ATTACK.findall(name)}


def test_the_code_names_no_requirement() -> None:
    assert requirements_in("toolhub", "capabilities", "sessions") == set()


# -- docs/architecture.md ---------------------------------------------------------------------------------------------


def test_every_file_and_function_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:capabilities|sessions|toolhub|tests)/[\w/.]+\.py)`(?:: `(\w+)`)?", text)

    assert len(named) > 10
    for file, function in named:
        assert (ROOT / file).is_file(), file
        source = (ROOT / file).read_text()
        assert not function or re.search(rf"^(?:def|class) {function}\b", source, re.MULTILINE), (file, function)


# -- The release ------------------------------------------------------------------------------------------------------


def test_the_package_the_changelog_and_the_pages_name_one_version(client: Client, alice: Membership) -> None:
    package = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    client.force_login(alice.user)

    assert package is not None
    assert newest is not None
    assert package[1] == newest[1] == __version__
    for page in ("sessions", f"tools/{make_tool(alice.organisation)}"):  # a tool's page has a version of its own
        assert f"toolhub {__version__}" in client.get(f"/o/acme/{page}/", follow=True).content.decode()


# -- Links ------------------------------------------------------------------------------------------------------------


def test_the_index_leads_to_every_document() -> None:
    text = (ROOT / "docs/README.md").read_text()
    others = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert [name for name in sorted(others) if f"]({name})" not in text] == []


def test_the_readme_is_read_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in DOCS)])
def test_links_between_documents_lead_somewhere(file: str) -> None:
    text = (ROOT / file).read_text()
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = ((ROOT / file).parent / path).resolve() if path else ROOT / file
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


def anchors_of(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


# -- docs/gateway.md ---------------------------------------------------------------------------------------------------


def test_the_clients_that_were_tested_are_told_with_the_versions_that_are_locked() -> None:
    locks = (ROOT / "requirements/dev.txt", ROOT / "tests/clients/requirements.txt")
    locked = dict(re.findall(r"^([a-z-]+)==(\S+)", "".join(path.read_text() for path in reversed(locks)), re.MULTILINE))
    locked |= json.loads((ROOT / "tests/clients/package.json").read_text())["dependencies"]
    text = (ROOT / "docs/gateway.md").read_text().partition("## Clients that were tested")[2]

    rows = re.findall(r"^\| ([a-z-]+)(?:, with (\S+) (\S+))? \| (\d\S+) \|", text, re.MULTILINE)

    assert len(rows) == 8
    told = {name: version for name, beside, beside_version, version in rows}
    told |= {beside: beside_version for _, beside, beside_version, _ in rows if beside}
    assert told == {name: locked[name] for name in told}
