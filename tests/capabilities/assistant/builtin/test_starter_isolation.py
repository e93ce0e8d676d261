"""Each tool on rows of a member, asked with the names and numbers of another member's rows: it finds nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.contract.context import ToolError
from capabilities.models.numbered import MemberRow
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.conftest import Call
from tests.starter_rows import fill_starter_tables
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

#: In every text of Alice's rows; numbers of hers are 1.
CANARY = "zebracanary"

ASKED: dict[str, dict[str, Any]] = {
    "agent_notes_read": {},
    "agent_notes_write": {"text": "x"},
    "agent_notes_append": {"text": "x"},
    "agent_notes_clear": {},
    "ae_journal_list": {},
    "ae_journal_search": {"query": CANARY},
    "ae_journal_entries_list": {"journal": CANARY},
    "ae_journal_entry_read": {"number": 1},
    "ae_journal_entry_create": {"journal": "other", "text": "x"},
    "ae_journal_entry_update": {"number": 1, "text": "x"},
    "ae_journal_entry_disable": {"number": 1},
    "ae_journal_entry_append": {"number": 1, "text": "x"},
    "ae_journal_entry_prepend": {"number": 1, "text": "x"},
    "ae_task_list": {},
    "list_show": {},
    "list_add": {"name": "other", "items": ["x"]},
    "list_check": {"numbers": [1]},
    "list_remove": {"name": CANARY},
    "grocery_list": {},
    "grocery_add": {"items": [{"name": "x"}]},
    "grocery_check": {"numbers": [1]},
    "grocery_remove": {"numbers": [1]},
    "people_search": {},
    "people_add": {"name": "x"},
    "people_update": {"number": 1, "name": "x"},
    "people_remove": {"number": 1},
    "message_list": {},
    "message_send": {"to": CANARY, "text": "x"},
    "location_save": {"name": CANARY, "latitude": 0, "longitude": 0},
    "location_list": {},
    "location_distance": {"start": CANARY, "end": CANARY},
    "location_remove": {"name": CANARY},
    "food_log_add": {"food": "x", "date": "2026-11-18"},
    "food_log_list": {"since": "2026-11-01"},
    "recipe_save": {"name": CANARY, "ingredients": ["x"]},
    "recipe_search": {},
    "recipe_read": {"name": CANARY},
    "calendar_list": {"start": "2026-06-01", "end": "2027-06-01"},
    "calendar_add": {"title": "x", "start": "today"},
    "calendar_update": {"number": 1, "title": "x"},
    "calendar_remove": {"number": 1},
    "calendar_feed": {"action": "remove"},
    "kg_add_entity": {"name": CANARY, "notes": "x"},
    "kg_add_relation": {"source": CANARY, "label": "x", "target": CANARY},
    "kg_search": {},
    "kg_path": {"start": CANARY, "end": CANARY},
    "kg_remove": {"name": CANARY},
    "series_record": {"name": CANARY, "points": [{"value": 1}]},
    "series_list": {},
    "series_predict": {"name": CANARY, "on": "tomorrow"},
}
CATEGORIES = {registry.tools[name].category for name in ASKED}


def rows_of(member: Membership) -> dict[str, Any]:
    with system_scope():
        return {
            model.__name__: list(model.objects.filter(membership_id=member.pk).order_by("pk").values())
            for model in every_kind_of(MemberRow)
        }


def every_kind_of(model: type[Any]) -> list[type[Any]]:
    below = [kind for child in model.__subclasses__() for kind in every_kind_of(child)]
    return below or [model]


def answer_to(call: Call, name: str) -> str:
    """Without the names that were asked for."""
    try:
        answer = json.dumps(call(name, **ASKED[name]), ensure_ascii=False)
    except ToolError as error:
        answer = str(error)
    return answer.replace(CANARY, "", json.dumps(ASKED[name]).count(CANARY))


def test_every_tool_of_these_categories_is_asked() -> None:
    assert {name for name, tool in registry.tools.items() if tool.category in CATEGORIES} == set(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_another_members_rows_are_not_to_be_found(
    alice: Membership, bob: Membership, charlie: Membership, as_bob: Call, as_charlie: Call, name: str
) -> None:
    with organisation_scope(alice.organisation):
        fill_starter_tables(alice, CANARY)
    before = rows_of(alice)

    for member, call in ((bob, as_bob), (charlie, as_charlie)):
        with organisation_scope(member.organisation):
            assert CANARY not in answer_to(call, name)

    assert rows_of(alice) == before
