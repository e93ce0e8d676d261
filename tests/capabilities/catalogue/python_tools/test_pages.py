"""The editor of Python tools: checks by line, a try, drafts, tests, and the way to approval."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from capabilities.catalogue.python_tools.writes import save_test
from capabilities.models import Tool, ToolTestCase, ToolVersion
from tests.cast import PASSWORD, make_category
from toolhub.tenants.models import Membership, Organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
UPPER = "def run(text):\r\n    return {'transformed': text.upper()}\r\n"


def form(**fields: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": "upper",
        "category": "utility",
        "description": "Writes in capitals.",
        "parameters": json.dumps(SCHEMA),
        "code": UPPER,
        "runtime": "monty",
        "human_format": "Processing: {text}",
        "effect": "read",
        "timeout": "5",
        "max_result_chars": "1000",
        "example": '{"text": "hello"}',
        "do": "check",
    }
    return said | fields


@pytest.fixture
def client(acme: Organisation, alice: Membership) -> Client:
    make_category(acme)
    client = Client()
    assert client.login(username=alice.user.email, password=PASSWORD)
    return client


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def versions() -> list[tuple[int, str]]:
    return list(ToolVersion.objects.order_by("number").values_list("number", "status"))


def test_a_check_shows_the_line_for_people_and_the_result_and_saves_nothing(client: Client) -> None:
    page = client.post("/o/acme/python-tools/new/", form())

    assert page.status_code == 200
    assert "No problems" in text(page)
    assert "Processing: hello" in text(page)
    assert "&quot;transformed&quot;: &quot;HELLO&quot;" in text(page)
    assert not Tool.objects.exists()


def test_problems_lead_to_their_lines_and_keep_it_from_being_submitted(client: Client) -> None:
    code = "import requests\n\ndef run(text):\n    return requests.get(text)\n"

    page = client.post("/o/acme/python-tools/new/", form(code=code, do="submit"))

    assert page.status_code == 422
    assert '<a href="#line-1">Line 1</a>:' in text(page)
    assert '<tr id="line-1" class="is-removed">' in text(page)
    assert "http_get" in text(page)
    assert not Tool.objects.exists()


def test_a_draft_is_saved_and_then_submitted_without_another_version(client: Client) -> None:
    saved = client.post("/o/acme/python-tools/new/", form(do="draft"), follow=True)
    assert "Version 1 of upper is saved as a draft." in text(saved)
    assert versions() == [(1, "draft")]

    submitted = client.post("/o/acme/tools/upper/python/", form(do="submit"), follow=True)

    assert "Version 1 of upper waits for approval" in text(submitted)
    assert versions() == [(1, "pending")]
    assert ToolVersion.objects.get().implementation["code"] == UPPER.replace("\r\n", "\n")


def test_tx_37_tests_run_with_each_save_and_a_failing_one_keeps_it_a_draft(client: Client, alice: Membership) -> None:
    client.post("/o/acme/python-tools/new/", form(do="draft"))
    added = client.post(
        "/o/acme/tools/upper/tests/",
        {"name": "hello", "arguments": '{"text": "hello"}', "expected": '{"transformed": "HELLO"}'},
        follow=True,
    )
    assert "Passed" in text(added)
    save_test(Tool.objects.get(), "of nothing", {}, expected="missing", expects_error=True, actor=alice)

    broken = form(code="def run(text):\n    return {'transformed': text.lower()}", do="submit")
    page = client.post("/o/acme/tools/upper/python/", broken, follow=True)

    assert "while tests fail: hello" in text(page)
    assert versions() == [(1, "draft"), (2, "draft")]
    outcomes = dict(ToolTestCase.objects.values_list("name", "has_passed"))
    assert outcomes == {"hello": False, "of nothing": True}

    page = client.post("/o/acme/tools/upper/python/", form(do="submit"), follow=True)
    assert "waits for approval by somebody else" in text(page)
    assert versions() == [(1, "draft"), (2, "draft"), (3, "pending")]


def test_a_runtime_that_is_not_there_is_named_with_its_reason(client: Client) -> None:
    page = text(client.get("/o/acme/python-tools/new/"))
    assert "Full Python (not available here)" in page
    assert "TOOLHUB_FULL_PYTHON" in page

    refused = client.post("/o/acme/python-tools/new/", form(runtime="full", do="submit"))

    assert refused.status_code == 422
    assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": "[1]"}, "Write one JSON object."),
        ({"parameters": "{"}, "This is not valid JSON"),
        ({"helpers": "prices"}, "is no module with its version"),
        ({"helpers": "prices 2"}, "There is no version 2 of a module prices."),
        ({"name": "a b"}, "A tool name has 1 to 64 characters"),
        ({"example": '{"word": 1}'}, "Not run:"),
        ({"example": '{"text": "x"}', "code": "def run(text):\n    return 1 / 0"}, "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_shown_and_nothing_typed_is_lost(client: Client, changes: dict[str, Any], words: str) -> None:
    page = client.post("/o/acme/python-tools/new/", form(**changes))

    assert words in text(page)
    assert "Writes in capitals." in text(page)


def test_the_switch_is_for_who_approves_code(client: Client, acme: Organisation) -> None:
    page = client.post("/o/acme/python-tools/agents/", {"allowed": "1"}, follow=True)
    acme.refresh_from_db()
    assert (acme.agents_make_tools, "Stop agents from making tools" in text(page)) == (True, True)

    client.post("/o/acme/python-tools/agents/", {"allowed": "0"})
    acme.refresh_from_db()
    assert not acme.agents_make_tools
