"""Each tool of the catalogue, called through a real turn: the model asks, the loop checks, runs and stores.

What talks to the world outside is set up with a local service that behaves like the real one. A tool that no
conversation here calls, or of whose result nothing is expected, fails the test.
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

from capabilities.assistant.models import Message
from capabilities.catalogue.tools.install import install_builtin
from capabilities.models import Agent, AgentTool, LoadingMode, Tool
from capabilities.running.push.writes import add_browser
from capabilities.running.registry import registry
from capabilities.running.services.writes import save_service
from sessions.asking.approvals.queries import waiting_in_session
from sessions.asking.approvals.writes import approve, respond
from sessions.models import ApprovalKind, ChatSession, StepStatus, Turn, TurnStatus
from tests.capabilities.assistant.builtin.fakes.devops import Docker, GitHub, Lambda
from tests.capabilities.assistant.builtin.fakes.home_assistant import HomeAssistant
from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply
from tests.capabilities.assistant.builtin.fakes.nextcloud import Nextcloud
from tests.capabilities.assistant.builtin.fakes.open_meteo import OpenMeteo
from tests.capabilities.assistant.builtin.fakes.push import PushService
from tests.capabilities.assistant.builtin.fakes.research import ArXiv, DuckDuckGo, Wikipedia
from tests.capabilities.assistant.builtin.fakes.searxng import SearXNG
from tests.capabilities.assistant.builtin.fakes.smtp import MailServer
from tests.cast import allow_toolkit, make_agent, make_role, make_session, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of, work, work_all
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.lasting, pytest.mark.django_db(transaction=True)]

#: The conversation with the agent that has no tools of its own.
CALLING = "calling"


NEW_FILE = "--- /dev/null\n+++ b/notes/b.py\n@@ -0,0 +1 @@\n+x = 1\n"


class Page(FakeService):
    """A page of the web, and a place to post to."""

    def answer(self, asked: Asked) -> Reply:
        return Reply(200, b"<title>Page</title><p>Hello</p>", {"Content-Type": "text/html"})


#: A tool, what it is called with, and a text that its result must have.
Call = tuple[str, dict[str, Any], str]


@dataclass(frozen=True)
class Surroundings:
    """Where the outside is, in this test."""

    web: Page
    mail: MailServer
    workspace: Path
    services: dict[str, dict[str, str]]


@pytest.fixture
def world(settings: Settings, tmp_path: Path, alice: Membership) -> Iterator[Surroundings]:
    settings.WORKSPACES_DIR = tmp_path / "workspaces"
    workspace = settings.WORKSPACES_DIR / str(alice.organisation_id)
    workspace.mkdir(parents=True)
    make_repository(workspace / "repo")
    (workspace / "handbook.md").write_text("Vacation takes 30 days.")
    database = workspace / "shop.sqlite3"
    with sqlite3.connect(database) as connection:
        connection.executescript("CREATE TABLE shop (id INTEGER, name TEXT); CREATE VIEW cheap AS SELECT * FROM shop;")
        connection.execute("INSERT INTO shop VALUES (1, 'tea')")
    with ExitStack() as stack:
        enter = stack.enter_context
        hub, engine, cloud, home = enter(GitHub()), enter(Docker()), enter(Lambda()), enter(HomeAssistant())
        talk, meteo, engine_of_search = enter(Nextcloud()), enter(OpenMeteo()), enter(SearXNG())
        papers, encyclopedia, duck, mail = enter(ArXiv()), enter(Wikipedia()), enter(DuckDuckGo()), enter(MailServer())
        push = enter(PushService())
        with organisation_scope(alice.organisation):
            add_browser(alice, push.browser("phone").subscription)
        yield Surroundings(
            enter(Page()),
            mail,
            workspace,
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
                "web_push": {"contact": "ops@acme.example"},
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


def conversations(world: Surroundings) -> dict[str, list[Call]]:
    """Calls in an order that makes sense, by a name for the turn that makes them."""
    points = [{"at": f"2026-11-{day:02}", "value": day} for day in range(1, 9)]
    return {
        "utility": [
            ("calculator", {"expression": "2 + 3"}, "2 + 3 = 5"),
            ("current_time", {}, '"timezone": "UTC"'),
            ("date_arithmetic", {"date": "2026-11-22", "days": 3}, '"2026-11-25"'),
            ("unit_convert", {"value": 1, "from_unit": "km", "to_unit": "m"}, "1 km = 1000 m"),
            ("uuid", {}, '{"uuids": ["'),
        ],
        "tasks": [
            ("task_create", {"title": "buy milk", "due": "2126-12-01"}, '"number": 1, "title": "buy milk"'),
            ("task_update", {"number": 1, "priority": "high"}, '"priority": "high"'),
            ("task_list", {}, '"due": "2126-12-01", "status": "open"'),
            ("ae_task_list", {}, '"later": {"tasks": [{"number": 1'),
            ("task_complete", {"number": 1}, '"status": "done"'),
            ("task_list", {"status": "done"}, '"number": 1'),
        ],
        "scratchpad": [
            ("scratch_write", {"text": "a"}, "holds 1 char"),
            ("scratch_append", {"text": "b"}, "Added."),
            ("scratch_read", {}, "a\nb"),
            ("scratch_clear", {}, "is empty"),
            ("scratch_read", {}, "is empty"),
        ],
        "notes": [
            ("agent_notes_write", {"text": "a"}, "hold 1 char"),
            ("agent_notes_append", {"text": "b"}, "Added."),
            ("agent_notes_read", {}, "a\nb"),
            ("agent_notes_clear", {}, "are empty"),
            ("agent_notes_read", {}, "no notes"),
        ],
        "memory": [
            ("memory_store", {"text": "Alice likes tea"}, '"number": 1'),
            ("memory_search", {"query": "tea"}, '"text": "Alice likes tea"'),
            ("knowledge", {"query": "tea"}, '"from": "memory", "number": 1'),
            ("memory_forget", {"number": 1}, '"forgotten": {"number": 1'),
            ("memory_search", {"query": "tea"}, '"memories": []'),
        ],
        "file": [
            ("file_write", {"path": "notes/a.py", "text": "def hello():\n    return 1\n"}, '"bytes": 26'),
            ("file_read", {"path": "notes/a.py"}, 'return 1\\n", "total_lines": 2'),
            ("file_list", {}, '{"path": "notes", "type": "folder"}'),
            ("apply_patch", {"patch": NEW_FILE}, '"path": "notes/b.py", "change": "created", "added": 1'),
            ("file_stat", {"path": "notes/a.py"}, '"type": "file", "bytes": 26'),
            ("file_grep", {"pattern": "hello"}, '"file": "notes/a.py", "line": 1'),
            ("file_diff", {"path": "notes/a.py", "other_text": "def hello():\n    return 2\n"}, "+    return 2"),
            ("file_syntax_check", {"path": "notes/a.py"}, '"ok": true'),
        ],
        "source": [
            ("code_search", {"query": "hello"}, '"text": "def hello():"'),
            ("code_outline", {"path": "notes/a.py"}, '"kind": "function", "name": "hello"'),
            ("code_references", {"name": "hello"}, '"declares": true'),
            ("git_status", {"repository": "repo"}, '"unstaged": "modified"'),
            ("git_log", {"repository": "repo"}, '"subject": "First"'),
            ("git_diff", {"repository": "repo"}, "-one\\n+two"),
            ("claude_allow_dir", {"path": "notes"}, '"additionalDirectories": ["notes"]'),
        ],
        "calendar": [
            ("calendar_add", {"title": "Lunch", "start": "2026-12-01 12:00"}, '"start": "2026-12-01T12:00+00:00"'),
            ("calendar_update", {"number": 1, "place": "Canteen"}, '"place": "Canteen"'),
            ("calendar_list", {"start": "2026-12-01"}, '"title": "Lunch"'),
            ("calendar_feed", {}, '.ics"'),
            ("calendar_remove", {"number": 1}, '"removed": {"number": 1, "title": "Lunch"'),
            ("calendar_list", {"start": "2026-12-01"}, '"events": []'),
        ],
        "web": [
            # What sends something out comes first: behind text from outside a person is asked.
            ("http_post", {"url": world.web.url, "body": {"a": 1}}, '"body": "<title>Page</title>'),
            ("web_read", {"url": world.web.url}, '"title": "Page", "text": "Hello"'),
            ("http_fetch", {"url": world.web.url}, '"body": "<title>Page</title>'),
            ("web_search", {"query": "lion"}, '"title": "Result 1"'),
        ],
        "aether": [
            ("ae_journal_entry_create", {"journal": "Work", "text": "Shipped it."}, '"characters": 11'),
            ("ae_journal_entry_append", {"number": 1, "text": "Really."}, '"characters": 19'),
            ("ae_journal_entry_prepend", {"number": 1, "text": "Today:"}, '"characters": 26'),
            ("ae_journal_entry_update", {"number": 1, "title": "Release"}, '"title": "Release"'),
            ("ae_journal_entry_read", {"number": 1}, '"text": "Today:\\nShipped it.\\nReally."'),
            ("ae_journal_list", {}, '{"name": "Work", "entries": 1'),
            ("ae_journal_entries_list", {"journal": "Work"}, '"title": "Release"'),
            ("ae_journal_search", {"query": "shipped"}, '"excerpt": "Today:'),
            ("ae_journal_entry_disable", {"number": 1}, "Entry 1 is hidden."),
            ("ae_journal_search", {"query": "shipped"}, '"found": []'),
        ],
        "household": [
            ("list_add", {"name": "Packing", "items": ["socks"]}, '"text": "socks"'),
            ("list_show", {}, '{"name": "Packing", "items": 1, "unchecked": 1}'),
            ("list_check", {"numbers": [1]}, '{"checked": ["socks"]}'),
            ("list_remove", {"numbers": [1]}, '{"removed": ["socks"]}'),
            ("grocery_add", {"items": [{"name": "milk"}]}, '"name": "milk"'),
            ("grocery_list", {}, '"name": "milk"'),
            ("grocery_check", {"numbers": [1]}, '{"bought": ["milk"]}'),
            ("grocery_remove", {"numbers": [1]}, '{"removed": ["milk"]}'),
            ("food_log_add", {"food": "apple", "kcal": 80}, '"day_kcal": 80'),
            ("food_log_list", {}, '"kcal": 80, "entries"'),
            ("recipe_save", {"name": "Tea", "ingredients": ["tea", "water"]}, '"ingredients": 2'),
            ("recipe_search", {"query": "tea"}, '{"name": "Tea"'),
            ("recipe_read", {"name": "Tea"}, '"ingredients": ["tea", "water"]'),
            ("grocery_list", {}, '"items": []'),
            ("list_show", {"name": "Packing"}, '"items": []'),
        ],
        "people": [
            ("people_add", {"name": "Ada"}, '"name": "Ada"'),
            ("people_update", {"number": 1, "email": "ada@example.org"}, '"email": "ada@example.org"'),
            ("people_search", {"query": "ada"}, '"number": 1, "name": "Ada"'),
            ("people_remove", {"number": 1}, '"removed": {"number": 1'),
            ("message_send", {"to": "bob@example.com", "text": "Hello"}, '"sent_to": "Bob"'),
            ("message_list", {}, '"messages": []'),
            ("people_search", {"query": "ada"}, '"people": []'),
        ],
        "places": [
            ("location_save", {"name": "Home", "latitude": 52.5, "longitude": 13.4}, '"name": "Home"'),
            ("location_save", {"name": "Work", "latitude": 52.4, "longitude": 13.3}, '"name": "Work"'),
            ("location_list", {}, '"latitude": 52.5, "longitude": 13.4}, {"name": "Work"'),
            ("location_distance", {"start": "Home", "end": "Work"}, '"kilometres": 13.0'),
            ("location_remove", {"name": "Home"}, '"removed": {"name": "Home"'),
            ("weather_current", {"place": "Paris"}, '"sky": "slight rain"'),
            ("weather_forecast", {"place": "Paris", "days": 1}, '"min_c": 4.5'),
            ("location_list", {}, '{"places": [{"name": "Work"'),
        ],
        "knowledge": [
            ("kg_add_entity", {"name": "Ada", "kind": "person"}, '"name": "Ada"'),
            ("kg_add_entity", {"name": "Engine", "kind": "thing"}, '"name": "Engine"'),
            (
                "kg_add_relation",
                {"source": "Ada", "label": "designed", "target": "Engine"},
                '["Ada", "designed", "Engine"]',
            ),
            ("kg_search", {"query": "Ada"}, '"relations": [["Ada", "designed", "Engine"]]'),
            ("kg_path", {"start": "Ada", "end": "Engine"}, '"found": true, "steps": 1'),
            ("kg_remove", {"name": "Engine"}, '"removed": "Engine", "relations": 1'),
            ("series_record", {"name": "weight", "points": points}, '"recorded": 8'),
            ("series_list", {}, '"latest": "2026-11-08"'),
            ("series_predict", {"name": "weight", "on": "2026-11-10"}, '"value": 10.0'),
            ("kg_search", {"query": "Engine"}, '"entities": []'),
        ],
        "clock": [
            ("reminders_add", {"text": "stretch", "when": "in 20 minutes"}, '"text": "stretch"'),
            ("reminders_list", {}, '"number": 1, "text": "stretch"'),
            ("reminders_remove", {"number": 1}, '"removed": 1'),
            ("reminders_clear", {}, '"removed": 0'),
            ("cron_add", {"name": "Morning", "schedule": "0 9 * * *", "message": "What is due?"}, '"name": "Morning"'),
            ("cron_list", {}, '"message": "What is due?"'),
            ("cron_toggle", {"number": 1, "enabled": False}, '"enabled": false'),
            ("cron_remove", {"number": 1}, '"removed": 1'),
            ("automation_save", {"name": "standup", "message": "List my tasks."}, '"saved": "standup"'),
            ("automation_list", {}, '"message": "List my tasks."'),
            ("automation_run", {"name": "standup"}, '"submitted": "standup"'),
            ("automation_remove", {"name": "standup"}, '"removed": "standup"'),
            ("reminders_add", {"text": "rest", "when": "in 20 minutes"}, '"text": "rest"'),
            ("reminders_clear", {}, '"removed": 1'),
            ("reminders_list", {}, '"reminders": []'),
            ("cron_list", {}, '"schedules": []'),
            ("automation_list", {}, '"routines": []'),
        ],
        "agents": [
            ("spawn_agent", {"agent": "starter", "message": "Add it up."}, '"answer": "OK."'),
        ],
        "service": [
            ("session_read", {}, '"title": "hello"'),
            ("session_search", {"query": "hello"}, '"answer": "Done."'),
            ("ask_user", {"question": "Which shop?"}, "The one at the corner."),
            ("cortex_status", {}, '"database": "up"'),
            ("cortex_logs", {}, '"event": "tool_done"'),
            ("cortex_restart", {"reason": "It is slow."}, '"status": "agreed"'),
            ("cortex_update", {"reason": "It is old."}, '"status": "agreed"'),
        ],
        "documents": [
            ("document_list", {}, '"path": "handbook.md"'),
            ("document_search", {"query": "vacation"}, '"excerpt": "Vacation takes 30 days."'),
            ("document_read", {"path": "handbook.md"}, '"text": "Vacation takes 30 days."'),
        ],
        "database": [
            ("ae_db_query", {"sql": "SELECT * FROM shop"}, '"rows": [[1, "tea"]]'),
            ("ae_db_describe", {"table": "shop"}, '{"name": "name", "type": "TEXT"}'),
            ("ae_db_show_view", {"view": "cheap"}, "CREATE VIEW cheap AS SELECT"),
        ],
        "home": [
            ("ha_get_states", {}, '"name": "Bedside lamp"'),
            ("ha_get_state", {"entity_id": "light.kitchen"}, '"state": "off"'),
            (
                "ha_call_service",
                {"domain": "light", "service": "turn_on", "entity_id": "light.kitchen"},
                '"state": "on"',
            ),
            ("ha_get_state", {"entity_id": "light.kitchen"}, '"state": "on"'),
        ],
        "messages": [
            (
                "email_send",
                {"to": ["bob@example.org"], "subject": "Hi", "body": "Hello"},
                '"sent_to": ["bob@example.org"]',
            ),
            ("web_push", {"title": "Done", "body": "All green"}, '"browsers": 1'),
            ("nc_talk_send", {"conversation": "Team", "message": "Hello"}, '"sent_to": "Team"'),
            ("nc_talk_history", {"conversation": "Team"}, '"text": "Hello"'),
        ],
        "research": [
            ("arxiv", {"query": "attention"}, '"Attention Is All You Need"'),
            ("wikipedia", {"query": "lion"}, '"title": "Lion 1"'),
            ("duckduckgo", {"query": "lion"}, '"text": "A large cat."'),
        ],
        "devops": [
            ("docker", {"action": "containers"}, '"name": "web"'),
            ("aws_lambda", {"action": "list"}, '"name": "resize"'),
            ("github", {"action": "repo", "repo": "acme/shop"}, '"stargazers": 5'),
        ],
        "loading": [
            ("list_toolkits", {}, '"name": "spare"'),
            ("load_tools", {"toolkit": "spare"}, '"status": "loaded"'),
            ("unload_tools", {"toolkit": "spare"}, '"status": "unloaded"'),
            ("load_tool_category", {"category": "utility"}, '"loaded_category": "utility"'),
            ("read_result", {"step": "1-2", "offset": 0}, 'this is the end]\n{"toolkits": [{"name": "spare"'),
        ],
        CALLING: [
            ("call_tool", {"name": "uuid", "arguments": {}}, '{"uuids": ["'),
            ("search_tools", {"query": "uuid"}, '"name": "uuid"'),
        ],
    }


def set_up(alice: Membership, world: Surroundings, provider: ScriptedOpenAI) -> tuple[Agent, Agent]:
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


def failures(session: ChatSession, provider: ScriptedOpenAI, calls: list[Call]) -> list[str]:
    """What of these calls, one a round, did not come to a good end or told something else."""
    provider.enqueue(*(Say(calls=[call(name, arguments)]) for name, arguments, _ in calls), Say("Done."))
    turn = run(session, "hello")
    if turn.status == TurnStatus.WAITING_CHILD:
        work_all()
    while turn.status in (TurnStatus.WAITING_APPROVAL, TurnStatus.WAITING_INPUT):
        answer_all(session)
        turn = work(turn)
    steps = tool_steps_of(turn)
    if len(steps) != len(calls):
        return [f"{turn.status}: {turn.error_message}"]
    return [
        f"{step.tool_name}: {step.status}: {expected} is not in {step.result[:300]}"
        for step, (_, _, expected) in zip(steps, calls, strict=True)
        if step.status != StepStatus.DONE or not expected or expected not in step.result
    ]


def answer_all(session: ChatSession) -> None:
    """What the session's member is asked: each call may run, and each question has one answer."""
    with organisation_scope(session.organisation_id):
        for asked in waiting_in_session(session):
            if asked.kind == ApprovalKind.QUESTION:
                respond(asked, actor=session.membership, response="The one at the corner.")
            else:
                approve(asked, actor=session.membership)


def effects(alice: Membership, bob: Membership, world: Surroundings) -> dict[str, Any]:
    """What the calls left behind that none of their results shows."""
    with organisation_scope(alice.organisation):
        asked_for = AuditEntry.objects.filter(action__startswith="service.agree_")
        return {
            "http_post": [(asked.method, asked.json) for asked in world.web.asked if asked.method != "GET"],
            "email_send": [(mail.recipients, mail.data.split(b"\r\n\r\n")[1].strip()) for mail in world.mail.mails],
            "message_send": list(Message.objects.filter(membership=bob).values_list("sender", "text")),
            "automation_run": Turn.objects.filter(message="List my tasks.", session__membership=alice).count(),
            "spawn_agent": Turn.objects.filter(message="Add it up.", parent_step__isnull=False).count(),
            "cortex_restart, cortex_update": sorted(entry.after["reason"] for entry in asked_for),
            "file_write": (world.workspace / "notes/a.py").read_text(),
            "claude_allow_dir": "notes" in (world.workspace / ".claude/settings.json").read_text(),
        }


@pytest.mark.exhaustive
def test_every_tool_that_works_is_called_through_a_real_turn(
    alice: Membership, bob: Membership, world: Surroundings, provider: ScriptedOpenAI, subtests: pytest.Subtests
) -> None:
    agent, calling = set_up(alice, world, provider)
    talks = conversations(world)

    for name, calls in talks.items():
        with subtests.test(name):
            session = make_session(alice, calling if name == CALLING else agent)
            assert failures(session, provider, calls) == []

    assert effects(alice, bob, world) == {
        "http_post": [("POST", {"a": 1})],
        "email_send": [(["bob@example.org"], b"Hello")],
        "message_send": [(alice.pk, "Hello")],
        "automation_run": 1,
        "spawn_agent": 1,
        "cortex_restart, cortex_update": ["It is old.", "It is slow."],
        "file_write": "def hello():\n    return 1\n",
        "claude_allow_dir": True,
    }
    called = {tool for calls in talks.values() for tool, _, expected in calls if expected}
    later = {
        tool.name
        for tool in registry.tools.values()
        if tool.service and not registry.services[tool.service].is_available
    }
    # It is off until an organisation allows it: tests/sessions/doors/builtin/test_making.py.
    assert called == set(registry.tools) - later - {"create_dynamic_tool"}
