"""Dry runs of hooks against stored turns: what they say, that they change nothing, and who may see which turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.assistant.models import Task
from capabilities.models import Hook, LanguageModel
from sessions.insight.hook_trials.queries import dry_run
from sessions.models import ChatSession, Step, Turn, TurnEvent
from tests.capabilities.test_pages import text_of
from tests.cast import make_member
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.installed import install
from tests.sessions.run_turns import run
from toolhub.tenants.models import Access, AdminRight, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def turn(session: ChatSession, provider: ScriptedOpenAI) -> Turn:
    """Bob's: it made a task and calculated a sum."""
    calls = [call("task_create", {"title": "milk"}), call("calculator", {"expression": "1+1"})]
    provider.enqueue(Say(calls=calls), Say("Done."))
    return run(session, "Buy milk")


def hook(admin: Membership, action: str, name: str = "h", when: Any = None, **settings: Any) -> Hook:
    entry: dict[str, Any] = {"name": name, "action": action, "settings": settings, "when": when or {}}
    if action == "python":
        entry |= {"phase": "before_tool_call"}
    with organisation_scope(admin.organisation_id):
        return create_hook(HookContent(entry), actor=admin)


def login(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def test_it_says_what_each_hook_would_have_done_and_changes_nothing(turn: Turn, alice: Membership) -> None:
    with organisation_scope(turn.organisation_id):
        model = turn.agent.model
        LanguageModel.objects.create(organisation=turn.organisation, provider=model.provider, name="large")
    hook(alice, "set_model", "a", model="large")
    hook(alice, "append_prompt", "b", text="In French.")
    hook(alice, "block_tool", "c", when={"tools": ["task_*"]}, message="Frozen.")
    hook(alice, "merge_input", "d", when={"tools": ["calculator"]}, values={"expression": "2+2"})
    hook(alice, "set_field", "e", when={"tools": ["calculator"]}, field="result", value="hidden")
    with organisation_scope(turn.organisation_id):
        before = (Task.objects.count(), TurnEvent.objects.count(), list(Step.objects.values("pk", "result", "hooks")))

        trial = dry_run(turn)

        told = [(each.title, [trace.did for trace in each.traces], each.verdict) for each in trial.moments]
        assert told == [
            ("The model", ["set the model large of Scripted"], ""),
            ("The system prompt", ["put 10 characters behind the prompt"], ""),
            ("Step 2: task_create", ["blocked the call"], "The call would not have run."),
            ("Step 3: calculator", ["changed expression"], ""),
            ("Step 3: calculator", ["set result of the result"], ""),
        ]
        changed = trial.moments[3].change
        assert changed is not None
        assert "1+1" in changed.before
        assert "2+2" in changed.after
        after = (Task.objects.count(), TurnEvent.objects.count(), list(Step.objects.values("pk", "result", "hooks")))
        assert after == before
        assert list(Hook.objects.values_list("fired", "failed").distinct()) == [(0, 0)]


def test_one_hook_alone_is_tried_though_it_is_off(turn: Turn, alice: Membership) -> None:
    hook(alice, "append_prompt", "on", text="x")
    off = hook(alice, "append_prompt", "off", text="y")
    with organisation_scope(turn.organisation_id):
        Hook.objects.filter(pk=off.pk).update(is_enabled=False)
        off.refresh_from_db()

        trial = dry_run(turn, hook=off)

        assert [trace.hook.name for each in trial.moments for trace in each.traces] == ["off"]


def test_python_hooks_run_only_after_a_click(
    turn: Turn, alice: Membership, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "called"
    source = (
        "from pathlib import Path\n"
        f"def touch(given):\n    Path({str(mark)!r}).write_text('x')\n    return {{'decision': 'deny'}}\n"
    )
    install(tmp_path / "site", monkeypatch, "touching", source, touch="touch")
    hook(alice, "python", when={"tools": ["calculator"]}, entry_point="touch")
    address = f"/o/acme/hooks/trial/{turn.pk}/"
    client = login(alice)

    shown = text_of(client.get(address).content)
    assert "Python hooks were not called" in shown
    assert "would be called" in shown
    assert not mark.exists()

    clicked = text_of(client.post(address).content)
    assert "The call would not have run." in clicked
    assert mark.read_text() == "x"
    with organisation_scope(turn.organisation_id):
        assert Hook.objects.get().fired == 0


def test_a_failing_hook_is_shown_with_its_error_and_not_counted(turn: Turn, alice: Membership) -> None:
    failing = hook(alice, "set_field", when={"tools": ["calculator"]}, field="result.inside", value=1)

    page = text_of(login(alice).get(f"/o/acme/hooks/trial/{turn.pk}/?hook={failing.public_id}").content)

    assert "failed (malformed): " in page
    with organisation_scope(turn.organisation_id):
        assert Hook.objects.get().failed == 0


def test_hook_trials_offer_only_turns_that_the_member_may_see(
    turn: Turn, session: ChatSession, alice: Membership, charlie: Membership
) -> None:
    """Who holds `hooks` and not `sessions` sees own turns only; another organisation's are not there."""
    with organisation_scope(turn.organisation_id):
        helper = make_member(session.organisation, "helper", Access.MEMBER)
        AdminRight.objects.create(organisation=session.organisation, membership=helper, right=Right.HOOKS)
    address = f"/o/acme/hooks/trial/{turn.pk}/"

    assert "Buy milk" in text_of(login(alice).get("/o/acme/hooks/trial/").content)
    assert "Buy milk" not in text_of(login(helper).get("/o/acme/hooks/trial/").content)
    assert login(helper).get(address).status_code == 404
    assert login(helper).post(address).status_code == 404
    assert login(session.membership).get(address).status_code == 403
    assert login(charlie).get(address).status_code == 404
    assert login(charlie).get(f"/o/globex/hooks/trial/{turn.pk}/").status_code == 404
