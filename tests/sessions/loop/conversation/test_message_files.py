"""Files of messages as models read them: images in each dialect where the model takes some, lines of text elsewhere."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from capabilities.contract.results import ResultFile
from capabilities.models import Agent, LanguageModel
from sessions.loop.clients.fitting import fitted
from sessions.loop.conversation import message_files
from sessions.loop.conversation.history import Past
from sessions.loop.conversation.window import FRAME, tokens_of_blocks
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import accepting
from sessions.turns.fencing import Conflict
from sessions.turns.files import attachable
from tests.pictures import png
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import a_model, run, work
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

PICTURE = png(4, 3)
URL = f"data:image/png;base64,{b64encode(PICTURE).decode()}"


def sees(session: ChatSession, **fields: Any) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(takes_images=True, **fields)


def write(session: ChatSession, *names: str, message: str = "look") -> Turn:
    """Accept a message with files: pictures, and texts by their names."""
    files = [(name, PICTURE if name.endswith("png") else b"words of a file") for name in names]
    with organisation_scope(session.organisation_id):
        attached = attachable(session, files)
        return accepting.accept(session, message, member=session.membership, files=attached).turn


def contents(provider: ScriptedOpenAI, place: int = -1) -> list[Any]:
    """Contents of the user's messages in a request."""
    request = provider.requests[place]
    return [each["content"] for each in request.get("messages") or request["input"] if each.get("role") == "user"]


def test_a_model_that_takes_images_gets_them_in_chat_completions(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    sees(session, dialect="chat")
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("A red field."))

    turn = work(write(session, "plan.png", "notes.txt"))

    lines = "[image plan.png, 73 bytes, for tools: attachments/1/plan.png]\n"
    lines += "[file notes.txt, 15 bytes, for tools: attachments/1/notes.txt]"
    parts = [{"type": "text", "text": f"look\n\n{lines}"}, {"type": "image_url", "image_url": {"url": URL}}]
    assert turn.status == TurnStatus.DONE
    assert [contents(provider, place) for place in (0, 1)] == [[parts], [parts]]
    assert "words of a file" not in str(provider.bodies)


def test_a_model_that_takes_images_gets_them_in_responses(session: ChatSession, provider: ScriptedOpenAI) -> None:
    sees(session, dialect="responses")

    work(write(session, "plan.png"))

    ((text, image),) = contents(provider)
    assert (text["type"], image) == ("input_text", {"type": "input_image", "image_url": URL})
    assert text["text"].startswith("look\n\n[image plan.png")


def test_a_model_that_takes_none_reads_that_in_a_line(session: ChatSession, provider: ScriptedOpenAI) -> None:
    work(write(session, "plan.png"))

    line = "[image plan.png, 73 bytes, for tools: attachments/1/plan.png: this model takes no images]"
    assert contents(provider) == [f"look\n\n{line}"]
    assert "base64" not in str(provider.bodies)


def test_images_of_earlier_turns_go_again_up_to_a_bound_the_newest_first(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "MOST_IMAGES", 2)
    sees(session)
    for name in ("a.png", "b.png", "c.png"):
        work(write(session, name))

    first, *others = contents(provider)

    assert "attachments/1/a.png: it was sent" in first
    assert [[part["type"] for part in each] for each in others] == [["text", "image_url"]] * 2


def test_images_over_the_bytes_of_a_request_stay_behind(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "MOST_BYTES", len(PICTURE) + 1)
    sees(session)
    work(write(session, "a.png"))
    work(write(session, "b.png"))

    assert [type(each) for each in contents(provider)] == [str, list]


def test_an_image_counts_in_tokens_and_not_by_its_bytes(session: ChatSession) -> None:
    image = {"media_type": "image/png", "data": "A" * 100_000, "tokens": 765}
    message = {"role": "user", "content": "look"}

    with_image, without = tokens_of_blocks([[{**message, "images": [image]}], [message]])

    assert with_image == without + 765
    assert without > FRAME


def test_two_messages_that_become_one_keep_all_images() -> None:
    one, two = ({"role": "user", "content": name, "images": [{"data": name}]} for name in "ab")

    (merged,) = fitted([one, two], {"alternate": 0})

    assert merged == {"role": "user", "content": "a\n\nb", "images": [{"data": "a"}, {"data": "b"}]}


def test_turns_without_files_cost_no_query(
    session: ChatSession, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    run(session)
    with organisation_scope(session.organisation_id):
        turn = accepting.accept(session, "again", member=session.membership).turn
        with django_assert_num_queries(1):
            past = Past(turn, a_model(images_setting=True))
            assert past.blocks
            assert past.files.message(turn.seq, range(turn.attached), "again") == {"role": "user", "content": "again"}


@pytest.mark.parametrize("count", [1, 3])
def test_files_of_any_number_of_turns_cost_two_queries(
    session: ChatSession, django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    for number in range(count):
        work(write(session, f"{number}.png", "notes.txt"))
    turn = write(session, "last.png")
    with organisation_scope(session.organisation_id), django_assert_num_queries(3):
        assert len(Past(turn, a_model(images_setting=True)).blocks) == count


def test_files_of_another_session_are_never_read(session: ChatSession) -> None:
    write(session, "a.png")
    with organisation_scope(session.organisation_id):
        other = ChatSession.objects.create(
            organisation_id=session.organisation_id, membership=session.membership, agent=session.agent
        )
        files = message_files.MessageFiles(other.pk, [1], takes_images=True)

    assert files.message(1, range(1), "look") == {"role": "user", "content": "look"}


def test_a_message_that_was_refused_leaves_no_file(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.update(is_enabled=False)
        session.agent.refresh_from_db()
        with pytest.raises(Conflict):
            accepting.accept(
                session, "look", member=session.membership, files=[ResultFile("a.png", "image/png", PICTURE)]
            )
        assert not Turn.objects.exists()
