"""The pages of budgets."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sessions.budgets.views import POLLS
from sessions.models import Budget, BudgetPeriod, TurnStatus, UsageHour
from tests.cast import make_agent, make_member, make_role, make_session, make_turn
from tests.sessions.budgets.test_writes import make_budget, make_period
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.keyset import PAGE as PER_PAGE
from toolhub.tenants.rows.money import NANO
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
PAGE = "/o/acme/budgets/"
FORM = {
    "name": "Daily",
    "measure": "tokens",
    "limit": "1,000",
    "window": "day",
    "scope": "organisation",
    "stops": "hard",
}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def as_bob(bob: Membership) -> Client:
    client = Client()
    client.force_login(bob.user)
    return client


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def budgets() -> list[Budget]:
    with system_scope():
        return list(Budget.objects.order_by("pk"))


def a_budget(alice: Membership, **fields: Any) -> Budget:
    with organisation_scope(alice.organisation_id):
        return make_budget(alice, **fields)


def a_period(budget: Budget, **fields: Any) -> BudgetPeriod:
    with organisation_scope(budget.organisation_id):
        return make_period(budget, **fields)


# -- The list ---------------------------------------------------------------------------------------------------------


def test_an_empty_list_says_what_a_budget_is_for(as_alice: Client) -> None:
    assert "No budget yet" in text_of(as_alice.get(PAGE))


def test_the_list_says_what_is_left_and_when_it_resets(as_alice: Client, alice: Membership) -> None:
    with organisation_scope(alice.organisation_id):
        Organisation.objects.update(time_zone="Europe/Berlin")
        alice.organisation.refresh_from_db()
    a_period(a_budget(alice), spent=700, reserved=100, added=200)
    a_budget(alice, name="Money", measure="money", limit=12_500_000_000, window="total", is_hard=False)

    page = text_of(as_alice.get(PAGE))

    assert "400 tok left of 1,200 tok · 700 tok" in page
    assert "700 tok spent · 100 tok reserved" in page
    assert "00:00 (Europe/Berlin)" in page
    assert "$12.50 for good" in page
    assert "the whole organisation, only warns" in page
    assert "$12.50 left of $12.50" in page
    assert "not by itself" in page


def test_the_list_counts_those_who_have_their_own(as_alice: Client, alice: Membership) -> None:
    budget = a_budget(alice, name="Each", scope="member")
    a_period(budget, key="member:1", spent=810)
    a_period(budget, key="member:2", spent=10)

    page = text_of(as_alice.get(PAGE))

    assert "1,000 tok each day for each member" in page
    assert "81 % used by the fullest of 2 members" in page
    a_budget(alice, name="Unused", scope="agent")
    assert "no agent has used it in this window" in text_of(as_alice.get(PAGE))


def test_the_list_says_how_many_turns_run(as_alice: Client, alice: Membership, bob: Membership) -> None:
    a_budget(alice, name="At once", measure="turns", limit=3)
    make_turn(make_session(bob), status=TurnStatus.RUNNING)

    assert "2 turns left of 3 turns · 1 turn running" in text_of(as_alice.get(PAGE))


def test_the_list_takes_the_same_queries_for_one_and_for_many(
    as_alice: Client, alice: Membership, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    a_period(a_budget(alice))
    as_alice.get(PAGE)
    with django_assert_num_queries(6):  # one for what a turn needs on average
        as_alice.get(PAGE, {"live": "1"}, headers=HTMX)
    for number in range(3):
        a_period(a_budget(alice, name=f"b{number}", scope="member"), key=f"member:{number}")
        a_budget(alice, name=f"t{number}", measure="turns")
    with django_assert_num_queries(7):  # one for all limits of turns at once
        as_alice.get(PAGE, {"live": "1"}, headers=HTMX)


def test_the_fullest_comes_first_and_what_is_off_last(as_alice: Client, alice: Membership) -> None:
    for name, spent in (("a little", 100), ("b most", 900), ("c off", 990)):
        a_period(a_budget(alice, name=name, is_enabled=name != "c off"), spent=spent)
    a_period(a_budget(alice, name="d each", scope="member"), key="member:1", spent=500)

    page = text_of(as_alice.get(PAGE))

    places = [page.index(name) for name in ("b most", "d each", "a little", "c off")]
    assert places == sorted(places)
    assert "90 % used" in page


def test_every_budget_is_on_one_of_the_pages(as_alice: Client, alice: Membership) -> None:
    names = [f"budget-{number:02}" for number in range(PER_PAGE + 3)]
    for number, name in enumerate(names):
        a_period(a_budget(alice, name=name), spent=number % 4)

    first = as_alice.get(PAGE)
    second = as_alice.get(PAGE, {"after": first.context["page"].after})

    shown = [[line.budget.name for line in each.context["page"].rows] for each in (first, second)]
    assert (len(shown[0]), sorted(shown[0] + shown[1])) == (PER_PAGE, names)


def test_the_list_says_what_a_turn_needs_and_how_many_have_room(
    as_alice: Client, alice: Membership, bob: Membership
) -> None:
    agent = make_agent(alice.organisation, slug="costly", name="Costly")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for member, key, tokens in ((alice, agent.pk, 200), (bob, agent.pk + 1, 100)):
        with organisation_scope(alice.organisation_id):
            UsageHour.objects.create(
                organisation=alice.organisation,
                hour=hour,
                membership_key=member.pk,
                agent_key=key,
                turns=2,
                input_tokens=tokens,
                output_tokens=tokens,
                cost=3_000_000_000,
            )
    a_period(a_budget(alice, name="All"), spent=400)
    a_budget(alice, name="Of the agent", scope="agent", target=agent.slug)
    a_budget(alice, name="Money", measure="money", limit=9_000_000_000)
    a_budget(alice, name="At once", measure="turns", limit=3)

    lines = {line.budget.name: line.need for line in as_alice.get(PAGE).context["page"].rows}

    assert {name: need and (need.amount, need.turns) for name, need in lines.items()} == {
        "All": ("150 tok", 4),
        "Of the agent": ("200 tok", 5),
        "Money": ("$1.50", 6),
        "At once": None,
    }


def test_an_open_page_asks_anew_and_stops_by_itself(as_alice: Client, alice: Membership, bob: Membership) -> None:
    a_budget(alice)

    first = as_alice.get(PAGE).content.decode()
    part = as_alice.get(PAGE, {"live": "1"}, headers=HTMX).content.decode()
    last = as_alice.get(PAGE, {"live": str(POLLS)}, headers=HTMX).content.decode()
    turn = make_turn(make_session(bob), status=TurnStatus.RUNNING)
    busy = as_alice.get(PAGE, {"live": str(POLLS)}, headers=HTMX).content.decode()

    assert f'hx-get="{PAGE}?live=1" hx-trigger="every 5s"' in first
    assert part.lstrip().startswith('<div id="budgets"')
    assert f'hx-get="{PAGE}?live=2"' in part
    assert "hx-get" not in last
    assert "No longer refreshed by itself" in last
    assert turn.is_open
    assert f'hx-get="{PAGE}?live={POLLS + 1}"' in busy


# -- Who sees what ----------------------------------------------------------------------------------------------------


def test_a_member_sees_the_budgets_that_bind_them_and_no_other(
    as_bob: Client, alice: Membership, bob: Membership
) -> None:
    role, other = make_role(bob.organisation, bob), make_role(bob.organisation, alice, slug="other")
    a_period(a_budget(alice, name="Ours"), spent=250)
    mine = a_budget(alice, name="Each member", scope="member")
    a_period(mine, key=f"member:{bob.pk}", spent=900)
    a_period(mine, key=f"member:{alice.pk}", spent=123)
    a_budget(alice, name="My role", scope="role", target=role.slug)
    a_budget(alice, name="Their role", scope="role", target=other.slug)
    a_budget(alice, name="Alices", scope="member", target=str(alice.public_id))
    a_budget(alice, name="Off", is_enabled=False)

    page = text_of(as_bob.get(PAGE))

    assert "750 tok left of 1,000 tok" in page
    assert "100 tok left of 1,000 tok · 900 tok" in page
    assert "123" not in page
    assert "My role" in page
    assert not [name for name in ("Their role", "Alices", "Off", "New budget") if name in page]


def test_a_member_without_a_budget_is_told_so(as_bob: Client) -> None:
    assert "No budget binds you" in text_of(as_bob.get(PAGE))


def test_a_member_changes_nothing(as_bob: Client, alice: Membership) -> None:
    budget = a_budget(alice)
    period = a_period(budget)
    one = f"{PAGE}{budget.public_id}/"

    answers = [as_bob.get(PAGE + "new/"), as_bob.get(PAGE + "rules/"), as_bob.get(one), as_bob.get(one + "edit/")]
    answers += [as_bob.post(one + act) for act in ("switch/", "delete/")]
    answers += [as_bob.post(f"{one}windows/{period.public_id}/{act}/") for act in ("reset", "top-up")]

    assert {answer.status_code for answer in answers} == {403}


def test_a_stranger_gets_what_a_missing_budget_gets(client: Client, alice: Membership, charlie: Membership) -> None:
    budget = a_budget(alice)
    client.force_login(charlie.user)

    assert client.get(f"{PAGE}{budget.public_id}/").status_code == 404
    assert client.get(f"/o/globex/budgets/{budget.public_id}/").status_code == 404


# -- The forms --------------------------------------------------------------------------------------------------------


def test_a_budget_is_made_in_the_browser(as_alice: Client, bob: Membership) -> None:
    answer = as_alice.post(
        PAGE + "new/", FORM | {"scope": "member", "member": "Bob@example.com", "warn_at": "50, 90 %"}
    )

    (budget,) = budgets()
    assert (answer.status_code, answer["Location"]) == (302, f"{PAGE}{budget.public_id}/")
    assert (budget.membership_id, budget.limit, budget.warn_at, budget.is_hard) == (bob.pk, 1_000, [50, 90], True)


def test_a_session_is_named_by_its_address(as_alice: Client, alice: Membership) -> None:
    session = make_session(alice)
    address = f"https://toolhub.example.com/o/acme/sessions/{session.pk}/"

    as_alice.post(PAGE + "new/", FORM | {"scope": "session", "session": address})

    assert [budget.session_id for budget in budgets()] == [session.pk]


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"limit": "1.5"}, "limit", "Give a whole number of tokens."),
        ({"measure": "money", "limit": "0.0000000001"}, "limit", "Give at most 9 digits behind the point."),
        ({"measure": "money", "limit": "1,50"}, "limit", "Give dollars as a number such as 12.50"),
        ({"scope": "role"}, "role", "Choose the role that it is for."),
        ({"scope": "role", "role": "theirs"}, "role", "There is no such role."),
        ({"scope": "member", "member": "charlie@example.com"}, "member", "There is no such member."),
        ({"scope": "agent", "agent": "theirs"}, "agent", "There is no such agent."),
        ({"scope": "session", "session": "the one of today"}, "session", "Give the address of a session"),
        ({"warn_at": "most"}, "warn_at", "Give percentages with commas between them"),
        ({"warn_at": "80, 120"}, "warn_at", "whole percentages from 1 to 100"),
        ({"window": "week"}, "window", "Select a valid choice."),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_is_lost(
    as_alice: Client, charlie: Membership, fields: dict[str, str], field: str, sentence: str
) -> None:
    make_role(charlie.organisation, charlie, slug="theirs")
    make_agent(charlie.organisation, slug="theirs")

    answer = as_alice.post(PAGE + "new/", FORM | {"name": "Kept"} | fields)

    page = answer.content.decode()
    beside = re.findall(rf'id="id_{field}_error">.*?</p>', page, re.DOTALL)
    assert answer.status_code == 422
    assert sentence in "".join(beside)
    assert 'value="Kept"' in page
    assert not budgets()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "The whole organisation: 1,000 tok each day"),
        ({"measure": "money", "limit": "2", "window": "month"}, "The whole organisation: $2.00 each month"),
        ({"measure": "turns", "limit": "3"}, "The whole organisation: 3 turns at once"),
        ({"scope": "role", "role": "long-" * 12}, f"{'Long-' * 10}: 1,000 tok each day"),
        ({"scope": "member", "member": "alice@example.com"}, "Alice: 1,000 tok each day"),
        ({"scope": "agent"}, "An agent: 1,000 tok each day"),
    ],
)
def test_a_budget_without_a_name_is_named_after_whom_it_is_for_and_its_limit(
    as_alice: Client, alice: Membership, fields: dict[str, str], name: str
) -> None:
    make_role(alice.organisation, alice, slug="long-" * 12)

    as_alice.post(PAGE + "new/", FORM | fields | {"name": ""})

    assert [budget.name for budget in budgets()] == [name]


def test_another_organisations_session_is_a_missing_one(as_alice: Client, charlie: Membership) -> None:
    theirs = make_session(charlie)

    answer = as_alice.post(PAGE + "new/", FORM | {"scope": "session", "session": str(theirs.pk)})

    assert answer.status_code == 422
    assert f"There is no session {theirs.pk}." in text_of(answer)


def test_turns_at_once_need_no_window(as_alice: Client) -> None:
    fields = {name: value for name, value in FORM.items() if name != "window"}
    as_alice.post(PAGE + "new/", fields | {"measure": "turns", "limit": "3"})

    assert [(each.measure, each.window, each.limit) for each in budgets()] == [("turns", "total", 3)]


def test_a_limit_is_changed(as_alice: Client, alice: Membership) -> None:
    budget = a_budget(alice, measure="money", limit=5 * NANO)
    address = f"{PAGE}{budget.public_id}/edit/"

    assert 'value="5.00"' in as_alice.get(address).content.decode()
    answer = as_alice.post(address, {"name": "Daily", "limit": "7.25", "stops": "warn", "warn_at": ""})

    (changed,) = budgets()
    assert (answer.status_code, changed.limit, changed.is_hard, changed.warn_at) == (302, 7_250_000_000, False, [])


def test_a_budget_is_switched_and_removed(as_alice: Client, alice: Membership) -> None:
    budget = a_budget(alice)

    as_alice.post(f"{PAGE}{budget.public_id}/switch/", {"enabled": "0"})
    (off,) = budgets()
    assert not off.is_enabled
    as_alice.post(f"{PAGE}{budget.public_id}/delete/")

    assert not budgets()


# -- Windows ----------------------------------------------------------------------------------------------------------


def test_a_budgets_page_shows_whose_windows_they_are(as_alice: Client, alice: Membership, bob: Membership) -> None:
    budget = a_budget(alice, scope="member")
    a_period(budget, key=f"member:{bob.pk}", spent=300)
    over = timezone.now() - timedelta(days=3)
    a_period(budget, key="member:999999", spent=5, starts_at=over, ends_at=over + timedelta(days=1))

    page = as_alice.get(f"{PAGE}{budget.public_id}/").content.decode()

    assert "<b>Bob</b>" in page
    assert "<b>A member</b>" in page
    assert page.count(">Top up<") == 1


def test_a_session_of_somebody_else_has_no_title_here(alice: Membership, bob: Membership) -> None:
    session = make_session(bob, title="Secret plans")
    keeper = make_member(alice.organisation, "keeper", Access.MEMBER)
    budget = a_budget(alice, scope="session")
    a_period(budget, key=f"session:{session.pk}", spent=300)
    with organisation_scope(alice.organisation_id):
        AdminRight.objects.create(organisation=alice.organisation, membership=keeper, right=Right.BUDGETS)
    client = Client()
    client.force_login(keeper.user)

    page = client.get(f"{PAGE}{budget.public_id}/").content.decode()

    assert "Secret plans" not in page
    assert "A session of somebody" in page


def test_a_window_is_reset_and_topped_up(as_alice: Client, alice: Membership) -> None:
    budget = a_budget(alice)
    period = a_period(budget, spent=900)
    window = f"{PAGE}{budget.public_id}/windows/{period.public_id}/"

    as_alice.post(window + "reset/")
    as_alice.post(window + "top-up/", {"amount": "250"})

    with system_scope():
        period.refresh_from_db()
    assert (period.spent, period.spent_before_reset, period.added) == (0, 900, 250)
    page = text_of(as_alice.get(f"{PAGE}{budget.public_id}/"))
    assert page.count("1,250 tok left of 1,250 tok") == 1
    assert "900 tok had been spent" in page


def test_a_top_up_that_is_none_says_so_beside_its_window(as_alice: Client, alice: Membership) -> None:
    budget = a_budget(alice)
    period = a_period(budget)

    answer = as_alice.post(f"{PAGE}{budget.public_id}/windows/{period.public_id}/top-up/", {"amount": "much"})

    page = answer.content.decode()
    assert answer.status_code == 422
    assert "Give a whole number of tokens." in page
    assert 'value="much"' in page


def test_a_window_of_another_budget_is_a_missing_one(as_alice: Client, alice: Membership) -> None:
    budget, other = a_budget(alice), a_budget(alice, name="Other")
    period = a_period(other, spent=5)

    assert as_alice.post(f"{PAGE}{budget.public_id}/windows/{period.public_id}/reset/").status_code == 404


# -- What all budgets go by -------------------------------------------------------------------------------------------


def test_the_time_zone_is_set(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(PAGE + "rules/", {"time_zone": "Asia/Kolkata", "counts_unpriced_as_free": "on"})
    wrong = as_alice.post(PAGE + "rules/", {"time_zone": "Kolkata"})

    acme.refresh_from_db()
    assert (answer.status_code, acme.time_zone, acme.counts_unpriced_as_free) == (302, "Asia/Kolkata", True)
    assert (wrong.status_code, "Give the name of a time zone" in text_of(wrong)) == (422, True)
