"""The pages and routes of versions."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from capabilities.catalogue.tools.writes import Definition, Origin, create_tool, update_tool
from capabilities.models import Tool, ToolKind, ToolVersion, VersionStatus
from tests.cast import PASSWORD, make_category, make_member
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right

pytestmark = [pytest.mark.django_db]

CODE = "def run(a):\n    return a"


def definition(code: str = CODE, **fields: Any) -> Definition:
    content: dict[str, Any] = {
        "name": "double",
        "description": "Doubles a number.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "implementation": {"runtime": "monty", "code": code, "helpers": {}},
    }
    return Definition(**(content | fields))


@pytest.fixture
def author(in_acme: Organisation) -> Membership:
    return make_member(in_acme, "otto", Access.OPERATOR)


@pytest.fixture
def double(in_acme: Organisation, author: Membership) -> Tool:
    """Version 1 is in force, version 2 waits, with a hidden character in its code."""
    tool = create_tool(make_category(in_acme), definition(), actor=author, origin=Origin(ToolKind.PYTHON))
    changed = definition(
        "def run(b):\n    return b * 2  # \u200b",
        description="Doubles any number.",
        parameters={"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]},
    )
    update_tool(tool, changed, actor=author, status=VersionStatus.PENDING)
    return tool


def signed_in(member: Membership) -> Client:
    client = Client()
    assert client.login(username=member.user.email, password=PASSWORD)
    return client


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def test_the_list_shows_each_version_with_its_state(double: Tool, alice: Membership) -> None:
    page = text(signed_in(alice).get("/o/acme/tools/double/versions/"))

    assert "Version 1 is in force" in page
    assert page.index("Version 2</a>") < page.index("Version 1</a>")
    assert "Waiting for approval" in page
    assert "/o/acme/tools/double/versions/1..2/" in page
    assert "Take the tool out of use" in page


def test_one_page_shows_what_differs_in_words_schema_and_code(double: Tool, alice: Membership) -> None:
    page = text(signed_in(alice).get("/o/acme/tools/double/versions/1..2/"))

    assert "Doubles <del>a</del><ins>any</ins> number." in page
    assert "<code>a</code>: it was removed" in page
    assert "<code>b</code>: it is new, and required" in page
    assert "Breaking" in page
    assert 'title="ZERO WIDTH SPACE">\\u200B</span>' in page
    assert '<tr class="is-removed"> <td class="line-number">1</td>' in page


def test_who_neither_approves_code_nor_edits_the_catalogue_sees_no_code(double: Tool, bob: Membership) -> None:
    client = signed_in(bob)

    for address in ("1..2/", "1/", "2/"):
        page = text(client.get(f"/o/acme/tools/double/versions/{address}"))
        assert "return b" not in page
        assert "return a" not in page
    assert "Approve version" not in page
    assert Rest(bob).get("tools/double/versions/2").json["implementation"] is None


def test_another_persons_version_is_approved_on_its_page(double: Tool, alice: Membership) -> None:
    client = signed_in(alice)
    page = text(client.get("/o/acme/approval-versions/"))
    assert "<code>double</code> version 2" in page
    assert "1 version waits for your approval" in page

    done = client.post("/o/acme/tools/double/versions/2/decide/", {"decision": "approve"}, follow=True)

    assert "Version 2 of double is in force" in text(done)
    assert "waits for your approval" not in text(done)
    double.refresh_from_db()
    assert double.current_version is not None
    assert double.current_version.number == 2


def test_a_rejection_without_a_reason_is_refused_beside_the_field(double: Tool, alice: Membership) -> None:
    answer = signed_in(alice).post("/o/acme/tools/double/versions/2/decide/", {"decision": "reject"})

    assert answer.status_code == 422
    assert "Say why: the author reads it" in text(answer)


def test_the_author_is_told_why_there_is_no_button_and_a_post_is_refused(double: Tool, author: Membership) -> None:
    AdminRight.objects.create(organisation=double.organisation, membership=author, right=Right.APPROVE_CODE)
    client = signed_in(author)

    page = text(client.get("/o/acme/tools/double/versions/2/"))
    answer = client.post("/o/acme/tools/double/versions/2/decide/", {"decision": "approve"})

    assert "You wrote it: somebody else" in page
    assert "Approve version 2" not in page
    assert answer.status_code in (403, 422)
    assert ToolVersion.objects.get(number=2).status == "pending"


def test_rolled_back_in_one_click(double: Tool, alice: Membership) -> None:
    client = signed_in(alice)
    client.post("/o/acme/tools/double/versions/2/decide/", {"decision": "approve"})
    assert "Roll back to version 1" in text(client.get("/o/acme/tools/double/versions/1/"))

    done = client.post("/o/acme/tools/double/versions/1/rollback/", follow=True)

    assert "Version 1 of double is in force again" in text(done)


def test_the_api_decides_compares_and_rolls_back(double: Tool, alice: Membership, author: Membership) -> None:
    rest = Rest(alice)

    listed = rest.get("tools/double/versions").json["results"]
    assert [(each["number"], each["status"]) for each in listed] == [(2, "pending"), (1, "approved")]
    assert listed[0]["implementation"]["runtime"] == "monty"
    assert listed[0]["created_by"] == str(author.public_id)

    found = rest.get("tools/double/versions/1/compare/2").json
    assert found["is_breaking"] is True
    assert {"path": "a", "text": "it was removed", "is_breaking": True} in found["schema"]
    assert found["words"]["description"][1] == {"side": "removed", "text": "a"}
    assert {"side": "removed", "text": "def run(a):", "before": 1, "after": None} in found["lines"]["Code"]

    refused = rest.post("tools/double/versions/2/decide", {"decision": "reject"})
    assert (refused.status, refused.json["error"]["field"]) == (400, "reason")
    decided = rest.post("tools/double/versions/2/decide", {"decision": "approve"})
    assert (decided.status, decided.json["status"]) == (200, "approved")
    again = rest.post("tools/double/versions/2/decide", {"decision": "approve"})
    assert (again.status, again.json["error"]["code"]) == (409, "conflict")
    back = rest.post("tools/double/versions/1/rollback", {})
    assert (back.status, back.json["status"]) == (200, "approved")


@pytest.mark.parametrize("count", [1, 3])
def test_lists_of_versions_cost_the_same_for_many(
    double: Tool, alice: Membership, author: Membership, count: int, django_assert_max_num_queries: Any
) -> None:
    for number in range(count):
        update_tool(double, definition(f"{CODE}  # {number}"), actor=author, status=VersionStatus.PENDING)
    client = signed_in(alice)
    client.get("/o/acme/tools/double/versions/")

    with django_assert_max_num_queries(12):
        client.get("/o/acme/tools/double/versions/")
    with django_assert_max_num_queries(12):
        client.get("/o/acme/approval-versions/")
