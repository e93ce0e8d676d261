"""Writes of what refusals taught of a model: by a worker when it happens, and taken back by a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from capabilities.common.rights import configuration_write, require
from capabilities.models import LanguageModel
from capabilities.providers.lessons import MAX_BECAUSE, Lesson, lessons_of, with_lesson
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: How long a lesson stays before its opposite is kept: a provider that contradicts itself changes nothing for long.
SETTLED_AFTER = timedelta(hours=1)


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
    """Take back one lesson: the next call is made as if it had not been learned. Nothing happens without one."""
    require(actor, Right.PROVIDERS)
    model.learned = LanguageModel.objects.select_for_update().values_list("learned", flat=True).get(pk=model.pk)
    lessons = lessons_of(model.learned)
    gone = next((lesson for lesson in lessons if lesson.key == key), None)
    if gone is None:
        return
    model.learned = [lesson.as_json() for lesson in lessons if lesson.key != key]
    model.save(update_fields=["learned"])
    record("model.forget", model, actor=actor, before={"learned": gone.summary})
