"""Access for a time: asked for by a member, given or refused by somebody else, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from capabilities.access.grants.writes import GrantContent, give_grant, revoke_grant
from capabilities.access.requests.writes import (
    RequestContent,
    ask_for_grant,
    grant_request,
    refuse_request,
    withdraw_request,
)
from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.common.refused import ChangeRefused
from capabilities.models import Category, Grant, GrantRequest, RequestStatus, Tool
from tests.cast import make_category, make_member, make_role, make_tool
from tests.rest import Rest
from tests.threads import at_once
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def tool(acme: Organisation, in_acme: Organisation) -> Tool:
    return make_tool(acme, "http_post", category=make_category(acme, "web"))


@pytest.fixture
def asked(bob: Membership, tool: Tool) -> GrantRequest:
    return ask(bob)


def ask(member: Membership, **fields: Any) -> GrantRequest:
    return ask_for_grant(RequestContent(**{"tool": "http_post", "reason": "Deploys today."} | fields), member=member)


def give_right(member: Membership, category: str = "") -> Membership:
    """The member as he or she is with the right `roles`."""
    AdminRight.objects.create(organisation=member.organisation, membership=member, right=Right.ROLES, category=category)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def actions() -> list[tuple[str, str]]:
    rows = AuditEntry.objects.filter(action__contains="grant").order_by("pk")
    return [(row.action, row.actor_label) for row in rows]


# -- Asking -----------------------------------------------------------------------------------------------------------


def test_a_member_asks_and_it_is_on_record(bob: Membership, tool: Tool) -> None:
    request = ask(bob, reason=" Deploys today. ", hours=3)

    request.refresh_from_db()
    assert (request.membership, request.tool, request.category) == (bob, tool, None)
    assert (request.reason, request.hours, request.status) == ("Deploys today.", 3, RequestStatus.WAITING)
    assert not permission_for(bob, tool).allowed
    entry = AuditEntry.objects.get(action="grant_request.ask")
    assert (entry.actor, entry.after) == (
        bob,
        {
            "member": "bob@example.com",
            "tool": "http_post",
            "category": "",
            "reason": "Deploys today.",
            "hours": 3,
            "status": "waiting",
            "answer": "",
        },
    )


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"tool": "missing"}, "tool", "unknown"),
        ({"tool": "", "category": "missing"}, "category", "unknown"),
        ({"tool": ""}, "tool", "invalid"),
        ({"category": "web"}, "tool", "invalid"),
        ({"reason": " \n"}, "reason", "invalid"),
        ({"reason": "x" * 2001}, "reason", "invalid"),
        ({"hours": 0}, "hours", "invalid"),
        ({"hours": 24 * 90 + 1}, "hours", "invalid"),
    ],
)
def test_an_invalid_request_is_not_created(bob: Membership, fields: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(ChangeRefused) as refused:
        ask(bob, **fields)

    assert (refused.value.field, refused.value.code) == (field, code)
    assert not GrantRequest.objects.exists()


def test_a_thing_of_another_organisation_is_not_there(bob: Membership, tool: Tool, globex: Organisation) -> None:
    make_tool(globex, "their_tool")

    with pytest.raises(ChangeRefused) as refused:
        ask(bob, tool="their_tool")

    assert (refused.value.field, refused.value.code) == ("tool", "unknown")


def test_one_request_for_a_thing_waits_at_a_time(bob: Membership, asked: GrantRequest) -> None:
    with pytest.raises(ChangeRefused) as refused:
        ask(bob)
    assert (refused.value.code, refused.value.field) == ("taken", "tool")
    ask(bob, tool="", category="web")

    withdraw_request(asked, member=bob)
    ask(bob)

    assert GrantRequest.objects.filter(status=RequestStatus.WAITING).count() == 2


def test_what_a_member_may_use_already_is_not_asked_for(bob: Membership, tool: Tool, acme: Organisation) -> None:
    make_role(acme, bob)

    messages = []
    for fields in ({}, {"tool": "", "category": "web"}):
        with pytest.raises(ChangeRefused) as refused:
            ask(bob, **fields)
        messages.append(str(refused.value))

    assert "role all allows it" in messages[0]
    assert "every tool of Web already" in messages[1]


def test_a_category_is_asked_for_while_one_of_its_tools_is_closed(
    alice: Membership, bob: Membership, tool: Tool, acme: Organisation
) -> None:
    make_tool(acme, "fetch", category=tool.category)
    give_grant(GrantContent(bob.public_id, "allow", tool="fetch"), actor=alice)

    assert ask(bob, tool="", category="web").category == tool.category


def test_a_viewer_does_not_ask(acme: Organisation, tool: Tool) -> None:
    with pytest.raises(PermissionDenied):
        ask(make_member(acme, "victor", Access.VIEWER))


# -- Deciding ---------------------------------------------------------------------------------------------------------


def test_what_is_granted_is_an_allow_for_a_time(
    alice: Membership, bob: Membership, tool: Tool, asked: GrantRequest
) -> None:
    before = timezone.now()

    grant_request(asked, hours=2, answer="Only today.", actor=alice)

    asked.refresh_from_db()
    grant = Grant.objects.get()
    assert (asked.status, asked.decided_by, asked.answer, asked.grant) == ("granted", alice, "Only today.", grant)
    assert (grant.membership, grant.effect, grant.tool, grant.reason) == (bob, "allow", tool, "Deploys today.")
    assert grant.expires_at is not None
    assert before + timedelta(hours=2) <= grant.expires_at <= timezone.now() + timedelta(hours=2)
    assert permission_for(bob, tool).allowed
    assert actions() == [
        ("grant_request.ask", "bob@example.com"),
        ("grant.give", "alice@example.com"),
        ("grant_request.grant", "alice@example.com"),
    ]


def test_a_category_is_granted_whole(alice: Membership, bob: Membership, tool: Tool) -> None:
    grant_request(ask(bob, tool="", category="web"), hours=1, actor=alice)

    assert Grant.objects.get().category == tool.category
    assert permission_for(bob, tool).allowed


def test_a_refusal_has_an_answer_and_gives_nothing(alice: Membership, asked: GrantRequest) -> None:
    with pytest.raises(ChangeRefused) as refused:
        refuse_request(asked, answer=" ", actor=alice)
    assert (refused.value.field, refused.value.code) == ("answer", "invalid")

    refuse_request(asked, answer="Use fetch.", actor=alice)

    asked.refresh_from_db()
    assert (asked.status, asked.answer, asked.grant) == ("refused", "Use fetch.", None)
    assert not Grant.objects.exists()
    assert actions()[-1] == ("grant_request.refuse", "alice@example.com")


@pytest.mark.parametrize("decided", ["granted", "refused", "withdrawn"])
def test_a_request_is_decided_once(alice: Membership, bob: Membership, asked: GrantRequest, decided: str) -> None:
    stale = GrantRequest.objects.get(pk=asked.pk)
    if decided == "granted":
        grant_request(asked, hours=1, actor=alice)
    elif decided == "refused":
        refuse_request(asked, answer="No.", actor=alice)
    else:
        withdraw_request(asked, member=bob)
    written = actions()

    decisions: list[Callable[[], GrantRequest]] = [
        lambda: grant_request(stale, hours=1, actor=alice),
        lambda: refuse_request(stale, answer="No.", actor=alice),
        lambda: withdraw_request(stale, member=bob),
    ]
    for decide in decisions:
        with pytest.raises(ChangeRefused) as refused:
            decide()
        assert refused.value.code == "conflict"

    asked.refresh_from_db()
    assert (asked.status, actions()) == (decided, written)


@pytest.mark.parametrize("hours", [0, -1, 24 * 90 + 1])
def test_nothing_is_granted_for_hours_that_cannot_be(alice: Membership, asked: GrantRequest, hours: int) -> None:
    with pytest.raises(ChangeRefused) as refused:
        grant_request(asked, hours=hours, actor=alice)

    assert refused.value.field == "hours"
    asked.refresh_from_db()
    assert asked.status == "waiting"


@pytest.mark.parametrize("denied", ["tool", "category"])
def test_a_deny_that_stands_is_revoked_first(
    alice: Membership, bob: Membership, asked: GrantRequest, denied: str
) -> None:
    content = GrantContent(bob.public_id, "deny", **{denied: "http_post" if denied == "tool" else "web"})  # type: ignore[arg-type]
    deny = give_grant(content, actor=alice)

    with pytest.raises(ChangeRefused, match="a deny beats every allow: revoke that deny first") as refused:
        grant_request(asked, hours=1, actor=alice)

    assert refused.value.code == "conflict"
    asked.refresh_from_db()
    assert asked.status == "waiting"
    revoke_grant(deny, actor=alice)
    assert grant_request(asked, hours=1, actor=alice).status == "granted"


def test_nobody_decides_on_a_request_of_their_own(bob: Membership, asked: GrantRequest) -> None:
    operator = give_right(bob)

    decisions: list[Callable[[], GrantRequest]] = [
        lambda: grant_request(asked, hours=1, actor=operator),
        lambda: refuse_request(asked, answer="No.", actor=operator),
    ]
    for decide in decisions:
        with pytest.raises(PermissionDenied, match=r"Nobody decides on a request of their own"):
            decide()

    asked.refresh_from_db()
    assert asked.status == "waiting"


def test_a_right_for_the_category_is_enough_and_for_another_is_not(
    acme: Organisation, bob: Membership, asked: GrantRequest
) -> None:
    of_files = give_right(make_member(acme, "fay"), "file")
    with pytest.raises(PermissionDenied):
        grant_request(asked, hours=1, actor=of_files)
    with pytest.raises(PermissionDenied):
        refuse_request(asked, answer="No.", actor=make_member(acme, "dan"))

    assert grant_request(asked, hours=1, actor=give_right(make_member(acme, "wes"), "web")).status == "granted"


def test_nobody_takes_back_what_another_asked_for(alice: Membership, asked: GrantRequest) -> None:
    with pytest.raises(PermissionDenied):
        withdraw_request(asked, member=alice)


@pytest.mark.django_db(transaction=True)
def test_a_request_is_decided_once_by_administrators_at_the_same_time(
    acme: Organisation, alice: Membership, asked: GrantRequest
) -> None:
    deciders = [alice, *(make_member(acme, name, Access.ADMIN) for name in ("amy", "ada"))]

    def decide(actor: Membership) -> str:
        request = GrantRequest.objects.select_related("membership__user", "tool__category").get(pk=asked.pk)
        try:
            if actor is alice:
                return str(refuse_request(request, answer="No.", actor=actor).status)
            return str(grant_request(request, hours=1, actor=actor).status)
        except ChangeRefused as error:
            return error.code

    answers = at_once([partial(decide, each) for each in deciders])

    asked.refresh_from_db()
    assert sorted(answers) == sorted(["conflict", "conflict", asked.status])
    assert Grant.objects.count() == (asked.status == "granted")


# -- REST -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def web(acme: Organisation) -> Category:
    make_tool(acme, "http_post", category=make_category(acme, "web"))
    return make_category(acme, "web")


@pytest.mark.usefixtures("web")
def test_a_request_lives_its_life_over_rest(alice: Membership, bob: Membership) -> None:
    hers, his = Rest(alice), Rest(bob)

    made = his.post("grant-requests", {"tool": "http_post", "reason": "Deploys.", "hours": 4})
    path = f"grant-requests/{made.json['id']}"
    granted = hers.post(f"{path}/grant", {"answer": "Fine."})

    assert made.status == 201
    assert {name: made.json[name] for name in ("member", "tool", "category", "reason", "hours", "status")} == {
        "member": str(bob.public_id),
        "tool": "http_post",
        "category": None,
        "reason": "Deploys.",
        "hours": 4,
        "status": "waiting",
    }
    assert (granted.status, granted.json["status"], granted.json["answer"]) == (200, "granted", "Fine.")
    (grant,) = hers.get("grants").json["results"]
    assert (granted.json["decided_by"], granted.json["grant"]) == (str(alice.public_id), grant["id"])
    assert granted.json["expires_at"] is not None
    assert his.get(path).json == granted.json
    assert hers.post(f"{path}/refuse", {"answer": "No."}).error == (409, "conflict", None)
    assert his.post(f"{path}/withdraw").error == (409, "conflict", None)
    assert his.post("grant-requests", {"tool": "http_post", "reason": "More."}).error == (400, "invalid", "tool")


@pytest.mark.usefixtures("web")
def test_a_member_sees_own_requests_and_who_decides_those_of_the_categories(
    acme: Organisation, alice: Membership, bob: Membership
) -> None:
    make_tool(acme, "file_read", category=make_category(acme, "file"))
    dora, fay = make_member(acme, "dora"), make_member(acme, "fay")
    with organisation_scope(acme):
        mine = str(ask(bob).public_id)
        theirs = str(ask(dora, tool="file_read").public_id)
        give_right(fay, "web")

    def seen(member: Membership, **query: str) -> list[str]:
        return [row["id"] for row in Rest(member).get("grant-requests", **query).json["results"]]

    assert (seen(alice), seen(bob), seen(dora), seen(fay)) == ([theirs, mine], [mine], [theirs], [mine])
    assert (seen(alice, status="waiting"), seen(alice, status="granted")) == ([theirs, mine], [])
    assert Rest(bob).get("grant-requests", status="open").error == (400, "invalid", "status")
    for member, path in ((bob, f"grant-requests/{theirs}"), (fay, f"grant-requests/{theirs}")):
        assert Rest(member).get(path).error == (404, "not_found", None)
    assert Rest(fay).post(f"grant-requests/{theirs}/grant", {}).error == (404, "not_found", None)
    assert Rest(bob).post(f"grant-requests/{theirs}/grant", {}).error == (403, "forbidden", None)
    assert Rest(alice).post(f"grant-requests/{theirs}/withdraw").error == (403, "forbidden", None)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"tool": "http_post"}, (400, "required", "reason")),
        ({"tool": "http_post", "reason": " "}, (400, "blank", "reason")),
        ({"tool": "http_post", "reason": "x", "hours": 0}, (400, "min_value", "hours")),
        ({"tool": "http_post", "reason": "x", "hours": 2161}, (400, "max_value", "hours")),
        ({"reason": "x"}, (400, "invalid", "tool")),
        ({"tool": "http_post", "category": "web", "reason": "x"}, (400, "invalid", "tool")),
        ({"tool": "http_post", "reason": "x", "member": 1}, (400, "unknown_field", "member")),
        ({"tool": "missing", "reason": "x"}, (400, "unknown", "tool")),
    ],
)
def test_an_invalid_request_over_rest_is_refused_with_its_code(
    bob: Membership, body: dict[str, Any], error: tuple[int, str, str]
) -> None:
    assert Rest(bob).post("grant-requests", body).error == error


@pytest.mark.usefixtures("web")
def test_a_refusal_over_rest_needs_an_answer(alice: Membership, bob: Membership, acme: Organisation) -> None:
    with organisation_scope(acme):
        request = ask(bob)

    assert Rest(alice).post(f"grant-requests/{request.public_id}/refuse", {}).error == (400, "required", "answer")
    assert Rest(alice).post(f"grant-requests/{request.public_id}/refuse", {"answer": "No."}).json["status"] == "refused"


def test_mr_41_instructions_of_a_tool_over_rest(alice: Membership, web: Category) -> None:
    rest = Rest(alice)

    body = b'{"instructions": "Ask first."}'
    changed = rest.ask("PATCH", "tools/http_post", body)

    assert (changed.status, changed.json["instructions"], changed.json["version"]) == (200, "Ask first.", 2)
    assert rest.get("tools/http_post").json == changed.json
    versions = rest.get("tools/http_post/versions").json["results"]
    assert [(row["number"], row["instructions"]) for row in versions] == [(2, "Ask first."), (1, "")]
    too_long = b'{"instructions": "' + b"x" * 4001 + b'"}'
    assert rest.ask("PATCH", "tools/http_post", too_long).error == (400, "max_length", "instructions")
