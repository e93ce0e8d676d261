"""Tools that a model's provider refused: put on record by a worker, read by every selection, taken back by a person.

A mark counts as long as the same bytes would go to the same model: another version, another name or address of the
model, or a definition that is rendered otherwise by now is tried again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone

from capabilities.common.memory import Memory
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.text import storable
from capabilities.language_models.providers.resolve import Refused, ResolvedModel
from capabilities.models import LanguageModel, ToolRefusal
from capabilities.models.refusals import MAX_WORDS
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

Refusals = Mapping[int, Refused]
_refusals: Memory[Refusals] = Memory(256)


def refusals_of(model: ResolvedModel, *, at: int | None = None) -> Refusals:
    """Return the refusals of the model's provider, by the key of the tool. No query for a model that refused none; else
    one, none where they were read before `at` this registry version."""
    if not model.refuses_tools:
        return model.refused_now

    def read() -> Refusals:
        rows = ToolRefusal.objects.filter(model__public_id=model.public_id, origin=model.origin)
        return {row[0]: Refused(*row[1:]) for row in rows.values_list("tool_id", "version_id", "sha256", "words")}

    stored = read() if at is None else _refusals.get((model.public_id, model.origin, at), read)
    return {**stored, **model.refused_now}


def in_force(refusals: QuerySet[ToolRefusal] | None = None) -> QuerySet[ToolRefusal]:
    """Refusals of the version that is in force now; those of another version are over."""
    rows = ToolRefusal.objects.all() if refusals is None else refusals
    return rows.filter(version=F("tool__current_version"))


def shown_refusals(refusals: QuerySet[ToolRefusal]) -> QuerySet[ToolRefusal]:
    """Refusals as pages and REST show them, the newest first."""
    rows = in_force(refusals).select_related("model__provider", "tool").defer("model__provider__api_key")
    return rows.order_by("-refused_at", "pk")


def note_refusals(model: ResolvedModel, tools: Sequence[tuple[int, int, str]], words: str) -> None:
    """Put on record that the model's provider refused these tools, each with its key, version and the hash of what was
    sent; as nobody's doing. Nothing happens where the model is gone. Four statements, and those of the audit for each
    tool that is new."""
    with transaction.atomic():
        row = LanguageModel.objects.select_for_update().filter(public_id=model.public_id).first()
        if row is None:
            return
        message = storable(words, MAX_WORDS)
        for tool_id, version_id, sha256 in tools:
            _note(row, model, tool_id, {"version_id": version_id, "sha256": sha256, "words": message})
        LanguageModel.objects.filter(pk=row.pk).update(refuses_tools=True)
        touch_registry(row.organisation_id)


def _note(row: LanguageModel, model: ResolvedModel, tool_id: int, fields: Mapping[str, object]) -> None:
    """Count one refusal of a tool by a model; a new one goes on record."""
    now = timezone.now()
    refusal, is_new = ToolRefusal.objects.get_or_create(
        organisation_id=row.organisation_id,
        model=row,
        tool_id=tool_id,
        defaults={**fields, "origin": model.origin, "refused_at": now},
    )
    if not is_new:
        known = ToolRefusal.objects.filter(pk=refusal.pk)
        known.update(**fields, origin=model.origin, refused_at=now, count=F("count") + 1)
        is_new = refusal.sha256 != fields["sha256"]
    if is_new:
        record("tool.refused", refusal.tool, actor=None, after={"model": str(row), "because": fields["words"]})


@configuration_write("tool")
def try_again(refusal: ToolRefusal, *, actor: Membership) -> None:
    """Take one mark back: the tool goes out with the model's next call again. Raises PermissionDenied without the right
    `catalogue` for the tool's category."""
    require(actor, Right.CATALOGUE, [refusal.tool.category.name])
    with transaction.atomic():
        record(
            "tool.try_again",
            refusal.tool,
            actor=actor,
            before={"model": str(refusal.model), "because": refusal.words},
        )
        refusal.delete()
        touch_registry(refusal.organisation_id)


def refusal_or_404(tool_name: str, public_id: UUID) -> ToolRefusal:
    """One mark of a tool, with its tool, category and model. Raises Http404. One query."""
    rows = ToolRefusal.objects.select_related("tool__category", "model__provider").defer("model__provider__api_key")
    return get_object_or_404(rows, tool__name=tool_name, public_id=public_id)
