from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.agents import AgentContent, create_agent, delete_agent, own_tools, update_agent
from capabilities.models import Agent, LanguageModel
from capabilities.offers import candidates_for
from capabilities.refused import ChangeRefused
from tests.cast import make_agent, make_category, make_session, make_tool
from toolhub.tenants.models import AuditEntry, Membership, Organisation


@pytest.fixture
def model(acme: Organisation, in_acme: Organisation) -> LanguageModel:
    extra = make_category(acme, "extra", is_core=False)
    for name in ("alpha", "beta", "gamma"):
        make_tool(acme, name, category=extra)
    make_tool(acme, "core_one")
    return make_agent(acme).model


def content(model: LanguageModel, **fields: Any) -> AgentContent:
    values: dict[str, Any] = {"slug": "coder", "name": "Coder", "model": model}
    return AgentContent(**values | fields)


def names(agent: Agent) -> list[str]:
    return [each.spec.name for each in candidates_for(agent)]


def test_an_agent_begins_with_its_own_tools_in_their_order_then_the_core(
    alice: Membership, model: LanguageModel
) -> None:
    agent = create_agent(content(model, tools=("gamma", "alpha", "gamma")), actor=alice)

    assert names(agent) == ["gamma", "alpha", "core_one"]
    assert AuditEntry.objects.get(action="agent.create").after["tools"] == ["gamma", "alpha"]


def test_order_and_core_can_be_changed(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("gamma", "alpha")), actor=alice)

    update_agent(agent, content(model, tools=("beta", "gamma"), starts_with_core=False), actor=alice)

    assert names(agent) == ["beta", "gamma"]
    row = AuditEntry.objects.get(action="agent.update")
    assert (row.before["tools"], row.after["tools"]) == (["gamma", "alpha"], ["beta", "gamma"])


def test_without_tools_in_the_content_the_stored_ones_stay(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("gamma",)), actor=alice)

    update_agent(agent, content(model, name="Other"), actor=alice)

    assert own_tools(agent) == ["gamma"]


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"slug": "starter"}, "slug", "taken"),
        ({"slug": "new"}, "slug", "invalid"),
        ({"tools": ("missing",)}, "tools", "unknown"),
        ({"max_rounds": 0}, "max_rounds", "invalid"),
        ({"max_rounds": 26}, "max_rounds", "invalid"),
        ({"prompt": "x" * 100_001}, "prompt", "invalid"),
    ],
)
def test_what_cannot_be_an_agent_is_none(
    alice: Membership, model: LanguageModel, fields: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_agent(content(model, **fields), actor=alice)

    assert (refused.value.field, refused.value.code) == (field, code)
    assert Agent.objects.count() == 1


def test_an_agent_that_sessions_use_stays(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model), actor=alice)
    make_session(alice, agent)

    with pytest.raises(ChangeRefused, match="switch it off instead") as refused:
        delete_agent(agent, actor=alice)

    assert refused.value.code == "in_use"
    assert Agent.objects.filter(pk=agent.pk).exists()


def test_an_agent_that_nothing_uses_goes(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("alpha",)), actor=alice)

    delete_agent(agent, actor=alice)

    assert Agent.objects.count() == 1
    assert AuditEntry.objects.get(action="agent.delete").before["tools"] == ["alpha"]


def test_agents_ask_for_their_right(bob: Membership, model: LanguageModel) -> None:
    with pytest.raises(PermissionDenied):
        create_agent(content(model), actor=bob)
