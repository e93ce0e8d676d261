"""`?dry_run=true` on a write: the preview of what it would do, and nothing changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.access.grants.writes import GrantContent, give_grant
from capabilities.access.roles.writes import Rule, set_role_rules
from capabilities.models import Agent, Grant, Role, RoleMembership, Tool, Toolkit
from sessions.models import ChatSession
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Reply, Rest
from toolhub.tenants.models import AuditEntry, Membership, Organisation

pytestmark = [pytest.mark.long, pytest.mark.django_db]


@pytest.fixture
def world(in_acme: Organisation, alice: Membership, bob: Membership) -> dict[str, str]:
    """Bob has the role `coder`, which opens `docker`, a grant of `deploy`, and a live session with an agent that has
    `docker` and `deploy` of its own and may load `ops`. Returns the addresses of all that."""
    make_meta_tools(in_acme)
    category = make_category(in_acme, "devops", is_core=False)
    tools = {name: make_tool(in_acme, name, category=category) for name in ("docker", "deploy", "fetch")}
    agent = make_agent(in_acme, slug="ops", starts_with_core=False)
    give_tool(agent, tools["docker"], position=1)
    give_tool(agent, tools["deploy"], position=2)
    allow_toolkit(agent, make_toolkit(in_acme, "kit", tools["fetch"]))
    coder = Role.objects.create(organisation=in_acme, slug="coder", name="Coder", mode="listed")
    set_role_rules(coder, [Rule("allow", tool="docker"), Rule("allow", tool="fetch")], actor=None)
    RoleMembership.objects.create(organisation=in_acme, role=coder, membership=bob)
    make_role(in_acme, alice)
    grant = give_grant(GrantContent(bob.public_id, "allow", tool="deploy"), actor=alice)
    make_session(bob, agent)
    return {"member": f"members/{bob.public_id}/roles", "grant": f"grants/{grant.public_id}", "bob": str(bob.public_id)}


def ask(who: Membership | Rest, method: str, path: str, body: Any, dry_run: str = "true") -> Reply:
    data = b"" if body is None else json.dumps(body).encode()
    rest = who if isinstance(who, Rest) else Rest(who)
    return rest.ask(method, path, data, query={"dry_run": dry_run})


def stored(organisation: Organisation) -> list[Any]:
    """Everything that these writes could change."""
    organisation.refresh_from_db()
    models = (Role, Grant, Agent, Toolkit, Tool, RoleMembership)
    rows = [list(model._default_manager.order_by("pk").values()) for model in models]
    return [*rows, organisation.registry_version, AuditEntry.objects.count(), list(ChatSession.objects.values())]


#: A write, and what it does: who gain and lose what, and how many live sessions change.
WRITES: list[tuple[str, str, Any, list[tuple[list[str], list[str]]], int]] = [
    ("PATCH", "roles/coder", {"rules": [{"tool": "fetch"}]}, [([], ["docker"])], 1),
    ("PATCH", "roles/coder", {"mode": "all", "name": "All"}, [], 0),
    ("DELETE", "roles/coder", None, [([], ["docker", "fetch"])], 1),
    ("POST", "roles", {"name": "New", "mode": "all"}, [], 0),
    ("PUT", "{member}", {"roles": []}, [([], ["docker", "fetch"])], 1),
    ("POST", "grants", {"member": "{bob}", "tool": "docker", "effect": "deny"}, [([], ["docker"])], 1),
    ("PATCH", "{grant}", {"reason": "Because."}, [], 0),
    ("DELETE", "{grant}", None, [([], ["deploy"])], 1),
    ("PATCH", "agents/ops", {"tools": ["docker"]}, [([], ["deploy"])], 1),
    ("POST", "agents", {"name": "New", "provider": "scripted", "model": "scripted", "tools": ["fetch"]}, [], 0),
    ("PATCH", "toolkits/kit", {"tools": []}, [([], ["fetch"])], 0),
    ("POST", "toolkits", {"name": "other", "tools": [{"tool": "fetch"}]}, [], 0),
    ("POST", "tools/bulk", {"names": ["docker"], "is_enabled": False}, [([], ["docker"])], 1),
    ("PATCH", "tools/docker", {"is_enabled": False}, [([], ["docker"])], 1),
]


@pytest.mark.parametrize(("method", "path", "body", "groups", "sessions"), WRITES)
def test_a_dry_run_tells_what_the_write_does_and_changes_nothing(
    world: dict[str, str],
    alice: Membership,
    acme: Organisation,
    method: str,
    path: str,
    body: Any,
    groups: list[tuple[list[str], list[str]]],
    sessions: int,
) -> None:
    path, body = path.format(**world), filled(body, world)
    Tool.objects.filter(category__name="dynamic").update(is_enabled=False)
    rest = Rest(alice)
    before = stored(acme)

    shown = ask(rest, method, path, body)

    assert shown.status == 200, shown.text
    of_bob = [(each["gain"], each["lose"]) for each in shown.json["groups"] if "Bob" in each["members"]]
    assert (of_bob, shown.json["sessions"]) == (groups, sessions)
    assert stored(acme) == before
    done = ask(rest, method, path, body, "0")
    assert done.status in (200, 201, 204), done.text
    assert stored(acme) != before, "the same without a dry run"


def filled(body: Any, world: dict[str, str]) -> Any:
    return {key: world["bob"] if value == "{bob}" else value for key, value in body.items()} if body else body


def test_it_names_roles_and_agents_by_themselves(world: dict[str, str], alice: Membership) -> None:
    role = ask(alice, "POST", "roles", {"name": "New", "mode": "listed", "rules": [{"tool": "fetch"}]}).json["roles"]
    agent = ask(alice, "PATCH", "agents/ops", {"tools": ["docker"]}).json["agents"]

    tokens = Tool.objects.values_list("current_version__tokens", flat=True)
    same = {"members": 0, "given": 0, "taken": 0, "closes": []}
    assert role == [{"name": "New", "opens": ["fetch"], "tokens": tokens.get(name="fetch"), **same}]
    assert [(each["name"], each["no_longer_sends"]) for each in agent] == [("Ops", ["deploy"])]
    assert agent[0]["tokens_before"] - agent[0]["tokens_after"] == tokens.get(name="deploy")


@pytest.mark.parametrize(("method", "path", "body"), [each[:3] for each in WRITES])
def test_a_dry_run_refuses_what_the_write_refuses(
    world: dict[str, str], bob: Membership, charlie: Membership, method: str, path: str, body: Any
) -> None:
    path, body = path.format(**world), filled(body, world)
    data = b"" if body is None else json.dumps(body).encode()

    for who in (bob, charlie):
        shown, real = ask(who, method, path, body), Rest(who).ask(method, path, data)
        if real.status < 300:
            assert (who, method, path.count("/")) == (charlie, "POST", 0), "what Charlie adds is Globex's"
        else:
            assert shown.error == real.error


def test_what_could_not_be_saved_is_refused_with_its_field(world: dict[str, str], alice: Membership) -> None:
    assert ask(alice, "PATCH", "agents/ops", {"tools": ["missing"]}).error == (400, "unknown", "tools")
    assert ask(alice, "POST", "roles", {"name": "Coder", "slug": "coder"}).error == (400, "taken", "slug")
    assert ask(alice, "POST", "grants", {"member": "x", "effect": "deny"}).error == (400, "invalid", "member")


def test_who_asks_for_a_dry_run_where_there_is_none_changes_nothing(world: dict[str, str], alice: Membership) -> None:
    category = {"name": "web", "title": "Web"}

    assert ask(alice, "POST", "categories", category).error == (400, "invalid", "dry_run")
    assert ask(alice, "PATCH", "tools/docker", {"category": "devops"}).error == (400, "invalid", "dry_run")
    assert ask(alice, "PATCH", "roles/coder", {"mode": "all"}, "yes").error == (400, "invalid", "dry_run")
    assert Rest(alice).get("categories").text.count('"web"') == 0
    assert Role.objects.get(slug="coder").mode == "listed"


def test_it_takes_the_same_queries_for_1_and_3_of_everything(
    world: dict[str, str], alice: Membership, acme: Organisation
) -> None:
    agent = Agent.objects.get(slug="ops")

    def grow(names: list[str]) -> None:
        for name in names:
            member = make_member(acme, name)
            RoleMembership.objects.create(organisation=acme, role=Role.objects.get(slug="coder"), membership=member)
            make_session(member, agent)
            allow_toolkit(agent, make_toolkit(acme, f"kit-{name}", Tool.objects.get(name="docker")))

    def counted(method: str, path: str, body: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert ask(alice, method, path, body).status == 200
        return len(captured)

    writes = [each[:3] for each in WRITES if each[1] in ("roles/coder", "agents/ops", "toolkits/kit", "tools/docker")]
    grow(["one"])
    few = [counted(*each) for each in writes]
    grow(["two", "three"])

    assert [counted(*each) for each in writes] == few
