"""Names in other alphabets keep a sound or a number, so that two stay two."""

from __future__ import annotations

import pytest

from capabilities.catalogue.imports.names import mcp_tool_name, name_warnings, tool_name
from capabilities.contract.ascii_names import ascii_name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("get_order", "get_order"),
        ("Liste_Größen", "Liste_Groessen"),
        ("naïve Straße", "naive Strasse"),
        ("лист_заказов", "list_zakazov"),
        ("Щука", "Shchuka"),
        ("ツール", "turu"),
        ("名前", "u540du524d"),
        ("①", "1"),
        ("日🎈", "u65e5"),
    ],
)
def test_a_name_is_written_in_ascii_letters(name: str, written: str) -> None:
    assert ascii_name(name) == written


def test_tools_of_other_alphabets_have_names_of_their_own_and_a_warning() -> None:
    names = {mcp_tool_name("shop", each) for each in ("日本語ツール", "検索", "删除", "поиск", "бЪ")}

    assert len(names) == 5
    assert all(each.isascii() and len(each) > len("mcp__shop__") for each in names)
    assert tool_name("Liste_Größen") == "Liste_Groessen"
    assert [each.code for each in name_warnings("检索")] == ["name_written"]
    assert not name_warnings("get_order")
