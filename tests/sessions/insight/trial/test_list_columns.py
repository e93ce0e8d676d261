"""The catalogue's list: columns that are chosen, and numbers in the order of numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from capabilities.catalogue.tools.forms import CatalogueFilter
from capabilities.models import Tool, ToolVersion
from tests.cast import make_category, make_tool
from tests.sessions.insight.trial.test_tool_uses import used
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

TOOLS = "/o/acme/tools/"


@pytest.fixture
def as_alice(client: Client, alice: Membership, acme: Organisation) -> Client:
    make_tool(acme, "fetch", category=make_category(acme, "web"))
    client.force_login(alice.user)
    return client


def heads(page: bytes) -> list[str]:
    found = re.findall(r"<th[^>]*>(.*?)</th>", page.decode(), re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in found]


ALL = ["Tick", "Tool", "Category", "Effect", "Use in 7 days", "Failures", "Cost of definition", "State"]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ALL),
        ("columns=", ALL),
        ("columns=missing", ALL),
        ("columns=use,cost", ["Tick", "Tool", "Use in 7 days", "Cost of definition"]),
        ("columns=cost&columns=use&columns=%00", ["Tick", "Tool", "Use in 7 days", "Cost of definition"]),
        ("columns=state,missing", ["Tick", "Tool", "State"]),
    ],
)
def test_the_columns_of_the_address_are_shown_and_no_others(as_alice: Client, query: str, shown: list[str]) -> None:
    page = as_alice.get(f"{TOOLS}?{query}").content

    assert heads(page) == shown
    row = page.decode().partition('<tr id="tool-fetch">')[2].partition("</tr>")[0]
    assert row.count("<td") == len(shown)


def test_chosen_columns_stay_when_the_list_is_sorted_and_are_saved_with_a_filter(as_alice: Client) -> None:
    page = as_alice.get(f"{TOOLS}?columns=use,cost").content.decode()

    assert 'href="?columns=use%2Ccost&amp;sort=calls"' in page
    saved = re.search(r'name="query" value="([^"]*)"', page)
    assert saved is not None
    assert saved[1] == "columns=use%2Ccost"


def test_who_sees_no_usage_is_offered_no_column_of_it(as_alice: Client, bob: Membership) -> None:
    as_alice.force_login(bob.user)

    page = as_alice.get(f"{TOOLS}?columns=use,failures,cost").content

    assert heads(page) == ["Tool", "Cost of definition"]
    assert re.findall(r'name="columns"\s+value="(\w+)"', page.decode()) == ["category", "effect", "cost", "state"]


# -- Numbers ----------------------------------------------------------------------------------------------------------


def sets_tokens(tool: Tool, number: int) -> None:
    ToolVersion.objects.filter(tool=tool).update(tokens=number)


#: What makes a tool's number in each order of a list by a number: by address, then by the value of `sort`.
NUMBERS: dict[type[ListAddress], dict[str, Any]] = {
    CatalogueFilter: {
        "tokens": sets_tokens,
        "calls": used,
        "failures": lambda tool, number: used(tool, 2 * number, number),
    }
}
#: Orders by words or times.
OTHERS: dict[type[ListAddress], set[str]] = {CatalogueFilter: {"", "used"}}


def addresses(base: type[ListAddress] = ListAddress) -> list[type[ListAddress]]:
    return [each for sub in base.__subclasses__() for each in (sub, *addresses(sub))]


def sorts(address: type[ListAddress]) -> set[str]:
    field: Any = address.base_fields.get("sort")
    return {value for value, _ in field.choices} if field else set()


def test_every_order_of_every_list_is_known_here() -> None:
    found = {each: sorts(each) for each in addresses() if sorts(each)}

    assert found == {each: {*NUMBERS[each], *OTHERS[each]} for each in NUMBERS}


@pytest.mark.parametrize(("address", "sort"), [(each, sort) for each, by in NUMBERS.items() for sort in by])
def test_numbers_are_sorted_as_numbers(
    as_alice: Client, acme: Organisation, address: type[ListAddress], sort: str
) -> None:
    category = make_category(acme, "web")
    for number in (9, 1_000, 10, 100, 99):
        tool = make_tool(acme, f"t{number}", category=category)
        with organisation_scope(acme):
            NUMBERS[address][sort](tool, number)

    page = as_alice.get(f"{reverse('tool_list', args=['acme'])}?sort={sort}").content.decode()

    assert re.findall(r'<tr id="tool-t(\d+)"', page) == ["1000", "100", "99", "10", "9"]
