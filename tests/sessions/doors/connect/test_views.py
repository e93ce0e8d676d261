"""The page that connects a client: who gets it, what it shows, and the token that is made on it."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from pytest_django import Settings
from pytest_django.fixtures import DjangoAssertNumQueries

from sessions.doors.connect.clients import CLIENTS, SCOPES
from tests.cast import allow_toolkit, make_agent, make_member, make_token, make_toolkit
from toolhub.tenants.access import token_by_secret
from toolhub.tenants.models import Access, ApiToken, AuditEntry, Membership, Organisation, Scope
from toolhub.tenants.rows.scope import organisation_scope, system_scope
from toolhub.tenants.tokens.writes import MAX_TOKENS

pytestmark = pytest.mark.django_db

PAGE = "/o/acme/connect/"


@pytest.fixture
def targets(in_acme: Organisation) -> None:
    make_agent(in_acme, slug="everyday", name="Every <b>day</b>")
    ops = make_agent(in_acme, slug="ops", name="Ops")
    off = make_agent(in_acme, slug="off", name="Off", is_enabled=False)
    allow_toolkit(ops, make_toolkit(in_acme, "devops"))
    allow_toolkit(off, make_toolkit(in_acme, "idle"))


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def shown(client: Client, query: str = "") -> str:
    answer = client.get(PAGE + query)
    assert answer.status_code == 200
    return answer.content.decode()


def blocks(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<pre class="code"[^>]*>(.*?)</pre>', page, re.DOTALL)]


@pytest.mark.usefixtures("targets")
def test_without_a_wish_it_shows_the_first_client_for_the_first_agent(as_bob: Client) -> None:
    page = shown(as_bob)

    assert 'base_url="http://testserver/v1", api_key="YOUR_TOKEN"' in blocks(page)[1]
    assert 'model="everyday"' in blocks(page)[1]
    assert "Every &lt;b&gt;day&lt;/b&gt;" in page
    assert ">Off<" not in page
    assert "devops" not in page  # a client of OpenAI's protocol talks to agents


@pytest.mark.usefixtures("targets")
@pytest.mark.parametrize("key", [client.key for client in CLIENTS])
def test_each_client_has_its_page(as_bob: Client, key: str) -> None:
    page = shown(as_bob, f"?client={key}&to=ops")

    assert "ops" in "".join(blocks(page)) or key == "open-webui"
    assert page.count('data-copy="#block-') == len(blocks(page))
    assert re.findall(r'href="\?client=([a-z-]+)&amp;to=ops"\s+aria-current="page"', page) == [key]


@pytest.mark.usefixtures("targets")
def test_a_toolkit_is_for_clients_of_mcp(as_bob: Client) -> None:
    command = 'claude mcp add --transport http toolhub-devops "http://testserver/mcp/toolkit/devops"'

    assert command in blocks(shown(as_bob, "?to=toolkit/devops"))[0]
    assert "everyday" in blocks(shown(as_bob, "?client=llm&to=toolkit/devops"))[2]


@pytest.mark.usefixtures("targets")
def test_the_addresses_are_the_ones_that_the_browser_asked(as_bob: Client, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["tools.example.org"]

    page = as_bob.get(PAGE, headers={"Host": "tools.example.org:8443"}, secure=True).content.decode()

    assert "https://tools.example.org:8443/v1" in blocks(page)[1]


@pytest.mark.usefixtures("targets")
@pytest.mark.parametrize(
    "query", ["?client=nope", "?to=nope", "?to=off", "?to=toolkit/nope", "?to=toolkit/idle", "?to=%00"]
)
def test_what_is_not_there_is_not_found(as_bob: Client, query: str) -> None:
    assert as_bob.get(PAGE + query).status_code == 404
    assert as_bob.post(PAGE + query, {"name": "New", "days": "7"}).status_code == 404
    with system_scope():
        assert not ApiToken.objects.exists()


def test_without_an_agent_it_says_so(as_bob: Client) -> None:
    for query in ("", "?client=codex"):
        page = shown(as_bob, query)
        assert "Nothing to connect to" in page
        assert blocks(page) == []


# -- The token --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("targets")
def test_a_token_that_is_made_here_may_chat_and_stands_in_the_blocks_once(as_bob: Client, bob: Membership) -> None:
    answer = as_bob.post(PAGE + "?client=cursor&to=toolkit/devops", {"name": "Cursor", "days": "30"})

    page = answer.content.decode()
    (secret,) = set(re.findall(r"thub_[A-Za-z0-9_-]+", "".join(blocks(page))))
    token = token_by_secret(secret)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert token is not None
    assert (token.membership, token.name, token.scopes) == (bob, "Cursor", [Scope.CHAT.value])
    assert token.expires_at is not None
    assert "YOUR_TOKEN" not in page
    assert "toolkit/devops" in page
    assert secret not in shown(as_bob, "?client=cursor&to=toolkit/devops")
    with organisation_scope(bob.organisation):
        assert AuditEntry.objects.get(action="token.issue").actor == bob


@pytest.mark.usefixtures("targets")
def test_more_scopes_than_the_client_needs_cannot_be_asked_for(as_bob: Client) -> None:
    as_bob.post(PAGE, {"name": "New", "days": "7", "scopes": ["manage", "approve"]})

    with system_scope():
        assert ApiToken.objects.get().scopes == [scope.value for scope in SCOPES]


@pytest.mark.usefixtures("targets")
def test_a_form_that_is_wrong_is_shown_again(as_bob: Client, bob: Membership) -> None:
    for data in ({"name": "", "days": "7"}, {"name": "New", "days": "8"}):
        answer = as_bob.post(PAGE + "?to=ops", data)
        assert answer.status_code == 422
        assert "field-error" in answer.content.decode()
        assert 'model="ops"' in blocks(answer.content.decode())[1]
    for _ in range(MAX_TOKENS):
        make_token(bob)
    assert b"revoke one first" in as_bob.post(PAGE, {"name": "New", "days": "7"}).content


@pytest.mark.usefixtures("targets")
def test_a_viewer_reads_it_and_makes_no_token(client: Client, acme: Organisation) -> None:
    client.force_login(make_member(acme, "vera", Access.VIEWER).user)

    page = shown(client)

    assert "viewers do not chat" in page
    assert "Create a token" not in page
    assert client.post(PAGE, {"name": "New", "days": "7"}).status_code == 403


@pytest.mark.usefixtures("targets")
def test_a_stranger_finds_no_page(client: Client, charlie: Membership) -> None:
    client.force_login(charlie.user)

    assert client.get(PAGE).status_code == 404
    assert client.post(PAGE, {"name": "New", "days": "7"}).status_code == 404


@pytest.mark.usefixtures("targets")
def test_the_pages_of_tokens_agents_and_toolkits_lead_there(as_bob: Client) -> None:
    ways = {
        "tokens/": "/o/acme/connect/",
        "agents/ops/": "/o/acme/connect/?to=ops",
        "toolkits/devops/": "/o/acme/connect/?to=toolkit/devops",
    }
    for page, way in ways.items():
        assert f'href="{way}"' in as_bob.get(f"/o/acme/{page}").content.decode()
    for page in ("agents/off/", "toolkits/idle/"):
        assert "connect/?to=" not in as_bob.get(f"/o/acme/{page}").content.decode()


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_queries_does_not_grow(
    as_bob: Client, in_acme: Organisation, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(count):
        allow_toolkit(make_agent(in_acme, slug=f"agent-{number}"), make_toolkit(in_acme, f"kit_{number}"))
    shown(as_bob, "?client=codex")

    with django_assert_num_queries(8):
        shown(as_bob, "?client=codex")
