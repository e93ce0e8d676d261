from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from pytest_django import DjangoDbBlocker, Settings

from capabilities.access.policies.catalogue import catalogue_tools
from capabilities.access.policies.writes import PolicyContent, save_policy
from capabilities.agents.agents.queries import agent_or_404
from capabilities.agents.toolkits.writes import content_of
from capabilities.catalogue.tools.install import install_builtin
from capabilities.choosing.pipeline.candidates import candidates_for
from capabilities.choosing.pipeline.policies import read_policies
from capabilities.contract.loading import META_TOOLS
from capabilities.contract.policy import filtered
from capabilities.language_models.providers.environment import back_to_offline_model
from capabilities.language_models.providers.writes import ModelContent, save_model
from capabilities.models import Agent, AgentToolkit, LanguageModel, Provider, Role, Tool, Toolkit
from capabilities.starter import (
    FirstAdmin,
    add_agents,
    add_new_starters,
    create_organisation,
    use_provider_of_environment,
)
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.selection.queries import starting_selection
from sessions.selection.starts import start_of
from tests.cast import make_member
from tests.paths import ROOT
from toolhub.embedded.offline_model.replies import reply
from toolhub.tenants.models import Access, AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db]


@pytest.fixture(scope="module")
def first_admin(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Membership]:
    """Of an organisation that is made once for all tests of this module; each runs in a savepoint behind it."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield create_organisation("Initech", "initech", FirstAdmin("peter@example.com", "a-long-password"))
        transaction.set_rollback(True)


@pytest.fixture
def admin(first_admin: Membership, db: None) -> Membership:
    return deepcopy(first_admin)


def tools_of(admin: Membership, slug: str) -> set[str]:
    with organisation_scope(admin.organisation):
        return {each.spec.name for each in candidates_for(Agent.objects.get(slug=slug))}


def test_a_new_organisation_has_an_administrator_who_may_use_every_tool(admin: Membership) -> None:
    assert (admin.access, admin.user.check_password("a-long-password")) == (Access.ADMIN, True)
    with organisation_scope(admin.organisation):
        assert {role.slug: role.mode for role in Role.objects.all()} == {"everything": "all", "everyday": "listed"}
        assert list(Role.objects.filter(role_memberships__membership=admin).values_list("slug", flat=True)) == [
            "everything"
        ]


@pytest.mark.parametrize(
    ("slug", "tools"),
    [
        ("chat", set()),
        ("distill", set()),
        ("research", {"web_search", "web_read", "http_fetch"}),
    ],
)
def test_cx_04_the_starter_agents_offer_what_their_roles_need(admin: Membership, slug: str, tools: set[str]) -> None:
    assert tools_of(admin, slug) == tools


def test_cx_04_the_coder_has_files_and_git_and_the_admin_has_all(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        everything = set(Tool.objects.values_list("name", flat=True))

    assert {"file_read", "file_write", "file_diff", "file_syntax_check", "shell_exec"} <= tools_of(admin, "coder")
    assert "web_search" not in tools_of(admin, "coder")
    # What loads other tools is given by the service, where there is something to load.
    assert tools_of(admin, "admin") == everything - META_TOOLS


def test_cx_04_the_orchestrator_has_what_its_role_lists(admin: Membership) -> None:
    listed = {
        *("web_search", "file_read", "file_diff", "file_syntax_check", "shell_exec", "task_create", "cron_add"),
        *("reminders_add", "scratch_read", "ae_journal_search", "agent_notes_read", "cortex_status", "spawn_agent"),
        *("ha_call_service", "ae_db_query", "git_status", "email_send"),
    }

    assert listed <= tools_of(admin, "orchestrator")
    assert tools_of(admin, "orchestrator").isdisjoint({"http_post", "ae_task_list", "claude_allow_dir", "docker"})


def test_agents_with_many_tools_send_those_that_a_message_needs(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        modes = dict(Agent.objects.values_list("slug", "routing_mode"))

    assert {slug for slug, mode in modes.items() if mode == "hybrid"} == {
        "everyday",
        "starter",
        "orchestrator",
        "coder",
        "admin",
    }
    assert {mode for slug, mode in modes.items() if not tools_of(admin, slug)} == {"off"}


def test_new_session_proposes_an_agent_with_few_tools_that_serves_the_readme(admin: Membership) -> None:
    readme = (ROOT / "README.md").read_text()
    with organisation_scope(admin.organisation):
        agent = agents_to_talk_to(admin).first()
        assert agent is not None
        start = start_of(agent, admin)
    wires = [json.loads(each.spec.wire) for each in start.sent]

    def ask(message: str) -> list[str]:
        answer = reply({"messages": [{"role": "user", "content": message}], "tools": wires})
        return [call.name for call in answer.calls]

    assert (agent.slug, len(start.sent), start.tokens < 2_600) == ("everyday", 18, True)
    assert list(start.kept_back) == []
    assert ("Add a task: buy milk tomorrow" in readme, ask("Add a task: buy milk tomorrow")) == (True, ["task_create"])
    assert ("What is on my list?" in readme, ask("What is on my list?")) == (True, ["task_list"])
    assert ('{"agent": "everyday"}' in readme, ask("Add a task: water the plants on Friday")) == (
        True,
        ["task_create"],
    )
    assert ask("Remind me to call Ann tomorrow at 9") == ["reminders_add"]
    assert ask("What is on my calendar?") == ["calendar_list"]


@pytest.mark.parametrize("message", ["Hello", "Good morning", "Thanks, that was all", "How are you?"])
def test_cx_14_small_talk_with_the_first_agent_sends_nothing(admin: Membership, message: str) -> None:
    with organisation_scope(admin.organisation):
        agent = agents_to_talk_to(admin).first()
        assert agent is not None
        selection = starting_selection(admin, agent, message)

    assert [tool.name for tool in selection.tools] == []
    assert selection.tokens == 0


@pytest.mark.parametrize(
    ("message", "tool"),
    [
        ("Add a task: buy milk tomorrow", "task_create"),
        ("What is on my list?", "task_list"),
        ("Add a task: water the plants on Friday", "task_create"),
        ("Remind me to call Ann tomorrow at 9", "reminders_add"),
        ("What is on my calendar?", "calendar_list"),
        ("Add eggs and flour to the grocery list", "grocery_add"),
        ("What is 12 * 17?", "calculator"),
        ("What time is it?", "current_time"),
    ],
)
def test_what_the_readme_and_an_empty_chat_propose_is_served_by_what_routing_sends(
    admin: Membership, message: str, tool: str
) -> None:
    with organisation_scope(admin.organisation):
        sent = {
            slug: starting_selection(admin, agent_or_404(slug, admin), message)
            for slug in ("everyday", "starter", "admin")
        }
    wires = [json.loads(each.wire) for each in sent["everyday"].tools]

    answer = reply({"messages": [{"role": "user", "content": message}], "tools": wires})

    assert [call.name for call in answer.calls] == [tool]
    assert sent["everyday"].tokens < 800  # of 2,400 for all of its tools
    assert {slug for slug, each in sent.items() if tool in {spec.name for spec in each.tools}} == set(sent)
    shares = {slug: each.tokens / sum(spec.tokens for spec in each.all_tools) for slug, each in sent.items()}
    assert (shares["everyday"] < 0.6, shares["starter"] < 0.25, shares["admin"] < 0.15) == (True, True, True), shares


def test_an_organisation_with_a_starter_keeps_it_and_gets_the_new_agent_beside_it(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        for agent in Agent.objects.filter(slug="everyday"):
            agent.delete()
        for entry in AuditEntry.objects.filter(action="agent.create"):
            if entry.after["slug"] == "everyday":
                AuditEntry._base_manager.filter(pk=entry.pk)._raw_delete("default")

        add_new_starters(admin.organisation)

        assert list(agents_to_talk_to(admin).values_list("slug", flat=True)[:1]) == ["starter"]
        assert Agent.objects.filter(slug="everyday", model=Agent.objects.get(slug="starter").model).count() == 1


#: The text of MR-29.
DEVOPS = "Docker, AWS, and GitHub tools for infrastructure work"


def test_mr_29_the_assistant_starts_with_five_tools(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        agent = agent_or_404("assistant", admin)
        start = start_of(agent, admin)
        toolkits = {toolkit.name: content_of(toolkit) for toolkit in Toolkit.objects.all()}
        lines = AgentToolkit.objects.filter(agent=agent).order_by("position")
        allowed = list(lines.values_list("toolkit__name", "is_initial"))

    assert {name: [line.tool for line in content.tools] for name, content in toolkits.items()} == {
        "devops": ["docker", "aws_lambda", "github"],
        "research": ["duckduckgo", "arxiv", "wikipedia"],
    }
    assert toolkits["devops"].description == DEVOPS
    assert toolkits["research"].description == "Web search and academic paper tools"
    assert allowed == [("devops", False), ("research", True)]
    assert (agent.starts_with_core, agent.loading_mode) == (False, "next_request")
    # Beside what loads more, which an agent that may load a toolkit has.
    own = [each.spec.name for each in start.sent if not each.spec.is_meta]
    assert own == ["file_read", "duckduckgo", "arxiv", "wikipedia"]
    assert [(each.tool, each.reason) for each in start.kept_back] == [
        ("shell_exec", "needs set-up: Sandbox for commands")
    ]


def test_a_new_version_s_toolkits_and_agents_reach_an_older_organisation_once(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        for row in (*Agent.objects.filter(slug="assistant"), *Toolkit.objects.all()):
            row.delete()
        add_new_starters(admin.organisation)
        assert not Toolkit.objects.exists(), "what was removed stays away"
        forget(admin)

        add_new_starters(admin.organisation)
        add_new_starters(admin.organisation)

        assert list(Toolkit.objects.order_by("name").values_list("name", flat=True)) == ["devops", "research"]
        assert Agent.objects.filter(slug="assistant", model=Agent.objects.get(slug="starter").model).count() == 1
        assert AgentToolkit.objects.count() == 2
        assert AuditEntry.objects.filter(action="toolkit.create", actor=None).count() == 2


def forget(admin: Membership) -> None:
    """As an organisation was before there were toolkits: its audit knows nothing of them."""
    entries = AuditEntry.objects.filter(organisation=admin.organisation)
    for entry in (*entries.filter(action="toolkit.create"), *entries.filter(action="agent.create")):
        if entry.after.get("slug", "assistant") == "assistant":
            AuditEntry._base_manager.filter(pk=entry.pk)._raw_delete("default")


def test_a_toolkit_of_the_same_name_is_left_as_it_is(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        Toolkit.objects.filter(name="devops").update(description="Ours.")
        forget(admin)

        add_new_starters(admin.organisation)

        assert Toolkit.objects.get(name="devops").description == "Ours."


def test_what_exists_is_not_made_again(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        model = Agent.objects.get(slug="starter").model

        assert install_builtin(admin.organisation) == []
        assert add_agents(admin.organisation, model) == []


def test_a_new_version_s_need_of_a_service_reaches_an_older_organisation(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        Tool.objects.filter(name="web_search").update(service="")

        assert install_builtin(admin.organisation) == []

        assert Tool.objects.get(name="web_search").service == "searxng"


def test_an_existing_user_joins_with_the_password_they_have(admin: Membership) -> None:
    second = create_organisation("Penetrode", "penetrode", FirstAdmin("peter@example.com", "another-password"))

    assert second.user == admin.user
    second.user.refresh_from_db()
    assert second.user.check_password("a-long-password")


def test_the_provider_of_the_environment_takes_over_from_the_offline_model(
    admin: Membership, settings: Settings
) -> None:
    settings.OPENAI_BASE_URL = "http://127.0.0.1:9/v1"
    settings.OPENAI_MODEL = "qwen3"
    with organisation_scope(admin.organisation):
        use_provider_of_environment(admin.organisation)
        chosen = Agent.objects.select_related("model__provider").get(slug="starter").model
        assert (chosen.name, chosen.provider.base_url) == ("qwen3", "http://127.0.0.1:9/v1")

        offline = Provider.objects.get(slug="offline").models.get()
        save_model(offline.provider, offline, ModelContent("offline"), agents=[agent("starter")], actor=admin)
        settings.OPENAI_BASE_URL = "http://127.0.0.1:10/v1"
        use_provider_of_environment(admin.organisation)

        assert Provider.objects.get(slug="environment").base_url == "http://127.0.0.1:10/v1"
        assert agent("starter").model.name == "offline", "somebody chose it"


def agent(slug: str) -> Agent:
    return Agent.objects.select_related("model__provider").get(slug=slug)


def providers_of(admin: Membership) -> dict[str, str]:
    with organisation_scope(admin.organisation):
        return dict(Agent.objects.values_list("slug", "model__provider__slug"))


def test_a_start_without_a_provider_says_so_and_one_button_leads_back(
    admin: Membership, settings: Settings, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.OPENAI_BASE_URL = "http://127.0.0.1:9/v1"
    with organisation_scope(admin.organisation):
        use_provider_of_environment(admin.organisation)
        mine = LanguageModel.objects.get(provider__slug="environment")
        offline = Provider.objects.get(slug="offline").models.get()
        save_model(offline.provider, offline, ModelContent("offline"), agents=[agent("coder")], actor=admin)
        save_model(mine.provider, mine, ModelContent("qwen3"), agents=[agent("coder")], actor=admin)
    call_command("bootstrap")
    assert "still use" not in capsys.readouterr().out
    settings.OPENAI_BASE_URL = ""
    client.force_login(admin.user)

    call_command("bootstrap")

    count = len(providers_of(admin)) - 1
    assert f"{count} agent(s) still use" in capsys.readouterr().out
    shown = " ".join(client.get("/o/initech/providers/").content.decode().split())
    assert f"{count} agents still use http://127.0.0.1:9/v1" in shown
    assert client.post("/o/initech/providers/offline/").status_code == 302
    assert providers_of(admin).pop("coder") == "environment", "somebody chose it"
    assert set(providers_of(admin).values()) == {"environment", "offline"}
    assert "Use the offline model again" not in client.get("/o/initech/providers/").content.decode()

    settings.OPENAI_BASE_URL = "http://127.0.0.1:9/v1"
    call_command("bootstrap")
    assert set(providers_of(admin).values()) == {"environment"}, "the way back was nobody's choice of a model"
    settings.OPENAI_BASE_URL = ""
    call_command("bootstrap", "--offline")
    assert {slug for slug, provider in providers_of(admin).items() if provider == "environment"} == {"coder"}


def test_the_way_back_needs_the_right_providers(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        member = make_member(admin.organisation, "milton", Access.OPERATOR)
        viewer = make_member(admin.organisation, "bill", Access.MEMBER)
        assert back_to_offline_model(actor=member) == []
        with pytest.raises(PermissionDenied):
            back_to_offline_model(actor=viewer)


def test_zs_30_zs_31_minimal_keeps_seven_tools_of_a_new_organisation_and_each_only_reads(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        save_policy(None, PolicyContent("minimal"), actor=admin)
        layers = read_policies().layers_for(None)
        found = filtered(catalogue_tools(), layers)

    assert {(tool.name, tool.effect) for tool in found.tools} == {
        ("file_read", "read"),
        ("file_grep", "read"),
        ("web_read", "read"),
        ("web_search", "read"),
        ("memory_search", "read"),
        ("knowledge", "read"),
        ("ask_user", "read"),
    }
