"""What many agents would send, read at once: each agent's share alone is worked on."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.choosing.pipeline.candidates import Row
from sessions.selection import bulk
from sessions.selection.bulk import AgentTools, read_setup, read_shelf
from tests.cast import allow_toolkit, give_tool, make_agent, make_category, make_tool, make_toolkit
from toolhub.tenants.models import Organisation

pytestmark = pytest.mark.django_db

AGENTS, TOOLS = 5, 6


def test_an_agent_is_given_no_rows_of_tools_that_others_bring(
    in_acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty agents of ten thousand tools took a preview half a minute when each had a row of every tool."""
    category = make_category(in_acme, "files", is_core=False)
    agents = []
    for number in range(AGENTS):
        agent = make_agent(in_acme, slug=f"agent-{number}")
        first, *others = [make_tool(in_acme, f"tool_{number}_{n}", category=category) for n in range(TOOLS)]
        give_tool(agent, first)
        allow_toolkit(agent, make_toolkit(in_acme, f"kit_{number}", *others), initial=True)
        agents.append(agent)
    made = []

    def row(*values: Any) -> Row:
        made.append(values[0].name)
        return Row(*values)

    monkeypatch.setattr(bulk, "Row", row)
    setup = read_setup([agent.pk for agent in agents])
    shelf = read_shelf(setup.tools, setup.categories)
    reached = [AgentTools(setup, agent.pk, shelf).reaches for agent in agents]

    assert [len(keys) for keys in reached] == [TOOLS] * AGENTS
    assert sorted(made) == sorted(f"tool_{number}_{n}" for number in range(AGENTS) for n in range(TOOLS))
