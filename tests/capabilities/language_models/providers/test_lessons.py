"""What refusals taught: how it is read, applied, kept and taken back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from capabilities.language_models.providers.learning import SETTLED_AFTER, forget_lesson, learn
from capabilities.language_models.providers.lessons import (
    MAX_BECAUSE,
    MAX_LESSONS,
    Lesson,
    Teaches,
    corrected,
    lessons_of,
    with_lesson,
)
from capabilities.language_models.providers.writes import ModelContent, ProviderContent, save_model, save_provider
from capabilities.models import LanguageModel
from tests.cast import make_agent
from toolhub.tenants.models import AuditEntry, Membership, Organisation

RENAMED = Lesson(Teaches.RENAME, "max_tokens", "max_completion_tokens")
TO_RESPONSES = Lesson(Teaches.DIALECT, "dialect", "responses")
TO_CHAT = Lesson(Teaches.DIALECT, "dialect", "chat")
SENT = {"model": "m", "stream": True, "max_tokens": 9_000, "parallel_tool_calls": True}


@pytest.mark.parametrize(
    ("lessons", "chosen", "changed"),
    [
        ([], [], {}),
        ([RENAMED], [], {"max_tokens": None, "max_completion_tokens": 9_000}),
        ([RENAMED], ["max_tokens", "max_completion_tokens"], {"max_tokens": None, "max_completion_tokens": 9_000}),
        (
            [RENAMED, Lesson(Teaches.AT_MOST, "max_completion_tokens", "512")],
            [],
            {"max_tokens": None, "max_completion_tokens": 512},
        ),
        ([Lesson(Teaches.AT_MOST, "max_tokens", "512")], [], {"max_tokens": 512}),
        ([Lesson(Teaches.AT_MOST, "max_tokens", "10000")], [], {}),
        ([Lesson(Teaches.AT_MOST, "max_tokens", "512")], ["max_tokens"], {}),
        ([Lesson(Teaches.OMIT, "parallel_tool_calls")], [], {"parallel_tool_calls": None}),
        ([Lesson(Teaches.OMIT, "parallel_tool_calls")], ["parallel_tool_calls"], {}),
        ([Lesson(Teaches.OMIT, "stream_options"), Lesson(Teaches.FILL, "max_tokens"), TO_CHAT], [], {}),
    ],
)
def test_a_request_is_corrected_but_for_the_values_that_a_person_chose(
    lessons: list[Lesson], chosen: list[str], changed: dict[str, Any]
) -> None:
    expected = {name: value for name, value in {**SENT, **changed}.items() if value is not None}

    assert corrected(SENT, lessons, chosen=frozenset(chosen)) == expected


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        "omit",
        [None, 3, "x", []],
        [{"teaches": "obey", "name": "x"}],
        [{"teaches": "omit"}],
        [{"teaches": "omit", "name": 3}],
        [{"teaches": "dialect", "name": "dialect", "value": "morse"}],
        [{"teaches": "at_most", "name": "max_tokens", "value": "-1"}],
        [{"teaches": "at_most", "name": "max_tokens", "value": ""}],
    ],
)
def test_malformed_stored_lessons_are_ignored(stored: Any) -> None:
    good = {"teaches": "omit", "name": "store"}

    assert lessons_of(stored) == ()
    assert lessons_of([*(stored if isinstance(stored, list) else []), good]) == (Lesson(Teaches.OMIT, "store"),)


def test_a_newer_lesson_takes_the_place_of_its_key_and_the_oldest_fall() -> None:
    lessons: tuple[Lesson, ...] = (TO_RESPONSES,)
    for number in range(MAX_LESSONS - 1):
        lessons = with_lesson(lessons, Lesson(Teaches.OMIT, f"p{number}"))

    assert with_lesson(lessons, TO_CHAT) == (*lessons[1:], TO_CHAT)
    assert with_lesson(lessons, RENAMED) == (*lessons[1:], RENAMED)


# -- Kept with the model ----------------------------------------------------------------------------------------------


@pytest.fixture
def model(in_acme: Organisation) -> LanguageModel:
    return make_agent(in_acme).model


def learned(model: LanguageModel) -> list[tuple[str, str]]:
    model.refresh_from_db()
    return [(lesson.key, lesson.value) for lesson in lessons_of(model.learned)]


def test_a_lesson_that_many_turns_learn_at_once_is_written_once(model: LanguageModel) -> None:
    learn(model.public_id, Lesson(Teaches.OMIT, "store", because="x" * 9_000))
    learn(model.public_id, Lesson(Teaches.OMIT, "store", because="in other words"))

    assert learned(model) == [("omit:store", "")]
    assert lessons_of(model.learned)[0].because == "x" * MAX_BECAUSE
    assert AuditEntry.objects.filter(action="model.learn").count() == 1


def test_a_provider_that_contradicts_itself_changes_nothing_for_an_hour(model: LanguageModel) -> None:
    for _ in range(5):
        learn(model.public_id, TO_RESPONSES)
        learn(model.public_id, TO_CHAT)

    assert learned(model) == [("dialect:dialect", "responses")]
    assert AuditEntry.objects.filter(action="model.learn").count() == 1

    (row,) = model.learned
    model.learned = [{**row, "at": (timezone.now() - SETTLED_AFTER - timedelta(seconds=2)).isoformat()}]
    model.save()
    learn(model.public_id, TO_RESPONSES)
    assert AuditEntry.objects.filter(action="model.learn").count() == 1

    learn(model.public_id, TO_CHAT)

    assert learned(model) == [("dialect:dialect", "chat")]


@pytest.mark.parametrize("at", ["", "yesterday", "2026-01-01T00:00:00", "2026-01-01"])
def test_a_moment_that_is_none_holds_nothing_back(model: LanguageModel, at: str) -> None:
    model.learned = [{"teaches": "dialect", "name": "dialect", "value": "responses", "at": at}]
    model.save()

    learn(model.public_id, TO_CHAT)

    assert learned(model) == [("dialect:dialect", "chat")]


def test_no_lesson_is_stored_for_a_deleted_model(in_acme: Organisation) -> None:
    learn(uuid4(), TO_CHAT)

    assert not AuditEntry.objects.filter(action="model.learn").exists()


def test_a_lesson_is_taken_back_on_record(alice: Membership, model: LanguageModel) -> None:
    learn(model.public_id, TO_CHAT)
    learn(model.public_id, RENAMED)
    model.refresh_from_db()

    forget_lesson(model, TO_CHAT.key, actor=alice)
    forget_lesson(model, "omit:nothing", actor=alice)

    assert learned(model) == [(RENAMED.key, RENAMED.value)]
    entry = AuditEntry.objects.get(action="model.forget")
    assert (entry.actor, entry.before) == (alice, {"learned": TO_CHAT.summary})


def test_what_one_server_taught_is_not_believed_of_another(alice: Membership, in_acme: Organisation) -> None:
    content = ProviderContent("a", "A", "https://a.example.com/v1", "m")
    provider = save_provider(None, content, actor=alice)
    model = provider.models.get()
    learn(model.public_id, TO_RESPONSES)

    save_provider(provider, content, actor=alice)
    assert learned(model) == [("dialect:dialect", "responses")]

    save_provider(provider, ProviderContent("a", "A", "https://a.example.com/v2", "m"), actor=alice)
    assert learned(model) == []


def test_what_one_model_taught_is_not_believed_of_another(alice: Membership, in_acme: Organisation) -> None:
    provider = save_provider(None, ProviderContent("a", "A", "https://a.example.com/v1", "m"), actor=alice)
    model = provider.models.get()
    learn(model.public_id, TO_RESPONSES)
    model.refresh_from_db()

    save_model(provider, model, ModelContent("m", 64_000), actor=alice)
    assert learned(model) == [("dialect:dialect", "responses")]

    save_model(provider, model, ModelContent("n", 64_000), actor=alice)
    assert learned(model) == []
