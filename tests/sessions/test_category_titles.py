"""A category is called by its title on every page; its key stands on the pages of categories alone."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from capabilities.models import (
    Grant,
    GrantRequest,
    LoadingMode,
    RoleMode,
    RoleRule,
    ToolkitCategory,
)
from sessions.models import ChatSession, LoadedToolkit, LoadSource
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
KEY, TITLE = "plumb_key", "Pipes and taps"
CORE_KEY, CORE_TITLE = "core_key", "Everyday things"


@pytest.fixture
def session(alice: Membership, acme: Organisation) -> ChatSession:
    """Alice's, with the category loaded, after a role, a grant, a request and a toolkit named it."""
    core = make_category(acme, CORE_KEY, title=CORE_TITLE)
    category = make_category(acme, KEY, title=TITLE, is_core=False)
    make_tool(acme, "calculator", category=core)
    make_tool(acme, "clock", category=category)
    make_meta_tools(acme)
    make_role(acme, alice)
    agent = make_agent(acme, loading_mode=LoadingMode.NEXT_REQUEST)
    with organisation_scope(acme):
        own = {"organisation": acme}
        allow_toolkit(agent, kit := make_toolkit(acme, "kit"))
        ToolkitCategory.objects.create(**own, toolkit=kit, category=category)
        bob = make_member(acme, "bob")
        role = make_role(acme, bob, RoleMode.LISTED, "listed")
        RoleRule.objects.create(**own, role=role, category=category, effect="allow")
        Grant.objects.create(**own, membership=bob, category=category, effect="deny")
        GrantRequest.objects.create(**own, membership=bob, category=category, reason="Please", hours=8)
        session = make_session(alice, agent)
        LoadedToolkit.objects.create(
            **own, session=session, agent=agent, category=category, name=KEY, source=LoadSource.PERSON, loaded_by=alice
        )
    return session


def seen(client: Client, address: str) -> str:
    """The text that a reader sees: no attributes, no values of options."""
    answer = client.get(f"/o/acme/{address}")
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]*>", " ", answer.content.decode()).split())


@pytest.mark.parametrize(
    "address",
    [
        "tools/",
        "tools/clock/",
        "roles/listed/",
        "roles/matrix/",
        "grants/",
        "grants/new/",
        "access-requests/",
        "toolkits/kit/",
        "toolkits/kit/edit/",
        "agents/new/",
        "members/{member}/tools/?show=all",
    ],
)
def test_a_page_says_the_title_and_not_the_key(client: Client, session: ChatSession, address: str) -> None:
    client.force_login(session.membership.user)

    text = seen(client, address.format(member=session.membership.public_id))

    assert TITLE in text
    assert KEY not in text


def test_the_agent_explain_and_the_loads_say_the_title(client: Client, session: ChatSession) -> None:
    client.force_login(session.membership.user)
    agent = session.agent.slug

    of_agent = seen(client, f"agents/{agent}/")
    explained = seen(client, f"explain/?session={session.pk}&agent={agent}")
    panel = seen(client, f"sessions/{session.pk}/toolkits/")
    history = seen(client, f"sessions/{session.pk}/loads/")

    assert (f"core category {CORE_TITLE}" in of_agent, TITLE in panel, TITLE in history) == (True, True, True)
    for text in (of_agent, explained, panel, history):
        assert [text[max(0, at - 80) : at + 30] for key in (KEY, CORE_KEY) for at in [text.find(key)] if at >= 0] == []


def test_the_key_stands_where_categories_are_kept(client: Client, session: ChatSession) -> None:
    client.force_login(session.membership.user)

    assert KEY in seen(client, "categories/")
    assert KEY in seen(client, f"categories/{KEY}/")
