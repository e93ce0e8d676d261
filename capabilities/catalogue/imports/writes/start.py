"""Start of an import: checked, put on record, and asked of a worker."""

from __future__ import annotations

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models.functions import Now

from capabilities.catalogue.imports.readers import ring_for_import
from capabilities.catalogue.imports.runs import QUEUE_SECONDS
from capabilities.common.moments import from_now
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import require
from capabilities.common.text import storable
from capabilities.contract.openapi.part import MAX_TAGS, MAX_TEXT, Part
from capabilities.contract.openapi.reading import WHOLE
from capabilities.models import (
    OPEN_IMPORTS,
    Category,
    ImportSource,
    McpServer,
    StoredCredential,
    ToolImport,
)
from capabilities.running.egress import EgressRefused, check_url
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import EVERY_CATEGORY, EVERYWHERE, Membership, Organisation, Right

#: Characters of a document that is handed in, and of one that is fetched.
MAX_FILE = 3_500_000
#: Imports of one organisation that wait or are read at the same time; documents that are kept.
MAX_OPEN = 5
KEPT_DOCUMENTS = 20


@transaction.atomic
def start_import(
    source: ImportSource,
    *,
    actor: Membership | None,
    title: str = "",
    url: str = "",
    document: str = "",
    server: McpServer | None = None,
    category: Category | None = None,
    credential: StoredCredential | None = None,
    line: UUID | None = None,
    organisation: Organisation | None = None,
    part: Part = WHOLE,
) -> ToolImport:
    """Put an import on record and call for a worker. One of the same server or address that is open is returned.

    `category`: who administers it may decide on what is found; without one, who administers the whole catalogue. A
    member whose right is for some categories alone has to choose one of them for a document. `line`: the publications
    that the document is one of. `actor` None: the service itself, which reads a server again, or a file for
    `organisation`. `part` of an OpenAPI document: what is meant of it. Raises ChangeRefused.
    """
    _require_anywhere(actor)
    if source in (ImportSource.OPENAPI, ImportSource.DEFINITIONS, ImportSource.TOOLKIT):
        category = category or _own_category(actor)
    if category is not None:
        require(actor, Right.CATALOGUE, {category.name})
    url = _checked_url(url) if url else ""
    document = storable(document)
    if source in (ImportSource.OPENAPI, ImportSource.DEFINITIONS) and bool(url) == bool(document.strip()):
        raise ChangeRefused("document", "Choose a file, or give an address: one of the two.")
    if source == ImportSource.TOOLKIT and (url or not document.strip()):
        raise ChangeRefused("document", "Choose the file of the toolkit: it is not read from an address.")
    _check_part(part, source)
    if len(document) > MAX_FILE:
        raise ChangeRefused("document", f"A file has at most {MAX_FILE:,} characters: give the document’s address.")
    organisation_id = actor.organisation_id if actor is not None else _organisation_of(server or organisation)
    hold_organisation(organisation_id)
    still_open = ToolImport.objects.filter(status__in=OPEN_IMPORTS, deadline_at__gt=Now())
    same = still_open.filter(source=source, url=url, server=server, category=category)
    earlier = next((each for each in same.order_by("pk") if each.part == part.as_json()), None)
    earlier = earlier if url or server is not None else None
    if earlier is not None:
        return earlier
    if actor is not None and still_open.count() >= MAX_OPEN:
        raise ChangeRefused("import", f"{MAX_OPEN} imports are not read yet: wait for one of them.", code="conflict")
    tool_import = ToolImport(
        organisation_id=organisation_id,
        source=source,
        title=storable(" ".join(title.split()), 200),
        url=url,
        document=document,
        server=server,
        category=category,
        credential=credential,
        line=line,
        part=part.as_json(),
        membership=actor,
        deadline_at=from_now(QUEUE_SECONDS),
        rang_at=Now(),
    )
    tool_import.save()
    tool_import.refresh_from_db()
    _forget_documents()
    after = {"source": source, "url": url, "server": str(server or ""), "characters": len(document)}
    record("import.start", tool_import, actor=actor, after=after)
    transaction.on_commit(lambda: ring_for_import(tool_import.public_id))
    return tool_import


def _check_part(part: Part, source: ImportSource) -> None:
    if part.is_whole:
        return
    if source != ImportSource.OPENAPI:
        raise ChangeRefused("tags", "Only an OpenAPI document is read in part: leave tags, path and words out.")
    if len(part.tags) > MAX_TAGS or any(len(each) > MAX_TEXT for each in part.tags):
        raise ChangeRefused("tags", f"Name at most {MAX_TAGS} tags of at most {MAX_TEXT} characters.")
    for field, text in (("path", part.path), ("words", part.text)):
        if len(text) > MAX_TEXT:
            raise ChangeRefused(field, f"Write at most {MAX_TEXT} characters.")


def _organisation_of(owner: McpServer | Organisation | None) -> int:
    if owner is None:
        raise ValueError("Without a member, an import is a server's, or says whose it is.")
    key: int = owner.pk if isinstance(owner, Organisation) else owner.organisation_id
    return key


def _require_anywhere(actor: Membership | None) -> None:
    """Raise PermissionDenied unless the actor administers some part of the catalogue: enough to look at what a source
    offers; each tool is asked for again."""
    if actor is not None and not actor.reach(Right.CATALOGUE):
        raise PermissionDenied("This needs the admin right catalogue.")


def _own_category(actor: Membership | None) -> Category | None:
    """The one category that the actor administers; none for who administers them all. Raises ChangeRefused for who
    has to choose."""
    reach = EVERYWHERE if actor is None else actor.reach(Right.CATALOGUE)
    if reach.covers(EVERY_CATEGORY):
        return None
    own = list(Category.objects.filter(name__in=reach.categories)[:2])
    if len(own) != 1:
        raise ChangeRefused("category", "Choose the category that its tools go to, of those that you administer.")
    return own[0]


def _checked_url(url: str) -> str:
    try:
        return str(check_url(url.strip()))[:1_000]
    except EgressRefused as error:
        raise ChangeRefused("url", str(error)) from error


def _forget_documents() -> None:
    """Keep the documents of the newest imports alone: a document is megabytes."""
    kept = ToolImport.objects.order_by("-pk").values_list("pk", flat=True)[:KEPT_DOCUMENTS]
    old = ToolImport.objects.exclude(pk__in=list(kept)).exclude(document="")
    old.exclude(status__in=OPEN_IMPORTS).update(document="")
