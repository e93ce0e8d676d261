"""The conversation of MR-36 to MR-38, with the starter agent `assistant` and local services like the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from capabilities.models import Agent, LoadingMode, Provider, RoutingMode, ServiceSetting
from capabilities.running.registry import registry
from capabilities.running.services.writes import save_service
from capabilities.starter import FirstAdmin, create_organisation
from sessions.models import ChatSession, StepStatus, Turn
from tests.capabilities.assistant.builtin.fakes.devops import Docker, GitHub, Lambda
from tests.capabilities.assistant.builtin.fakes.research import ArXiv
from tests.cast import make_session
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.loads import answers_in, carried, loads_of, set_mode
from tests.sessions.run_turns import check_request, run, steps_of, tool_steps_of, verdicts_of
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

#: `shell_exec` needs set-up, and is left out until it has it.
OWN, BEHIND = "file_read", "read_result"
FIRST = [OWN, "list_toolkits", "load_tools", "unload_tools", "search_tools", "load_tool_category", BEHIND]
RESEARCH = ["duckduckgo", "arxiv", "wikipedia"]
DEVOPS = ["docker", "aws_lambda", "github"]
DESCRIPTION = "Docker, AWS, and GitHub tools for infrastructure work"
CONSTANT = [OWN, "list_toolkits", "search_tools", "call_tool", "load_tool_category", "unload_tools", BEHIND]
DEPLOY = [
    call("docker", {"action": "containers"}),
    call("aws_lambda", {"action": "list"}),
    call("github", {"action": "repo", "repo": "acme/shop"}),
]
PAPERS = "Can you find recent papers on transformers?"
DEMO = "Now deploy the demo app to AWS."
#: The text of MR-14.
CONFIRMED = "Toolkit 'devops' will be available on the next request in this session."


@pytest.fixture
def session(db: None, provider: ScriptedOpenAI) -> Iterator[ChatSession]:
    """The first administrator's, with the agent that a new organisation has; its services are set up."""
    alice = create_organisation("Acme", "acme", FirstAdmin("alice@example.com", "correct-horse-battery"))
    with ExitStack() as stack, organisation_scope(alice.organisation):
        enter = stack.enter_context
        hub, engine, cloud, papers = enter(GitHub()), enter(Docker()), enter(Lambda()), enter(ArXiv())
        services = {
            "github": {"base_url": hub.url, "token": hub.token},
            "docker": {"base_url": engine.url},
            "aws": {
                "region": cloud.region,
                "access_key": cloud.access_key,
                "secret_key": cloud.secret_key,
                "endpoint_url": cloud.url,
            },
            "arxiv": {"base_url": papers.url},
        }
        for name, values in services.items():
            save_service(registry.services[name], values, actor=alice)
        Provider.objects.update(base_url=provider.url)
        yield make_session(alice, Agent.objects.get(slug="assistant"))


def through(name: str, arguments: Json) -> Json:
    return call("call_tool", {"name": name, "arguments": arguments}, id=f"call_{name}")


def statuses(turn: Turn) -> list[tuple[str, str]]:
    return [(step.tool_name, step.status) for step in tool_steps_of(turn)]


def research(session: ChatSession, provider: ScriptedOpenAI) -> None:
    """Turn 1, the same in each mode: what is initial is there at once (MR-36)."""
    provider.enqueue(Say(calls=[call("arxiv", {"query": "transformers"})]), Say("Here are three papers."))

    turn = run(session, PAPERS)

    assert statuses(turn) == [("arxiv", StepStatus.DONE)]
    assert "success" not in answers_in(turn)[0]
    assert turn.answer == "Here are three papers."
    assert loads_of(session) == [("research", "initial", "")]


def devops_listed(told: Json) -> bool:
    (found,) = (each for each in told["toolkits"] if each["name"] == "devops")
    assert found == {
        "name": "devops",
        "description": DESCRIPTION,
        "tools": DEVOPS,
        "loaded": found["loaded"],
        "sticky": False,
    }
    return bool(found["loaded"])


def test_mr_29_the_assistant_starts_with_its_own_tools_and_research(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    (step,) = steps_of(run(session))

    assert carried(provider.requests[0]) == [*FIRST, *RESEARCH]
    said = {each["tool"]: each["reason"] for each in verdicts_of(step) if not each["kept"]}
    assert set(said) == {"shell_exec"}
    assert said["shell_exec"].startswith("needs set-up")


def test_cx_26_mr_38_what_was_loaded_stays_where_messages_decide_what_is_sent(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation):
        Agent.objects.filter(pk=session.agent_id).update(routing_mode=RoutingMode.HYBRID)
    research(session, provider)
    provider.enqueue(
        Say(calls=[call("list_toolkits")]),
        Say(calls=[call("load_tools", {"toolkit": "devops"})]),
        Say("They will be available with your next message."),
    )
    run(session, DEMO)
    provider.enqueue(Say(calls=DEPLOY), Say("Deployed."))

    third = run(session, "Go ahead")

    assert set(RESEARCH) <= set(carried(provider.requests[0]))
    assert set(carried(provider.requests[5])) >= {*RESEARCH, *DEVOPS, "load_tools", "search_tools"}
    assert carried(provider.requests[5]) == carried(provider.requests[6])
    assert statuses(third) == [(name, StepStatus.DONE) for name in DEVOPS]


def test_mr_03_mr_36_mr_37_mr_38_the_conversation_where_a_load_comes_with_the_next_message(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    research(session, provider)
    announced = "I loaded docker, aws_lambda and github. They will be available with your next message."
    provider.enqueue(
        Say(calls=[call("list_toolkits")]),
        Say(calls=[call("load_tools", {"toolkit": "devops"})]),
        Say(calls=[call("docker", {"action": "containers"}, id="early")]),
        Say(announced),
    )

    second = run(session, DEMO)

    listed, loaded, refused = answers_in(second)
    assert devops_listed(listed) is False
    assert (loaded["status"], loaded["tools"], loaded["takes_effect"]) == ("loaded", DEVOPS, "next_request")
    assert loaded["message"] == CONFIRMED
    assert "not available before the next message" in refused["error"]
    assert statuses(second)[2] == ("docker", StepStatus.REFUSED)
    assert [carried(request) for request in provider.requests] == [[*FIRST, *RESEARCH]] * 6
    assert second.answer == announced

    provider.enqueue(Say(calls=DEPLOY), Say("Deployed."))
    third = run(session, "Go ahead")

    assert carried(provider.requests[6]) == [*FIRST, *RESEARCH, *DEVOPS]
    assert statuses(third) == [(name, StepStatus.DONE) for name in DEVOPS]
    assert third.answer == "Deployed."
    check_request(provider.bodies[-1])
    assert loads_of(session) == [("research", "initial", ""), ("devops", "model", "")]


def test_mr_36_mr_37_mr_38_the_conversation_where_a_load_comes_with_the_next_round(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.SAME_RUN)
    research(session, provider)
    provider.enqueue(
        Say(calls=[call("list_toolkits")]),
        Say(calls=[call("load_tools", {"toolkit": "devops"}), call("docker", {"action": "containers"}, id="early")]),
        Say(calls=[call("docker", {"action": "containers"}, id="late")]),
        Say("Two containers run. Shall I go on?"),
    )

    second = run(session, DEMO)

    assert [status for _, status in statuses(second)] == [
        StepStatus.DONE,
        StepStatus.DONE,
        StepStatus.REFUSED,
        StepStatus.DONE,
    ]
    assert answers_in(second)[1]["takes_effect"] == "next_round"
    before, after = [*FIRST, *RESEARCH], [*FIRST, *RESEARCH, *DEVOPS]
    assert [carried(request) for request in provider.requests[2:]] == [before, before, after, after]

    provider.enqueue(Say(calls=DEPLOY), Say("Deployed."))
    third = run(session, "Go ahead")

    assert statuses(third) == [(name, StepStatus.DONE) for name in DEVOPS]
    check_request(provider.bodies[-1])


def test_mr_36_mr_37_mr_38_the_conversation_where_the_tools_never_change(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    research(session, provider)
    provider.enqueue(
        Say(calls=[call("list_toolkits")]),
        Say(calls=[call("search_tools", {"query": "docker containers"})]),
        Say(calls=[through("docker", {"action": "containers"})]),
        Say("Two containers run. Shall I go on?"),
    )

    second = run(session, DEMO)

    listed, found, _ = answers_in(second)
    assert devops_listed(listed) is False
    assert found["tools"][0]["name"] == "docker"
    assert "action" in found["tools"][0]["parameters"]["properties"]
    assert statuses(second)[2] == ("docker", StepStatus.DONE)

    direct = [each["function"] for each in DEPLOY]
    calls = [through(each["name"], json.loads(each["arguments"])) for each in direct]
    provider.enqueue(Say(calls=calls), Say("Deployed."))
    third = run(session, "Go ahead")

    assert statuses(third) == [(name, StepStatus.DONE) for name in DEVOPS]
    assert {step.called_through for step in tool_steps_of(third)} == {"call_tool"}
    assert {tuple(carried(request)) for request in provider.requests} == {(*CONSTANT, *RESEARCH)}
    assert len({json.dumps(request["tools"]) for request in provider.requests}) == 1
    check_request(provider.bodies[-1])
    assert loads_of(session) == [("research", "initial", "")]


def test_a_loaded_tool_that_needs_set_up_says_so_when_it_is_called(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        ServiceSetting.objects.filter(service="docker").delete()
    provider.enqueue(Say(calls=[call("load_tools", {"toolkit": "devops"})]), Say("Loaded."))
    loaded = tool_steps_of(run(session, DEMO))[0]
    provider.enqueue(Say(calls=[call("docker", {"action": "containers"})]), Say("It cannot."))

    (step,) = tool_steps_of(run(session, "Go ahead"))

    assert json.loads(loaded.result)["needs_set_up"] == ["docker"]
    told = json.loads(step.result)
    assert told["success"] is False
    assert told["error"].startswith("docker needs set-up: ")
    assert "configure Docker first" in told["error"]
