"""Each tool of the catalogue, called through a real turn: the model asks, the loop checks, runs and stores.

What talks to the world outside is set up with a local service that behaves like the real one. A tool that no
conversation here calls fails the test.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from capabilities.catalogue import install_builtin
from capabilities.models import Agent, AgentTool, LoadingMode, Tool
from capabilities.registry import registry
from capabilities.services import save_service
from sessions.models import ChatSession, StepStatus, TurnStatus
from tests.capabilities.builtin.fakes.devops import Docker, GitHub, Lambda
from tests.capabilities.builtin.fakes.home_assistant import HomeAssistant
from tests.capabilities.builtin.fakes.http import Asked, FakeService, Reply
from tests.capabilities.builtin.fakes.nextcloud import Nextcloud
from tests.capabilities.builtin.fakes.open_meteo import OpenMeteo
from tests.capabilities.builtin.fakes.research import ArXiv, DuckDuckGo, Wikipedia
from tests.capabilities.builtin.fakes.searxng import SearXNG
from tests.capabilities.builtin.fakes.smtp import MailServer
from tests.cast import allow_toolkit, make_agent, make_role, make_session, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.turns import run, tool_steps_of, work_all
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

#: The conversation with the agent that has no tools of its own.
CALLING = "calling"


class Page(FakeService):
    """A page of the web, and a place to post to."""

    def answer(self, asked: Asked) -> Reply:
        return Reply(200, b"<title>Page</title><p>Hello</p>", {"Content-Type": "text/html"})


@dataclass(frozen=True)
class World:
    """Where the outside is, in this test."""

    page: str
    services: dict[str, dict[str, str]]


@pytest.fixture
def world(settings: Settings, tmp_path: Path, alice: Membership) -> Iterator[World]:
    settings.WORKSPACES_DIR = tmp_path / "workspaces"
    workspace = settings.WORKSPACES_DIR / str(alice.organisation_id)
    workspace.mkdir(parents=True)
    make_repository(workspace / "repo")
    database = workspace / "shop.sqlite3"
    with sqlite3.connect(database) as connection:
        connection.executescript("CREATE TABLE shop (id INTEGER, name TEXT); CREATE VIEW cheap AS SELECT * FROM shop;")
    with ExitStack() as stack:
        enter = stack.enter_context
        hub, engine, cloud, home = enter(GitHub()), enter(Docker()), enter(Lambda()), enter(HomeAssistant())
        talk, meteo, engine_of_search = enter(Nextcloud()), enter(OpenMeteo()), enter(SearXNG())
        papers, encyclopedia, duck, mail = enter(ArXiv()), enter(Wikipedia()), enter(DuckDuckGo()), enter(MailServer())
        yield World(
            enter(Page()).url,
            {
                "sql_database": {"url": f"sqlite:///{database}"},
                "github": {"base_url": hub.url, "token": hub.token},
                "docker": {"base_url": engine.url},
                "aws": {
                    "region": cloud.region,
                    "access_key": cloud.access_key,
                    "secret_key": cloud.secret_key,
                    "endpoint_url": cloud.url,
                },
                "home_assistant": {"base_url": home.url, "token": home.token},
                "smtp": {"host": "127.0.0.1", "port": str(mail.port), "from": "robot@example.org", "security": "none"},
                "nextcloud": {"base_url": talk.url, "user": talk.user, "password": talk.password},
                "open_meteo": {"base_url": meteo.url, "geocoding_url": meteo.url},
                "searxng": {"base_url": engine_of_search.url},
                "arxiv": {"base_url": papers.url},
                "wikipedia": {"base_url": encyclopedia.url},
                "duckduckgo": {"base_url": duck.url},
            },
        )


def make_repository(folder: Path) -> None:
    """A git repository with one commit and one change that is not committed."""
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(folder)]
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *command], check=True)
    (folder / "a.txt").write_text("two\n")


def conversations(world: World) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Calls in an order that makes sense, by a name for the turn that makes them."""
    return {
        "utility": [
            ("calculator", {"expression": "2 + 3"}),
            ("current_time", {}),
            ("date_arithmetic", {"date": "2026-11-22", "days": 3}),
            ("unit_convert", {"value": 1, "from_unit": "km", "to_unit": "m"}),
            ("uuid", {}),
        ],
        "tasks": [
            ("task_create", {"title": "buy milk", "due": "2026-12-01"}),
            ("task_update", {"number": 1, "priority": "high"}),
            ("task_list", {}),
            ("ae_task_list", {}),
            ("task_complete", {"number": 1}),
        ],
        "scratchpad": [
            ("scratch_write", {"text": "a"}),
            ("scratch_append", {"text": "b"}),
            ("scratch_read", {}),
            ("scratch_clear", {}),
        ],
        "notes": [
            ("agent_notes_write", {"text": "a"}),
            ("agent_notes_append", {"text": "b"}),
            ("agent_notes_read", {}),
            ("agent_notes_clear", {}),
        ],
        "memory": [
            ("memory_store", {"text": "Alice likes tea"}),
            ("memory_search", {"query": "tea"}),
            ("memory_forget", {"number": 1}),
        ],
        "file": [
            ("file_write", {"path": "notes/a.py", "text": "def hello():\n    return 1\n"}),
            ("file_read", {"path": "notes/a.py"}),
            ("file_list", {}),
            ("file_stat", {"path": "notes/a.py"}),
            ("file_grep", {"pattern": "hello"}),
            ("file_diff", {"path": "notes/a.py", "other_text": "def hello():\n    return 2\n"}),
            ("file_syntax_check", {"path": "notes/a.py"}),
        ],
        "source": [
            ("code_search", {"query": "hello"}),
            ("code_outline", {"path": "notes/a.py"}),
            ("code_references", {"name": "hello"}),
            ("git_status", {"repository": "repo"}),
            ("git_log", {"repository": "repo"}),
            ("git_diff", {"repository": "repo"}),
            ("claude_allow_dir", {"path": "notes"}),
        ],
        "calendar": [
            ("calendar_add", {"title": "Lunch", "start": "2026-12-01 12:00"}),
            ("calendar_update", {"number": 1, "place": "Canteen"}),
            ("calendar_list", {"start": "2026-12-01"}),
            ("calendar_feed", {}),
            ("calendar_remove", {"number": 1}),
        ],
        "web": [
            ("web_read", {"url": world.page}),
            ("http_fetch", {"url": world.page}),
            ("http_post", {"url": world.page, "body": {"a": 1}}),
            ("web_search", {"query": "lion"}),
        ],
        "aether": [
            ("ae_journal_entry_create", {"journal": "Work", "text": "Shipped it."}),
            ("ae_journal_entry_append", {"number": 1, "text": "Really."}),
            ("ae_journal_entry_prepend", {"number": 1, "text": "Today:"}),
            ("ae_journal_entry_update", {"number": 1, "title": "Release"}),
            ("ae_journal_entry_read", {"number": 1}),
            ("ae_journal_list", {}),
            ("ae_journal_entries_list", {"journal": "Work"}),
            ("ae_journal_search", {"query": "shipped"}),
            ("ae_journal_entry_disable", {"number": 1}),
        ],
        "household": [
            ("list_add", {"name": "Packing", "items": ["socks"]}),
            ("list_show", {}),
            ("list_check", {"numbers": [1]}),
            ("list_remove", {"numbers": [1]}),
            ("grocery_add", {"items": [{"name": "milk"}]}),
            ("grocery_list", {}),
            ("grocery_check", {"numbers": [1]}),
            ("grocery_remove", {"numbers": [1]}),
            ("food_log_add", {"food": "apple", "kcal": 80}),
            ("food_log_list", {}),
            ("recipe_save", {"name": "Tea", "ingredients": ["tea", "water"]}),
            ("recipe_search", {"query": "tea"}),
            ("recipe_read", {"name": "Tea"}),
        ],
        "people": [
            ("people_add", {"name": "Ada"}),
            ("people_update", {"number": 1, "email": "ada@example.org"}),
            ("people_search", {"query": "ada"}),
            ("people_remove", {"number": 1}),
            ("message_send", {"to": "bob@example.com", "text": "Hello"}),
            ("message_list", {}),
        ],
        "places": [
            ("location_save", {"name": "Home", "latitude": 52.5, "longitude": 13.4}),
            ("location_save", {"name": "Work", "latitude": 52.4, "longitude": 13.3}),
            ("location_list", {}),
            ("location_distance", {"start": "Home", "end": "Work"}),
            ("location_remove", {"name": "Home"}),
            ("weather_current", {"place": "Paris"}),
            ("weather_forecast", {"place": "Paris", "days": 1}),
        ],
        "knowledge": [
            ("kg_add_entity", {"name": "Ada", "kind": "person"}),
            ("kg_add_entity", {"name": "Engine", "kind": "thing"}),
            ("kg_add_relation", {"source": "Ada", "label": "designed", "target": "Engine"}),
            ("kg_search", {"query": "Ada"}),
            ("kg_path", {"start": "Ada", "end": "Engine"}),
            ("kg_remove", {"name": "Engine"}),
            (
                "series_record",
                {"name": "weight", "points": [{"at": f"2026-11-{day:02}", "value": day} for day in range(1, 9)]},
            ),
            ("series_list", {}),
            ("series_predict", {"name": "weight", "on": "2026-11-10"}),
        ],
        "clock": [
            ("reminders_add", {"text": "stretch", "when": "in 20 minutes"}),
            ("reminders_list", {}),
            ("reminders_remove", {"number": 1}),
            ("reminders_clear", {}),
            ("cron_add", {"name": "Morning", "schedule": "0 9 * * *", "message": "What is due?"}),
            ("cron_list", {}),
            ("cron_toggle", {"number": 1, "enabled": False}),
            ("cron_remove", {"number": 1}),
            ("automation_save", {"name": "standup", "message": "List my tasks."}),
            ("automation_list", {}),
            ("automation_run", {"name": "standup"}),
            ("automation_remove", {"name": "standup"}),
        ],
        "agents": [
            ("spawn_agent", {"agent": "starter", "message": "Add it up."}),
        ],
        "service": [
            ("session_read", {}),
            ("session_search", {"query": "hello"}),
            ("cortex_status", {}),
            ("cortex_logs", {}),
            ("cortex_restart", {"reason": "It is slow."}),
            ("cortex_update", {"reason": "It is old."}),
        ],
        "database": [
            ("ae_db_query", {"sql": "SELECT * FROM shop"}),
            ("ae_db_describe", {"table": "shop"}),
            ("ae_db_show_view", {"view": "cheap"}),
        ],
        "home": [
            ("ha_get_states", {}),
            ("ha_get_state", {"entity_id": "light.kitchen"}),
            ("ha_call_service", {"domain": "light", "service": "turn_on", "entity_id": "light.kitchen"}),
        ],
        "messages": [
            ("email_send", {"to": ["bob@example.org"], "subject": "Hi", "body": "Hello"}),
            ("nc_talk_send", {"conversation": "Team", "message": "Hello"}),
            ("nc_talk_history", {"conversation": "Team"}),
        ],
        "research": [
            ("arxiv", {"query": "transformers"}),
            ("wikipedia", {"query": "lion"}),
            ("duckduckgo", {"query": "lion"}),
        ],
        "devops": [
            ("github", {"action": "repo", "repo": "acme/shop"}),
            ("docker", {"action": "containers"}),
            ("aws_lambda", {"action": "list"}),
        ],
        "loading": [
            ("list_toolkits", {}),
            ("search_tools", {"query": "uuid"}),
            ("load_tools", {"toolkit": "spare"}),
            ("unload_tools", {"toolkit": "spare"}),
            ("load_tool_category", {"category": "utility"}),
        ],
        CALLING: [("call_tool", {"name": "uuid", "arguments": {}})],
    }


def set_up(alice: Membership, world: World, provider: ScriptedOpenAI) -> tuple[Agent, Agent]:
    """The whole catalogue and its services in Alice's organisation. An agent with every tool, and something to load;
    and one that only searches and calls."""
    with organisation_scope(alice.organisation):
        install_builtin(alice.organisation)
        for name, values in world.services.items():
            save_service(registry.services[name], values, actor=alice)
        agent = make_agent(alice.organisation, provider.url, starts_with_core=False)
        agent.model.max_rounds, agent.model.tool_limit = 25, 200
        agent.model.save()
        AgentTool.objects.bulk_create(
            AgentTool(organisation=alice.organisation, agent=agent, tool=tool) for tool in Tool.objects.all()
        )
        calling = make_agent(
            alice.organisation, slug="calling", starts_with_core=False, loading_mode=LoadingMode.CONSTANT
        )
        spare = make_toolkit(alice.organisation, "spare", Tool.objects.get(name="uuid"))
    for each in (agent, calling):
        allow_toolkit(each, spare)
    make_role(alice.organisation, alice)
    return agent, calling


def failures(session: ChatSession, provider: ScriptedOpenAI, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What of these calls, one a round, did not come to a good end."""
    provider.enqueue(*(Say(calls=[call(name, arguments)]) for name, arguments in calls), Say("Done."))
    turn = run(session, "hello")
    if turn.status == TurnStatus.WAITING_CHILD:
        work_all()
    steps = tool_steps_of(turn)
    told = [f"{step.tool_name}: {step.status}: {step.result[:300]}" for step in steps if step.status != StepStatus.DONE]
    return told if len(steps) == len(calls) else [*told, f"{turn.status}: {turn.error_message}"]


def test_every_tool_that_works_is_called_through_a_real_turn(
    alice: Membership, bob: Membership, world: World, provider: ScriptedOpenAI, subtests: pytest.Subtests
) -> None:
    agent, calling = set_up(alice, world, provider)
    talks = conversations(world)

    for name, calls in talks.items():
        with subtests.test(name):
            session = make_session(alice, calling if name == CALLING else agent)
            assert failures(session, provider, calls) == []

    called = {tool for calls in talks.values() for tool, _ in calls}
    later = {
        tool.name
        for tool in registry.tools.values()
        if tool.service and not registry.services[tool.service].is_available
    }
    assert called == set(registry.tools) - later
