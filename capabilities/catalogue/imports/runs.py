"""The reading of a source, in a worker: claimed once, outside any transaction, and ended by its deadline."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from capabilities.catalogue.imports.found import ReadSource, SourceRefused
from capabilities.catalogue.imports.readers import sources
from capabilities.catalogue.imports.reading import store_found
from capabilities.common.confined import ConfinedError
from capabilities.common.moments import from_now
from capabilities.common.queued_rows import claim_unrung
from capabilities.common.text import storable, storable_value
from capabilities.contract.wire import sha256_hex
from capabilities.models import UNDECIDED, ImportStatus, ToolImport
from capabilities.running.egress import EgressError
from toolhub.tenants.models import Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

logger = logging.getLogger(__name__)

#: Seconds that a reading may take, the fetch of a document included, and that it waits for a worker.
READ_SECONDS = 120.0
QUEUE_SECONDS = 120.0
#: Rows that one sweep takes up.
AT_ONCE = 100
MAX_REASON = 500
NOT_TAKEN = "No worker took it in time. Try again."
NO_RESULT = "The worker stopped before it had read everything. Try again."
NO_RIGHT = "The member who asked for it may not import tools any more."
UNKNOWN_SOURCE = "This version cannot read such a source."
FELL_OVER = "It could not be read: the service ran into a mistake of its own. It is in the log."


def run_import(public_id: UUID) -> None:
    """Claim the import, if it is free, and read its source. What is found waits for a person."""
    with system_scope():
        found = ToolImport.objects.select_related("membership").filter(public_id=public_id).first()
        free = ToolImport.objects.filter(public_id=public_id, status=ImportStatus.QUEUED, deadline_at__gt=Now())
        if found is None or not free.update(status=ImportStatus.RUNNING, deadline_at=from_now(READ_SECONDS)):
            return
        organisation_id = found.organisation_id
    with organisation_scope(organisation_id):
        tool_import = ToolImport.objects.select_related("membership", "server", "credential").get(public_id=public_id)
        _read(tool_import)


def _read(tool_import: ToolImport) -> None:
    try:
        _store(tool_import, _source_of(tool_import))
    except (SourceRefused, EgressError, ConfinedError) as error:
        _fail(tool_import, str(error))
    except DatabaseError:
        raise
    except Exception:
        logger.exception("The import %s fell over", tool_import.public_id)
        _fail(tool_import, FELL_OVER)


def _source_of(tool_import: ToolImport) -> ReadSource:
    member = tool_import.membership
    if member is not None and not member.reach(Right.CATALOGUE):
        raise SourceRefused(NO_RIGHT)
    source = sources.get(tool_import.source)
    if source is None:
        raise SourceRefused(UNKNOWN_SOURCE)
    return source.read(tool_import)


@transaction.atomic
def _store(tool_import: ToolImport, source: ReadSource) -> None:
    """Write down what was found, unless the import ended meanwhile."""
    owned = ToolImport.objects.filter(pk=tool_import.pk, status=ImportStatus.RUNNING)
    if not owned.update(rang_at=Now()):
        return
    tool_import.title = storable(tool_import.title or source.title or tool_import.url or "Imported tools", 200)
    tool_import.content = storable_value(dict(source.content))
    tool_import.base_url = tool_import.base_url or storable(source.base_url, 1_000)
    summary = store_found(tool_import, source)
    waits = any(summary["statuses"].get(status) for status in UNDECIDED)
    owned.update(
        status=ImportStatus.REVIEW if waits else ImportStatus.CLOSED,
        title=tool_import.title,
        base_url=tool_import.base_url,
        document=tool_import.document,
        content=tool_import.content,
        sha256=sha256_hex(tool_import.document) if tool_import.document else "",
        summary=summary,
        ended_at=Now(),
    )


def _fail(tool_import: ToolImport, reason: str) -> None:
    ToolImport.objects.filter(pk=tool_import.pk, status=ImportStatus.RUNNING).update(
        status=ImportStatus.FAILED, reason=storable(reason, MAX_REASON), ended_at=Now()
    )


def sweep() -> None:
    """Fail the imports that are past their deadline. Safe in any number of workers at once."""
    late = Q(deadline_at__lt=Now(), ended_at=None)
    with system_scope():
        for status, reason in ((ImportStatus.QUEUED, NOT_TAKEN), (ImportStatus.RUNNING, NO_RESULT)):
            ToolImport.objects.filter(late, status=status).update(
                status=ImportStatus.FAILED, reason=reason, ended_at=Now()
            )


def unrung(after: float) -> list[UUID]:
    """Return imports that no worker was called for in these last seconds; they count as called for from now on."""
    return claim_unrung(ToolImport, ImportStatus.QUEUED, after, order="deadline_at", at_once=AT_ONCE)
