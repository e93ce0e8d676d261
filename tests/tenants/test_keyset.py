"""Pages of rows in an order: forwards and backwards, each row once, whatever is removed meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from django.db.models import Value
from pytest_django import DjangoAssertNumQueries

from tests.cast import make_member
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.cursors import opened_place, sealed_place
from toolhub.tenants.rows.keyset import Keyset, Page, page_of_sorted

pytestmark = pytest.mark.django_db

#: By access, and by address from the end.
ORDER = ("access", "-user__email")
EXPECTED = ["eva", "cyd", "ada", "dan", "bea"]


@pytest.fixture
def members(in_acme: Organisation) -> Keyset[Membership]:
    for number, name in enumerate(["ada", "bea", "cyd", "dan", "eva"]):
        make_member(in_acme, name, Access.VIEWER if number % 2 else Access.MEMBER)
    return Keyset(Membership.objects.select_related("user"), ORDER)


def names(rows: Iterable[Membership]) -> list[str]:
    return [row.user.email.partition("@")[0] for row in rows]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_each_row_stands_on_one_page_forwards_and_backwards(members: Keyset[Membership], limit: int) -> None:
    page = members.page(limit=limit)
    assert page.before == ""
    pages = [page]
    while page.after:
        page = members.page(page.after, limit=limit)
        pages.append(page)
    back = [page]
    while page.before:
        page = members.page(before=page.before, limit=limit)
        back.insert(0, page)

    assert [name for each in pages for name in names(each.rows)] == EXPECTED
    assert [names(each.rows) for each in back] == [names(each.rows) for each in pages]


def test_a_row_that_is_removed_loses_no_other(members: Keyset[Membership]) -> None:
    first = members.page(limit=2)
    first.rows[-1].delete()

    assert names(members.page(first.after, limit=2).rows) == ["ada", "dan"]


def test_a_place_that_no_page_wrote_is_left_out(members: Keyset[Membership]) -> None:
    foreign = [sealed_place(7), sealed_place("member"), sealed_place(["member"]), sealed_place([])]
    for place in ("x", "é", "\x00", "a" * 5_000, *foreign):
        assert members.rows_behind(place) is None
        assert names(members.page(place).rows) == EXPECTED
        assert names(members.page(before=place).rows) == EXPECTED


def test_a_cursor_with_values_of_the_wrong_type_is_invalid(in_acme: Organisation) -> None:
    rows = Keyset(Organisation.objects.all(), ("created_at", "-pk"))

    assert rows.rows_behind(sealed_place(["yesterday", "1"])) is None
    assert rows.rows_behind(sealed_place(["2026-01-01 00:00:00+00:00", "one"])) is None
    assert rows.rows_behind(sealed_place(["2026-01-01 00:00:00+00:00", "1"])) is not None


def test_an_annotated_number_orders_rows_of_values_too(members: Keyset[Membership]) -> None:
    rows = Membership.objects.annotate(place=Value(3)).values_list("place", "user__email", named=True)
    numbered = Keyset(rows, ("place", "user__email"))

    page = numbered.page(limit=4)

    assert [row.user__email for row in numbered.page(page.after).rows] == ["eva@example.com"]
    assert opened_place(page.after, list) == ["3", "dan@example.com"]


def test_a_page_is_one_query_forwards_and_backwards(
    members: Keyset[Membership], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        page = members.page(limit=2)
    with django_assert_num_queries(1):
        page = members.page(page.after, limit=2)
    with django_assert_num_queries(1):
        members.page(before=page.before, limit=2)


# -- Rows that no query puts in order ---------------------------------------------------------------------------------

SORTED = [(0, "b"), (0, "c"), (1, "a"), (2, "d"), (2, "e")]


def of_sorted(after: str = "", before: str = "", limit: int = 2) -> Page[tuple[int, str]]:
    return page_of_sorted(SORTED, tuple, after, before, limit=limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_each_sorted_row_stands_on_one_page_forwards_and_backwards(limit: int) -> None:
    pages = [of_sorted(limit=limit)]
    while pages[-1].after:
        pages.append(of_sorted(pages[-1].after, limit=limit))
    back = [pages[-1]]
    while back[0].before:
        back.insert(0, of_sorted(before=back[0].before, limit=limit))

    assert [row for each in pages for row in each.rows] == SORTED
    assert [each.rows for each in back] == [each.rows for each in pages]


def test_a_place_of_another_kind_of_rows_begins_at_the_first() -> None:
    for place in ("x", sealed_place(7), sealed_place(["0", "b"]), sealed_place(["b"]), sealed_place([0, "b", 1])):  # type: ignore[list-item]
        assert of_sorted(place).rows == of_sorted(before=place).rows == SORTED[:2]
    assert page_of_sorted([], tuple, of_sorted().after) == Page([])


def test_a_sorted_row_that_is_gone_loses_no_other() -> None:
    first = of_sorted()

    assert page_of_sorted([(0, "b"), (1, "a")], tuple, first.after).rows == [(1, "a")]
