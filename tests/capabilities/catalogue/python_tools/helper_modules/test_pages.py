"""The pages of Python modules and their REST: what each reader sees, a module's whole way, and queries that do not
grow."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.catalogue.python_tools.helper_modules.writes import decide_module
from capabilities.catalogue.tools.writes import Definition, Origin, create_tool
from capabilities.catalogue.versions.writes import decide_version
from capabilities.models import HelperModule, HelperUse, HelperVersion, Tool, ToolKind, ToolVersion, VersionStatus
from tests.cast import PASSWORD, make_category, make_member
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]

CODE = "def net(price):\n    return price / 1.19\n"


@pytest.fixture
def client(alice: Membership) -> Client:
    client = Client()
    assert client.login(username=alice.user.email, password=PASSWORD)
    return client


@pytest.fixture
def dora(in_acme: Organisation) -> Membership:
    """Another admin of Acme."""
    return make_member(in_acme, "dora", Access.ADMIN)


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def form(**fields: Any) -> dict[str, Any]:
    return {"name": "prices", "description": "Net prices", "code": CODE, "do": "submit"} | fields


def make_user(actor: Membership, name: str, number: int) -> Tool:
    code = "import prices\ndef run(): return prices.net(1)"
    implementation = {"runtime": "monty", "code": code, "helpers": {"prices": number}}
    content = Definition(name, "Bills.", {"type": "object"}, implementation=implementation)
    category = make_category(actor.organisation)
    return create_tool(category, content, actor=actor, origin=Origin(ToolKind.PYTHON), status=VersionStatus.PENDING)


def test_the_list_begins_with_what_a_module_is_for(client: Client, bob: Membership) -> None:
    assert "No Python module yet" in text(client.get("/o/acme/python-modules/"))

    other = Client()
    other.force_login(bob.user)
    assert other.get("/o/acme/python-modules/").status_code == 403
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.CATALOGUE, category="utility")
    page = text(other.get("/o/acme/python-modules/"))
    assert "right “catalogue” for every category" in page
    assert other.get("/o/acme/python-modules/new/").status_code == 403


def test_a_module_is_checked_written_approved_used_and_followed_by_a_newer_one(
    client: Client, alice: Membership, dora: Membership
) -> None:
    checked = client.post("/o/acme/python-modules/new/", form(do="check"))
    assert "Nothing is saved by a check." in text(checked)
    assert not HelperModule.objects.exists()
    saved = client.post("/o/acme/python-modules/new/", form(), follow=True)
    assert "Version 1 of prices waits for approval" in text(saved)
    own = text(client.get("/o/acme/python-modules/prices/versions/1/"))
    assert "You wrote it: somebody else" in own
    assert 'value="approve"' not in own
    refused = client.post("/o/acme/python-modules/prices/versions/1/decide/", {"decision": "approve"})
    assert (refused.status_code, HelperVersion.objects.get().status) == (422, "pending")

    other = Client()
    other.force_login(dora.user)
    waits = text(other.get("/o/acme/approval-versions/"))
    assert "<code>prices</code> version 1" in waits
    assert "1 version waits for your approval" in waits
    approved = other.post("/o/acme/python-modules/prices/versions/1/decide/", {"decision": "approve"}, follow=True)
    assert "Version 1 of prices is in force." in text(approved)
    tool = make_user(alice, "bill", 1)
    decide_version(ToolVersion.objects.get(tool=tool), approve=True, actor=dora)

    client.post("/o/acme/python-modules/prices/edit/", form(code="def net(price):\n    return 0\n"))
    decide_module(HelperVersion.objects.get(number=2), approve=True, actor=dora)

    page = text(client.get("/o/acme/python-modules/prices/"))
    assert "1 tool · 1 with another version" in page
    assert '<a href="/o/acme/tools/bill/python/?module=prices">Use version 2</a>' in page
    assert "It is used by bill." in page
    shown = text(client.get("/o/acme/tools/bill/"))
    assert "version 2 is in force" in shown
    editor = text(client.get("/o/acme/tools/bill/python/?module=prices"))
    assert "prices 2</textarea>" in editor
    assert "prices 1</textarea>" in text(client.get("/o/acme/tools/bill/python/"))
    assert "prices 1</textarea>" in text(client.get("/o/acme/tools/bill/python/?module=nothing"))
    differs = text(client.get("/o/acme/python-modules/prices/versions/1..2/"))
    assert "return price / 1.19" in differs
    assert "return 0" in differs


def test_what_is_wrong_is_shown_with_its_line_and_nothing_typed_is_lost(client: Client) -> None:
    refused = client.post("/o/acme/python-modules/new/", form(code="A = 1\nimport requests\n"))

    assert refused.status_code == 422
    page = text(refused)
    assert '<a href="#line-2">Line 2</a>:' in page
    assert '<tr id="line-2" class="is-removed">' in page
    assert "Net prices" in page
    assert "import requests" in page
    assert not HelperModule.objects.exists()
    assert "taken by the service" in text(client.post("/o/acme/python-modules/new/", form(name="tool")))


def test_code_is_shown_as_text_with_hidden_characters_marked(client: Client) -> None:
    client.post("/o/acme/python-modules/new/", form(code="A = '<b>\u202e</b>'\n"))

    page = client.get("/o/acme/python-modules/prices/versions/1/").content.decode()

    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "\u202e" not in page


def test_the_list_is_filtered_and_goes_on_by_pages(client: Client, alice: Membership, acme: Organisation) -> None:
    modules = HelperModule.objects.bulk_create(
        HelperModule(organisation=acme, name=f"module_{number:03}") for number in range(60)
    )
    HelperVersion.objects.create(organisation=acme, module=modules[7], number=1, code="A = 1", sha256="")

    first = client.get("/o/acme/python-modules/")
    assert (b"module_049" in first.content, b"module_050" in first.content) == (True, False)
    second = client.get(f"/o/acme/python-modules/?after={first.context['page'].after}")
    assert (b"module_049" in second.content, b"module_059" in second.content) == (False, True)
    waiting = text(client.get("/o/acme/python-modules/?state=waiting"))
    assert ("module_007" in waiting, "module_008" in waiting) == (True, False)
    assert "No module matches." in text(client.get("/o/acme/python-modules/?state=in_force"))
    assert "module_011" in text(client.get("/o/acme/python-modules/?q=_011"))


@pytest.mark.parametrize(
    "path",
    [
        "python-modules/",
        "python-modules/?state=waiting",
        "python-modules/prices/",
        "python-modules/prices/uses/",
        "python-modules/prices/versions/",
        "python-modules/prices/versions/1/",
        "approval-versions/",
    ],
)
def test_a_page_asks_the_same_with_three_as_with_one(
    client: Client, alice: Membership, dora: Membership, path: str
) -> None:
    def more(number: int) -> None:
        module, _ = HelperModule.objects.get_or_create(organisation=alice.organisation, name="prices")
        own = {"organisation": alice.organisation, "created_by": dora, "code": CODE, "sha256": ""}
        version = HelperVersion.objects.create(**own, module=module, number=number)
        if number == 1:
            HelperModule.objects.filter(pk=module.pk).update(current_version=version)
        make_user(alice, f"bill_{number}", number)
        other = HelperModule.objects.create(organisation=alice.organisation, name=f"other_{number}")
        HelperVersion.objects.create(**own, module=other, number=1)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"/o/acme/{path}").status_code == 200
        return len(queries)

    more(1)
    count()
    one = count()
    more(2)
    more(3)

    assert HelperUse.objects.count() == 3
    assert count() == one


# -- REST --------------------------------------------------------------------------------------------------------------


def test_a_modules_whole_way_over_rest(alice: Membership, dora: Membership) -> None:
    rest, approver = Rest(alice), Rest(dora)
    checked = rest.post("python-module-checks", {"name": "prices", "code": "A = 1\nB = C\n"})
    assert (checked.json["runtimes"], [each["line"] for each in checked.json["problems"]["monty"]]) == ([], [2])
    wrong = rest.post("python-modules", {"name": "prices", "code": "A = 1\nB = C\n"})
    assert (wrong.status, wrong.json["error"]["field"]) == (400, "code")
    assert wrong.json["error"]["message"].startswith("Line 2: The name C is not defined")

    made = rest.post("python-modules", {"name": "prices", "code": CODE, "description": "Net prices"})
    assert (made.status, made.json["number"], made.json["status"]) == (201, 1, "pending")
    own = rest.post("python-modules/prices/versions/1/decide", {"decision": "approve"})
    assert (own.status, own.json["error"]["code"]) == (403, "forbidden")
    assert (
        approver.post("python-modules/prices/versions/1/decide", {"decision": "approve"}).json["status"] == "approved"
    )
    again = approver.post("python-modules/prices/versions/1/decide", {"decision": "reject", "reason": "No."})
    assert (again.status, again.json["error"]["code"]) == (409, "conflict")
    tool = make_user(alice, "bill", 1)
    assert rest.post("python-modules/prices/versions", {"code": CODE}).json["number"] == 1
    assert rest.post("python-modules/prices/versions", {"code": "A = 1"}).json["number"] == 2
    approver.post("python-modules/prices/versions/2/decide", {"decision": "approve"})

    shown = rest.get("python-modules/prices").json
    assert (shown["version"], shown["waiting_version"], shown["tools"]) == (2, None, 1)
    assert rest.get("python-modules/prices/uses").json["results"] == [
        {"tool": "bill", "tool_version": 1, "status": "pending", "module_version": 1}
    ]
    lines = rest.get("python-modules/prices/versions/1/compare/2").json["lines"]
    assert [(each["side"], each["text"]) for each in lines if each["side"] == "added"] == [("added", "A = 1")]
    in_use = rest.delete("python-modules/prices")
    assert (in_use.status, in_use.json["error"]["code"], "bill" in in_use.json["error"]["message"]) == (
        409,
        "in_use",
        True,
    )
    assert approver.post("python-modules/prices/versions/1/rollback", {}).json["status"] == "approved"
    assert rest.post("python-modules/prices/retire", {"reason": "Old."}).json["version"] is None
    assert rest.patch("python-modules/prices", {"description": "Old"}).json["description"] == "Old"
    assert [each["name"] for each in rest.get("python-modules", state="out").json["results"]] == ["prices"]
    assert rest.get("python-modules", state="strange").json["error"]["field"] == "state"
    ToolVersion.objects.filter(tool=tool).update(status="rejected")
    assert rest.delete("python-modules/prices").status == 204
    assert rest.get("python-modules/prices").status == 404


def test_bob_with_a_limited_right_reads_and_changes_nothing(alice: Membership, bob: Membership) -> None:
    Rest(alice).post("python-modules", {"name": "prices", "code": CODE})
    for right in (Right.CATALOGUE, Right.APPROVE_CODE):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=right, category="utility")
    rest = Rest(bob)

    assert rest.get("python-modules/prices/versions/1").json["code"] == CODE
    for answer in (
        rest.post("python-modules", {"name": "other", "code": CODE}),
        rest.post("python-module-checks", {"name": "other", "code": CODE}),
        rest.post("python-modules/prices/versions", {"code": "A = 1"}),
        rest.patch("python-modules/prices", {"description": "x"}),
        rest.delete("python-modules/prices"),
        rest.post("python-modules/prices/retire", {}),
        rest.post("python-modules/prices/versions/1/decide", {"decision": "approve"}),
        rest.post("python-modules/prices/versions/1/decide", {"decision": "reject", "reason": "No."}),
        rest.post("python-modules/prices/versions/1/rollback", {}),
    ):
        assert answer.status == 403, answer.text
    assert list(HelperVersion.objects.values_list("status", flat=True)) == ["pending"]
