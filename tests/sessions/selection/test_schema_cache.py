"""The bytes of `tools` arrays by what is in them: kept, shared, counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import patch

import pytest
import time_machine
from django.core.cache import cache
from django.test import Client

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.models import Tool
from sessions.models import ChatSession
from sessions.selection import schema_cache
from sessions.selection.queries import selection_preview
from sessions.selection.schema_cache import SchemaCacheNumbers, pass_on, schema_cache_numbers
from sessions.selection.tool_sets import MOST_KEPT, _kept, _wires, keep_tool_set
from tests.cast import make_agent, make_role, make_session, make_tool
from tests.sessions.doors.chats.test_views import text_of
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_counted() -> Iterator[None]:
    pass_on()
    cache.clear()
    yield
    pass_on()
    cache.clear()


def session_of(acme: Organisation, bob: Membership) -> ChatSession:
    make_role(acme, bob)
    make_tool(acme)
    return make_session(bob, make_agent(acme))


def test_long_tools_of_a_client_are_stored_and_fill_no_memory(acme: Organisation, bob: Membership) -> None:
    session = session_of(acme, bob)
    short, long = ([{"type": "function", "function": {"name": "own", "description": "x" * n}}] for n in (10, MOST_KEPT))
    with organisation_scope(acme):
        selection = selection_preview(session)

        kept = [keep_tool_set(selection, acme.pk, tools) for tools in (long, long, short)]

    assert kept[0].pk == kept[1].pk
    assert [each.pk for each in _kept._values.values()] == [kept[2].pk]
    assert list(_wires._values.values()) == [kept[2].wire]


def test_the_same_tools_are_written_once_then_found(acme: Organisation, bob: Membership) -> None:
    session = session_of(acme, bob)
    with organisation_scope(acme):
        selection = selection_preview(session)

        first = keep_tool_set(selection, acme.pk)
        second = keep_tool_set(selection, acme.pk)
        _kept.clear()  # as in another worker
        third = keep_tool_set(selection, acme.pk)
    pass_on()

    assert first.pk == second.pk == third.pk
    numbers = schema_cache_numbers(acme.pk)
    assert numbers == SchemaCacheNumbers(here=1, stored=1, nowhere=1)
    assert (numbers.selections, numbers.hits, numbers.hit_percent) == (3, 2, 66)


def test_an_edited_tool_has_another_key_so_that_nothing_is_invalidated(
    acme: Organisation, bob: Membership, alice: Membership
) -> None:
    session = session_of(acme, bob)
    with organisation_scope(acme):
        before = keep_tool_set(selection_preview(session), acme.pk)
        tool = Tool.objects.get()
        update_tool(tool, Definition(tool.name, "Adds up.", {"type": "object", "properties": {}}), actor=alice)
        session.refresh_from_db()
        after = keep_tool_set(selection_preview(session), acme.pk)

    assert before.pk != after.pk
    assert "Adds up." in after.wire
    assert "Adds up." not in before.wire


def test_counts_are_of_one_organisation_and_of_its_days(acme: Organisation, globex: Organisation) -> None:
    with time_machine.travel(datetime(2026, 11, 22, 12, tzinfo=UTC), tick=False):
        schema_cache.note(acme.pk, schema_cache.Found.HERE)
        pass_on()
    with time_machine.travel(datetime(2026, 11, 23, 12, tzinfo=UTC), tick=False):
        schema_cache.note(acme.pk, schema_cache.Found.STORED)
        pass_on()

        assert schema_cache_numbers(acme.pk) == SchemaCacheNumbers(stored=1)
        assert schema_cache_numbers(acme.pk, days=2) == SchemaCacheNumbers(here=1, stored=1)
        assert schema_cache_numbers(globex.pk, days=31) == SchemaCacheNumbers()


def test_a_cache_that_is_away_costs_a_count_and_no_turn(acme: Organisation) -> None:
    schema_cache.note(acme.pk, schema_cache.Found.HERE)

    with patch.object(cache, "add", side_effect=ConnectionError):
        pass_on()
    with patch.object(cache, "get_many", side_effect=ConnectionError):
        assert schema_cache_numbers(acme.pk) == SchemaCacheNumbers()

    assert schema_cache_numbers(acme.pk).hit_percent == 0


def test_no_more_sets_are_kept_here_than_the_bound() -> None:
    with patch("sessions.selection.tool_sets._kept.size", 2):
        for key in range(5):
            _kept.get(("bounded", key), lambda: None)  # type: ignore[arg-type,return-value]

        assert len(_kept._values) == 2
    _kept.clear()


def test_the_page_of_usage_says_that_it_saves_time_and_not_tokens(
    client: Client, acme: Organisation, alice: Membership, bob: Membership
) -> None:
    for found in (*[schema_cache.Found.HERE] * 2, schema_cache.Found.STORED, schema_cache.Found.NOWHERE):
        schema_cache.note(acme.pk, found)
    pass_on()

    pages = []
    for member in (alice, bob):
        client.force_login(member.user)
        pages.append(text_of(client.get("/o/acme/usage/").content))

    assert "tools were selected 4 times" in pages[0]
    assert "in 75 % of these: 2 in the worker" in pages[0]
    assert "1 in the database; 1 had to be written" in pages[0]
    assert "This saves time, not tokens" in pages[0]
    assert "Schema cache" not in pages[1]
