"""Writes of what refusals taught of a model: by a worker when it happens, and taken back by a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from capabilities.common.rights import configuration_write, require
from capabilities.language_models.providers.lessons import MAX_BECAUSE, Lesson, lessons_of, with_lesson
from capabilities.models import LanguageModel
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: How long a lesson stays before its opposite is kept: a provider that contradicts itself changes nothing for long.
SETTLED_AFTER = timedelta(hours=1)
#: Calls that what was learned before weighs like at most: a provider that changes its tokenizer is followed.
MOST_WEIGHT = 200
#: A factor outside these is a count of something else.
FACTOR_RANGE = (0.2, 5.0)


def learn(model_id: UUID, lesson: Lesson) -> None:
    """Keep the lesson with the model, on record as nobody's doing.

    Nothing happens where the model is gone, where it is known already (turns that run at once learn the same), or where
    the same key taught something else within SETTLED_AFTER.
    """
    with transaction.atomic():
        model = LanguageModel.objects.select_for_update().filter(public_id=model_id).first()
        if model is None:
            return
        lessons = lessons_of(model.learned)
        if not _is_new(lesson, lessons):
            return
        kept = replace(lesson, because=lesson.because[:MAX_BECAUSE], at=timezone.now().isoformat(timespec="seconds"))
        model.learned = [each.as_json() for each in with_lesson(lessons, kept)]
        model.save(update_fields=["learned"])
        record("model.learn", model, actor=None, after={"learned": kept.summary, "because": kept.because})


def _is_new(lesson: Lesson, lessons: Iterable[Lesson]) -> bool:
    known = next((each for each in lessons if each.key == lesson.key), None)
    if known is None:
        return True
    if known.value == lesson.value:
        return False
    try:
        learned_at = datetime.fromisoformat(known.at)
    except ValueError:
        return True
    return timezone.is_naive(learned_at) or timezone.now() - learned_at > SETTLED_AFTER


@configuration_write("model")
def forget_lesson(model: LanguageModel, key: str, *, actor: Membership) -> None:
    """Take back one lesson: the next call is made as if it had not been learned. Nothing happens without one. Raises
    PermissionDenied without the right `providers`."""
    require(actor, Right.PROVIDERS)
    model.learned = LanguageModel.objects.select_for_update().values_list("learned", flat=True).get(pk=model.pk)
    lessons = lessons_of(model.learned)
    lesson_found = next((lesson for lesson in lessons if lesson.key == key), None)
    if lesson_found is None:
        return
    model.learned = [lesson.as_json() for lesson in lessons if lesson.key != key]
    model.save(update_fields=["learned"])
    record("model.forget", model, actor=actor, before={"learned": lesson_found.summary})


@transaction.atomic
def learn_token_factor(model_id: UUID, *, counted: int, reported: int, calls: int) -> None:
    """Add to a model's factor the inputs of some calls, as we counted them and as its provider did. Three statements.

    A measurement: it is not on record, and changes no registry version. Nothing happens where the model is gone.
    """
    ratio = reported / counted
    if not FACTOR_RANGE[0] <= ratio <= FACTOR_RANGE[1]:
        return
    model = LanguageModel.objects.select_for_update().only("organisation_id", "token_factor", "token_samples")
    known = model.filter(public_id=model_id).first()
    if known is None:
        return
    weight = min(known.token_samples, MOST_WEIGHT)
    known.token_factor = (known.token_factor * weight + ratio * calls) / (weight + calls)
    known.token_samples += calls
    known.save(update_fields=["token_factor", "token_samples"])
