"""Whole turns in the process of the test, and what they left on record."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

from capabilities.choosing.pipeline.routing import router_verdicts
from capabilities.language_models.providers.resolve import ResolvedModel, ResolvedProvider, resolve_model
from capabilities.models import AUTO
from sessions.loop.conversation.history import Past
from sessions.loop.conversation.running import RunningTurn
from sessions.models import ChatSession, Step, StepKind, Turn, TurnEvent
from sessions.selection.queries import Selection, select_tools
from sessions.turns import accepting, ledger
from sessions.turns.held import Held
from sessions.worker.process import work_on
from tests.scripted_openai import Json
from toolhub.tenants.rows.scope import organisation_scope, system_scope

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


def a_model(**fields: Any) -> ResolvedModel:
    """A model of a provider, as a turn resolves it."""
    provider = ResolvedProvider(uuid4(), "provider", "Provider", "https://api.example.org/v1", True, AUTO, "key")
    told = {"name": "scripted", "context_window": 128_000, "tool_limit": 128, "max_rounds": 5, "public_id": uuid4()}
    return ResolvedModel(**{"provider": provider, "max_output_tokens": 1_000, **told, **fields})


def accept(session: ChatSession, message: str = "hello") -> Turn:
    with organisation_scope(session.organisation_id):
        return accepting.accept(session, message, member=session.membership).turn


def run(session: ChatSession, message: str = "hello") -> Turn:
    """Accept a message, run it as a worker does, and return the turn as it stands."""
    return work(accept(session, message))


def work(turn: Turn) -> Turn:
    """Run the turn as a worker does that was rung for it."""
    work_on(turn.pk)
    with organisation_scope(turn.organisation_id):
        turn.refresh_from_db()
    return turn


def work_all() -> None:
    """What workers do until nothing is left to do."""
    for _ in range(50):
        with system_scope():
            free = list(Turn.objects.filter(ledger.claimable()).order_by("created_at").values_list("pk", flat=True))
        if not free:
            return
        for turn_id in free:
            work_on(turn_id)
    raise AssertionError("turns go round for ever")


def as_claimed(turn: Turn) -> RunningTurn:
    """The turn read anew, with its model resolved, as a worker has it. In the scope of its organisation."""
    return running(Turn.objects.select_related("session", "agent__model__provider").get(pk=turn.pk))


def running(row: Turn, **more: Any) -> RunningTurn:
    """The turn of this row, with its model resolved."""
    model = resolve_model(row.agent.model, row.agent)
    held = Held(ledger.Claim(row.pk, row.organisation_id, row.epoch))
    return RunningTurn(row, held, model, row.agent.prompt, Past(row, model), **more)


def selected_for(turn: RunningTurn) -> Selection:
    """Select as the turn's next model call does. In the scope of its organisation."""
    return select_tools(turn.row, turn.model, at=turn.registry_version, has_loads=turn.has_loads)


def steps_of(turn: Turn, kind: StepKind | None = None) -> list[Step]:
    with organisation_scope(turn.organisation_id):
        found = Step.objects.filter(turn=turn).select_related("verdict_set").order_by("index")
        return [step for step in found if kind in (None, step.kind)]


def verdicts_of(step: Step) -> list[dict[str, Any]]:
    """Reasons why each tool is or is not in the selection that this model call is the first round of; else nothing.
    Tools that its message left out come last."""
    stored = step.verdict_set.verdicts if step.verdict_set is not None else []
    return [*stored, *router_verdicts(step.routing, stored)]


def tool_steps_of(turn: Turn) -> list[Step]:
    """In the order of the calls that they answer."""
    return sorted(steps_of(turn, StepKind.TOOL), key=lambda step: (step.round, step.call_index))


def events_of(turn: Turn) -> list[str]:
    with organisation_scope(turn.organisation_id):
        return list(TurnEvent.objects.filter(turn=turn).order_by("number").values_list("type", flat=True))


def check_request(body: bytes) -> list[Json]:
    """The messages of a request, if any provider would take it: else the assertion says what is wrong.

    Of responses, items that are no messages come with the role that they would have in chat completions.
    """
    request = json.loads(body.decode("utf-8"), parse_constant=_no_json)
    check_text(request)
    return _checked_messages(request["messages"]) if "messages" in request else _checked_items(request)


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _checked_items(request: Json) -> list[Json]:
    items: list[Json] = request["input"]
    assert request["store"] is False
    entries = request.get("tools", ())
    functions = [entry for entry in entries if entry["type"] == "function"]
    functions += [tool for entry in entries if entry["type"] == "namespace" for tool in entry["tools"]]
    assert all(NAME.match(tool["name"]) for tool in functions)
    ids = [item["id"] for item in items if "id" in item]
    assert len(ids) == len(set(ids)), "an id that came before"
    declared = {tool["name"] for tool in functions}
    assert len(declared) == len(functions), "a tool that was declared before"
    open_ids: list[str] = []
    seen: set[str] = set()
    is_answering = False
    for item, following in zip(items, [*items[1:], {}], strict=True):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            assert open_ids, "a result without a call"
            assert item["call_id"] == open_ids.pop(0)
            assert isinstance(item["output"], str)
            is_answering = True
            continue
        assert open_ids == [] or not is_answering, "a call without a result"
        is_answering = False
        if kind == "function_call":
            assert item["call_id"] not in seen, "an id that came before"
            check_function(item["call_id"], item)
            seen.add(item["call_id"])
            open_ids.append(item["call_id"])
        elif kind == "additional_tools":
            assert item["role"] == "developer"
            assert open_ids == [], "a call without a result"
            names = [tool["name"] for tool in item["tools"]]
            assert names
            assert all(NAME.match(name) for name in names)
            assert not declared.intersection(names), "a tool that was declared before"
            declared.update(names)
        elif kind == "reasoning":
            led_to = following.get("type", following.get("role"))
            known = ("reasoning", "function_call", "message", "assistant", "tool_search_call")
            assert led_to in known, "reasoning that nothing follows"
        elif kind == "tool_search_call":
            assert following["type"] == "tool_search_output", "a search without its output"
        elif kind == "tool_search_output":
            assert open_ids == [], "a call without a result"
        else:
            assert kind == "message", kind
            assert item["role"] == "assistant" or open_ids == [], "a call without a result"
            assert item["content"], "a message of nothing"
    assert open_ids == [], "a call without a result"
    roles = {"function_call_output": "tool"}
    return [item if "role" in item else {"role": roles.get(item["type"], "assistant"), **item} for item in items]


def check_function(call_id: str, function: Json) -> None:
    """What a provider demands of a call that it is told again."""
    assert re.match(r"^[a-zA-Z0-9_-]{1,64}\Z", call_id)
    assert NAME.match(function["name"])
    assert isinstance(json.loads(function["arguments"]), dict)
    check_text(json.loads(function["arguments"]))


def _checked_messages(messages: list[Json]) -> list[Json]:
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert open_ids, "a result without a call"
            assert message["tool_call_id"] == open_ids.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert open_ids == [], "a call without a result"
        if message["role"] != "assistant":
            assert isinstance(message["content"], str)
            continue
        assert message["content"] or message.get("tool_calls"), "an assistant's message of nothing"
        for each in message.get("tool_calls", ()):
            assert each["type"] == "function"
            check_function(each["id"], each["function"])
            assert each["id"] not in seen, "an id that came before"
            seen.add(each["id"])
            open_ids.append(each["id"])
    assert open_ids == []
    return messages


def check_text(value: Any) -> None:
    """All text inside is valid UTF-8 without NUL."""
    if isinstance(value, str):
        value.encode("utf-8")
        assert "\x00" not in value
    elif isinstance(value, dict):
        for key, each in value.items():
            check_text(key)
            check_text(each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_text(each)
