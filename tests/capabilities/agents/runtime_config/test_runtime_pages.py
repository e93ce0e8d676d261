"""The pages of runtime settings: layers, forms with errors beside their fields, and one tool's whole resolution."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.agents.runtime_config.writes import ORGANISATION, LayerOf, set_runtime_config, set_tool_knobs
from capabilities.models import Agent, Provider, RuntimeConfig, Tool
from tests.cast import make_agent, make_category, make_tool, make_toolkit
from toolhub.tenants.models import Membership, Right

RUNTIME = "/o/acme/runtime/"
ORGANISATIONS = f"{RUNTIME}organisation/"


@pytest.fixture
def agent(alice: Membership) -> Agent:
    return make_agent(alice.organisation, slug="coder", name="Coder")


@pytest.fixture
def pages(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def stored() -> Any:
    return RuntimeConfig.objects.get(layer="organisation").values


@pytest.mark.usefixtures("in_acme")
def test_a_pattern_is_set_changed_renamed_and_removed(pages: Client) -> None:
    pages.post(ORGANISATIONS, {"pattern": "Shell", "knob_timeout_sec": "9", "knob_safe_bins": "ls, cat\nls"})
    assert stored() == {"tools": {"shell": {"timeout_sec": 9, "safe_bins": ["ls", "cat"]}}}

    page = pages.get(ORGANISATIONS, {"pattern": "shell"}).content.decode()
    assert 'value="9"' in page
    assert "ls\ncat</textarea>" in page

    pages.post(f"{ORGANISATIONS}?pattern=shell", {"pattern": "group:system", "knob_untrusted_output": "no"})
    assert stored() == {"tools": {"group:system": {"untrusted_output": False}}}

    answer = pages.post(f"{ORGANISATIONS}remove/", {"pattern": "group:system"})
    assert (answer.status_code, RuntimeConfig.objects.count()) == (302, 0)


@pytest.mark.usefixtures("in_acme")
def test_what_all_tools_share_is_set_beside_the_patterns(pages: Client) -> None:
    pages.post(ORGANISATIONS, {"pattern": "*", "knob_ask": "always"})
    pages.post(
        ORGANISATIONS,
        {"shared": "1", "profile": "zeus", "knob_result_context_share_ratio": "0.3", "knob_result_min_chars": ""},
    )

    assert stored() == {"profile": "zeus", "result_context_share_ratio": 0.3, "tools": {"*": {"ask": "always"}}}


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"pattern": ""}, "This field is required."),
        ({"pattern": "shell", "knob_timeout_sec": "soon"}, "&#x27;soon&#x27; is not a number."),
        ({"pattern": "shell", "knob_yield_ms": "1.5"}, "1.5 is not a whole number."),
        ({"pattern": "shell", "knob_ask": "maybe"}, "Select a valid choice."),
        ({"pattern": "shell", "knob_safe_bins": "ls /bin/rm"}, "&#x27;/bin/rm&#x27; is not the name of a program."),
        ({"pattern": "shell", "knob_safe_bins": "sh"}, "Sh runs other programs"),
        ({"pattern": "web_read", "knob_security": "full"}, "web_read has no security"),
        ({"shared": "1", "profile": "zeuss"}, "Select a valid choice."),
        ({"shared": "1", "knob_result_min_chars": "many"}, "&#x27;many&#x27; is not a whole number."),
    ],
)
def test_an_error_stands_beside_its_field_and_what_was_typed_stays(
    pages: Client, form: dict[str, str], error: str
) -> None:
    answer = pages.post(ORGANISATIONS, form)
    page = answer.content.decode()

    assert answer.status_code == 422
    assert error in page.split('class="field-error"', 1)[1]
    for typed in form.values():
        assert typed in page
    assert not RuntimeConfig.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_zs_22_what_is_out_of_range_is_shown_as_asked_as_in_force_and_why(pages: Client) -> None:
    answer = pages.post(ORGANISATIONS, {"pattern": "shell", "knob_timeout_sec": "9999"}, follow=True)

    page = answer.content.decode()
    assert "9,999 is above the maximum of 600" in page
    assert "asked for</span> 9,999" in page
    assert "600" in page


@pytest.mark.usefixtures("in_acme")
def test_zs_22_a_tool_shows_the_whole_resolution_for_an_agent_a_provider_and_a_toolkit(
    pages: Client, alice: Membership, agent: Agent
) -> None:
    tool = make_tool(alice.organisation, "web_read", category=make_category(alice.organisation, "web"))
    make_toolkit(alice.organisation, "dev", tool, overrides={"web_read": {"knobs": {"cache_ttl_sec": 5}}})
    set_tool_knobs(ORGANISATION, "group:web", {"max_redirects": 99}, actor=alice)
    set_tool_knobs(LayerOf(agent=agent), "web_fetch", {"max_result_chars": 777}, actor=alice)
    address = f"{RUNTIME}tools/web_read/"

    alone = pages.get(address).content.decode()
    chosen = pages.get(address, {"agent": "coder", "toolkit": "dev"}).content.decode()

    assert "99 is above the maximum of 10" in alone
    assert ("777" in alone, "777" in chosen) == (False, True)
    assert "agent Coder" in chosen
    assert "<strong>5</strong>" in chosen
    assert pages.get(address, {"agent": "nobody"}).status_code == 404


@pytest.mark.usefixtures("in_acme")
def test_stored_settings_that_cannot_be_read_are_survived_and_said(pages: Client, alice: Membership) -> None:
    make_tool(alice.organisation, "uuid")
    RuntimeConfig.objects.create(
        organisation=alice.organisation,
        layer="organisation",
        values={"tools": {"uuid": {"timeout_sec": "soon", "what": 1}, "x": 7}, "profile": "gone"},
    )

    page = pages.get(ORGANISATIONS).content.decode()

    assert "tools.uuid.timeout_sec" in page
    assert "There is no profile" in page
    assert pages.get(RUNTIME).status_code == 200
    assert "is not a number; what counts is" in pages.get(f"{RUNTIME}tools/uuid/").content.decode()


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize(
    "values", [[], "x", 7, {"tools": []}, {"tools": {"uuid": []}}, {"tools": {"uuid": {"ask": []}}}]
)
def test_any_stored_value_is_survived_on_every_page(pages: Client, alice: Membership, values: Any) -> None:
    make_tool(alice.organisation, "uuid")
    RuntimeConfig.objects.create(organisation=alice.organisation, layer="organisation", values=values)

    for address in (RUNTIME, ORGANISATIONS, f"{ORGANISATIONS}?pattern=uuid", f"{RUNTIME}tools/uuid/"):
        assert pages.get(address).status_code == 200
    assert pages.post(ORGANISATIONS, {"pattern": "uuid", "knob_timeout_sec": "9"}).status_code == 302
    assert stored() == {"tools": {"uuid": {"timeout_sec": 9}}}


@pytest.mark.usefixtures("in_acme")
def test_bob_without_the_right_gets_none_of_them(client: Client, bob: Membership, agent: Agent) -> None:
    client.force_login(bob.user)
    make_tool(bob.organisation, "uuid")
    for right in (Right.TOOLKITS, Right.AGENTS, Right.PROVIDERS, Right.CATALOGUE):
        bob.admin_rights.create(organisation=bob.organisation, right=right)

    for path in ("", "organisation/", "agents/coder/", "providers/scripted/", "tools/uuid/", "find/?tool=uuid"):
        assert client.get(RUNTIME + path).status_code == 403
    for path in ("organisation/", "organisation/remove/", "agents/coder/", "providers/scripted/remove/"):
        assert client.post(RUNTIME + path, {"pattern": "*", "knob_ask": "off"}).status_code == 403
    assert not RuntimeConfig.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_a_tools_page_leads_whoever_may_go_there_to_what_is_in_force(
    client: Client, alice: Membership, bob: Membership
) -> None:
    make_tool(alice.organisation, "uuid")
    bob.admin_rights.create(organisation=bob.organisation, right=Right.CATALOGUE)
    found = []
    for member in (alice, bob):
        client.force_login(member.user)
        page = client.get("/o/acme/tools/uuid/")
        found.append((page.status_code, f'href="{RUNTIME}tools/uuid/"' in page.content.decode()))

    assert found == [(200, True), (200, False)]


def test_charlie_finds_no_layer_of_acme(client: Client, charlie: Membership, agent: Agent) -> None:
    client.force_login(charlie.user)

    assert client.get(ORGANISATIONS).status_code == 404
    for path in ("agents/coder/", "providers/scripted/"):
        assert client.get(f"/o/globex/runtime/{path}").status_code == 404
        assert client.post(f"/o/globex/runtime/{path}", {"pattern": "*"}).status_code == 404


@pytest.mark.usefixtures("in_acme")
def test_pages_take_the_same_queries_for_1_and_3(pages: Client, alice: Membership) -> None:
    addresses = [RUNTIME, ORGANISATIONS, f"{RUNTIME}tools/tool_1/?agent=agent-1"]

    def add(number: int) -> None:
        tool = make_tool(alice.organisation, f"tool_{number}")
        make_toolkit(alice.organisation, f"kit_{number}", tool, Tool.objects.get(name="tool_1"))
        agent = make_agent(alice.organisation, slug=f"agent-{number}")
        Provider.objects.create(organisation=alice.organisation, slug=f"p-{number}", name="P")
        for layer in (ORGANISATION, LayerOf(agent=agent)):
            set_tool_knobs(layer, tool.name, {"timeout_sec": 9, "ask": "always"}, actor=alice)

    def counts() -> list[int]:
        found = []
        for address in addresses:
            with CaptureQueriesContext(connection) as queries:
                assert pages.get(address).status_code == 200
            found.append(len(queries))
        return found

    make_tool(alice.organisation, "tool_1") if not Tool.objects.filter(name="tool_1").exists() else None
    agent = make_agent(alice.organisation, slug="agent-1")
    set_tool_knobs(LayerOf(agent=agent), "tool_1", {"timeout_sec": 9}, actor=alice)
    make_toolkit(alice.organisation, "kit_1", Tool.objects.get(name="tool_1"))
    set_tool_knobs(ORGANISATION, "tool_1", {"timeout_sec": 9}, actor=alice)
    counts()
    one = counts()
    for number in (2, 3):
        add(number)
    assert counts() == one
    assert max(one) <= 14


@pytest.mark.usefixtures("in_acme")
def test_a_large_catalogue_makes_no_page_large(pages: Client, alice: Membership, agent: Agent) -> None:
    category = make_category(alice.organisation, "many")
    own = {"organisation": alice.organisation, "category": category}
    make_tool(alice.organisation, "uuid")
    Tool.objects.bulk_create(Tool(**own, name=f"many_{number}") for number in range(10_000))
    set_runtime_config(ORGANISATION, {"tools": {"many_*": {"timeout_sec": 9}}}, actor=alice)

    for address in (RUNTIME, ORGANISATIONS, f"{RUNTIME}tools/uuid/"):
        assert len(pages.get(address).content) < 60_000


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize(
    ("asked", "address"),
    [
        ({"tool": "uuid"}, f"{RUNTIME}tools/uuid/"),
        ({"agent": "coder"}, f"{RUNTIME}agents/coder/"),
        ({"provider": "scripted"}, f"{RUNTIME}providers/scripted/"),
        ({"tool": "none"}, RUNTIME),
        ({"agent": "none"}, RUNTIME),
        ({}, RUNTIME),
    ],
)
def test_what_was_typed_leads_to_its_page(
    pages: Client, alice: Membership, agent: Agent, asked: dict[str, str], address: str
) -> None:
    make_tool(alice.organisation, "uuid")

    assert pages.get(f"{RUNTIME}find/", asked).headers["Location"] == address
