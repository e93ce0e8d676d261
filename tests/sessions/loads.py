"""Sessions whose agent has something to load, and what came of loading it in whole turns."""

from __future__ import annotations

import json
from typing import Any

from capabilities.models import Agent, LoadingMode, Tool
from sessions.models import ChatSession, LoadedToolkit, Turn, TurnEvent
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadResult, LoadTarget
from sessions.selection.loading.writes import By
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_meta_tools,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

KIT = ("calculator", "current_time", "date_arithmetic", "unit_convert", "uuid")
#: What an agent of `make_loading_session` begins with: its own tool, and those that load others.
AT_FIRST = ["calculator", "list_toolkits", "load_tools", "unload_tools", "search_tools"]
CONSTANT = ["calculator", "list_toolkits", "search_tools", "call_tool"]


def make_loading_session(
    member: Membership, base_url: str, mode: LoadingMode = LoadingMode.NEXT_REQUEST, **fields: Any
) -> ChatSession:
    """The agent has `calculator`, and may load `clock` and `ids`, but not `units`; none of it is in a core category."""
    organisation = member.organisation
    make_meta_tools(organisation)
    home = make_category(organisation, "kit", is_core=False)
    tools = {name: make_tool(organisation, name, category=home) for name in KIT}
    agent = make_agent(organisation, base_url, **({"starts_with_core": False, "loading_mode": mode} | fields))
    give_tool(agent, tools["calculator"])
    clock = make_toolkit(
        organisation, "clock", tools["current_time"], tools["date_arithmetic"], description="Time and dates"
    )
    allow_toolkit(agent, clock)
    allow_toolkit(agent, make_toolkit(organisation, "ids", tools["uuid"]))
    make_toolkit(organisation, "units", tools["unit_convert"])
    return make_session(member, agent)


def kit_tool(organisation: Organisation, name: str) -> Tool:
    with organisation_scope(organisation):
        return Tool.objects.select_related("category", "current_version").get(name=name)


def set_mode(agent: Agent, mode: LoadingMode) -> None:
    with organisation_scope(agent.organisation_id):
        Agent.objects.filter(pk=agent.pk).update(loading_mode=mode)


def ask(session: ChatSession, provider: ScriptedOpenAI, *calls: Json) -> list[Json]:
    """A turn whose model makes these calls at once and then answers; what it was told, in order."""
    provider.enqueue(Say(calls=calls), Say("Done."))
    return answers_in(run(session))


def answers_in(turn: Turn) -> list[Json]:
    return [json.loads(step.result_sent) for step in tool_steps_of(turn)]


def carried(request: Json) -> list[str]:
    """Names of the tools that a model call carried."""
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def carried_next(session: ChatSession, provider: ScriptedOpenAI) -> list[str]:
    """Names of the tools that the session's next turn begins with."""
    seen = len(provider.requests)
    run(session, "And now?")
    return carried(provider.requests[seen])


def prompt_of(request: Json) -> str:
    first = request["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def payloads(turn: Turn, kind: str) -> list[Json]:
    with organisation_scope(turn.organisation_id):
        return list(TurnEvent.objects.filter(turn=turn, type=kind).order_by("number").values_list("payload", flat=True))


def loads_of(session: ChatSession) -> list[tuple[str, str, str]]:
    """Name, source and end of each load, the oldest first."""
    with organisation_scope(session.organisation_id):
        rows = LoadedToolkit.objects.filter(session=session).order_by("pk")
        return list(rows.values_list("name", "source", "unload_reason"))


def load(name: str, id: str = "load") -> Json:
    return call("load_tools", {"toolkit": name}, id=id)


def unload(name: str) -> Json:
    return call("unload_tools", {"toolkit": name}, id="unload")


def load_by_hand(session: ChatSession, name: str) -> LoadResult:
    """As its member does in the browser."""
    with organisation_scope(session.organisation_id):
        return loading.load(LoadTarget(session, session.agent), name, by=By(session.membership))


def unload_by_hand(session: ChatSession, name: str) -> LoadResult:
    with organisation_scope(session.organisation_id):
        return loading.unload(LoadTarget(session, session.agent), name, by=By(session.membership))


def make_fast_and_slow(session: ChatSession) -> None:
    """Two toolkits that want different things of `current_time`."""
    clock = kit_tool(session.organisation, "current_time")
    for name, seconds in (("fast", 5.0), ("slow", 9.0)):
        overrides: dict[str, dict[str, Any]] = {"current_time": {"timeout": seconds}}
        allow_toolkit(session.agent, make_toolkit(session.organisation, name, clock, overrides=overrides))


def reread(session: ChatSession) -> ChatSession:
    with organisation_scope(session.organisation_id):
        return ChatSession.objects.get(pk=session.pk)


def make_small_kits(session: ChatSession, count: int) -> None:
    """kit_1, kit_2, ...: each with a tool of its own."""
    home = make_category(session.organisation, "kit")
    for number in range(1, count + 1):
        tool = make_tool(session.organisation, f"part_{number}", category=home)
        allow_toolkit(session.agent, make_toolkit(session.organisation, f"kit_{number}", tool))
