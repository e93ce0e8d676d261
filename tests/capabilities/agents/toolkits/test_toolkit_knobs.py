"""Further knobs of a toolkit's line: over pages and REST, and who may set those that decide what a call may do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from capabilities.agents.toolkits.writes import (
    ToolkitContent,
    ToolkitLine,
    content_of,
    create_toolkit,
    overrides_in_words,
    update_toolkit,
)
from capabilities.choosing.pipeline.bringing import overrides_in
from capabilities.common.refused import ChangeRefused
from capabilities.contract.envelope import Overrides
from capabilities.models import Toolkit, ToolkitTool
from tests.cast import make_tool
from tests.rest import Rest
from toolhub.tenants.models import Membership, Right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_acme")]


@pytest.fixture
def builder(bob: Membership) -> Membership:
    """Bob with the right to toolkits, and to nothing else."""
    make_tool(bob.organisation, "web_read")
    bob.admin_rights.create(organisation=bob.organisation, right=Right.TOOLKITS)
    return bob


def content(**knobs: Any) -> ToolkitContent:
    return ToolkitContent("kit", tools=(ToolkitLine("web_read", knobs=knobs),))


def test_they_are_stored_on_record_and_in_force(builder: Membership) -> None:
    kit = create_toolkit(content(yield_ms=2_000, max_redirects=1), actor=builder)

    assert content_of(kit) == content(yield_ms=2_000, max_redirects=1)
    (said,) = overrides_in([kit.pk])[kit.pk].values()
    assert said == Overrides(more=(("max_redirects", 1), ("yield_ms", 2_000)))
    assert overrides_in_words(said) == "redirects 1, progress after 2,000"


@pytest.mark.parametrize("knobs", [{"ask": "off"}, {"in_untrusted": "allow"}, {"untrusted_output": False}])
def test_knobs_that_decide_what_a_call_may_do_need_the_right_policies(
    builder: Membership, knobs: dict[str, Any]
) -> None:
    with pytest.raises(ChangeRefused, match="needs the admin right policies too") as refused:
        create_toolkit(content(**knobs), actor=builder)

    assert (refused.value.code, Toolkit.objects.count()) == ("forbidden", 0)
    builder.admin_rights.create(organisation=builder.organisation, right=Right.POLICIES)
    create_toolkit(content(**knobs), actor=Membership.objects.get(pk=builder.pk))


@pytest.mark.parametrize("wanted", [content(), content(ask="off"), ToolkitContent("kit")])
def test_bob_can_neither_loosen_nor_drop_knobs_that_alice_set(
    builder: Membership, alice: Membership, wanted: ToolkitContent
) -> None:
    kit = create_toolkit(content(ask="always"), actor=alice)

    with pytest.raises(ChangeRefused, match="needs the admin right policies too"):
        update_toolkit(kit, wanted, actor=builder)
    update_toolkit(kit, content(ask="always", yield_ms=3_000), actor=builder)

    assert ToolkitTool.objects.get().knobs == {"ask": "always", "yield_ms": 3_000}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"colour": 1}, "web_read: there is no further knob colour."),
        ({"timeout_sec": 5}, "web_read: there is no further knob timeout_sec."),
        ({"security": "full"}, "web_read has no security."),
        ({"yield_ms": "soon"}, "web_read, yield_ms: 'soon' is not a whole number."),
        ({"yield_ms": 5}, "web_read, yield_ms: 5 is below the minimum of 1,000."),
    ],
)
def test_what_cannot_be_is_refused(alice: Membership, knobs: dict[str, Any], message: str) -> None:
    make_tool(alice.organisation, "web_read")

    with pytest.raises(ChangeRefused) as refused:
        create_toolkit(content(**knobs), actor=alice)

    assert str(refused.value) == message


def test_the_form_takes_them_as_lines_and_shows_them_again(client: Client, alice: Membership) -> None:
    make_tool(alice.organisation, "web_read")
    client.force_login(alice.user)
    typed = {"name": "kit", "tools": "web_read", "knobs-web_read": "ask: always\ncache_ttl_sec: 5\nreadability: no"}

    answer = client.post("/o/acme/toolkits/new/", typed)
    assert answer.status_code == 302
    assert ToolkitTool.objects.get().knobs == {"ask": "always", "cache_ttl_sec": 5, "readability": False}
    assert (
        "ask: always\ncache_ttl_sec: 5\nreadability: no</textarea>"
        in client.get("/o/acme/toolkits/kit/edit/").content.decode()
    )

    wrong = client.post("/o/acme/toolkits/new/", {**typed, "name": "other", "knobs-web_read": "always"})
    assert wrong.status_code == 422
    assert "“always” is no knob and value" in wrong.content.decode()


def test_rest_takes_and_gives_them(alice: Membership, builder: Membership) -> None:
    line = {"tool": "web_read", "knobs": {"ask": "always"}}

    assert Rest(builder).post("toolkits", {"name": "kit", "tools": [line]}).status == 403
    assert Rest(alice).post("toolkits", {"name": "kit", "tools": [line]}).json["tools"][0]["knobs"] == {"ask": "always"}
    assert json.loads(Rest(builder).get("toolkits/kit").text)["tools"][0]["knobs"] == {"ask": "always"}
