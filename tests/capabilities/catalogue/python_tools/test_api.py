"""Python tools over REST: the same checks and writes as the editor's, errors with the line, and saved tests."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.catalogue.versions.writes import decide_version
from capabilities.models import Tool, ToolTestCase, ToolVersion
from tests.cast import make_category, make_member
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]

UPPER = "def run(text):\n    return {'upper': text.upper()}\n"


def body(**fields: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "description": "Writes in capitals.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "code": UPPER,
        "human_format": "Processing: {text}",
        "effect": "read",
    }
    return content | fields


def new(**fields: Any) -> dict[str, Any]:
    return body(**({"name": "upper", "category": "utility"} | fields))


@pytest.fixture
def rest(acme: Organisation, alice: Membership) -> Rest:
    make_category(acme)
    return Rest(alice)


def versions() -> list[tuple[int, str]]:
    return list(ToolVersion.objects.order_by("number").values_list("number", "status"))


def test_a_tool_is_written_waits_and_gets_its_next_version(rest: Rest, acme: Organisation) -> None:
    made = rest.post("python-tools", new())

    assert made.status == 201
    assert (made.json["number"], made.json["status"], made.json["version"]) == (1, "pending", 0)
    assert (made.json["waiting_version"], made.json["code"], made.json["failed_tests"]) == (1, UPPER, [])
    decide_version(ToolVersion.objects.get(), approve=True, actor=make_member(acme, "dora", Access.ADMIN))

    draft = rest.put("python-tools/upper", body(code=UPPER + "# draft\n", submit=False))
    assert (draft.status, draft.json["number"], draft.json["status"], draft.json["version"]) == (200, 2, "draft", 1)
    again = rest.put("python-tools/upper", body(code=UPPER + "# draft\n"))
    assert (again.json["number"], again.json["status"]) == (2, "pending")
    words = rest.put("python-tools/upper", body(description="Capitals."))
    assert (words.json["number"], words.json["status"]) == (3, "approved")
    assert rest.get("python-tools/upper").json["description"] == "Capitals."
    assert versions() == [(1, "retired"), (2, "pending"), (3, "approved")]


def test_what_is_wrong_names_the_field_and_the_line_of_the_code(rest: Rest) -> None:
    wrong = "import requests\n\ndef run(text):\n    return requests.get(text)\n"

    refused = rest.post("python-tools", new(code=wrong))

    assert refused.status == 400
    error = refused.json["error"]
    assert (error["code"], error["field"]) == ("invalid", "code")
    assert "Line 1:" in error["message"]
    assert "http_get" in error["message"]
    assert not Tool.objects.exists()

    draft = rest.post("python-tools", new(code=wrong, submit=False))
    assert (draft.status, draft.json["status"]) == (201, "draft")
    refused = rest.put("python-tools/upper", body(code=wrong))
    assert (refused.status, refused.json["error"]["field"]) == (400, "code")
    assert versions() == [(1, "draft")]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"parameters": []}, "parameters"),
        ({"parameters": {"type": "string"}}, "parameters"),
        ({"helpers": {"prices": 1}}, "helpers"),
        ({"helpers": {"prices": 0}}, "helpers.prices"),
        ({"runtime": "full"}, "runtime"),
        ({"runtime": "perl"}, "runtime"),
        ({"category": "nothing"}, "category"),
        ({"name": "a b"}, "name"),
        ({"code": ""}, "code"),
        ({"code": 7}, "code"),
        ({"strange": 1}, "strange"),
    ],
)
def test_a_body_that_is_no_tool_is_refused_with_the_field(rest: Rest, fields: dict[str, Any], field: str) -> None:
    refused = rest.post("python-tools", new() | fields)

    assert (refused.status, refused.json["error"]["field"]) == (400, field)
    assert not Tool.objects.exists()


def test_a_check_tries_an_example_and_saves_nothing(rest: Rest) -> None:
    asked = {name: value for name, value in new().items() if name != "category"}

    tried = rest.post("python-tool-checks", asked | {"example": {"text": "hello"}})
    assert (tried.status, tried.json["problems"], tried.json["has_run"]) == (200, [], True)
    assert (tried.json["display"], '"HELLO"' in tried.json["result"]) == ("Processing: hello", True)

    wrong = rest.post(
        "python-tool-checks", asked | {"code": "def run(text):\n    return texd", "example": {"text": "a"}}
    )
    assert [(each["line"], each["blocks"]) for each in wrong.json["problems"]] == [(2, True)]
    assert (wrong.json["has_run"], wrong.json["error"]) == (False, "Not run: the code has problems.")
    failed = rest.post(
        "python-tool-checks", asked | {"code": "def run(text):\n    return 1 / 0", "example": {"text": ""}}
    )
    assert (failed.json["has_run"], "line 2" in failed.json["error"]) == (True, True)
    assert rest.post("python-tool-checks", asked | {"example": [1]}).json["error"]["field"] == "example"
    assert not Tool.objects.exists()


def test_tests_are_saved_changed_run_and_deleted(rest: Rest) -> None:
    rest.post("python-tools", new(submit=False))

    made = rest.post(
        "python-tools/upper/tests", {"name": "hello", "arguments": {"text": "hello"}, "expected": {"upper": "HELLO"}}
    )
    rest.post("python-tools/upper/tests", {"name": "none", "expected": "missing", "expects_error": True})
    ran = rest.post("python-tools/upper/tests/run", {})

    assert (made.status, made.json["has_passed"]) == (201, None)
    assert (ran.json["version"], ran.json["passed"]) == (1, True)
    assert [(each["name"], each["has_passed"]) for each in ran.json["results"]] == [("hello", True), ("none", True)]
    one = f"python-tools/upper/tests/{made.json['id']}"
    changed = rest.put(one, {"name": "bye", "arguments": {"text": "bye"}, "expected": {"upper": "HELLO"}})
    assert (changed.json["id"], changed.json["name"], changed.json["has_passed"]) == (made.json["id"], "bye", None)
    assert rest.put(one, {"name": "none"}).json["error"]["code"] == "taken"
    rest.post("python-tools/upper/tests/run", {"version": 1})
    rows = rest.get("python-tools/upper/tests").json["results"]
    shown = [(each["name"], each["has_passed"], each["version"]) for each in rows]
    assert shown == [("bye", False, 1), ("none", True, 1)]
    assert rest.post("python-tools/upper/tests/run", {"version": 9}).json["error"]["code"] == "unknown"

    # A version with a test that fails stays a draft.
    saved = rest.put("python-tools/upper", body(code=UPPER + "# more\n"))
    assert (saved.json["status"], saved.json["failed_tests"]) == ("draft", ["bye"])
    assert rest.delete(one).status == 204
    assert rest.get(one).status == 404
    assert rest.put("python-tools/upper", body(code=UPPER + "# more\n")).json["status"] == "pending"
    assert list(ToolTestCase.objects.values_list("name", flat=True)) == ["none"]


def test_bob_writes_in_his_category_alone(rest: Rest, acme: Organisation, bob: Membership) -> None:
    make_category(acme, "shop")
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.CATALOGUE, category="shop")
    theirs = Rest(bob)
    rest.post("python-tools", new(submit=False))
    test = rest.post("python-tools/upper/tests", {"name": "hello"}).json["id"]

    for answer in (
        theirs.post("python-tools", new(name="other")),
        theirs.get("python-tools/upper"),
        theirs.put("python-tools/upper", body()),
        theirs.get("python-tools/upper/tests"),
        theirs.post("python-tools/upper/tests", {"name": "t"}),
        theirs.post("python-tools/upper/tests/run", {}),
        theirs.put(f"python-tools/upper/tests/{test}", {"name": "t"}),
        theirs.delete(f"python-tools/upper/tests/{test}"),
        theirs.get("agents-make-tools"),
        theirs.put("agents-make-tools", {"agents_make_tools": True}),
    ):
        assert answer.status == 403, answer.text
    assert theirs.post("python-tools", body(name="mine", category="shop")).status == 201
    assert versions() == [(1, "draft"), (1, "pending")]


def test_charlie_finds_nothing_of_acme(rest: Rest, charlie: Membership) -> None:
    rest.post("python-tools", new(submit=False))
    test = rest.post("python-tools/upper/tests", {"name": "hello"}).json["id"]
    theirs = Rest(charlie)

    for answer in (
        theirs.get("python-tools/upper"),
        theirs.put("python-tools/upper", body()),
        theirs.post("python-tools/upper/tests/run", {}),
        theirs.get(f"python-tools/upper/tests/{test}"),
    ):
        assert answer.status == 404
    # Acme's category is no category of Globex.
    assert theirs.post("python-tools", new()).json["error"]["code"] == "unknown"


def test_the_switch_by_which_agents_make_tools(rest: Rest, acme: Organisation) -> None:
    assert rest.get("agents-make-tools").json["agents_make_tools"] is False
    assert rest.put("agents-make-tools", {"agents_make_tools": True}).json["agents_make_tools"] is True
    acme.refresh_from_db()
    assert acme.agents_make_tools
