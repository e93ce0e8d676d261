"""Routing by itself, on tools that are made up: it only leaves out, and what it decided stays decided."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.choosing.pipeline.bringing import CORE, OWN
from capabilities.choosing.pipeline.candidates import Bundle, Candidate, Offer
from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.choosing.pipeline.routing import Before, Decided, RoutingInputs, router_verdicts
from capabilities.choosing.pipeline.stages import Selection, Situation, select
from capabilities.choosing.routing.keywords import Keywords
from capabilities.contract.envelope import Envelope
from capabilities.contract.loading import READ_RESULT, SEARCH_TOOLS
from capabilities.contract.permission import Rights, RoleRules
from capabilities.contract.spec import BUILTIN, ToolSpec
from capabilities.models import Agent, LoadingMode, RoutingMode
from tests.sessions.run_turns import a_model
from toolhub.tenants.models import NOWHERE

NAMES = ("light_switch", "light_state", "git_log", "git_diff", "task_create", "task_list", "db_query", "db_schema")
META = {100: SEARCH_TOOLS, 101: READ_RESULT}
LOADED = 200
KEYWORDS = Keywords.of({"light": ["light", "kitchen"], "git": ["git", "commit"], "task": ["task"], "db": ["sql"]})
WORDS = (
    *("turn", "off", "the", "kitchen", "lights", "git", "commits", "create", "a", "task", "sql", "yes", "do", "it"),
    *("light_switch", "good", "morning", "\ud800", "🌩", "\x00", "[]", '"', "e" * 500, "<b>", "\u202e"),
)
MESSAGES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join) | st.text(min_size=1, max_size=100)
KEYS = st.frozensets(st.integers(0, len(NAMES)), max_size=8)
MODES = st.sampled_from([RoutingMode.KEYWORDS, RoutingMode.HYBRID])


def spec_of(key: int, name: str) -> ToolSpec:
    category = "dynamic" if key in META else name.split("_")[0]
    function = {"name": name, "description": f"Does {name}.", "parameters": {"type": "object", "properties": {}}}
    wire = json.dumps({"type": "function", "function": function})
    kind = BUILTIN if key in META else "http"
    envelope = Envelope("retry", 30.0, 10_000)
    return ToolSpec(key, key + 1, name, kind, category, 1, True, wire, name, 40, "read", envelope)


def make_offer(pinned: frozenset[int] = frozenset()) -> Offer:
    """Own tools and core ones by turns, the search and the reader, and one tool of a loaded toolkit."""
    found = [
        Candidate(spec_of(key, name), OWN if key % 2 else f"{CORE}x", is_pinned=key in pinned)
        for key, name in enumerate(NAMES)
    ]
    found += [Candidate(spec_of(key, name), "meta-tool") for key, name in META.items()]
    kit = Bundle("kit", toolkit_id=1)
    return Offer((*found, Candidate(spec_of(LOADED, "kit_tool"), kit.source, kit)))


def chosen(
    message: str,
    mode: str = RoutingMode.HYBRID,
    *,
    denied: frozenset[int] = frozenset(),
    pinned: frozenset[int] = frozenset(),
    before: Before | None = None,
    decided: Decided | None = None,
    keeps: bool = False,
    limit: int = 128,
    **fields: Any,
) -> Selection:
    offer, model = make_offer(pinned), a_model(tool_limit=limit)
    agent = Agent(name="A", slug="a", routing_mode=mode, **fields)
    permissions = MemberPermissions(Rights((RoleRules("all", "all"),), {}, dict.fromkeys(denied, "deny")), NOWHERE)
    model = replace(model, provider=replace(model.provider, keeps_routed_tools=keeps))
    asked = bool(message or decided) and mode != RoutingMode.OFF
    routing = RoutingInputs(offer.routable, KEYWORDS, before or Before(), decided) if asked else None
    return select(Situation(permissions, agent, model, message, routing=routing), offer)


def names(selection: Selection) -> list[str]:
    return [tool.name for tool in selection.tools]


@given(MESSAGES, MODES, KEYS, KEYS, KEYS, st.booleans(), st.booleans(), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_cx_15_routing_sends_no_tool_that_would_not_be_sent_without_it(
    message: str,
    mode: RoutingMode,
    denied: frozenset[int],
    pinned: frozenset[int],
    sent: frozenset[int],
    is_unfinished: bool,
    keeps: bool,
    limit: int,
) -> None:
    before = Before((message,), "Shall I?", tuple(sent), ("db_query", "unknown"), is_unfinished)
    more: dict[str, Any] = {"denied": denied, "pinned": pinned}

    routed = chosen(message, mode, before=before, keeps=keeps, limit=limit, **more)
    anything = chosen("", RoutingMode.OFF, **more)

    assert set(names(routed)) <= set(names(anything)) | {SEARCH_TOOLS}
    assert not denied & {tool.tool_id for tool in routed.tools}
    assert len(routed.tools) <= limit
    assert {tool.name for tool in routed.all_tools} <= set(names(anything))
    if limit == 12:
        kept = {NAMES[key] for key in pinned - denied if key < len(NAMES)}
        assert kept | {"kit_tool"} <= set(names(routed))
    json.dumps(routed.routing).encode()


@given(MESSAGES, MODES, KEYS, st.frozensets(st.sampled_from([*NAMES, READ_RESULT, "unknown"]), max_size=3))
@settings(max_examples=100, deadline=None)
def test_what_was_decided_holds_and_grows_only_by_what_was_asked_for(
    message: str, mode: RoutingMode, denied: frozenset[int], wanted: frozenset[str]
) -> None:
    first = chosen(message, mode)

    later = chosen(
        "Something else", mode, decided=Decided(json.loads(json.dumps(first.routing)), wanted), denied=denied
    )
    again = chosen("", mode, decided=Decided(later.routing))

    forbidden = {NAMES[key] for key in denied if key < len(NAMES)}
    plain = {SEARCH_TOOLS, READ_RESULT}
    assert set(names(later)) - plain == (set(names(first)) | (wanted & set(NAMES))) - forbidden - plain
    assert set(names(again)) - plain >= set(names(later)) - plain
    assert later.routing["kept"] == first.routing["kept"]


def test_a_message_without_a_wish_sends_what_is_loaded_alone() -> None:
    selection = chosen("good morning", RoutingMode.KEYWORDS)

    assert names(selection) == [READ_RESULT, "kit_tool"]
    assert selection.routing["dropped"] == len(NAMES)
    assert selection.routing["all_tokens"] == 40 * (len(NAMES) + 2)


def test_the_search_goes_where_nothing_was_left_out() -> None:
    selection = chosen("light git task sql", RoutingMode.KEYWORDS)

    assert SEARCH_TOOLS not in names(selection)
    assert selection.tools == selection.all_tools


def test_a_keyword_is_named_as_the_reason() -> None:
    selection = chosen("show the commits", RoutingMode.KEYWORDS)

    assert selection.routing["why"] == {
        "git_log": "keyword “commit” in category git",
        "git_diff": "keyword “commit” in category git",
    }


def test_verdicts_that_are_stored_do_not_change_with_the_message() -> None:
    one, other = chosen("show the commits", RoutingMode.KEYWORDS), chosen("good morning", RoutingMode.KEYWORDS)

    assert one.lasting_verdicts == other.lasting_verdicts
    stored = [
        {"tool": each.tool, "stage": each.stage, "kept": each.kept, "reason": each.reason}
        for each in one.lasting_verdicts
    ]
    assert {each["tool"] for each in router_verdicts(one.routing, stored) if each["kept"]} == {"git_log", "git_diff"}
    assert len(router_verdicts(one.routing, stored)) == len(NAMES)


def test_where_tools_never_change_a_message_leaves_nothing_out() -> None:
    selection = chosen("good morning", loading_mode=LoadingMode.CONSTANT)

    assert set(NAMES) <= set(names(selection))
    assert selection.routing == {}


def test_the_search_is_not_sent_for_routing_where_no_message_is_asked_about() -> None:
    assert SEARCH_TOOLS not in names(chosen("", RoutingMode.HYBRID))
