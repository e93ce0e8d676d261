from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.common import confined
from capabilities.contract.context import Credential, ToolContext, ToolError
from capabilities.contract.spec import ToolSpec
from capabilities.models import Effect, Grant, RoleMembership, Tool
from capabilities.running.registry import registry
from capabilities.running.registry import tool as register
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.tools import execution
from sessions.loop.tools.left_behind import left_behind
from sessions.models import ChatSession, StepStatus, Turn, TurnStatus
from tests.cast import make_category, make_tool
from tests.scripted_openai import Reply, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import check_text, run, tool_steps_of
from toolhub.tenants.models import Membership, Organisation, User
from toolhub.tenants.rows.scope import organisation_scope

#: The text of ZK-29.
UNKNOWN = "Unknown or inactive tool: "
CONTEXT = ToolContext(
    organisation_id=1, membership_id=1, agent="starter", workspace=Path("workspace"), now=timezone.now, timeout=5.0
)


@pytest.fixture
def probe(acme: Organisation) -> Iterator[Callable[..., ToolSpec]]:
    """Makes a tool named `probe` of a function, in the code and in Acme's catalogue."""

    def make(work: Callable[[], Any], effect: Any = "read", **fields: Any) -> ToolSpec:
        def probe(context: ToolContext) -> Any:
            """Does what the test wants."""
            return work()

        register(category="utility", effect=effect, human_format="Probing")(probe)
        tool = make_tool(acme, "probe", **fields)
        with organisation_scope(acme):
            (spec,) = current_specs([tool.current_version_id or 0])
        return spec

    yield make
    registry.tools.pop("probe", None)


def outcome_of(spec: ToolSpec, context: ToolContext = CONTEXT) -> tuple[StepStatus, str]:
    outcome = execution.run_tool(spec, Credential(), context, {}, threading.Event())
    assert outcome.result == outcome.result_sent
    check_text(outcome.result)
    return outcome.status, outcome.result


def error(message: str, **more: Any) -> str:
    return json.dumps({"success": False, "error": message, **more}, ensure_ascii=False)


def raise_it(error: BaseException) -> Any:
    raise error


class Spiteful:
    def __str__(self) -> str:
        raise SystemExit


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "raised", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError(), BaseException("x")]
)
def test_whatever_a_tool_raises_is_a_result(
    probe: Callable[..., ToolSpec], raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    spec = probe(lambda: raise_it(raised))

    assert outcome_of(spec) == (StepStatus.FAILED, error(f"The tool failed ({type(raised).__name__})."))
    assert [record.getMessage() for record in caplog.records] == ["The tool probe failed"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("returned", "status", "text"),
    [
        ("plain", StepStatus.DONE, "plain"),
        ("", StepStatus.DONE, ""),
        (None, StepStatus.DONE, "null"),
        ({"a": 1, "ü": [True]}, StepStatus.DONE, '{"a": 1, "ü": [true]}'),
        (b"a\xff", StepStatus.DONE, json.dumps(str(b"a\xff"))),
        ("a\x00\ud800", StepStatus.DONE, "a\ufffd\ufffd"),
        (Path("a"), StepStatus.DONE, '"a"'),
        (CYCLE, StepStatus.DONE, json.dumps(str(list)).strip('"')),
        ({(1, 2): 3}, StepStatus.DONE, str(dict)),
        (Spiteful(), StepStatus.FAILED, error("The tool failed (SystemExit).")),
    ],
)
def test_whatever_a_tool_returns_is_text(
    probe: Callable[..., ToolSpec], returned: Any, status: StepStatus, text: str
) -> None:
    assert outcome_of(probe(lambda: returned)) == (status, text)


@pytest.mark.django_db
def test_a_generator_is_not_run(probe: Callable[..., ToolSpec]) -> None:
    status, text = outcome_of(probe(lambda: (1 / 0 for _ in range(1))))

    assert (status, text[:18]) == (StepStatus.DONE, '"<generator object')


@pytest.mark.django_db
def test_a_result_is_bounded(probe: Callable[..., ToolSpec]) -> None:
    assert len(outcome_of(probe(lambda: "x" * 2_000_000))[1]) == execution.MAX_RESULT


@pytest.mark.django_db
def test_a_tools_refusal_is_told_in_its_words(probe: Callable[..., ToolSpec]) -> None:
    spec = probe(lambda: raise_it(ToolError("There is no task 7. \ud800")))

    assert outcome_of(spec) == (StepStatus.FAILED, error("There is no task 7. \ufffd"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("effect", "outcome"),
    [
        ("read", (StepStatus.FAILED, error("The tool did not answer within 0.2 s."))),
        ("write", (StepStatus.UNKNOWN, OUTCOME_UNKNOWN)),
        ("external", (StepStatus.UNKNOWN, OUTCOME_UNKNOWN)),
    ],
)
def test_a_tool_that_does_not_come_back_is_left_behind(
    probe: Callable[..., ToolSpec], effect: str, outcome: tuple[StepStatus, str]
) -> None:
    released = threading.Event()
    context = ToolContext(1, 1, "starter", Path("workspace"), timezone.now, timeout=0.2)
    begun = time.monotonic()

    assert outcome_of(probe(lambda: released.wait(5), effect=effect), context) == outcome

    released.set()
    assert time.monotonic() - begun < 1
    assert context.stopped.is_set()


@pytest.mark.django_db
def test_a_stopped_turn_waits_a_second_for_its_tool_and_starts_no_other(probe: Callable[..., ToolSpec]) -> None:
    stopped, begun = threading.Event(), time.monotonic()
    spec = probe(lambda: time.sleep(3), effect="write")
    threading.Timer(0.1, stopped.set).start()

    outcome = execution.run_tool(spec, Credential(), CONTEXT, {}, stopped)

    assert (outcome.status, time.monotonic() - begun < 2) == (StepStatus.UNKNOWN, True)
    assert execution.run_tool(spec, Credential(), CONTEXT, {}, stopped).status == StepStatus.REFUSED


@pytest.mark.parametrize(
    ("name", "arguments", "stored"),
    [
        ("add", '{"x": 1}', {"id": "i", "name": "add", "arguments": '{"x": 1}'}),
        ("add", "", {"id": "i", "name": "add", "arguments": "{}", "raw_arguments": ""}),
        ("add", "[1]", {"id": "i", "name": "add", "arguments": "{}", "raw_arguments": "[1]"}),
        ("add", '{"x"', {"id": "i", "name": "add", "arguments": "{}", "raw_arguments": '{"x"'}),
        ("a b", "{}", {"id": "i", "name": "a_b", "arguments": "{}", "raw_name": "a b"}),
        ("", "{}", {"id": "i", "name": "unknown", "arguments": "{}", "raw_name": ""}),
        (
            "add",
            '{"x": "\\ud800"}',
            {"id": "i", "name": "add", "arguments": '{"x": "\ufffd"}', "raw_arguments": '{"x": "\\ud800"}'},
        ),
    ],
)
def test_a_call_is_kept_in_a_form_that_can_be_sent_again(name: str, arguments: str, stored: dict[str, str]) -> None:
    assert execution.stored_call("i", Call("x", name, arguments)) == stored


@pytest.mark.django_db
def test_calls_left_behind_count_against_their_organisation_until_they_end(
    probe: Callable[..., ToolSpec], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TOOLHUB_LEFT_BEHIND_CALLS = 2
    comes_back = threading.Event()
    spec = probe(lambda: comes_back.wait(30) and "back")
    own, other = replace(CONTEXT, organisation_id=71, timeout=0.1), replace(CONTEXT, organisation_id=72, timeout=0.1)

    late = [outcome_of(spec, own)[0] for _ in range(2)]
    refused = outcome_of(spec, own)
    others = outcome_of(spec, other)
    comes_back.set()
    wait_until(lambda: left_behind.count(71) == 0)
    again = outcome_of(spec, replace(own, timeout=5))

    assert late == [StepStatus.FAILED] * 2
    assert refused[0] == StepStatus.REFUSED
    assert json.loads(refused[1])["error"] == execution.STILL_RUNNING
    assert "did not answer within" in others[1]
    assert again == (StepStatus.DONE, "back")
    assert "left behind: 2 of organisation 71" in caplog.text
    assert "organisation 71 is refused: 2 calls" in caplog.text


def wait_until(is_true: Callable[[], bool], seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.django_db
def test_a_schema_from_outside_that_never_ends_holds_one_child_and_not_the_worker(
    acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    parameters = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a0"}},
        "$defs": branches | {"a60": {"type": "integer"}},
    }
    tool = make_tool(acme, "from_outside", parameters=parameters)
    with organisation_scope(acme):
        (spec,) = current_specs([tool.current_version_id or 0])
    monkeypatch.setattr(confined, "SECONDS", 1.0)
    begun = time.monotonic()

    refused = execution.read_arguments(spec, Call("i", "from_outside", '{"x": 1}'), acme.pk)
    fits = execution.read_arguments(spec, Call("i", "from_outside", "{}"), acme.pk)

    assert isinstance(refused, execution.Outcome)
    assert "This is too complex" in json.loads(refused.result)["error"]
    assert fits == {}
    assert time.monotonic() - begun < 20


@pytest.mark.django_db
def test_the_schema_of_a_built_in_tool_costs_no_child_and_a_changed_one_does(
    acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[str] = []

    def run_nothing(job: str, *_: Any, **__: Any) -> list[str]:
        children.append(job)
        return []

    monkeypatch.setattr(confined, "run", run_nothing)
    own = make_tool(acme, "uuid")
    dear = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(?=a)a"}}}
    changed = make_tool(acme, "calculator", parameters=dear, category=own.category)
    versions = [each.current_version_id or 0 for each in (own, changed)]
    with organisation_scope(acme):
        specs = {spec.name: spec for spec in current_specs(versions)}

    execution.read_arguments(specs["uuid"], Call("i", "uuid", '{"count": 1}'), acme.pk)
    assert children == []
    execution.read_arguments(specs["calculator"], Call("i", "calculator", '{"x": "a"}'), acme.pk)
    assert children == ["schema"]


@pytest.mark.django_db
def test_malformed_arguments_are_told_back_with_the_place_and_at_most_800_characters(acme: Organisation) -> None:
    tool = make_tool(acme, "uuid")
    with organisation_scope(acme):
        (spec,) = current_specs([tool.current_version_id or 0])

    wrong = execution.read_arguments(spec, Call("i", "uuid", '{"count": "x"}'), acme.pk)
    long = execution.read_arguments(spec, Call("i", "uuid", "x" * 5_000), acme.pk)

    assert isinstance(wrong, execution.Outcome)
    assert json.loads(wrong.result) == {
        "success": False,
        "error": 'count: "x" is not of type "integer"',
        "received": '{"count": "x"}',
    }
    assert isinstance(long, execution.Outcome)
    assert json.loads(long.result)["received"] == "x" * 800
    assert (wrong.malformed, long.malformed) == (True, True)


# -- Permission, asked again at every call ----------------------------------------------------------------------------

turns = pytest.mark.django_db(transaction=True)


def meanwhile(session: ChatSession, change: Callable[[], Any]) -> Callable[[Any], Reply]:
    """A reply with a call, and a change that somebody makes while the model thinks."""

    def script(request: Any) -> Reply:
        try:
            with organisation_scope(session.organisation_id):
                change()
        finally:
            connection.close()
        return Say(calls=[call("calculator", {"expression": "1+1"})])

    return script


def result_after(session: ChatSession, provider: ScriptedOpenAI, change: Callable[[], Any]) -> tuple[str, Any]:
    provider.enqueue(meanwhile(session, change), Say("Well."))
    (step,) = tool_steps_of(run(session))
    return step.status, json.loads(step.result_sent)


def access_denied(reason: str) -> tuple[str, Any]:
    shape = {"success": False, "error": f"Access denied: {reason}.", "denied_tool": "calculator"}
    return StepStatus.REFUSED, shape


@turns
def test_zk28_a_role_that_was_taken_away_meanwhile_no_longer_counts(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def take_role() -> None:
        RoleMembership.objects.filter(membership=session.membership).delete()

    assert result_after(session, provider, take_role) == access_denied("this member has no role")


@turns
def test_zk30_a_grant_that_denies_meanwhile_refuses_the_call(session: ChatSession, provider: ScriptedOpenAI) -> None:
    def deny() -> None:
        Grant.objects.create(
            organisation_id=session.organisation_id,
            membership=session.membership,
            tool=Tool.objects.get(name="calculator"),
            effect=Effect.DENY,
        )

    assert result_after(session, provider, deny) == access_denied("denied by a grant of this member")


@turns
def test_a_tool_that_was_switched_off_meanwhile_is_refused(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    def switch_off() -> None:
        set_tool_enabled(Tool.objects.get(name="calculator"), False, actor=alice)

    assert result_after(session, provider, switch_off) == access_denied("the tool was switched off")


@turns
def test_zk31_a_member_whose_account_was_closed_meanwhile_has_no_rights(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    def close_account() -> None:
        User.objects.filter(pk=session.membership.user_id).update(is_active=False)

    provider.enqueue(meanwhile(session, close_account), Say("Well."))

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.CANCELLED, "member_inactive")
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED]
    assert len(provider.requests) == 1


@turns
def test_zk29_a_tool_outside_the_selection_is_unknown(session: ChatSession, provider: ScriptedOpenAI) -> None:
    aside = make_category(session.organisation, "aside", is_core=False)
    make_tool(session.organisation, "date_arithmetic", category=aside)
    provider.enqueue(Say(calls=[call("date_arithmetic")]), Say("Well."))

    (step,) = tool_steps_of(run(session))

    assert "date_arithmetic" not in [tool["function"]["name"] for tool in provider.requests[0]["tools"]]
    told = json.loads(step.result_sent)
    assert told.pop("error") == f"{UNKNOWN}date_arithmetic"
    assert (step.status, told) == (StepStatus.REFUSED, {"success": False, "next_step": NO_AGENT})


@turns
def test_a_tool_of_another_organisation_is_unknown(
    session: ChatSession, provider: ScriptedOpenAI, globex: Organisation
) -> None:
    make_tool(globex, "calculator_of_globex")
    provider.enqueue(Say(calls=[call("calculator_of_globex")]), Say("Well."))

    turn: Turn = run(session)

    assert [json.loads(step.result)["error"] for step in tool_steps_of(turn)] == [f"{UNKNOWN}calculator_of_globex"]
