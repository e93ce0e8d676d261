"""Toolkits: the writes and their rules, the API and the pages."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from capabilities.agents.agents.writes import AgentContent, allowed_toolkits, create_agent, deferred_tools, update_agent
from capabilities.agents.toolkits.queries import toolkit_or_404
from capabilities.agents.toolkits.writes import (
    ToolkitContent,
    ToolkitLine,
    content_of,
    create_toolkit,
    delete_toolkit,
    toolkit_conflicts,
    update_toolkit,
)
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent, AgentTool, AgentToolkit, Tool, Toolkit, ToolkitCategory, ToolkitTool
from capabilities.running.registry import registry
from capabilities.running.services.writes import clear_service, save_service
from tests.cast import hold_credential, make_agent, make_category, make_member, make_tool, make_toolkit
from tests.rest import Reply, Rest
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

ACME = "/o/acme/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def tools(acme: Organisation) -> Organisation:
    """docker, lambda and github in the category devops, fetch in web, spawn_agent in agents; none is core."""
    devops = make_category(acme, "devops", is_core=False)
    for name in ("docker", "aws_lambda", "github"):
        make_tool(acme, name, category=devops)
    make_tool(acme, "fetch", category=make_category(acme, "web", is_core=False))
    make_tool(acme, "spawn_agent", category=make_category(acme, "agents", is_core=False))
    make_category(acme, "dynamic", is_core=False)
    with organisation_scope(acme):
        Tool.objects.filter(name="github").update(service="github")
    hold_credential(acme, "github")
    return acme


def bundle(name: str = "ops", *lines: str | ToolkitLine, **fields: Any) -> ToolkitContent:
    own = tuple(line if isinstance(line, ToolkitLine) else ToolkitLine(line) for line in lines)
    return ToolkitContent(name, tools=own, **fields)


def allow(agent: Agent, *toolkits: Toolkit, initial: bool = False) -> None:
    for number, toolkit in enumerate(toolkits, start=1):
        AgentToolkit.objects.create(
            organisation_id=agent.organisation_id, agent=agent, toolkit=toolkit, is_initial=initial, position=number
        )


def loader(alice: Membership, slug: str = "loader", **fields: Any) -> Agent:
    model = make_agent(alice.organisation, slug=f"{slug}-model").model
    return create_agent(AgentContent(slug, slug.title(), model, starts_with_core=False, **fields), actor=alice)


# -- The writes -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tools", "in_acme")
def test_mr_27_a_toolkit_has_a_description_and_its_tools_in_their_order(alice: Membership) -> None:
    line = ToolkitLine("docker", timeout=60, max_result_chars=20_000)
    content = bundle("ops", "github", line, description="Infrastructure.", categories=("web",))

    toolkit = create_toolkit(content, actor=alice)

    assert content_of(toolkit) == content
    entry = AuditEntry.objects.get(action="toolkit.create")
    assert entry.after["tools"][1] == {"tool": "docker", "timeout": 60.0, "max_result_chars": 20_000}
    assert entry.after["categories"] == ["web"]


@pytest.mark.usefixtures("tools", "in_acme")
def test_a_change_is_recorded_once_and_raises_the_registry(alice: Membership) -> None:
    toolkit = create_toolkit(bundle("ops", "docker"), actor=alice)
    alice.organisation.refresh_from_db()
    version = alice.organisation.registry_version

    update_toolkit(toolkit, bundle("infra", "github", "docker"), actor=alice)
    update_toolkit(toolkit, bundle("infra", "github", "docker"), actor=alice)

    alice.organisation.refresh_from_db()
    assert alice.organisation.registry_version == version + 1
    row = AuditEntry.objects.get(action="toolkit.update")
    assert (row.before["name"], row.after["name"]) == ("ops", "infra")
    assert [line["tool"] for line in row.after["tools"]] == ["github", "docker"]


REFUSED = [
    (bundle("new"), "name", "invalid"),
    (bundle("a b"), "name", "invalid"),
    (bundle(""), "name", "invalid"),
    (bundle("dynamic_tools"), "name", "invalid"),
    (bundle("taken"), "name", "taken"),
    (bundle("x", description="x" * 2_001), "description", "invalid"),
    (bundle("x", ToolkitLine("docker", timeout=0.5)), "tools", "invalid"),
    (bundle("x", ToolkitLine("docker", timeout=601)), "tools", "invalid"),
    (bundle("x", ToolkitLine("docker", timeout=float("nan"))), "tools", "invalid"),
    (bundle("x", ToolkitLine("docker", max_result_chars=199)), "tools", "invalid"),
    (bundle("x", ToolkitLine("docker", max_result_chars=1_000_001)), "tools", "invalid"),
]


@pytest.mark.usefixtures("tools", "in_acme")
@pytest.mark.parametrize(("content", "field", "code"), REFUSED)
def test_an_invalid_toolkit_is_not_created(alice: Membership, content: ToolkitContent, field: str, code: str) -> None:
    create_toolkit(bundle("taken"), actor=alice)

    with pytest.raises(ChangeRefused) as refused:
        create_toolkit(content, actor=alice)

    assert (refused.value.field, refused.value.code) == (field, code)
    assert Toolkit.objects.count() == 1


@pytest.mark.usefixtures("tools", "in_acme")
@pytest.mark.parametrize(
    ("content", "field"),
    [
        (bundle("x", "spawn_agent"), "tools"),
        (bundle("x", "delegate"), "tools"),
        (bundle("x", "self_config"), "tools"),
        (bundle("x", "load_tools"), "tools"),
        (bundle("x", categories=("agents",)), "categories"),
        (bundle("x", categories=("dynamic",)), "categories"),
    ],
)
def test_mr_32_reserved_tools_are_in_no_toolkit_nor_the_categories_that_hold_them(
    alice: Membership, content: ToolkitContent, field: str
) -> None:
    with pytest.raises(ChangeRefused, match="cannot be in a toolkit") as refused:
        create_toolkit(content, actor=alice)

    assert refused.value.field == field


@pytest.mark.usefixtures("tools", "in_acme")
@pytest.mark.parametrize(
    ("content", "field"),
    [(bundle("x", "docker", "github", "docker"), "tools"), (bundle("x", categories=("web", "web")), "categories")],
)
def test_mr_33_a_tool_appears_once_in_a_toolkit(alice: Membership, content: ToolkitContent, field: str) -> None:
    with pytest.raises(ChangeRefused, match="is named twice") as refused:
        create_toolkit(content, actor=alice)

    assert refused.value.field == field


@pytest.mark.usefixtures("tools", "in_acme")
def test_mr_34_every_tool_and_category_exists_in_this_organisation(alice: Membership, globex: Organisation) -> None:
    make_tool(globex, "theirs", category=make_category(globex, "their_category"))
    contents = [
        (bundle("x", "missing"), "tools", "There is no tool missing."),
        (bundle("x", "theirs"), "tools", "There is no tool theirs."),
        (bundle("x", categories=("missing",)), "categories", "There is no category missing."),
        (bundle("x", categories=("their_category",)), "categories", "There is no category their_category."),
    ]

    for content, field, message in contents:
        with pytest.raises(ChangeRefused) as refused:
            create_toolkit(content, actor=alice)
        assert (refused.value.field, refused.value.code, str(refused.value)) == (field, "unknown", message)


@pytest.mark.usefixtures("tools", "in_acme")
def test_only_a_toolkit_that_no_agent_may_load_can_be_deleted(alice: Membership) -> None:
    toolkit = create_toolkit(bundle("ops", "docker"), actor=alice)
    agent = loader(alice, allowed_toolkits=("ops",))

    with pytest.raises(ChangeRefused, match="take it from Loader first") as refused:
        delete_toolkit(toolkit, actor=alice)
    assert refused.value.code == "in_use"

    update_agent(agent, AgentContent("loader", "Loader", agent.model, allowed_toolkits=()), actor=alice)
    delete_toolkit(toolkit, actor=alice)
    assert not Toolkit.objects.exists()
    assert AuditEntry.objects.get(action="toolkit.delete").before["name"] == "ops"


@pytest.mark.usefixtures("tools", "in_acme")
def test_toolkits_ask_for_their_right_and_for_the_whole_of_it(bob: Membership) -> None:
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.TOOLKITS, category="devops")

    with pytest.raises(PermissionDenied):
        create_toolkit(bundle("x", "docker"), actor=bob)


# -- What a toolkit's change would do to agents -----------------------------------------------------------------------


@pytest.mark.usefixtures("tools", "in_acme")
def test_mr_23_a_change_that_would_give_an_agent_one_tool_in_two_ways_is_refused_and_names_both(
    alice: Membership,
) -> None:
    create_toolkit(bundle("first", ToolkitLine("docker", timeout=30)), actor=alice)
    second = create_toolkit(bundle("second", "github"), actor=alice)
    loader(alice, allowed_toolkits=("first", "second"), initial_toolkits=("first", "second"))

    with pytest.raises(ChangeRefused) as refused:
        update_toolkit(second, bundle("second", ToolkitLine("docker", max_result_chars=5_000)), actor=alice)

    assert refused.value.field == "tools"
    for word in ("Loader", "docker", "first (timeout 30 s)", "second (5,000 characters)"):
        assert word in str(refused.value)
    assert content_of(Toolkit.objects.get(name="second")) == bundle("second", "github")


@pytest.mark.usefixtures("tools", "in_acme")
def test_mr_24_identical_duplicates_are_allowed(alice: Membership) -> None:
    line = ToolkitLine("docker", timeout=30)
    create_toolkit(bundle("first", line), actor=alice)
    second = create_toolkit(bundle("second", "github"), actor=alice)
    agent = loader(alice, tools=("github",), allowed_toolkits=("first", "second"), initial_toolkits=("first", "second"))

    update_toolkit(second, bundle("second", "github", line), actor=alice)

    assert toolkit_conflicts([agent]) == []


@pytest.mark.usefixtures("in_acme")
def test_own_core_and_category_tools_have_no_overrides(alice: Membership, tools: Organisation) -> None:
    make_tool(tools, "core_one")
    for name in ("docker", "core_one", "fetch"):
        toolkit = create_toolkit(bundle(f"of_{name}", ToolkitLine(name, timeout=30)), actor=alice)
        agent = make_agent(tools, slug=f"agent-{name}".replace("_", "-"))
        AgentTool.objects.create(organisation=tools, agent=agent, tool=Tool.objects.get(name="docker"))
        allow(agent, create_toolkit(bundle(f"web_of_{name}", categories=("web",)), actor=alice), toolkit, initial=True)

    found = toolkit_conflicts(list(Agent.objects.order_by("pk")))

    assert [(conflict.tool, conflict.first.title, conflict.second.title) for conflict in found] == [
        ("docker", "its own tools", "toolkit of_docker"),
        ("core_one", "the core categories", "toolkit of_core_one"),
        ("fetch", "toolkit web_of_fetch", "toolkit of_fetch"),
    ]


@pytest.mark.usefixtures("in_acme")
def test_a_line_beats_its_category_in_the_same_toolkit(alice: Membership, tools: Organisation) -> None:
    toolkit = create_toolkit(bundle("ops", ToolkitLine("docker", timeout=30), categories=("devops",)), actor=alice)
    agent = make_agent(tools)
    allow(agent, toolkit, initial=True)

    assert toolkit_conflicts([agent]) == []


@pytest.mark.usefixtures("in_acme")
def test_conflicts_take_the_same_queries_for_1_and_3_agents(alice: Membership, tools: Organisation) -> None:
    toolkit = create_toolkit(bundle("ops", ToolkitLine("docker", timeout=30)), actor=alice)
    agents = [make_agent(tools, slug=f"agent-{number}") for number in range(3)]
    for agent in agents:
        AgentTool.objects.create(organisation=tools, agent=agent, tool=Tool.objects.get(name="docker"))
        allow(agent, toolkit, initial=True)

    with CaptureQueriesContext(connection) as one:
        assert len(toolkit_conflicts(agents[:1])) == 1
    with CaptureQueriesContext(connection) as three:
        assert len(toolkit_conflicts(agents)) == 3

    assert len(one) == len(three) == 6


@pytest.mark.usefixtures("tools", "in_acme")
def test_mr_35_a_toolkit_of_an_agent_that_acts_for_the_member_alone_takes_no_shared_credential(
    alice: Membership,
) -> None:
    toolkit = create_toolkit(bundle("ops", "docker"), actor=alice)
    loader(alice, scope="member", allowed_toolkits=("ops",))

    for content in (bundle("ops", "docker", "github"), bundle("ops", categories=("devops",))):
        with pytest.raises(ChangeRefused, match=r"Loader may load it.* cannot hold github") as refused:
            update_toolkit(toolkit, content, actor=alice)
        assert refused.value.field == "tools"


@pytest.mark.usefixtures("in_acme")
def test_mr_35_only_a_service_that_holds_a_secret_acts_as_the_organisation(alice: Membership) -> None:
    for service in ("open_meteo", "github", "aws", "arxiv", "", "no_such_service"):
        tool = make_tool(alice.organisation, f"tool_{service}")
        Tool.objects.filter(pk=tool.pk).update(service=service)

    def shared() -> list[str]:
        return [spec.service for spec in specs(Tool.objects.order_by("pk")) if spec.acts_as_organisation]

    # AWS does nothing without its key; weather and public repositories need none.
    assert shared() == ["aws"]
    weather, github = registry.services["open_meteo"], registry.services["github"]
    save_service(weather, {"base_url": "https://weather.example.com"}, actor=alice)
    assert shared() == ["aws"]
    save_service(weather, {"base_url": "https://weather.example.com", "api_key": "w-123"}, actor=alice)
    save_service(github, {"token": "ghp_123"}, actor=alice)
    assert shared() == ["open_meteo", "github", "aws"]
    clear_service(weather, actor=alice)
    assert shared() == ["github", "aws"]


# -- What it weighs ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_acme")
def test_tokens_count_each_tool_once_and_nothing_that_no_toolkit_may_hold(
    alice: Membership, tools: Organisation
) -> None:
    create_toolkit(bundle("ops", "docker", "fetch", categories=("devops",)), actor=alice)
    create_toolkit(bundle("empty"), actor=alice)
    Tool.objects.filter(name="spawn_agent").update(category=Tool.objects.get(name="docker").category)
    counted = Tool.objects.filter(name__in=("docker", "aws_lambda", "github", "fetch"))

    ops, empty = toolkit_or_404("ops", alice), toolkit_or_404("empty", alice)

    wanted = sum(counted.values_list("current_version__tokens", flat=True))
    assert (ops.tool_count, ops.tokens) == (4, wanted)  # type: ignore[attr-defined]
    assert (empty.tool_count, empty.tokens) == (0, 0)  # type: ignore[attr-defined]


# -- REST -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def api(alice: Membership) -> Rest:
    return Rest(alice)


def send(api: Rest, method: str, path: str, body: Any = None) -> Reply:
    return api.ask(method, path, b"" if body is None else json.dumps(body).encode())


@pytest.mark.usefixtures("tools")
def test_a_toolkit_lives_its_life_over_rest(api: Rest, acme: Organisation, bob: Membership) -> None:
    tools = [{"tool": "docker", "timeout": 60, "max_result_chars": None}, {"tool": "fetch"}]
    body = {"name": "ops", "description": "Infrastructure.", "tools": tools, "categories": ["web"]}

    made = send(api, "POST", "toolkits", body)
    with organisation_scope(acme):
        allow(make_agent(acme, slug="coder"), Toolkit.objects.get(name="ops"))
    changed = send(api, "PATCH", "toolkits/ops", {"tools": [{"tool": "github"}]})
    renamed = send(api, "PATCH", "toolkits/ops", {"name": "infra", "categories": []})

    assert made.status == 201
    assert made.json["tools"] == [
        {"tool": "docker", "timeout": 60.0, "max_result_chars": None, "knobs": {}},
        {"tool": "fetch", "timeout": None, "max_result_chars": None, "knobs": {}},
    ]
    assert (made.json["categories"], made.json["used_by"]) == (["web"], [])
    assert changed.json["tools"] == [{"tool": "github", "timeout": None, "max_result_chars": None, "knobs": {}}]
    assert (changed.json["description"], changed.json["used_by"]) == ("Infrastructure.", ["coder"])
    assert renamed.json == changed.json | {"name": "infra", "categories": [], "tokens": renamed.json["tokens"]}
    assert Rest(bob).get("toolkits/infra").json == renamed.json
    assert send(api, "DELETE", "toolkits/infra").error == (409, "in_use", None)
    with organisation_scope(acme):
        AgentToolkit.objects.all().delete()
    assert send(api, "DELETE", "toolkits/infra").status == 204
    assert send(api, "GET", "toolkits/infra").error == (404, "not_found", None)


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"name": "x", "tools": [{"tool": "missing"}]}, (400, "unknown", "tools")),
        ({"name": "x", "categories": ["missing"]}, (400, "unknown", "categories")),
        ({"name": "x", "tools": [{"tool": "docker", "retries": 3}]}, (400, "unknown_field", "tools.0.retries")),
        ({"name": "x", "tools": [{}]}, (400, "required", "tools.0.tool")),
        ({"name": "x", "tools": [{"tool": "docker", "timeout": 601}]}, (400, "max_value", "tools.0.timeout")),
        ({"name": "x", "tools": [{"tool": "docker"}, {"tool": "docker"}]}, (400, "invalid", "tools")),
        ({"name": "dynamic_tools"}, (400, "invalid", "name")),
        ({"name": "ops"}, (400, "taken", "name")),
        ({}, (400, "required", "name")),
    ],
)
def test_a_body_that_cannot_be_a_toolkit_is_refused_with_its_field(
    api: Rest, body: dict[str, Any], error: tuple[int, str, str]
) -> None:
    assert send(api, "POST", "toolkits", {"name": "ops"}).status == 201

    assert send(api, "POST", "toolkits", body).error == error


@pytest.mark.usefixtures("tools")
def test_a_part_of_a_line_is_no_line_in_a_patch_either(api: Rest) -> None:
    assert send(api, "POST", "toolkits", {"name": "ops"}).status == 201

    for line in ({}, {"timeout": 5}):
        assert send(api, "PATCH", "toolkits/ops", {"tools": [line]}).error == (400, "required", "tools.0.tool")
    assert send(api, "PATCH", "toolkits/ops", {"tools": [{"tool": "docker"}]}).json["tools"] == [
        {"tool": "docker", "timeout": None, "max_result_chars": None, "knobs": {}}
    ]


@pytest.mark.usefixtures("tools")
def test_agents_tell_and_take_their_toolkits_over_rest(api: Rest, acme: Organisation) -> None:
    make_agent(acme)
    for name, tool in (("ops", "docker"), ("papers", "fetch")):
        send(api, "POST", "toolkits", {"name": name, "tools": [{"tool": tool}]})
    body = {"slug": "coder", "name": "Coder", "provider": "scripted", "model": "scripted", "tools": ["aws_lambda"]}
    fields = {
        "allowed_toolkits": ["papers", "ops"],
        "initial_toolkits": ["ops"],
        "deferred_tools": ["aws_lambda"],
        "loading_mode": "same_run",
        "scope": "member",
        "routing_mode": "hybrid",
        "routing_tokens": 800,
        "client_approvals": "hide",
        "pinned_tools": [],
    }

    made = send(api, "POST", "agents", body | fields)
    renamed = send(api, "PATCH", "agents/coder", {"name": "Other"})

    assert {name: made.json[name] for name in fields} == fields
    assert renamed.json == made.json | {"name": "Other"}
    plain = send(api, "POST", "agents", body | {"slug": "plain"}).json
    assert {name: plain[name] for name in fields} == {
        "allowed_toolkits": [],
        "initial_toolkits": [],
        "deferred_tools": [],
        "loading_mode": "next_request",
        "scope": "organisation",
        "routing_mode": "off",
        "routing_tokens": None,
        "client_approvals": "ask",
        "pinned_tools": [],
    }
    wrong = {
        "allowed_toolkits": ["missing"],
        "initial_toolkits": ["missing"],
        "deferred_tools": ["missing"],
        "loading_mode": "sometimes",
        "scope": "nobody",
        "routing_mode": "sometimes",
        "routing_tokens": 1,
        "client_approvals": "never",
        "pinned_tools": ["missing"],
    }
    for name, value in wrong.items():
        status, _, field = send(api, "PATCH", "agents/coder", {name: value}).error
        assert (status, field) == (400, name)


# -- Pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


@pytest.mark.usefixtures("tools")
def test_a_toolkit_is_added_with_its_tools_in_the_order_of_their_places(as_alice: Client, acme: Organisation) -> None:
    form = {"name": "ops", "description": "Infra.", "tools": ["docker", "github"], "categories": ["web"]}
    values = {"place-docker": "2", "place-github": "1", "timeout-docker": "60", "chars-docker": "20000"}

    answer = as_alice.post(f"{ACME}toolkits/new/", form | values)

    assert answer["Location"] == f"{ACME}toolkits/ops/"
    with organisation_scope(acme):
        assert content_of(Toolkit.objects.get()) == ToolkitContent(
            "ops", "Infra.", (ToolkitLine("github"), ToolkitLine("docker", 60.0, 20_000)), ("web",)
        )
    page = as_alice.get(f"{ACME}toolkits/ops/edit/").content.decode()
    assert page.index('value="github"') < page.index('value="docker"')
    assert 'value="20000"' in page


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"timeout-docker": "soon"}, "docker: give the timeout as seconds"),
        ({"timeout-docker": "-1"}, "docker: give the timeout as seconds"),
        ({"chars-docker": "2e4"}, "docker: give the characters as a whole number"),
        ({"timeout-docker": "0"}, "docker: give a timeout from 1 to 600 seconds"),
        ({"chars-docker": "5"}, "docker: give 200 to 1,000,000 characters"),
        ({"tools": ["docker", "missing"]}, "There is no tool missing."),
        ({"tools": ["docker", "a\x00b"]}, "There is no tool ab."),
        ({"categories": ["agents"]}, "agents cannot be in a toolkit"),
        ({"name": "dynamic_tools"}, "The name dynamic_tools is taken by the service itself."),
    ],
)
def test_an_error_stands_beside_its_field_and_what_was_typed_is_kept(
    as_alice: Client, acme: Organisation, values: dict[str, Any], message: str
) -> None:
    form = {"name": "ops", "description": "Typed.", "tools": ["docker"]} | values

    page = as_alice.post(f"{ACME}toolkits/new/", form)

    assert page.status_code == 422
    assert text_of(page.content).count(message) == 2, "once on top, once beside the field"
    assert "Typed." in page.content.decode()
    for name in values:
        if "-" in name:
            assert f'value="{values[name]}"' in page.content.decode()
    with organisation_scope(acme):
        assert not Toolkit.objects.exists()


@pytest.mark.usefixtures("tools")
def test_looking_for_tools_keeps_what_was_filled_in_and_saves_nothing(as_alice: Client, acme: Organisation) -> None:
    form = {"name": "", "description": "Typed.", "tools": ["docker"], "timeout-docker": "60", "tools-q": "fetch"}
    form["find"] = "tools"

    page = as_alice.post(f"{ACME}toolkits/new/", form, headers=HTMX)

    html = page.content.decode()
    assert page.status_code == 200
    assert 'value="60"' in html
    assert "Typed." in html
    found = html.partition('class="pick-list pick-found"')[2].partition("</ul>")[0]
    assert re.findall(r'value="(\w+)"', found) == ["fetch"]
    with organisation_scope(acme):
        assert not Toolkit.objects.exists()


@pytest.mark.usefixtures("tools", "in_acme")
def test_the_page_of_a_toolkit_tells_its_tools_their_state_and_who_uses_it(as_alice: Client, alice: Membership) -> None:
    Tool.objects.filter(name="docker").update(is_enabled=False)
    Tool.objects.filter(name="aws_lambda").update(service="aws")
    create_toolkit(bundle("ops", ToolkitLine("docker", timeout=60), "aws_lambda", categories=("web",)), actor=alice)
    loader(alice, allowed_toolkits=("ops",), initial_toolkits=("ops",))

    page = text_of(as_alice.get(f"{ACME}toolkits/ops/").content)

    assert re.search(r"ops 3 tools · \d+ tok [\w ]+ · 2 not sent yet", page)
    assert "docker Off" in page
    assert "1 min" in page
    assert "aws_lambda Needs set-up" in page
    assert "Web 1 tool" in page
    assert "Loader always loaded" in page
    assert "Used by 1 agent: Loader" in text_of(as_alice.get(f"{ACME}toolkits/ops/edit/").content)
    assert "Toolkits that contain it ops" in text_of(as_alice.get(f"{ACME}tools/docker/").content)
    assert "Toolkits that contain it ops" in text_of(as_alice.get(f"{ACME}tools/fetch/").content)
    assert "Toolkits that contain it" not in text_of(as_alice.get(f"{ACME}tools/github/").content)


@pytest.mark.usefixtures("tools", "in_acme")
def test_a_toolkit_is_removed_unless_agents_use_it(as_alice: Client, alice: Membership) -> None:
    create_toolkit(bundle("ops", "docker"), actor=alice)
    agent = loader(alice, allowed_toolkits=("ops",))

    refused = as_alice.post(f"{ACME}toolkits/ops/delete/", follow=True)
    AgentToolkit.objects.filter(agent=agent).delete()
    removed = as_alice.post(f"{ACME}toolkits/ops/delete/", follow=True)

    assert "take it from Loader first" in text_of(refused.content)
    assert "ops is removed." in text_of(removed.content)
    assert "No toolkit yet" in text_of(removed.content)


@pytest.mark.parametrize("path", ["toolkits/new/", "toolkits/ops/edit/"])
def test_a_member_reads_toolkits_and_without_the_right_changes_none(
    client: Client, bob: Membership, charlie: Membership, path: str
) -> None:
    with organisation_scope(bob.organisation):
        Toolkit.objects.create(organisation=bob.organisation, name="ops")
    client.force_login(bob.user)
    assert client.get(f"{ACME}{path}").status_code == 403
    assert client.get(f"{ACME}toolkits/ops/").status_code == 200
    assert "Add a toolkit" not in text_of(client.get(f"{ACME}toolkits/").content)
    client.force_login(charlie.user)
    for each in (path, "toolkits/", "toolkits/ops/"):
        assert client.get(f"{ACME}{each}").status_code == 404
    assert client.get("/o/globex/toolkits/ops/").status_code == 404


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("page", "queries"), [("toolkits/", 11), ("toolkits/kit_0/", 16), ("toolkits/kit_0/edit/", 17)]
)
def test_the_pages_take_the_same_queries_for_one_and_three(
    as_alice: Client,
    acme: Organisation,
    page: str,
    queries: int,
    count: int,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    own = {"organisation": acme}
    with organisation_scope(acme):
        for number in range(count):
            kit = Toolkit.objects.create(**own, name=f"kit_{number}")
            allow(make_agent(acme, slug=f"agent-{number}"), kit)
        first = Toolkit.objects.get(name="kit_0")
        for number in range(count):
            category = make_category(acme, f"category_{number}")
            ToolkitTool.objects.create(**own, toolkit=first, tool=make_tool(acme, f"tool_{number}", category=category))
            ToolkitCategory.objects.create(**own, toolkit=first, category=category)
    make_member(acme, "other", Access.MEMBER)

    with django_assert_num_queries(queries):
        assert as_alice.get(f"{ACME}{page}").status_code == 200


# -- The form of an agent ---------------------------------------------------------------------------------------------


@pytest.fixture
def form(alice: Membership, tools: Organisation) -> dict[str, Any]:
    """What a browser sends of an agent that may load `ops` and `papers`."""
    with organisation_scope(tools):
        create_toolkit(bundle("ops", "docker"), actor=alice)
        create_toolkit(bundle("papers", "fetch"), actor=alice)
    model = make_agent(tools).model
    words = {"name": "Coder", "slug": "coder", "model": model.public_id, "is_enabled": "on"}
    modes = {"loading_mode": "constant", "scope": "organisation"}
    own = {"tools": ["docker", "github"], "deferred_tools": ["github", "fetch"]}
    return words | modes | own | {"allowed_toolkits": ["ops", "papers"], "initial_toolkits": ["papers"]}


def test_an_agent_is_saved_with_its_toolkits_in_their_places(
    as_alice: Client, acme: Organisation, form: dict[str, Any]
) -> None:
    answer = as_alice.post(f"{ACME}agents/new/", form | {"toolkit-place-ops": "2", "toolkit-place-papers": "1"})

    assert answer["Location"] == f"{ACME}agents/coder/"
    with organisation_scope(acme):
        agent = Agent.objects.get(slug="coder")
        assert list(allowed_toolkits(agent).items()) == [("papers", True), ("ops", False)]
        assert (deferred_tools(agent), agent.loading_mode) == (["github"], "constant")
    page = text_of(as_alice.get(f"{ACME}agents/coder/").content)
    assert re.search(r"papers 1 tool, \d+ tok initial ops", page)
    assert re.search(r"ops 1 tool, \d+ tok may be loaded", page)
    assert "can load by name: github" in page
    assert "The sent tools never change" in page
    html = as_alice.get(f"{ACME}agents/coder/edit/").content.decode()
    assert html.index('value="papers"') < html.index('value="ops"')


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"allowed_toolkits": ["ops"]}, "papers is initial, but not among the allowed toolkits."),
        ({"allowed_toolkits": ["ops", "papers", "missing"]}, "There is no toolkit missing."),
        ({"scope": "member"}, "These tools act with a credential that the organisation shares"),
    ],
)
def test_mr_31_to_mr_35_are_told_beside_the_field_of_the_agent_s_form(
    as_alice: Client, acme: Organisation, form: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    page = as_alice.post(f"{ACME}agents/new/", form | fields)

    assert page.status_code == 422
    assert text_of(page.content).count(message) == 2, "once on top, once beside the field"
    with organisation_scope(acme):
        assert not Agent.objects.filter(slug="coder").exists()


def test_an_agent_is_let_load_it_on_its_page_and_tried_from_there(
    client: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    agent = make_agent(acme)
    toolkit = make_toolkit(acme, "garden", make_tool(acme, "rake"))
    page, address = "/o/acme/toolkits/garden/", "/o/acme/toolkits/garden/agents/"
    client.force_login(bob.user)
    of_bob = client.get(page).content.decode()
    refused = client.post(address, {"agent": agent.slug}).status_code
    client.force_login(alice.user)
    before = client.get(page).content.decode()

    answer = client.post(address, {"agent": agent.slug}, follow=True).content.decode()

    assert ("Let it load" in of_bob, refused) == (False, 403)
    assert ('value="starter"' in before, "Try it in a chat" in before) == (True, False)
    assert ("Starter may load garden" in answer, "Try it in a chat with Starter" in answer) == (True, True)
    with organisation_scope(acme):
        assert list(AgentToolkit.objects.values_list("agent", "toolkit", "is_initial")) == [
            (agent.pk, toolkit.pk, False)
        ]
