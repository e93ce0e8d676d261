"""Policies and profiles: the writes and their rules, the API and the pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.access.policies.queries import policies_with_warnings
from capabilities.access.policies.writes import (
    SHIPPED_PROFILES,
    PolicyContent,
    ProfileContent,
    create_profile,
    delete_profile,
    install_profiles,
    policy_stamp,
    save_policy,
    update_profile,
)
from capabilities.choosing.pipeline.permissions import permissions_of
from capabilities.choosing.pipeline.policies import read_policies
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import ChangedMeanwhile, ChangeRefused
from capabilities.models import Policy, PolicyProfile, Provider, Tool
from tests.cast import make_agent, make_category, make_tool
from tests.rest import Rest
from toolhub.tenants.models import AuditEntry, Membership, Organisation, Right
from toolhub.tenants.people.writes import GivenRight, give_right

pytestmark = pytest.mark.django_db

ACME = "/o/acme/policies/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def tools(in_acme: Organisation) -> Organisation:
    """web_read, web_search, file_read, file_write, with a provider and an agent."""
    for category, *names in (("web", "web_read", "web_search"), ("file", "file_read", "file_write")):
        for name in names:
            make_tool(in_acme, name, category=make_category(in_acme, category))
    make_agent(in_acme)
    install_profiles(in_acme)
    return in_acme


def provider() -> Provider:
    return Provider.objects.get()


def version(organisation: Organisation) -> int:
    organisation.refresh_from_db()
    return organisation.registry_version


# -- The writes -------------------------------------------------------------------------------------------------------


def test_a_policy_is_written_with_its_audit_row_and_moves_the_registry(tools: Organisation, alice: Membership) -> None:
    before = version(tools)

    row = save_policy(None, PolicyContent("minimal", deny=(" web_* ", "WEB_*", "")), actor=alice)

    assert row is not None
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.after) == (
        "policy.create",
        {"provider": None, "profile": "minimal", "allow": [], "also_allow": [], "deny": ["web_*"]},
    )
    assert version(tools) == before + 1


def test_the_same_again_is_no_change(tools: Organisation, alice: Membership) -> None:
    save_policy(provider(), PolicyContent(deny=("web_*",)), actor=alice)
    before, entries = version(tools), AuditEntry.objects.count()

    save_policy(provider(), PolicyContent(deny=("web_*",)), actor=alice)

    assert (version(tools), AuditEntry.objects.count()) == (before, entries)
    assert Policy.objects.count() == 1


def test_a_policy_that_says_nothing_is_none(tools: Organisation, alice: Membership) -> None:
    save_policy(provider(), PolicyContent(deny=("web_*",)), actor=alice)
    before = version(tools)

    assert save_policy(provider(), PolicyContent(), actor=alice) is None
    assert Policy.objects.count() == 0
    assert AuditEntry.objects.latest("pk").action == "policy.delete"
    assert version(tools) == before + 1


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        (PolicyContent(allow=("rocket", "moon_*")), "allow", "names no tool of the catalogue"),
        (PolicyContent("rockets"), "profile", "names no tool of the catalogue"),
        (PolicyContent("missing"), "profile", "There is no profile missing."),
        (PolicyContent(deny=("web read",)), "deny", "write the name of a tool"),
        (PolicyContent(also_allow=("[a-z]*",)), "also_allow", "write the name of a tool"),
        (PolicyContent(deny=("x" * 101,)), "deny", "write the name of a tool"),
        (PolicyContent(deny=tuple(f"tool_{number}" for number in range(201))), "deny", "at most 200"),
    ],
)
def test_zs_35_an_invalid_policy_is_refused(
    tools: Organisation, alice: Membership, content: PolicyContent, field: str, words: str
) -> None:
    PolicyProfile.objects.create(organisation=tools, name="rockets", patterns=["rocket"])

    with pytest.raises(ChangeRefused, match=words.replace("*", r"\*")) as refused:
        save_policy(None, content, actor=alice)

    assert refused.value.field == field
    assert Policy.objects.count() == 0


def test_zs_35_unknown_names_beside_a_known_one_are_no_error(tools: Organisation, alice: Membership) -> None:
    save_policy(None, PolicyContent(allow=("web_read", "rocket"), also_allow=("moon",), deny=("mars",)), actor=alice)

    assert policies_with_warnings(tools) == []


def test_zs_35_a_list_whose_last_tool_goes_becomes_a_warning(tools: Organisation, alice: Membership) -> None:
    save_policy(None, PolicyContent(allow=("web_read",)), actor=alice)
    mine = create_profile(ProfileContent("mine", ("file_read",)), actor=alice)
    save_policy(provider(), PolicyContent(mine.name), actor=alice)
    Tool.objects.filter(name="web_read").update(name="page_read")
    Tool.objects.filter(name="file_read").update(name="text_read")

    found = [each.warnings for each in policies_with_warnings(tools)]  # type: ignore[attr-defined]

    lost = "names no tool of the catalogue any more, so only what is also allowed is let through."
    assert found == [(f"Its allow-list {lost}",), (f"Its profile mine {lost}",)]


def test_a_malformed_stored_policy_lets_nothing_through_and_warns(tools: Organisation) -> None:
    Policy.objects.create(organisation=tools, allow="web_read")

    (found,) = policies_with_warnings(tools)

    assert "cannot be read as it is stored" in found.warnings[0]  # type: ignore[attr-defined]
    layer = read_policies().organisation
    assert layer is not None
    assert layer.rules.is_malformed


def test_a_policy_that_was_changed_meanwhile_is_not_overwritten(tools: Organisation, alice: Membership) -> None:
    stamp = policy_stamp(None)
    save_policy(None, PolicyContent(deny=("web_*",)), actor=alice)

    with pytest.raises(ChangedMeanwhile):
        save_policy(None, PolicyContent(deny=("file_*",)), actor=alice, stamp=stamp)


# -- Profiles ---------------------------------------------------------------------------------------------------------


def test_zs_30_minimal_comes_with_the_service_and_is_exactly_the_seven(tools: Organisation) -> None:
    minimal = PolicyProfile.objects.get(name="minimal")

    assert set(minimal.patterns) == {
        "read",
        "file_search",
        "web_fetch",
        "web_search",
        "memory",
        "knowledge",
        "ask_user",
    }
    assert len(minimal.patterns) == 7
    assert (minimal.reads_only, minimal.is_shipped) == (True, True)


def test_shipped_profiles_cannot_be_changed_or_deleted(tools: Organisation, alice: Membership) -> None:
    minimal = PolicyProfile.objects.get(name="minimal")

    with pytest.raises(ChangeRefused, match="comes with the service"):
        update_profile(minimal, ProfileContent("minimal", ("*",)), actor=alice)
    with pytest.raises(ChangeRefused, match="comes with the service"):
        delete_profile(minimal, actor=alice)
    install_profiles(tools)

    assert PolicyProfile.objects.filter(is_shipped=True).count() == len(SHIPPED_PROFILES)


def test_a_profile_that_a_policy_begins_with_is_not_removed(tools: Organisation, alice: Membership) -> None:
    mine = create_profile(ProfileContent("mine", ("web_*",)), actor=alice)
    save_policy(provider(), PolicyContent("mine"), actor=alice)

    with pytest.raises(ChangeRefused, match=f"used by the policy of {provider()}") as refused:
        delete_profile(mine, actor=alice)
    save_policy(provider(), PolicyContent(), actor=alice)
    delete_profile(mine, actor=alice)

    assert refused.value.code == "in_use"
    assert [each.action for each in AuditEntry.objects.order_by("-pk")[:2]] == [
        "policy_profile.delete",
        "policy.delete",
    ]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (ProfileContent("new", ("*",)), "name"),
        (ProfileContent("two words", ("*",)), "name"),
        (ProfileContent("MINIMAL", ("*",)), "name"),
        (ProfileContent("mine", ()), "patterns"),
        (ProfileContent("mine", ("rocket",)), "patterns"),
        (ProfileContent("mine", ("a;b",)), "patterns"),
        (ProfileContent("mine", ("*",), description="x" * 2_001), "description"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(
    tools: Organisation, alice: Membership, content: ProfileContent, field: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_profile(content, actor=alice)

    assert refused.value.field == field


# -- Who may ----------------------------------------------------------------------------------------------------------


def test_each_write_takes_the_right(tools: Organisation, alice: Membership, bob: Membership) -> None:
    mine = create_profile(ProfileContent("mine", ("web_*",)), actor=alice)
    writes: list[Any] = [
        lambda: save_policy(None, PolicyContent(deny=("*",)), actor=bob),
        lambda: create_profile(ProfileContent("his", ("*",)), actor=bob),
        lambda: update_profile(mine, ProfileContent("mine", ("*",)), actor=bob),
        lambda: delete_profile(mine, actor=bob),
    ]

    for write in writes:
        with pytest.raises(PermissionDenied):
            write()

    assert (Policy.objects.count(), list(PolicyProfile.objects.get(name="mine").patterns)) == (0, ["web_*"])


def test_rest_and_pages_refuse_bob_and_know_nothing_for_charlie(
    tools: Organisation, alice: Membership, bob: Membership, charlie: Membership, client: Client
) -> None:
    mine = create_profile(ProfileContent("mine", ("web_*",)), actor=alice)
    save_policy(provider(), PolicyContent(mine.name), actor=alice)
    client.force_login(bob.user)
    of_charlie = Rest(charlie)
    slug = provider().slug

    for path in ("", "organisation/", f"providers/{slug}/", "profiles/", "profiles/new/", "profiles/mine/"):
        assert client.get(ACME + path).status_code == 403, path
        if path not in ("", "profiles/"):
            assert client.post(ACME + path, {"deny": "*"}).status_code == 403, path
    assert Rest(bob).patch("policies/organisation", {"deny": ["*"]}).status == 403
    assert of_charlie.get("policies").json["results"] == []
    assert of_charlie.get(f"policies/providers/{slug}").status == 404
    assert of_charlie.patch("policy-profiles/mine", {"reads_only": True}).status == 404
    assert of_charlie.patch("policies/organisation", {"profile": "mine"}).error == (400, "unknown", "profile")
    client.force_login(charlie.user)
    assert client.get(ACME).status_code == 404
    assert client.post("/o/globex/policies/profiles/mine/delete/").status_code == 404
    assert Policy.objects.get().profile == mine


# -- REST -------------------------------------------------------------------------------------------------------------


def test_rest_reads_and_writes_policies(tools: Organisation, alice: Membership) -> None:
    rest, slug = Rest(alice), provider().slug

    saved = rest.patch(f"policies/providers/{slug}", {"profile": "minimal", "deny": ["web_*"]})
    again = rest.patch(f"policies/providers/{slug}", {"also_allow": ["file_write"]})

    assert saved.status == 200
    wanted = {
        "provider": slug,
        "profile": "minimal",
        "allow": [],
        "also_allow": ["file_write"],
        "deny": ["web_*"],
        "warnings": [],
    }
    assert again.json == wanted == rest.get("policies").json["results"][0]
    assert rest.get("policies/organisation").json["provider"] is None
    assert rest.patch("policies/organisation", {"allow": ["rocket"]}).error == (400, "invalid", "allow")
    assert rest.get("policies/providers/nothing").status == 404


def test_a_policy_over_rest_warns_of_patterns_that_match_no_tool(tools: Organisation, alice: Membership) -> None:
    save_policy(None, PolicyContent(allow=("web_read",)), actor=alice)
    Tool.objects.filter(name="web_read").update(name="page_read")

    (found,) = Rest(alice).get("policies/organisation").json["warnings"]

    assert found.startswith("Its allow-list names no tool")


def test_rest_has_a_dry_run(tools: Organisation, alice: Membership) -> None:
    answer = Rest(alice).patch("policies/organisation?dry_run=true", {"deny": ["*"]})

    assert answer.status == 200, answer.text
    assert answer.json["agents"][0]["no_longer_sends"] == ["file_read", "file_write", "web_read", "web_search"]
    assert Policy.objects.count() == 0


def test_rest_writes_profiles(tools: Organisation, alice: Membership) -> None:
    rest = Rest(alice)

    made = rest.post("policy-profiles", {"name": "mine", "patterns": ["web_*"], "reads_only": True})
    changed = rest.patch("policy-profiles/mine", {"patterns": ["group:web"]})

    assert (made.status, made.json["is_shipped"]) == (201, False)
    assert (changed.json["patterns"], changed.json["reads_only"]) == (["group:web"], True)
    assert rest.patch("policy-profiles/minimal", {"patterns": ["*"]}).status == 400
    save_policy(None, PolicyContent("mine"), actor=alice)
    assert rest.delete("policy-profiles/mine").error[:2] == (409, "in_use")
    save_policy(None, PolicyContent(), actor=alice)
    assert rest.delete("policy-profiles/mine").status == 204


# -- Pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(client: Client, alice: Membership, tools: Organisation) -> Client:
    client.force_login(alice.user)
    return client


def test_zs_32_the_pages_say_that_a_profile_is_no_security_boundary(browser: Client) -> None:
    for path in ("organisation/", f"providers/{provider().slug}/", "profiles/", "profiles/minimal/", "profiles/new/"):
        page = browser.get(ACME + path).content.decode()
        assert "It is not a security\n  boundary." in page, path
        assert 'href="/o/acme/roles/"' in page


def test_the_live_preview_says_what_each_rule_keeps_and_drops(browser: Client) -> None:
    typed = {"look": "1", "profile": "minimal", "also_allow": "file_write", "deny": "web_search\nrocket"}

    page = browser.post(ACME + "organisation/", typed, headers=HTMX).content.decode()

    assert page.lstrip().startswith('<div id="policy-effect"')
    assert "<b>3</b> of 4 tools kept" in page
    assert "policy denies web_search" in page
    assert "policy also allows file_write" in page
    assert "profile minimal, which names web_fetch" in page
    assert "is named by rocket" in page
    assert Policy.objects.count() == 0


def test_the_preview_is_of_a_chosen_agent_and_provider(browser: Client, alice: Membership) -> None:
    save_policy(provider(), PolicyContent(deny=("file_read",)), actor=alice)
    typed = {"look": "1", "deny": "web_*", "agent": "starter", "of_provider": provider().slug}

    page = browser.post(ACME + "organisation/", typed).content.decode()

    assert "<b>1</b> of 4 tools kept" in page
    assert f"the policy of provider {provider()} denies file_read" in page


def test_a_policy_is_shown_before_it_is_saved(browser: Client) -> None:
    shown = browser.post(ACME + "organisation/", {"deny": "web_*"})
    stamp = shown.content.decode().partition('name="stamp" value="')[2].partition('"')[0]

    assert (shown.status_code, Policy.objects.count()) == (200, 0)
    assert "What will change" in shown.content.decode()
    saved = browser.post(ACME + "organisation/", {"deny": "web_*", "stamp": stamp}, follow=True)
    assert "The policy is saved" in saved.content.decode()
    assert Policy.objects.get().deny == ["web_*"]


def test_a_refusal_stands_beside_its_field_and_the_rules_are_tried_all_the_same(browser: Client) -> None:
    page = browser.post(ACME + "organisation/", {"allow": "rocket"})

    assert page.status_code == 422
    assert "This list names no tool of the catalogue" in page.content.decode()
    assert "<b>0</b> of 4 tools kept" in page.content.decode()


def test_a_profile_is_added_changed_and_removed(browser: Client, alice: Membership) -> None:
    copied = browser.get(ACME + "profiles/new/?copy=minimal").content.decode()
    assert 'value="minimal-copy"' in copied

    browser.post(ACME + "profiles/new/", {"name": "mine", "patterns": "web_*, group:file"})
    assert PolicyProfile.objects.get(name="mine").patterns == ["web_*", "group:file"]
    browser.post(ACME + "profiles/mine/", {"name": "mine", "patterns": "web_*", "reads_only": "on"})
    assert PolicyProfile.objects.get(name="mine").reads_only is True
    save_policy(provider(), PolicyContent("mine"), actor=alice)
    refused = browser.post(ACME + "profiles/mine/delete/", follow=True).content.decode()
    assert "choose another profile first" in refused
    save_policy(provider(), PolicyContent(), actor=alice)
    browser.post(ACME + "profiles/mine/delete/")
    assert not PolicyProfile.objects.filter(name="mine").exists()


def test_home_and_the_list_warn_of_patterns_that_match_no_tool(browser: Client, alice: Membership) -> None:
    save_policy(provider(), PolicyContent(allow=("web_read",)), actor=alice)
    assert "names no tool of the catalogue" not in browser.get("/o/acme/").content.decode()

    Tool.objects.filter(name="web_read").update(name="page_read")

    for path in ("/o/acme/", ACME, f"{ACME}providers/{provider().slug}/"):
        assert "names no tool of the catalogue any more" in browser.get(path).content.decode()


def test_the_list_takes_the_same_queries_for_1_and_3(browser: Client, alice: Membership) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(ACME).status_code == 200
            assert browser.get(ACME + "profiles/").status_code == 200
        return len(captured)

    save_policy(provider(), PolicyContent(deny=("web_*",)), actor=alice)
    first = queries()
    for number in range(2):
        other = Provider.objects.create(organisation=alice.organisation, slug=f"p{number}", name=f"P{number}")
        mine = create_profile(ProfileContent(f"mine{number}", ("web_*",)), actor=alice)
        save_policy(other, PolicyContent(mine.name), actor=alice)

    assert queries() == first


@pytest.mark.long
def test_the_page_of_ten_thousand_tools_stays_below_200_kb(browser: Client, tools: Organisation) -> None:
    tool = Tool.objects.get(name="web_read")
    assert tool.current_version is not None
    many = [
        Tool(organisation=tools, category=tool.category, name=f"tool_{number:05}", current_version=tool.current_version)
        for number in range(10_000)
    ]
    Tool.objects.bulk_create(many)
    typed = {"allow": "\n".join(f"*_{number:03}*" for number in range(200)), "look": "1"}

    page = browser.post(ACME + "organisation/", typed)

    assert len(page.content) < 200_000
    assert "of 10,004 tools kept" in page.content.decode()


# -- Rule 12 of the house ---------------------------------------------------------------------------------------------


def test_the_right_policies_opens_no_tool_that_roles_keep_closed(
    tools: Organisation, alice: Membership, bob: Membership
) -> None:
    """Bob, with the right, may loosen what an admin wrote: what he may use is decided by his roles all the same."""
    give_right(bob, GivenRight(Right.POLICIES), actor=alice)
    bob = Membership.objects.select_related("user", "organisation").get(pk=bob.pk)
    save_policy(None, PolicyContent(deny=("*",)), actor=alice)
    before = permissions_of(bob)

    save_policy(None, PolicyContent(), actor=bob)

    after = permissions_of(bob)
    assert (after.rights, after.loads) == (before.rights, before.loads)
    assert not any(after.decide(each).allowed for each in specs(Tool.objects.all()))
