"""The pages of imports, and the same over REST."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.models import Category, ImportedStatus, StoredCredential, Tool, ToolImport
from tests.capabilities.catalogue.imports.conftest import pet
from tests.cast import make_category, make_member, make_organisation, make_tool
from tests.rest import Rest
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.people.writes import GivenRight, give_right
from toolhub.tenants.rows.scope import organisation_scope

Read = Callable[..., ToolImport]


def signed_in(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def page(member: Membership, tool_import: ToolImport, view: str = "import_detail", **query: str) -> Any:
    address = reverse(view, args=[member.organisation.slug, tool_import.public_id])
    return signed_in(member).get(address, query)


def decide(member: Membership, tool_import: ToolImport, **data: Any) -> Any:
    address = reverse("import_decide", args=[member.organisation.slug, tool_import.public_id])
    return signed_in(member).post(address, data, follow=True)


def ids(tool_import: ToolImport, *names: str) -> list[str]:
    rows = import_rows(tool_import).filter(original_name__in=names)
    return [str(each) for each in rows.values_list("public_id", flat=True)]


@pytest.fixture
def pets(alice: Membership) -> Category:
    return make_category(alice.organisation, "pets", is_core=False)


def words(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def test_the_review_says_what_was_found_and_what_to_look_at(alice: Membership, read: Read) -> None:
    make_tool(alice.organisation, "web_search")
    tool_import = read(
        alice,
        pet("a", description="Adds.\u200b", group="Cats"),
        pet("web_search"),
        pet("c", refused="It is a cat."),
        summary={"format": "OpenAPI 3.1.0", "credentials": [{"title": "key: the header X-Key", "kind": "header"}]},
    )

    shown = words(page(alice, tool_import))

    assert "3 found · 2 waiting for a decision" in shown
    assert "1 cannot be imported" in shown
    assert "Hidden characters 1" in shown
    assert "key: the header X-Key" in shown
    assert "this one is called pets__web_search" in shown
    assert "It is a cat." in shown


def test_filters_narrow_the_review(alice: Membership, read: Read) -> None:
    tool_import = read(
        alice, pet("aa", description="Adds.\u200b"), pet("bb", group="Cats"), pet("cc", refused="No."), pet("dd")
    )

    def names(**query: str) -> list[str]:
        return [row.original_name for row in page(alice, tool_import, **query).context["page"].rows]

    assert names(q="AA") == ["aa"]
    assert names(warning="hidden_characters") == ["aa"]
    assert names(group="Cats") == ["bb"]
    assert names(status="refused") == ["cc"]
    assert names(status="waiting") == ["aa", "bb", "dd"]
    assert names(status="nonsense") == ["aa", "bb", "cc", "dd"]


def test_a_thousand_definitions_come_in_pages_of_the_same_queries(alice: Membership, read: Read) -> None:
    counts = []
    for number in (1, 120):
        tool_import = read(alice, *(pet(f"a{number}_{index}") for index in range(number)), title=f"P{number}")
        client = signed_in(alice)
        address = reverse("import_detail", args=["acme", tool_import.public_id])
        client.get(address)
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address)
        counts.append(len(queries))

    assert counts[0] == counts[1]
    assert len(response.context["page"].rows) == 50
    assert response.context["page"].after


def test_ticked_ones_are_accepted_into_a_new_category(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("a"), pet("b"), pet("c"))

    answer = decide(alice, tool_import, act="accept", tools=ids(tool_import, "a", "b"), new_category="My pets")

    assert "Accepted: 2 new tools." in words(answer)
    assert set(Tool.objects.values_list("name", "category__title")) == {("a", "My pets"), ("b", "My pets")}
    assert import_rows(tool_import).get(original_name="c").status == ImportedStatus.NEW


def test_all_that_the_filters_mean_are_decided_on(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, *(pet(f"a{index}", group="A" if index % 2 else "B") for index in range(120)))

    answer = decide(alice, tool_import, act="accept_all", group="A", category="pets")
    dismissed = decide(alice, tool_import, act="dismiss_all", q="a1")

    assert "Accepted: 60 new tools." in words(answer)
    assert Tool.objects.count() == 60
    # a1 and a10 to a19 and a100 to a119; half of them are accepted already.
    assert "Dismissed: 15 definitions." in words(dismissed)


def test_new_tools_go_to_a_category_of_the_import_s_name_where_none_is_chosen(alice: Membership, read: Read) -> None:
    first, again = read(alice, pet("a")), read(alice, pet("b"))

    decide(alice, first, act="accept", tools=ids(first, "a"))
    address = reverse("import_tool", args=["acme", again.public_id, ids(again, "b")[0]])
    pages = page(alice, again), signed_in(alice).get(address)

    category = Tool.objects.get().category
    assert category.title == first.title
    for each in pages:
        assert f'<option value="{category.name}" selected' in re.sub(r"\s+", " ", each.content.decode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "Tick the tools first."),
        ({"tools": ["00000000-0000-0000-0000-000000000000"]}, "There is no such definition in this import."),
        ({"tools": ["x"]}, "There is no such definition in this import."),
        ({"tools": "own", "category": "missing"}, "There is no such category."),
        ({"tools": "own", "category": "pets", "new_category": "X"}, "one of the two"),
        ({"tools": "own", "category": "pets", "credential": "missing"}, "There is no such credential."),
    ],
)
def test_a_decision_that_cannot_be_says_why(
    alice: Membership, read: Read, pets: Category, data: dict[str, Any], message: str
) -> None:
    tool_import = read(alice, pet("a"))
    is_own = data.get("tools") == "own"
    if is_own:
        data = data | {"tools": ids(tool_import, "a")}

    answer = decide(alice, tool_import, act="accept", **data)

    ticked = re.findall(r'name="tools"\s+value="[\w-]+"\s+checked', answer.content.decode())
    assert len(ticked) == is_own

    assert answer.status_code == 422
    assert message in words(answer)
    assert not Tool.objects.exists()
    assert not Category.objects.exclude(name="pets").exists()


def test_a_credential_that_fits_is_suggested(alice: Membership, read: Read) -> None:
    StoredCredential.objects.create(
        organisation=alice.organisation,
        name="key",
        title="Key",
        kind="header",
        parameter="X-Key",
        origins=["https://pets.example.org"],
    )
    needed = [{"title": "key", "kind": "header", "parameter": "X-Key"}]
    tool_import = read(alice, pet("a"), summary={"credentials": needed})

    assert page(alice, tool_import).context["form"]["credential"].value() == "key"


def test_one_definition_shows_everything_and_takes_another_guess(alice: Membership, read: Read) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string", "description": "Which one."}}}
    request = {"method": "GET", "url": "/a", "arguments": {"id": {"in": "query"}}}
    tool_import = read(alice, pet("a", description="Adds\u202e.", parameters=schema, implementation=request))
    row = import_rows(tool_import).get()
    address = reverse("import_tool", args=["acme", tool_import.public_id, row.public_id])
    client = signed_in(alice)

    shown = client.get(address)
    saved = client.post(address, {"name": "add_it", "effect": "external", "is_destructive": "on"}, follow=True)
    wrong = client.post(address, {"name": "not a name", "effect": "external"})

    assert "\\u202E" in words(shown)
    assert "Which one." in words(shown)
    assert "GET https://pets.example.org/v1/a" in words(shown)
    assert "add_it is saved." in words(saved)
    row.refresh_from_db()
    assert (row.name, row.effect, row.is_destructive) == ("add_it", "external", True)
    assert wrong.status_code == 422


def test_what_changed_is_shown_word_by_word(alice: Membership, read: Read, pets: Category) -> None:
    accept_imported(import_rows(read(alice, pet("a", description="Lists red pets."))), pets, actor=alice)
    again = read(alice, pet("a", description="Lists blue pets.", effect="external"))
    row = import_rows(again).get()

    shown = signed_in(alice).get(reverse("import_tool", args=["acme", again.public_id, row.public_id]))

    assert "Lists <del>red</del><ins>blue</ins> pets." in shown.content.decode()


def test_while_it_is_read_the_page_asks_again_and_then_loads_whole(
    alice: Membership, offer: Callable[..., None]
) -> None:
    client = signed_in(alice)
    file = SimpleUploadedFile("pets.json", b'{"openapi": "3.1.0"}')
    answer = client.post(reverse("import_create", args=["acme"]), {"source": "openapi", "file": file}, follow=True)
    tool_import = ToolImport.objects.get()
    address = reverse("import_detail", args=["acme", tool_import.public_id])

    polled = client.get(address, headers={"hx-request": "true"})
    ToolImport.objects.update(status="review")
    done = client.get(address, headers={"hx-request": "true"})

    assert "It waits for a worker." in words(answer)
    assert b'hx-trigger="load delay:500ms' in polled.content
    assert b"<html" not in polled.content
    assert done.headers["HX-Refresh"] == "true"
    assert tool_import.document == '{"openapi": "3.1.0"}'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "openapi"}, "Choose a file, or give an address"),
        ({"source": "openapi", "url": "ftp://a.example"}, "Only http and https"),
        ({"source": "toolkit", "url": "https://a.example"}, "it is not read from an address"),
        ({"source": "openapi", "file": SimpleUploadedFile("a", b"\xff\xfe\x00")}, "The file is no text"),
        ({"source": "openapi", "file": SimpleUploadedFile("a", b"x" * 3_600_000)}, "has more than 3,500,000 bytes"),
    ],
)
def test_a_start_that_cannot_be_says_why(alice: Membership, data: dict[str, Any], message: str) -> None:
    answer = signed_in(alice).post(reverse("import_create", args=["acme"]), data)

    assert answer.status_code == 422
    assert message in words(answer)
    assert not ToolImport.objects.exists()


def test_the_base_address_is_set_and_the_import_closed(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("a"), base_url="")
    client = signed_in(alice)

    address = reverse("import_address", args=["acme", tool_import.public_id])
    wrong = client.post(address, {"base_url": "nothing"}, follow=True)
    client.post(address, {"base_url": "https://a.example.org/"})
    client.post(reverse("import_close", args=["acme", tool_import.public_id]))

    assert "Only http and https addresses" in words(wrong)
    tool_import.refresh_from_db()
    assert (tool_import.base_url, tool_import.status) == ("https://a.example.org", "closed")


def test_the_list_shows_what_waits_in_the_same_queries(alice: Membership, read: Read) -> None:
    counts = []
    for number in (1, 3):
        while ToolImport.objects.count() < number:
            read(alice, pet("a"), pet("b"), title=f"P{ToolImport.objects.count()}")
        client = signed_in(alice)
        client.get(reverse("import_list", args=["acme"]))
        with CaptureQueriesContext(connection) as queries:
            response = client.get(reverse("import_list", args=["acme"]))
        counts.append(len(queries))

    assert counts[0] == counts[1]
    assert "3 imports · 3 to review" in words(response)
    assert "2 waiting" in words(response)


# -- Who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bob", "charlie"])
def test_bob_and_charlie_reach_no_page_of_it(alice: Membership, read: Read, name: str) -> None:
    tool_import = read(alice, pet("a"))
    row = import_rows(tool_import).get()
    if name == "bob":
        member = make_member(alice.organisation, "bob")
    else:
        member = make_member(make_organisation("globex"), "charlie", Access.ADMIN)
    client = signed_in(member)
    slug = member.organisation.slug
    own = [tool_import.public_id]
    found = {
        view: client.get(reverse(view, args=[slug, *arguments])).status_code
        for view, arguments in {"import_detail": own, "import_tool": [*own, row.public_id]}.items()
    }
    posted = {
        view: client.post(reverse(view, args=[slug, *own]), {"act": "accept_all", "new_category": "X"}).status_code
        for view in ("import_decide", "import_address", "import_close")
    }

    expected = 403 if name == "bob" else 404
    assert set((found | posted).values()) == {expected}
    row.refresh_from_db()
    assert row.status == ImportedStatus.NEW


def test_bob_with_one_category_sees_another_import_and_decides_nothing(
    alice: Membership, read: Read, pets: Category
) -> None:
    bob = make_member(alice.organisation, "bob")
    give_right(bob, GivenRight(Right.CATALOGUE, "pets"), actor=alice)
    tool_import = read(alice, pet("a"))
    row = import_rows(tool_import).get()
    client, rest = signed_in(bob), Rest(bob)
    path = f"imports/{tool_import.public_id}"
    own = [alice.organisation.slug, tool_import.public_id]

    shown = page(bob, tool_import)
    posted = {
        (view, act): client.post(
            reverse(view, args=own),
            {"act": act, "tools": [str(row.public_id)], "category": "pets", "base_url": "https://b.example.org"},
        ).status_code
        for view, act in (
            ("import_decide", "accept"),
            ("import_decide", "accept_all"),
            ("import_decide", "dismiss"),
            ("import_decide", "dismiss_all"),
            ("import_address", ""),
            ("import_close", ""),
        )
    }
    changed = client.post(reverse("import_tool", args=[*own, row.public_id]), {"name": "b", "effect": "read"})
    answers = [
        rest.patch(path, {"status": "closed"}),
        rest.patch(path, {"base_url": "https://b.example.org"}),
        rest.patch(f"{path}/tools/{row.public_id}", {"effect": "write"}),
        rest.post(f"{path}/accept", {"category": "pets"}),
        rest.post(f"{path}/dismiss", {}),
    ]

    assert "Who administers the whole catalogue" in words(shown)
    assert "Dismiss the ticked" not in words(shown)
    assert set(posted.values()) | {changed.status_code} == {403}
    assert {answer.status for answer in answers} == {403}
    row.refresh_from_db()
    tool_import.refresh_from_db()
    assert (row.status, row.name, tool_import.status) == (ImportedStatus.NEW, "a", "review")


def test_bob_with_one_category_imports_for_it(alice: Membership, offer: Callable[..., None], pets: Category) -> None:
    make_category(alice.organisation, "other")
    bob = make_member(alice.organisation, "bob")
    give_right(bob, GivenRight(Right.CATALOGUE, "pets"), actor=alice)
    client, create = signed_in(bob), reverse("import_create", args=["acme"])
    offer(pet("a"))

    form = client.get(create).content.decode()
    foreign = client.post(create, {"source": "openapi", "url": "https://pets.example.org/a", "category": "other"})
    sent = client.post(create, {"source": "openapi", "url": "https://pets.example.org/a", "category": "pets"})
    tool_import = ToolImport.objects.get()
    run_import(tool_import.public_id)
    shown = page(bob, tool_import)
    refused = Rest(bob).post("imports", {"source": "openapi", "document": "{}", "category": "other"})
    missing = Rest(bob).post("imports", {"source": "openapi", "document": "{}", "category": "cats"})
    asked = Rest(bob).post("imports", {"source": "openapi", "document": "{}"})

    assert ('value="pets"' in form, 'value="other"' in form) == (True, False)
    assert (foreign.status_code, sent.status_code) == (422, 302)
    assert "Dismiss the ticked" in words(shown)
    assert (refused.status, missing.error[:3], asked.json["category"]) == (403, (400, "unknown", "category"), "pets")


def test_what_was_dismissed_is_brought_back_on_its_page(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("a"))
    decide(alice, tool_import, act="dismiss", tools=ids(tool_import, "a"))
    row = import_rows(tool_import).get()
    here = reverse("import_tool", args=["acme", tool_import.public_id, row.public_id])

    dismissed = signed_in(alice).get(here).content.decode()
    brought = decide(alice, tool_import, act="restore", tools=[str(row.public_id)])
    row.refresh_from_db()

    assert ("Bring it back" in dismissed, row.status) == (True, ImportedStatus.NEW)
    assert "Brought back: 1 definition." in words(brought)
    rest, path = Rest(alice), f"imports/{tool_import.public_id}"
    rest.post(f"{path}/dismiss", {})
    assert rest.patch(f"{path}/tools/{row.public_id}", {"status": "new"}).json["status"] == "new"
    assert rest.get(path).json["status"] == "review"


def test_charlie_cannot_name_a_definition_of_another_import(alice: Membership, read: Read) -> None:
    foreign = import_rows(read(alice, pet("a"))).get()
    charlie = make_member(make_organisation("globex"), "charlie", Access.ADMIN)

    with organisation_scope(charlie.organisation):
        own = read(charlie, pet("b"))
        make_category(charlie.organisation, "pets")
        answer = decide(charlie, own, act="accept", tools=[str(foreign.public_id)], category="pets")

    assert "There is no such definition" in words(answer)
    foreign.refresh_from_db()
    assert foreign.status == ImportedStatus.NEW


def test_a_definition_of_another_import_is_not_decided_on(alice: Membership, read: Read, pets: Category) -> None:
    own, other = read(alice, pet("a")), read(alice, pet("b"), title="Others")
    foreign = ids(other, "b")

    answers = [
        Rest(alice).post(f"imports/{own.public_id}/{act}", {"tools": foreign} | more)
        for act, more in (("accept", {"category": "pets"}), ("dismiss", {}))
    ]
    page = decide(alice, own, act="dismiss", tools=foreign)

    assert [answer.error for answer in answers] == [(400, "unknown", "tools")] * 2
    assert "There is no such definition" in words(page)
    assert import_rows(other).get().status == ImportedStatus.NEW


# -- REST -------------------------------------------------------------------------------------------------------------


def test_over_rest_an_import_is_asked_for_read_and_decided_on(
    alice: Membership, offer: Callable[..., None], pets: Category
) -> None:
    offer(pet("a"), pet("b", effect="external"), pet("c"))
    rest = Rest(alice)
    asked = rest.post("imports", {"source": "openapi", "document": "{}"})
    import_id = asked.json["id"]
    run_import(ToolImport.objects.get().public_id)

    read = rest.get(f"imports/{import_id}").json
    tools = rest.get(f"imports/{import_id}/tools", limit=2).json
    first = tools["results"][0]
    changed = rest.patch(f"imports/{import_id}/tools/{first['id']}", {"effect": "external"})
    accepted = rest.post(f"imports/{import_id}/accept", {"tools": [first["id"]], "category": "pets"})
    dismissed = rest.post(f"imports/{import_id}/dismiss", {})

    assert (asked.status, asked.headers["Location"]) == (202, f"/api/v1/imports/{import_id}")
    assert (read["status"], read["statuses"]) == ("review", {"new": 3})
    assert [each["name"] for each in tools["results"]] == ["a", "b"]
    assert tools["next"]
    assert changed.json["effect"] == "external"
    plain = {"updated": [], "waiting": [], "switched_off": [], "modules": [], "note": ""}
    assert accepted.json == {"created": ["a"], **plain}
    assert dismissed.json == {"dismissed": 2}
    assert [each["status"] for each in rest.get("imports").json["results"]] == ["closed"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("accept", {"category": "missing"}, "unknown"),
        ("accept", {"category": "pets", "credential": "missing"}, "unknown"),
        ("accept", {"category": "pets", "tools": ["00000000-0000-0000-0000-000000000000"]}, "unknown"),
        ("dismiss", {"tools": ["00000000-0000-0000-0000-000000000000"]}, "unknown"),
        ("accept", {}, "invalid"),
    ],
)
def test_over_rest_what_is_not_there_is_said(
    alice: Membership, read: Read, pets: Category, path: str, body: dict[str, Any], code: str
) -> None:
    tool_import = read(alice, pet("a"))

    answer = Rest(alice).post(f"imports/{tool_import.public_id}/{path}", body)

    assert answer.error[:2] == (400, code)


def test_over_rest_the_base_address_is_set_and_the_import_closed(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("a"))
    path = f"imports/{tool_import.public_id}"
    rest = Rest(alice)

    moved = rest.patch(path, {"base_url": "https://b.example.org"})
    closed = rest.patch(path, {"status": "closed"})
    late = rest.patch(path, {"base_url": "https://c.example.org"})

    assert (moved.json["base_url"], closed.json["status"]) == ("https://b.example.org", "closed")
    assert late.error[:2] == (409, "conflict")
