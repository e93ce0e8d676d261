"""The pages of hooks: the list, the choice of an action, the form, and the warning on Home."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from capabilities.agents.hooks.writes import HookContent, count_failure, create_hook
from capabilities.contract.hooks import ACTIONS
from capabilities.models import Hook
from tests.capabilities.test_pages import text_of
from tests.cast import make_agent, make_member
from toolhub.tenants.models import Access, Membership, Organisation

pytestmark = pytest.mark.django_db

ACME = "/o/acme/"
FREEZE: dict[str, Any] = {"name": "freeze", "action": "block_tool", "settings": {"message": "Frozen."}}
FORM = {
    "name": "freeze",
    "settings.message": "Frozen until Monday.",
    "tools": "web_*\r\ngroup:file",
    "arguments": "command = *rm -rf*",
    "members": "bob@example.com",
    "share": "50",
    "priority": "10",
    "on_error": "deny",
    "disable_after": "5",
    "is_enabled": "on",
}


@pytest.fixture
def as_alice(alice: Membership, in_acme: Organisation) -> Client:
    client = Client()
    client.force_login(alice.user)
    return client


def test_a_hook_is_made_with_the_form_and_changed(as_alice: Client, bob: Membership) -> None:
    made = as_alice.post(f"{ACME}hooks/new/?action=block_tool", FORM, follow=True)

    hook = Hook.objects.get()
    assert "freeze is saved" in text_of(made.content)
    assert hook.settings == {"message": "Frozen until Monday."}
    assert hook.when == {
        "tools": ["web_*", "group:file"],
        "arguments": [{"name": "command", "pattern": "*rm -rf*"}],
        "members": [str(bob.public_id)],
        "share": 50,
    }
    page = as_alice.get(f"{ACME}hooks/{hook.public_id}/").content.decode()
    assert "command = *rm -rf*" in page
    assert "bob@example.com" in page
    as_alice.post(f"{ACME}hooks/{hook.public_id}/", FORM | {"members": "", "share": "100", "arguments": ""})
    hook.refresh_from_db()
    assert hook.when == {"tools": ["web_*", "group:file"]}


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("settings.message", "", "This field is required"),
        ("members", "nobody@example.com", "There is no member nobody@example.com"),
        ("arguments", "command", "Give a line of at most 100 characters"),
        ("tools", "x" * 101, "Give a line of at most 100 characters"),
        ("share", "0", "greater than or equal to 1"),
        ("name", "taken", "There is a hook taken already"),
    ],
)
def test_a_wrong_value_is_said_beside_its_field_and_nothing_is_lost(
    as_alice: Client, alice: Membership, field: str, value: str, sentence: str
) -> None:
    make_member(alice.organisation, "bob")
    create_hook(HookContent(FREEZE | {"name": "taken"}), actor=alice)

    answer = as_alice.post(f"{ACME}hooks/new/?action=block_tool", FORM | {field: value})

    assert answer.status_code == 422
    assert sentence in text_of(answer.content)
    assert "group:file" in answer.content.decode() or field == "tools"
    assert Hook.objects.count() == 1


@pytest.mark.parametrize("action", list(ACTIONS))
def test_the_form_of_each_action_shows_its_settings_and_no_others(as_alice: Client, action: str) -> None:
    phase = ACTIONS[action].phases[0]
    page = as_alice.get(f"{ACME}hooks/new/?phase={phase}&action={action}").content.decode()

    names = {f"settings.{each.name}" for each in ACTIONS[action].settings}
    every = {f"settings.{each.name}" for known in ACTIONS.values() for each in known.settings}
    assert {name for name in every if f'name="{name}"' in page} == names
    assert ('name="tools"' in page) is phase.endswith("tool_call")
    assert ('name="timeout"' in page) is (action == "python")


@pytest.mark.parametrize("query", ["", "?action=nothing", "?phase=after_tool_call&action=ask", "?action=python"])
def test_without_an_action_there_is_the_choice_of_one(as_alice: Client, query: str) -> None:
    page = text_of(as_alice.get(f"{ACME}hooks/new/{query}").content)

    assert "what should it do?" in page


@pytest.mark.parametrize(
    ("action", "fields", "settings"),
    [
        ("merge_input", {"mode": "set", "values": '{"timeout": 5}'}, {"mode": "set", "values": {"timeout": 5}}),
        ("set_field", {"field": "a.b", "value": "null"}, {"field": "a.b", "value": None}),
        ("truncate", {"chars": "500"}, {"chars": 500}),
        ("append_prompt", {"text": " Be brief. "}, {"text": " Be brief. "}),
    ],
)
def test_settings_are_stored_as_their_action_wants_them(
    as_alice: Client, action: str, fields: dict[str, str], settings: Any
) -> None:
    shared = {name: FORM[name] for name in ("name", "share", "priority", "disable_after")} | {"on_error": "continue"}
    form = shared | {f"settings.{name}": value for name, value in fields.items()}

    assert as_alice.post(f"{ACME}hooks/new/?action={action}", form).status_code == 302
    hook = Hook.objects.get()
    assert hook.settings == settings
    page = as_alice.get(f"{ACME}hooks/{hook.public_id}/")
    assert page.status_code == 200


def test_malformed_json_in_a_hook_is_refused(as_alice: Client) -> None:
    form = FORM | {"settings.mode": "deep", "settings.values": "{timeout: 5"}

    assert "not valid JSON" in text_of(as_alice.post(f"{ACME}hooks/new/?action=merge_input", form).content)


def test_the_list_says_what_each_does_when_and_how_it_went(
    as_alice: Client, alice: Membership, bob: Membership
) -> None:
    make_agent(alice.organisation, slug="helper")
    when = {"agents": ["helper"], "tools": ["shell_*"], "members": [str(bob.public_id)], "share": 20}
    create_hook(HookContent(FREEZE | {"when": when}), actor=alice)
    failing = create_hook(HookContent(FREEZE | {"name": "failing"}), actor=alice)
    count_failure(str(failing.public_id), "boom")
    off = create_hook(HookContent(FREEZE | {"name": "gone"}), actor=alice)
    Hook.objects.filter(pk=off.pk).update(is_enabled=False, switched_off_at=timezone.now())

    page = text_of(as_alice.get(f"{ACME}hooks/").content)

    for condition in ("the agent is Helper", "the member is Bob", "the tool is shell_*", "in 20 of 100 turns"):
        assert condition in page
    assert "Block the call: Frozen." in page
    assert "1 hook failed when it last ran." in page
    assert "Switched off by failures" in page


def test_home_warns_those_who_hold_the_right(as_alice: Client, alice: Membership, bob: Membership) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)
    before = text_of(as_alice.get(ACME).content)
    count_failure(str(hook.public_id), "boom")
    as_bob = Client()
    as_bob.force_login(bob.user)

    warning = "1 hook failed at the last run"
    assert warning not in before
    assert warning in text_of(as_alice.get(ACME).content)
    assert warning not in text_of(as_bob.get(ACME).content)


def test_a_hook_that_cannot_be_read_is_shown_and_can_be_removed(as_alice: Client, alice: Membership) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)
    Hook.objects.filter(pk=hook.pk).update(action="of_a_later_release", when=[1], settings=[2])

    assert "Cannot be read" in text_of(as_alice.get(f"{ACME}hooks/").content)
    assert "cannot be read" in text_of(as_alice.get(f"{ACME}hooks/{hook.public_id}/").content)
    assert "is removed" in text_of(as_alice.post(f"{ACME}hooks/{hook.public_id}/delete/", follow=True).content)


@pytest.mark.parametrize("count", [1, 3])
def test_the_list_takes_as_many_queries_for_one_hook_as_for_three(
    as_alice: Client, alice: Membership, bob: Membership, count: int, django_assert_max_num_queries: Any
) -> None:
    for number in range(count):
        make_agent(alice.organisation, slug=f"a{number}")
        when = {"agents": [f"a{number}"], "providers": ["scripted"], "members": [str(bob.public_id)]}
        create_hook(HookContent(FREEZE | {"name": f"h{number}", "when": when}), actor=alice)

    with django_assert_max_num_queries(14) as asked:  # one of them for the member's saved filters
        as_alice.get(f"{ACME}hooks/")

    own = [f'FROM "capabilities_{each}"' for each in ("hook", "agent", "provider")]
    assert sum(any(table in each["sql"] for table in own) for each in asked.captured_queries) == 4


def test_pages_are_for_who_holds_the_right(
    bob: Membership, charlie: Membership, alice: Membership, in_acme: Any
) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)
    addresses = ["hooks/", "hooks/new/", f"hooks/{hook.public_id}/", "hooks/trial/"]
    for member, status in ((bob, 403), (charlie, 404)):
        client = Client()
        client.force_login(member.user)
        assert {client.get(f"{ACME}{address}").status_code for address in addresses} == {status}
    operator = make_member(alice.organisation, "oscar", Access.OPERATOR)
    client = Client()
    client.force_login(operator.user)
    assert client.get(f"{ACME}hooks/").status_code == 200
