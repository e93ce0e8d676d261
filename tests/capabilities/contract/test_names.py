"""Names that are taken for one another, and beginnings that are kept for their makers."""

from __future__ import annotations

import pytest

from capabilities.contract.names import name_key, reserved_for


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file_read", "File_Read"),
        ("Admin", "\u0410dmin"),
        ("Admin", "A\u0501min"),
        ("Admin", "Ad\u200bmin"),
        ("Admin", "\uff21dmin"),
        ("Admin", "  Admin "),
        ("Oscar", "\u039fscar"),
        ("Cafe", "Caf\u00e9"),
        ("STRASSE", "stra\u00dfe"),
    ],
)
def test_names_that_are_taken_for_one_another_have_one_key(one: str, other: str) -> None:
    assert name_key(one) == name_key(other)


def test_names_that_nobody_mixes_up_have_keys_of_their_own() -> None:
    names = ["file_read", "file-read", "fileread", "\u0442\u0435\u0441\u0442", "\u6771\u4eac", "\u4eac\u90fd"]

    assert len({name_key(each) for each in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "maker", "is_free"),
    [
        ("mcp__evil__x", {}, False),
        ("MCP__evil__x", {}, False),
        ("mcp__evil__x", {"server": "evil"}, True),
        ("mcp__evil__x", {"server": "good"}, False),
        ("agent_ra__y", {}, False),
        ("Agent_ra__y", {}, False),
        ("agent_ra__y", {"agent": "ra"}, True),
        ("agent_list", {}, True),
        ("mcp_list", {}, True),
    ],
)
def test_a_beginning_is_kept_for_its_makers(name: str, maker: dict[str, str], is_free: bool) -> None:
    assert (reserved_for(name, **maker) == "") is is_free
