"""The audited write of an organisation's settings: name, time zone, dates, and the personal assistant."""

from __future__ import annotations

from dataclasses import dataclass

from toolhub.tenants.access import check_right
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import guarded_write
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.people.writes import Forbidden
from toolhub.tenants.provided import Provided

#: Characters of a name.
MAX_NAME = 100
#: Settings that are on record here; another room has its own record of the time zone.
OWN = ("name", "date_language", "has_assistant")


@dataclass(frozen=True)
class OrganisationContent:
    """Settings of an organisation, as its form sends them. `time_zone` is an IANA name."""

    name: str
    time_zone: str
    date_language: str
    has_assistant: bool

    @staticmethod
    def of(organisation: Organisation) -> OrganisationContent:
        own = (organisation.name, organisation.time_zone, organisation.date_language, organisation.has_assistant)
        return OrganisationContent(*own)


@Provided
def set_time_zone(time_zone: str, *, actor: Membership) -> None:
    """Let hours, days and months of the organisation begin by this zone, with its record. Needs the right `budgets`."""


@Provided
def bring_assistant(organisation: Organisation) -> None:
    """Bring the assistant's tools, with what is theirs, to an organisation that has it from now on."""


@Provided
def set_assistant_aside(organisation: Organisation) -> None:
    """Take the assistant's tools, with what is theirs alone, out of an organisation that has it no more. Rows stay."""


@guarded_write(Forbidden)
def update_organisation(content: OrganisationContent, *, actor: Membership) -> Organisation:
    """Write the settings. Needs the right `members`, for another time zone `budgets`, and `catalogue` to switch the
    assistant. Raises PermissionDenied without."""
    check_right(actor, Right.MEMBERS)
    organisation = Organisation.objects.get(pk=actor.organisation_id)
    before = OrganisationContent.of(organisation)
    if content.time_zone != before.time_zone:
        set_time_zone(content.time_zone, actor=actor)
    if changed := [name for name in OWN if getattr(content, name) != getattr(before, name)]:
        for name in changed:
            setattr(organisation, name, getattr(content, name))
        organisation.save(update_fields=changed)
        old, new = ({name: getattr(each, name) for name in changed} for each in (before, content))
        record("organisation.update", actor, actor=actor, before=old, after=new)
    if content.has_assistant != before.has_assistant:
        check_right(actor, Right.CATALOGUE)
        (bring_assistant if content.has_assistant else set_assistant_aside)(organisation)
    organisation.time_zone = content.time_zone
    actor.organisation = organisation
    return organisation
