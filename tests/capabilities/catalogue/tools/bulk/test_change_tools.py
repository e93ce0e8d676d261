"""Effect, category and approvals of many tools at once: by the write, the page and REST."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.urls import reverse

from capabilities.catalogue.http_tools.writes import create_http_tool
from capabilities.catalogue.tools.bulk.writes import ToolsChange, change_tools
from capabilities.common.refused import ChangeRefused
from capabilities.models import Category, RuntimeConfig, Tool, ToolVersion, VersionStatus
from tests.capabilities.catalogue.http_tools.rows import content
from tests.cast import make_category, make_tool
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db


@pytest.fixture
def pets(in_acme: Organisation) -> Category:
    make_category(in_acme)
    return make_category(in_acme, "pets", is_core=False)


@pytest.fixture
def tools(pets: Category, alice: Membership) -> list[Tool]:
    return [create_http_tool(content(name=name, effect="external"), actor=alice) for name in ("a", "b", "c")]


def with_rights(member: Membership, *rights: Right) -> Membership:
    for right in rights:
        AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right)
    return member


def state() -> dict[str, tuple[str, str, str, str]]:
    rows = Tool.objects.order_by("name").select_related("current_version", "category")
    found = {}
    for tool in rows:
        version = tool.current_version
        assert version is not None
        found[tool.name] = (tool.category.name, version.effect, version.in_untrusted, version.on_crash)
    return found


def test_effect_category_and_approvals_are_set_together(tools: list[Tool], alice: Membership) -> None:
    ToolVersion.objects.update(in_untrusted="ask")
    before = AuditEntry.objects.count()

    done = change_tools(
        ["a", "c"], ToolsChange(effect="read", category="pets", ask="first_time", in_untrusted="refuse"), actor=alice
    )

    assert (list(done.changed), list(done.waiting)) == (["a", "c"], [])
    read, other = ("pets", "read", "allow", "retry"), ("utility", "external", "ask", "never")
    assert state() == {"a": read, "b": other, "c": read}
    knobs = {"ask": "first_time", "in_untrusted": "refuse"}
    assert RuntimeConfig.objects.get().values == {"tools": {"a": knobs, "c": knobs}}
    actions = list(AuditEntry.objects.order_by("number").values_list("action", flat=True))[before:]
    assert actions == ["tool.update", "tool.move", "runtime_config.create"]


def test_what_somebody_set_beside_stays(tools: list[Tool], alice: Membership) -> None:
    ToolVersion.objects.filter(tool__name="a").update(in_untrusted="refuse", on_crash="retry_with_key")
    change_tools(["a", "b"], ToolsChange(effect="read"), actor=alice)

    assert state()["a"][2:] == ("refuse", "retry_with_key")


@pytest.mark.parametrize(
    ("names", "change", "field"),
    [
        (["a", "nothing"], {"effect": "read"}, "names"),
        (["a", "theirs"], {"effect": "read"}, "names"),
        (["a", "b"], {"effect": "destroys"}, "effect"),
        (["a", "built_in"], {"effect": "read"}, "effect"),
        (["a", "b"], {"effect": "read", "category": "nowhere"}, "category"),
        (["a", "b"], {}, "names"),
        ([f"t{number}" for number in range(3_000)], {"effect": "read"}, "names"),
    ],
)
def test_a_refused_tool_leaves_all_tools_unchanged(
    tools: list[Tool], alice: Membership, charlie: Membership, names: list[str], change: dict[str, Any], field: str
) -> None:
    make_tool(alice.organisation, "built_in")
    make_tool(charlie.organisation, "theirs")
    before, entries = state(), AuditEntry.objects.count()

    with pytest.raises(ChangeRefused) as refused:
        change_tools(names, ToolsChange(**change), actor=alice)

    assert refused.value.field == field
    assert (state(), AuditEntry.objects.count()) == (before, entries)


def test_each_part_takes_its_own_right_and_nothing_is_half_written(tools: list[Tool], bob: Membership) -> None:
    with pytest.raises(PermissionDenied):
        change_tools(["a"], ToolsChange(effect="read"), actor=bob)
    bob = Membership.objects.select_related("user", "organisation").get(pk=with_rights(bob, Right.CATALOGUE).pk)
    before = state()

    with pytest.raises(PermissionDenied):
        change_tools(["a"], ToolsChange(category="pets", ask="off"), actor=bob)
    assert state() == before

    done = change_tools(["a"], ToolsChange(effect="read"), actor=bob)
    assert (list(done.waiting), state()) == (["a"], before)
    assert ToolVersion.objects.get(tool__name="a", effect="read").status == VersionStatus.PENDING


@pytest.mark.parametrize("count", [1, 3])
def test_it_takes_the_same_queries_for_1_and_3(
    tools: list[Tool], alice: Membership, count: int, django_assert_num_queries: Any
) -> None:
    change = ToolsChange(effect="read", category="pets", ask="always")

    with django_assert_num_queries(37):
        change_tools(["a", "b", "c"][:count], change, actor=alice)


def test_rest_sets_many_all_or_none(tools: list[Tool], alice: Membership) -> None:
    rest = Rest(alice)

    wrong = rest.post("tools/bulk", {"names": ["a", "nothing"], "effect": "read"})
    done = rest.post("tools/bulk", {"names": ["a", "b"], "effect": "read", "category": "pets", "in_untrusted": "ask"})
    off = rest.post("tools/bulk", {"names": ["a", "b", "c"], "is_enabled": False, "off_message": "Out of order."})

    assert wrong.error == (400, "unknown", "names")
    assert (done.status, done.json) == (200, {"changed": 2, "waiting": []})
    assert (off.json["changed"], Tool.objects.filter(is_enabled=False).count()) == (3, 3)
    assert state()["a"][:2] == ("pets", "read")
    assert rest.post("tools/bulk", {"names": ["a"]}).status == 400


def test_the_page_sets_the_ticked_and_says_how_many(tools: list[Tool], alice: Membership, client: Client) -> None:
    client.force_login(alice.user)
    url = reverse("tools_change", args=["acme"])

    page = client.post(url, {"names": ["a", "b"], "effect": "read"}, follow=True).content.decode()
    refused = client.post(url, {"names": ["a", "nothing"], "effect": "write"}, follow=True).content.decode()

    assert "Changed 2 of 2 tools." in page
    assert "Nothing was changed." in refused
    assert [each[1] for each in state().values()] == ["read", "read", "external"]


def test_a_refusal_keeps_ticks_and_fields_for_one_page(tools: list[Tool], alice: Membership, client: Client) -> None:
    client.force_login(alice.user)
    sent = {"names": ["a", "b", "nothing"], "effect": "write", "ask": "always"}

    refused = client.post(reverse("tools_change", args=["acme"]), sent, follow=True).content.decode()
    again = client.get("/o/acme/tools/").content.decode()

    ticked = r'name="names"\s+value="(\w+)"\s+checked'
    assert re.findall(ticked, refused) == ["a", "b"]
    assert re.findall(r'<option value="(\w+)"\s+selected', refused) == ["write", "always"]
    assert re.findall(rf'{ticked}|<option value="(\w+)"\s+selected', again) == []


def test_the_page_is_not_there_for_another_organisation(tools: list[Tool], charlie: Membership, client: Client) -> None:
    client.force_login(charlie.user)
    before = state()

    answer = client.post(reverse("tools_change", args=["acme"]), {"names": ["a"], "effect": "read"})

    assert (answer.status_code, state()) == (404, before)
