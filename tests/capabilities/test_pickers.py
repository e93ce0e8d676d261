"""Forms in which some of many things are ticked: a part is shown, and nothing that is not shown is lost on a save."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from capabilities.agents.agents.writes import allowed_toolkits, deferred_tools, own_tools, pinned_tools
from capabilities.agents.toolkits.writes import content_of
from capabilities.common.picker import SHOWN
from capabilities.models import Agent, AgentTool, Tool, Toolkit, ToolkitTool
from tests.capabilities.test_pages import give_right
from tests.cast import allow_toolkit, make_agent, make_category, make_tool, make_toolkit
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

ACME = "/o/acme/"
MANY = SHOWN + 25
NAMES = [f"tool_{number:03}" for number in range(MANY)]


@pytest.fixture
def as_alice(alice: Membership) -> Client:
    client = Client()
    client.force_login(alice.user)
    return client


@pytest.fixture
def tools(in_acme: Organisation) -> list[Tool]:
    """More than a page of tools, and one of another category."""
    many = make_category(in_acme, "many", title="Many")
    make_tool(in_acme, "web_search", category=make_category(in_acme, "web", title="The web"))
    return [make_tool(in_acme, name, category=many) for name in NAMES]


@pytest.fixture
def agent(in_acme: Organisation, tools: list[Tool]) -> Agent:
    """It has every tool but one, the last one deferred, two pinned, and may load more toolkits than a page shows."""
    agent = make_agent(in_acme, slug="clerk")
    pinned = (tools[0], tools[-2])
    AgentTool.objects.bulk_create(
        AgentTool(
            organisation=in_acme,
            agent=agent,
            tool=tool,
            position=place,
            is_deferred=tool is tools[-1],
            is_pinned=tool in pinned,
        )
        for place, tool in enumerate(tools, start=1)
    )
    for number in range(SHOWN + 2):
        toolkit = make_toolkit(in_acme, f"kit_{number:03}", tools[0])
        allow_toolkit(agent, toolkit, initial=number == SHOWN + 1)
    make_toolkit(in_acme, "spare", tools[0])
    return agent


@pytest.fixture
def toolkit(in_acme: Organisation, tools: list[Tool]) -> Toolkit:
    toolkit = make_toolkit(in_acme, "all")
    ToolkitTool.objects.bulk_create(
        ToolkitTool(
            organisation=in_acme, toolkit=toolkit, tool=tool, position=place, timeout=place, max_result_chars=2_000
        )
        for place, tool in enumerate(tools, start=1)
    )
    return toolkit


def fields_of(page: bytes) -> dict[str, list[str]]:
    """What a browser without script would post of the page's form."""
    form = re.search(r'<form method="post"[^>]*id="(?:agent|toolkit)-form".*?</form>', page.decode(), re.S)
    assert form is not None
    found: dict[str, list[str]] = {}
    for tag in re.findall(r"<input[^>]*>", form[0]):
        given = {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        is_off = given.get("type") in ("checkbox", "radio") and not re.search(r"\bchecked\b", tag)
        if "name" in given and not is_off:
            found.setdefault(given["name"], []).append(
                given.get("value", "on" if given.get("type") == "checkbox" else "")
            )
    for name, text in re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>\s*(.*?)</textarea>', form[0], re.S):
        found[name] = [html.unescape(text)]
    for name, text in re.findall(r'<select[^>]*name="([\w-]+)"[^>]*>(.*?)</select>', form[0], re.S):
        chosen = re.search(r'<option value="([^"]*)"\s+selected', text)
        found[name] = [chosen[1] if chosen else ""]
    return found


def post(client: Client, path: str, fields: dict[str, Any]) -> Any:
    return client.post(f"{ACME}{path}", fields)


def saved(client: Client, path: str, fields: dict[str, Any]) -> None:
    """Saves, past the preview where there is one."""
    answer = post(client, path, fields)
    stamp = re.search(r'name="stamp"\s+value="([^"]+)"', answer.content.decode())
    if stamp is not None:
        answer = post(client, path, fields | {"stamp": stamp[1]})
    assert answer.status_code == 302, answer.content.decode()


# -- Nothing is lost --------------------------------------------------------------------------------------------------


def test_a_save_as_it_stands_changes_nothing_of_an_agent(as_alice: Client, agent: Agent) -> None:
    page = as_alice.get(f"{ACME}agents/clerk/edit/").content
    fields = fields_of(page)
    assert len(fields["tools"]) == len(fields["allowed_toolkits"]) == SHOWN, "a part of them"

    saved(as_alice, "agents/clerk/edit/", fields)

    assert own_tools(agent) == NAMES
    assert deferred_tools(agent) == [NAMES[-1]]
    assert pinned_tools(agent) == [NAMES[0], NAMES[-2]]
    assert list(allowed_toolkits(agent)) == [f"kit_{number:03}" for number in range(SHOWN + 2)]
    assert [name for name, is_initial in allowed_toolkits(agent).items() if is_initial] == [f"kit_{SHOWN + 1:03}"]


def test_a_save_as_it_stands_changes_nothing_of_a_toolkit(as_alice: Client, toolkit: Toolkit) -> None:
    before = content_of(toolkit)
    fields = fields_of(as_alice.get(f"{ACME}toolkits/all/edit/").content)
    assert len(fields["tools"]) == SHOWN

    saved(as_alice, "toolkits/all/edit/", fields)

    assert content_of(Toolkit.objects.get(name="all")) == before


def test_searches_one_after_the_other_keep_every_tick_and_every_value(as_alice: Client, toolkit: Toolkit) -> None:
    """A tick of the search before, a value and a place that were typed in it, and one that was taken away."""
    path = "toolkits/all/edit/"
    fields = fields_of(as_alice.get(f"{ACME}{path}").content)
    last = fields_of(post(as_alice, path, fields | {"find": ["tools"], "tools-q": [NAMES[-1]]}).content)
    assert last["tools"] == [NAMES[-1]]
    last[f"timeout-{NAMES[-1]}"] = ["99"]
    last[f"place-{NAMES[-1]}"] = ["1"]
    web = fields_of(post(as_alice, path, last | {"find": ["tools"], "tools-q": ["web"]}).content)
    assert "tools" not in web, "nothing that is ticked matches"
    second = web | {"tools": ["web_search"], "find": ["tools"], "tools-q": [NAMES[1]]}
    one = fields_of(post(as_alice, path, second).content)
    assert one["tools"] == [NAMES[1]]
    del one["tools"]

    saved(as_alice, path, one)

    lines = content_of(Toolkit.objects.get(name="all")).tools
    timeouts = {line.tool: line.timeout for line in lines}
    assert set(timeouts) == {*NAMES, "web_search"} - {NAMES[1]}
    assert (timeouts[NAMES[-1]], timeouts[NAMES[2]], timeouts["web_search"]) == (99, 3, None)
    assert [line.tool for line in lines][:2] == [NAMES[-1], NAMES[0]]
    assert lines[-1].tool == "web_search"


def test_a_form_with_an_error_comes_back_with_what_was_not_shown(as_alice: Client, agent: Agent) -> None:
    fields = fields_of(as_alice.get(f"{ACME}agents/clerk/edit/").content)
    wrong = post(as_alice, "agents/clerk/edit/", fields | {"name": [""]})
    assert wrong.status_code == 422

    saved(as_alice, "agents/clerk/edit/", fields_of(wrong.content) | {"name": ["Clerk"]})

    assert own_tools(agent) == NAMES
    assert deferred_tools(agent) == [NAMES[-1]]


def test_whole_categories_are_found_by_words_and_stay(as_alice: Client, in_acme: Organisation) -> None:
    names = [f"group_{number:03}" for number in range(SHOWN + 10)]
    for name in names:
        make_category(in_acme, name, title=name.replace("_", " ").title())
    page = as_alice.get(f"{ACME}toolkits/new/").content.decode()
    assert "Only the first 50 are shown" in page
    ticked = {"name": ["ops"], "categories": names[: SHOWN + 5]}

    found = fields_of(
        post(as_alice, "toolkits/new/", ticked | {"find": ["categories"], "categories-q": ["059"]}).content
    )
    saved(as_alice, "toolkits/new/", found | {"categories": ["group_059"]})

    assert sorted(content_of(Toolkit.objects.get(name="ops")).categories) == [*names[: SHOWN + 5], "group_059"]


# -- What is shown ----------------------------------------------------------------------------------------------------


def test_many_tools_are_told_by_category_until_somebody_searches(as_alice: Client, agent: Agent) -> None:
    page = as_alice.get(f"{ACME}agents/new/").content.decode()
    assert f"{MANY + 1} tools in 2 categories." in " ".join(page.split())
    assert '<option value="many"' in page
    assert f"Many ({MANY})" in page
    assert 'value="web_search"' not in page

    of_web = post(as_alice, "agents/new/", {"find": "tools", "tools-group": "web"}).content.decode()

    assert 'value="web_search"' in of_web
    assert 'value="tool_000"' not in of_web


def test_a_few_tools_are_all_shown_at_once(as_alice: Client, in_acme: Organisation) -> None:
    for name in NAMES[:30]:
        make_tool(in_acme, name)

    page = as_alice.get(f"{ACME}toolkits/new/").content.decode()

    assert all(f'value="{name}"' in page for name in NAMES[:30])


def test_a_body_that_is_no_part_of_a_form_is_refused(as_alice: Client, agent: Agent) -> None:
    for text in ("&".join(["tools=x"] * 6_000), "tools=%00", "tools=" + "x" * 500, "=&&=;%"):
        answer = post(as_alice, "agents/new/", {"name": "x", "tools-kept": text})
        assert answer.status_code in (400, 422)
    with organisation_scope(agent.organisation):
        assert Agent.objects.count() == 1


def test_another_organisations_tools_are_not_found(client: Client, charlie: Membership, agent: Agent) -> None:
    client.force_login(charlie.user)

    page = client.post("/o/globex/agents/new/", {"find": "tools", "tools-q": "tool", "tools-group": "many"}).content

    assert b'value="tool_' not in page
    assert b"Many (" not in page


FORMS = ("agents/new/", "agents/clerk/edit/", "toolkits/new/", "toolkits/all/edit/")


@pytest.mark.parametrize("path", FORMS)
def test_who_may_not_change_the_form_cannot_search_in_it(
    client: Client, bob: Membership, charlie: Membership, agent: Agent, toolkit: Toolkit, path: str
) -> None:
    """Bob has the other form's right; Charlie is of another organisation."""
    give_right(bob, Right.TOOLKITS if path.startswith("agents") else Right.AGENTS)
    search = {"find": "tools", "tools-q": "tool", "tools-group": "many", "tools-kept": "tools=tool_001"}
    for member, status in ((bob, 403), (charlie, 404)):
        client.force_login(member.user)
        for answer in (client.get(f"{ACME}{path}"), post(client, path, search)):
            assert answer.status_code == status
            assert b"tool_0" not in answer.content


@pytest.mark.parametrize("path", FORMS)
def test_the_search_shows_what_the_catalogue_shows_to_everybody(
    client: Client, bob: Membership, agent: Agent, toolkit: Toolkit, in_acme: Organisation, path: str
) -> None:
    """A right to one category limits what Bob changes in the catalogue, not which tools he sees there or here."""
    give_right(bob, Right.AGENTS)
    give_right(bob, Right.TOOLKITS)
    give_right(bob, Right.CATALOGUE, "web")
    make_tool(in_acme, "tool_spare", category=make_category(in_acme, "many"))
    client.force_login(bob.user)
    assert b"tool_spare" in client.get(f"{ACME}tools/?q=tool_spare").content

    found = post(client, path, {"find": "tools", "tools-q": "tool_spare"}).content

    assert b'value="tool_spare"' in found
