"""A conversation as a file: Markdown, JSON, and a request of curl."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from sessions.doors.chats.exports import MOST_TURNS, export
from sessions.doors.chats.queries import exported_turns
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus
from tests.cast import make_session, make_turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

DONE = {"status": TurnStatus.DONE, "answer": "It's **42**."}


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    session = make_session(bob, title="How much?")
    make_turn(session, "Old.", **DONE)
    turn = make_turn(session, "6*7, isn't it?", passed_over=[[1, 1]], **DONE)
    add_call(turn)
    make_turn(session, "And $HOME `id`\n'JSON'?", passed_over=[[1, 1]], **DONE)
    return session


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def add_call(turn: Turn) -> None:
    with organisation_scope(turn.organisation_id):
        Step.objects.create(
            organisation_id=turn.organisation_id,
            turn=turn,
            index=1,
            kind=StepKind.TOOL,
            status=StepStatus.DONE,
            tool_name="calculator",
            arguments='{"expression": "6*7"}',
            result="42",
        )


def address(session: ChatSession, kind: str) -> str:
    return f"/o/acme/sessions/{session.pk}/export/?as={kind}"


def test_markdown_has_the_conversation_without_what_was_replaced(as_bob: Client, session: ChatSession) -> None:
    reply = as_bob.get(address(session, "md"))

    text = reply.content.decode()
    assert reply["Content-Disposition"] == 'attachment; filename="how-much.md"'
    assert reply["Content-Type"] == "text/markdown; charset=utf-8"
    assert text.startswith("# How much?\n\n## ")
    assert [part in text for part in ("6*7, isn't it?", "It's **42**.", "`calculator`", "Old.")] == [True] * 3 + [False]


def test_json_has_each_turn_with_its_calls_and_says_which_were_replaced(as_bob: Client, session: ChatSession) -> None:
    found = json.loads(as_bob.get(address(session, "json")).content)

    assert (found["session"], found["title"]) == (str(session.pk), "How much?")
    assert [(turn["seq"], turn["is_replaced"]) for turn in found["turns"]] == [(1, True), (2, False), (3, False)]
    assert found["turns"][1]["calls"] == [
        {"tool": "calculator", "status": "done", "arguments": '{"expression": "6*7"}', "result": "42"}
    ]


def test_curl_asks_the_last_message_again_whatever_a_shell_makes_of_its_characters(
    as_bob: Client, session: ChatSession, tmp_path: Path
) -> None:
    text = as_bob.get(address(session, "sh")).content.decode()
    (tmp_path / "curl").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\ncat\n')
    (tmp_path / "curl").chmod(0o700)
    path = {"PATH": f"{tmp_path}:/bin:/usr/bin", "TOOLHUB_TOKEN": "secret"}

    said = subprocess.run(["/bin/sh"], input=text, env=path, capture_output=True, text=True, check=True).stdout

    arguments, _, body = said.partition("@-\n")
    assert arguments.splitlines()[:3] == [
        "http://testserver/v1/chat/completions",
        "-H",
        "Authorization: Bearer secret",
    ]
    assert json.loads(body) == {
        "model": session.agent.slug,
        "messages": [
            {"role": "user", "content": "6*7, isn't it?"},
            {"role": "assistant", "content": "It's **42**."},
            {"role": "user", "content": "And $HOME `id`\n'JSON'?"},
        ],
    }


def test_an_empty_session_is_exported_too(as_bob: Client, bob: Membership) -> None:
    session = make_session(bob)

    assert [as_bob.get(address(session, kind)).status_code for kind in ("md", "json", "sh", "exe")] == [200] * 3 + [404]


def test_somebody_elses_session_is_not_there(client: Client, charlie: Membership, session: ChatSession) -> None:
    client.force_login(charlie.user)

    for kind in ("md", "json", "sh"):
        assert client.get(address(session, kind)).status_code == 404


@pytest.mark.parametrize("count", [1, 3])
def test_turns_are_read_with_two_queries_and_only_so_many(
    bob: Membership, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    session = make_session(bob)
    for number in range(count):
        add_call(make_turn(session, f"{number}", **DONE))

    with organisation_scope(session.organisation_id):
        with django_assert_num_queries(2):
            turns = exported_turns(session, MOST_TURNS)
            export(session, turns, "json", origin="")
        assert [turn.message for turn in exported_turns(session, 2)] == [f"{number}" for number in range(count)][-2:]
