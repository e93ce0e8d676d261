"""Versions that wait: who decides, what an approval does, and the ways back."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.catalogue.python_tools.writes import save_python_version
from capabilities.catalogue.tools.writes import Definition, Origin, create_tool, update_tool
from capabilities.catalogue.versions.rules import changes_code, differing, status_of_new
from capabilities.catalogue.versions.writes import (
    decide_version,
    keep_tool_back,
    release_tool,
    retire,
    roll_back,
    withdraw_version,
)
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import (
    AgentTool,
    HelperModule,
    HelperVersion,
    Tool,
    ToolKind,
    ToolVersion,
    VersionStatus,
)
from tests.cast import make_agent, make_category, make_member, make_tool
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]

A, P, R, X = (
    VersionStatus.APPROVED,
    VersionStatus.PENDING,
    VersionStatus.REJECTED,
    VersionStatus.RETIRED,
)


def definition(code: str = "def run(a): return a", **fields: Any) -> Definition:
    content: dict[str, Any] = {
        "name": "double",
        "description": "Doubles a number.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "implementation": {"runtime": "monty", "code": code, "helpers": {}},
    }
    return Definition(**(content | fields))


@pytest.fixture
def dora(in_acme: Organisation) -> Membership:
    """Another admin of Acme."""
    return make_member(in_acme, "dora", Access.ADMIN)


@pytest.fixture
def double(in_acme: Organisation, alice: Membership) -> Tool:
    """A Python tool of Alice's that waits."""
    origin = Origin(ToolKind.PYTHON)
    return create_tool(make_category(in_acme), definition(), actor=alice, origin=origin, status=P)


def version(tool: Tool, number: int = 1) -> ToolVersion:
    return ToolVersion.objects.get(tool=tool, number=number)


def statuses(tool: Tool) -> list[str]:
    return list(ToolVersion.objects.filter(tool=tool).order_by("number").values_list("status", flat=True))


def give(member: Membership, right: Right, category: str = "") -> Membership:
    AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right, category=category)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def last_entry() -> AuditEntry:
    return AuditEntry.objects.order_by("pk").last()  # type: ignore[return-value]


# -- What is in force at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "access", "changes", "expected"),
    [
        ("builtin", Access.OPERATOR, True, A),
        ("python", Access.ADMIN, True, P),
        ("python", Access.ADMIN, False, A),
        ("http", Access.ADMIN, True, A),
        ("http", Access.OPERATOR, True, P),
        ("http", Access.OPERATOR, False, A),
        ("mcp", Access.ADMIN, True, A),
        ("mcp", Access.OPERATOR, True, P),
    ],
)
def test_s52_a_changed_implementation_waits_unless_its_author_may_approve(
    in_acme: Organisation, kind: str, access: Access, changes: bool, expected: VersionStatus
) -> None:
    actor = make_member(in_acme, "otto", access)

    assert status_of_new(kind, actor, author=None, changes_code=changes) == expected


@pytest.mark.parametrize("kind", ["python", "http", "mcp"])
def test_s48_what_an_agent_wrote_waits_whoever_its_member_is(alice: Membership, kind: str) -> None:
    assert status_of_new(kind, alice, author=alice, changes_code=True) == P
    assert status_of_new(kind, None, author=None, changes_code=True) == P


def test_s52_the_right_limited_to_the_category_counts_there_alone(bob: Membership) -> None:
    bob = give(bob, Right.APPROVE_CODE, "web")

    assert status_of_new("http", bob, author=None, changes_code=True, category="web") == A
    assert status_of_new("http", bob, author=None, changes_code=True, category="file") == P
    assert status_of_new("http", bob, author=None, changes_code=True) == P


def test_words_of_what_is_in_force_change_no_code(double: Tool, dora: Membership) -> None:
    worded = definition(description="Twice a number.", human_format="Doubling {a}", instructions="Whole numbers.")
    assert changes_code(double, worded)

    decide_version(version(double), approve=True, actor=dora)
    double.refresh_from_db()

    assert not changes_code(double, worded)
    assert changes_code(double, definition("def run(a): return 2 * a"))
    assert changes_code(double, definition(timeout=60.0))
    assert differing(definition(), worded) == {"description", "human_format", "instructions"}


# -- Deciding ----------------------------------------------------------------------------------------------------------


def test_tx_40_a_version_that_waits_is_sent_to_no_model_and_an_approved_one_is(double: Tool, dora: Membership) -> None:
    assert specs(Tool.objects.filter(pk=double.pk)) == []

    decided = decide_version(version(double), approve=True, reason="Read it.", actor=dora)

    (spec,) = specs(Tool.objects.filter(pk=double.pk))
    assert (spec.version_id, spec.kind) == (decided.pk, "python")
    assert (decided.status, decided.status_reason, decided.decided_by) == (A, "Read it.", dora)
    assert decided.decided_at is not None
    entry = last_entry()
    assert (entry.action, entry.actor_id, entry.target_label) == ("tool.version_approve", dora.pk, "double")
    assert entry.before == {"version": None}
    assert entry.after == {"version": 1, "sha256": decided.sha256, "reason": "Read it."}


def test_s48_the_author_never_approves_own_code_not_even_as_an_admin(double: Tool, alice: Membership) -> None:
    with pytest.raises(ChangeForbidden, match="You wrote it: somebody else has to approve it"):
        decide_version(version(double), approve=True, actor=alice)

    assert statuses(double) == [P]


def test_s48_nor_with_a_later_membership_of_the_same_person(double: Tool, alice: Membership, dora: Membership) -> None:
    Membership.objects.filter(pk=alice.pk).update(ended_at="2026-01-01T00:00Z")
    again = make_member(alice.organisation, "alice", Access.ADMIN)

    with pytest.raises(ChangeForbidden, match="You wrote it"):
        decide_version(version(double), approve=True, actor=again)


def test_s48_the_member_of_the_turn_does_not_approve_what_the_agent_wrote(
    in_acme: Organisation, alice: Membership, dora: Membership
) -> None:
    agent = make_agent(in_acme)
    origin = Origin(ToolKind.PYTHON, made_by_agent=agent)
    tool = create_tool(make_category(in_acme), definition(), actor=alice, origin=origin, status=P)

    with pytest.raises(ChangeForbidden, match="An agent wrote it in a turn of yours"):
        decide_version(version(tool), approve=True, actor=alice)

    decide_version(version(tool), approve=True, actor=dora)
    assert AgentTool.objects.filter(agent=agent, tool=tool).exists()
    assert last_entry().after["agent"] == agent.slug


def test_the_agents_tool_that_somebody_took_away_does_not_come_back_with_its_next_version(
    in_acme: Organisation, alice: Membership, dora: Membership
) -> None:
    origin = Origin(ToolKind.PYTHON, made_by_agent=make_agent(in_acme))
    tool = create_tool(make_category(in_acme), definition(), actor=alice, origin=origin, status=P)
    decide_version(version(tool), approve=True, actor=dora)
    AgentTool.objects.all().delete()
    update_tool(tool, definition("def run(a): return 0"), actor=alice, status=P)

    decide_version(version(tool, 2), approve=True, actor=dora)

    assert not AgentTool.objects.exists()


def test_an_account_that_links_join_to_the_authors_counts_as_the_authors(
    in_acme: Organisation, double: Tool, alice: Membership, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = give(bob, Right.APPROVE_CODE)
    monkeypatch.setattr("capabilities.catalogue.versions.rules.linked_members", lambda member: [alice])

    with pytest.raises(ChangeForbidden, match="are linked by invitations"):
        decide_version(version(double), approve=True, actor=bob)


def test_without_the_right_nobody_decides(in_acme: Organisation, double: Tool, bob: Membership) -> None:
    otto = make_member(in_acme, "otto", Access.OPERATOR)
    elsewhere = give(bob, Right.APPROVE_CODE, "file")

    for member in (otto, elsewhere):
        for approve in (True, False):
            with pytest.raises(PermissionDenied, match="approve_code for utility"):
                decide_version(version(double), approve=approve, reason="no", actor=member)

    assert statuses(double) == [P]


def test_the_right_limited_to_the_tools_category_is_enough(double: Tool, bob: Membership) -> None:
    decide_version(version(double), approve=True, actor=give(bob, Right.APPROVE_CODE, "utility"))

    assert statuses(double) == [A]


def test_a_rejected_version_stays_readable_with_its_reason(double: Tool, dora: Membership) -> None:
    with pytest.raises(ChangeRefused, match="Say why"):
        decide_version(version(double), approve=False, reason=" \n", actor=dora)

    decide_version(version(double), approve=False, reason="It returns  the number\nitself.", actor=dora)

    rejected = version(double)
    assert (rejected.status, rejected.status_reason) == (R, "It returns the number itself.")
    assert rejected.implementation["code"] == "def run(a): return a"
    assert last_entry().action == "tool.version_reject"
    assert Tool.objects.get().current_version is None


def test_the_author_may_reject_own_code(double: Tool, alice: Membership) -> None:
    decide_version(version(double), approve=False, reason="Wrong.", actor=alice)

    assert statuses(double) == [R]


def test_the_second_decision_on_a_version_names_who_was_first(double: Tool, dora: Membership) -> None:
    emma = make_member(double.organisation, "emma", Access.ADMIN)
    read_before = version(double)
    decide_version(version(double), approve=True, actor=dora)

    with pytest.raises(ChangeRefused, match=r"Version 1 was approved already, by Dora\.") as told:
        decide_version(read_before, approve=False, reason="No.", actor=emma)

    assert told.value.code == "conflict"
    assert statuses(double) == [A]


def test_the_older_of_two_that_wait_may_be_approved_and_the_newer_goes_on_waiting(
    double: Tool, alice: Membership, dora: Membership
) -> None:
    update_tool(double, definition("def run(a): return 2 * a"), actor=alice, status=P)

    decide_version(version(double, 1), approve=True, actor=dora)
    assert statuses(double) == [A, P]

    decide_version(version(double, 2), approve=True, actor=dora)
    assert statuses(double) == [X, A]


def test_a_version_is_not_approved_before_the_helper_that_it_uses(
    in_acme: Organisation, alice: Membership, dora: Membership
) -> None:
    module = HelperModule.objects.create(organisation=in_acme, name="maths")
    helper = HelperVersion.objects.create(organisation=in_acme, module=module, number=1, code="", sha256="")
    content = definition(implementation={"runtime": "monty", "code": "def run(): pass", "helpers": {"maths": 1}})
    tool = create_tool(make_category(in_acme), content, actor=alice, origin=Origin(ToolKind.PYTHON), status=P)

    with pytest.raises(ChangeRefused, match="version 1 of the module maths, which is not approved"):
        decide_version(version(tool), approve=True, actor=dora)

    HelperVersion.objects.filter(pk=helper.pk).update(status=A)
    decide_version(version(tool), approve=True, actor=dora)
    assert statuses(tool) == [A]


# -- The ways back -----------------------------------------------------------------------------------------------------


@pytest.fixture
def two(double: Tool, alice: Membership, dora: Membership) -> Tool:
    """The same tool with a second version in force and a third that waits."""
    decide_version(version(double, 1), approve=True, actor=dora)
    update_tool(double, definition("def run(a): return 2 * a"), actor=alice, status=P)
    decide_version(version(double, 2), approve=True, actor=dora)
    update_tool(double, definition("def run(a): return 3 * a"), actor=alice, status=P)
    double.refresh_from_db()
    return double


def test_tx_34_rolling_back_puts_the_older_version_itself_in_force(two: Tool, alice: Membership) -> None:
    back = roll_back(two, 1, reason="Version 2 fails.", actor=alice)

    two.refresh_from_db()
    assert two.current_version == back == version(two, 1)
    assert statuses(two) == [A, X, P]
    assert version(two, 2).status_reason == "Rolled back to version 1."
    entry = last_entry()
    assert (entry.action, entry.before, entry.after["version"]) == ("tool.roll_back", {"version": 2}, 1)

    roll_back(two, 2, actor=alice)
    assert statuses(two) == [X, A, P]


def test_s52_code_that_was_taken_back_while_its_tests_ran_waits_again(
    two: Tool, alice: Membership, dora: Membership
) -> None:
    as_the_editor_read_it = Tool.objects.select_related("category", "current_version").get(pk=two.pk)
    roll_back(two, 1, actor=dora)

    words = definition("def run(a): return 2 * a", description="In other words.")
    saved = save_python_version(as_the_editor_read_it, two.category, words, submit=True, actor=alice)

    assert saved.status == P
    assert Tool.objects.get(pk=two.pk).current_version == version(two, 1)


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (2, "conflict", "Version 2 is in force already."),
        (3, "conflict", "Version 3 was never in force: it is waiting for approval."),
        (9, "unknown", "double has no version 9."),
    ],
)
def test_only_what_was_in_force_comes_back(two: Tool, alice: Membership, number: int, code: str, message: str) -> None:
    with pytest.raises(ChangeRefused) as told:
        roll_back(two, number, actor=alice)

    assert (told.value.code, str(told.value)) == (code, message)
    assert statuses(two) == [X, A, P]


def test_code_goes_back_with_the_right_to_approve_it_and_words_with_the_catalogues(
    two: Tool, in_acme: Organisation, alice: Membership
) -> None:
    otto = make_member(in_acme, "otto", Access.OPERATOR)
    with pytest.raises(PermissionDenied, match="approve_code for utility"):
        roll_back(two, 1, actor=otto)

    update_tool(two, definition("def run(a): return 2 * a", description="Twice."), actor=otto)
    roll_back(two, 2, actor=otto)

    assert statuses(two) == [X, A, P, X]


def test_a_built_in_tool_goes_back_in_its_instructions_alone(in_acme: Organisation, alice: Membership) -> None:
    tool = make_tool(in_acme, "greet", instructions="Be short.")
    content = Definition("greet", "Does greet.", {"type": "object", "properties": {}}, "read", "retry")
    update_tool(tool, content, actor=alice)
    roll_back(tool, 1, actor=alice)
    update_tool(tool, Definition("greet", "Other.", {"type": "object", "properties": {}}), actor=alice)

    with pytest.raises(ChangeRefused, match="only its instructions go back"):
        roll_back(tool, 2, actor=alice)


def test_tx_17_a_retired_tool_is_not_sent_and_comes_back_by_a_roll_back(two: Tool, alice: Membership) -> None:
    retire(two, reason="Nobody needs it.", actor=alice)

    assert statuses(two) == [X, X, P]
    assert specs(Tool.objects.filter(pk=two.pk)) == []
    with pytest.raises(ChangeRefused, match="no version in force"):
        retire(two, actor=alice)

    roll_back(two, 2, actor=alice)
    assert statuses(two) == [X, A, P]


def test_a_built_in_tool_is_not_retired(in_acme: Organisation, alice: Membership) -> None:
    with pytest.raises(ChangeRefused, match="switch it off"):
        retire(make_tool(in_acme), actor=alice)


def test_the_author_takes_a_version_that_waits_back_and_another_member_does_not(
    double: Tool, alice: Membership, bob: Membership
) -> None:
    with pytest.raises(PermissionDenied, match="catalogue"):
        withdraw_version(version(double), actor=bob)

    withdraw_version(version(double), actor=alice)

    assert statuses(double) == [VersionStatus.DRAFT]
    with pytest.raises(ChangeRefused, match="Version 1 is a draft"):
        decide_version(version(double), approve=True, actor=make_member(double.organisation, "emma", Access.ADMIN))


# -- Kept back ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept_back(two: Tool) -> Tool:
    Tool.objects.filter(pk=two.pk).update(quarantine="its definition changed at the server")
    two.refresh_from_db()
    return two


def test_s49_the_approval_of_what_is_new_ends_the_quarantine(kept_back: Tool, dora: Membership) -> None:
    decide_version(version(kept_back, 3), approve=True, actor=dora)

    assert Tool.objects.get(pk=kept_back.pk).quarantine == ""
    assert last_entry().before == {"version": 2, "quarantine": "its definition changed at the server"}


def test_s49_the_approval_of_an_older_one_does_not(kept_back: Tool, alice: Membership, dora: Membership) -> None:
    update_tool(kept_back, definition("def run(a): return 4 * a"), actor=alice, status=P)

    decide_version(version(kept_back, 3), approve=True, actor=dora)

    assert Tool.objects.get(pk=kept_back.pk).quarantine


# -- Kept back by a person ---------------------------------------------------------------------------------------------


@pytest.fixture
def in_use(double: Tool, dora: Membership) -> Tool:
    """Alice's tool, which Dora approved."""
    decide_version(version(double), approve=True, actor=dora)
    return double


def quarantine_of(tool: Tool) -> str:
    return Tool.objects.get(pk=tool.pk).quarantine


def test_an_operator_keeps_a_tool_back_and_releases_it(in_use: Tool, dora: Membership) -> None:
    keep_tool_back(in_use, "  It doubles\n twice. ", actor=dora)

    tool = Tool.objects.get(pk=in_use.pk)
    assert (tool.quarantine, tool.quarantined_by) == ("It doubles twice.", dora)
    assert tool.quarantined_at is not None
    (spec,) = specs(Tool.objects.filter(pk=tool.pk))
    assert spec.quarantine == "It doubles twice."
    entry = last_entry()
    assert (entry.action, entry.actor, entry.after) == ("tool.keep_back", dora, {"quarantine": "It doubles twice."})

    release_tool(tool, actor=dora)

    again = Tool.objects.get(pk=tool.pk)
    assert (again.quarantine, again.quarantined_at, again.quarantined_by_id) == ("", None, None)
    entry = last_entry()
    assert (entry.action, entry.before) == ("tool.release", {"quarantine": "It doubles twice."})


def test_another_reason_keeps_the_moment_and_the_same_one_writes_nothing(in_use: Tool, dora: Membership) -> None:
    keep_tool_back(in_use, "Wrong.", actor=dora)
    since = Tool.objects.get(pk=in_use.pk).quarantined_at

    keep_tool_back(in_use, "Quite wrong.", actor=dora)
    written = AuditEntry.objects.count()
    keep_tool_back(in_use, "Quite wrong.", actor=dora)

    assert AuditEntry.objects.count() == written
    assert (quarantine_of(in_use), Tool.objects.get(pk=in_use.pk).quarantined_at) == ("Quite wrong.", since)


def test_who_keeps_the_catalogue_keeps_back_and_does_not_release(
    in_use: Tool, bob: Membership, dora: Membership
) -> None:
    with pytest.raises(PermissionDenied):
        keep_tool_back(in_use, "Why not.", actor=bob)
    bob = give(bob, Right.CATALOGUE, in_use.category.name)

    keep_tool_back(in_use, "It is slow.", actor=bob)
    with pytest.raises(PermissionDenied, match="approve_code"):
        release_tool(in_use, actor=bob)
    with pytest.raises(PermissionDenied, match="approve_code"):
        keep_tool_back(in_use, "Another reason.", actor=bob)

    assert quarantine_of(in_use) == "It is slow."
    bob = give(bob, Right.APPROVE_CODE, in_use.category.name)
    release_tool(in_use, actor=bob)
    assert quarantine_of(in_use) == ""


def test_nobody_releases_code_of_their_own(in_use: Tool, alice: Membership, dora: Membership) -> None:
    keep_tool_back(in_use, "Wrong.", actor=dora)

    with pytest.raises(ChangeForbidden, match="You wrote it"):
        release_tool(in_use, actor=alice)

    assert quarantine_of(in_use) == "Wrong."


def test_what_cannot_be_kept_back_or_released_says_why(double: Tool, dora: Membership) -> None:
    with pytest.raises(ChangeRefused, match="no version in force"):
        keep_tool_back(double, "Wrong.", actor=dora)
    decide_version(version(double), approve=True, actor=dora)
    with pytest.raises(ChangeRefused, match="Say why"):
        keep_tool_back(double, " ", actor=dora)
    with pytest.raises(ChangeRefused, match="under 300 characters"):
        keep_tool_back(double, "a" * 301, actor=dora)
    with pytest.raises(ChangeRefused, match="is not kept back"):
        release_tool(double, actor=dora)


def test_s49_a_definition_that_its_server_does_not_offer_is_not_released(kept_back: Tool, dora: Membership) -> None:
    Tool.objects.filter(pk=kept_back.pk).update(is_offered=False)

    with pytest.raises(ChangeRefused, match="does not offer the version in force"):
        release_tool(kept_back, actor=dora)

    assert quarantine_of(kept_back)


def test_what_waits_beside_a_released_tool_goes_on_waiting(kept_back: Tool, dora: Membership) -> None:
    release_tool(kept_back, actor=dora)

    assert statuses(kept_back) == [X, A, P]


def test_a_roll_back_leaves_a_tool_kept_back(kept_back: Tool, dora: Membership) -> None:
    roll_back(kept_back, 1, actor=dora)

    assert quarantine_of(kept_back)
    assert version(kept_back).status == A
