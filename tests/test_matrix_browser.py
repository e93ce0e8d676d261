"""The matrix of roles in a real browser, with the keyboard alone: walk, change a cell, take it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import EMAIL, chromium, complaints, service, sign_in
from tests.test_streaming import rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.processes]

MATRIX = "/o/acme/roles/matrix/"
#: What has the focus: row and column of its cell in the grid, and what a screen reader says of it.
FOCUS = """() => {
  const cell = document.activeElement.closest("td, th");
  return cell && [cell.parentElement.rowIndex, cell.cellIndex, document.activeElement.textContent.trim()];
}"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Up]:
    with service(tmp_path_factory.mktemp("matrix"), empty_database) as running:
        for slug in ("reader", "writer"):
            rest(running, "roles", {"slug": slug, "name": slug.title(), "mode": "listed", "rules": []})
        yield running


@pytest.fixture(scope="module")
def page(up: Up) -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_context(base_url=f"http://localhost:{up.port}", reduced_motion="reduce").new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


def rules_of(up: Up, slug: str) -> list[Any]:
    found: list[Any] = rest(up, f"roles/{slug}")["rules"]
    return found


def tab_into_the_grid(page: Page) -> None:
    page.locator("#matrix-q").focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUS):
            return
    pytest.fail("no tab stop in the grid")


def test_a_cell_is_changed_and_taken_back_with_the_keyboard_alone(up: Up, page: Page) -> None:
    wrong = complaints(page)
    page.goto(f"{MATRIX}?roles=reader,writer")
    tab_into_the_grid(page)
    assert page.evaluate(FOCUS) == [1, 1, "not listed"]

    # One tab stop: Tab leaves the grid, Shift+Tab comes back to the same cell.
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUS) is None
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUS) == [1, 2, "not listed"]
    assert page.locator(".matrix [tabindex='0']").count() == 1

    # To the end of the row and the grid, and back.
    page.keyboard.press("Control+End")
    assert page.evaluate(FOCUS)[1] == 2
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")  # the category's link: its tools come
    page.locator(".tool-line").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUS) == [2, 1, "not listed, off"]

    # Pressed twice it is saved once, as it is left.
    with page.expect_response(lambda each: each.request.method == "POST") as saved:
        page.keyboard.press("Enter")
        page.keyboard.press("Space")
    assert (saved.value.status, len(saved.value.body()) < 5_000) == (200, True)
    page.get_by_role("button", name="Undo").wait_for()
    assert page.evaluate(FOCUS) == [2, 1, "denied"]
    assert [each["effect"] for each in rules_of(up, "reader")] == ["deny"]

    # Undo is the next tab stop behind the grid.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Undo"
    with page.expect_response(lambda each: each.request.method == "POST"):
        page.keyboard.press("Enter")
    page.get_by_text("Undone.").wait_for()
    assert page.evaluate(FOCUS) == [2, 1, "not listed, off"]
    assert rules_of(up, "reader") == []
    assert wrong == []


def test_a_category_changes_what_its_tools_show_and_control_z_takes_it_back(up: Up, page: Page) -> None:
    page.goto(f"{MATRIX}?roles=reader,writer&open=tasks")
    tab_into_the_grid(page)
    row = page.locator("#in-tasks tr").first.evaluate("each => each.rowIndex")
    for _ in range(row - 1):
        page.keyboard.press("ArrowDown")

    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo").wait_for()
    below = page.locator("#in-tasks .tool-line td:nth-child(2) button")
    assert set(below.all_inner_texts()) == {"not listed, on"}
    assert [each["effect"] for each in rules_of(up, "reader")] == ["allow"]

    page.keyboard.press("Control+z")
    page.get_by_text("Undone.").wait_for()
    assert set(below.all_inner_texts()) == {"not listed, off"}
    assert rules_of(up, "reader") == []


def test_what_is_collected_is_previewed_and_saved_by_the_form(up: Up, page: Page) -> None:
    page.goto(f"{MATRIX}?roles=reader,writer")
    page.get_by_label("Preview changes").check()
    page.locator("td button").nth(0).click()
    page.locator("td button").nth(1).click()
    assert page.locator("[data-change-count]").inner_text() == "2"
    assert rules_of(up, "reader") == []

    page.get_by_role("button", name="Preview").click()
    page.get_by_text("What will change").wait_for()
    page.get_by_role("button", name="Save", exact=True).first.click()
    page.get_by_text("It counts from the next call on").wait_for()

    assert [len(rules_of(up, slug)) for slug in ("reader", "writer")] == [1, 1]


def test_the_roles_and_the_tools_stay_in_sight(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 700})
    page.goto(f"{MATRIX}?open=all")
    frame = page.locator(".matrix-frame")
    before = [page.locator(".matrix thead th").first.bounding_box()]
    frame.evaluate("each => each.scrollTo(200, 900)")
    page.wait_for_timeout(100)

    assert frame.evaluate("each => each.scrollTop") > 500
    assert [page.locator(".matrix thead th").first.bounding_box()] == before
    names = page.locator(".matrix tbody th").evaluate_all("all => all.map(each => each.getBoundingClientRect().left)")
    assert len(set(names)) == 1
