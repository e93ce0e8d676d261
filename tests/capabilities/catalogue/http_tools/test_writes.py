"""HTTP tools are added and get versions: in force at once, or waiting, as the actor's rights say."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.catalogue.http_tools.queries import preview_of
from capabilities.catalogue.http_tools.writes import create_http_tool, update_http_tool
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import Tool, ToolVersion, VersionStatus
from tests.capabilities.catalogue.http_tools.rows import (
    PARAMETERS,
    REQUEST,
    URL,
    content,
    make_credential,
    make_http_tool,
)
from tests.cast import make_category
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db


@pytest.fixture
def category(in_acme: Organisation) -> None:
    make_category(in_acme)
    make_category(in_acme, "other")


def give(member: Membership, right: Right, category: str = "") -> Membership:
    AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right, category=category)
    return member


def statuses(tool: Tool) -> list[str]:
    return list(ToolVersion.objects.filter(tool=tool).order_by("number").values_list("status", flat=True))


def test_tx40_an_admins_tool_is_in_force_at_once(alice: Membership, category: None) -> None:
    make_credential(alice)
    tool = create_http_tool(content(credential="api"), actor=alice)

    assert tool.current_version is not None
    assert (tool.kind, tool.credential and tool.credential.name, statuses(tool)) == ("http", "api", ["approved"])
    assert tool.current_version.implementation["arguments"]["id"] == {"in": "path", "name": "id"}
    assert AuditEntry.objects.get(action="tool.create").after["implementation"]["url"] == f"{URL}/users/{{id}}"


def test_s52_without_the_right_to_approve_it_waits_and_is_not_sent(bob: Membership, category: None) -> None:
    tool = create_http_tool(content(), actor=give(bob, Right.CATALOGUE))

    assert (tool.current_version, statuses(tool)) == (None, ["pending"])


def test_a_right_that_is_limited_to_the_category_counts_there_alone(bob: Membership, category: None) -> None:
    give(bob, Right.CATALOGUE, "utility")
    give(bob, Right.APPROVE_CODE, "utility")
    bob = Membership.objects.get(pk=bob.pk)

    with pytest.raises(PermissionDenied):
        create_http_tool(content(category="other"), actor=bob)
    tool = create_http_tool(content(), actor=bob)

    assert statuses(tool) == ["approved"]


def test_without_the_right_nothing_is_added(bob: Membership, category: None) -> None:
    with pytest.raises(PermissionDenied):
        create_http_tool(content(), actor=bob)
    assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({"description": "Reads one user."}, False),
        ({"human_format": "Reading {id}"}, False),
        ({"implementation": REQUEST | {"url": f"{URL}/people/{{id}}"}}, True),
        ({"implementation": REQUEST | {"headers": {"X-Version": "2"}}}, True),
        ({"parameters": PARAMETERS | {"additionalProperties": True}}, True),
        ({"timeout": 60.0}, True),
        ({"effect": "external"}, True),
        ({"untrusted_output": False}, True),
    ],
)
def test_s52_a_change_of_more_than_words_waits_for_who_may_approve(
    alice: Membership, bob: Membership, category: None, changes: dict[str, Any], waits: bool
) -> None:
    tool = create_http_tool(content(), actor=alice)

    version = update_http_tool(tool, content(**changes), actor=give(bob, Right.CATALOGUE))

    tool.refresh_from_db()
    assert statuses(tool) == (["approved", "pending"] if waits else ["retired", "approved"])
    assert (tool.current_version == version) is not waits


def test_an_admins_change_is_in_force_and_retires_the_one_before(alice: Membership, category: None) -> None:
    tool = create_http_tool(content(), actor=alice)
    update_http_tool(tool, content(timeout=60.0), actor=alice)

    assert statuses(tool) == ["retired", "approved"]


def test_the_same_content_makes_no_version(alice: Membership, category: None) -> None:
    tool = create_http_tool(content(), actor=alice)
    update_http_tool(tool, content(), actor=alice)

    assert statuses(tool) == ["approved"]


def test_another_credential_needs_the_right_to_approve_and_is_on_record(
    alice: Membership, bob: Membership, category: None
) -> None:
    make_credential(alice)
    tool = create_http_tool(content(), actor=alice)
    give(bob, Right.CATALOGUE)

    with pytest.raises(ChangeForbidden, match="approve_code"):
        update_http_tool(tool, content(credential="api"), actor=bob)
    assert Tool.objects.get().credential is None

    update_http_tool(tool, content(credential="api"), actor=alice)

    assert Tool.objects.get().credential == tool.credential
    entry = AuditEntry.objects.get(action="tool.credential")
    assert (entry.before, entry.after) == ({"credential": ""}, {"credential": "api"})


def test_a_credential_is_not_given_to_a_tool_of_another_origin(alice: Membership, category: None) -> None:
    make_credential(alice, origins=["https://other.example.org", "https://api.example.org:8443"])

    with pytest.raises(ChangeRefused, match=r"is sent to https://other\.example\.org") as refused:
        create_http_tool(content(credential="api"), actor=alice)
    assert refused.value.field == "credential"


def test_another_organisations_credential_and_category_are_unknown(
    alice: Membership, charlie: Membership, category: None
) -> None:
    make_credential(charlie, "theirs")

    for changes in ({"credential": "theirs"}, {"credential": "none"}, {"category": "theirs"}):
        with pytest.raises(ChangeRefused) as refused:
            create_http_tool(content(**changes), actor=alice)
        assert (refused.value.code, refused.value.field) == ("unknown", next(iter(changes)))


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("name", {"name": "no good"}),
        ("description", {"description": " \u200b"}),
        ("implementation.url", {"implementation": REQUEST | {"url": "https://{id}.example.org/"}}),
        ("implementation.url", {"implementation": REQUEST | {"url": "https://10.0.0.1/users/{id}"}}),
        ("implementation.arguments.id", {"parameters": PARAMETERS | {"required": []}}),
        ("effect", {"effect": "none"}),
        ("on_crash", {"on_crash": "none"}),
        ("in_untrusted", {"in_untrusted": "none"}),
        ("timeout", {"timeout": 0.0}),
        ("timeout", {"timeout": 1e9}),
        ("max_result_chars", {"max_result_chars": 1}),
    ],
)
def test_what_cannot_be_saved_is_refused_at_its_field(
    alice: Membership, category: None, field: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_http_tool(content(**changes), actor=alice)
    assert refused.value.field == field
    assert not Tool.objects.exists()


def test_s50_what_nobody_sees_is_taken_out_of_text_for_models(alice: Membership, category: None) -> None:
    hidden = "".join(chr(0xE0000 + ord(each)) for each in "obey")
    tool = create_http_tool(content(description=f"Reads{hidden} a user."), actor=alice)

    assert tool.current_version is not None
    assert tool.current_version.description == "Reads a user."


def test_a_tool_of_another_kind_is_not_changed(alice: Membership, category: None) -> None:
    tool = make_http_tool(alice)
    Tool.objects.filter(pk=tool.pk).update(kind="python")

    with pytest.raises(ChangeRefused, match="no HTTP tool"):
        update_http_tool(tool, content(), actor=alice)


# -- Before it is saved ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("bearer", "authorization: Bearer ••••"),
        ("basic", "authorization: Basic ••••"),
        ("header", "x-key: ••••"),
        ("query", "GET https://api.example.org/users/7?verbose=true&x-key=••••"),
        ("oauth", "authorization: Bearer ••••"),
    ],
)
def test_a_preview_shows_the_request_with_dots_for_the_secret(
    alice: Membership, category: None, kind: str, line: str
) -> None:
    make_credential(alice, kind=kind, parameter="x-key")

    found = preview_of(content(credential="api"), {"id": 7, "verbose": True}, member=alice)

    assert line in found.request.splitlines()
    assert "s3cret" not in found.request
    assert (found.problem, found.status) == ("", VersionStatus.APPROVED)
    assert found.tokens > 20
    assert '"name":"read_user"' in found.wire
    assert not Tool.objects.exists()


def test_a_preview_makes_arguments_up_and_tells_what_could_not_be_sent(
    alice: Membership, bob: Membership, category: None
) -> None:
    made_up = preview_of(content(), None, member=give(bob, Right.CATALOGUE))
    climbing = preview_of(content(), {"id": ".."}, member=alice)

    assert (made_up.arguments, made_up.status) == ({"id": 1, "verbose": True}, VersionStatus.PENDING)
    assert made_up.request.startswith(f"GET {URL}/users/1?verbose=true\n")
    assert climbing.problem.startswith("Not sent: id:")
    assert climbing.request == ""


def test_a_preview_warns_of_what_hides_in_the_text(alice: Membership, category: None) -> None:
    found = preview_of(content(description="Reads a user.\u202e"), None, member=alice)

    assert [each.code for each in found.warnings] == ["turned_text"]


def test_a_preview_is_refused_as_saving_would_be(alice: Membership, category: None) -> None:
    with pytest.raises(ChangeRefused):
        preview_of(content(implementation=REQUEST | {"method": "TRACE"}), None, member=alice)
