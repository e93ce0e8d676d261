"""What is loaded is the same for every worker, and two who load at once lose nothing: MR-20 and MR-21."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from urllib.parse import urlsplit

import pytest
from django.db import connection

from sessions.models import ChatSession, LoadedToolkit, Turn
from tests.cast import make_role
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    AT_FIRST,
    ask,
    carried,
    carried_next,
    load,
    load_by_hand,
    loads_of,
    make_fast_and_slow,
    make_loading_session,
    make_small_kits,
    reread,
    unload_by_hand,
)
from tests.sessions.run_turns import accept
from tests.threads import at_once
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent may load `clock` and `ids`."""
    made = make_loading_session(bob, provider.url)
    make_role(bob.organisation, bob)
    return made


@pytest.mark.long
def test_mr_20_another_worker_sees_what_was_loaded_and_so_does_a_later_one(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[load("clock")]), Say("Done."))
    work_elsewhere(accept(session))

    (told,) = ask(session, provider, call("current_time"), load("ids"))[:1]
    work_elsewhere(accept(session))

    assert "error" not in told
    both = [*AT_FIRST, "current_time", "date_arithmetic"]
    assert [carried(request) for request in provider.requests] == [AT_FIRST, AT_FIRST, both, both, [*both, "uuid"]]


def work_elsewhere(turn: Turn) -> None:
    """Run the turn in a process of its own."""
    name = connection.settings_dict["NAME"]
    url = f"sqlite:///{name}"
    if connection.vendor != "sqlite":
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    code = (
        "import django; django.setup(); from uuid import UUID; from sessions.worker.process import work_on; "
        f"work_on(UUID('{turn.pk}'))"
    )
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": url}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=120)


def test_mr_21_two_loads_at_once_lose_neither(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_small_kits(session, 6)
    names = ["clock", "ids", *(f"kit_{number}" for number in range(1, 7))]

    with organisation_scope(session.organisation_id):
        told = at_once([partial(load_by_hand, session, name) for name in names])

    assert [each.status for each in told] == ["loaded"] * 8
    assert sorted(name for name, _, end in loads_of(session) if not end) == sorted(names)
    assert reread(session).load_count == 8
    assert set(carried_next(session, provider)) >= {"current_time", "uuid", *(f"part_{n}" for n in range(1, 7))}


def test_mr_21_the_same_toolkit_at_once_is_loaded_once(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        told = at_once([partial(load_by_hand, session, "clock")] * 6)

    assert sorted(each.status for each in told) == ["already_loaded"] * 5 + ["loaded"]
    assert loads_of(session) == [("clock", "person", "")]


def test_mr_21_two_that_conflict_are_never_both_loaded(session: ChatSession) -> None:
    make_fast_and_slow(session)

    for _ in range(5):
        with organisation_scope(session.organisation_id):
            told = at_once([partial(load_by_hand, session, name) for name in ("fast", "slow")])
            there = list(LoadedToolkit.objects.filter(unloaded_at=None).values_list("name", flat=True))
            unload_by_hand(session, there[0])

        assert sorted(each.status for each in told) == ["conflict", "loaded"]
        assert len(there) == 1


def test_mr_21_a_load_and_an_unload_at_once_both_count(session: ChatSession) -> None:
    load_by_hand(session, "clock")

    with organisation_scope(session.organisation_id):
        told = at_once([partial(unload_by_hand, session, "clock"), partial(load_by_hand, session, "ids")])

    assert [each.status for each in told] == ["unloaded", "loaded"]
    assert loads_of(session) == [("clock", "person", "unloaded"), ("ids", "person", "")]


def test_mr_21_two_loads_in_one_batch_lose_neither(session: ChatSession, provider: ScriptedOpenAI) -> None:
    told = ask(session, provider, load("clock", "one"), load("ids", "two"))

    assert [each["status"] for each in told] == ["loaded", "loaded"]
    assert set(carried_next(session, provider)) == {*AT_FIRST, "current_time", "date_arithmetic", "uuid"}
