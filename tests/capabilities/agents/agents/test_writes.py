from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.agents.agents.writes import (
    AgentContent,
    allowed_toolkits,
    create_agent,
    deferred_tools,
    delete_agent,
    own_tools,
    pinned_tools,
    update_agent,
)
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, create_toolkit
from capabilities.choosing.pipeline.candidates import candidates_for
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent, Category, LanguageModel, Tool, Toolkit
from tests.cast import hold_credential, make_agent, make_category, make_session, make_tool
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope


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
def test_an_invalid_agent_is_not_created(
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


# -- Toolkits, deferral, scope ----------------------------------------------------------------------------------------


@pytest.fixture
def kits(alice: Membership, model: LanguageModel) -> LanguageModel:
    """`devops` says 30 s of alpha and has beta, `research` has gamma, `twice` says 60 s of alpha."""
    contents = {
        "devops": (ToolkitLine("alpha", timeout=30), ToolkitLine("beta")),
        "research": (ToolkitLine("gamma"),),
        "twice": (ToolkitLine("alpha", timeout=60),),
    }
    for name, lines in contents.items():
        create_toolkit(ToolkitContent(name, tools=lines), actor=alice)
    return model


def test_mr_28_an_agent_has_allowed_and_initial_toolkits_and_the_audit_tells_them(
    alice: Membership, kits: LanguageModel
) -> None:
    fields = {"allowed_toolkits": ("research", "devops"), "initial_toolkits": ("devops",), "loading_mode": "same_run"}

    agent = create_agent(content(kits, **fields), actor=alice)

    assert list(allowed_toolkits(agent).items()) == [("research", False), ("devops", True)]
    assert names(agent) == ["core_one", "alpha", "beta"]
    told = AuditEntry.objects.get(action="agent.create").after
    assert (told["allowed_toolkits"], told["initial_toolkits"]) == (["research", "devops"], ["devops"])
    assert (told["loading_mode"], told["scope"]) == ("same_run", "organisation")


def test_without_toolkits_in_the_content_the_stored_ones_stay(alice: Membership, kits: LanguageModel) -> None:
    fields: dict[str, Any] = {"allowed_toolkits": ("research",), "initial_toolkits": ("research",)}
    agent = create_agent(content(kits, tools=("alpha",), deferred_tools=("alpha",), **fields), actor=alice)

    update_agent(agent, content(kits, name="Other"), actor=alice)

    assert allowed_toolkits(agent) == {"research": True}
    assert deferred_tools(agent) == ["alpha"]


@pytest.mark.parametrize("field", ["allowed_toolkits", "initial_toolkits"])
def test_mr_30_every_allowed_and_initial_name_exists(
    alice: Membership, kits: LanguageModel, globex: Organisation, field: str
) -> None:
    with organisation_scope(globex):
        Toolkit.objects.create(organisation=globex, name="theirs")

    for name in ("missing", "theirs"):
        with pytest.raises(ChangeRefused, match=f"There is no toolkit {name}") as refused:
            create_agent(content(kits, **{field: (name,)}), actor=alice)
        assert (refused.value.field, refused.value.code) == (field, "unknown")


def test_mr_31_initial_is_a_subset_of_allowed(alice: Membership, kits: LanguageModel) -> None:
    agent = create_agent(content(kits, allowed_toolkits=("devops",), initial_toolkits=("devops",)), actor=alice)
    wrong: list[dict[str, Any]] = [{"initial_toolkits": ("devops", "research")}, {"allowed_toolkits": ("research",)}]

    for fields in wrong:
        with pytest.raises(ChangeRefused, match="is initial, but not among the allowed") as refused:
            update_agent(agent, content(kits, **fields), actor=alice)
        assert refused.value.field == "initial_toolkits"

    assert allowed_toolkits(agent) == {"devops": True}


@pytest.mark.parametrize("field", ["allowed_toolkits", "initial_toolkits"])
def test_mr_33_no_toolkit_is_named_twice(alice: Membership, kits: LanguageModel, field: str) -> None:
    fields = {"allowed_toolkits": ("devops",)} | {field: ("devops", "devops")}

    with pytest.raises(ChangeRefused, match="devops is named twice") as refused:
        create_agent(content(kits, **fields), actor=alice)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"initial_toolkits": ("devops", "twice")}, "toolkit devops (timeout 30 s) and from toolkit twice (timeout"),
        ({"initial_toolkits": ("devops",), "tools": ("alpha",)}, "its own tools (as the tool says) and from toolkit"),
    ],
)
def test_mr_23_toolkits_that_disagree_with_each_other_or_own_tools_are_not_initial_together(
    alice: Membership, kits: LanguageModel, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_agent(content(kits, allowed_toolkits=("devops", "twice"), **fields), actor=alice)

    assert refused.value.field == "initial_toolkits"
    assert f"alpha comes from {words}" in str(refused.value)


def test_toolkits_that_disagree_may_both_be_allowed(alice: Membership, kits: LanguageModel) -> None:
    agent = create_agent(content(kits, tools=("alpha",), allowed_toolkits=("devops", "twice")), actor=alice)

    assert allowed_toolkits(agent) == {"devops": False, "twice": False}


def test_what_others_changed_since_does_not_keep_an_agent_from_being_switched_off(
    alice: Membership, kits: LanguageModel
) -> None:
    agent = create_agent(content(kits, allowed_toolkits=("devops",), initial_toolkits=("devops",)), actor=alice)
    Category.objects.filter(name="extra").update(is_core=True)

    update_agent(agent, content(kits, is_enabled=False), actor=alice)

    with pytest.raises(ChangeRefused, match="the core categories"):
        update_agent(agent, content(kits, tools=("gamma",)), actor=alice)


def test_mr_39_an_own_tool_can_be_deferred_and_only_an_own_one(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("alpha", "beta"), deferred_tools=("beta",)), actor=alice)

    assert (own_tools(agent), deferred_tools(agent)) == (["alpha", "beta"], ["beta"])
    assert names(agent) == ["alpha", "core_one"]
    for name, code in (("gamma", "invalid"), ("missing", "unknown")):
        with pytest.raises(ChangeRefused) as refused:
            update_agent(agent, content(model, deferred_tools=(name,)), actor=alice)
        assert (refused.value.field, refused.value.code) == ("deferred_tools", code)


def test_a_tool_with_the_name_of_a_toolkit_is_not_deferred(alice: Membership, model: LanguageModel) -> None:
    Toolkit.objects.create(organisation=alice.organisation, name="alpha")

    with pytest.raises(ChangeRefused, match="alpha is a toolkit too") as refused:
        create_agent(content(model, tools=("alpha",), deferred_tools=("alpha",)), actor=alice)

    assert refused.value.field == "deferred_tools"


def test_a_deferred_tool_that_stays_stays_deferred(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("alpha", "beta"), deferred_tools=("alpha", "beta")), actor=alice)

    update_agent(agent, content(model, tools=("gamma", "beta")), actor=alice)

    assert (own_tools(agent), deferred_tools(agent)) == (["gamma", "beta"], ["beta"])


def test_an_own_tool_can_be_pinned_and_only_one_that_is_not_deferred(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("alpha", "beta"), pinned_tools=("beta",)), actor=alice)

    update_agent(agent, content(model, tools=("beta", "alpha")), actor=alice)

    assert (own_tools(agent), pinned_tools(agent)) == (["beta", "alpha"], ["beta"])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"pinned_tools": ("gamma",)}, "invalid"),
        ({"pinned_tools": ("missing",)}, "unknown"),
        ({"pinned_tools": ("beta",), "deferred_tools": ("beta",)}, "invalid"),
    ]
    for fields, code in wrong:
        with pytest.raises(ChangeRefused) as refused:
            update_agent(agent, content(model, **fields), actor=alice)
        assert (refused.value.field, refused.value.code) == ("pinned_tools", code)


def test_the_way_in_which_an_agent_is_routed_is_audited(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model, tools=("alpha",)), actor=alice)
    routed = {"routing_mode": "hybrid", "routing_tokens": 600, "pinned_tools": ("alpha",)}

    update_agent(agent, content(model, **routed), actor=alice)

    entry = AuditEntry.objects.filter(action="agent.update").latest("pk")
    assert [entry.before[name] for name in routed] == ["off", None, []]
    assert [entry.after[name] for name in routed] == ["hybrid", 600, ["alpha"]]
    for field, value in (("routing_mode", "sometimes"), ("routing_tokens", 99), ("routing_tokens", 100_001)):
        with pytest.raises(ChangeRefused) as refused:
            update_agent(agent, content(model, **{field: value}), actor=alice)
        assert refused.value.field == field


def test_mr_43_what_clients_get_of_tools_that_ask_is_audited(alice: Membership, model: LanguageModel) -> None:
    agent = create_agent(content(model), actor=alice)

    update_agent(agent, content(model, client_approvals="hide"), actor=alice)

    entry = AuditEntry.objects.filter(action="agent.update").latest("pk")
    assert (entry.before["client_approvals"], entry.after["client_approvals"]) == ("ask", "hide")
    with pytest.raises(ChangeRefused) as refused:
        update_agent(agent, content(model, client_approvals="never"), actor=alice)
    assert refused.value.field == "client_approvals"


def test_mr_35_an_agent_for_the_member_alone_takes_no_tool_with_a_shared_credential(
    alice: Membership, kits: LanguageModel
) -> None:
    Tool.objects.filter(name="beta").update(service="github")
    Tool.objects.filter(name="core_one").update(service="smtp")
    hold_credential(alice.organisation, "github")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"tools": ("alpha", "beta")}, "tools"),
        ({"allowed_toolkits": ("devops",)}, "allowed_toolkits"),
    ]

    for fields, field in wrong:
        with pytest.raises(ChangeRefused, match=r"credential that the organisation shares.*: beta") as refused:
            create_agent(content(kits, scope="member", **fields), actor=alice)
        assert refused.value.field == field

    agent = create_agent(content(kits, scope="member", tools=("alpha",), allowed_toolkits=("research",)), actor=alice)
    assert agent.scope == "member"


def test_modes_are_those_that_there_are(alice: Membership, model: LanguageModel) -> None:
    for field in ("loading_mode", "scope"):
        with pytest.raises(ChangeRefused) as refused:
            create_agent(content(model, **{field: "sometimes"}), actor=alice)
        assert refused.value.field == field
