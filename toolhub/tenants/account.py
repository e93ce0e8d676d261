"""What a user says of themselves, in every organisation at once."""

from __future__ import annotations

from django.db import transaction

from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.audit import record
from toolhub.tenants.models import User
from toolhub.tenants.scope import organisation_scope


@transaction.atomic
def rename_user(user: User, first_name: str, last_name: str) -> None:
    """Change one's own name; each organisation of the user has it in its audit."""
    before = user.get_full_name()
    user.first_name, user.last_name = first_name, last_name
    if user.get_full_name() == before:
        return
    user.save(update_fields=["first_name", "last_name"])
    for membership in memberships_of_user(user):
        with organisation_scope(membership.organisation_id):
            membership.user = user
            record(
                "member.rename",
                membership,
                actor=membership,
                before={"name": before},
                after={"name": user.get_full_name()},
            )
