"""Approval rules: what may be written, by whom, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from capabilities.access.approval_rules import queries, writes
from capabilities.access.approval_rules.writes import RuleContent
from capabilities.access.roles.writes import delete_role
from capabilities.agents.agents.writes import delete_agent
from capabilities.agents.toolkits.writes import delete_toolkit
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import ApprovalRule, AskWhen
from tests.cast import make_agent, make_category, make_member, make_role, make_tool, make_toolkit
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def version(organisation: Organisation) -> int:
    return Organisation.objects.values_list("registry_version", flat=True).get(pk=organisation.pk)


@pytest.fixture
def oscar(alice: Membership) -> Membership:
    """An operator, who holds the right `policies`, and is no admin."""
    return make_member(alice.organisation, "oscar", Access.OPERATOR)


def test_a_rule_is_written_changed_and_removed_on_record(alice: Membership) -> None:
    acme = alice.organisation
    with organisation_scope(acme):
        before = version(acme)
        rule = writes.create_rule(RuleContent(tool_pattern="mail_*", message="Mail goes out."), actor=alice)
        writes.update_rule(rule, replace(writes.rule_content(rule), when=AskWhen.FIRST_IN_SESSION), actor=alice)
        writes.update_rule(rule, writes.rule_content(rule), actor=alice)
        (read,) = queries.read_ask_rules()
        writes.delete_rule(rule, actor=alice)

        assert (read.name, read.tool_pattern, read.when) == ("mail", "mail_*", "first_in_session")
        assert list(AuditEntry.objects.order_by("number").values_list("action", flat=True)) == [
            *("approval_rule.create", "approval_rule.update", "approval_rule.delete"),
        ]
        assert version(acme) == before + 3
        assert queries.read_ask_rules() == ()


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": "Not a slug"}),
        ("tool_pattern", {"tool_pattern": "x" * 101}),
        ("when", {"when": "sometimes"}),
        ("priority", {"priority": -1}),
        ("expires_after", {"expires_after": 0}),
        ("expires_after", {"expires_after": 24 * 90 + 1}),
        ("argument_pattern", {"argument": "to"}),
        ("argument", {"argument_pattern": "*"}),
        ("message", {"message": "x" * 1_001}),
        ("toolkit", {"toolkit": "missing"}),
        ("role", {"role": "missing"}),
        ("agent", {"agent": "missing"}),
    ],
)
def test_a_malformed_rule_is_refused_with_the_field_at_fault(
    alice: Membership, field: str, fields: dict[str, Any]
) -> None:
    with organisation_scope(alice.organisation):
        with pytest.raises(ChangeRefused) as refused:
            writes.create_rule(RuleContent(**fields), actor=alice)

        assert refused.value.field == field
        assert not ApprovalRule.objects.exists()


def test_a_name_is_there_once(alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        writes.create_rule(RuleContent("mail"), actor=alice)
        with pytest.raises(ChangeRefused) as refused:
            writes.create_rule(RuleContent("mail"), actor=alice)

    assert refused.value.code == "taken"


def test_bob_writes_no_rule(alice: Membership, bob: Membership) -> None:
    with organisation_scope(alice.organisation):
        rule = writes.create_rule(RuleContent("mail"), actor=alice)
        for write in (
            lambda: writes.create_rule(RuleContent("web", tool_pattern="web_*"), actor=bob),
            lambda: writes.update_rule(rule, RuleContent("mail", when=AskWhen.NEVER), actor=bob),
            lambda: writes.delete_rule(rule, actor=bob),
        ):
            with pytest.raises(PermissionDenied):
                write()

        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.POLICIES)
        bob = Membership.objects.get(pk=bob.pk)
        assert writes.create_rule(RuleContent("web", tool_pattern="web_*"), actor=bob).name == "web"


def test_charlie_neither_finds_nor_names_rows_of_acme(alice: Membership, charlie: Membership) -> None:
    make_role(alice.organisation, alice, slug="staff")
    with organisation_scope(alice.organisation):
        rule = writes.create_rule(RuleContent("mail"), actor=alice)

    with organisation_scope(charlie.organisation):
        with pytest.raises(Http404):
            queries.rule_or_404(charlie, rule.public_id)
        with pytest.raises(Http404):
            queries.rule_or_404(charlie, uuid4())
        with pytest.raises(ChangeRefused):
            writes.create_rule(RuleContent(role="staff"), actor=charlie)
        assert queries.read_ask_rules() == ()


@pytest.mark.parametrize(
    "change",
    [
        {"when": AskWhen.NEVER},
        {"needs_other_person": False},
        {"tool_pattern": "web_*"},
        {"role": "staff"},
        {"priority": 900},
        {"name": "zzz"},
        {"expires_after": 1},
    ],
)
def test_below_admin_nobody_changes_a_rule_that_takes_another_person(
    alice: Membership, oscar: Membership, change: dict[str, Any]
) -> None:
    make_role(alice.organisation, oscar, slug="staff")
    with organisation_scope(alice.organisation):
        rule = writes.create_rule(RuleContent("mail", needs_other_person=True), actor=alice)
        content = writes.rule_content(rule)
        with pytest.raises(ChangeForbidden):
            writes.update_rule(rule, replace(content, **change), actor=oscar)
        rule.refresh_from_db()
        with pytest.raises(ChangeForbidden):
            writes.delete_rule(rule, actor=oscar)

        assert writes.rule_content(rule) == content
        assert writes.update_rule(rule, replace(content, message="Ask Alice."), actor=oscar).message == "Ask Alice."
        writes.update_rule(rule, replace(content, **change), actor=alice)


def test_below_admin_nobody_puts_a_rule_that_asks_less_in_front_of_one_that_takes_another_person(
    alice: Membership, oscar: Membership
) -> None:
    with organisation_scope(alice.organisation):
        writes.create_rule(RuleContent("mail", 100, needs_other_person=True), actor=alice)
        for content in (
            RuleContent("free", 50, when=AskWhen.NEVER),
            RuleContent("alone", 50),
            RuleContent("a-tie", 100),
            RuleContent("once", 50, when=AskWhen.FIRST_IN_SESSION, needs_other_person=True),
        ):
            with pytest.raises(ChangeForbidden):
                writes.create_rule(content, actor=oscar)

        behind = writes.create_rule(RuleContent("behind", 150, when=AskWhen.NEVER), actor=oscar)
        with pytest.raises(ChangeForbidden):
            writes.update_rule(behind, replace(writes.rule_content(behind), priority=1), actor=oscar)
        writes.create_rule(RuleContent("strict", 50, needs_other_person=True), actor=oscar)
        writes.create_rule(RuleContent("free", 50, when=AskWhen.NEVER), actor=alice)


def test_nothing_that_an_approval_rule_names_can_be_deleted(alice: Membership) -> None:
    acme = alice.organisation
    role, agent, toolkit = (
        make_role(acme, alice, slug="staff"),
        make_agent(acme, slug="desk"),
        make_toolkit(acme, "kit"),
    )
    with organisation_scope(acme):
        rule = writes.create_rule(RuleContent("all", toolkit="kit", role="staff", agent="desk"), actor=alice)
        deletes: tuple[Any, ...] = (
            lambda: delete_role(role, actor=alice),
            lambda: delete_agent(agent, actor=alice),
            lambda: delete_toolkit(toolkit, actor=alice),
        )
        for delete in deletes:
            with pytest.raises(ChangeRefused, match="approval rule all") as refused:
                delete()
            assert refused.value.code == "in_use"

        writes.delete_rule(rule, actor=alice)
        for delete in deletes:
            delete()


def test_a_rule_of_a_toolkit_means_its_tools_and_those_of_its_categories(alice: Membership) -> None:
    acme = alice.organisation
    mail = make_category(acme, "mail")
    one, other, _ = make_tool(acme, "one"), make_tool(acme, "other", category=mail), make_tool(acme, "third")
    make_toolkit(acme, "kit", one, categories=(mail,))
    with organisation_scope(acme):
        writes.create_rule(RuleContent(toolkit="kit"), actor=alice)
        (rule,) = queries.read_ask_rules()

        assert rule.toolkit_tools == frozenset({one.pk, other.pk})
        assert queries.tools_matched_by(rule) == ["one", "other"]


def test_rules_stand_in_the_order_in_which_they_are_asked(alice: Membership, django_assert_num_queries: Any) -> None:
    with organisation_scope(alice.organisation):
        for count in (1, 3):
            while ApprovalRule.objects.count() < count:
                number = ApprovalRule.objects.count()
                writes.create_rule(RuleContent(f"rule-{9 - number}", 50, tool_pattern=f"mail_{number}"), actor=alice)
            with django_assert_num_queries(1):
                names = [(rule.name, str(rule.toolkit)) for rule in queries.rules_page().rows]
            with django_assert_num_queries(1):
                queries.read_ask_rules()

        assert [name for name, _ in names] == ["rule-7", "rule-8", "rule-9"]


def test_a_warm_process_reads_rules_once_for_each_registry_version(
    alice: Membership, django_assert_num_queries: Any
) -> None:
    acme = alice.organisation
    with organisation_scope(acme):
        writes.create_rule(RuleContent("mail"), actor=alice)
        first = version(acme)
        assert len(queries.ask_rules(acme.pk, first)) == 1
        with django_assert_num_queries(0):
            queries.ask_rules(acme.pk, first)
        writes.create_rule(RuleContent("web", tool_pattern="web_*"), actor=alice)

        assert len(queries.ask_rules(acme.pk, version(acme))) == 2


def test_a_rule_that_says_the_same_of_the_same_calls_is_refused(in_acme: Organisation, alice: Membership) -> None:
    """Whatever it is called, and whatever whoever is asked reads."""
    content = RuleContent("first", tool_pattern="mail_*", argument="to", argument_pattern="*@example.org")
    first = writes.create_rule(content, actor=alice)

    with pytest.raises(ChangeRefused, match="first") as refused:
        writes.create_rule(replace(content, name="second", tool_pattern="MAIL_*", message="Really?"), actor=alice)
    assert refused.value.field == "tool_pattern"
    other = writes.create_rule(replace(content, name="second", argument_pattern="*"), actor=alice)
    with pytest.raises(ChangeRefused):
        writes.update_rule(other, replace(content, name="second"), actor=alice)
    assert writes.update_rule(first, replace(content, message="Why?"), actor=alice).message == "Why?"
