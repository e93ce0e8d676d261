from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.choosing.pipeline.candidates import candidates_for
from capabilities.choosing.pipeline.permissions import may_use, permissions_of
from capabilities.choosing.pipeline.specs import current_specs, version_of
from capabilities.contract.permission import NO_RIGHTS, Rights, RoleRules
from capabilities.models import AgentTool, Effect, Grant, RoleMode, RoleRule, Tool
from tests.cast import make_agent, make_category, make_role, make_tool
from toolhub.tenants.models import Membership, Organisation, User
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_the_agents_own_tools_come_first_then_core_ones_by_category_and_name(in_acme: Organisation) -> None:
    for name, category in (("z", "alpha"), ("a", "beta"), ("c", "alpha")):
        make_tool(in_acme, name, category=make_category(in_acme, category))
    own = make_tool(in_acme, "own", category=make_category(in_acme, "special", is_core=False))
    make_tool(in_acme, "other", category=own.category)
    agent = make_agent(in_acme)
    AgentTool.objects.create(organisation=in_acme, agent=agent, tool=own)

    assert [(each.spec.name, each.source) for each in candidates_for(agent)] == [
        ("own", "agent"),
        ("c", "core category alpha"),
        ("z", "core category alpha"),
        ("a", "core category beta"),
    ]


def test_a_tool_without_a_version_is_no_candidate(in_acme: Organisation) -> None:
    Tool.objects.create(organisation=in_acme, name="empty", category=make_category(in_acme))

    assert candidates_for(make_agent(in_acme)) == []


def test_a_spec_is_the_tool_at_its_current_version(in_acme: Organisation) -> None:
    tool = make_tool(in_acme, "calculator")
    old = tool.current_version
    assert old is not None
    new = update_tool(tool, Definition("calculator", "Reckons.", {"type": "object"}, timeout=3.0), actor=None)

    (spec,) = current_specs([old.pk, new.pk])

    assert (spec.tool_id, spec.version_id, spec.wire, spec.sha256, spec.envelope.timeout) == (
        tool.pk,
        new.pk,
        new.wire,
        new.sha256,
        3.0,
    )
    assert spec.parameters_text == '{"type":"object"}'
    assert spec.definition["function"] == {
        "name": "calculator",
        "description": "Reckons.",
        "parameters": {"type": "object"},
    }
    assert current_specs([old.pk]) == []


def test_a_kind_gets_its_tools_version_and_reads_of_it_only_what_it_asks_for(
    in_acme: Organisation, django_assert_num_queries: Any
) -> None:
    tool = make_tool(in_acme, "calculator")
    (spec,) = current_specs([tool.current_version_id or 0])

    with django_assert_num_queries(0):
        version = version_of(spec)
        assert (version.pk, version.tool_id, version.wire, version.sha256) == (
            spec.version_id,
            tool.pk,
            spec.wire,
            spec.sha256,
        )
        assert (version.tokens, version.effect, version.instructions) == (spec.tokens, spec.effect, spec.instructions)

    with django_assert_num_queries(1):
        assert version.parameters == tool.current_version.parameters  # type: ignore[union-attr]


def test_tools_of_another_organisation_are_not_there(in_acme: Organisation, globex: Organisation) -> None:
    tool = make_tool(globex, "calculator")

    assert candidates_for(make_agent(in_acme)) == []
    assert current_specs([tool.current_version_id or 0]) == []


def test_nobody_has_no_rights(in_acme: Organisation, bob: Membership) -> None:
    assert permissions_of(bob).rights == NO_RIGHTS


def test_rights_are_the_roles_with_their_rules_and_the_grants_that_last(in_acme: Organisation, bob: Membership) -> None:
    first, second = make_tool(in_acme, "a"), make_tool(in_acme, "b")
    make_role(in_acme, bob, RoleMode.NONE, "empty")
    role = make_role(in_acme, bob, RoleMode.LISTED, "some")
    RoleRule.objects.create(organisation=in_acme, role=role, category=first.category)
    RoleRule.objects.create(organisation=in_acme, role=role, tool=second, effect=Effect.DENY)
    hour = timedelta(hours=1)
    for tool, effect, expires_at in (
        (first, Effect.ALLOW, None),
        (first, Effect.DENY, timezone.now() - hour),
        (second, Effect.DENY, timezone.now() + hour),
        (second, Effect.ALLOW, None),
    ):
        Grant.objects.create(organisation=in_acme, membership=bob, tool=tool, effect=effect, expires_at=expires_at)

    assert permissions_of(bob).rights == Rights(
        (
            RoleRules("empty", "none", {}, {}),
            RoleRules("some", "listed", {first.category_id: "allow"}, {second.pk: "deny"}),
        ),
        {},
        {first.pk: "allow", second.pk: "deny"},
    )


def test_zk31_a_closed_account_has_no_rights(in_acme: Organisation, bob: Membership) -> None:
    tool = make_tool(in_acme, "a")
    make_role(in_acme, bob)
    Grant.objects.create(organisation=in_acme, membership=bob, tool=tool, effect=Effect.ALLOW)
    (spec,) = current_specs([tool.current_version_id or 0])
    assert may_use(bob, spec).allowed

    User.objects.filter(pk=bob.user_id).update(is_active=False)

    assert permissions_of(bob).rights == NO_RIGHTS
    assert not may_use(bob, spec).allowed


@pytest.mark.parametrize("count", [1, 3])
def test_rights_take_one_query(
    in_acme: Organisation, bob: Membership, count: int, django_assert_num_queries: Any
) -> None:
    for number in range(count):
        role = make_role(in_acme, bob, RoleMode.LISTED, f"role-{number}")
        tool = make_tool(in_acme, f"tool_{number}")
        RoleRule.objects.create(organisation=in_acme, role=role, tool=tool)
        Grant.objects.create(organisation=in_acme, membership=bob, tool=tool, effect=Effect.ALLOW)

    with django_assert_num_queries(1):
        permissions_of(bob)


def test_a_role_of_another_organisation_does_not_count(
    acme: Organisation, globex: Organisation, bob: Membership, charlie: Membership
) -> None:
    make_role(globex, charlie)

    with organisation_scope(acme):
        assert permissions_of(charlie).rights == NO_RIGHTS
        assert permissions_of(bob).rights == NO_RIGHTS
