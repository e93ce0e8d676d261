"""What a chat says in numbers: what is sent with a message, what each round sent and saved, what is left of budgets."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from capabilities.models import Agent
from sessions.budgets.writes import BudgetContent, create_budget
from sessions.models import BudgetPeriod, ChatSession, Step, StepKind, StepStatus, ToolSet, Turn, TurnEvent, TurnStatus
from tests.cast import make_role, make_session, make_tool, make_turn
from tests.sessions.doors.chats.test_views import page_of as url_of
from tests.sessions.doors.chats.test_views import text_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def add_event(turn: Turn, kind: str, payload: dict[str, Any]) -> None:
    own = {"organisation": turn.organisation, "turn": turn}
    with organisation_scope(turn.organisation):
        TurnEvent.objects.create(**own, number=turn.last_event + 1, type=kind, payload=payload)


def test_each_round_says_in_one_bar_what_was_sent_and_saved(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.", rounds=2, cost=2_700_000)
    own = {"organisation": session.organisation}
    with organisation_scope(session.organisation):
        sent = ToolSet.objects.create(**own, key="k", sha256="0", wire="[]", tokens=1034, version_ids=[1])
        call = {**own, "turn": turn, "kind": StepKind.MODEL, "status": StepStatus.DONE, "tool_set": sent}
        routing = {"categories": {"git": ["commit", "branch"]}}
        first = {"input_tokens": 3000, "tool_tokens": 1034, "all_tool_tokens": 6034, "routing": routing}
        Step.objects.create(**call, **first, index=1, round=1, prompt_bytes=1000, output_tokens=20)
        answered = {"origin": f"{uuid4()} api.example.org gpt 5", "reasoning_tokens": 192, "cost": 2_700_000}
        told = {"input_tokens": 4000, "cached_tokens": 3000, "output_tokens": 118, "price_source": "a list"}
        Step.objects.create(**call, **answered, **told, index=2, round=2, prompt_bytes=1000, prefix_bytes=987)

    page = as_bob.get(url_of(session)).content

    text = text_of(page)
    assert "3,000 in · 5,000 of tools not sent" in text
    assert "1 tool sent, 1,034 tok Matched keywords" in text
    assert "keywords commit, branch (git)" in text
    assert "4,000 in, 3,000 of it cached · 118 out" in text
    assert "Model gpt 5 Tools 1 tool sent, 1,034 tok" in text
    assert "before 98 % Reasoning 192 tok" in text
    assert "Cost $0.0027 a list" in text
    assert "2 rounds · " in text
    # The widest round, with what it saved, is the whole bar.
    widths = re.findall(rb'<rect class="round-(\w+)"[^>]*?width="(\d+)"', page)
    assert widths == [
        (b"cached", b"0"), (b"fresh", b"37"), (b"saved", b"62"),
        (b"cached", b"37"), (b"fresh", b"13"), (b"saved", b"0"),
    ]  # fmt: skip


def test_cx_35_cx_36_cx_37_the_chip_says_what_is_sent_with_a_message(as_bob: Client, session: ChatSession) -> None:
    def chip() -> bytes:
        found: list[bytes] = re.findall(rb'<a class="chip".*?</a>', as_bob.get(url_of(session)).content, re.DOTALL)
        return found[0]

    none = chip()
    make_tool(session.organisation, "calculator")
    make_role(session.organisation, session.membership)
    some = chip()
    with organisation_scope(session.organisation):
        Agent.objects.update(routing_mode="keywords")
    routed = chip()

    assert b'title="Pure chat: no tool is sent with a message"' in none
    assert b'aria-label="Pure chat"' in none
    assert "chat only" in text_of(none)
    assert b'aria-label="Tools on"' in some
    assert re.search(rb'title="Tools enabled: 1 tool \(\d+ tok\) is sent with each message"', some)
    assert re.search(rb'title="Tools enabled: each message is sent with those of 1 tools? \(\d+ tok\) that it', routed)
    assert "up to 1 tool" in text_of(routed)


def test_the_head_says_how_much_of_the_tightest_budget_is_left(
    as_bob: Client, alice: Membership, bob: Membership, session: ChatSession
) -> None:
    assert b"of budget left" not in as_bob.get(url_of(session)).content
    with organisation_scope(session.organisation):
        wide = create_budget(BudgetContent("Wide", 10_000), actor=alice)
        tight = create_budget(BudgetContent("Mine", 1_000, scope="member", window="total"), actor=alice)
        own = {"organisation": session.organisation, "measure": "tokens", "is_hard": True}
        BudgetPeriod.objects.create(
            **own, budget=tight, key=f"member:{bob.pk}", starts_at=tight.created_at, limit=1_000, spent=190
        )
        assert wide.is_enabled
        create_budget(BudgetContent("One at once", 1, measure="turns"), actor=alice)
    make_turn(session, status=TurnStatus.RUNNING)

    page = as_bob.get(url_of(session)).content
    panel = as_bob.get(url_of(session, "toolkits/"), headers={"HX-Request": "true"}).content

    assert "81 % of budget left" in text_of(page)
    assert b'title="Mine: 810 of 1,000 tokens left. It does not reset by itself."' in page
    assert re.search(rb'id="budget-chip"\s+hx-swap-oob="true"', panel)


def test_a_turn_that_a_budget_stopped_leads_to_the_budgets(as_bob: Client, session: ChatSession) -> None:
    said = "The budget Mine has 12 of 1,000 tokens left. It resets on 24 November 2026 at 00:00 (UTC)."
    turn = make_turn(session, status=TurnStatus.FAILED, error_code="budget_exceeded", error_message=said)
    add_event(turn, "budget_warning", {"budget": "Mine", "share": 80, "percent": 98})

    page = as_bob.get(url_of(session)).content

    assert f"{said} Your budgets budget_exceeded" in text_of(page)
    assert "98 % of the budget “Mine” is spent." in text_of(page)
    assert page.count(b'href="/o/acme/budgets/mine/"') == 2


# -- Folded -----------------------------------------------------------------------------------------------------------


def add_steps(turn: Turn) -> None:
    own = {"organisation": turn.organisation, "turn": turn}
    with organisation_scope(turn.organisation):
        Step.objects.create(**own, index=1, kind=StepKind.MODEL, status=StepStatus.DONE, round=1)
        for index, status in enumerate((StepStatus.DONE, StepStatus.REFUSED), 2):
            Step.objects.create(
                **own, index=index, kind=StepKind.TOOL, status=status, round=1, call_index=index, tool_name="uuid"
            )


def test_the_work_of_a_turn_with_an_answer_is_folded_to_one_line(as_bob: Client, session: ChatSession) -> None:
    usage: dict[str, Any] = {"rounds": 2, "input_tokens": 2310, "output_tokens": 118, "cost": 2_700_000}
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.", **usage)
    add_steps(turn)

    page = as_bob.get(url_of(session)).content.decode()

    (fold,) = re.findall(r'<details class="work"[^>]*>\s*<summary>(.*?)</summary>', page, re.DOTALL)
    assert re.findall(r'<details class="work"[^>]*\bopen\b', page) == []
    line = " ".join(re.sub(r"<[^>]+>", " ", fold).split())
    assert re.fullmatch(r"2 rounds · 2 calls · [\d.]* ?s? ?· 2,428 tok · \$0\.0027 uuid 1 failed", line), line
    assert page.index('class="work"') < page.index(f'id="step-{turn.pk}-2"') < page.index('class="answer prose"')


@pytest.mark.parametrize(
    "more", [{"status": TurnStatus.RUNNING}, {"status": TurnStatus.FAILED}, {"status": TurnStatus.DONE, "door": "mcp"}]
)
def test_the_work_of_a_turn_that_runs_or_has_no_answer_is_open(
    as_bob: Client, session: ChatSession, more: dict[str, Any]
) -> None:
    add_steps(make_turn(session, **more))

    page = as_bob.get(url_of(session)).content

    assert (b'class="work"' in page, b'class="steps"' in page) == (False, True)
