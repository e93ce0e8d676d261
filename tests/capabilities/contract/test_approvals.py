"""Which rule counts for a call, and what an approval is tied to."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.contract.approvals import ALWAYS, NEVER, AskedCall, AskRule, digest_of, rules_of
from capabilities.contract.effective import Effective


def a_call(**fields: Any) -> AskedCall:
    plain: dict[str, Any] = {
        "tool_id": 1,
        "name": "mail_send",
        "category": "communication",
        "agent_id": 7,
        "read_arguments": lambda: Effective({"to": "Bob@Example.com", "copies": 3, "cc": ["a", "b"]}),
        "read_roles": lambda: {5},
    }
    return AskedCall(**(plain | fields))


@pytest.mark.parametrize(
    ("rule", "means"),
    [
        ({}, True),
        ({"tool_pattern": "mail_*"}, True),
        ({"tool_pattern": "MAIL_SEND"}, True),
        ({"tool_pattern": "group:communication"}, True),
        ({"tool_pattern": "web_*"}, False),
        ({"toolkit_tools": frozenset({1, 2})}, True),
        ({"toolkit_tools": frozenset({2})}, False),
        ({"toolkit_tools": frozenset()}, False),
        ({"agent_id": 7}, True),
        ({"agent_id": 8}, False),
        ({"role_id": 5}, True),
        ({"role_id": 6}, False),
        ({"argument": "to", "argument_pattern": "*@example.com"}, True),
        ({"argument": "to", "argument_pattern": "*@example.org"}, False),
        ({"argument": "subject", "argument_pattern": "*"}, False),
        ({"argument": "copies", "argument_pattern": "3"}, True),
        ({"argument": "cc", "argument_pattern": '*"b"*'}, True),
        ({"tool_pattern": "mail_*", "agent_id": 8}, False),
    ],
)
def test_a_rule_means_a_call_where_all_that_it_names_fits(rule: dict[str, Any], means: bool) -> None:
    assert AskRule("rule", ALWAYS, **rule).means(a_call()) is means


def test_mr_42_the_rules_of_that_means_a_call_counts() -> None:
    rules = [AskRule("web", ALWAYS, "web_*"), AskRule("own", NEVER, "mail_*"), AskRule("all", ALWAYS)]

    assert rules_of(rules, a_call()) == [rules[1]]
    assert rules_of(rules[:1], a_call()) == []


def test_roles_are_read_once_and_only_where_a_rule_that_else_fits_names_one() -> None:
    reads: list[str] = []

    def read() -> set[int]:
        reads.append("read")
        return {5}

    call = a_call(read_roles=read)

    assert rules_of([AskRule("web", ALWAYS, "web_*", role_id=5), AskRule("agent", ALWAYS, agent_id=9)], call) == []
    assert reads == []
    assert rules_of([AskRule("six", ALWAYS, role_id=6), AskRule("five", ALWAYS, role_id=5)], call) != []
    assert reads == ["read"]


def test_a_digest_is_of_the_tool_its_version_and_the_arguments_in_any_order() -> None:
    digest = digest_of("mail_send", "v1", {"a": 1, "b": 2})

    assert digest == digest_of("mail_send", "v1", {"b": 2, "a": 1})
    others = [
        ("mail_read", "v1", {"a": 1, "b": 2}),
        ("mail_send", "v2", {"a": 1, "b": 2}),
        ("mail_send", "v1", {"a": 1}),
    ]
    assert digest not in [digest_of(*each) for each in others]
