"""Toolkits and agents from a file: what becomes of them, what is refused, and that the same file changes nothing."""

from __future__ import annotations

import json
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from capabilities.agents.agents.writes import allowed_toolkits, own_tools, rooms_of
from capabilities.agents.sharing.agents_file import FileRefused, apply_file
from capabilities.agents.toolkits.writes import content_of
from capabilities.models import Agent, LanguageModel, Offer, Provider, Role, Tool, Toolkit, ToolsMode
from tests.cast import make_agent, make_category, make_tool
from toolhub.tenants.models import AuditEntry, Membership

pytestmark = pytest.mark.django_db

TOOLS = ("docker", "aws_lambda", "github", "duckduckgo", "arxiv", "wikipedia", "file_read", "shell_exec")
EXAMPLE: dict[str, Any] = {
    "toolkits": {
        "devops": {"description": "For infrastructure work", "tools": ["docker", "aws_lambda", "github"]},
        "research": {"description": "Web and papers", "tools": ["duckduckgo", "arxiv", "wikipedia"]},
    },
    "agents": {
        "assistant": {
            "display_name": "Assistant",
            "role": "A general-purpose helper",
            "model": "scripted",
            "tools": ["file_read", "shell"],
            "allowed_toolkits": ["devops", "research"],
            "initial_toolkits": ["research"],
            "rooms": ["lobby"],
        }
    },
}


@pytest.fixture(autouse=True)
def rows(alice: Membership, in_acme: Any) -> None:
    for name in TOOLS:
        make_tool(alice.organisation, name, category=make_category(alice.organisation, "devops", is_core=False))
    make_agent(alice.organisation)
    Role.objects.create(organisation=alice.organisation, slug="lobby", name="Lobby")


def written(tmp_path: Path, content: Any, form: str = "yaml") -> Path:
    path = tmp_path / f"agents.{form}"
    path.write_text(json.dumps(content) if form == "json" else yaml.safe_dump(content))
    return path


def entries() -> list[tuple[str, str]]:
    rows = AuditEntry.objects.filter(action__regex=r"^(toolkit|agent)\.").order_by("number")
    return list(rows.values_list("action", "actor_label"))


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_mr_27_mr_28_a_file_makes_toolkits_and_agents_with_audit(tmp_path: Path, alice: Membership, form: str) -> None:
    applied = apply_file(written(tmp_path, EXAMPLE, form), actor=alice)

    agent = Agent.objects.get(slug="assistant")
    assert [(each.kind, each.outcome) for each in applied] == [("toolkit", "new"), ("toolkit", "new"), ("agent", "new")]
    assert (agent.name, agent.role, agent.model.name) == ("Assistant", "A general-purpose helper", "scripted")
    assert (agent.offered_to, rooms_of(agent), agent.starts_with_core) == (Offer.ROLES, ["lobby"], False)
    assert own_tools(agent) == ["file_read", "shell_exec"]
    assert allowed_toolkits(agent) == {"devops": False, "research": True}
    assert [line.tool for line in content_of(Toolkit.objects.get(name="devops")).tools] == [
        "docker",
        "aws_lambda",
        "github",
    ]
    assert [action for action, _ in entries()] == ["toolkit.create", "toolkit.create", "agent.create"]
    assert {actor for _, actor in entries()} == {alice.user.email}


def test_the_same_file_again_changes_nothing_and_a_changed_one_what_it_names(tmp_path: Path, alice: Membership) -> None:
    apply_file(written(tmp_path, EXAMPLE), actor=alice)
    Agent.objects.filter(slug="assistant").update(prompt="Be brief.")
    before = entries()

    again = apply_file(written(tmp_path, EXAMPLE), actor=alice)
    assert ({each.outcome for each in again}, entries()) == ({"unchanged"}, before)

    changed = {"agents": {"assistant": {"role": "Another line", "rooms": []}}}
    (found,) = apply_file(written(tmp_path, changed), actor=alice)

    agent = Agent.objects.get(slug="assistant")
    assert (found.outcome, agent.role, agent.offered_to) == ("changed", "Another line", Offer.EVERYBODY)
    assert (agent.prompt, own_tools(agent), rooms_of(agent)) == ("Be brief.", ["file_read", "shell_exec"], [])
    assert Toolkit.objects.count() == 2


def with_change(*path: str, value: Any) -> dict[str, Any]:
    found = deepcopy(EXAMPLE)
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return found


ASSISTANT = ("agents", "assistant")


@pytest.mark.parametrize(
    ("at", "value", "key", "word"),
    [
        pytest.param("agents.assistant.allowed_toolkits", ["research", "ops"], "", "ops", id="mr_30"),
        pytest.param("agents.assistant.initial_toolkits", ["research", "ops"], "", "ops", id="mr_30_initial"),
        pytest.param(
            "agents.assistant.allowed_toolkits", ["devops"], "assistant.initial_toolkits", "research", id="mr_31"
        ),
        pytest.param("toolkits.devops.tools", ["load_tools"], "", "load_tools", id="mr_32"),
        pytest.param("toolkits.devops.tools", ["docker", "docker"], "", "docker", id="mr_33"),
        pytest.param("toolkits.devops.tools", ["dockr"], "", "dockr", id="mr_34"),
        pytest.param("agents.assistant.tools", ["file"], "", "file", id="mr_34_own"),
        pytest.param("agents.assistant.model", "sonnet", "", "sonnet", id="model"),
        pytest.param("agents.assistant.rooms", ["hall"], "", "hall", id="room"),
        pytest.param("agents.assistant.tool", ["x"], "", "tools", id="unknown_key"),
        pytest.param("agents.assistant.tools", "docker", "", "list", id="no_list"),
        pytest.param("models", {}, "", "only", id="other_section"),
        pytest.param("agents", ["assistant"], "", "object", id="no_object"),
        pytest.param("agents.assistant", None, "", "object", id="nothing"),
    ],
)
def test_mr_30_to_mr_34_what_is_wrong_is_said_by_file_and_key_and_nothing_is_applied(
    tmp_path: Path, alice: Membership, at: str, value: Any, key: str, word: str
) -> None:
    path = written(tmp_path, with_change(*at.split("."), value=value))
    before = entries()

    with pytest.raises(FileRefused) as refused:
        apply_file(path, actor=alice)

    (problem, *_) = refused.value.problems
    said, _, what = problem.removeprefix(f"{path}: ").partition(": ")
    assert ((key or at) in said, word in what) == (True, True), problem
    assert (entries(), Agent.objects.filter(slug="assistant").exists(), Toolkit.objects.count()) == (before, False, 0)


def test_mr_35_a_shared_credential_is_refused_for_an_agent_of_members(tmp_path: Path, alice: Membership) -> None:
    agent = make_agent(alice.organisation, slug="own", scope="member")
    Tool.objects.filter(name="aws_lambda").update(service="aws")

    with pytest.raises(FileRefused) as refused:
        apply_file(written(tmp_path, {"agents": {"own": {"tools": ["aws_lambda"]}}}), actor=alice)

    assert "agents.own.tools" in str(refused.value)
    assert own_tools(agent) == []


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path, alice: Membership) -> None:
    content = with_change("toolkits", "devops", "tools", value=["dockr"])
    content["agents"]["assistant"]["model"] = "sonnet"

    with pytest.raises(FileRefused) as refused:
        apply_file(written(tmp_path, content), actor=alice)

    assert len(refused.value.problems) >= 2


def test_a_model_of_several_providers_is_named_with_its_provider(tmp_path: Path, alice: Membership) -> None:
    second = Provider.objects.create(organisation=alice.organisation, slug="second", name="Second")
    LanguageModel.objects.create(organisation=alice.organisation, provider=second, name="scripted")
    with pytest.raises(FileRefused, match="provider/scripted"):
        apply_file(written(tmp_path, EXAMPLE), actor=alice)

    apply_file(written(tmp_path, with_change(*ASSISTANT, "model", value="second/scripted")), actor=alice)

    assert Agent.objects.get(slug="assistant").model.provider == second


def test_who_may_not_write_agents_applies_no_file(tmp_path: Path, alice: Membership, bob: Membership) -> None:
    with pytest.raises(FileRefused, match="TOOLHUB_AGENTS_FILE_BY"):
        apply_file(written(tmp_path, EXAMPLE), actor=bob)

    assert Toolkit.objects.count() == 0


@pytest.mark.parametrize("text", ["", "{", "a: [", "\x00", "- a", "toolkits: &a [*a]"])
def test_a_file_that_holds_no_agents_is_refused(tmp_path: Path, alice: Membership, text: str) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(text)

    with pytest.raises(FileRefused) as refused:
        apply_file(path, actor=alice)

    assert refused.value.problems[0].startswith(f"{path}: ")


def test_the_command_says_what_it_did_and_exits_with_what_is_wrong(tmp_path: Path, alice: Membership) -> None:
    path, out = written(tmp_path, EXAMPLE), StringIO()
    call_command("apply_agents", str(path), organisation="acme", by=alice.user.email, stdout=out)
    assert "+ agent assistant" in out.getvalue()

    for who, whose in (("nobody@example.com", "acme"), (alice.user.email, "nowhere")):
        with pytest.raises(CommandError):
            call_command("apply_agents", str(path), organisation=whose, by=who)
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("apply_agents", str(tmp_path / "none.yaml"), organisation="acme", by=alice.user.email)


@pytest.mark.parametrize("is_whole", [True, False])
def test_each_start_applies_the_file_of_the_setting_and_goes_on_where_it_is_wrong(
    tmp_path: Path, alice: Membership, settings: Any, is_whole: bool
) -> None:
    content = EXAMPLE if is_whole else with_change(*ASSISTANT, "model", value="sonnet")
    settings.TOOLHUB_AGENTS_FILE = str(written(tmp_path, content))
    settings.TOOLHUB_AGENTS_FILE_BY = alice.user.email
    out, err = StringIO(), StringIO()

    call_command("bootstrap", stdout=out, stderr=err)

    assert Agent.objects.filter(slug="assistant", role="A general-purpose helper").exists() is is_whole
    assert ("assistant.model" in err.getvalue()) is not is_whole


def test_a_file_that_lists_an_agents_tools_ends_every_tool(tmp_path: Path, alice: Membership) -> None:
    Agent.objects.update(tools_mode=ToolsMode.ALL)
    slug = Agent.objects.get().slug

    apply_file(written(tmp_path, {"agents": {slug: {"role": "Helps"}}}), actor=alice)
    assert Agent.objects.get().has_every_tool

    apply_file(written(tmp_path, {"agents": {slug: {"tools": ["docker"]}}}), actor=alice)
    agent = Agent.objects.get()
    assert (agent.has_every_tool, own_tools(agent)) == (False, ["docker"])
