"""Copies of toolkits that one organisation publishes and another imports; and their pages and REST."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from capabilities.agents.sharing.publications.queries import listed_publications
from capabilities.agents.sharing.publications.writes import import_publication, publish_toolkit, withdraw_publication
from capabilities.catalogue.imports.runs import run_import
from capabilities.common.refused import ChangeRefused
from capabilities.models import Audience, Publication, Tool, ToolImport, Toolkit
from tests.capabilities.agents.sharing.toolkits import SECRET, accept, make_money, rows_of, statuses_of
from tests.cast import make_member, make_token, make_tool, make_toolkit
from tests.paths import ROOT
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.people.writes import GivenRight, give_right
from toolhub.tenants.rows.scope import organisation_scope

EVERYONE, ADDRESS = Audience.INSTALLATION, Audience.ADDRESS


@pytest.fixture
def money(acme: Organisation) -> Toolkit:
    return make_money(acme)


@pytest.fixture
def two(acme: Organisation) -> Toolkit:
    return make_toolkit(acme, "two", make_tool(acme, "calculator"), make_tool(acme, "uuid"), description="Two tools.")


def publish(toolkit: Toolkit, actor: Membership, audience: str = EVERYONE) -> Publication:
    with organisation_scope(actor.organisation_id):
        return publish_toolkit(toolkit, audience, actor=actor)


def seen_by(member: Membership, **asked: str) -> list[str]:
    with organisation_scope(member.organisation_id):
        return [str(row) for row in listed_publications(member, **asked)]


def signed_in(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def rest(member: Membership) -> dict[str, Any]:
    return {"HTTP_AUTHORIZATION": f"Bearer {make_token(member)}"}


def test_a_copy_is_numbered_hashed_and_on_record(two: Toolkit, alice: Membership) -> None:
    publication = publish(two, alice)

    assert str(publication) == "two 1 of Acme"
    assert publication.sha256 in publication.document
    with organisation_scope(alice.organisation_id):
        entry = AuditEntry.objects.get(action="toolkit.publish")
    assert (entry.after["sha256"], entry.after["number"]) == (publication.sha256, 1)


def test_only_a_changed_toolkit_gets_the_next_number(two: Toolkit, alice: Membership) -> None:
    first = publish(two, alice)
    with pytest.raises(ChangeRefused, match="Number 1 says the same"):
        publish(two, alice)
    with organisation_scope(two.organisation_id):
        two.toolkit_tools.filter(tool__name="uuid").delete()

    second = publish(two, alice)

    assert (second.number, second.line, second.sha256 != first.sha256) == (2, first.line, True)


def test_the_copy_stays_as_it_was(two: Toolkit, alice: Membership) -> None:
    before = publish(two, alice).document
    with organisation_scope(two.organisation_id):
        Toolkit.objects.filter(pk=two.pk).delete()

    assert Publication.objects.get().document == before


def test_code_leaves_the_house_only_with_both_rights_for_everything(
    two: Toolkit, alice: Membership, bob: Membership
) -> None:
    olive = make_member(two.organisation, "olive", Access.OPERATOR)
    with organisation_scope(two.organisation_id):
        give_right(bob, GivenRight(Right.APPROVE_CODE), actor=alice)
    for actor in (bob, olive):
        with pytest.raises(PermissionDenied), organisation_scope(two.organisation_id):
            publish_toolkit(two, EVERYONE, actor=Membership.objects.get(pk=actor.pk))
        with pytest.raises(PermissionDenied), organisation_scope(two.organisation_id):
            withdraw_publication(Publication(pk=1), actor=Membership.objects.get(pk=actor.pk))
    with organisation_scope(two.organisation_id):
        give_right(bob, GivenRight(Right.CATALOGUE), actor=alice)
        publish_toolkit(two, EVERYONE, actor=Membership.objects.get(pk=bob.pk))
    assert Publication.objects.count() == 1


def test_an_audience_is_one_of_two(two: Toolkit, alice: Membership) -> None:
    with pytest.raises(ChangeRefused):
        publish(two, alice, "everybody")


def test_other_organisations_see_only_publications_for_everyone(
    two: Toolkit, alice: Membership, charlie: Membership
) -> None:
    publish(two, alice, ADDRESS)
    assert seen_by(charlie) == []
    assert seen_by(alice) == ["two 1 of Acme"]
    publish(two, alice, EVERYONE)

    assert seen_by(charlie) == ["two 2 of Acme"]
    assert seen_by(charlie, whose="own") == []
    assert seen_by(charlie, whose="others", q="acm") == ["two 2 of Acme"]
    assert seen_by(charlie, q="zzz") == []
    assert seen_by(alice, whose="others") == []
    assert seen_by(alice, whose="own") == ["two 2 of Acme", "two 1 of Acme"]


def test_who_has_the_address_reads_it_until_it_is_withdrawn(
    two: Toolkit, alice: Membership, charlie: Membership
) -> None:
    publication = publish(two, alice, ADDRESS)
    page = reverse("publication_detail", args=["globex", publication.public_id])
    client = signed_in(charlie)
    assert publication.sha256 in client.get(page).content.decode()
    assert client.get(reverse("publication_detail", args=["globex", uuid4()])).status_code == 404
    with organisation_scope(alice.organisation_id):
        withdraw_publication(publication, actor=alice)
        withdraw_publication(publication, actor=alice)  # once more changes nothing
        assert AuditEntry.objects.filter(action="toolkit.withdraw").count() == 1

    assert client.get(page).status_code == 404
    assert client.post(reverse("publication_import", args=["globex", publication.public_id])).status_code == 404
    assert signed_in(alice).get(reverse("publication_detail", args=["acme", publication.public_id])).status_code == 200
    with organisation_scope(charlie.organisation_id), pytest.raises(ChangeRefused, match="withdrawn"):
        import_publication(publication, actor=charlie)


def test_charlie_withdraws_nothing_of_acme(two: Toolkit, alice: Membership, charlie: Membership) -> None:
    publication = publish(two, alice)

    answer = signed_in(charlie).post(reverse("publication_withdraw", args=["globex", publication.public_id]))
    over_rest = Client().delete(f"/api/v1/publications/{publication.public_id}", **rest(charlie))
    with organisation_scope(charlie.organisation_id):
        withdraw_publication(publication, actor=charlie)

    assert (answer.status_code, over_rest.status_code) == (404, 404)
    assert Publication.objects.get().withdrawn_at is None


def test_tx_39_a_copy_is_imported_into_rows_of_ones_own(two: Toolkit, alice: Membership, charlie: Membership) -> None:
    publication = publish(two, alice)
    make_tool(charlie.organisation, "calculator")
    make_tool(charlie.organisation, "uuid")
    with organisation_scope(charlie.organisation_id):
        tool_import = import_publication(publication, actor=charlie)
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()

        assert (tool_import.title, tool_import.reason) == ("two of Acme", "")
        assert statuses_of(tool_import) == {"calculator": "unchanged", "uuid": "unchanged"}
        entry = AuditEntry.objects.get(action="import.publication")
        assert (entry.after["publisher"], entry.after["sha256"]) == ("Acme", publication.sha256)
    publication.refresh_from_db()
    assert publication.import_count == 1
    with organisation_scope(alice.organisation_id):
        assert not ToolImport.objects.exists()
        assert "globex" not in str(list(AuditEntry.objects.values_list("after", flat=True))).lower()


def test_what_was_imported_stays_when_the_copy_is_withdrawn(
    money: Toolkit, alice: Membership, charlie: Membership
) -> None:
    publication = publish(money, alice)
    assert SECRET not in publication.document
    with organisation_scope(charlie.organisation_id):
        tool_import = import_publication(publication, actor=charlie)
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()
        accept(tool_import, charlie)
    with organisation_scope(alice.organisation_id):
        withdraw_publication(publication, actor=alice)
    with organisation_scope(charlie.organisation_id):
        assert set(Tool.objects.values_list("name", flat=True)) == {"price", "rates"}
        assert Toolkit.objects.get().name == "money"


def test_toolkits_of_two_publishers_with_one_name_are_two_sources(
    money: Toolkit, alice: Membership, charlie: Membership
) -> None:
    """Evil calls itself Acme: its toolkit does not become a new version of Acme's tools."""
    evil = make_member(Organisation.objects.create(slug="evil", name="Acme"), "eve", Access.ADMIN)
    theirs = make_money(evil.organisation)
    with organisation_scope(charlie.organisation_id):
        for publication in (publish(money, alice), publish(theirs, evil)):
            with organisation_scope(charlie.organisation_id):
                tool_import = import_publication(publication, actor=charlie)
                run_import(tool_import.public_id)
                tool_import.refresh_from_db()
                rows = rows_of(tool_import)
                assert rows["rates"].status == "new"
                if publication.publisher_name == "Acme" and publication.publisher_id == alice.organisation_id:
                    accept(tool_import, charlie)
        assert rows["rates"].collision


def test_the_next_number_of_a_publication_is_an_update(money: Toolkit, alice: Membership, charlie: Membership) -> None:
    def read(publication: Publication) -> ToolImport:
        tool_import = import_publication(publication, actor=charlie)
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()
        return tool_import

    first = publish(money, alice)
    with organisation_scope(charlie.organisation_id):
        accept(read(first), charlie)
    Organisation.objects.filter(pk=alice.organisation_id).update(name="Acme Limited")
    with organisation_scope(money.organisation_id):
        Toolkit.objects.filter(pk=money.pk).update(description="New words.")
        money.toolkit_tools.filter(tool__name="rates").delete()
    second = publish(Toolkit(pk=money.pk, organisation_id=money.organisation_id, name="money"), alice)
    with organisation_scope(charlie.organisation_id):
        assert statuses_of(read(second)) == {
            "calculator": "refused",
            "mcp__far__ask": "refused",
            "price": "unchanged",
            "rates": "gone",
        }


# -- Pages ------------------------------------------------------------------------------------------------------------


def test_a_toolkit_is_published_found_and_imported_in_the_browser(
    two: Toolkit, alice: Membership, charlie: Membership
) -> None:
    ours, theirs = signed_in(alice), signed_in(charlie)
    assert "Nothing is published yet" in theirs.get(reverse("publication_list", args=["globex"])).content.decode()
    page = ours.get(reverse("toolkit_detail", args=["acme", "two"])).content.decode()
    assert "Publish a copy for" in page

    answer = ours.post(reverse("toolkit_publish", args=["acme", "two"]), {"audience": "installation"}, follow=True)

    assert "two is published as number 1." in answer.content.decode()
    assert "two" in theirs.get(reverse("publication_list", args=["globex"])).content.decode()
    publication = Publication.objects.get()
    answer = theirs.post(reverse("publication_import", args=["globex", publication.public_id]), follow=True)
    assert "two of Acme" in answer.content.decode()
    withdrawn = ours.post(reverse("publication_withdraw", args=["acme", publication.public_id]), follow=True)
    assert "Withdrawn" in withdrawn.content.decode()
    assert "two" not in theirs.get(reverse("publication_list", args=["globex"])).content.decode()


def test_publishing_twice_says_so_on_the_page(two: Toolkit, alice: Membership) -> None:
    publish(two, alice)

    answer = signed_in(alice).post(
        reverse("toolkit_publish", args=["acme", "two"]), {"audience": "installation"}, follow=True
    )

    assert "Number 1 says the same already." in answer.content.decode()


def test_a_member_without_the_right_gets_no_page_and_no_button(two: Toolkit, bob: Membership) -> None:
    client = signed_in(bob)

    assert client.get(reverse("publication_list", args=["acme"])).status_code == 403
    assert client.post(reverse("toolkit_export", args=["acme", "two"])).status_code == 403
    assert client.post(reverse("toolkit_publish", args=["acme", "two"]), {"audience": "address"}).status_code == 403
    page = client.get(reverse("toolkit_detail", args=["acme", "two"])).content.decode()
    assert "Export as a file" not in page
    assert "Publish" not in page


def test_an_operator_exports_and_does_not_publish(two: Toolkit) -> None:
    olive = make_member(two.organisation, "olive", Access.OPERATOR)
    client = signed_in(olive)

    page = client.get(reverse("toolkit_detail", args=["acme", "two"])).content.decode()
    assert ("Export as a file" in page, "Publish a copy" in page) == (True, False)
    assert client.post(reverse("toolkit_publish", args=["acme", "two"]), {"audience": "address"}).status_code == 403


def test_a_toolkit_is_downloaded(two: Toolkit, alice: Membership) -> None:
    answer = signed_in(alice).post(reverse("toolkit_export", args=["acme", "two"]))

    assert answer["Content-Disposition"] == 'attachment; filename="two.toolkit.json"'
    assert answer["Content-Type"].startswith("application/json")
    assert answer.content.decode().startswith('{"credentials":[]')


def test_a_list_of_publications_takes_the_same_queries_for_more(two: Toolkit, alice: Membership) -> None:
    client = signed_in(alice)
    publish(two, alice)
    client.get(reverse("publication_list", args=["acme"]))

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            client.get(reverse("publication_list", args=["acme"]))
        return len(found)

    one = queries()
    publish(two, alice, ADDRESS)
    publish(two, alice)
    assert queries() == one


# -- REST -------------------------------------------------------------------------------------------------------------


def test_over_rest_a_toolkit_is_exported_published_and_imported(
    two: Toolkit, alice: Membership, charlie: Membership
) -> None:
    ours, theirs = rest(alice), rest(charlie)
    client = Client()
    exported = client.post("/api/v1/toolkits/two/export", **ours).json()
    assert (exported["name"], exported["left_out"]) == ("two.toolkit.json", [])
    body = {"toolkit": "two", "audience": "installation"}
    made = client.post("/api/v1/publications", body, content_type="application/json", **ours)
    assert (made.status_code, made.json()["sha256"], made.json()["imports"]) == (201, exported["sha256"], 0)

    (row,) = client.get("/api/v1/publications?whose=others", **theirs).json()["results"]
    assert (row["publisher"], row["is_own"], row["imports"]) == ("Acme", False, None)
    read = client.get(f"/api/v1/publications/{row['id']}", **theirs).json()
    assert read["document"] == exported["document"]
    answer = client.post(f"/api/v1/publications/{row['id']}/import", **theirs)

    assert answer.status_code == 202
    assert answer.json()["title"] == "two of Acme"
    made_again = client.post("/api/v1/publications", body, content_type="application/json", **ours)
    assert made_again.status_code == 409
    unknown = {"toolkit": "none", "audience": "installation"}
    assert client.post("/api/v1/publications", unknown, content_type="application/json", **ours).status_code == 400
    gone = client.delete(f"/api/v1/publications/{row['id']}", **ours)
    assert gone.status_code == 204
    assert client.get(f"/api/v1/publications/{row['id']}", **theirs).status_code == 404


def test_only_one_room_reads_publications() -> None:
    """They are no rows of a tenancy: who may see which is decided in one place."""
    root = ROOT
    named = {
        str(path.relative_to(root))
        for house in ("capabilities", "sessions", "toolhub")
        for path in (root / house).rglob("*.py")
        if "Publication.objects" in path.read_text() or "Publication(" in path.read_text()
    }

    assert {each for each in named if "migrations" not in each} == {
        "capabilities/models/publications.py",
        "capabilities/agents/sharing/publications/queries.py",
        "capabilities/agents/sharing/publications/writes.py",
    }
