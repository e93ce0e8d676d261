"""The pages of roles, grants, agents, categories and set-up, and of several models a provider."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from capabilities.access.members.queries import USERS_SHOWN
from capabilities.access.roles.writes import Rule, rules_as_text, set_role_rules
from capabilities.agents.agents.writes import own_tools
from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.models import (
    Agent,
    Category,
    Grant,
    LanguageModel,
    Provider,
    Role,
    RoleMembership,
    ServiceSetting,
    Tool,
)
from tests.cast import make_agent, make_category, make_member, make_role, make_tool
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

ACME = "/o/acme/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


@pytest.fixture
def web(acme: Organisation) -> Category:
    web = make_category(acme, "web")
    for name in ("fetch", "http_post"):
        make_tool(acme, name, category=web)
    make_tool(acme, "file_read", category=make_category(acme, "file", is_core=False))
    return web


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def give_right(member: Membership, right: Right, category: str = "") -> None:
    with organisation_scope(member.organisation):
        AdminRight.objects.create(organisation=member.organisation, membership=member, right=right, category=category)


# -- Roles ------------------------------------------------------------------------------------------------------------


def save(client: Client, path: str, form: dict[str, Any]) -> Any:
    """Post the form, look at what it would change, and post it again as it was shown."""
    shown = client.post(path, form)
    assert (shown.status_code, "Nothing is saved yet" in text_of(shown.content)) == (200, True)
    stamp = re.search(r'name="stamp"\s+value="([0-9a-f.]+)"', shown.content.decode())
    assert stamp is not None
    return client.post(path, form | {"stamp": stamp[1]})


def role(**fields: Any) -> dict[str, Any]:
    return {"name": "Web", "slug": "web", "description": "", "mode": "listed"} | fields


@pytest.mark.usefixtures("web")
def test_a_role_is_added_with_its_matrix(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow", "tool-http_post": "deny"}))

    assert (answer.status_code, answer["Location"]) == (302, f"{ACME}roles/web/")
    with organisation_scope(acme):
        assert rules_as_text(Role.objects.get()) == ["allow category web", "deny tool http_post"]
    page = as_alice.get(f"{ACME}roles/web/").content.decode()
    assert re.search(r'name="category-web".*?<option value="allow" selected>', page, re.DOTALL)
    assert 'class="is-different"' in page


@pytest.mark.usefixtures("web")
def test_what_the_form_does_not_show_stays(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow", "tool-file_read": "allow"}))

    save(as_alice, f"{ACME}roles/web/", role(**{"category-web": "", "tool-fetch": "allow"}))
    save(as_alice, f"{ACME}roles/web/", role(**{"tool-http_post": "deny"}))

    with organisation_scope(acme):
        assert rules_as_text(Role.objects.get()) == ["allow tool fetch", "allow tool file_read", "deny tool http_post"]


@pytest.mark.usefixtures("web")
def test_a_preview_tells_and_saves_nothing(as_alice: Client, bob: Membership, acme: Organisation) -> None:
    as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow"}))
    with organisation_scope(acme):
        RoleMembership.objects.create(organisation=acme, role=Role.objects.get(), membership=bob)

    form = role(**{"category-web": "deny", "tool-file_read": "allow", "preview": "1"})
    page = text_of(as_alice.post(f"{ACME}roles/web/", form).content)

    assert "gains file_read and loses 2 tools" in page
    assert "allows 1: file_read" in page
    assert "no longer allows 2: fetch, http_post" in page
    with organisation_scope(acme):
        assert rules_as_text(Role.objects.get()) == ["allow category web"]


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"slug": "No slug"}, "Use lower-case letters"),
        ({"name": ""}, "This field is required"),
        ({"mode": "some"}, "Select a valid choice"),
        ({"tool-missing": "allow"}, "There is no tool missing."),
    ],
)
def test_a_role_that_cannot_be_comes_back_with_what_was_said(
    as_alice: Client, acme: Organisation, fields: dict[str, str], complaint: str
) -> None:
    answer = as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow"} | fields))

    assert answer.status_code == 422
    assert complaint in text_of(answer.content)
    assert re.search(r'name="category-web".*?<option value="allow" selected>', answer.content.decode(), re.DOTALL)
    with organisation_scope(acme):
        assert not Role.objects.exists()


@pytest.mark.usefixtures("web")
def test_a_role_that_moved_since_its_preview_is_shown_again_and_not_saved(
    as_alice: Client, alice: Membership, acme: Organisation
) -> None:
    as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow"}))
    form = role(**{"category-web": "deny"})
    stamp = re.search(
        r'value="([0-9a-f]{64}[.][0-9a-f]{64})"', as_alice.post(f"{ACME}roles/web/", form).content.decode()
    )
    assert stamp is not None
    with organisation_scope(acme):
        set_role_rules(Role.objects.get(), [Rule("allow", tool="file_read")], actor=alice)

    answer = as_alice.post(f"{ACME}roles/web/", form | {"stamp": stamp[1]})

    assert (answer.status_code, "was changed in the meantime" in text_of(answer.content)) == (409, True)
    with organisation_scope(acme):
        assert rules_as_text(Role.objects.get()) == ["allow tool file_read"]


@pytest.mark.usefixtures("web")
def test_a_role_that_opens_the_same_tools_is_saved_at_once(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{ACME}roles/new/", role(**{"category-web": "allow"}))

    answer = as_alice.post(f"{ACME}roles/web/", role(name="Reading", **{"category-web": "allow"}))

    assert answer.status_code == 302
    with organisation_scope(acme):
        assert Role.objects.get().name == "Reading"


def test_a_role_is_removed(as_alice: Client, bob: Membership, acme: Organisation) -> None:
    make_role(acme, bob)

    answer = as_alice.post(f"{ACME}roles/all/delete/", follow=True)

    assert "All is removed; 1 member had it." in text_of(answer.content)
    assert "No role yet" in text_of(answer.content)


@pytest.mark.usefixtures("web")
def test_a_right_for_one_category_saves_its_lines_alone(as_bob: Client, bob: Membership, acme: Organisation) -> None:
    make_role(acme, bob, slug="all")
    give_right(bob, Right.ROLES, "web")

    page = as_bob.get(f"{ACME}roles/all/").content.decode()
    saved = save(as_bob, f"{ACME}roles/all/", {"category-web": "allow", "name": "Mine", "mode": "none"})
    refused = as_bob.post(f"{ACME}roles/all/", {"category-file": "allow"})

    assert 'name="mode"' not in page
    assert (saved.status_code, refused.status_code) == (302, 403)
    with organisation_scope(acme):
        assert rules_as_text(Role.objects.get()) == ["allow category web"]
        assert Role.objects.get().name == "All"


@pytest.mark.long
def test_a_long_catalogue_is_shown_by_category(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    category = make_category(acme, "many")
    with organisation_scope(acme):
        Tool.objects.bulk_create(
            Tool(organisation=acme, category=category, name=f"tool_{number:05}") for number in range(10_000)
        )
    make_role(acme, alice)

    page = as_alice.get(f"{ACME}roles/all/").content
    part = as_alice.get(f"{ACME}roles/all/tools/many/", headers=HTMX).content.decode()
    plain = as_alice.get(f"{ACME}roles/all/tools/many/")

    assert len(page) < 200_000
    assert "tool_00001" not in page.decode()
    assert (part.count("<select"), "<html" in part) == (300, False)
    assert plain["Location"] == f"{ACME}roles/matrix/?roles=all&open=many"


# -- Grants -----------------------------------------------------------------------------------------------------------


def grant(**fields: Any) -> dict[str, Any]:
    said = {"member": "bob@example.com", "effect": "allow", "tool": "fetch", "reason": "For today.", "until": "never"}
    return said | fields


@pytest.mark.usefixtures("web")
def test_a_grant_is_given_listed_found_and_revoked(as_alice: Client, bob: Membership, acme: Organisation) -> None:
    as_alice.post(f"{ACME}grants/new/", grant(member="BOB@example.com", until="date", until_date="2999-01-01"))
    as_alice.post(f"{ACME}grants/new/", grant(effect="deny", tool="", category="file", reason="Never."))

    pages = {
        query: text_of(as_alice.get(f"{ACME}grants/?{query}").content)
        for query in ("", "q=bob", "q=fetch", "effect=deny", "state=expired", "effect=x&state=y&before=z")
    }
    found = {query: ("For today." in page, "Never." in page) for query, page in pages.items()}

    assert "2 grants · 2 in force" in pages[""]
    assert found == {
        "": (True, True),
        "q=bob": (True, True),
        "q=fetch": (True, False),
        "effect=deny": (False, True),
        "state=expired": (False, False),
        "effect=x&state=y&before=z": (True, True),
    }
    with organisation_scope(acme):
        first = Grant.objects.earliest("pk")
        tool = Tool.objects.get(name="fetch")
        assert permission_for(bob, tool).allowed
    revoke = f"{ACME}grants/{first.public_id}/revoke/"
    shown = as_alice.post(revoke)
    assert "1 member loses fetch" in text_of(shown.content)
    stamp = re.search(r'name="stamp"\s+value="([^"]+)"', shown.content.decode())
    answer = as_alice.post(revoke, {"stamp": stamp and stamp[1]}, follow=True)
    assert "Revoked: Bob: allow fetch." in text_of(answer.content)
    assert "no end" in pages["effect=deny"]


@pytest.mark.usefixtures("web", "bob")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"member": "charlie@example.com"}, "There is no such member."),
        ({"member": "nobody"}, "Enter a valid email address."),
        ({"tool": "missing"}, "There is no tool missing."),
        ({"tool": "", "category": "missing"}, "There is no such category."),
        ({"tool": ""}, "Name a tool or a category"),
        ({"category": "file"}, "Name a tool or a category"),
        ({"reason": ""}, "This field is required."),
        ({"until": "date", "until_date": "2001-01-01"}, "This date has passed."),
    ],
)
def test_a_grant_that_cannot_be_says_why(
    as_alice: Client, charlie: Membership, acme: Organisation, fields: dict[str, str], complaint: str
) -> None:
    answer = as_alice.post(f"{ACME}grants/new/", grant(**fields))

    assert answer.status_code == 422
    assert complaint in text_of(answer.content)
    with organisation_scope(acme):
        assert not Grant.objects.exists()


# -- Agents -----------------------------------------------------------------------------------------------------------


def agent(model: LanguageModel, **fields: Any) -> dict[str, Any]:
    words = {"name": "Coder", "slug": "coder", "model": model.public_id, "loading_mode": "next_request"}
    return words | {"scope": "organisation", "starts_with_core": "on", "is_enabled": "on"} | fields


@pytest.mark.usefixtures("web")
def test_an_agent_is_added_with_tools_in_the_order_of_their_places(as_alice: Client, acme: Organisation) -> None:
    model = make_agent(acme).model
    tools = {"tools": ["fetch", "file_read", "http_post"], "place-fetch": "3", "place-file_read": "1"}

    answer = as_alice.post(f"{ACME}agents/new/", agent(model, **tools))

    assert answer["Location"] == f"{ACME}agents/coder/"
    with organisation_scope(acme):
        assert own_tools(Agent.objects.get(slug="coder")) == ["file_read", "fetch", "http_post"]


@pytest.mark.usefixtures("web")
def test_looking_for_tools_keeps_what_was_filled_in_and_saves_nothing(as_alice: Client, acme: Organisation) -> None:
    model = make_agent(acme).model

    page = as_alice.post(
        f"{ACME}agents/new/",
        agent(model, name="", prompt="Be brief.", tools=["fetch"], find="tools", **{"tools-q": "file"}),
    )

    own, _, found = page.content.decode().partition('class="pick-list pick-found"')
    assert page.status_code == 200
    assert "Be brief." in own
    assert 'value="fetch"' in own
    assert 'value="file_read"' in found
    assert 'value="http_post"' not in found
    assert "This field is required" not in own
    with organisation_scope(acme):
        assert Agent.objects.count() == 1


@pytest.mark.usefixtures("web")
def test_the_page_of_an_agent_tells_what_a_turn_would_start_with(
    as_bob: Client, bob: Membership, acme: Organisation
) -> None:
    make_agent(acme, prompt="Secret plans.")
    give_right(bob, Right.ROLES)
    with organisation_scope(acme):
        Tool.objects.filter(name="http_post").update(is_enabled=False)
    denied = text_of(as_bob.get(f"{ACME}agents/starter/").content)
    make_role(acme, bob)

    page = text_of(as_bob.get(f"{ACME}agents/starter/").content)

    assert "0 tools · 0 tok" in denied
    assert "this member has no role" in denied
    assert re.search(r"1 tool · \d+ tok [\w ]+ · 1 blocked", page)
    assert "http_post switched off" in page
    assert "Secret plans." not in page


def test_an_agent_in_use_is_not_removed(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    make_agent(acme)
    as_alice.post(f"{ACME}sessions/", {"agent": "starter"})

    answer = as_alice.post(f"{ACME}agents/starter/delete/", follow=True)

    assert "Sessions use Starter" in text_of(answer.content)


# -- Providers and models ---------------------------------------------------------------------------------------------


def test_a_provider_gets_a_second_model_and_loses_it(as_alice: Client, acme: Organisation) -> None:
    make_agent(acme)
    url = f"{ACME}providers/scripted/models/"

    as_alice.post(f"{url}new/", {"name": "large", "context_window": "9000", "max_rounds": "7", "agents": ["starter"]})
    twin = as_alice.post(f"{url}new/", {"name": "large", "context_window": "9000"})
    with organisation_scope(acme):
        large = LanguageModel.objects.get(name="large")
    kept = as_alice.post(f"{url}{large.public_id}/delete/", follow=True)

    assert "another model named large" in text_of(twin.content)
    assert "Starter would have no model" in text_of(kept.content)
    assert "large 9,000 tok 7 rounds Starter" in text_of(as_alice.get(f"{ACME}providers/scripted/edit/").content)
    with organisation_scope(acme):
        scripted = LanguageModel.objects.get(name="scripted")
    as_alice.post(f"{url}{scripted.public_id}/delete/")
    with organisation_scope(acme):
        assert list(LanguageModel.objects.values_list("name", flat=True)) == ["large"]


def test_a_provider_that_agents_use_is_not_removed(as_alice: Client, acme: Organisation) -> None:
    make_agent(acme)

    answer = as_alice.post(f"{ACME}providers/scripted/delete/", follow=True)

    assert "Starter would have no model" in text_of(answer.content)
    with organisation_scope(acme):
        assert Provider.objects.exists()


# -- Categories and tools ---------------------------------------------------------------------------------------------


def test_a_category_is_added_changed_and_removed(as_alice: Client, acme: Organisation) -> None:
    form = {"title": "Operations", "name": "ops", "keywords": "deploy\nroll out\n"}
    as_alice.post(f"{ACME}categories/new/", form)
    as_alice.post(f"{ACME}categories/ops/", {"title": "Ops", "keywords": "deploy", "is_core": "on"})

    page = text_of(as_alice.get(f"{ACME}categories/").content)

    assert "1 category · 1 core" in page
    assert "Ops ops deploy 0 tools 0 tok Core" in page
    assert as_alice.post(f"{ACME}categories/new/", form).status_code == 422
    as_alice.post(f"{ACME}categories/ops/delete/")
    assert "No category yet" in text_of(as_alice.get(f"{ACME}categories/").content)


@pytest.mark.usefixtures("web")
def test_ticked_tools_are_switched_together(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(f"{ACME}catalogue/switch/", {"names": ["fetch", "http_post"], "enabled": "0"}, follow=True)
    empty = as_alice.post(f"{ACME}catalogue/switch/", {"enabled": "0"}, follow=True)
    unknown = as_alice.post(f"{ACME}catalogue/switch/", {"names": ["x"], "enabled": "0"}, follow=True)

    assert "Switched 2 of 2 tools off." in text_of(answer.content)
    assert "Tick the tools to switch first." in text_of(empty.content)
    assert "There is no tool x." in text_of(unknown.content)
    with organisation_scope(acme):
        assert list(Tool.objects.filter(is_enabled=True).values_list("name", flat=True)) == ["file_read"]


@pytest.mark.usefixtures("web")
def test_a_right_for_one_category_ticks_its_tools_alone(as_bob: Client, bob: Membership, acme: Organisation) -> None:
    give_right(bob, Right.CATALOGUE, "web")

    page = as_bob.get(f"{ACME}tools/").content.decode()
    refused = as_bob.post(f"{ACME}catalogue/switch/", {"names": ["fetch", "file_read"], "enabled": "0"})

    assert re.findall(r'name="names"\s+value="(\w+)"', page) == ["fetch", "http_post"]
    assert refused.status_code == 403
    assert as_bob.post(f"{ACME}tools/fetch/switch/", {"enabled": "0"}).status_code == 302
    assert as_bob.post(f"{ACME}tools/file_read/switch/", {"enabled": "0"}).status_code == 403


@pytest.mark.usefixtures("web")
def test_a_tool_is_moved(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(f"{ACME}tools/fetch/move/", {"category": "file"}, follow=True)
    unknown = as_alice.post(f"{ACME}tools/fetch/move/", {"category": "x"}, follow=True)

    assert "fetch is in File now" in text_of(answer.content)
    assert "There is no category x." in text_of(unknown.content)


def test_who_may_use_a_tool_is_told_with_the_reason(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    tool = make_tool(acme)
    people = {name: make_member(acme, name) for name in ("by_role", "by_grant", "denied", "nobody", "listed")}
    for name in ("by_role", "denied"):
        make_role(acme, people[name], slug="all") if name == "by_role" else None
    with organisation_scope(acme):
        everything = Role.objects.get(slug="all")
        RoleMembership.objects.create(organisation=acme, role=everything, membership=people["denied"])
        Grant.objects.create(organisation=acme, membership=people["by_grant"], tool=tool, effect="allow")
        Grant.objects.create(organisation=acme, membership=people["denied"], category=tool.category, effect="deny")
    make_role(acme, people["listed"], slug="empty")

    page = text_of(as_alice.get(f"{ACME}tools/calculator/members/").content)
    part = as_alice.get(f"{ACME}tools/calculator/members/", headers=HTMX).content.decode()

    assert "by_role@example.com role All" in page
    assert "by_grant@example.com a grant" in page
    assert "denied@example.com" not in page
    assert "nobody@example.com" not in page
    assert "<html" not in part


def test_who_may_use_a_tool_is_shown_in_pages_and_found_by_name(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme)
    for number in range(USERS_SHOWN + 1):
        make_role(acme, make_member(acme, f"member{number:03}"))
    address = f"{ACME}tools/calculator/members/"

    first = as_alice.get(address)
    second = as_alice.get(address, {"after": first.context["page"].after})
    found = as_alice.get(address, {"q": "MEMBER050"})
    missing = as_alice.get(address, {"q": "nobody"})

    shown = [[each.member.user.email for each in answer.context["page"].rows] for answer in (first, second, found)]
    assert [len(each) for each in shown] == [USERS_SHOWN, 1, 1]
    assert shown[1] == shown[2] == ["member050@example.com"]
    assert "Nobody whose name or address has this" in text_of(missing.content)
    assert "before=" in second.content.decode()


# -- Set-up -----------------------------------------------------------------------------------------------------------


def test_a_service_is_set_up_from_its_form_and_forgotten(as_alice: Client, acme: Organisation) -> None:
    with organisation_scope(acme):
        make_tool(acme, "web_search")
        Tool.objects.update(service="searxng")
    url = f"{ACME}services/searxng/"

    before = text_of(as_alice.get(f"{ACME}services/").content)
    empty = as_alice.post(url, {"base_url": ""})
    as_alice.post(url, {"base_url": "https://search.example.org"})
    after = text_of(as_alice.get(f"{ACME}services/").content)
    tool = text_of(as_alice.get(f"{ACME}tools/web_search/").content)

    assert re.search(r"SearXNG .* 1 tool never Needs set-up", before)
    assert empty.status_code == 422
    assert re.search(r"SearXNG .* 1 tool now Not tested", after)
    assert "SearXNG Set up" in tool
    as_alice.post(f"{url}clear/")
    with organisation_scope(acme):
        assert not ServiceSetting.objects.exists()


def test_the_field_of_a_tool_s_instructions_is_called_that(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme, "calculator")

    assert "Instructions for the model" in text_of(as_alice.get(f"{ACME}tools/calculator/").content)


def test_a_tool_links_to_its_set_up_for_who_may(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme, "web_search")
    with organisation_scope(acme):
        Tool.objects.update(service="searxng")

    for url in (f"{ACME}tools/", f"{ACME}tools/web_search/"):
        assert f'href="{ACME}services/searxng/"' in as_alice.get(url).content.decode()


def test_the_secrets_of_a_service_are_shown_masked(as_alice: Client, acme: Organisation) -> None:
    url = f"{ACME}services/home_assistant/"
    as_alice.post(url, {"base_url": "https://home.example.org", "token": "very-secret-token-5678"})

    page = as_alice.get(url).content.decode()
    moved = as_alice.post(url, {"base_url": "https://evil.example.org", "token": ""})

    assert "very-secret" not in page
    assert "••••5678" in page
    assert moved.status_code == 422
    assert "type the Access token again" in text_of(moved.content)
    assert "typed again with another Address" in text_of(page.encode())
    with organisation_scope(acme):
        assert "very-secret" not in str(list(AuditEntry.objects.values_list("before", "after")))


def test_a_secret_that_was_typed_beside_an_error_has_to_be_typed_again(as_alice: Client, acme: Organisation) -> None:
    service = as_alice.post(f"{ACME}services/home_assistant/", {"base_url": "", "token": "very-secret-token-5678"})
    provider = as_alice.post(
        f"{ACME}providers/new/", {"name": "Own", "slug": "Not a slug", "api_key": "sk-very-secret"}
    )

    for answer in (service, provider):
        assert answer.status_code == 422
        assert "Type it again" in text_of(answer.content)
        assert b"very-secret" not in answer.content
    without = as_alice.post(f"{ACME}providers/new/", {"name": "Own", "slug": "Not a slug"})
    assert "Type it again" not in text_of(without.content)


# -- All of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("page", ["roles", "grants", "agents", "categories", "providers", "services", "roles/role-0"])
def test_a_list_takes_the_same_queries_for_one_and_three(
    as_alice: Client,
    alice: Membership,
    acme: Organisation,
    page: str,
    count: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    queries_seen: dict[str, int],
) -> None:
    for number in range(count):
        category = make_category(acme, f"category_{number}")
        tool = make_tool(acme, f"tool_{number}", category=category)
        make_role(acme, make_member(acme, f"member-{number}"), slug=f"role-{number}")
        made = make_agent(acme, slug=f"agent-{number}")
        with organisation_scope(acme):
            Grant.objects.create(organisation=acme, membership=alice, tool=tool, effect="allow", created_by=alice)
            ServiceSetting.objects.create(organisation=acme, service=f"service-{number}")
            provider = Provider.objects.create(organisation=acme, slug=f"provider-{number}", name="P")
            model = LanguageModel.objects.create(organisation=acme, provider=provider, name="m")
            Agent.objects.filter(pk=made.pk).update(model=model)

    with django_assert_max_num_queries(13) as seen:
        assert as_alice.get(f"{ACME}{page}/").status_code == 200

    assert queries_seen.setdefault(page, len(seen)) == len(seen)


@pytest.fixture(scope="module")
def queries_seen() -> dict[str, int]:
    return {}


@pytest.mark.parametrize(
    "path",
    ["roles/", "roles/new/", "grants/", "grants/new/", "agents/new/", "services/", "categories/new/"],
)
def test_a_member_without_the_right_is_told_so_and_a_stranger_nothing(
    client: Client, bob: Membership, charlie: Membership, path: str
) -> None:
    client.force_login(bob.user)
    assert client.get(f"{ACME}{path}").status_code == 403
    client.force_login(charlie.user)
    assert client.get(f"{ACME}{path}").status_code == 404


def test_the_menu_names_the_pages_that_would_let_one_in(client: Client, bob: Membership, acme: Organisation) -> None:
    def entries(member: Membership) -> set[str]:
        client.force_login(member.user)
        pages = "".join(client.get(f"{ACME}{name}/").content.decode() for name in ("tools", "agents", "roles"))
        return set(re.findall(rf'href="{ACME}(\w+)/"\s*(?:class="opens-group")?\s*(?:aria-current="page")?>', pages))

    operator = make_member(acme, "olga", Access.OPERATOR)

    assert {"categories", "agents"} <= entries(bob)
    assert not {"services", "roles", "grants"} & entries(bob)
    give_right(bob, Right.ROLES, "web")
    assert {"roles", "grants"} <= entries(bob)
    assert {"services", "roles", "grants", "providers"} <= entries(operator)
