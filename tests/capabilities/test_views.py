from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.common.secrets import cipher
from capabilities.contract.parameters import Parameter, parameter_rows
from capabilities.contract.wire import tool_wire
from capabilities.models import Agent, Category, LanguageModel, Provider, Tool, ToolVersion
from tests.cast import make_agent, make_category, make_member, make_tool
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.scope import organisation_scope

TOOLS = "/o/acme/tools/"
PROVIDERS = "/o/acme/providers/"
HTMX = {"HX-Request": "true"}
KEY = "sk-abcdefghijklmnop1234"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def text_of(page: bytes) -> str:
    """What a reader reads: without marks, one space for any."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def names_on(page: bytes) -> list[str]:
    return re.findall(r'href="/o/acme/tools/([\w-]+)/">', page.decode())


LONG = "Looks things up. " * 60
LARGE = {"type": "object", "description": "x" * 2_000}


def make_many(organisation: Organisation, count: int) -> None:
    category = make_category(organisation)
    with organisation_scope(organisation):
        tools = Tool.objects.bulk_create(
            [Tool(organisation=organisation, category=category, name=f"tool_{number:05}") for number in range(count)]
        )
        versions = ToolVersion.objects.bulk_create(
            ToolVersion(
                organisation=organisation,
                tool=tool,
                number=1,
                description=LONG,
                parameters=LARGE,
                wire=tool_wire(tool.name, LONG, LARGE),
                sha256="0" * 64,
                tokens=100,
                effect="read",
            )
            for tool in tools
        )
        for tool, version in zip(tools, versions, strict=True):
            tool.current_version = version
        Tool.objects.bulk_update(tools, ["current_version"], batch_size=1000)


# -- The catalogue ----------------------------------------------------------------------------------------------------


def test_the_catalogue_tells_its_numbers_and_lists_each_tool(as_bob: Client, acme: Organisation) -> None:
    make_tool(acme, "calculator")
    off = make_tool(acme, "uuid")
    with organisation_scope(acme):
        Tool.objects.filter(pk=off.pk).update(is_enabled=False)
        tokens = Tool.objects.get(name="calculator").current_version.tokens  # type: ignore[union-attr]

    page = as_bob.get(TOOLS).content

    assert f"2 tools · 1 on · {tokens} tok in total" in text_of(page)
    assert names_on(page) == ["calculator", "uuid"]
    assert f"Utility read {tokens} tok On" in text_of(page)


def test_the_catalogue_of_an_empty_organisation_says_what_it_is_for(as_bob: Client) -> None:
    assert "The catalogue is empty" in text_of(as_bob.get(TOOLS).content)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=CALC", ["calculator"]),
        ("q=arithmetic", ["calculator"]),
        ("q=%25", []),
        ("category=notes", ["scribble"]),
        ("category=missing", []),
        ("state=off", ["uuid"]),
        ("state=on", ["calculator", "scribble"]),
        ("state=nonsense", ["calculator", "scribble", "uuid"]),
        ("q=c&category=utility&state=on", ["calculator"]),
        ("q=%00", ["calculator", "scribble", "uuid"]),
        ("after=0:d", ["scribble", "uuid"]),
        ("before=0:d", ["calculator"]),
        ("after=d", ["calculator", "scribble", "uuid"]),
    ],
)
def test_filters_live_in_the_address(as_bob: Client, acme: Organisation, query: str, found: list[str]) -> None:
    make_tool(acme, "calculator", description="Does arithmetic.")
    make_tool(acme, "scribble", category=make_category(acme, "notes"), description="Keeps a note.")
    make_tool(acme, "uuid", description="Makes an identifier.")
    with organisation_scope(acme):
        Tool.objects.filter(name="uuid").update(is_enabled=False)

    query = query.replace("0:d", sealed_place(["0", "d"]))

    page = as_bob.get(f"{TOOLS}?{query}").content

    assert names_on(page) == found
    assert ("No tool matches" in text_of(page)) == (not found)


def test_a_tool_that_waits_for_its_service_says_so(as_bob: Client, acme: Organisation) -> None:
    make_tool(acme, "calculator")
    make_tool(acme, "ha_get_state")
    with organisation_scope(acme):
        Tool.objects.filter(name="ha_get_state").update(service="home_assistant_of_tests")

    everything = text_of(as_bob.get(TOOLS).content)
    waiting = as_bob.get(f"{TOOLS}?state=set-up").content
    one = text_of(as_bob.get(f"{TOOLS}ha_get_state/").content)

    assert "1 needs set-up" in everything
    assert names_on(waiting) == ["ha_get_state"]
    assert "ha_get_state Needs set-up" in text_of(waiting)
    assert "after home_assistant_of_tests is set up" in one


def test_pages_of_fifty_go_on_and_back_by_name(as_bob: Client, acme: Organisation) -> None:
    make_many(acme, 120)

    def link(page: bytes, rel: str) -> str | None:
        found = re.search(rf'href="(\?[^"]+)"\s+rel="{rel}"', page.decode())
        return found[1].replace("&amp;", "&") if found else None

    first = as_bob.get(f"{TOOLS}?q=look").content
    second = as_bob.get(TOOLS + str(link(first, "next"))).content
    third = as_bob.get(TOOLS + str(link(second, "next"))).content
    back = as_bob.get(TOOLS + str(link(third, "prev"))).content

    assert [len(names_on(page)) for page in (first, second, third)] == [50, 50, 20]
    everything = [name for page in (first, second, third) for name in names_on(page)]
    assert sorted(everything) == [f"tool_{number:05}" for number in range(120)]
    assert names_on(back) == names_on(second)
    assert (link(first, "prev"), link(third, "next")) == (None, None)
    assert re.fullmatch(r"\?q=look&after=[\w-]+", str(link(second, "next")))


@pytest.mark.parametrize("count", [1, 3])
def test_the_catalogue_takes_the_same_queries_for_one_and_three(
    as_bob: Client, acme: Organisation, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_many(acme, count)

    with django_assert_num_queries(10):  # one of them for the member's saved filters
        as_bob.get(TOOLS)


@pytest.mark.long
def test_ten_thousand_tools_are_a_small_page(
    as_alice: Client, acme: Organisation, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_many(acme, 10_000)

    with django_assert_max_num_queries(13):  # one of them for the member's saved filters
        page = as_alice.get(TOOLS).content

    assert "10,000 tools · 10,000 on · 1,000,000 tok" in text_of(page)
    assert len(page) < 200_000


# -- The switch -------------------------------------------------------------------------------------------------------


def test_the_switch_turns_a_tool_off_and_tells_the_audit(as_alice: Client, acme: Organisation) -> None:
    tool = make_tool(acme)

    answer = as_alice.post(f"{TOOLS}{tool}/switch/", {"enabled": "0"}, headers={"Referer": "http://testserver/o/acme/"})

    assert (answer.status_code, answer["Location"]) == (302, "http://testserver/o/acme/")
    with organisation_scope(acme):
        assert not Tool.objects.get().is_enabled
        assert AuditEntry.objects.filter(action="tool.disable", target_label=str(tool)).count() == 1


def test_the_switch_with_htmx_is_swapped_alone(as_alice: Client, acme: Organisation) -> None:
    tool = make_tool(acme)

    page = as_alice.post(f"{TOOLS}{tool}/switch/", {"enabled": "0"}, headers=HTMX).content.decode()

    assert "<html" not in page
    assert 'aria-checked="false"' in page
    assert f'action="{TOOLS}{tool}/switch/"' in page


def test_the_switch_leads_to_no_other_site(as_alice: Client, acme: Organisation) -> None:
    tool = make_tool(acme)

    answer = as_alice.post(f"{TOOLS}{tool}/switch/", {"enabled": "0"}, headers={"Referer": "https://evil.example/"})

    assert answer["Location"] == TOOLS


def test_without_the_right_there_is_no_switch(as_bob: Client, acme: Organisation) -> None:
    tool = make_tool(acme)

    assert b'role="switch"' not in as_bob.get(TOOLS).content
    assert as_bob.post(f"{TOOLS}{tool}/switch/", {"enabled": "0"}).status_code == 403
    assert as_bob.get(f"{TOOLS}{tool}/switch/").status_code == 405


# -- One tool ---------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "What to do", "maxLength": 500},
        "priority": {"enum": ["low", "high"], "default": "low"},
        "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
    },
    "required": ["title"],
    "$defs": {"Step": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
}


def test_a_tool_shows_its_parameters_definition_versions_and_agents(as_bob: Client, acme: Organisation) -> None:
    tool = make_tool(acme, "task_create", description="First.", parameters=SCHEMA, effect="write", on_crash="never")
    make_agent(acme)
    with organisation_scope(acme):
        update_tool(tool, Definition("task_create", "Second.", SCHEMA, "write"), actor=None)

    text = text_of(as_bob.get(f"{TOOLS}task_create/").content)

    assert "Utility · version 2 · " in text
    assert "for the model Second. Arguments" in text
    assert "What to do at most 500 characters" in text
    assert "{&quot;function&quot;:{&quot;description&quot;:&quot;Second.&quot;" in text
    assert re.search(r"2 In force \d+ tok .{3,14} by toolhub", text)
    assert re.search(r"1 Retired \d+ tok .{3,14} by toolhub", text)
    assert "Starter core tool" in text
    assert "never run again never Timeout 20 s" in text


def test_a_schema_is_told_in_rows() -> None:
    assert parameter_rows(SCHEMA) == [
        Parameter("title", "string", True, "What to do", "at most 500 characters"),
        Parameter("priority", '"low" | "high"', False, "", '"low" if not given'),
        Parameter("due", "string | null", False, "", ""),
        Parameter("steps", "list of object", False, "", ""),
        Parameter("steps[].text", "string", True, "", ""),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": None},
        {"properties": {"a": None, "b": True, "c": []}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": "https://x.example"}, "c": {"$ref": 5}}},
        {"properties": {"a": {"properties": {"b": {"$ref": "#"}}}}, "required": "a"},
        {"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}},
        {"properties": {"a": {"type": ["string", "null"], "enum": "x", "description": 5}}},
    ],
)
def test_a_schema_of_any_shape_ends(schema: dict[str, Any]) -> None:
    assert len(parameter_rows(schema)) <= 200


@pytest.mark.parametrize("count", [1, 3])
def test_a_tool_takes_the_same_queries_for_one_and_three_versions(
    as_bob: Client, acme: Organisation, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    alice = make_member(acme, "alice", Access.ADMIN)
    tool = make_tool(acme)
    with organisation_scope(acme):
        for number in range(count):
            make_agent(acme, slug=f"agent-{number}")
            update_tool(tool, Definition(tool.name, f"Text {number}", {"type": "object"}), actor=alice)

    with django_assert_num_queries(16):
        as_bob.get(f"{TOOLS}{tool}/")


def test_text_of_tools_is_shown_and_never_run(as_bob: Client, acme: Organisation) -> None:
    bad = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    parameters = {"type": "object", "properties": {bad: {"type": "string", "description": bad, "default": bad}}}
    with organisation_scope(acme):
        category = Category.objects.create(organisation=acme, name="bad", title=bad)
    make_tool(acme, "bad", category=category, description=bad, parameters=parameters)

    pages = [as_bob.get(url).content.decode() for url in (TOOLS, f"{TOOLS}bad/")]

    for page in pages:
        assert "&lt;script&gt;" in page
        assert "<script>" not in page
        assert "<img src=x" not in page


@pytest.mark.parametrize("path", ["tools/{}/", "tools/{}/switch/"])
def test_another_organisations_tool_is_a_missing_one(
    client: Client, charlie: Membership, acme: Organisation, path: str
) -> None:
    tool = make_tool(acme, "only_here")
    client.force_login(charlie.user)

    for org in ("globex", "acme"):
        answers = [client.post(f"/o/{org}/{path.format(name)}") for name in ("only_here", "missing")]
        answers += [client.get(f"/o/{org}/{path.format(name)}") for name in ("only_here", "missing")]
        assert {answer.status_code for answer in answers} <= {404, 405}
        assert text_of(answers[0].content) == text_of(answers[1].content)
        assert text_of(answers[2].content) == text_of(answers[3].content)
    with organisation_scope(acme):
        assert Tool.objects.get(pk=tool.pk).is_enabled


@pytest.mark.parametrize("url", [TOOLS, f"{TOOLS}calculator/", PROVIDERS, f"{PROVIDERS}new/", f"{PROVIDERS}x/edit/"])
def test_pages_without_a_login_are_the_login_page(client: Client, acme: Organisation, url: str) -> None:
    assert client.get(url)["Location"] == f"/accounts/login/?next={url}"


# -- Providers --------------------------------------------------------------------------------------------------------


def form(**fields: Any) -> dict[str, Any]:
    """What the form sends; None leaves a field out."""
    values = {
        "name": "OpenAI",
        "slug": "openai",
        "base_url": "https://api.openai.com/v1",
        "api_key": KEY,
        "model_name": "gpt-5-mini",
        "tool_limit": "128",
        "context_window": "400000",
        "is_enabled": "on",
    } | fields
    return {name: value for name, value in values.items() if value is not None}


def stored_key(organisation: Organisation) -> str:
    with organisation_scope(organisation):
        return str(Provider.objects.get(slug="openai").api_key)


def test_a_provider_is_added_with_its_model_and_its_agents(as_alice: Client, acme: Organisation) -> None:
    agent = make_agent(acme)
    make_agent(acme, slug="other")

    answer = as_alice.post(f"{PROVIDERS}new/", form(agents=["starter"]))

    assert (answer.status_code, answer["Location"]) == (302, f"{PROVIDERS}openai/edit/#models")
    with organisation_scope(acme):
        provider = Provider.objects.get(slug="openai")
        model = LanguageModel.objects.get(provider=provider)
        agent.refresh_from_db()
        assert (provider.base_url, provider.api_key) == ("https://api.openai.com/v1", KEY)
        assert (model.name, model.context_window, agent.model) == ("gpt-5-mini", 400_000, model)
        assert Agent.objects.get(slug="other").model != model


def test_the_key_is_in_no_page_and_in_no_audit_row(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{PROVIDERS}new/", form())
    as_alice.post(f"{PROVIDERS}openai/edit/", form(name="Other", api_key="sk-second-key-of-mine-5678"))

    pages = [as_alice.get(url).content.decode() for url in (PROVIDERS, f"{PROVIDERS}openai/edit/")]

    assert "••••5678" in pages[1]
    with organisation_scope(acme):
        said = [str((row.action, row.before, row.after)) for row in AuditEntry.objects.order_by("pk")]
    assert [text[:20] for text in said] == ["('provider.create', ", "('model.create', {},", "('provider.update', "]
    assert not [text for text in said + pages if KEY in text or "second-key" in text]


def test_a_refused_form_does_not_send_the_key_back(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(f"{PROVIDERS}new/", form(slug="Not a slug"))

    assert answer.status_code == 422
    assert KEY not in answer.content.decode()
    assert 'id="id_slug_error"' in answer.content.decode()


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"api_key": ""}, KEY),
        ({"api_key": "sk-new"}, "sk-new"),
        ({"api_key": "", "remove_key": "on"}, ""),
        ({"api_key": "", "base_url": "https://api.openai.com/v2"}, KEY),
        ({"api_key": "", "base_url": ""}, KEY),
    ],
)
def test_a_blank_key_keeps_the_stored_one(
    as_alice: Client, acme: Organisation, fields: dict[str, str], key: str
) -> None:
    as_alice.post(f"{PROVIDERS}new/", form())

    answer = as_alice.post(f"{PROVIDERS}openai/edit/", form(**fields))

    assert answer.status_code == 302
    assert stored_key(acme) == key


def test_a_stored_key_never_goes_to_another_host(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{PROVIDERS}new/", form())

    answer = as_alice.post(f"{PROVIDERS}openai/edit/", form(api_key="", base_url="https://evil.example/v1"))

    assert answer.status_code == 422
    assert "enter the key again" in text_of(answer.content)
    with organisation_scope(acme):
        assert Provider.objects.get(slug="openai").base_url == "https://api.openai.com/v1"


def test_a_key_that_cannot_be_read_can_be_entered_again(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{PROVIDERS}new/", form())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE capabilities_provider SET api_key = 'damaged'")

    assert as_alice.get(PROVIDERS).status_code == 200
    assert "cannot be read any more" in text_of(as_alice.get(f"{PROVIDERS}openai/edit/").content)
    assert as_alice.post(f"{PROVIDERS}openai/edit/", form()).status_code == 302
    assert stored_key(acme) == KEY


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ftp://example.org", "Only http and https"),
        ("example.org/v1", "Only http and https"),
        ("https://user:pass@example.org/v1", "user name"),
        ("https:///v1", "names no"),
        ("https://example.org/v1?key=1", "before any ? or #"),
        ("https://exa mple.org", "space"),
        ("http://127.0.0.1:11434/v1", "TOOLHUB_PRIVATE_HOSTS=provider:127.0.0.1:11434"),
        ("http://localhost:11434/v1", "TOOLHUB_PRIVATE_HOSTS=provider:localhost:11434"),
        ("http://169.254.169.254/", "TOOLHUB_PRIVATE_HOSTS=provider:169.254.169.254:80"),
        ("https://[::1]/v1", "TOOLHUB_PRIVATE_HOSTS=provider:"),
        ("x" * 600, "at most 500 characters"),
    ],
)
def test_an_address_that_cannot_be_says_what_to_do(
    as_alice: Client, acme: Organisation, settings: Settings, url: str, complaint: str
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []

    answer = as_alice.post(f"{PROVIDERS}new/", form(base_url=url))

    assert answer.status_code == 422
    assert complaint in text_of(answer.content)
    with organisation_scope(acme):
        assert Provider.objects.count() == 0


def test_a_private_host_that_the_operator_listed_is_taken(
    as_alice: Client, acme: Organisation, settings: Settings
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["localhost:11434"]

    answer = as_alice.post(f"{PROVIDERS}new/", form(base_url="http://localhost:11434/v1/"))

    assert answer.status_code == 302
    with organisation_scope(acme):
        assert Provider.objects.get().base_url == "http://localhost:11434/v1"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"slug": "UPPER"}, "slug"),
        ({"slug": "scripted"}, "slug"),
        ({"context_window": "10"}, "context_window"),
        ({"context_window": "x"}, "context_window"),
    ],
)
def test_a_wrong_value_is_told_beside_its_field_and_on_top(
    as_alice: Client, acme: Organisation, fields: dict[str, str], field: str
) -> None:
    make_agent(acme)

    page = as_alice.post(f"{PROVIDERS}new/", form(**fields)).content.decode()

    assert f'id="id_{field}_error"' in page
    assert f'href="#id_{field}"' in page


def test_agents_of_another_organisation_cannot_be_named(
    as_alice: Client, acme: Organisation, charlie: Membership
) -> None:
    theirs = make_agent(charlie.organisation, slug="theirs")

    answer = as_alice.post(f"{PROVIDERS}new/", form(agents=["theirs"]))

    assert answer.status_code == 422
    assert "There is no such agent." in text_of(answer.content)
    with organisation_scope(charlie.organisation):
        model = theirs.model_id
        theirs.refresh_from_db()
        assert theirs.model_id == model


def test_editing_a_provider_leaves_its_models_and_their_agents(as_alice: Client, acme: Organisation) -> None:
    agent = make_agent(acme)

    page = as_alice.get(f"{PROVIDERS}scripted/edit/").content.decode()
    answer = as_alice.post(f"{PROVIDERS}scripted/edit/", form(slug="scripted", model_name="newer", tool_limit="20"))

    assert 'name="model_name"' not in page
    assert re.search(r'href="/o/acme/providers/scripted/models/[0-9a-f-]{36}/">scripted</a>', page)
    assert answer.status_code == 302
    with organisation_scope(acme):
        agent.refresh_from_db()
        assert str(agent.model) == "OpenAI: scripted"
        assert Provider.objects.get(slug="scripted").tool_limit == 20


def test_the_list_shows_models_agents_and_whether_there_is_a_key(as_alice: Client, acme: Organisation) -> None:
    make_agent(acme)
    as_alice.post(f"{PROVIDERS}new/", form())

    text = text_of(as_alice.get(PROVIDERS).content)

    assert "2 providers" in text
    assert "Scripted the built-in offline model" in text
    assert "scripted 128,000 tok Not tested Starter" in text
    assert "Starter no key On" in text
    assert "OpenAI https://api.openai.com/v1" in text
    assert "gpt-5-mini 400,000 tok Not tested stored" in text
    assert "stored On" in text


@pytest.mark.parametrize("count", [1, 3])
def test_the_providers_take_the_same_queries_for_one_and_three(
    as_alice: Client, acme: Organisation, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with organisation_scope(acme):
        for number in range(count):
            provider = Provider.objects.create(organisation=acme, slug=f"p{number}", name=f"P{number}")
            model = LanguageModel.objects.create(organisation=acme, provider=provider, name="m")
            make_agent(acme, slug=f"a{number}", model=model)

    with django_assert_num_queries(13):  # some of them for the counts in the menu
        as_alice.get(PROVIDERS)


@pytest.mark.parametrize("url", [PROVIDERS, f"{PROVIDERS}new/", f"{PROVIDERS}scripted/edit/"])
def test_providers_need_their_right(as_bob: Client, bob: Membership, acme: Organisation, url: str) -> None:
    make_agent(acme)

    before = as_bob.get(url).status_code, as_bob.post(url, form()).status_code
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.PROVIDERS)

    assert before in ((403, 403), (403, 405))
    assert as_bob.get(url).status_code == 200


def test_another_organisations_provider_is_a_missing_one(
    client: Client, charlie: Membership, acme: Organisation
) -> None:
    make_agent(acme)
    client.force_login(charlie.user)

    for org, slug in (("globex", "scripted"), ("globex", "missing"), ("acme", "scripted")):
        assert client.get(f"/o/{org}/providers/{slug}/edit/").status_code == 404
        assert client.post(f"/o/{org}/providers/{slug}/edit/", form()).status_code == 404
    with organisation_scope(acme):
        assert Provider.objects.get().name == "Scripted"


def test_the_key_is_encrypted_where_it_is_stored(as_alice: Client, acme: Organisation) -> None:
    as_alice.post(f"{PROVIDERS}new/", form())

    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key FROM capabilities_provider")
        (raw,) = cursor.fetchone()
    assert KEY not in raw
    assert cipher().decrypt(raw.encode()).decode() == KEY
