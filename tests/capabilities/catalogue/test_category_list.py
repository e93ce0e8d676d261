"""The list of categories: pages by keyset, numbers of all, and a search by title or short name."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from tests.cast import make_category, make_tool
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.keyset import PAGE

pytestmark = pytest.mark.django_db

ACME = "/o/acme/"


@pytest.fixture
def client(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def categories(in_acme: Organisation) -> list[str]:
    """Two of a page more than one page holds; the last one is core and has a tool."""
    names = [f"group_{number:03}" for number in range(PAGE + 2)]
    made = [make_category(in_acme, name, title=name.replace("_", " ").title(), is_core=False) for name in names]
    made[-1].is_core = True
    made[-1].save()
    make_tool(in_acme, "core_tool", category=made[-1])
    return names


def seen(client: Client, address: str = "categories/") -> tuple[list[str], str]:
    """The short names on a page, and the page."""
    answer = client.get(address if address.startswith("/") else f"{ACME}{address}")
    page = answer.content.decode()
    assert answer.status_code == 200
    return re.findall(r"<code[^>]*>(group_\d+)</code>", page), " ".join(page.split())


def link(page: str, rel: str) -> str:
    found = re.search(rf'<a href="([^"]+)"\s+rel="{rel}"', page)
    assert found is not None
    return html.unescape(found[1])


def test_a_page_goes_on_where_the_one_before_ends_and_back(client: Client, categories: list[str]) -> None:
    first, page = seen(client)
    second, last_page = seen(client, link(page, "next"))

    assert (first, second) == (categories[:PAGE], categories[PAGE:])
    assert 'rel="next"' not in last_page
    assert seen(client, link(last_page, "prev"))[0] == first


def test_the_numbers_are_of_all_pages(client: Client, categories: list[str]) -> None:
    _, page = seen(client)

    assert f"{PAGE + 2} categories · 1 core" in page
    assert "1 core, 0 tok" not in page, "the core category is on the second page"


def test_a_category_is_found_by_title_or_short_name(client: Client, categories: list[str]) -> None:
    assert seen(client, f"categories/?q={categories[-1]}")[0] == [categories[-1]]
    assert seen(client, "categories/?q=GROUP 003")[0] == ["group_003"]
    none, page = seen(client, "categories/?q=nothing")
    assert none == []
    assert "show all categories" in page


def test_a_few_categories_have_no_search_and_no_pager(client: Client, in_acme: Organisation) -> None:
    make_category(in_acme, "group_1")

    _, page = seen(client)

    assert 'id="filter-q"' not in page
    assert 'class="pager"' not in page
