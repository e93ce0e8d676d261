"""The pages of access for a time, and what a tool's page says of it and of its instructions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from capabilities.access.grants.writes import GrantContent, give_grant
from capabilities.access.requests.queries import REQUESTS_A_PAGE
from capabilities.access.requests.writes import RequestContent, ask_for_grant, grant_request, refuse_request
from capabilities.models import Category, Grant, GrantRequest, Tool
from sessions.doors.schedules.periodic import lapse_grants
from tests.capabilities.test_pages import text_of
from tests.cast import make_category, make_member, make_role, make_tool
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

ACME = "/o/acme/"
REQUESTS = f"{ACME}access-requests/"


@pytest.fixture
def as_alice(alice: Membership) -> Client:
    return signed_in(alice)


@pytest.fixture
def as_bob(bob: Membership) -> Client:
    return signed_in(bob)


@pytest.fixture
def web(acme: Organisation) -> Category:
    web = make_category(acme, "web")
    make_tool(acme, "http_post", category=web)
    return web


def signed_in(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def ask(member: Membership, **fields: Any) -> GrantRequest:
    with organisation_scope(member.organisation):
        content = RequestContent(**{"tool": "http_post", "reason": "Deploys today."} | fields)
        return ask_for_grant(content, member=member)


def posted(**fields: Any) -> dict[str, Any]:
    return {"tool": "http_post", "category": "", "reason": "Deploys today.", "until": "8h"} | fields


def page_of(client: Client, path: str = REQUESTS) -> str:
    return text_of(client.get(path).content)


@pytest.mark.usefixtures("web")
def test_a_member_asks_and_the_request_stands_on_the_page(as_bob: Client) -> None:
    answer = as_bob.post(REQUESTS, posted(), follow=True)

    assert answer.redirect_chain == [(REQUESTS, 302)]
    page = text_of(answer.content)
    assert "You asked for http_post." in page
    assert "Deploys today. Waiting" in page
    assert "Waiting for a decision" not in page


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"tool": "missing"}, "There is no tool missing."),
        ({"tool": "", "category": "missing"}, "There is no such category."),
        ({"tool": ""}, "Name a tool or a category, one of the two."),
        ({"reason": ""}, "This field is required."),
        ({"until": "2h"}, "Select a valid choice."),
        ({"until": "date"}, "Choose a date."),
        ({"until": "date", "until_date": "2020-01-01"}, "This date has passed."),
        ({"until": "date", "until_date": "9998-01-01"}, "Choose a date within 90 days."),
        ({"until": "tonight", "zone": "Mars/Base"}, "This is no time zone."),
    ],
)
def test_an_invalid_request_shows_the_form_again_with_its_error(
    as_bob: Client, acme: Organisation, fields: dict[str, str], complaint: str
) -> None:
    answer = as_bob.post(REQUESTS, posted(**fields))

    assert (answer.status_code, complaint in text_of(answer.content)) == (422, True)
    with organisation_scope(acme):
        assert not GrantRequest.objects.exists()


@pytest.mark.usefixtures("web")
def test_who_may_decide_grants_for_as_long_as_the_form_says(
    as_alice: Client, as_bob: Client, bob: Membership, acme: Organisation
) -> None:
    asked = ask(bob, hours=2)
    page = page_of(as_alice)
    assert "1 request is waiting for you" in page
    assert "requests http_post for 2 hours" in page

    answer = as_alice.post(
        f"{REQUESTS}{asked.public_id}/grant/", {"until": "asked", "answer": "Only today."}, follow=True
    )

    assert "2 hours: Bob may use http_post" in text_of(answer.content)
    assert "No request is waiting." in text_of(answer.content)
    assert "Only today. Granted until 2 hours" in page_of(as_bob)
    with organisation_scope(acme):
        grant = Grant.objects.get()
        assert grant.expires_at is not None
        Grant.objects.update(expires_at=timezone.now() - timedelta(hours=1))
    lapse_grants()
    assert "Lapsed an hour ago" in page_of(as_bob)
    assert "Lapsed" in page_of(as_alice, f"{ACME}grants/")
    as_alice.post(f"{ACME}grants/{grant.public_id}/revoke/")
    assert "Revoked since" in page_of(as_bob)


@pytest.mark.usefixtures("web")
def test_a_request_is_for_the_whole_hours_until_the_day_ends_and_granted_as_asked(
    as_alice: Client, as_bob: Client, acme: Organisation
) -> None:
    day = (timezone.now() + timedelta(days=3)).date()

    as_bob.post(REQUESTS, posted(until="date", until_date=day.isoformat(), zone="UTC"))
    with organisation_scope(acme):
        asked = GrantRequest.objects.get()
    assert 72 < asked.hours <= 96
    assert (
        f'<option value="asked" selected>{asked.hours} hours, as requested' in as_alice.get(REQUESTS).content.decode()
    )
    answer = as_alice.post(f"{REQUESTS}{asked.public_id}/grant/", {"until": "asked"}, follow=True)

    assert f"Granted for {asked.hours} hours: Bob may use http_post." in text_of(answer.content)


@pytest.mark.usefixtures("web")
def test_a_refusal_without_an_answer_comes_back_with_what_was_said(
    as_alice: Client, as_bob: Client, bob: Membership
) -> None:
    asked = ask(bob)

    empty = as_alice.post(f"{REQUESTS}{asked.public_id}/refuse/", {"until": "1h", "answer": ""})
    refused = as_alice.post(f"{REQUESTS}{asked.public_id}/refuse/", {"until": "1h", "answer": "Use <b>fetch</b>."})

    assert (empty.status_code, refused.status_code) == (422, 302)
    assert "Give an answer: somebody will read it." in text_of(empty.content)
    assert '<option value="1h" selected>' in empty.content.decode()
    page = as_bob.get(REQUESTS).content.decode()
    assert "Alice: Use &lt;b&gt;fetch&lt;/b&gt;." in page


@pytest.mark.usefixtures("web")
def test_what_was_decided_meanwhile_or_is_denied_is_told(
    as_alice: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    asked = ask(bob)
    with organisation_scope(acme):
        give_grant(GrantContent(bob.public_id, "deny", category="web"), actor=alice)

    denied = as_alice.post(f"{REQUESTS}{asked.public_id}/grant/", {"until": "1h"}, follow=True)
    with organisation_scope(acme):
        refuse_request(GrantRequest.objects.get(), answer="No.", actor=alice)
    late = as_alice.post(f"{REQUESTS}{asked.public_id}/grant/", {"until": "1h"}, follow=True)

    assert "A grant denies all of Web to Bob" in text_of(denied.content)
    assert "This request does not wait any more" in text_of(late.content)


@pytest.mark.usefixtures("web")
def test_nobody_is_offered_to_decide_on_a_request_of_their_own(bob: Membership, acme: Organisation) -> None:
    asked = ask(bob)
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES)

    client = signed_in(bob)

    assert "No request is waiting." in page_of(client)
    assert client.post(f"{REQUESTS}{asked.public_id}/grant/", {"until": "1h"}).status_code == 403
    assert "Withdrawn" in text_of(client.post(f"{REQUESTS}{asked.public_id}/withdraw/", follow=True).content)


@pytest.mark.usefixtures("web")
def test_a_right_for_a_category_shows_and_decides_its_requests_alone(bob: Membership, acme: Organisation) -> None:
    make_tool(acme, "file_read", category=make_category(acme, "file"))
    in_web, in_file = ask(bob), ask(bob, tool="file_read")
    fay = make_member(acme, "fay")
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=fay, right=Right.ROLES, category="web")
    client = signed_in(fay)

    page = page_of(client)

    assert ("requests http_post" in page, "requests file_read" in page) == (True, False)
    assert client.post(f"{REQUESTS}{in_file.public_id}/grant/", {"until": "1h"}).status_code == 404
    assert client.post(f"{REQUESTS}{in_web.public_id}/grant/", {"until": "1h"}).status_code == 302


@pytest.mark.usefixtures("web")
def test_a_viewer_reads_the_page_and_is_offered_no_form(acme: Organisation) -> None:
    client = signed_in(make_member(acme, "victor", Access.VIEWER))

    assert 'id="ask"' not in client.get(REQUESTS).content.decode()
    assert client.post(REQUESTS, posted()).status_code == 403
    assert "Request access" not in page_of(client, f"{ACME}tools/http_post/")


def test_the_page_is_told_on_by_keyset(as_alice: Client, bob: Membership, web: Category, acme: Organisation) -> None:
    with organisation_scope(acme):
        own = {"organisation": acme, "membership": bob, "category": web, "hours": 1, "status": "refused"}
        for number in range(REQUESTS_A_PAGE + 2):
            GrantRequest.objects.create(**own, reason=f"number {number}.")

    older = re.search(r'href="(\?after=[\w-]+)"', as_alice.get(REQUESTS).content.decode())
    assert older is not None
    page = page_of(as_alice, f"{REQUESTS}{older[1]}")
    assert ("number 1." in page, "number 0." in page, "number 2." in page) == (True, True, False)


@pytest.mark.parametrize("count", [1, 3])
def test_the_page_takes_the_same_queries_for_one_and_three(
    as_alice: Client,
    alice: Membership,
    bob: Membership,
    acme: Organisation,
    count: int,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(count):
        for kind in ("waiting", "granted"):
            make_tool(acme, f"{kind}_{number}", category=make_category(acme, f"{kind}_{number}"))
            asked = ask(bob, tool=f"{kind}_{number}")
            if kind == "granted":
                with organisation_scope(acme):
                    grant_request(asked, hours=1, actor=alice)

    with django_assert_num_queries(12):  # four of them for the counts in the menu
        as_alice.get(REQUESTS)


# -- The page of a tool -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
def test_the_page_of_a_tool_offers_to_ask_for_it_and_shows_that_it_waits(
    as_bob: Client, bob: Membership, acme: Organisation
) -> None:
    closed = as_bob.get(f"{ACME}tools/http_post/").content.decode()
    assert "You cannot use this tool" in text_of(closed.encode())
    assert f'href="{REQUESTS}?tool=http_post#ask"' in closed
    assert 'name="tool" value="http_post"' in as_bob.get(f"{REQUESTS}?tool=http_post").content.decode()

    asked = ask(bob)

    page = page_of(as_bob, f"{ACME}tools/http_post/")
    assert "for 8 hours. The request is waiting" in page
    as_bob.post(f"{REQUESTS}{asked.public_id}/withdraw/")
    make_role(acme, bob)
    assert "Request access" not in page_of(as_bob, f"{ACME}tools/http_post/")


@pytest.mark.usefixtures("web")
def test_mr_41_instructions_are_written_on_the_page_of_the_tool(
    as_alice: Client, as_bob: Client, acme: Organisation
) -> None:
    path = f"{ACME}tools/http_post/"

    saved = as_alice.post(f"{path}instructions/", {"instructions": "Ask <first>.\r\nThen post."}, follow=True)

    assert "its instructions, as of version 2" in text_of(saved.content)
    assert "Ask &lt;first&gt;.\nThen post.</textarea>" in saved.content.decode()
    with organisation_scope(acme):
        version = Tool.objects.select_related("current_version").get().current_version
    assert version is not None
    assert version.instructions == "Ask <first>.\nThen post."
    theirs = as_bob.get(path).content.decode()
    assert ("Ask &lt;first&gt;." in theirs, "</textarea>" in theirs) == (True, False)
    assert as_bob.post(f"{path}instructions/", {"instructions": "x"}).status_code == 403


@pytest.mark.usefixtures("web")
def test_mr_41_instructions_that_are_too_long_come_back(as_alice: Client) -> None:
    path = f"{ACME}tools/http_post/instructions/"

    lines = "\r\n".join(["x"] * 2000)  # 3,999 characters, as they are stored
    assert as_alice.post(path, {"instructions": lines}).status_code == 302
    answer = as_alice.post(path, {"instructions": "y" * 4001})

    assert answer.status_code == 422
    assert "under 4,000 characters" in text_of(answer.content)
    assert "y" * 4001 in answer.content.decode()


@pytest.mark.usefixtures("web")
def test_waiting_requests_are_counted_in_the_menu_and_told_on_home(
    as_alice: Client, as_bob: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    quiet = page_of(as_alice, ACME)
    ask(bob)
    ask(make_member(acme, "carol"))
    ask(alice)

    assert "waiting for you" not in quiet
    assert "2 requests for access are waiting" in page_of(as_alice, ACME)
    assert "Inbox 2 waiting" in page_of(as_alice, f"{ACME}tools/")
    assert "Access requests 2 waiting" in page_of(as_alice, f"{ACME}access-requests/")
    assert "waiting" not in page_of(as_bob, f"{ACME}tools/").partition("Explain")[0]
    assert "waiting for you" not in page_of(as_bob, ACME)


@pytest.mark.usefixtures("web")
def test_the_badge_counts_what_a_limited_right_may_decide(as_bob: Client, bob: Membership, acme: Organisation) -> None:
    other = make_tool(acme, "file_read", category=make_category(acme, "file")).name
    carol = make_member(acme, "carol")
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES, category="web")
    ask(carol)
    ask(carol, tool=other)

    assert "1 request for access is waiting for you" in page_of(as_bob, ACME)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("page", ["", "tools/"])
def test_the_badge_takes_one_query_for_any_number(as_alice: Client, acme: Organisation, page: str) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as log:
            as_alice.get(f"{ACME}{page}")
        return len(log)

    ask(make_member(acme, "m0"))
    one = queries()
    for number in (1, 2, 3):
        ask(make_member(acme, f"m{number}"))

    assert queries() == one


@pytest.mark.usefixtures("charlie", "web")
def test_another_organisations_requests_are_not_counted(as_alice: Client, charlie: Membership) -> None:
    make_tool(charlie.organisation, "http_post")
    ask(make_member(charlie.organisation, "dave"))

    assert "waiting for you" not in page_of(as_alice, ACME)
