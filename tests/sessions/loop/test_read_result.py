"""Results that were cut, and `read_result`, which reads on in them."""

from __future__ import annotations

import json
import re

import pytest

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.common.registry_version import touch_registry
from capabilities.contract.loading import READ_RESULT
from capabilities.models import Agent, Effect, Grant, LanguageModel, Tool
from sessions.models import ChatSession, Step, StepStatus
from sessions.selection.queries import selection_preview
from tests.cast import make_agent, make_category, make_member, make_reader, make_role, make_session, make_tool
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.loop.test_loop import built_in
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

#: Numbered, so that a part that is missing or shown twice is seen.
LONG = "".join(f"line {number} of the result\n" for number in range(9_000))[:200_000]
NOTE = re.compile(r"read on with read_result, step (?P<step>\d+-\d+), offset (?P<offset>\d+)")
NEXT = re.compile(r"the next part begins at offset (?P<offset>\d+)\]$")


@pytest.fixture
def reading(session: ChatSession) -> ChatSession:
    """A session of Bob's whose agent also reads on in results, with a model of a small window."""
    make_reader(session.organisation)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=40_000)
    return session


def ask(session: ChatSession, provider: ScriptedOpenAI, *calls: Json) -> list[Step]:
    """The calls of a turn whose model makes them in one reply, and then answers."""
    provider.enqueue(Say(calls=calls), Say("Done."))
    return tool_steps_of(run(session))


def read(step: str, offset: int = 0) -> Json:
    return call(READ_RESULT, {"step": step, "offset": offset})


def long_result(session: ChatSession, provider: ScriptedOpenAI, text: str = LONG) -> str:
    """The number of a call in this session whose result is this long one."""
    with built_in(session, "rg", lambda context: text):
        (step,) = ask(session, provider, call("rg"))
    note = NOTE.search(step.result_sent)
    assert note is not None
    return note["step"]


def names_sent(request: Json) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def test_zs_56_a_result_that_was_cut_is_read_to_its_end(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    with built_in(reading, "rg", lambda context: LONG):
        (step,) = ask(reading, provider, call("rg"))
    note = NOTE.search(step.result_sent)
    assert note is not None
    shown, offset = step.result_sent[: step.result_sent.index("[cut: ")], int(note["offset"])
    parts = []
    while True:
        (part,) = ask(reading, provider, read(note["step"], offset))
        assert (part.status, part.result_sent) == (StepStatus.DONE, part.result)
        assert 30_000 < len(part.result_sent) <= 35_200 or "this is the end]" in part.result_sent
        head, text = part.result_sent.split("\n", 1)
        parts.append(text)
        found = NEXT.search(head)
        if found is None:
            break
        offset = int(found["offset"])

    assert len(parts) == 5
    assert shown + "".join(parts) == LONG == step.result


def test_the_number_names_one_call_of_the_session_for_good(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    run(reading, "hello")
    with built_in(reading, "rg", lambda context: LONG if context.step_id else ""):
        first, second = ask(reading, provider, call("rg"), call("rg"))
    numbers = [NOTE.search(each.result_sent) for each in (first, second)]

    assert [each["step"] for each in numbers if each] == ["2-2", "2-3"]
    assert NEXT.search(ask(reading, provider, read(" 2-3 ", 5))[0].result_sent.splitlines()[0])


def test_json_that_was_cut_is_json_to_the_model_and_read_on_as_it_is(
    reading: ChatSession, provider: ScriptedOpenAI
) -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(6_000)]
    with built_in(reading, "rg", lambda context: rows):
        (step,) = ask(reading, provider, call("rg"))
    *shown, note = json.loads(step.result_sent)
    found = NOTE.search(note["_cut"])
    assert found is not None

    (part,) = ask(reading, provider, read(found["step"], int(found["offset"])))

    assert shown == rows[: len(shown)]
    assert part.result_sent.split("\n", 1)[1].startswith(f', {{"id": {len(shown)}, ')


@pytest.mark.parametrize(
    ("step", "offset", "answer"),
    [
        ("1-9", 0, "There is no result 1-9 in this conversation."),
        ("9-2", 0, "There is no result 9-2 in this conversation."),
        ("1-1", 0, "There is no result 1-1 in this conversation."),  # a model call
        ("2", 0, "There is no result 2 in this conversation."),
        ("1-2; DROP", 0, "There is no result 1-2; DROP in this conversation."),
        ("999999999-999999999", 0, "There is no result 999999999-999999999 in this conversation."),
        ("1-2", 200_000, "Result 1-2 has 200,000 characters: the offset must be less."),
        ("2-2", 0, "The call 2-2 has no result yet."),
    ],
)
def test_what_is_not_there_is_refused_with_a_sentence(
    step: str, offset: int, answer: str, reading: ChatSession, provider: ScriptedOpenAI
) -> None:
    assert long_result(reading, provider) == "1-2"

    (refused,) = ask(reading, provider, read(step, offset))

    assert json.loads(refused.result_sent) == {"success": False, "error": answer}


def test_a_part_has_no_number_of_its_own(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    long_result(reading, provider)
    (part,) = ask(reading, provider, read("1-2"))
    assert NOTE.search(part.result_sent) is None

    (refused,) = ask(reading, provider, read("2-2"))

    assert "itself a part of a result" in refused.result_sent


def test_another_session_has_no_such_result(reading: ChatSession, bob: Membership, provider: ScriptedOpenAI) -> None:
    assert long_result(reading, provider) == "1-2"
    other = make_session(bob, reading.agent)
    ask(other, provider, call("uuid"))

    (own, foreign) = ask(other, provider, read("1-2"), read("1-2", 100))

    assert LONG[:100] not in own.result_sent
    assert "has 52 characters" in foreign.result_sent or "the offset must be less" in foreign.result_sent


def test_another_members_turn_in_the_session_has_no_such_result(
    reading: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    """No page or API lets anybody else write there; should a row say otherwise, nothing is read."""
    long_result(reading, provider)
    with organisation_scope(reading.organisation_id):
        reading.turns.update(membership=alice)

    (refused,) = ask(reading, provider, read("1-2"))

    assert "There is no result 1-2" in refused.result_sent


def test_charlie_of_globex_reads_nothing_of_acme(
    reading: ChatSession, charlie: Membership, provider: ScriptedOpenAI
) -> None:
    long_result(reading, provider)
    make_reader(charlie.organisation)
    make_tool(charlie.organisation, "uuid")
    make_role(charlie.organisation, charlie)
    session = make_session(charlie, make_agent(charlie.organisation, provider.url))

    (refused,) = ask(session, provider, read("1-2"))

    assert refused.result_sent == json.dumps(
        {"success": False, "error": "The call 1-2 has no result yet."}
    )  # it is this very call's own number


def test_the_results_of_a_tool_that_was_denied_since_are_not_read(
    reading: ChatSession, provider: ScriptedOpenAI
) -> None:
    long_result(reading, provider)
    with organisation_scope(reading.organisation_id):
        Grant.objects.create(
            organisation=reading.organisation,
            membership=reading.membership,
            tool=Tool.objects.get(name="rg"),
            effect=Effect.DENY,
            reason="Too much.",
        )

    (refused,) = ask(reading, provider, read("1-2"))

    assert "rg may not be used any more" in refused.result_sent


def test_the_results_of_a_tool_that_was_switched_off_since_are_not_read(
    reading: ChatSession, provider: ScriptedOpenAI
) -> None:
    long_result(reading, provider)
    with organisation_scope(reading.organisation_id):
        admin = make_member(reading.organisation, "dora", Access.ADMIN)
        set_tool_enabled(Tool.objects.get(name="rg"), False, actor=admin)

    (refused,) = ask(reading, provider, read("1-2"))

    assert "rg may not be used any more" in refused.result_sent


# -- Who is offered it ------------------------------------------------------------------------------------------------


def test_it_is_sent_with_any_other_tool_and_never_alone(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    run(reading)
    assert names_sent(provider.requests[-1]) == ["task_create", "calculator", "uuid", READ_RESULT]

    with organisation_scope(reading.organisation_id):
        Agent.objects.update(starts_with_core=False)
        touch_registry(reading.organisation_id)
    run(reading)

    assert "tools" not in provider.requests[-1]
    with organisation_scope(reading.organisation_id):
        reading.refresh_from_db()
        verdicts = selection_preview(reading, Agent.objects.for_display().get()).verdicts
    (verdict,) = verdicts
    assert (verdict.tool, verdict.stage, verdict.kept) == (READ_RESULT, "gather", False)
    assert "no other tool is sent" in verdict.reason


def test_a_member_who_may_use_nothing_else_is_not_sent_it(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(reading.organisation_id):
        for tool in Tool.objects.exclude(name=READ_RESULT):
            Grant.objects.create(
                organisation=reading.organisation, membership=reading.membership, tool=tool, effect=Effect.DENY
            )

    run(reading)

    assert "tools" not in provider.requests[-1]


def test_the_note_names_it_only_where_it_is_sent(reading: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(reading.organisation_id):
        admin = make_member(reading.organisation, "dora", Access.ADMIN)
        set_tool_enabled(Tool.objects.get(name=READ_RESULT), False, actor=admin)

    with built_in(reading, "rg", lambda context: LONG):
        (step,) = ask(reading, provider, call("rg"))

    assert READ_RESULT not in names_sent(provider.requests[-1])
    assert re.search(r"\[cut: 200,000 [\w ]+, the first [\d,]+ shown\]$", step.result_sent)


def test_it_gives_way_to_what_somebody_chose_but_not_to_the_core(
    reading: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(reading.organisation_id):
        make_tool(reading.organisation, "zulu", category=make_category(reading.organisation, "zulu"))
        LanguageModel.objects.update(tool_limit=3)

    run(reading)

    assert READ_RESULT in names_sent(provider.requests[-1])
    assert len(names_sent(provider.requests[-1])) == 3
