"""The audited writes of publications: publish a copy of a toolkit, withdraw it, import another organisation's."""

from __future__ import annotations

from django.db.models import F
from django.db.models.functions import Now

from capabilities.agents.sharing.exports import toolkit_file
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import configuration_write, require
from capabilities.models import Audience, ImportSource, Publication, ToolImport, Toolkit
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Publications of one organisation that are not withdrawn.
MAX_PUBLICATIONS = 1_000


@configuration_write("toolkit")
def publish_toolkit(toolkit: Toolkit, audience: str, *, actor: Membership) -> Publication:
    """Publish a copy of the toolkit as it is now: its next number. Needs the rights `catalogue` and `approve_code` for
    every category, for code leaves the house.

    Raises ChangeRefused where the newest copy says the same to the same readers, and where there is nothing to publish.
    """
    require(actor, Right.CATALOGUE)
    require(actor, Right.APPROVE_CODE)
    if audience not in Audience.values:
        raise ChangeRefused("audience", f"This is one of {', '.join(Audience.values)}.")
    own = Publication.objects.filter(publisher=actor.organisation_id)
    if own.filter(withdrawn_at=None).count() >= MAX_PUBLICATIONS:
        raise ChangeRefused("toolkit", f"{MAX_PUBLICATIONS:,} publications are the most: withdraw one first.")
    exported = toolkit_file(toolkit, reader=actor)
    last = own.filter(toolkit_name=toolkit.name).order_by("-number").first()
    if last is not None and not last.withdrawn_at and (last.sha256, last.audience) == (exported.sha256, audience):
        raise ChangeRefused("toolkit", f"Number {last.number} says the same already.", code="conflict")
    publication = Publication(
        publisher_id=actor.organisation_id,
        number=last.number + 1 if last is not None else 1,
        audience=audience,
        publisher_name=actor.organisation.name,
        toolkit_name=toolkit.name,
        description=toolkit.description,
        document=exported.text,
        sha256=exported.sha256,
        summary=dict(exported.summary),
    )
    if last is not None:
        publication.line = last.line
    publication.save(force_insert=True)
    after = {"number": publication.number, "audience": audience, "sha256": exported.sha256, **exported.summary}
    record("toolkit.publish", toolkit, actor=actor, after=after)
    return publication


@configuration_write("publication")
def withdraw_publication(publication: Publication, *, actor: Membership) -> None:
    """Nobody else reads it from now on; what others imported of it stays theirs. Needs the same rights. Raises
    PermissionDenied without them."""
    require(actor, Right.CATALOGUE)
    require(actor, Right.APPROVE_CODE)
    own = Publication.objects.filter(publisher=actor.organisation_id, pk=publication.pk, withdrawn_at=None)
    if own.update(withdrawn_at=Now()):
        toolkit = Toolkit.objects.filter(name=publication.toolkit_name).first()
        named = toolkit or Toolkit(organisation_id=actor.organisation_id, name=publication.toolkit_name)
        before = {"number": publication.number, "sha256": publication.sha256}
        record("toolkit.withdraw", named, actor=actor, before=before)


@configuration_write("publication")
def import_publication(publication: Publication, *, actor: Membership) -> ToolImport:
    """Put the copy into review, as an import of the actor's organisation. Needs the right `catalogue`.

    Raises ChangeRefused for one that is withdrawn. Its publisher learns that it was imported once more, no more.
    """
    readable = Publication.objects.filter(pk=publication.pk, withdrawn_at=None)
    if not readable.update(import_count=F("import_count") + 1):
        raise ChangeRefused("publication", "It was withdrawn: it can be imported no more.", code="conflict")
    tool_import = start_import(
        ImportSource.TOOLKIT,
        actor=actor,
        title=f"{publication.toolkit_name} of {publication.publisher_name}",
        document=publication.document,
        line=publication.line,
    )
    after = {
        "publisher": publication.publisher_name,
        "toolkit": publication.toolkit_name,
        "number": publication.number,
        "sha256": publication.sha256,
    }
    record("import.publication", tool_import, actor=actor, after=after)
    return tool_import
