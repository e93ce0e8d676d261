"""Models that refuse a tool: on its page, in the list, in the menu and over REST."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from capabilities.models import LanguageModel, Tool, ToolRefusal
from tests.cast import make_agent, make_tool
from tests.rest import Rest
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

WORDS = "array schema missing items <b>"


@pytest.fixture
def refused(alice: Membership) -> Tool:
    """A tool that the model of an agent refuses; another one is not refused."""
    acme = alice.organisation
    tool, _ = make_tool(acme, "by_ids"), make_tool(acme, "other_tool")
    make_agent(acme, "https://api.example.org/v1")
    assert tool.current_version is not None
    with organisation_scope(acme):
        ToolRefusal.objects.create(
            organisation=acme,
            tool=tool,
            model=LanguageModel.objects.get(),
            version=tool.current_version,
            sha256="0" * 64,
            origin="origin",
            words=WORDS,
            refused_at=timezone.now(),
        )
    return tool


def test_the_tool_page_says_which_model_refuses_it_and_sends_it_again(
    client: Client, alice: Membership, refused: Tool
) -> None:
    client.force_login(alice.user)
    page = client.get("/o/acme/tools/by_ids/").content.decode()
    assert "array schema missing items &lt;b&gt;" in page
    with organisation_scope(alice.organisation):
        mark = ToolRefusal.objects.get()

    answer = client.post(f"/o/acme/tools/by_ids/refusals/{mark.public_id}/again/")

    assert answer.status_code == 302
    with organisation_scope(alice.organisation):
        assert not ToolRefusal.objects.exists()
        assert AuditEntry.objects.filter(action="tool.try_again", target_label="by_ids").count() == 1


def test_the_list_finds_refused_tools_and_the_menu_counts_them(
    client: Client, alice: Membership, refused: Tool
) -> None:
    client.force_login(alice.user)

    page = client.get("/o/acme/tools/", {"state": "refused"}).content.decode()

    assert "1 tool is refused" in page
    assert "/o/acme/tools/by_ids/" in page
    assert "/o/acme/tools/other_tool/" not in page


def test_rest_tells_them_and_forgets_one(alice: Membership, bob: Membership, refused: Tool) -> None:
    (row,) = Rest(bob).get("tools/by_ids/refusals").json["results"]
    assert (row["provider"], row["model"], row["words"], row["count"]) == ("scripted", "scripted", WORDS, 1)

    assert Rest(bob).ask("DELETE", f"tools/by_ids/refusals/{row['id']}").status == 403
    assert Rest(alice).ask("DELETE", f"tools/other_tool/refusals/{row['id']}").status == 404
    assert Rest(alice).ask("DELETE", f"tools/by_ids/refusals/{row['id']}").status == 204
    assert Rest(bob).get("tools/by_ids/refusals").json["results"] == []


def test_a_refusal_of_an_earlier_version_is_not_listed(alice: Membership, refused: Tool) -> None:
    with organisation_scope(alice.organisation):
        Tool.objects.filter(pk=refused.pk).update(current_version=None)

    assert Rest(alice).get("tools/by_ids/refusals").json["results"] == []
