"""Tools as the loop works with them, read from the catalogue: the read behind every selection and every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from capabilities.common.memory import Memory
from capabilities.contract.envelope import NO_OVERRIDES, Envelope
from capabilities.contract.spec import NOT_IN_FORCE, ToolSpec
from capabilities.models import Tool, ToolVersion
from capabilities.running.services.writes import acts_as_organisation, is_ready

#: The columns of an Envelope, in its order.
_ENVELOPE = (
    "current_version__on_crash",
    "current_version__timeout",
    "current_version__max_result_chars",
    "current_version__untrusted_output",
    "current_version__in_untrusted",
)
#: The columns of a ToolSpec, in its order; `spec_of` makes one of them.
SPEC = (
    "pk",
    "current_version_id",
    "name",
    "kind",
    "category__name",
    "category_id",
    "is_enabled",
    "current_version__wire",
    "current_version__sha256",
    "current_version__tokens",
    "current_version__effect",
    *_ENVELOPE,
    "service",
    "is_ready",
    "current_version__instructions",
    "acts_as_organisation",
    "category__title",
    "off_message",
    "quarantine",
    "signed_with",
    "current_version__human_format",
)


_BEGINS = SPEC.index(_ENVELOPE[0])
_ENDS = _BEGINS + len(_ENVELOPE)


def spec_of(row: Sequence[Any]) -> ToolSpec:
    """The ToolSpec of a row with the columns SPEC."""
    values = [*row[:_BEGINS], _envelope(*row[_BEGINS:_ENDS]), *row[_ENDS:]]
    return ToolSpec(*values)


def spec_without_version(row: Sequence[Any]) -> ToolSpec:
    """The ToolSpec of a row with the columns SPEC that has no version in force: nothing of it is ever sent."""
    known = dict(zip(SPEC, row, strict=True))
    return ToolSpec(
        tool_id=known["pk"],
        version_id=NOT_IN_FORCE,
        name=known["name"],
        kind=known["kind"],
        category=known["category__name"],
        category_id=known["category_id"],
        is_enabled=known["is_enabled"],
        wire="",
        sha256="",
        tokens=0,
        effect="",
        envelope=Envelope("never", 0.0, 0),
        service=known["service"],
        is_ready=known["is_ready"],
        acts_as_organisation=known["acts_as_organisation"],
        category_title=known["category__title"],
        off_message=known["off_message"],
        quarantine=known["quarantine"],
        credential_id=known["signed_with"],
    )


@lru_cache(maxsize=1_000)
def _envelope(*values: Any) -> Envelope:
    """One value for all the tools that have the same."""
    return Envelope(*values)


def version_of(spec: ToolSpec) -> ToolVersion:
    """The row of the tool's version, with what the spec knows of it; any other column is read when it is asked for.

    No query.
    """
    known = {
        "id": spec.version_id,
        "tool_id": spec.tool_id,
        "wire": spec.wire,
        "sha256": spec.sha256,
        "tokens": spec.tokens,
        "effect": spec.effect,
        "instructions": spec.instructions,
        "human_format": spec.human_format,
    }
    names = [each.attname for each in ToolVersion._meta.concrete_fields if each.attname in known]
    return ToolVersion.from_db(connection.alias, names, [known[name] for name in names])


def spec_annotations() -> dict[str, Any]:
    """Return the annotations that give a query of tools the columns of a ToolSpec."""
    signed_with = Coalesce("credential", "server__credential")
    return {"is_ready": is_ready(), "acts_as_organisation": acts_as_organisation(), "signed_with": signed_with}


_current: Memory[list[ToolSpec]] = Memory(64)


def current_specs(
    version_ids: Sequence[int], *, organisation_id: int | None = None, at: int | None = None
) -> list[ToolSpec]:
    """The tools that have one of these versions as their current one, as they are now. One query; none where they were
    read before `at` this registry version of the organisation."""

    def read() -> list[ToolSpec]:
        return specs(Tool.objects.filter(current_version__in=version_ids))

    return read() if at is None else _current.get((organisation_id, at, tuple(version_ids)), read)


def remember_specs(tools: Sequence[ToolSpec], *, organisation_id: int, at: int) -> None:
    """Keep what was selected at this registry version, so that its calls need not read it again. No query."""
    plain = [
        replace(each, overrides=NO_OVERRIDES, envelope=each.own_envelope, version_envelope=None, rendered="")
        for each in tools
    ]
    _current.get((organisation_id, at, tuple(each.version_id for each in tools)), lambda: plain)


def specs(tools: QuerySet[Tool]) -> list[ToolSpec]:
    """These tools as they are now. One query."""
    rows = tools.filter(current_version__isnull=False).annotate(**spec_annotations())
    return [spec_of(row) for row in rows.values_list(*SPEC)]
