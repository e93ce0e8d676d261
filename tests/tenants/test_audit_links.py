"""An entry of the audit leads to the page of what it names, for whoever may see that page."""

from __future__ import annotations

import re

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.models import Category, Grant, LanguageModel, Provider, Role, ServiceSetting
from sessions.models import Schedule
from tests.cast import make_agent, make_category, make_role, make_session, make_tool, make_toolkit, make_turn
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
ACME = "/o/acme/"


def links(client: Client, reader: Membership) -> set[str]:
    """Where the entries lead the reader."""
    client.force_login(reader.user)
    page = client.get(f"{ACME}audit/").content.decode()
    entries = page[page.index('class="trail"') : page.index("</ol>")]
    return set(re.findall(r'<a href="(/[^"]+)"', entries))


def name_in_audit(*rows: TenantModel) -> None:
    with transaction.atomic():
        for row in rows:
            record("test.name", row, actor=None)


@pytest.fixture
def addresses(acme: Organisation, alice: Membership, bob: Membership) -> dict[str, str]:
    """By what an entry names, the page that it leads to."""
    category = make_category(acme, "web")
    tool = make_tool(acme, "fetch", category=category)
    kit = make_toolkit(acme, "kit")
    agent = make_agent(acme)
    make_role(acme, bob, slug="coder")
    session = make_session(alice, agent)
    turn = make_turn(session)
    with organisation_scope(acme):
        own = {"organisation": acme}
        role, provider, model = Role.objects.get(), Provider.objects.get(), LanguageModel.objects.get()
        grant = Grant.objects.create(**own, membership=bob, tool=tool, effect="deny")
        service = ServiceSetting.objects.create(**own, service="searxng")
        schedule = Schedule.objects.create(
            **own,
            membership=alice,
            agent=agent,
            number=1,
            name="s",
            message="m",
            cron="0 9 * * *",
            next_at=timezone.now(),
        )
        name_in_audit(category, tool, kit, agent, role, provider, model, grant, service, schedule, session, turn, bob)
    return {
        "tool": f"{ACME}tools/fetch/",
        "toolkit": f"{ACME}toolkits/kit/",
        "agent": f"{ACME}agents/{agent.slug}/",
        "category": f"{ACME}categories/web/",
        "role": f"{ACME}roles/coder/",
        "provider": f"{ACME}providers/{provider.slug}/edit/",
        "model": f"{ACME}providers/{provider.slug}/models/{model.public_id}/",
        "grant": f"{ACME}grants/?q=bob%40example.com",
        "service": f"{ACME}services/searxng/",
        "schedule": f"{ACME}schedules/{schedule.public_id}/",
        "session": f"{ACME}sessions/{session.pk}/",
        "turn": f"{ACME}turns/{turn.pk}/",
        "member": f"{ACME}members/{bob.public_id}/",
    }


def test_an_entry_leads_to_what_it_names(client: Client, alice: Membership, addresses: dict[str, str]) -> None:
    assert links(client, alice) == set(addresses.values())
    for address in addresses.values():
        assert client.get(address).status_code in (200, 302), address


def test_a_reader_without_the_right_for_a_page_gets_no_link(
    client: Client, acme: Organisation, bob: Membership, addresses: dict[str, str]
) -> None:
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.AUDIT)

    found = links(client, bob)

    assert found == {addresses[name] for name in ("tool", "toolkit", "agent")}
    for address in set(addresses.values()) - found:
        assert client.get(address).status_code in (403, 404), address


def test_what_is_gone_and_what_is_another_organisation_s_has_no_link(
    client: Client, acme: Organisation, alice: Membership, charlie: Membership
) -> None:
    theirs = make_tool(charlie.organisation, "theirs")
    with organisation_scope(acme):
        gone = Category.objects.create(organisation=acme, name="gone", title="Gone")
        name_in_audit(gone)
        gone.delete()
    with organisation_scope(charlie.organisation):
        name_in_audit(theirs)

    assert links(client, alice) == set()


def test_more_entries_take_no_more_queries(client: Client, acme: Organisation, alice: Membership) -> None:
    client.force_login(alice.user)
    counts = []
    for number in range(1, 4):
        tool = make_tool(acme, f"tool_{number}")
        make_role(acme, alice, slug=f"role-{number}")
        with organisation_scope(acme):
            name_in_audit(tool, Role.objects.get(slug=f"role-{number}"))
        with CaptureQueriesContext(connection) as queries:
            client.get(f"{ACME}audit/")
        counts.append(len(queries))

    assert counts[1:] == counts[:-1]
