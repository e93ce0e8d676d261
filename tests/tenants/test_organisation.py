"""The settings of an organisation: its page and its route."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from sessions.models import Budget
from tests.cast import make_token
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

PAGE = "/o/acme/settings/"
FORM = {"name": "Acme", "time_zone": "UTC", "date_language": "en-gb", "has_assistant": "on"}


def rest(member: Membership) -> Client:
    return Client(headers={"Authorization": f"Bearer {make_token(member)}"})


def test_an_admin_changes_name_and_time_zone_with_a_record_of_each(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)

    answer = client.post(PAGE, FORM | {"name": "Acme Ltd", "time_zone": "Asia/Tokyo"})

    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    organisation = Organisation.objects.get(pk=alice.organisation_id)
    assert (organisation.name, organisation.time_zone) == ("Acme Ltd", "Asia/Tokyo")
    with organisation_scope(organisation):
        entries = {each.action: each.after for each in AuditEntry.objects.all()}
        assert entries["organisation.update"] == {"name": "Acme Ltd"}
        assert entries["budget.rules"]["time_zone"] == "Asia/Tokyo"
        assert not Budget.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("name", "x" * 101), ("date_language", "tlh"), ("time_zone", "Mars/Olympus")]
)
def test_what_cannot_be_is_shown_beside_its_field(client: Client, alice: Membership, field: str, value: str) -> None:
    client.force_login(alice.user)

    answer = client.post(PAGE, FORM | {field: value})

    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    assert Organisation.objects.get(pk=alice.organisation_id).name == alice.organisation.name


def test_the_link_stands_at_the_foot_of_the_menu_for_admins_alone(
    client: Client, alice: Membership, bob: Membership
) -> None:
    pages = {}
    for member in (alice, bob):
        client.force_login(member.user)
        pages[member.pk] = client.get(reverse("organisation_home", args=["acme"])).content.decode()

    assert PAGE in pages[alice.pk]
    assert PAGE not in pages[bob.pk]


def test_the_route_shows_and_changes_what_is_given(alice: Membership, bob: Membership) -> None:
    changed = rest(alice).patch("/api/v1/organisation", {"has_assistant": False}, content_type="application/json")
    wrong = rest(alice).patch("/api/v1/organisation", {"time_zone": "Nowhere"}, content_type="application/json")

    shown = rest(bob).get("/api/v1/organisation").json()
    assert changed.json() == shown
    assert shown == {
        "slug": "acme",
        "name": "Acme",
        "time_zone": "UTC",
        "date_language": "en-gb",
        "has_assistant": False,
    }
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "time_zone")


@pytest.mark.parametrize("field", ["time_zone", "has_assistant"])
def test_the_zone_and_the_switch_need_a_right_of_their_own(bob: Membership, field: str) -> None:
    with organisation_scope(bob.organisation_id):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.MEMBERS)
    body = {"time_zone": "Asia/Tokyo", "has_assistant": False}

    answer = rest(bob).patch("/api/v1/organisation", {field: body[field]}, content_type="application/json")

    assert answer.status_code == 403
    organisation = Organisation.objects.get(pk=bob.organisation_id)
    assert (organisation.time_zone, organisation.has_assistant) == ("UTC", True)


def test_the_page_links_to_what_is_set_on_pages_that_the_reader_may_open(
    client: Client, alice: Membership, bob: Membership
) -> None:
    with organisation_scope(bob.organisation_id):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.MEMBERS)
    links: dict[int, list[str]] = {}
    for member in (alice, bob):
        client.force_login(member.user)
        page = client.get(PAGE)
        links[member.pk] = [reverse(each.view, args=["acme"]) for each in page.context["elsewhere"]]
        assert [client.get(link).status_code for link in links[member.pk]] == [200] * len(links[member.pk])
        assert all(f'href="{link}"' in page.content.decode() for link in links[member.pk])

    assert (len(links[alice.pk]), len(links[bob.pk])) == (5, 2)


def test_the_language_of_dates_is_changed_and_on_record(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)

    client.post(PAGE, FORM | {"date_language": "de"})

    with organisation_scope(alice.organisation_id):
        entry = AuditEntry.objects.get(action="organisation.update")
        assert (entry.before, entry.after) == ({"date_language": "en-gb"}, {"date_language": "de"})
