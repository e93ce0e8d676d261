from __future__ import annotations

import pytest

from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.usefixtures("in_acme")


def test_an_unwritten_page_is_empty(as_alice: Call) -> None:
    assert as_alice("scratch_read") == "The scratchpad is empty."


def test_writing_replaces_the_page(as_alice: Call) -> None:
    as_alice("scratch_write", text="first")

    assert as_alice("scratch_write", text="second") == "The scratchpad now holds 6 characters."

    assert as_alice("scratch_read") == "second"


def test_appending_adds_a_line(as_alice: Call) -> None:
    for line in ("one", "two", "drei €"):
        assert as_alice("scratch_append", text=line) == "Added."

    assert as_alice("scratch_read") == "one\ntwo\ndrei €"


def test_clearing_empties_the_page(as_alice: Call) -> None:
    as_alice("scratch_write", text="gone")

    assert as_alice("scratch_clear") == "The scratchpad is empty."

    assert as_alice("scratch_read") == "The scratchpad is empty."


@pytest.mark.parametrize("page", [100_000, 99_999])
def test_a_full_page_refuses_more_and_keeps_what_it_has(as_alice: Call, page: int) -> None:
    as_alice("scratch_write", text="é" * page)

    with pytest.raises(ToolError, match="The scratchpad holds at most 100000 characters"):
        as_alice("scratch_append", text="x")

    assert as_alice("scratch_read") == "é" * page


def test_a_page_is_filled_to_the_last_character(as_alice: Call) -> None:
    as_alice("scratch_write", text="é" * 99_998)
    as_alice("scratch_append", text="x")

    assert len(as_alice("scratch_read")) == 100_000


@pytest.mark.parametrize("name", ["scratch_write", "scratch_append"])
def test_a_longer_text_is_refused(as_alice: Call, name: str) -> None:
    with pytest.raises(ToolError, match="at most 100000 characters"):
        as_alice(name, text="x" * 100_001)


def test_pages_of_others_are_not_touched(as_alice: Call, as_bob: Call, as_charlie: Call, globex: Organisation) -> None:
    as_alice("scratch_write", text="of Alice")

    with organisation_scope(globex):
        assert as_charlie("scratch_read") == "The scratchpad is empty."
        as_charlie("scratch_append", text="of Charlie")
    assert as_bob("scratch_read") == "The scratchpad is empty."
    as_bob("scratch_clear")
    assert as_alice("scratch_read") == "of Alice"
