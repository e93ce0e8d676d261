"""What a token remembers of its last use: which client, for which agent, from which address."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from tests.cast import make_member, make_token
from toolhub.tenants.access import MAX_CHANGES, note_token_use, record_token_use, token_by_secret
from toolhub.tenants.models import Access, ApiToken, Membership, Organisation
from toolhub.tenants.rows.scope import system_scope
from toolhub.tenants.tokens.last_use import MAX_AGENT, MAX_CLIENT, TokenUse, client_named_in, token_use

SDK = "OpenAI/Python 3.54.0"


# -- What a client says of itself -------------------------------------------------------------------------------------

CLIENTS = {
    "": "",
    "OpenAI/Python 3.54.0": "OpenAI/Python 3.54.0",
    "claude-code/2.1.30 (external, cli)": "claude-code/2.1.30",
    "codex_cli_rs/0.61.0 (Ubuntu 24.4.0; x86_64) xterm-256color": "codex_cli_rs/0.61.0",
    "ai/7.0.1 ai-sdk/provider-utils/4.0.0 runtime/node.js/24": "ai/7.0.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0": "Firefox 130",
    "Mozilla/5.0 (Windows NT 10.0) (KHTML, like Gecko) Chrome/131.0 Safari/537.36 Edg/131.0": "Edge 131",
    "Mozilla/5.0 (Macintosh) AppleWebKit/605.1 (KHTML, like Gecko) Version/18.1 Safari/605.1": "Safari 18",
    "Mozilla/5.0": "Browser",
    "(a comment alone)": "a",
    "evil\x1b[31m\r\n\u202eclient\x00": "evil",
    "x" * 5_000: "x" * MAX_CLIENT,
    "<script>alert(1)</script>": "<script>alert",
}


@pytest.mark.parametrize(("said", "shown"), CLIENTS.items())
def test_a_client_is_its_first_product(said: str, shown: str) -> None:
    assert client_named_in(said) == shown


def test_the_last_use_of_a_token_is_stored_short_and_printable() -> None:
    use = token_use(user_agent="a/1", agent="toolkit/re\nsearch" + "x" * 200, address="203.0.113.9\n")

    assert use == TokenUse("a/1", ("toolkit/re search" + "x" * 200)[:MAX_AGENT], "")
    assert token_use(user_agent="", address="2001:DB8::1").address == "2001:db8::1"


# -- When it is written down ------------------------------------------------------------------------------------------


@pytest.fixture
def secret(bob: Membership) -> str:
    return make_token(bob)


def stored(secret: str) -> ApiToken:
    token = token_by_secret(secret)
    assert token is not None
    return token


def used_by(secret: str) -> tuple[str, str, str]:
    token = stored(secret)
    return token.last_client, token.last_agent, token.last_address


def ask(secret: str, client: str, address: str = "203.0.113.9") -> None:
    headers = {"Authorization": f"Bearer {secret}", "User-Agent": client}
    assert Client(headers=headers).get("/api/v1/sessions", REMOTE_ADDR=address).status_code == 200


@pytest.mark.django_db
def test_a_request_of_the_rest_api_notes_its_client_and_address(secret: str) -> None:
    ask(secret, f"{SDK} (Linux)")

    assert used_by(secret) == (SDK, "", "203.0.113.9")


@pytest.mark.django_db
def test_another_client_is_noted_at_once_and_the_same_one_is_not(
    secret: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    record_token_use(stored(secret), TokenUse("a/1", "everyday", "203.0.113.9"))

    token = stored(secret)
    with django_assert_num_queries(0):
        record_token_use(token, TokenUse("a/1", "everyday", "203.0.113.9"))
    with django_assert_num_queries(1):
        record_token_use(token, TokenUse("a/1", "toolkit/devops", "203.0.113.9"))

    assert used_by(secret) == ("a/1", "toolkit/devops", "203.0.113.9")


@pytest.mark.django_db
def test_clients_that_take_turns_do_not_write_with_each_request(secret: str) -> None:
    for number in range(50):
        record_token_use(stored(secret), TokenUse(f"client/{number}", "", "203.0.113.9"))

    assert used_by(secret) == (f"client/{MAX_CHANGES}", "", "203.0.113.9")
    with system_scope():
        ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    record_token_use(stored(secret), TokenUse("client/60", "", "203.0.113.9"))
    record_token_use(stored(secret), TokenUse("client/61", "", "203.0.113.9"))
    assert used_by(secret) == ("client/61", "", "203.0.113.9")


@pytest.mark.django_db
def test_two_changes_at_once_count_as_one_write(secret: str) -> None:
    record_token_use(stored(secret), TokenUse("a/1"))
    first, second = stored(secret), stored(secret)

    record_token_use(first, TokenUse("b/1"))
    record_token_use(second, TokenUse("c/1"))

    assert used_by(secret) == ("b/1", "", "")


@pytest.mark.django_db
def test_the_agent_stays_while_the_same_client_names_none(secret: str) -> None:
    record_token_use(stored(secret), TokenUse("a/1", "everyday", "203.0.113.9"))

    record_token_use(stored(secret), TokenUse("a/1", "", "203.0.113.9"))
    assert used_by(secret) == ("a/1", "everyday", "203.0.113.9")
    record_token_use(stored(secret), TokenUse("b/1", "", "203.0.113.9"))
    assert used_by(secret) == ("b/1", "", "203.0.113.9")


@pytest.mark.django_db
def test_a_door_names_the_agent_and_what_the_protocol_told_of_the_client(secret: str) -> None:
    request = RequestFactory().post("/", headers={"User-Agent": "node"}, REMOTE_ADDR="203.0.113.9")

    note_token_use(stored(secret), request, agent="toolkit/devops", client="claude-code/2.1.30")

    assert used_by(secret) == ("claude-code/2.1.30", "toolkit/devops", "203.0.113.9")


# -- Where it is shown ------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_rest_tells_what_used_a_token_last(client: Client, bob: Membership) -> None:
    other = make_token(bob)
    record_token_use(stored(other), TokenUse("a/1", "everyday", "203.0.113.9"))
    secret = make_token(bob)
    never = make_token(bob)

    reply: dict[str, Any] = client.get("/api/v1/tokens", headers={"Authorization": f"Bearer {secret}"}).json()

    told = {row["prefix"]: row["last_used_by"] for row in reply["results"]}
    assert told[never[:9]] is None
    assert told[other[:9]] == {"client": "a/1", "agent": "everyday", "address": "203.0.113.9"}


@pytest.mark.django_db
def test_pages_of_the_owner_and_of_admins_show_it_as_text(
    client: Client, alice: Membership, bob: Membership, globex: Organisation
) -> None:
    record_token_use(stored(make_token(bob)), token_use(user_agent="<b>x</b>", agent="everyday", address="203.0.113.9"))
    pages = {bob: "/o/acme/tokens/", alice: f"/o/acme/members/{bob.public_id}/"}

    for reader, page in pages.items():
        client.force_login(reader.user)
        text = client.get(page).content.decode()
        assert "&lt;b&gt;x&lt;/b&gt;" in text
        assert "203.0.113.9" in text
    client.force_login(make_member(globex, "dora", Access.ADMIN).user)
    assert client.get(pages[alice]).status_code == 404
