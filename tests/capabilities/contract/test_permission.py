from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.permission import NO_RIGHTS, Decision, Permission, Rights, RoleRules

TOOL, CATEGORY = 7, 3

ALL = RoleRules("all", "all")
NONE = RoleRules("none", "none")


def listed(category: Decision | None = None, tool: Decision | None = None, slug: str = "some") -> RoleRules:
    return RoleRules(slug, "listed", {CATEGORY: category} if category else {}, {TOOL: tool} if tool else {})


def rights(*roles: RoleRules, category: Decision | None = None, tool: Decision | None = None) -> Rights:
    return Rights(roles, {CATEGORY: category} if category else {}, {TOOL: tool} if tool else {})


NO_ROLE = Permission(False, "role", "this member has no role")
CLOSED = Permission(False, "role", "no role of this member allows it")
DENIED = Permission(False, "grants", "denied by a grant of this member")
GRANTED = Permission(True, "grants", "allowed by a grant of this member")


def opened(slug: str) -> Permission:
    return Permission(True, "role", f"role {slug} allows it")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (NO_RIGHTS, NO_ROLE),
        (rights(ALL), opened("all")),
        (rights(NONE), CLOSED),
        (rights(RoleRules("odd", "")), CLOSED),
        (rights(RoleRules("odd", "everything", {CATEGORY: "allow"}, {TOOL: "allow"})), CLOSED),
        (rights(listed()), CLOSED),
        (rights(listed("allow")), opened("some")),
        (rights(listed("deny")), CLOSED),
        (rights(listed(None, "allow")), opened("some")),
        (rights(listed("deny", "allow")), opened("some")),
        (rights(listed("allow", "deny")), CLOSED),
        (rights(listed("deny"), ALL), opened("all")),
        (rights(NONE, listed("allow"), ALL), opened("some")),
        (rights(category="allow"), GRANTED),
        (rights(tool="allow"), GRANTED),
        (rights(NONE, tool="allow"), GRANTED),
        (rights(ALL, tool="deny"), DENIED),
        (rights(ALL, category="deny"), DENIED),
        (rights(ALL, category="deny", tool="allow"), DENIED),
        (rights(ALL, category="allow", tool="deny"), DENIED),
    ],
)
def test_deny_beats_grant_beats_role_and_no_role_is_no_tool(given: Rights, answer: Permission) -> None:
    assert given.decide(TOOL, CATEGORY) == answer


def test_what_is_said_of_other_tools_does_not_count() -> None:
    other = Rights((RoleRules("some", "listed", {4: "allow"}, {8: "allow"}),), {4: "allow"}, {8: "allow"})

    assert other.decide(TOOL, CATEGORY) == CLOSED


DECISIONS = st.dictionaries(st.integers(0, 4), st.sampled_from(["allow", "deny"]))
ROLES = st.lists(
    st.builds(RoleRules, st.just("r"), st.sampled_from(["all", "listed", "none", ""]), DECISIONS, DECISIONS), max_size=3
)


@given(ROLES, DECISIONS, DECISIONS, st.integers(0, 4), st.integers(0, 4))
def test_a_deny_more_never_opens_and_an_allow_more_never_closes(
    roles: list[RoleRules],
    categories: dict[int, Decision],
    tools: dict[int, Decision],
    tool: int,
    category: int,
) -> None:
    now = Rights(tuple(roles), categories, tools).decide(tool, category)

    assert not Rights(tuple(roles), categories, {**tools, tool: "deny"}).decide(tool, category).allowed
    if now.allowed:
        assert Rights((*roles, ALL), categories, tools).decide(tool, category).allowed
    if tools.get(tool) != "deny" and categories.get(category) != "deny":
        assert Rights(tuple(roles), categories, {**tools, tool: "allow"}).decide(tool, category).allowed
