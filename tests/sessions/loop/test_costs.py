"""What a model call cost and what it was made of, on its step and in the sums of its turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from capabilities.common.registry_version import touch_registry
from capabilities.common.tokens import QWEN, count_tokens
from capabilities.models import LanguageModel, ModelPrice
from sessions.models import ChatSession, Step, StepKind, Turn, TurnStatus
from tests.rest import Rest
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def usage(sent: int, got: int, cached: int = 0, written: int = 0, reasoning: int = 0) -> Json:
    return {
        "prompt_tokens": sent,
        "completion_tokens": got,
        "total_tokens": sent + got,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def set_price(session: ChatSession, **prices: Any) -> None:
    """What a million tokens of the session's model cost from yesterday on."""
    with organisation_scope(session.organisation_id):
        ModelPrice.objects.create(
            organisation_id=session.organisation_id,
            model=LanguageModel.objects.get(),
            **({"input": "2", "output": "8", "valid_from": datetime.now(UTC) - timedelta(days=1)} | prices),
        )
        touch_registry(session.organisation_id)


def model_steps(turn: Turn) -> list[Step]:
    with organisation_scope(turn.organisation_id):
        found = Step.objects.filter(turn=turn, kind=StepKind.MODEL).select_related("tool_set")
        return list(found.order_by("index"))


def test_each_round_costs_what_its_tokens_cost_and_the_turn_their_sum(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_price(session, cached="0.2", cache_write="2.5", reasoning="6")
    provider.enqueue(
        Say(calls=[call("uuid")], usage=usage(1_000, 100, cached=400, written=200, reasoning=50)),
        Say("There it is.", usage=usage(1_100, 20, cached=1_000)),
    )

    turn = run(session, "an id please")

    first, second = model_steps(turn)
    assert first.cost == (400 * 2 + 400 * 0.2 + 200 * 2.5 + 50 * 8 + 50 * 6) * 1_000
    assert second.cost == (100 * 2 + 1_000 * 0.2 + 20 * 8) * 1_000
    assert turn.cost == first.cost + second.cost
    assert (turn.cache_write_tokens, turn.reasoning_tokens, turn.has_unpriced_rounds) == (200, 50, False)
    assert first.price_source.startswith("own price from 20")


def test_a_round_without_a_price_is_marked_and_adds_nothing(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Good day."))

    turn = run(session)

    (step,) = model_steps(turn)
    assert (step.cost, step.price_source) == (None, "")
    assert (turn.cost, turn.has_unpriced_rounds) == (0, True)


def test_a_price_that_changes_changes_later_rounds_only(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_price(session)
    provider.enqueue(Say("Good day.", usage=usage(1_000, 0)), Say("Good day.", usage=usage(1_000, 0)))
    before = run(session)

    set_price(session, input="4", valid_from=datetime.now(UTC))
    after = run(session)

    with organisation_scope(session.organisation_id):
        before.refresh_from_db()
    assert (before.cost, after.cost) == (2_000_000, 4_000_000)
    assert (model_steps(before)[0].cost, model_steps(after)[0].cost) == (2_000_000, 4_000_000)


def test_one_token_more_costs_twice_as_much_above_the_tier(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_price(session, input="10", output="50", tier_above=272_000, tier_input="20")
    provider.enqueue(Say("a", usage=usage(272_000, 0)), Say("b", usage=usage(272_001, 0)))

    assert [run(session).cost for _ in range(2)] == [2_720_000_000, 5_440_020_000]


def test_a_round_says_what_it_was_made_of(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Just a moment.", calls=[call("uuid")]), Say("There it is."))

    turn = run(session, "an id please")

    first, second = model_steps(turn)
    assert first.tool_set
    assert first.tool_tokens == second.tool_tokens == first.tool_set.tokens > 0
    assert (first.result_tokens, first.answer_tokens) == (0, count_tokens("Just a moment.{}"))
    assert second.result_tokens > 0
    assert second.answer_tokens == count_tokens("There it is.")
    assert second.history_tokens > first.history_tokens > 0


def test_where_the_provider_does_not_count_the_parts_make_the_input(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_price(session)
    provider.enqueue(Say(calls=[call("uuid")], usage=None), Say("There it is.", usage=None))

    turn = run(session, "an id please")

    steps = model_steps(turn)
    assert [step.usage_estimated for step in steps] == [True, True]
    for step in steps:
        assert step.input_tokens == step.tool_tokens + step.result_tokens + step.history_tokens
        assert step.output_tokens == step.answer_tokens
        assert step.cost == (step.input_tokens * 2 + step.output_tokens * 8) * 1_000
    assert turn.status == TurnStatus.DONE


def test_parts_are_counted_as_the_models_family_does(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(name="qwen3-32b")
    provider.enqueue(Say("Schöne Grüße, 你好世界!"))

    (step,) = model_steps(run(session, "hello"))

    assert step.answer_tokens == count_tokens("Schöne Grüße, 你好世界!", QWEN)
    assert step.tool_set
    assert step.tool_tokens == step.tool_set.tokens


def test_the_steps_over_rest_say_what_they_cost_and_were_made_of(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_price(session)
    provider.enqueue(Say("Good day.", usage=usage(1_000, 10)))
    turn = run(session)
    (step,) = model_steps(turn)

    (shown,) = Rest(session.membership).get(f"turns/{turn.pk}/steps").json["results"]

    assert (shown["cost"], shown["price_source"]) == ("0.00208", step.price_source)
    names = ("tool_tokens", "all_tool_tokens", "result_tokens", "history_tokens", "answer_tokens")
    assert {name: shown[name] for name in names} == {name: getattr(step, name) for name in names}
    assert shown["all_tool_tokens"] >= shown["tool_tokens"] > 0
