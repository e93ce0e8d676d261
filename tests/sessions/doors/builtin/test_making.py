"""Tools that agents make: checked at once, approved by somebody else, then called, changed and rolled back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.catalogue.python_tools.writes import MAX_WAITING_OF_AGENT, let_agents_make_tools
from capabilities.catalogue.versions.writes import decide_version, retire, roll_back
from capabilities.common.rights import ChangeForbidden
from capabilities.contract.loading import CREATE_TOOL
from capabilities.models import Agent, LoadingMode, Tool, ToolVersion
from sessions.doors.builtin import _making as making
from sessions.doors.builtin import dynamic
from sessions.models import ChatSession, StepStatus
from tests.cast import make_agent, make_category, make_member, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

CALCULATOR: dict[str, Any] = {
    "name": "calculator",
    "description": "Calculates with two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {
            "operation": {"type": "string", "enum": ["add", "subtract", "multiply", "divide"]},
            "a": {"type": "number"},
            "b": {"type": "number"},
        },
        "required": ["operation", "a", "b"],
    },
    "implementation": """
def run(operation, a, b):
    if operation == "add":
        result = a + b
    elif operation == "subtract":
        result = a - b
    elif operation == "multiply":
        result = a * b
    else:
        if b == 0:
            raise ValueError("Division by zero")
        result = a / b
    return {"result": result, "message": f"{a} {operation} {b} = {result}"}
""",
    "human_readable_format": "Calculating: {a} {operation} {b}",
    "example": {"operation": "add", "a": 2, "b": 3},
}
TEXT: dict[str, Any] = {
    "name": "text_transformer",
    "description": "Writes a text in capitals.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "implementation": "def run(text):\n    return {'transformed': text.upper()}\n",
    "humanReadableFormat": "Processing: {text}",
}
NAME = "agent_starter__calculator"


@pytest.fixture
def organisation(acme: Organisation, alice: Membership) -> Organisation:
    """Acme lets its agents make tools, and the tool that makes some is at hand."""
    with organisation_scope(acme):
        make_tool(acme, CREATE_TOOL, category=make_category(acme, "dynamic"))
        let_agents_make_tools(True, actor=alice)
    acme.refresh_from_db()
    return acme


@pytest.fixture
def agent(organisation: Organisation, provider: ScriptedOpenAI) -> Agent:
    return make_agent(organisation, provider.url, starts_with_core=True, max_rounds=8)


@pytest.fixture
def bobs(organisation: Organisation, agent: Agent, bob: Membership) -> ChatSession:
    make_role(organisation, bob)
    return make_session(bob, agent)


def sent(provider: ScriptedOpenAI, number: int = -1) -> set[str]:
    return {each["function"]["name"] for each in provider.requests[number].get("tools", ())}


def ask(provider: ScriptedOpenAI, session: ChatSession, name: str, arguments: Any) -> dict[str, Any]:
    """What the model reads of one call, made in a turn."""
    provider.enqueue(Say(calls=[call(name, arguments)]), Say("Done."))
    (step,) = tool_steps_of(run(session))
    try:
        told: dict[str, Any] = json.loads(step.result_sent)
        return told | {"status_of_step": step.status, "display": step.display}
    except (ValueError, TypeError):
        return {"text": step.result_sent, "status_of_step": step.status, "display": step.display}


def decide(member: Membership, number: int = 1, name: str = NAME, *, approve: bool = True) -> None:
    with organisation_scope(member.organisation):
        version = ToolVersion.objects.get(tool__name=name, number=number)
        decide_version(version, approve=approve, reason="Read it.", actor=member)


def test_tx_05_tx_28_made_by_an_agent_approved_by_another_called_changed_and_rolled_back(
    provider: ScriptedOpenAI, bobs: ChatSession, alice: Membership
) -> None:
    made = ask(provider, bobs, CREATE_TOOL, CALCULATOR)
    assert (made["tool"], made["status"], made["version"]) == (NAME, "pending", 1)
    assert made["example_result"] == {"result": 5, "message": "2 add 3 = 5"}
    assert "somebody else than Bob approves it" in made["message"]
    assert made["display"] == "Making the tool calculator"
    assert NAME not in sent(provider)

    decide(alice)
    called = ask(provider, bobs, NAME, {"operation": "divide", "a": 9, "b": 3})
    assert NAME in sent(provider)
    assert (called["result"], called["message"]) == (3, "9 divide 3 = 3.0")
    assert called["display"] == "Calculating: 9 divide 3"
    failed = ask(provider, bobs, NAME, {"operation": "divide", "a": 9, "b": 0})
    assert "Division by zero" in failed["error"]
    assert failed["status_of_step"] == StepStatus.FAILED

    changed = CALCULATOR | {"implementation": CALCULATOR["implementation"].replace("Division", "A division")}
    again = ask(provider, bobs, CREATE_TOOL, changed)
    assert (again["version"], again["status"]) == (2, "pending")
    assert "Version 1 stays in force until then." in again["message"]
    assert "Division by zero" in ask(provider, bobs, NAME, {"operation": "divide", "a": 9, "b": 0})["error"]
    decide(alice, 2)
    assert "A division by zero" in ask(provider, bobs, NAME, {"operation": "divide", "a": 9, "b": 0})["error"]

    with organisation_scope(alice.organisation):
        tool = Tool.objects.get(name=NAME)
        roll_back(tool, 1, actor=alice)
    assert "Division by zero" in ask(provider, bobs, NAME, {"operation": "divide", "a": 9, "b": 0})["error"]
    with organisation_scope(alice.organisation):
        retire(tool, actor=alice)
    assert ask(provider, bobs, NAME, {"operation": "add", "a": 1, "b": 1})["status_of_step"] == StepStatus.REFUSED


def test_tx_06_tx_29_the_documents_own_names_of_the_arguments_are_taken(
    provider: ScriptedOpenAI, bobs: ChatSession, alice: Membership
) -> None:
    made = ask(provider, bobs, CREATE_TOOL, TEXT)
    assert (made["tool"], made["status"]) == ("agent_starter__text_transformer", "pending")

    decide(alice, name="agent_starter__text_transformer")
    called = ask(provider, bobs, "agent_starter__text_transformer", {"text": "hello"})

    assert called["transformed"] == "HELLO"
    assert called["display"] == "Processing: hello"


def test_tx_01_tx_16_approved_while_the_turn_runs_it_is_callable_in_its_next_round(
    provider: ScriptedOpenAI, bobs: ChatSession, agent: Agent, alice: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    with organisation_scope(alice.organisation):
        Agent.objects.filter(pk=agent.pk).update(loading_mode=LoadingMode.SAME_RUN)

    def make_and_approve(asked: Any, context: Any) -> Any:
        told = making.make_tool(asked, context)
        decide_version(ToolVersion.objects.get(tool__name=NAME), approve=True, actor=alice)
        return told

    monkeypatch.setattr(dynamic, "make_tool", make_and_approve)
    provider.enqueue(
        Say(calls=[call(CREATE_TOOL, CALCULATOR)]),
        Say(calls=[call(NAME, {"operation": "multiply", "a": 6, "b": 7})]),
        Say("Done."),
    )

    made, called = tool_steps_of(run(bobs))

    assert NAME not in sent(provider, 0)
    assert NAME in sent(provider, 1)
    assert json.loads(called.result_sent)["result"] == 42
    assert made.status == called.status == StepStatus.DONE


def test_tx_40_off_by_default_and_then_neither_sent_nor_run(
    provider: ScriptedOpenAI, acme: Organisation, bob: Membership
) -> None:
    make_role(acme, bob)
    make_tool(acme, CREATE_TOOL, category=make_category(acme, "dynamic"))
    session = make_session(bob, make_agent(acme, provider.url, starts_with_core=True))

    refused = ask(provider, session, CREATE_TOOL, CALCULATOR)

    assert CREATE_TOOL not in sent(provider)
    assert refused["status_of_step"] != StepStatus.DONE
    assert "Agents may not make tools" in refused["error"]
    with organisation_scope(acme):
        assert not Tool.objects.filter(name=NAME).exists()


def test_tx_13_the_same_again_makes_no_new_version(provider: ScriptedOpenAI, bobs: ChatSession) -> None:
    ask(provider, bobs, CREATE_TOOL, CALCULATOR)
    again = ask(provider, bobs, CREATE_TOOL, CALCULATOR)

    assert (again["version"], again["status"]) == (1, "pending")


def test_tx_18_tx_21_the_agent_reads_the_line_and_what_to_write_instead(
    provider: ScriptedOpenAI, bobs: ChatSession
) -> None:
    code = "import requests\n\ndef run(text):\n    return requests.get(text).text\n"

    refused = ask(provider, bobs, CREATE_TOOL, TEXT | {"implementation": code})

    assert refused["status_of_step"] == StepStatus.FAILED
    assert "Line 1" in refused["error"]
    assert "http_get" in refused["error"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"implementation": "def run(text)\n    return text"}, "Line 1: This is not Python"),
        ({"implementation": "def other(text):\n    return text"}, "There is no function `run`"),
        ({"implementation": "def run(word):\n    return word"}, "`run` has no argument `text`"),
        ({"inputSchema": {"type": "array"}}, "parameters:"),
        ({"description": " "}, "Say what the tool does"),
        ({"name": "a b"}, "letters a-z, A-Z, digits"),
        ({"name": "x" * 60}, "is too long"),
        ({"category": "nowhere"}, "There is no category nowhere"),
        ({"example": {"word": "x"}}, "does not fit the schema"),
        ({"example": {"text": "x"}, "implementation": "def run(text):\n    return 1 / 0"}, "The example fails"),
    ],
)
def test_tx_19_tx_20_tx_26_each_flaw_is_told_and_nothing_is_saved(
    provider: ScriptedOpenAI, bobs: ChatSession, changes: dict[str, Any], words: str
) -> None:
    refused = ask(provider, bobs, CREATE_TOOL, TEXT | changes)

    assert words in refused["error"]
    with organisation_scope(bobs.organisation):
        assert list(Tool.objects.values_list("name", flat=True)) == [CREATE_TOOL]


def test_tx_33_a_name_that_another_tool_has_is_refused(
    provider: ScriptedOpenAI, bobs: ChatSession, organisation: Organisation
) -> None:
    make_tool(organisation, NAME)

    refused = ask(provider, bobs, CREATE_TOOL, CALCULATOR)

    assert f"There is another tool named {NAME} already" in refused["error"]


def test_tx_09_the_name_is_made_of_the_agents_short_name_and_stays_within_64_characters() -> None:
    assert making.tool_name("starter", "add") == "agent_starter__add"
    assert making.tool_name("starter", "agent_starter__add") == "agent_starter__add"
    assert len(making.tool_name("a" * 63, "b" * 40)) == 64


def test_s48_the_member_of_the_turn_does_not_approve_it_not_even_as_an_admin(
    provider: ScriptedOpenAI, organisation: Organisation, agent: Agent, alice: Membership
) -> None:
    make_role(organisation, alice)
    ask(provider, make_session(alice, agent), CREATE_TOOL, CALCULATOR)

    with pytest.raises(ChangeForbidden, match="in a turn of yours"):
        decide(alice)
    decide(make_member(organisation, "dora", Access.ADMIN))


def test_only_so_many_of_one_agent_wait_for_one_member(provider: ScriptedOpenAI, bobs: ChatSession) -> None:
    for number in range(MAX_WAITING_OF_AGENT):
        assert ask(provider, bobs, CREATE_TOOL, TEXT | {"name": f"t{number}"})["status"] == "pending"

    refused = ask(provider, bobs, CREATE_TOOL, TEXT | {"name": "more"})

    assert "wait for approval: wait for a decision" in refused["error"]
