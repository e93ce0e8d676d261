"""The names that the source documents promise are all there."""

from __future__ import annotations

import pytest
from django.test import Client

from capabilities.choosing.routing.keywords import Keywords
from capabilities.models import Tool
from capabilities.running.registry import registry
from capabilities.starter import FirstAdmin, create_organisation
from toolhub.tenants.rows.scope import organisation_scope

#: docs/requirements.md, CX-03 and CX-23: 18 categories, 63 tools.
CORTEX = {
    "web": "web_search web_read http_fetch",
    "web_post": "http_post",
    "file": "file_read file_list file_write file_diff file_grep file_syntax_check file_stat",
    "git": "git_status git_log git_diff",
    "system": "cortex_status cortex_logs cortex_restart cortex_update shell_exec",
    "tasks": "task_list task_create task_update task_complete",
    "cron": "cron_list cron_add cron_remove cron_toggle",
    "reminders": "reminders_add reminders_list reminders_remove reminders_clear",
    "scratchpad": "scratch_read scratch_write scratch_append scratch_clear",
    "ha": "ha_get_state ha_get_states ha_call_service",
    "aether": "ae_journal_list ae_journal_search ae_journal_entry_read ae_journal_entries_list ae_journal_entry_create "
    "ae_journal_entry_update ae_journal_entry_disable ae_journal_entry_append ae_journal_entry_prepend",
    "aether_db": "ae_db_query ae_db_describe ae_db_show_view",
    "notifications": "web_push email_send nc_talk_send nc_talk_history",
    "agents": "spawn_agent",
    "notes": "agent_notes_read agent_notes_write agent_notes_append agent_notes_clear",
    "session": "session_read session_search",
    "ae_tasks": "ae_task_list",
    "claude": "claude_allow_dir",
}
#: The keywords of the document's table and of its code, which differ: both count.
KEYWORDS = {
    "web": "search, google, look up, what is, who is, weather, forecast, temperature, news, article, website, "
    "research, find, find on",
    "web_post": "post to, send to, webhook, trigger, notify, trigger webhook",
    "file": "read file, show file, open file, directory, grep, find in, search in, diff, compare, syntax check, "
    "list files, list file",
    "git": "git, commit, branch, pulled, repo, repository, pushed, merge, merged",
    "system": "restart, update, status, logs, deploy, shell, health, is it running, command, run, run command",
    "tasks": "task, todo, to-do, to do, add task, create task, what's on my list, pending",
    "cron": "schedule, cron, every day, every week, recurring, automate, job",
    "reminders": "remind, reminder, remember, don't forget",
    "scratchpad": "scratch, scratchpad, jot down, notepad, working notes, working note",
    "ha": "home assistant, light, thermostat, turn on, turn off, kitchen, bedroom, switch, sensor, temperature, "
    "temperature in, garage",
    "aether": "journal, note entry, log entry, aether, search journals, ae_, aether journal, search journal, "
    "ae_journal",
    "aether_db": "database, query, sql, select, db, table, schema, maria, run query",
    "notifications": "notify, send email, email, nextcloud, push, message, talk, push notification, talk message",
    "agents": "spawn, sub-agent, delegate, agent, spawn agent",
    "notes": "agent notes, private notes, my notes, agent_notes",
    "session": "remember, session, history, last time, what did we, earlier, yesterday, last week, previously",
    "ae_tasks": "ae task, kanban, board, ae_task",
    "claude": "claude, allow directory, permissions, claude allow, claude directory",
}
#: docs/requirements.md, ZK-07: 16 core categories; `files` and `search` are `file` and `web` here.
CORE = (
    "communication reminders tasks calendar grocery web file memory "
    "utility location people list food automation weather dynamic"
)


@pytest.mark.parametrize(("category", "names"), CORTEX.items())
def test_cx_23_each_category_has_its_tools(category: str, names: str) -> None:
    here = {tool.name for tool in registry.tools.values() if tool.category == category}

    assert set(names.split()) <= here


@pytest.mark.parametrize(("category", "keywords"), KEYWORDS.items())
def test_cx_23_each_category_has_the_keywords_of_both_spellings(category: str, keywords: str) -> None:
    assert set(keywords.split(", ")) <= set(registry.categories[category].keywords)
    assert KEYWORDS.keys() == CORTEX.keys()


@pytest.mark.parametrize("text", ["multitasking feedback", "establish a healthy habit", "a vegetable keyboard"])
def test_cx_24_a_part_of_a_word_calls_for_no_category(text: str) -> None:
    keywords = Keywords.of({name: spec.keywords for name, spec in registry.categories.items()})

    assert keywords.matches(text) == ()


@pytest.mark.django_db
def test_cx_03_the_catalogue_of_a_new_organisation_holds_all_63_and_its_page_says_the_real_count(
    client: Client,
) -> None:
    admin = create_organisation("Initech", "initech", FirstAdmin("peter@example.com", "a-long-password"))
    promised = {(category, name) for category, names in CORTEX.items() for name in names.split()}
    with organisation_scope(admin.organisation):
        here = set(Tool.objects.values_list("category__name", "name"))

    client.force_login(admin.user)
    page = client.get("/o/initech/tools/").content.decode()

    assert (promised - here, len({name for _, name in promised})) == (set(), 63)
    assert f"{len(here)} tools" in " ".join(page.split())


def test_zk_07_the_core_set_is_exactly_these_16() -> None:
    assert sorted(each.name for each in registry.categories.values() if each.is_core) == sorted(CORE.split())


@pytest.mark.parametrize("name", ["knowledgeGraph", "predictions", "codebase"])
def test_zk_08_and_zk_09_what_is_loaded_on_request_is_not_core(name: str) -> None:
    assert not registry.categories[name].is_core


@pytest.mark.parametrize("name", ["docker", "aws_lambda", "github", "duckduckgo", "arxiv", "wikipedia"])
def test_mr_29_the_tools_of_the_example_are_there(name: str) -> None:
    assert name in registry.tools
