"""Helper modules: who writes and who approves, what a tool keeps, the ways back, and what keeps one from going."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.catalogue.python_tools.helper_modules.checks import CheckedModule, check_module, imported_modules
from capabilities.catalogue.python_tools.helper_modules.queries import (
    filtered_modules,
    module_or_404,
    modules_of,
    tools_behind,
    uses_of,
)
from capabilities.catalogue.python_tools.helper_modules.writes import (
    create_module,
    decide_module,
    delete_module,
    describe_module,
    retire_module,
    roll_back_module,
    update_module,
)
from capabilities.catalogue.tools.writes import Definition, Origin, create_tool, update_tool
from capabilities.catalogue.versions.queries import versions_notice
from capabilities.catalogue.versions.writes import decide_version, reason_line, retire, roll_back
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import HelperModule, HelperUse, HelperVersion, Tool, ToolKind, ToolVersion, VersionStatus
from capabilities.running.kinds.python import helpers_of
from tests.cast import make_category, make_member
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]

A, P, R, X = VersionStatus.APPROVED, VersionStatus.PENDING, VersionStatus.REJECTED, VersionStatus.RETIRED
CODE = "def net(price):\n    return price / 1.19\n"


@pytest.fixture
def dora(in_acme: Organisation) -> Membership:
    """Another admin of Acme."""
    return make_member(in_acme, "dora", Access.ADMIN)


def write(actor: Membership, name: str = "prices", code: str = CODE, description: str = "") -> HelperVersion:
    return create_module(name, description, check_module(name, code, actor.organisation_id), actor=actor)


def write_next(actor: Membership, code: str, name: str = "prices") -> HelperVersion:
    checked = check_module(name, code, actor.organisation_id)
    return update_module(HelperModule.objects.get(name=name), checked, actor=actor)


def statuses(name: str = "prices") -> list[str]:
    return list(HelperVersion.objects.filter(module__name=name).order_by("number").values_list("status", flat=True))


def give(member: Membership, right: Right, category: str = "") -> Membership:
    AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right, category=category)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def definition(helpers: dict[str, int], code: str = "import prices\ndef run(): return prices.net(1)") -> Definition:
    implementation = {"runtime": "monty", "code": code, "helpers": helpers}
    return Definition("bill", "Bills.", {"type": "object", "properties": {}}, implementation=implementation)


def make_tool_with(actor: Membership, **helpers: int) -> Tool:
    category = make_category(actor.organisation)
    return create_tool(category, definition(helpers), actor=actor, origin=Origin(ToolKind.PYTHON), status=P)


def version_of(tool: Tool, number: int = 1) -> ToolVersion:
    return ToolVersion.objects.get(tool=tool, number=number)


def last_entry() -> AuditEntry:
    return AuditEntry.objects.order_by("pk").last()  # type: ignore[return-value]


@pytest.fixture
def in_force(alice: Membership, dora: Membership) -> HelperModule:
    """A module whose version 1 is in force, written by Alice and approved by Dora."""
    decide_module(write(alice), approve=True, actor=dora)
    return HelperModule.objects.select_related("current_version").get(name="prices")


# -- Writing -----------------------------------------------------------------------------------------------------------


def test_tx_36_a_module_waits_and_tools_import_it_after_somebody_else_has_approved_it(
    alice: Membership, dora: Membership
) -> None:
    version = write(alice, description="Prices  without tax")

    assert (version.number, version.status, version.runtimes) == (1, P, ["monty"])
    assert version.module.description == "Prices without tax"
    entry = last_entry()
    assert (entry.action, entry.target_label, entry.after["sha256"]) == (
        "python_module.create", "prices", version.sha256,
    )  # fmt: skip
    tool = make_tool_with(alice, prices=1)
    with pytest.raises(ChangeRefused, match="version 1 of the module prices, which is not approved"):
        decide_version(version_of(tool), approve=True, actor=dora)

    decide_module(version, approve=True, reason="Short.", actor=dora)
    decide_version(version_of(tool), approve=True, actor=dora)

    assert statuses() == [A]
    assert helpers_of({"prices": 1}) == {"prices": CODE}
    module = module_or_404("prices")
    assert (module.current_version, module.tool_count, module.waiting_number) == (version, 1, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Prices", "is named as Python names one"),
        ("1a", "is named as Python names one"),
        ("a-b", "is named as Python names one"),
        ("a.b", "is named as Python names one"),
        ("", "is named as Python names one"),
        ("a" * 65, "is named as Python names one"),
        ("prices\n", "is named as Python names one"),
        ("préis", "is named as Python names one"),
        ("class", "is named as Python names one"),
        ("match", "is named as Python names one"),
        ("json", "Python has a module json of its own"),
        ("statistics", "Python has a module statistics of its own"),
        ("new", "taken by the service itself"),
        ("tool", "taken by the service itself"),
    ],
)
def test_a_name_is_one_that_python_imports_and_that_is_nothing_else(alice: Membership, name: str, words: str) -> None:
    with pytest.raises(ChangeRefused, match=words) as refused:
        write(alice, name)

    assert refused.value.field == "name"
    assert not HelperModule.objects.exists()


def test_a_name_is_there_once(alice: Membership) -> None:
    write(alice)

    with pytest.raises(ChangeRefused, match="There is a module prices already") as refused:
        write(alice, code="A = 1")

    assert refused.value.code == "taken"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def net(:", "Line 1: This is not Python"),
        ("A = 1\nimport requests\n", "Line 2: .*requests"),
        ("A = 1\n\nB = C\n", "Line 3: The name C is not defined"),
        ("A = 1 / 0", "ZeroDivisionError"),
        ("  \n", "Write the code"),
        ("A = 1 #" + "a" * 100_000, "under 100,000 characters"),
        ("A = '\x00'", "U\\+0000"),
    ],
)
def test_code_that_does_not_load_is_refused_with_its_line(alice: Membership, code: str, words: str) -> None:
    with pytest.raises(ChangeRefused, match=words) as refused:
        write(alice, code=code)

    assert refused.value.field == "code"
    assert not HelperModule.objects.exists()


def test_a_module_needs_no_run_and_may_import_what_is_in_force(in_force: HelperModule, alice: Membership) -> None:
    code = "import prices\n\ndef gross(net):\n    return net + prices.net(net)\n"

    assert imported_modules("taxes", code) == {"prices": CODE}
    assert write(alice, "taxes", code).status == P
    with pytest.raises(ChangeRefused, match=r"Line 1: .*taxes"):
        write(alice, "others", "import taxes\n")  # it waits


def test_what_a_module_imports_comes_with_what_that_one_imports_and_never_itself(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    decide_module(write(alice, "taxes", "import prices as p, math\nA = p.net(1)"), approve=True, actor=dora)

    assert set(imported_modules("bills", "from taxes import A")) == {"taxes", "prices"}
    assert imported_modules("prices", "import taxes, prices") == {"taxes": "import prices as p, math\nA = p.net(1)"}


def test_the_next_version_waits_and_the_same_code_again_makes_none(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    again = write_next(alice, CODE.replace("\n", "\r\n"))
    assert (again.number, statuses()) == (1, [A])

    newer = write_next(dora, "def net(price):\n    return price / 1.2\n")

    assert (newer.number, statuses()) == (2, [A, P])
    in_force.refresh_from_db()
    assert in_force.current_version is not None
    assert in_force.current_version.number == 1
    assert (last_entry().before["version"], last_entry().after["version"]) == (1, 2)


def test_a_rejected_version_is_not_what_the_next_one_is_compared_with(alice: Membership, dora: Membership) -> None:
    decide_module(write(alice), approve=False, reason="No.", actor=dora)

    assert write_next(alice, CODE).number == 2
    assert statuses() == [R, P]


def test_a_description_changes_at_once_and_is_on_record(in_force: HelperModule, alice: Membership) -> None:
    describe_module(in_force, "Net of tax", actor=alice)
    describe_module(in_force, "Net of tax", actor=alice)

    entries = AuditEntry.objects.filter(action="python_module.describe")
    assert [(each.before, each.after) for each in entries] == [({"description": ""}, {"description": "Net of tax"})]
    with pytest.raises(ChangeRefused, match="under 300 characters"):
        describe_module(in_force, "a" * 301, actor=alice)


def test_what_was_not_checked_is_not_saved(alice: Membership) -> None:
    with pytest.raises(ChangeRefused, match="There is no sandbox"):
        create_module("prices", "", CheckedModule(CODE, error="There is no sandbox."), actor=alice)
    with pytest.raises(ChangeRefused):
        create_module("prices", "", check_module("prices", "A = B", alice.organisation_id), actor=alice)

    assert not HelperModule.objects.exists()


# -- Deciding ----------------------------------------------------------------------------------------------------------


def test_nobody_approves_a_module_of_their_own_and_may_reject_it(alice: Membership) -> None:
    version = write(alice)

    with pytest.raises(ChangeForbidden, match="You wrote it"):
        decide_module(version, approve=True, actor=alice)
    assert statuses() == [P]

    decide_module(version, approve=False, reason="A mistake.", actor=alice)
    assert statuses() == [R]


def test_bob_writes_with_the_whole_right_alone_and_approves_with_the_whole_right_alone(
    bob: Membership, alice: Membership, in_force: HelperModule
) -> None:
    newer = write_next(alice, "A = 1")
    checked = check_module("prices", "A = 2", bob.organisation_id)
    bob = give(give(bob, Right.CATALOGUE, "utility"), Right.APPROVE_CODE, "utility")

    for act in (
        lambda: write(bob, "others"),
        lambda: update_module(in_force, checked, actor=bob),
        lambda: describe_module(in_force, "x", actor=bob),
        lambda: retire_module(in_force, actor=bob),
        lambda: delete_module(in_force, actor=bob),
        lambda: decide_module(newer, approve=True, actor=bob),
        lambda: decide_module(newer, approve=False, reason="No.", actor=bob),
        lambda: roll_back_module(in_force, 1, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            act()
    assert statuses() == [A, P]
    assert versions_notice(bob)[0] == 0

    bob = give(bob, Right.APPROVE_CODE)
    assert versions_notice(bob)[0] == 1
    decide_module(newer, approve=True, actor=bob)
    assert statuses() == [X, A]
    with pytest.raises(PermissionDenied):
        retire_module(in_force, actor=bob)


def test_the_second_who_decides_is_told_who_was_first(alice: Membership, dora: Membership, in_force: Any) -> None:
    version = write_next(alice, "A = 1")
    decide_module(version, approve=False, reason="No.", actor=dora)

    with pytest.raises(ChangeRefused, match="rejected already, by Dora") as refused:
        decide_module(version, approve=True, actor=dora)
    assert refused.value.code == "conflict"
    assert statuses() == [A, R]

    with pytest.raises(ChangeRefused, match="Say why"):
        decide_module(write_next(alice, "A = 2"), approve=False, actor=dora)


def test_a_module_is_decided_once_by_members_at_the_same_time(
    alice: Membership, dora: Membership, in_force: HelperModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other decides between the read and the write."""
    from capabilities.catalogue.python_tools.helper_modules import writes

    version = write_next(alice, "A = 1")
    real = reason_line

    def late(*args: Any, **kwargs: Any) -> str:
        HelperVersion.objects.filter(pk=version.pk).update(status=R, decided_by=alice)
        return real(*args, **kwargs)

    monkeypatch.setattr(writes, "reason_line", late)
    with pytest.raises(ChangeRefused, match="rejected already, by Alice"):
        decide_module(version, approve=True, actor=dora)

    in_force.refresh_from_db()
    assert in_force.current_version is not None
    assert in_force.current_version.number == 1


def test_what_waits_is_counted_with_the_versions_of_tools(alice: Membership, dora: Membership) -> None:
    write(alice)
    make_tool_with(alice, prices=1)

    assert versions_notice(dora)[0] == 2


# -- Tools keep what they were approved with ---------------------------------------------------------------------------


def test_a_new_version_changes_no_tool(in_force: HelperModule, alice: Membership, dora: Membership) -> None:
    tool = make_tool_with(alice, prices=1)
    decide_version(version_of(tool), approve=True, actor=dora)

    decide_module(write_next(alice, "def net(price): return 0"), approve=True, actor=dora)

    tool.refresh_from_db()
    assert tool.current_version is not None
    assert tool.current_version.implementation["helpers"] == {"prices": 1}
    assert helpers_of({"prices": 1}) == {"prices": CODE}
    assert [(each.number, each.status) for each in modules_of(tool.current_version)] == [(1, X)]
    assert tools_behind(HelperModule.objects.get()) == 1

    update_tool(tool, definition({"prices": 2}), actor=alice, status=P)
    assert [(each.tool_version.number, each.helper_version.number) for each in uses_of(in_force).order_by("pk")] == [
        (1, 1),
        (2, 2),
    ]
    decide_version(version_of(tool, 2), approve=True, actor=dora)
    assert [(each.tool_version.number, each.helper_version.number) for each in uses_of(in_force)] == [(2, 2)]
    assert tools_behind(HelperModule.objects.get()) == 0


def test_a_roll_back_puts_an_earlier_version_in_force_and_the_newer_one_is_retired(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    decide_module(write_next(alice, "A = 1"), approve=True, actor=dora)
    waiting = write_next(alice, "A = 2")

    roll_back_module(in_force, 1, reason="2 was wrong.", actor=alice)

    assert statuses() == [A, X, P]
    assert HelperVersion.objects.get(number=2).status_reason == "Rolled back to version 1."
    assert module_or_404("prices").current_version.number == 1  # type: ignore[union-attr]
    assert (last_entry().action, last_entry().before, last_entry().after["version"]) == (
        "python_module.roll_back", {"version": 2}, 1,
    )  # fmt: skip
    for number, words in ((1, "in force already"), (waiting.number, "was never in force"), (9, "has no version 9")):
        with pytest.raises(ChangeRefused, match=words):
            roll_back_module(in_force, number, actor=alice)


def test_a_module_out_of_use_stays_with_its_tools_and_comes_into_no_other(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    tool = make_tool_with(alice, prices=1)
    decide_version(version_of(tool), approve=True, actor=dora)
    retire_module(in_force, reason="Use taxes.", actor=alice)

    assert statuses() == [X]
    assert helpers_of({"prices": 1}) == {"prices": CODE}
    assert [each.name for each in filtered_modules(state="out")] == ["prices"]
    with pytest.raises(ChangeRefused, match="has no version in force"):
        retire_module(in_force, actor=alice)

    # The tool goes on with it, changed in another way too.
    update_tool(tool, definition({"prices": 1}, "import prices\ndef run(): return 2"), actor=alice, status=P)
    decide_version(version_of(tool, 2), approve=True, actor=dora)
    # Another tool does not begin to.
    origin = Origin(ToolKind.PYTHON)
    other = Definition("other", "O.", {"type": "object"}, implementation=definition({"prices": 1}).implementation)
    second = create_tool(tool.category, other, actor=alice, origin=origin, status=P)
    with pytest.raises(ChangeRefused, match="the module prices, which is out of use"):
        decide_version(version_of(second), approve=True, actor=dora)

    roll_back_module(in_force, 1, actor=dora)
    decide_version(version_of(second), approve=True, actor=dora)


# -- Removing ----------------------------------------------------------------------------------------------------------


def test_a_module_goes_only_where_no_tool_can_run_with_it(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    tool = make_tool_with(alice, prices=1)
    for status in (P, VersionStatus.DRAFT):
        ToolVersion.objects.filter(tool=tool).update(status=status)
        with pytest.raises(ChangeRefused, match="It is used by bill") as refused:
            delete_module(in_force, actor=alice)
        assert refused.value.code == "in_use"
    ToolVersion.objects.filter(tool=tool).update(status=P)
    decide_version(version_of(tool), approve=True, actor=dora)
    with pytest.raises(ChangeRefused, match="It is used by bill"):
        delete_module(in_force, actor=alice)
    retire(tool, actor=alice)
    with pytest.raises(ChangeRefused, match="Earlier versions use it"):
        delete_module(in_force, actor=alice)
    roll_back(tool, 1, actor=dora)
    assert HelperModule.objects.count() == 1


def test_a_name_is_free_only_after_nothing_uses_the_module(
    in_force: HelperModule, alice: Membership, dora: Membership
) -> None:
    tool = make_tool_with(alice, prices=1)
    decide_version(version_of(tool), approve=False, reason="No.", actor=dora)

    delete_module(in_force, actor=alice)

    assert not HelperModule.objects.exists()
    assert not HelperVersion.objects.exists()
    assert not HelperUse.objects.exists()
    assert last_entry().action == "python_module.delete"
    assert write(alice, code="B = 1").number == 1
    assert helpers_of({}) == {}


def test_charlie_reaches_nothing_of_acme(in_force: HelperModule, alice: Membership, charlie: Membership) -> None:
    from toolhub.tenants.rows.scope import organisation_scope

    with organisation_scope(charlie.organisation):
        assert not filtered_modules().exists()
        assert imported_modules("x", "import prices") == {}
        theirs = create_module("prices", "", check_module("prices", "A = 1", charlie.organisation_id), actor=charlie)
        assert theirs.module_id != in_force.pk
        assert versions_notice(charlie)[0] == 1
        for act in (
            lambda: decide_module(HelperVersion(pk=in_force.current_version_id), approve=True, actor=charlie),
            lambda: retire_module(HelperModule(pk=in_force.pk), actor=charlie),
            lambda: delete_module(HelperModule(pk=in_force.pk), actor=charlie),
        ):
            with pytest.raises((HelperModule.DoesNotExist, HelperVersion.DoesNotExist)):
                act()
    assert statuses() == [A]
