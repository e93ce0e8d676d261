"""A toolkit on its way from Acme to Globex in a real browser: exported, uploaded, reviewed; published, and imported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, chromium, complaints, service, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Page]:
    """An admin's, with the toolkits of the starter."""
    with service(tmp_path_factory.mktemp("sharing"), empty_database) as up, chromium() as browser:
        page = browser.new_context(base_url=f"http://localhost:{up.port}").new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


def test_a_toolkit_is_exported_and_read_into_review(page: Page, tmp_path: Path) -> None:
    wrong = complaints(page)
    page.goto("/o/acme/toolkits/")
    page.locator("td.cell-main a").first.click()
    name = page.locator("h1").inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as a file").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == f"{name}.toolkit.json"
    assert json.loads(path.read_text())["toolkit"]["name"] == name

    page.goto("/o/acme/imports/new/")
    page.get_by_label("A toolkit file").check()
    page.locator("input[type=file]").set_input_files(path)
    page.get_by_role("button", name="Read it").click()
    page.get_by_role("heading", name="Toolkit", exact=True).wait_for()

    assert "is as the file has it" in page.locator("main").inner_text()
    assert wrong == []


def test_a_file_that_was_changed_says_so(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "changed.json"
    path.write_text('{"format":"toolhub-toolkit","version":1}')
    page.goto("/o/acme/imports/new/")
    page.get_by_label("A toolkit file").check()
    page.locator("input[type=file]").set_input_files(path)
    page.get_by_role("button", name="Read it").click()

    page.get_by_text("was changed after it was exported").wait_for()


def test_a_copy_is_published_imported_and_withdrawn(page: Page) -> None:
    wrong = complaints(page)
    page.goto("/o/acme/toolkits/")
    page.locator("td.cell-main a").first.click()
    name = page.locator("h1").inner_text()
    page.get_by_label("Publish a copy for").select_option("address")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text(f"{name} is published as number 1.").wait_for()
    here = page.url

    page.get_by_role("button", name="Import it").click()
    page.get_by_role("heading", name="Toolkit", exact=True).wait_for()
    page.goto("/o/acme/imports/")
    page.get_by_role("link", name="Published", exact=True).click()
    page.get_by_role("link", name=f"{name} 1").wait_for()
    page.goto(here)
    page.get_by_text("Withdraw this copy").click()
    page.get_by_role("button", name="Withdraw the copy").click()
    page.get_by_text("is withdrawn.").wait_for()

    assert page.get_by_role("button", name="Import it").count() == 0
    assert wrong == []
