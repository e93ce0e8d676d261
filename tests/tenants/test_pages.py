from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.cast import make_member, make_organisation
from toolhub.tenants.audit.queries import changes
from toolhub.tenants.menu import all_pages, page_of
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.templatetags.look import ago, kind_words


def menu(page: bytes) -> list[str]:
    side = page.decode().split('class="side-list"')[1].split("</ul>")[0]
    return re.findall(r"</svg>([\w -]+)(?:<span[^>]*>\s*</span>)?</a>", side)


def tabs(page: bytes) -> list[str]:
    found = page.decode().partition('class="page-tabs"')[2].split("</nav>")[0]
    return re.findall(r">([\w ?-]+)(?:<span[^>]*>\s*</span>)?</a>", found)


def test_home_goes_straight_into_the_only_organisation(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    answer = client.get("/")

    assert (answer.status_code, answer["Location"]) == (302, "/o/acme/")


def test_home_offers_the_choice_of_several_organisations(client: Client, bob: Membership) -> None:
    other = make_member(make_organisation("umbrella"), "bob")
    make_organisation("globex")
    client.force_login(other.user)

    page = client.get("/").content.decode()

    assert re.findall(r'href="(/o/\w+/)"', page) == ["/o/acme/", "/o/umbrella/"]


def test_home_tells_who_belongs_nowhere_what_to_do(client: Client, bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        bob.delete()
    client.force_login(bob.user)

    page = client.get("/").content

    assert b"You belong to no organisation yet" in page
    assert b"bob@example.com" in page


def test_the_top_bar_switches_between_the_members_organisations_only(client: Client, alice: Membership) -> None:
    other = make_member(make_organisation("umbrella"), "alice", Access.VIEWER)
    make_organisation("globex")
    client.force_login(other.user)

    page = client.get("/o/acme/").content.decode()

    assert 'href="/o/umbrella/"' in page
    assert "globex" not in page


def test_anonymous_people_get_the_login_page(client: Client, acme: Organisation) -> None:
    answer = client.get("/")

    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=/")


def test_an_htmx_request_without_a_login_is_sent_to_the_login_page_as_a_whole(
    client: Client, acme: Organisation
) -> None:
    here = "http://testserver/o/acme/sessions/"

    answer = client.get("/o/acme/sessions/", headers={"HX-Request": "true", "HX-Current-URL": here})

    assert answer.status_code == 200
    assert answer["HX-Redirect"] == "/accounts/login/?next=http%3A//testserver/o/acme/sessions/"
    assert answer.content == b""


def test_a_form_sent_without_a_login_comes_back_to_its_page_and_to_no_other_site(
    client: Client, acme: Organisation
) -> None:
    own = client.post("/o/acme/sessions/", headers={"Referer": "http://testserver/o/acme/"})
    foreign = client.post("/o/acme/sessions/", headers={"Referer": "https://evil.example/"})

    assert own["Location"].endswith("next=http%3A//testserver/o/acme/")
    assert foreign["Location"] == "/accounts/login/?next=/"


@pytest.mark.parametrize("slug", ["acme", "missing", "UPPER", "under_score"])
def test_a_stranger_gets_the_same_answer_for_every_organisation(
    client: Client, charlie: Membership, acme: Organisation, slug: str
) -> None:
    client.force_login(charlie.user)

    answer = client.get(f"/o/{slug}/")

    assert answer.status_code == 404
    assert b"Page not found" in answer.content
    assert b"Acme" not in answer.content


#: What a plain member finds below each entry, and what an administrator does.
PLAIN = {
    "Home": [],
    "Chat": ["Sessions", "Schedules", "Your data"],
    "Inbox": ["Approvals", "Access requests", "Remembered approvals"],
    "Tools": ["All tools", "Categories", "Toolkits", "Why?"],
    "Agents": ["Agents", "Connect a client"],
    "Insights": ["Usage", "Your budgets"],
}
SOURCES = ["MCP servers", "Imports", "Files", "Credentials", "Services", "Modules"]
ADMIN = {
    "Home": [],
    "Chat": ["Sessions", "Schedules", "Your data"],
    "Inbox": ["Approvals", "Tool versions", "Access requests", "Imports to review", "Remembered approvals"],
    "Tools": ["All tools", "Categories", "Keywords", "Toolkits", "Published", *SOURCES],
    "Agents": ["Agents", "Models", "Prices", "Connect a client"],
    "People": ["Members", "Roles", "Matrix", "Grants", "Why?"],
    "Rules": ["Policies", "Approval rules", "Hooks", "Runtime settings", "Budgets"],
    "Insights": ["Usage", "Unused tools", "Your budgets", "Audit"],
}


def entries_with_tabs(client: Client) -> dict[str, list[str]]:
    """Open each entry of the menu, as a reader does, and return the tabs of its page."""
    page = client.get("/o/acme/").content
    side = page.decode().split('class="side-list"')[1].split("</ul>")[0]
    addresses = re.findall(r'href="(/o/[^"]+)"', side)
    return {title: tabs(client.get(url).content) for title, url in zip(menu(page), addresses, strict=True)}


def test_members_see_only_the_pages_that_would_let_them_in(client: Client, alice: Membership, bob: Membership) -> None:
    client.force_login(bob.user)
    plain = entries_with_tabs(client)
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.PROVIDERS)
    delegated = entries_with_tabs(client)
    client.force_login(alice.user)
    admin = entries_with_tabs(client)

    assert plain == PLAIN
    assert delegated == PLAIN | {"Agents": ["Agents", "Models", "Connect a client"]}
    assert admin == ADMIN


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_each_page_of_the_menu_opens_and_is_marked_in_the_menu_and_among_its_tabs(
    client: Client, alice: Membership, bob: Membership, name: str
) -> None:
    client.force_login({"alice": alice, "bob": bob}[name].user)
    page = client.get("/o/acme/").content.decode()
    side = page.split('class="side-list"')[1].split("</ul>")[0]
    for url in re.findall(r'href="(/o/[^"]+)"', side):
        shown = client.get(url).content.decode()
        strip = shown.partition('class="page-tabs"')[2].split("</nav>")[0]
        for address in re.findall(r'href="(/o/[^"]+)"', strip) or [url]:
            answer = client.get(address)
            frame, _, body = answer.content.decode().partition('id="main"')
            marked = re.findall(r'href="([^"]+)"\s+(?:class="[\w-]+"\s+)?aria-current="page"', body.split("</nav>")[0])

            assert answer.status_code == 200
            assert re.findall(r'href="([^"]+)"\s+aria-current="page"', frame) == [url]
            assert marked == ([address] if strip else [])


@pytest.mark.parametrize("right", sorted({page.right for page in all_pages() if page.right}))
def test_a_member_with_one_right_gets_into_each_page_that_the_menu_offers_for_it(
    client: Client, bob: Membership, right: Right
) -> None:
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=right)
    client.force_login(bob.user)

    answers = {
        page.view: client.get(reverse(page.view, args=["acme"])).status_code
        for page in all_pages()
        if page.right == right
    }

    assert answers == dict.fromkeys(answers, 200)


def test_each_page_of_an_organisation_belongs_to_a_page_of_the_menu_or_to_the_account() -> None:
    names = {
        pattern.name or ""
        for module in ("toolhub.tenants.urls", "capabilities.urls", "sessions.urls")
        for pattern in import_module(module).urlpatterns
    }

    outside = {name.partition("_")[0] for name in names if not page_of(name)}

    assert outside == {"token", "browser", "accounts", "file", "find", "saved"}


@pytest.mark.parametrize("page", ["base.html", "500.html", "drf_spectacular/swagger_ui.html"])
def test_each_frame_of_a_page_names_the_icon_or_a_browser_asks_for_one_that_is_not_there(page: str) -> None:
    assert 'rel="icon"' in render_to_string(page, {"favicon_href": "/static/favicon.svg"})


def test_pages_are_kept_out_of_caches_and_have_nothing_inline(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    answer = client.get("/o/acme/")

    assert "no-store" in answer["Cache-Control"]
    assert "HX-Request" in answer["Vary"]
    assert b"<style" not in answer.content
    assert not re.search(rb"<script(?![^>]*\bsrc=)", answer.content)
    assert not re.search(rb"\s(style|on\w+)=", answer.content)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (timedelta(hours=8, seconds=-5), "8 hours from now"),
        (timedelta(hours=1, seconds=-5), "an hour from now"),
        (timedelta(minutes=20, seconds=-5), "20 minutes from now"),
        (timedelta(days=-1, minutes=-1), "1 day ago"),
    ],
)
def test_a_grant_for_eight_hours_does_not_end_in_seven(left: timedelta, words: str) -> None:
    shown = re.sub(r"<[^>]+>", "", ago(timezone.now() + left)).replace("\xa0", " ")

    assert shown == words


def test_the_audit_names_kinds_in_words_and_leaves_out_what_a_new_thing_has_not() -> None:
    new: dict[str, object] = {"category": "", "reason": None, "rules": [], "is_enabled": False, "name": "Helper"}

    assert [kind_words(kind) for kind in ("languagemodel", "loadedtoolkit", "gone")] == [
        "language model",
        "loaded toolkit",
        "gone",
    ]
    assert [change.name for change in changes({}, new)] == ["is_enabled", "name"]
    assert [change.name for change in changes({"name": "Helper", "reason": "x"}, new)] == [
        "is_enabled",
        "reason",
    ]
    assert [change.name for change in changes({"gone": None}, {})] == ["gone"]
